"""Convolution, forward, and backward with respect to its data, which is a transposed convolution."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from gossamer.cudnn.descriptors import Attribute, Descriptor, Kind
from gossamer.cudnn.enums import cudnnConvolutionMode
from gossamer.cudnn.operations.base import Lowering, Operation
from gossamer.cudnn.tensors import DATA_TYPES, Tensor, whole_numbers
from gossamer.errors import InvalidArgument


@dataclass(frozen=True)
class Convolution(Operation):
    """y = x ⋆ w, or, `transposed`, the data gradient of that: x is then the gradient of the output.

    x: [N, C, spatial]; w: [K, C/groups, spatial] ([C, K/groups, spatial] when transposed); y: [N, K, spatial]. The
    number of groups follows from the channels. padding_before, padding_after, stride, dilation: one per spatial
    dimension, of the forward convolution.

    Source: cudnn_graph.h, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR and …_BACKWARD_DATA_DESCRIPTOR.
    """

    x: int
    w: int
    y: int
    padding_before: tuple[int, ...]
    padding_after: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    compute: str

    READS: ClassVar[tuple[str, ...]] = ("x", "w")

    def describe(self, lowering: Lowering) -> Descriptor:
        return self._backward_data(lowering) if self.transposed else self._forward(lowering)

    def _convolution(self, lowering: Lowering) -> Descriptor:
        convolution = lowering.new(Kind.CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, "the convolution's parameters")
        convolution.set(Attribute.CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, len(self.stride))
        convolution.set(Attribute.CUDNN_ATTR_CONVOLUTION_COMP_TYPE, DATA_TYPES[self.compute])
        # ONNX, PyTorch and everybody else means correlation: the filter is not flipped.
        convolution.set(Attribute.CUDNN_ATTR_CONVOLUTION_CONV_MODE, cudnnConvolutionMode.CUDNN_CROSS_CORRELATION)
        convolution.set(Attribute.CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, *self.padding_before)
        convolution.set(Attribute.CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, *self.padding_after)
        convolution.set(Attribute.CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, *self.stride)
        convolution.set(Attribute.CUDNN_ATTR_CONVOLUTION_DILATIONS, *self.dilation)
        return convolution.finalize()

    def _forward(self, lowering: Lowering) -> Descriptor:
        kind = Kind.CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR
        operation = lowering.new(kind, "the convolution")
        operation.set(Attribute.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, self._convolution(lowering))
        operation.set(Attribute.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, lowering.tensors[self.x])
        operation.set(Attribute.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, lowering.tensors[self.w])
        operation.set(Attribute.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, lowering.tensors[self.y])
        operation.set(Attribute.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0)
        operation.set(Attribute.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0.0)
        return operation.finalize()

    def _backward_data(self, lowering: Lowering) -> Descriptor:
        kind = Kind.CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR
        operation = lowering.new(kind, "the transposed convolution")
        operation.set(Attribute.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, self._convolution(lowering))
        operation.set(Attribute.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, lowering.tensors[self.x])
        operation.set(Attribute.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, lowering.tensors[self.w])
        operation.set(Attribute.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, lowering.tensors[self.y])
        operation.set(Attribute.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 1.0)
        operation.set(Attribute.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 0.0)
        return operation.finalize()


def forward_dims(x: Tensor, w: Tensor, window: Window) -> tuple[int, ...]:
    """Dims of a convolution's result: [N, K, spatial]."""
    _check_ranks(x, w, window)
    if x.dims[1] % w.dims[1] or w.dims[0] % (x.dims[1] // w.dims[1]):
        raise InvalidArgument(f"convolution of {x} with {w}: channels do not divide into groups")
    spatial = window.reduced(x.dims[2:], w.dims[2:])
    return _positive((x.dims[0], w.dims[0], *spatial), f"convolution of {x} with {w}")


def transposed_dims(x: Tensor, w: Tensor, window: Window, groups: int, extra: Sequence[int]) -> tuple[int, ...]:
    """Dims of a transposed convolution's result; extra: how much larger than the least size, per spatial dimension."""
    _check_ranks(x, w, window)
    if x.dims[1] != w.dims[0] or groups < 1 or x.dims[1] % groups:
        raise InvalidArgument(f"transposed convolution of {x} with {w} in {groups} groups: channels do not match")
    spatial = [size + more for size, more in zip(window.expanded(x.dims[2:], w.dims[2:]), extra, strict=True)]
    return _positive((x.dims[0], w.dims[1] * groups, *spatial), f"transposed convolution of {x} with {w}")


@dataclass(frozen=True)
class Window:
    """How a window moves: per spatial dimension, padding on both sides, stride and dilation."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]

    def reduced(self, sizes: Sequence[int], window: Sequence[int]) -> list[int]:
        """Places that the window takes, per dimension; not rounded up."""
        numbers = zip(sizes, window, self.before, self.after, self.stride, self.dilation, strict=True)
        return [(size + a + b - ((k - 1) * d + 1)) // s + 1 for size, k, a, b, s, d in numbers]

    def expanded(self, sizes: Sequence[int], window: Sequence[int]) -> list[int]:
        """The least sizes for which `reduced` gives `sizes`."""
        numbers = zip(sizes, window, self.before, self.after, self.stride, self.dilation, strict=True)
        return [(size - 1) * s + (k - 1) * d + 1 - a - b for size, k, a, b, s, d in numbers]


def window_of(
    rank: int,
    padding: Sequence[int] | int,
    padding_after: Sequence[int] | int | None,
    stride: Sequence[int] | int,
    dilation: Sequence[int] | int = 1,
) -> Window:
    """A window for `rank` spatial dimensions; a number stands for the same in each, no `padding_after` for symmetry."""
    after = padding if padding_after is None else padding_after
    named = {"padding": padding, "padding_after": after, "stride": stride, "dilation": dilation}
    window = Window(*(per_dimension(name, given, rank) for name, given in named.items()))
    for name, steps in (("stride", window.stride), ("dilation", window.dilation)):
        if any(step < 1 for step in steps):
            raise InvalidArgument(f"{name} {steps}: at least 1 is wanted")
    return window


def per_dimension(name: str, given: Sequence[int] | int, rank: int) -> tuple[int, ...]:
    """One number per spatial dimension."""
    numbers = whole_numbers(name, given if isinstance(given, Iterable) else (given,) * rank)
    if len(numbers) != rank:
        raise InvalidArgument(f"{name} {numbers}: one number, or {rank}, one per spatial dimension")
    return numbers


def _check_ranks(x: Tensor, w: Tensor, window: Window) -> None:
    if len(x.dims) != len(w.dims) or len(x.dims) != len(window.stride) + 2:
        raise InvalidArgument(f"convolution of {x} with {w} over {len(window.stride)} spatial dimensions")


def _positive(dims: tuple[int, ...], what: str) -> tuple[int, ...]:
    if min(dims) < 1:
        raise InvalidArgument(f"{what}: the result would have dims {dims}")
    return dims
