"""DLPack capsules: reading and making them without a native extension.

This is the one place outside `cudnn/` that needs ctypes, because a capsule's content is a C struct and Python offers no
other way to it. Layout and rules: dlpack.h (`DLManagedTensor`, the unversioned form that every producer and consumer
takes) and the Python specification at https://dmlc.github.io/dlpack/latest/python_spec.html:

* a capsule named `dltensor` owns its tensor; whoever consumes it renames it to `used_dltensor` and calls the tensor's
  deleter when done; a capsule that nobody consumed calls the deleter itself;
* a deleter may be called from any thread, once.
"""

from __future__ import annotations

import atexit
import ctypes
import weakref
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import ml_dtypes
import numpy as np

from gossamer.errors import InvalidArgument
from gossamer.run.device_tensor import dense_strides


class DeviceType(IntEnum):
    """`DLDeviceType`, as far as it can occur here."""

    CPU = 1
    CUDA = 2
    CUDA_HOST = 3
    CUDA_MANAGED = 13


_CODE_OF: dict[np.dtype[Any], tuple[int, int]] = {
    **{np.dtype(f"int{bits}"): (0, bits) for bits in (8, 16, 32, 64)},
    **{np.dtype(f"uint{bits}"): (1, bits) for bits in (8, 16, 32, 64)},
    **{np.dtype(f"float{bits}"): (2, bits) for bits in (16, 32, 64)},
    np.dtype(ml_dtypes.bfloat16): (4, 16),
    **{np.dtype(f"complex{bits}"): (5, bits) for bits in (64, 128)},
    np.dtype(bool): (6, 8),
    np.dtype(ml_dtypes.float8_e4m3fn): (10, 8),
    np.dtype(ml_dtypes.float8_e4m3fnuz): (11, 8),
    np.dtype(ml_dtypes.float8_e5m2): (12, 8),
    np.dtype(ml_dtypes.float8_e5m2fnuz): (13, 8),
    np.dtype(ml_dtypes.float8_e8m0fnu): (14, 8),
}
"""DLDataTypeCode and bits of each dtype. Elements of less than 8 bits have none: in the unversioned struct they are
packed, and here each has a byte of its own."""
_DTYPE_OF = {code: dtype for dtype, code in _CODE_OF.items()}


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _ManagedTensor(ctypes.Structure):
    """`deleter` takes the struct's own address; it is kept as an address because it may be null."""

    _fields_ = [("tensor", _Tensor), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_NAME = b"dltensor"
_USED_NAME = b"used_dltensor"

# Capsules are passed as addresses: a destructor receives an object that is already dying, and must not touch its count.
_capsule_new = ctypes.pythonapi.PyCapsule_New
_capsule_new.argtypes, _capsule_new.restype = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p), ctypes.py_object
_capsule_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_capsule_is_valid.argtypes, _capsule_is_valid.restype = (ctypes.c_void_p, ctypes.c_char_p), ctypes.c_int
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes, _capsule_pointer.restype = (ctypes.c_void_p, ctypes.c_char_p), ctypes.c_void_p
_capsule_set_destructor = ctypes.pythonapi.PyCapsule_SetDestructor
_capsule_set_destructor.argtypes, _capsule_set_destructor.restype = (ctypes.c_void_p, ctypes.c_void_p), ctypes.c_int
_capsule_set_name = ctypes.pythonapi.PyCapsule_SetName
_capsule_set_name.argtypes, _capsule_set_name.restype = (ctypes.c_void_p, ctypes.c_char_p), ctypes.c_int


@dataclass(frozen=True, slots=True, eq=False)
class Imported:
    """A tensor read from a capsule.

    pointer: address of the first element. strides: in elements. The memory stays valid while this object lives.
    """

    pointer: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device_type: DeviceType
    device_id: int
    owner: object


class _Lease:
    """Stands for the consumer's part in a producer's tensor; the finalizer on it calls the deleter."""

    __slots__ = ("__weakref__",)


