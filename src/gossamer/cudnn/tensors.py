"""Tensors of a graph: dimensions, strides, data type, and whether they exist in memory.

Data types go by NumPy's names (`float16`, `bfloat16` and the float8s as ml_dtypes calls them); layouts by letters
(`NCHW`, `NHWC`), dimensions always in the order N, C, spatial: only strides tell the two apart.
"""

from __future__ import annotations

import operator
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, SupportsIndex

import ml_dtypes
import numpy as np

from gossamer.cudnn.descriptors import Attribute, Descriptor, Kind
from gossamer.cudnn.enums import cudnnDataType
from gossamer.errors import InvalidArgument, WrongType

__all__ = [
    "DATA_TYPES",
    "ITEM_BITS",
    "Tensor",
    "data_type",
    "packed_strides",
    "strides_like",
    "strides_of",
    "whole_numbers",
]

DATA_TYPES: dict[str, cudnnDataType] = {
    "float32": cudnnDataType.CUDNN_DATA_FLOAT,
    "float64": cudnnDataType.CUDNN_DATA_DOUBLE,
    "float16": cudnnDataType.CUDNN_DATA_HALF,
    "bfloat16": cudnnDataType.CUDNN_DATA_BFLOAT16,
    "int8": cudnnDataType.CUDNN_DATA_INT8,
    "uint8": cudnnDataType.CUDNN_DATA_UINT8,
    "int32": cudnnDataType.CUDNN_DATA_INT32,
    "int64": cudnnDataType.CUDNN_DATA_INT64,
    "bool": cudnnDataType.CUDNN_DATA_BOOLEAN,
    "float8_e4m3fn": cudnnDataType.CUDNN_DATA_FP8_E4M3,
    "float8_e5m2": cudnnDataType.CUDNN_DATA_FP8_E5M2,
}
"""Names of data types; cuDNN's `bool` is one bit for tensors in memory, a whole value inside a graph."""

ITEM_BITS = {
    "float32": 32,
    "float64": 64,
    "float16": 16,
    "bfloat16": 16,
    "int8": 8,
    "uint8": 8,
    "int32": 32,
    "int64": 64,
    "bool": 1,
    "float8_e4m3fn": 8,
    "float8_e5m2": 8,
}


def data_type(of: Any) -> str:
    """The name of a data type, given as a name, a NumPy dtype, or what `numpy.dtype` takes."""
    name = of if isinstance(of, str) else np.dtype(of).name
    if name not in DATA_TYPES:
        raise InvalidArgument(f"data type {name!r}: accepted are {', '.join(DATA_TYPES)}")
    return name


def rounded(value: float | int, dtype: str) -> float | int:
    """A number as a data type holds it: bytes of plans hold no more."""
    number: float | int = np.array(value, dtype=numpy_dtype(dtype)).item()
    return number


