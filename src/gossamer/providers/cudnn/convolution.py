"""Conv, ConvTranspose and their fused forms as cuDNN graphs: convolution, residual, bias, activation.

cuDNN's precompiled engines know one order of these, residual before bias, and want the bias in any case; of
activations they are fast with relu alone, and a transposed convolution has none of this. Whatever they do not know
follows in a native launch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite, prod

import numpy as np

from gossamer.cudnn.builder import GraphBuilder
from gossamer.cudnn.loader import Library
from gossamer.cudnn.tensors import Tensor
from gossamer.kernels.convolution import refused
from gossamer.kernels.convolution_epilogue import Epilogue, add_partial_sums, epilogue_of
from gossamer.kernels.convolution_geometry import LIMIT, Activations, Convolution, Triple, convolution_of
from gossamer.kernels.convolution_transpose import axes_of
from gossamer.model.node import CHANNELS_LAST, FUSED, Node
from gossamer.program import Buffer, Call, Refusal, Target, dtype_of
from gossamer.providers.cudnn import Lowered, Policy, chooses
from gossamer.providers.cudnn.graphs import Form, Operand, by_policy
from gossamer.providers.cudnn.tuning import Way

CONTRIB = "com.microsoft"

ALWAYS_FORBIDDEN = ("REDUCED_PRECISION_REDUCTION", "WINOGRAD_TILE_13x13")
"""Sums in half precision, and a transform that loses several digits: no native kernel does so."""

FULL_PRECISION = ("TENSOR_CORE", "DOWN_CONVERT_INPUTS", "WINOGRAD", "FFT")
"""What float32 must not go through where TF32 is not wanted: tensor cores take no more of it than that."""


@dataclass(frozen=True, slots=True)
class Window:
    """How a (transposed) convolution moves: per spatial dimension, of the forward convolution."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Filters:
    """A filter tensor [K, C / groups, spatial…] (transposed: [C, K / groups, spatial…]) in memory.

    channels_last: its channels are innermost there.
    """

    buffer: Buffer
    shape: tuple[int, ...]
    channels_last: bool


@chooses("Conv")
@chooses("Conv", domain=CHANNELS_LAST)
@chooses("FusedConv", domain=FUSED)
@chooses("FusedConv", domain=CHANNELS_LAST)
@chooses("FusedConv", "NhwcConv", "NhwcFusedConv", domain=CONTRIB)
def lower_convolution(node: Node, target: Target, _: Library, policy: Policy) -> Lowered | Iterator[Way]:
    """ONNX Conv (-1, -11, -22), com.microsoft's FusedConv, NhwcConv, NhwcFusedConv (-1), and what passes make of it."""
    epilogue = refused(node) or _too_large(node) or epilogue_of(node)
    if isinstance(epilogue, Refusal):
        return epilogue
    filters = _filters(node, stored_last=node.op_type == "NhwcConv")
    if isinstance(filters, Refusal):
        return filters
    geometry = convolution_of(node, Buffer("", filters.buffer.dtype, filters.shape))
    window = forward_window(geometry, _spatial(node))

    def convolve(graph: GraphBuilder, x: Tensor, w: Tensor) -> Tensor:
        return graph.convolution(
            x, w, padding=window.before, padding_after=window.after, stride=window.strides, dilation=window.dilations
        )

    parts = Parts(node, target, epilogue, filters, convolve, geometry.y, geometry.flops)
    forms = [parts.fused(), parts.split()] if parts.is_fusable else [parts.split()]
    return by_policy(target, policy, forms if parts.has_epilogue else [parts.plain()], _forbidden(node, target))


@chooses("ConvTranspose")
@chooses("ConvTranspose", domain=CHANNELS_LAST)
@chooses("FusedConvTranspose", domain=FUSED)
@chooses("FusedConvTranspose", domain=CHANNELS_LAST)
def lower_transposed(node: Node, target: Target, _: Library, policy: Policy) -> Lowered | Iterator[Way]:
    """ONNX ConvTranspose (-1, -11, -22): what a convolution's data gradient is."""
    epilogue = refused(node) or _too_large(node) or epilogue_of(node)
    if isinstance(epilogue, Refusal):
        return epilogue
    filters = _filters(node)
    if isinstance(filters, Refusal):
        return filters
    x, y = Activations.of(node.x.shape, node.channels_last), Activations.of(node.y.shape, node.channels_last)
    moves = transposed_window(node, filters, x.extents, y.extents)
    if isinstance(moves, Refusal):
        return moves
    (window, extra), groups = moves, node.attribute("group", 1)

    def convolve(graph: GraphBuilder, x: Tensor, w: Tensor) -> Tensor:
        return graph.convolution_transpose(
            x, w, padding=window.before, padding_after=window.after, stride=window.strides,
            dilation=window.dilations, output_padding=extra, groups=groups,
        )  # fmt: skip

    flops = 2 * node.x.size * prod(filters.shape[1:])
    parts = Parts(node, target, epilogue, filters, convolve, y, flops)
    forms = [parts.split(), parts.fused()] if parts.is_fusable else [parts.split()]
    return by_policy(target, policy, forms if parts.has_epilogue else [parts.plain()], _forbidden(node, target))


