"""ONNX's element types: number, text, dtype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from gossamer.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class ElementType:
    """One row of the table.

    number: onnx.TensorProto.DataType. text: as in onnxruntime's `tensor(float)`. name: as engines and Programs call it.
    """

    number: int
    text: str
    name: str
    dtype: np.dtype[Any]

    @property
    def tensor(self) -> str:
        """onnxruntime's text for a tensor of this type."""
        return f"tensor({self.text})"


def _row(number: int, text: str, name: str) -> ElementType:
    if name == "string":
        return ElementType(number, text, name, np.dtype(object))
    return ElementType(number, text, name, np.dtype(getattr(ml_dtypes, name, None) or name))


# Source: onnx.proto, TensorProto.DataType; the texts are onnxruntime's.
ELEMENT_TYPES = (
    _row(1, "float", "float32"),
    _row(2, "uint8", "uint8"),
    _row(3, "int8", "int8"),
    _row(4, "uint16", "uint16"),
    _row(5, "int16", "int16"),
    _row(6, "int32", "int32"),
    _row(7, "int64", "int64"),
    _row(8, "string", "string"),
    _row(9, "bool", "bool"),
    _row(10, "float16", "float16"),
    _row(11, "double", "float64"),
    _row(12, "uint32", "uint32"),
    _row(13, "uint64", "uint64"),
    _row(14, "complex64", "complex64"),
    _row(15, "complex128", "complex128"),
    _row(16, "bfloat16", "bfloat16"),
    _row(17, "float8e4m3fn", "float8_e4m3fn"),
    _row(18, "float8e4m3fnuz", "float8_e4m3fnuz"),
    _row(19, "float8e5m2", "float8_e5m2"),
    _row(20, "float8e5m2fnuz", "float8_e5m2fnuz"),
    _row(21, "uint4", "uint4"),
    _row(22, "int4", "int4"),
    _row(23, "float4e2m1", "float4_e2m1fn"),
    _row(24, "float8e8m0", "float8_e8m0fnu"),
    _row(25, "uint2", "uint2"),
    _row(26, "int2", "int2"),
    _row(27, "float6e2m3", "float6_e2m3fn"),
    _row(28, "float6e3m2", "float6_e3m2fn"),
)
BY_NAME = {row.name: row for row in ELEMENT_TYPES}
BY_NUMBER = {row.number: row for row in ELEMENT_TYPES}
BY_DTYPE = {row.dtype: row for row in ELEMENT_TYPES}


def of_dtype(dtype: np.dtype[Any]) -> ElementType:
    """The element type of arrays of this dtype, in any byte order; any text dtype is a string."""
    if dtype.kind in "OU":
        return BY_NAME["string"]
    try:
        return BY_DTYPE[dtype.newbyteorder("=")]
    except KeyError:
        raise InvalidArgument(f"NumPy's {dtype} has no ONNX counterpart") from None


def of_given(given: Any) -> ElementType:
    """The element type that a caller named: a number of onnx.TensorProto.DataType, or anything that NumPy takes as a
    dtype.
    """
    if isinstance(given, int) and not isinstance(given, bool):
        if given not in BY_NUMBER:
            raise InvalidArgument(f"element type {given} is not one of onnx.TensorProto's {sorted(BY_NUMBER)}")
        return BY_NUMBER[given]
    if isinstance(given, str) and given in BY_NAME:
        return BY_NAME[given]
    try:
        dtype = np.dtype(given)
    except TypeError:
        raise InvalidArgument(
            f"element type {given!r} is neither a dtype nor a number of onnx.TensorProto.DataType"
        ) from None
    return of_dtype(dtype)
