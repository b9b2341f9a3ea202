"""ConvTranspose and its fused form.

Output o and input i meet at tap r where o + pad − r · dilation = i · stride. Outputs that are equal modulo the stride
(a phase) see the same taps, and within a phase a transposed convolution is a plain one of stride 1 that steps backwards
through the input. All phases run in one launch of `convolution_kernel`. (Depthwise ones are in `depthwise_transpose`.)

`gossamer::FusedConvTranspose(X, W, B?, Z?)` is activation(convtranspose(X, W) + B + Z), like `gossamer::FusedConv`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, product
from math import gcd, prod

import numpy as np

from gossamer.kernels.convolution import is_depthwise, refused
from gossamer.kernels.convolution_epilogue import epilogue_of
from gossamer.kernels.convolution_gemm import Phases, convolve, padded_channels
from gossamer.kernels.convolution_geometry import Activations, Convolution, Triple, Window, triple
from gossamer.kernels.convolution_inputs import arranged_phases, turned_back
from gossamer.kernels.convolution_tiles import choose_convolution_tiles, extents_of
from gossamer.kernels.convolution_weights import Packing, packed_filters
from gossamer.kernels.depthwise_transpose import convolve_transposed_depthwise
from gossamer.kernels.extents import cdiv
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import CHANNELS_LAST, FUSED, Node
from gossamer.program import Call, Refusal, Target
from gossamer.program.calls import MAX_GRID

MAX_PHASES = MAX_GRID[2]
"""Each phase is a slice of the grid, and a packed filter."""


@lowers("ConvTranspose")
@lowers("ConvTranspose", domain=CHANNELS_LAST)
@lowers("FusedConvTranspose", domain=FUSED)
@lowers("FusedConvTranspose", domain=CHANNELS_LAST)
def lower_conv_transpose(node: Node, target: Target) -> Lowered:
    """ONNX ConvTranspose (-1, -11, -22) over one to three spatial dimensions."""
    refusal = refused(node)
    if refusal is not None:
        return refusal
    epilogue, filters = epilogue_of(node), node.inputs[1]
    if isinstance(epilogue, Refusal):
        return epilogue
    assert filters is not None
    convolution, axes = _phased(node)
    if is_depthwise(convolution):
        return convolve_transposed_depthwise(node, target, replace(convolution, window=_whole(axes)), epilogue, filters)
    if prod(axis.stride for axis in axes) > MAX_PHASES:
        return Refusal(f"{node.op_type} with strides {tuple(axis.stride for axis in axes)} has too many phases")
    operands = arranged_phases(node, target, convolution, filters)
    convolution, extents = operands.convolution, extents_of(operands.convolution)
    tiles = choose_convolution_tiles(extents, node.x.dtype, target)
    per_tap, row = padded_channels(extents, tiles.block_k)
    taps = _tap_table(axes)
    kernel = axes[0].kernel * axes[1].kernel * axes[2].kernel
    packing = Packing(extents.groups, extents.channels, extents.outputs, kernel, taps, per_tap, row, transposed=True)
    packed, packing_calls = packed_filters(node, filters, packing, target)
    phases = _phases(node, axes, convolution.y.extents)
    before, y = operands.calls + packing_calls, node.y
    after: tuple[Call, ...] = ()
    if operands.calls and epilogue.residual is None:
        convolution, y, after = turned_back(node, convolution, target)
    return before + convolve(node, target, convolution, epilogue, tiles, operands.x, packed, y, phases) + after


@dataclass(frozen=True, slots=True)
class Axis:
    """One spatial dimension of a transposed convolution. pad: what is cut off before output 0."""

    kernel: int
    stride: int
    dilation: int
    pad: int

    @property
    def tap_step(self) -> int:
        """From one tap of a phase to its next."""
        return self.stride // gcd(self.stride, self.dilation)

    @property
    def most_taps(self) -> int:
        """Of any phase."""
        return cdiv(self.kernel, self.tap_step)

    @property
    def dilation_within(self) -> int:
        """Input elements between two taps of a phase: later taps see earlier inputs."""
        return -(self.dilation // gcd(self.stride, self.dilation))

    def taps(self, phase: int) -> tuple[int, ...]:
        """The taps that outputs ≡ phase (mod stride) see."""
        return tuple(r for r in range(self.kernel) if (phase + self.pad - r * self.dilation) % self.stride == 0)

    def origin(self, phase: int) -> int:
        """The input that output `phase` sees through the phase's first tap."""
        taps = self.taps(phase)
        return (phase + self.pad - taps[0] * self.dilation) // self.stride if taps else 0


