"""Building a graph: tensors, and methods that add operations and return what they compute.

Nothing here needs cuDNN: a graph is plain data (`as_dict`) until it is given to `Graph.build`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from gossamer.cudnn import attention as attentions
from gossamer.cudnn.operations import OPERATIONS, Convolution, Matmul, Norm, Operation, Pointwise, Reduction, Resample
from gossamer.cudnn.operations import convolution as convolutions
from gossamer.cudnn.operations import matmul as matmuls
from gossamer.cudnn.operations import norm as norms
from gossamer.cudnn.operations import pointwise as pointwises
from gossamer.cudnn.operations import reduction as reductions
from gossamer.cudnn.operations import resample as resamples
from gossamer.cudnn.tensors import Tensor, checked, data_type, rounded, strides_like, strides_of, whole_numbers
from gossamer.errors import InvalidArgument, WrongType

__all__ = ["FORMAT", "GraphBuilder"]

FORMAT = 1
"""Version of a graph's dict form; newer ones are refused."""


class GraphBuilder:
    """Tensors and operations of one graph.

    tensors: by uid, as they are now. operations: in the order in which they were added, which is one they can run in.
    Operations take tensors of this graph, and return new ones that are virtual (nothing of them is in memory) until
    `output` says otherwise. compute: the data type that operations compute in; intermediate: that of virtual tensors.
    Both go by NumPy's names. InvalidArgument says what of shapes, types or parameters does not fit.
    """

    def __init__(self, name: str = "", compute: Any = "float32", intermediate: Any = "float32") -> None:
        self.name = name
        self.compute = data_type(compute)
        self.intermediate = data_type(intermediate)
        self.tensors: dict[int, Tensor] = {}
        self.operations: list[Operation] = []
        self._handed_out: set[Tensor] = set()

    # Tensors

    def tensor(
        self,
        name: str,
        dims: Sequence[int],
        dtype: Any,
        *,
        layout: str | None = None,
        strides: Sequence[int] | None = None,
        alignment: int = 16,
    ) -> Tensor:
        """An input. dims: [N, C, spatial] for images, […, M, K] for matrices.

        layout: `NCHW`, `NHWC`, `NDHWC`, …; strides: in elements; neither: packed as the dims stand. alignment: what its
        address is a multiple of, in bytes.
        """
        if layout is not None and strides is not None:
            raise InvalidArgument(f"tensor {name!r}: give a layout or strides, not both")
        sizes = whole_numbers(f"dims of tensor {name!r}", dims)
        placed = strides_of(sizes, layout) if strides is None else tuple(strides)
        return self._add(Tensor(self._free_uid(), name, sizes, placed, data_type(dtype), alignment=alignment))

    def scalar(self, value: float | int, dtype: Any = "float32", rank: int = 4, name: str = "") -> Tensor:
        """A number that engines are given by value, with `rank` dimensions of size 1."""
        ones, kind = (1,) * rank, data_type(dtype)
        return self._add(Tensor(self._free_uid(), name, ones, ones, kind, value=rounded(value, kind)))

    def output(
        self,
        tensor: Tensor,
        *,
        dtype: Any = None,
        name: str | None = None,
        layout: str | None = None,
        strides: Sequence[int] | None = None,
        alignment: int = 16,
    ) -> Tensor:
        """Have a computed tensor written to memory. dtype: by default that of the graph's first tensor."""
        now = self.current(tensor)
        if not now.virtual:
            raise InvalidArgument(f"{now} is not computed by this graph, or already an output")
        if strides is None:
            strides = now.strides if layout is None else strides_of(now.dims, layout)
        first = next(iter(self.tensors.values()))
        described = replace(
            now,
            virtual=False,
            dtype=data_type(first.dtype if dtype is None else dtype),
            name=now.name if name is None else name,
            strides=tuple(strides),
            alignment=alignment,
        )
        return self.declare(described)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Tensors that have to be in memory before, in the order in which they were made."""
        written = {uid for operation in self.operations for uid in operation.writes}
        return tuple(one for one in self.tensors.values() if not (one.virtual or one.by_value or one.uid in written))

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Tensors that are written to memory."""
        written = [uid for operation in self.operations for uid in operation.writes]
        return tuple(self.tensors[uid] for uid in written if not self.tensors[uid].virtual)

    # Operations

    def convolution(
        self,
        x: Tensor,
        w: Tensor,
        *,
        padding: Sequence[int] | int = 0,
        padding_after: Sequence[int] | int | None = None,
        stride: Sequence[int] | int = 1,
        dilation: Sequence[int] | int = 1,
    ) -> Tensor:
        """x [N, C, spatial] ⋆ w [K, C/groups, spatial] → [N, K, spatial]; the filter is not flipped.

        padding: before the first element; padding_after: after the last, by default the same. The memory order is x's.
        """
        x, w = self.current(x), self.current(w)
        window = convolutions.window_of(len(x.dims) - 2, padding, padding_after, stride, dilation)
        y = self._virtual(convolutions.forward_dims(x, w, window), like=x)
        self._convolve(x, w, y, window, transposed=False)
        return y

    def convolution_transpose(
        self,
        x: Tensor,
        w: Tensor,
        *,
        padding: Sequence[int] | int = 0,
        padding_after: Sequence[int] | int | None = None,
        stride: Sequence[int] | int = 1,
        dilation: Sequence[int] | int = 1,
        output_padding: Sequence[int] | int = 0,
        groups: int = 1,
    ) -> Tensor:
        """x [N, C, spatial] and w [C, K/groups, spatial] → [N, K, spatial]: a convolution's data gradient.

        output_padding: how much larger the result is than the least size that a convolution would take x's size from.
        """
        x, w = self.current(x), self.current(w)
        rank = len(x.dims) - 2
        window = convolutions.window_of(rank, padding, padding_after, stride, dilation)
        extra = convolutions.per_dimension("output_padding", output_padding, rank)
        y = self._virtual(convolutions.transposed_dims(x, w, window, groups, extra), like=x)
        self._convolve(x, w, y, window, transposed=True)
        return y

    def _convolve(self, x: Tensor, w: Tensor, y: Tensor, window: convolutions.Window, transposed: bool) -> None:
        numbers = (window.before, window.after, window.stride, window.dilation)
        self.operations.append(Convolution(x.uid, w.uid, y.uid, *numbers, transposed, self.compute))

    def pointwise(self, mode: str, *operands: Tensor, dtype: Any = None, **parameters: float) -> Tensor:
        """An elementwise operation of one, two or three tensors of one rank, sizes equal or 1.

        mode: a name out of `operations.pointwise.MODES`: add, sub, mul, div, max, min, pow, relu, tanh, sigmoid, elu,
        gelu, gelu_tanh, softplus, swish, identity, abs, exp, log, sqrt, rsqrt, erf, cmp_ge, select (true, false,
        condition), index, … parameters: lower_clip, upper_clip, slope (relu), alpha (elu), beta (softplus, swish), axis
        (index). dtype: of the virtual result, by default the graph's intermediate type, `bool` for comparisons.
        """
        pointwises.checked_mode(mode, len(operands), tuple(parameters))
        given = [self.current(operand) for operand in operands]
        logical = mode in pointwises.LOGICAL
        dims = pointwises.broadcast(given)
        largest = next((one for one in given if one.dims == dims), given[0])
        y = self._virtual(dims, like=largest, dtype=dtype or ("bool" if logical else self.intermediate))
        b, t = (given[index].uid if len(given) > index else None for index in (1, 2))
        compute = "bool" if logical else self.compute
        self.operations.append(Pointwise(mode, given[0].uid, y.uid, compute, b, t, **parameters))  # type: ignore[arg-type]
        return y

    def add(self, x: Tensor, b: Tensor) -> Tensor:
        """x + b."""
        return self.pointwise("add", x, b)

    def sub(self, x: Tensor, b: Tensor) -> Tensor:
        """x - b."""
        return self.pointwise("sub", x, b)

    def mul(self, x: Tensor, b: Tensor) -> Tensor:
        """x · b."""
        return self.pointwise("mul", x, b)

    def div(self, x: Tensor, b: Tensor) -> Tensor:
        """x / b."""
        return self.pointwise("div", x, b)

    def relu(self, x: Tensor) -> Tensor:
        """max(x, 0)."""
        return self.pointwise("relu", x)

    def leaky_relu(self, x: Tensor, slope: float = 0.01) -> Tensor:
        """x where it is positive, slope · x elsewhere."""
        return self.pointwise("relu", x, slope=slope)

    def clip(self, x: Tensor, lowest: float, highest: float) -> Tensor:
        """x, but at least lowest and at most highest."""
        return self.pointwise("relu", x, lower_clip=lowest, upper_clip=highest)

    def elu(self, x: Tensor, alpha: float = 1.0) -> Tensor:
        """x where it is positive, alpha · (eˣ - 1) elsewhere."""
        return self.pointwise("elu", x, alpha=alpha)

    def gelu(self, x: Tensor, approximate: bool = False) -> Tensor:
        """x · Φ(x), by the error function or its approximation with tanh."""
        return self.pointwise("gelu_tanh" if approximate else "gelu", x)

    def sigmoid(self, x: Tensor) -> Tensor:
        """1 / (1 + e⁻ˣ)."""
        return self.pointwise("sigmoid", x)

    def tanh(self, x: Tensor) -> Tensor:
        """Hyperbolic tangent."""
        return self.pointwise("tanh", x)

    def swish(self, x: Tensor, beta: float = 1.0) -> Tensor:
        """x · sigmoid(beta · x)."""
        return self.pointwise("swish", x, beta=beta)

    def softplus(self, x: Tensor, beta: float = 1.0) -> Tensor:
        """log(1 + e^(beta · x)) / beta."""
        return self.pointwise("softplus", x, beta=beta)

    def matmul(self, a: Tensor, b: Tensor, *, dtype: Any = None) -> Tensor:
        """a […, M, K] · b […, K, N] → […, M, N], row by row in memory; three dimensions or more."""
        a, b = self.current(a), self.current(b)
        c = self._virtual(matmuls.product_dims(a, b), dtype=dtype)
        self.operations.append(Matmul(a.uid, b.uid, c.uid, self.compute))
        return c

    def reduction(self, mode: str, x: Tensor, axes: Sequence[int]) -> Tensor:
        """Reduce axes to size 1. mode: add, mul, min, max, amax, avg, norm1, norm2, mul_no_zeros.

        cuDNN has engines for reductions of matrices over rows or columns, for channels over everything else, and behind
        other operations; not for every set of axes.
        """
        if mode not in reductions.MODES:
            raise InvalidArgument(f"reduction {mode!r}: accepted are {', '.join(reductions.MODES)}")
        x = self.current(x)
        y = self._virtual(reductions.reduced_dims(x, axes), like=x)
        self.operations.append(Reduction(mode, x.uid, y.uid, self.compute))
        return y

    def pool(
        self,
        mode: str,
        x: Tensor,
        window: Sequence[int] | int,
        *,
        padding: Sequence[int] | int = 0,
        padding_after: Sequence[int] | int | None = None,
        stride: Sequence[int] | int = 1,
    ) -> Tensor:
        """Pool x [N, C, spatial] over its spatial dimensions.

        mode: `max`, `average` (of the elements inside of x) or `average_including_padding` (zeros count too).
        """
        if mode not in resamples.MODES:
            raise InvalidArgument(f"pooling {mode!r}: accepted are {', '.join(resamples.MODES)}")
        x = self.current(x)
        rank = len(x.dims) - 2
        moves = convolutions.window_of(rank, padding, padding_after, stride)
        sizes = convolutions.per_dimension("window", window, rank)
        dims = (*x.dims[:2], *moves.reduced(x.dims[2:], sizes))
        if min(*dims, *sizes) < 1:
            raise InvalidArgument(f"pooling of {x} over {sizes}: the result would have dims {dims}")
        y = self._virtual(dims, like=x)
        self.operations.append(
            Resample(mode, x.uid, y.uid, sizes, moves.before, moves.after, moves.stride, self.compute)
        )
        return y

    def normalization(
        self, mode: str, x: Tensor, scale: Tensor, bias: Tensor | None = None, *, epsilon: float = 1e-5
    ) -> Tensor:
        """(x - mean) / √(variance + epsilon) · scale + bias, with x's own mean and variance.

        mode: `layer` and `rms`, over the dimensions in which scale is not of size 1 (rms takes the mean as 0; bias is
        optional); `instance`, over the spatial dimensions of x [N, C, spatial], scale and bias [1, C, 1…].
        """
        if mode not in norms.MODES or (bias is None and mode != "rms"):
            raise InvalidArgument(f"normalization {mode!r}: accepted are layer and instance with a bias, and rms")
        x, scale = self.current(x), self.current(scale)
        offset = None if bias is None else self.current(bias).uid
        small = self.scalar(epsilon, "float32", rank=len(x.dims))
        y = self._virtual(pointwises.broadcast([x, scale]), like=x)
        self.operations.append(Norm(mode, x.uid, scale.uid, y.uid, small.uid, offset))
        return y

    def batch_normalization(
        self, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, inverse_deviation: Tensor
    ) -> Tensor:
        """(x - mean) · inverse_deviation · scale + bias, all [1, C, 1…]; pointwise operations to cuDNN."""
        centred = self.sub(x, mean)
        return self.add(self.mul(self.mul(centred, inverse_deviation), scale), bias)

    def attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        scale: float | None = None,
        bias: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """softmax(scale · q kᵀ + bias) v.

        q: [N, heads, queries, size]; k, v: [N, heads, keys, size], where k's and v's heads may be a divisor of q's.
        scale: by default 1/√size. bias: broadcasts to [N, heads, queries, keys]. causal: a query attends to no key
        after its own index. The result has q's memory order: declare q with the strides that it has in memory, e.g.
        those of [N, queries, heads, size].

        Composed of matmul, pointwise and reduction operations, in the form that cuDNN's flash attention engines
        recognise, in float16 and bfloat16; float32 is left to its general engines. Nothing else may read k.
        """
        return attentions.attention(self, q, k, v, scale=scale, bias=bias, causal=causal)

    # As data

    def as_dict(self) -> dict[str, Any]:
        """The graph as JSON can hold it; `Graph.deserialize` takes it back."""
        return {
            "format": FORMAT,
            "name": self.name,
            "compute": self.compute,
            "intermediate": self.intermediate,
            "tensors": [asdict(tensor) for tensor in self.tensors.values()],
            "operations": [operation.as_dict() for operation in self.operations],
        }

    def _take(self, values: Mapping[str, Any]) -> None:
        """Tensors, data types and operations from the dict form, all or none; the name stays."""
        if values.get("format") != FORMAT:
            raise InvalidArgument(f"a graph of format {values.get('format')!r}; this Gossamer reads format {FORMAT}")
        try:
            tensors = [_tensor(one) for one in values["tensors"]]
            operations = [_operation(one) for one in values["operations"]]
            compute, intermediate = data_type(values["compute"]), data_type(values["intermediate"])
        except (KeyError, TypeError, AttributeError) as error:
            raise InvalidArgument(f"no graph: {type(error).__name__}: {error}") from None
        known = {tensor.uid for tensor in tensors}
        if len(known) != len(tensors) or not all(known.issuperset((*one.reads, *one.writes)) for one in operations):
            raise InvalidArgument("no graph: a tensor is declared twice, or used and not declared")
        self._replace_tensors(tensors)
        self.operations, self.compute, self.intermediate = operations, compute, intermediate

    def _replace_tensors(self, tensors: Iterable[Tensor]) -> None:
        self.tensors = {tensor.uid: tensor for tensor in tensors}
        self._handed_out = set(self.tensors.values())

    def _free_uid(self) -> int:
        return max(self.tensors, default=0) + 1

    def _add(self, tensor: Tensor) -> Tensor:
        if tensor.name and any(tensor.name == other.name for other in self.tensors.values()):
            raise InvalidArgument(f"this graph already has a tensor {tensor.name!r}")
        return self.declare(tensor)

    def declare(self, tensor: Tensor) -> Tensor:
        """Add a tensor, or put it in the place of the one with its uid. InvalidArgument where it cannot be."""
        self.tensors[tensor.uid] = checked(tensor)
        self._handed_out.add(tensor)
        return tensor

    def _virtual(self, dims: Sequence[int], *, like: Tensor | None = None, dtype: Any = None) -> Tensor:
        strides = strides_of(dims, None) if like is None else strides_like(dims, like)
        kind = data_type(self.intermediate if dtype is None else dtype)
        return self._add(Tensor(self._free_uid(), "", tuple(dims), strides, kind, virtual=True))

    def current(self, tensor: Tensor) -> Tensor:
        """The tensor as it is now, or InvalidArgument when it is another graph's."""
        if not isinstance(tensor, Tensor):
            raise WrongType(f"a {type(tensor).__name__} is no tensor of this graph")
        if tensor not in self._handed_out:
            raise InvalidArgument(f"{tensor} is no tensor of this graph")
        return self.tensors[tensor.uid]


def _tensor(values: Mapping[str, Any]) -> Tensor:
    return checked(Tensor(**{**values, "dims": tuple(values["dims"]), "strides": tuple(values["strides"])}))


def _operation(values: Mapping[str, Any]) -> Operation:
    fields = dict(values)
    kind = fields.pop("operation")
    if kind not in OPERATIONS:
        raise InvalidArgument(f"no operation {kind!r}; there are {', '.join(OPERATIONS)}")
    return OPERATIONS[kind].from_dict(fields)