def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's dtype of a data type's name."""
    return np.dtype(getattr(ml_dtypes, name, name))


@dataclass(frozen=True)
class Tensor:
    """One tensor of a graph.

    uid: names it in plans and when pointers are bound. dims, strides: in elements, one per dimension. virtual: lives
    only inside the graph. alignment: of its address, in bytes. value: of a scalar that is given to the engine by value
    instead of in memory; None for every other tensor.
    """

    uid: int
    name: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    virtual: bool = False
    alignment: int = 16
    value: float | int | None = None

    @property
    def by_value(self) -> bool:
        """Whether it is a scalar given by value."""
        return self.value is not None

    @property
    def span_bytes(self) -> int:
        """Bytes from its first element to the end of its last."""
        last = sum((dim - 1) * stride for dim, stride in zip(self.dims, self.strides, strict=True))
        return ((last + 1) * ITEM_BITS[self.dtype] + 7) // 8

    def __str__(self) -> str:
        shape = "×".join(map(str, self.dims))
        return f"{self.name or self.uid}[{shape} {self.dtype}{', virtual' if self.virtual else ''}]"

    def describe(self) -> Descriptor:
        """Its backend descriptor, finalized; the caller owns it."""
        descriptor = Descriptor(Kind.CUDNN_BACKEND_TENSOR_DESCRIPTOR, f"tensor {self}")
        try:
            descriptor.set(Attribute.CUDNN_ATTR_TENSOR_UNIQUE_ID, self.uid)
            descriptor.set(Attribute.CUDNN_ATTR_TENSOR_DATA_TYPE, DATA_TYPES[self.dtype])
            descriptor.set(Attribute.CUDNN_ATTR_TENSOR_DIMENSIONS, *self.dims)
            descriptor.set(Attribute.CUDNN_ATTR_TENSOR_STRIDES, *self.strides)
            descriptor.set(Attribute.CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, self.alignment)
            descriptor.set(Attribute.CUDNN_ATTR_TENSOR_IS_VIRTUAL, self.virtual)
            descriptor.set(Attribute.CUDNN_ATTR_TENSOR_IS_BY_VALUE, self.by_value)
            return descriptor.finalize()
        except BaseException:
            descriptor.close()
            raise


def checked(tensor: Tensor) -> Tensor:
    """The tensor, or InvalidArgument saying what about it cannot be."""
    dims = whole_numbers(f"dims of tensor {tensor.name or tensor.uid}", tensor.dims)
    strides = whole_numbers(f"strides of tensor {tensor.name or tensor.uid}", tensor.strides)
    if not 1 <= len(dims) <= 8 or len(strides) != len(dims):
        raise InvalidArgument(
            f"tensor {tensor}: {len(dims)} dims and {len(strides)} strides; 1 to 8 of each are wanted"
        )
    if min(dims) < 1 or min(strides) < 0:
        raise InvalidArgument(f"tensor {tensor}: dims must be positive and strides not negative: {dims}, {strides}")
    if tensor.alignment < 1 or tensor.alignment & (tensor.alignment - 1):
        raise InvalidArgument(f"tensor {tensor}: alignment {tensor.alignment} is no power of two")
    if tensor.by_value and prod(dims) != 1:
        raise InvalidArgument(f"tensor {tensor}: only a scalar can be given by value")
    return replace(tensor, dims=dims, strides=strides, dtype=data_type(tensor.dtype))


def whole_numbers(what: str, given: Iterable[SupportsIndex]) -> tuple[int, ...]:
    """Whole numbers, NumPy's among them, as Python's. Errors: WrongType."""
    try:
        return tuple(map(operator.index, given))
    except TypeError:
        raise WrongType(f"{what}: whole numbers are wanted, got {given!r}") from None


def packed_strides(dims: Sequence[int], order: Sequence[int] | None = None) -> tuple[int, ...]:
    """Strides without gaps; order: the dimensions from outermost to innermost, by default as they stand."""
    strides = [0] * len(dims)
    step = 1
    for axis in reversed(range(len(dims)) if order is None else order):
        strides[axis] = step
        step *= dims[axis]
    return tuple(strides)


def strides_of(dims: Sequence[int], layout: str | None) -> tuple[int, ...]:
    """Strides of a layout given by letters, outermost first.

    The letters of dimensions in order are N, C, then spatial ones in the order in which they stand in the layout:
    `NCHW` and `NCDHW` are the dimensions as they stand, `NHWC`, `NWC` and `NDHWC` have the channels innermost. None is
    as they stand, for any number of dimensions.
    """
    if layout is None:
        return packed_strides(dims)
    letters = layout.upper()
    meaning = "NC" + "".join(letter for letter in letters if letter not in "NC")
    distinct = len(set(letters)) == len(letters) and all(letter in string.ascii_uppercase for letter in letters)
    if len(letters) != len(dims) or not distinct or not {"N", "C"} <= set(letters):
        raise InvalidArgument(
            f"layout {layout!r} for {len(dims)} dimensions; accepted are e.g. NCHW, NHWC, NDHWC, None"
        )
    return packed_strides(dims, [meaning.index(letter) for letter in letters])


def strides_like(dims: Sequence[int], model: Tensor) -> tuple[int, ...]:
    """Strides without gaps for dims, with the order of dimensions that `model` has in memory.

    Of dimensions with one stride only the outermost can be larger than 1, so the others follow it.
    """
    by_stride = sorted(range(len(dims)), key=lambda axis: (-model.strides[axis], model.dims[axis] == 1, axis))
    return packed_strides(dims, by_stride)
