"""Matrix multiplication, batched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gossamer.cudnn.descriptors import Attribute, Descriptor, Kind
from gossamer.cudnn.operations.base import Lowering, Operation
from gossamer.cudnn.tensors import DATA_TYPES, Tensor
from gossamer.errors import InvalidArgument


@dataclass(frozen=True)
class Matmul(Operation):
    """c = a · b over the last two dimensions; a: […, M, K], b: […, K, N], c: […, M, N].

    Leading dimensions broadcast; transposition is a matter of strides.

    Source: cudnn_graph.h, CUDNN_BACKEND_MATMUL_DESCRIPTOR and CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR.
    """

    a: int
    b: int
    c: int
    compute: str

    READS: ClassVar[tuple[str, ...]] = ("a", "b")
    WRITES: ClassVar[tuple[str, ...]] = ("c",)

    def describe(self, lowering: Lowering) -> Descriptor:
        parameters = lowering.new(Kind.CUDNN_BACKEND_MATMUL_DESCRIPTOR, "the matmul's parameters")
        parameters.set(Attribute.CUDNN_ATTR_MATMUL_COMP_TYPE, DATA_TYPES[self.compute]).finalize()
        operation = lowering.new(Kind.CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, "the matmul")
        operation.set(Attribute.CUDNN_ATTR_OPERATION_MATMUL_DESC, parameters)
        operation.set(Attribute.CUDNN_ATTR_OPERATION_MATMUL_ADESC, lowering.tensors[self.a])
        operation.set(Attribute.CUDNN_ATTR_OPERATION_MATMUL_BDESC, lowering.tensors[self.b])
        operation.set(Attribute.CUDNN_ATTR_OPERATION_MATMUL_CDESC, lowering.tensors[self.c])
        return operation.finalize()


def product_dims(a: Tensor, b: Tensor) -> tuple[int, ...]:
    """Dims of a product."""
    if len(a.dims) != len(b.dims) or len(a.dims) < 3:
        raise InvalidArgument(f"matmul of {a} and {b}: both need the same number of dimensions, three or more")
    if a.dims[-1] != b.dims[-2]:
        raise InvalidArgument(f"matmul of {a} and {b}: {a.dims[-1]} columns and {b.dims[-2]} rows")
    batch = tuple(max(sizes) for sizes in zip(a.dims[:-2], b.dims[:-2], strict=True))
    # Heads of the second may be shared by several of the first (grouped queries): a divisor is as good as 1.
    if any(whole % size for tensor in (a, b) for size, whole in zip(tensor.dims[:-2], batch, strict=True)):
        raise InvalidArgument(f"matmul of {a} and {b}: leading dimensions do not broadcast")
    return (*batch, a.dims[-2], b.dims[-1])