@dataclass(frozen=True, slots=True)
class Parts:
    """A convolution taken apart, to be put together as graphs. layout: of y."""

    node: Node
    target: Target
    epilogue: Epilogue
    filters: Filters
    convolve: Callable[[GraphBuilder, Tensor, Tensor], Tensor]
    layout: Activations
    flops: int

    @property
    def has_epilogue(self) -> bool:
        epilogue = self.epilogue
        return epilogue.activation != "none" or epilogue.bias is not None or epilogue.residual is not None

    @property
    def is_fusable(self) -> bool:
        return self.epilogue.activation in ACTIVATIONS

    def plain(self) -> Form:
        """The convolution alone."""
        graph, y, operands = self._sums()
        return self._finished("alone", graph, y, {**operands, "y": Operand(self.node.y)})

    def split(self) -> Form:
        """The convolution alone, and a native launch for the rest."""
        graph, y, operands = self._sums()
        sums = self.node.temporary(self.node.y.shape, self.node.y.dtype)
        rest = add_partial_sums(sums, 1, self.epilogue, self.node.y, self.layout, self.target)
        return self._finished("with a native epilogue", graph, y, {**operands, "y": Operand(sums)}, (rest,))

    def fused(self) -> Form:
        """Everything in one graph."""
        graph, y, operands = self._sums()
        epilogue, node = self.epilogue, self.node
        if epilogue.residual is not None:
            operands["z"] = Operand(epilogue.residual)
            y = graph.add(y, self._activations(graph, "z", epilogue.residual, node.channels_last))
        bias = epilogue.bias or _zeros(node, y.dims[1])
        operands["b"] = Operand(bias)
        y = graph.add(y, graph.tensor("b", (1, y.dims[1], *(1,) * (len(y.dims) - 2)), bias.dtype))
        y = ACTIVATIONS[epilogue.activation](graph, y, *epilogue.parameters)
        return self._finished("fused", graph, y, {**operands, "y": Operand(node.y)})

    def _sums(self) -> tuple[GraphBuilder, Tensor, dict[str, Operand]]:
        """A graph that has the convolution's sums."""
        node, filters = self.node, self.filters
        precision = "float64" if node.x.dtype == "float64" else "float32"
        graph = GraphBuilder(compute=precision, intermediate=precision)
        last = node.channels_last and not node.attribute("x_channels_first", 0)
        x = self._activations(graph, "x", node.x, last)
        channels, rank = filters.shape[:2], self._rank
        dims = (*channels, *_padded(filters.shape[2:], rank, 1))
        w = graph.tensor("w", dims, filters.buffer.dtype, layout=_layout(rank, filters.channels_last))
        return graph, self.convolve(graph, x, w), {"x": Operand(node.x), "w": Operand(filters.buffer)}

    def _activations(self, graph: GraphBuilder, name: str, buffer: Buffer, last: bool) -> Tensor:
        rank = self._rank
        channels, spatial = (buffer.shape[-1], buffer.shape[1:-1]) if last else (buffer.shape[1], buffer.shape[2:])
        dims = (buffer.shape[0], channels, *_padded(spatial, rank, 1))
        return graph.tensor(name, dims, buffer.dtype, layout=_layout(rank, last))

    def _finished(
        self, name: str, graph: GraphBuilder, y: Tensor, operands: dict[str, Operand], after: tuple[Call, ...] = ()
    ) -> Form:
        graph.output(y, name="y", dtype=self.node.y.dtype, layout=_layout(self._rank, self.node.channels_last))
        return Form(name, graph, operands, after, self.flops)

    @property
    def _rank(self) -> int:
        return _spatial(self.node)


def _clip(graph: GraphBuilder, x: Tensor, lowest: float, highest: float) -> Tensor:
    """cuDNN takes finite bounds."""
    bounds = {"lower_clip": lowest, "upper_clip": highest}
    finite = {name: bound for name, bound in bounds.items() if isfinite(bound)}
    return graph.pointwise("relu", x, **{"lower_clip": -float(np.finfo(np.float32).max), **finite})