def read_capsule(capsule: object) -> Imported:
    """Consume a capsule. No data is copied.

    Errors: InvalidArgument for an object that is no unconsumed `dltensor` capsule, and for devices and dtypes that have
    no counterpart here; the capsule is then left as it was.
    """
    if not _capsule_is_valid(id(capsule), _NAME):
        raise InvalidArgument(
            f"expected a DLPack capsule named 'dltensor' that nobody has consumed yet, got {capsule!r}"
        )
    address = _capsule_pointer(id(capsule), _NAME)
    managed = _ManagedTensor.from_address(address)
    tensor = managed.tensor
    dtype, device_type = _dtype_of(tensor.dtype), _device_of(tensor.device)
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else dense_strides(shape)
    _capsule_set_name(id(capsule), _USED_NAME)
    return Imported(
        (tensor.data or 0) + tensor.byte_offset,
        dtype,
        shape,
        strides,
        device_type,
        tensor.device.id,
        _lease(managed, address),
    )


def _lease(managed: _ManagedTensor, address: int) -> _Lease:
    lease = _Lease()
    if managed.deleter:
        # Not at exit: a producer's memory goes with the process, and its library may be gone before this runs.
        weakref.finalize(lease, _Deleter(managed.deleter), address).atexit = False
    return lease


def _dtype_of(given: _DataType) -> np.dtype[Any]:
    dtype = _DTYPE_OF.get((given.code, given.bits))
    if dtype is None or given.lanes != 1:
        raise InvalidArgument(
            f"DLPack type code {given.code}, {given.bits} bits, {given.lanes} lanes has no ONNX counterpart"
        )
    return dtype


def _device_of(given: _Device) -> DeviceType:
    try:
        return DeviceType(given.type)
    except ValueError:
        raise InvalidArgument(f"DLPack device type {given.type} is neither host memory nor CUDA") from None


class _Export:
    """An exported tensor: the struct and what it points to, kept until its deleter is called."""

    def __init__(
        self, pointer: int, dtype: np.dtype[Any], shape: tuple[int, ...], device: _Device, owner: object
    ) -> None:
        code, bits = _CODE_OF[dtype]
        extents = ctypes.c_int64 * len(shape)
        self.owner = owner
        self.shape, self.strides = extents(*shape), extents(*dense_strides(shape))
        as_pointer = ctypes.POINTER(ctypes.c_int64)
        tensor = _Tensor(
            pointer,
            device,
            len(shape),
            _DataType(code, bits, 1),
            ctypes.cast(self.shape, as_pointer),
            ctypes.cast(self.strides, as_pointer),
            0,
        )
        self.managed = _ManagedTensor(tensor, None, ctypes.cast(_deleter, ctypes.c_void_p))

    @property
    def address(self) -> int:
        return ctypes.addressof(self.managed)


# Exported tensors whose deleter has not been called, by the address of their struct; capsules that are alive, by
# address.
_exports: dict[int, _Export] = {}
_capsules: set[int] = set()


def _release(address: int) -> None:
    """The deleter of every exported tensor."""
    _exports.pop(address, None)


def _drop_capsule(capsule: int) -> None:
    """The destructor of every exported capsule: release the tensor if nobody consumed it."""
    _capsules.discard(capsule)
    if _capsule_is_valid(capsule, _NAME):
        _exports.pop(_capsule_pointer(capsule, _NAME), None)


@atexit.register
def _disarm() -> None:
    """Take the callbacks out of what is still alive at exit: it may die when this module no longer works.

    The memory goes with the process; DLPack allows a null deleter.
    """
    for export in _exports.values():
        export.managed.deleter = None
    for capsule in _capsules:
        _capsule_set_destructor(capsule, None)


_deleter = _Deleter(_release)
_destructor = _Deleter(_drop_capsule)


def make_capsule(
    pointer: int, dtype: np.dtype[Any], shape: tuple[int, ...], device_type: DeviceType, device_id: int, owner: object
) -> object:
    """A capsule around dense row-major memory; `owner` lives until the consumer is done with it. No data is copied.

    Errors: InvalidArgument for a dtype that DLPack does not have (strings, elements of less than 8 bits).
    """
    if dtype not in _CODE_OF:
        raise InvalidArgument(f"DLPack has no dtype for {dtype.name} of {8 * dtype.itemsize} bits an element")
    export = _Export(pointer, dtype, shape, _Device(device_type, device_id), owner)
    _exports[export.address] = export
    capsule: object = _capsule_new(export.address, _NAME, ctypes.cast(_destructor, ctypes.c_void_p))
    _capsules.add(id(capsule))
    return capsule


def live_exports() -> int:
    """How many exported tensors consumers still hold."""
    return len(_exports)
