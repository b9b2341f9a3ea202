"""Reductions over some dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from gossamer.cudnn.descriptors import Attribute, Descriptor, Kind
from gossamer.cudnn.enums import cudnnReduceTensorOp
from gossamer.cudnn.operations.base import Lowering, Operation
from gossamer.cudnn.tensors import DATA_TYPES, Tensor
from gossamer.errors import InvalidArgument


@dataclass(frozen=True)
class Reduction(Operation):
    """y = mode of x over every dimension that has size 1 in y and more in x.

    Source: cudnn_graph.h, CUDNN_BACKEND_REDUCTION_DESCRIPTOR and CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR.
    """

    mode: str
    x: int
    y: int
    compute: str

    READS: ClassVar[tuple[str, ...]] = ("x",)

    def describe(self, lowering: Lowering) -> Descriptor:
        parameters = lowering.new(Kind.CUDNN_BACKEND_REDUCTION_DESCRIPTOR, f"the parameters of reduction {self.mode}")
        parameters.set(Attribute.CUDNN_ATTR_REDUCTION_OPERATOR, MODES[self.mode])
        parameters.set(Attribute.CUDNN_ATTR_REDUCTION_COMP_TYPE, DATA_TYPES[self.compute]).finalize()
        operation = lowering.new(Kind.CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, f"reduction {self.mode}")
        operation.set(Attribute.CUDNN_ATTR_OPERATION_REDUCTION_DESC, parameters)
        operation.set(Attribute.CUDNN_ATTR_OPERATION_REDUCTION_XDESC, lowering.tensors[self.x])
        operation.set(Attribute.CUDNN_ATTR_OPERATION_REDUCTION_YDESC, lowering.tensors[self.y])
        return operation.finalize()


MODES: dict[str, cudnnReduceTensorOp] = {
    mode.name.removeprefix("CUDNN_REDUCE_TENSOR_").lower(): mode for mode in cudnnReduceTensorOp
}
"""Modes by name: add, mul, min, max, amax, avg, norm1, norm2, mul_no_zeros."""


def reduced_dims(x: Tensor, axes: Sequence[int]) -> tuple[int, ...]:
    """Dims of a reduction that keeps the reduced dimensions with size 1; negative axes count from the end."""
    rank = len(x.dims)
    if not axes or any(not -rank <= axis < rank for axis in axes):
        raise InvalidArgument(
            f"reduction of {x} over axes {tuple(axes)}: at least one is wanted, from {-rank} to {rank - 1}"
        )
    gone = {axis % rank for axis in axes}
    return tuple(1 if axis in gone else dim for axis, dim in enumerate(x.dims))