ACTIVATIONS: dict[str, Callable[[GraphBuilder, Tensor, float, float], Tensor]] = {
    "none": lambda graph, x, a, b: x,
    "relu": lambda graph, x, a, b: graph.relu(x),
    "clip": _clip,
    "leaky_relu": lambda graph, x, a, b: graph.leaky_relu(x, a),
    "elu": lambda graph, x, a, b: graph.elu(x, a),
    "sigmoid": lambda graph, x, a, b: graph.sigmoid(x),
    "tanh": lambda graph, x, a, b: graph.tanh(x),
    "silu": lambda graph, x, a, b: graph.swish(x, a),
    "softplus": lambda graph, x, a, b: graph.softplus(x),
    "gelu": lambda graph, x, a, b: graph.gelu(x),
    "gelu_tanh": lambda graph, x, a, b: graph.gelu(x, approximate=True),
}
"""Kinds of `kernels.activations` as cuDNN has them; the others are native."""


def _too_large(node: Node) -> Refusal | None:
    sizes = [buffer.size for buffer in (node.x, node.y)]
    if min(sizes) == 0:
        return Refusal("cuDNN has no tensors without elements")
    return Refusal("cuDNN's engines number elements with 32 bits") if max(sizes) >= LIMIT else None


def _forbidden(node: Node, target: Target) -> Sequence[str]:
    """Notes of engines that do not compute what is wanted."""
    full = FULL_PRECISION if node.x.dtype == "float32" and not target.use_tf32 else ()
    return (*ALWAYS_FORBIDDEN, *full, *(("NONDETERMINISTIC",) if target.deterministic else ()))


def _filters(node: Node, *, stored_last: bool = False) -> Filters | Refusal:
    """The second input, packed with its channels last where activations are; those that are no constant cuDNN packs in
    its workspace. stored_last: it is M, spatial…, C / group, as onnxruntime's kernel of NhwcConv has it."""
    weight = node.inputs[1]
    assert weight is not None
    if stored_last:
        channels = node.x.shape[-1] // node.attribute("group", 1)
        if weight.shape[-1] != channels:
            return Refusal(f"filters {weight.shape} are not M, spatial…, {channels}")
        return Filters(weight, (weight.shape[0], channels, *weight.shape[1:-1]), channels_last=True)
    shape = weight.shape
    if not node.channels_last or shape[1] == 1 or prod(shape[2:]) == 1:  # one memory order is as good as the other
        return Filters(weight, shape, node.channels_last)
    if not node.is_constant(weight):
        return Filters(weight, shape, channels_last=False)
    packed = (shape[0], *shape[2:], shape[1])
    last = node.derived(weight, "channels_last", packed, weight.dtype, lambda array: np.moveaxis(array, 1, -1))
    return Filters(last, shape, channels_last=True)


def _zeros(node: Node, channels: int) -> Buffer:
    dtype = node.y.dtype
    key = f"{channels} zeros of {dtype}"
    return node.constant_buffer(key, (channels,), dtype, lambda: np.zeros(channels, dtype_of(dtype)))


def _spatial(node: Node) -> int:
    """Spatial dimensions that cuDNN is told of: at least two."""
    return max(2, node.x.rank - 2)


def _layout(rank: int, channels_last: bool) -> str:
    spatial = "DHW"[-rank:]
    return f"N{spatial}C" if channels_last else f"NC{spatial}"


def _padded(sizes: Sequence[int], rank: int, filler: int) -> tuple[int, ...]:
    return (filler,) * (rank - len(sizes)) + tuple(sizes)


def forward_window(geometry: Convolution, rank: int) -> Window:
    """Padding after is the same as before where that makes no difference: most engines know nothing else."""
    window = geometry.window
    after = []
    for k, s, before, d, size, out in zip(
        window.kernel, window.strides, window.pads, window.dilations, geometry.x.extents, geometry.y.extents,
        strict=True,
    ):  # fmt: skip
        least = (out - 1) * s + (k - 1) * d + 1 - size - before
        after.append(before if least <= before < least + s else max(0, least))
    return Window(window.pads[-rank:], tuple(after[-rank:]), window.strides[-rank:], window.dilations[-rank:])


def transposed_window(node: Node, filters: Filters, x: Triple, y: Triple) -> tuple[Window, tuple[int, ...]] | Refusal:
    """The window of the convolution from y to x, and how much larger y is than the least that gives x."""
    axes = axes_of(node, filters.shape[2:], x, y)
    after, extra = [], []
    for axis, size, out in zip(axes, x, y, strict=True):
        least = (size - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1 - out - axis.pad
        chosen = axis.pad if least <= axis.pad < least + axis.stride else max(0, least)
        if chosen >= least + axis.stride:
            return Refusal("no convolution has this as its data gradient: outputs reach beyond every window")
        after.append(chosen)
        extra.append(chosen - least)
    rank = _spatial(node)
    return (
        Window(
            tuple(axis.pad for axis in axes[-rank:]),
            tuple(after[-rank:]),
            tuple(axis.stride for axis in axes[-rank:]),
            tuple(axis.dilation for axis in axes[-rank:]),
        ),
        tuple(extra[-rank:]),
    )