def _phased(node: Node) -> tuple[Convolution, tuple[Axis, Axis, Axis]]:
    """The convolution that every phase is, with the taps of the phase that has most, and the axes."""
    weight = node.inputs[1]
    assert weight is not None
    x, y = Activations.of(node.x.shape, node.channels_last), Activations.of(node.y.shape, node.channels_last)
    depth, rows, columns = axes = axes_of(node, weight.shape[2:], x.extents, y.extents)
    kernel = (depth.most_taps, rows.most_taps, columns.most_taps)
    dilations = (depth.dilation_within, rows.dilation_within, columns.dilation_within)
    window = Window(kernel, (1, 1, 1), (0, 0, 0), dilations)
    rank = max(1, weight.rank - 2)
    return Convolution(node.x.shape[0], node.attribute("group", 1), rank, x, y, window), axes


def _whole(axes: tuple[Axis, Axis, Axis]) -> Window:
    """The operator's own window, of all phases."""
    d, h, w = axes
    return Window(
        (d.kernel, h.kernel, w.kernel),
        (d.stride, h.stride, w.stride),
        (d.pad, h.pad, w.pad),
        (d.dilation, h.dilation, w.dilation),
    )


def axes_of(node: Node, kernel: tuple[int, ...], x: Triple, y: Triple) -> tuple[Axis, Axis, Axis]:
    """The spatial dimensions of a ConvTranspose. kernel: the filter's; x, y: the extents of input and output."""
    spatial = len(kernel)
    kernels = triple(kernel, 1)
    strides = triple(node.attribute("strides", (1,) * spatial), 1)
    dilations = triple(node.attribute("dilations", (1,) * spatial), 1)
    extra = triple(node.attribute("output_padding", (0,) * spatial), 0)
    sizes = zip(x, strides, extra, kernels, dilations, strict=True)
    full = [(size - 1) * stride + more + (taps - 1) * gap + 1 for size, stride, more, taps, gap in sizes]
    pads = _begin_pads(node, [max(0, have - want) for have, want in zip(full, y, strict=True)])
    depth, rows, columns = map(Axis, kernels, strides, dilations, pads)
    return depth, rows, columns


def _begin_pads(node: Node, beyond: Sequence[int]) -> Triple:
    """What is cut off before output 0. beyond: how much longer the full result is than the output."""
    mode, pads = node.attribute("auto_pad", "NOTSET"), node.attribute("pads", ())
    if mode in ("SAME_UPPER", "SAME_LOWER") or node.attribute("output_shape", ()):
        return triple([total // 2 if mode == "SAME_UPPER" else total - total // 2 for total in beyond], 0)
    return (0, 0, 0) if mode == "VALID" else triple(pads[: len(pads) // 2], 0)


@lru_cache
def _tap_table(axes: tuple[Axis, Axis, Axis]) -> tuple[tuple[int, ...], ...]:
    """For each phase, which tap of the whole filter each tap of its window is; -1 where the window has one too many."""

    def windows(axis: Axis) -> np.ndarray:
        taps = map(axis.taps, range(axis.stride))
        return np.array([here + (-1,) * (axis.most_taps - len(here)) for here in taps])

    depth, rows, columns = map(windows, axes)
    t, r, s = depth[:, None, None, :, None, None], rows[None, :, None, None, :, None], columns[:, None, None, :]
    table = np.where((t < 0) | (r < 0) | (s < 0), -1, (t * axes[1].kernel + r) * axes[2].kernel + s)
    return tuple(map(tuple, table.reshape(len(depth) * len(rows) * len(columns), -1).tolist()))


@lru_cache
def _phase_table(axes: tuple[Axis, Axis, Axis]) -> tuple[tuple[int, ...], ...]:
    """For each phase, along each axis: the first input, the first output, and how many taps it has."""
    each = [[(axis.origin(p), p, len(axis.taps(p))) for p in range(axis.stride)] for axis in axes]
    return tuple(tuple(chain.from_iterable(zip(*phase, strict=True))) for phase in product(*each))


def _phases(node: Node, axes: tuple[Axis, Axis, Axis], y: Triple) -> Phases:
    rows = _phase_table(axes)
    shape = (len(rows), 9)
    constant = node.constant_buffer(f"convolution phases {axes}", shape, "int32", lambda: np.array(rows, np.int32))
    depth, height, width = axes
    strides = (depth.stride, height.stride, width.stride)
    cells = (cdiv(y[0], strides[0]), cdiv(y[1], strides[1]), cdiv(y[2], strides[2]))
    return Phases(len(rows), cells, strides, constant)
