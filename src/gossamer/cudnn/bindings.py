"""Addresses for a plan's tensors: raw pointers, DLPack, `__cuda_array_interface__`, and numbers for scalars.

What describes itself is checked against the plan: device memory, data type, size. An address is only checked for its
alignment: what it points to is the caller's word.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gossamer.cudnn.tensors import Tensor, numpy_dtype
from gossamer.errors import InvalidArgument, WrongType

__all__ = ["HostScalar", "address_of", "workspace_address"]

_ON_DEVICE = (2, 13)  # kDLCUDA, kDLCUDAManaged


class _DLTensor(ctypes.Structure):
    """`DLTensor` of dlpack.h, with which a capsule's content begins."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_DLPACK_NAMES = {
    **{(0, bits): f"int{bits}" for bits in (8, 16, 32, 64)},
    **{(1, bits): f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{(2, bits): f"float{bits}" for bits in (16, 32, 64)},
    (4, 16): "bfloat16",
    (6, 8): "bool",
    (10, 8): "float8_e4m3fn",
    (12, 8): "float8_e5m2",
}
"""(DLDataTypeCode, bits) → NumPy's name."""


class HostScalar:
    """A number in host memory, where cuDNN reads scalars that are given by value."""

    def __init__(self, value: float | int, dtype: str) -> None:
        self._array = np.array(value, dtype=numpy_dtype(dtype))

    @property
    def address(self) -> int:
        """Valid as long as this object is."""
        return int(self._array.ctypes.data)


def address_of(given: Any, tensor: Tensor) -> int:
    """The device address that was given for a tensor.

    given: an address as int, or an object with `__dlpack__` or `__cuda_array_interface__`. WrongType on anything else;
    InvalidArgument where it is not on a device, of another type, too small, or not aligned.
    """
    if isinstance(given, int) and not isinstance(given, bool):
        address = given
    elif hasattr(given, "__dlpack__"):
        address = _dlpack_address(given, tensor)
    elif hasattr(given, "__cuda_array_interface__"):
        address = _interface_address(given.__cuda_array_interface__, tensor)
    else:
        raise WrongType(
            f"{type(given).__name__} for tensor {tensor}: an address, or an object with __dlpack__ or "
            "__cuda_array_interface__ is wanted"
        )
    if address <= 0 or address % tensor.alignment:
        raise InvalidArgument(f"address {address:#x} for tensor {tensor}: a multiple of {tensor.alignment} is wanted")
    return address


def workspace_address(given: Any, size: int) -> int:
    """The address of a workspace of at least `size` bytes; 0 where none is needed."""
    if size == 0:
        return 0
    if given is None:
        raise InvalidArgument(f"this plan needs a workspace of {size} bytes of device memory")
    return address_of(given, Tensor(0, "workspace", (size,), (1,), "uint8", alignment=16))


def _dlpack_address(given: Any, tensor: Tensor) -> int:
    """Of an exporter; its capsule is only looked at and dropped, so that the exporter stays the owner."""
    device_type, _ = given.__dlpack_device__()
    if device_type not in _ON_DEVICE:
        raise InvalidArgument(f"what was given for tensor {tensor} is not in the memory of a CUDA device")
    capsule = given.__dlpack__(stream=-1)  # no synchronisation: streams are the caller's affair
    described = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    rank = described.ndim
    shape = described.shape[:rank]
    strides = described.strides[:rank] if described.strides else None
    if described.lanes == 1:
        kind = _DLPACK_NAMES.get((described.code, described.bits), "")
        _check(tensor, kind, shape, strides, described.bits // 8)
    return int(described.data or 0) + int(described.byte_offset)


_capsule_pointer = ctypes.pythonapi["PyCapsule_GetPointer"]
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_capsule_pointer.restype = ctypes.c_void_p


def _interface_address(described: Mapping[str, Any], tensor: Tensor) -> int:
    dtype = np.dtype(described["typestr"])
    strides = described.get("strides")
    if strides is not None:
        strides = [stride // dtype.itemsize for stride in strides]
    _check(tensor, dtype.name, described["shape"], strides, dtype.itemsize)
    return int(described["data"][0])


def _check(tensor: Tensor, dtype: str, shape: Sequence[int], strides: Sequence[int] | None, item: int) -> None:
    """That memory holds a tensor's type, and reaches as far as the tensor does.

    Shapes may differ, since a bias [K] is [1, K, 1, 1] to cuDNN; bool masks are bytes to the one and bits to the other.
    """
    if tensor.name == "workspace":
        dtype = tensor.dtype
    if dtype != tensor.dtype:
        raise InvalidArgument(f"memory of {dtype or 'another type'} for tensor {tensor}")
    if strides is None:
        elements = int(np.prod(shape, dtype=np.int64))
    else:
        elements = 1 + sum((dim - 1) * stride for dim, stride in zip(shape, strides, strict=True))
    if 0 in shape or elements * item < tensor.span_bytes:
        raise InvalidArgument(f"{elements * item} bytes for tensor {tensor}, which takes {tensor.span_bytes}")
