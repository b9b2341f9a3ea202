"""OrtValue: a tensor with a place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from gossamer.errors import InvalidArgument
from gossamer.run.device_tensor import DeviceTensor
from gossamer.session import memory
from gossamer.session.element_types import ElementType, of_dtype, of_given
from gossamer.session.engine import HostTensor, Tensor
from gossamer.session.memory import HOST, Device


class OrtValue:
    """A tensor in host or device memory.

    Lifetimes: a value made from a NumPy array on `cpu`, by `from_dlpack` or by `from_cuda_array_interface` shares
    memory with its source and keeps the source alive. A value that allocated device memory frees it when the last
    holder is gone: the value itself, DLPack consumers, and the runs and bindings that use it.
    """

    __slots__ = ("_device", "_tensor")

    def __init__(self, tensor: Tensor, device: Device) -> None:
        """For Gossamer itself; callers use the class methods."""
        self._tensor = tensor
        self._device = device

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: HostTensor, /, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> Self:
        """A value from an array: shared on `cpu` (a copy if it is not C-contiguous), copied to any other device.

        Errors: InvalidArgument, DeviceNotFound, OutOfMemory.
        """
        if not isinstance(numpy_obj, (np.ndarray, np.generic)):
            raise InvalidArgument(f"expected a NumPy array, got a {type(numpy_obj).__name__}")
        device = Device.named(device_type, device_id, vendor_id)
        array = memory.dense(np.asarray(numpy_obj))
        of_dtype(array.dtype)
        if device == HOST:
            return cls(array, HOST)
        tensor = memory.empty(array.shape, array.dtype, device)
        memory.copy(array, tensor)
        return cls(tensor, device)

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: HostTensor, /, onnx_element_type: int) -> Self:
        """A value on an array whose bytes are elements of another type of the same size (onnx.TensorProto.DataType)."""
        row = of_given(onnx_element_type)
        if not data.flags.c_contiguous or data.dtype.hasobject or row.dtype.itemsize != data.dtype.itemsize:
            raise InvalidArgument(
                f"a contiguous array of {row.dtype.itemsize}-byte elements is needed, got {data.dtype}"
            )
        return cls(data.view(row.dtype), HOST)

    @classmethod
    def ortvalue_from_shape_and_type(
        cls, shape: Sequence[int], element_type: Any, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> Self:
        """An uninitialised value. element_type: a dtype, or a number of onnx.TensorProto.DataType.

        Errors: InvalidArgument, DeviceNotFound, OutOfMemory.
        """
        device = Device.named(device_type, device_id, vendor_id)
        return cls(memory.empty(memory.checked_shape(shape), of_given(element_type).dtype, device), device)

    @classmethod
    def from_dlpack(cls, data: Any, /) -> Self:
        """A value that shares memory with another package's tensor (an object with `__dlpack__`, or a capsule).

        Returns once the work that the tensor's owner has queued on it has ended. Errors: InvalidArgument for dtypes and
        devices that have no counterpart here, and for device memory that is not contiguous.
        """
        tensor = memory.from_capsule(data) if not hasattr(data, "__dlpack__") else memory.adopt_dlpack(data)
        return cls._around(tensor)

    @classmethod
    def from_cuda_array_interface(cls, data: Any, /) -> Self:
        """A value that shares memory with an object that has `__cuda_array_interface__` (CuPy, Numba, PyTorch). As
        `from_dlpack`.
        """
        if not hasattr(data, "__cuda_array_interface__"):
            raise InvalidArgument(f"a {type(data).__name__} has no __cuda_array_interface__")
        return cls._around(memory.adopt(data))

    @classmethod
    def _around(cls, tensor: Tensor) -> Self:
        return cls(tensor, Device("cuda", tensor.device_id) if isinstance(tensor, DeviceTensor) else HOST)

    @property
    def tensor(self) -> Tensor:
        """What lies behind the value: an array or a device tensor."""
        return self._tensor

    @property
    def device(self) -> Device:
        """Where the value says it is."""
        return self._device

    def data_ptr(self) -> int:
        """The address of the first element."""
        if isinstance(self._tensor, DeviceTensor):
            return self._tensor.pointer
        return int(self._tensor.ctypes.data)

    def device_name(self) -> str:
        """`cpu` or `cuda`."""
        return self._device.type

    def device_id(self) -> int:
        """The GPU's index; 0 on `cpu`."""
        return self._device.id

    def shape(self) -> list[int]:
        return list(self._tensor.shape)

    def data_type(self) -> str:
        """onnxruntime's text for the type, such as `tensor(float)`."""
        return self._type().tensor

    def element_type(self) -> int:
        """The number of the element type in onnx.TensorProto.DataType."""
        return self._type().number

    def tensor_size_in_bytes(self) -> int:
        return math.prod(self._tensor.shape) * self._tensor.dtype.itemsize

    def has_value(self) -> bool:
        return True

    def is_tensor(self) -> bool:
        return True

    def is_sparse_tensor(self) -> bool:
        return False

    def is_tensor_sequence(self) -> bool:
        return False

    def numpy(self) -> HostTensor:
        """The tensor as an array: shared in host memory, a copy from device memory."""
        return memory.to_host(self._tensor)

    def update_inplace(self, data: HostTensor | OrtValue) -> None:
        """Copy an array or another value of the same dtype and shape into this value's memory, whose address stays."""
        source = data._tensor if isinstance(data, OrtValue) else data
        if not isinstance(source, (np.ndarray, DeviceTensor)):
            raise InvalidArgument(f"expected a NumPy array or an OrtValue, got a {type(data).__name__}")
        if source.dtype != self._tensor.dtype or tuple(source.shape) != tuple(self._tensor.shape):
            came = f"{source.dtype} of shape {list(source.shape)}"
            raise InvalidArgument(f"cannot copy {came} into {self.data_type()} of shape {self.shape()}")
        memory.copy(source, self._tensor)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> HostTensor:
        array = self.numpy()
        return np.asarray(array, dtype=dtype) if copy is None else np.array(array, dtype=dtype, copy=copy)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A DLPack capsule that shares this value's memory and keeps it alive.

        `stream` needs no waiting: nothing that writes a value returns before it is written, except runs that were asked
        to, and those write in the caller's own stream. Errors: BufferError where a copy or another device is demanded.
        """
        from gossamer.run import dlpack

        device_type, device_id = self.__dlpack_device__()
        if copy or (dl_device is not None and tuple(dl_device) != (device_type, device_id)):
            raise BufferError("an OrtValue is exported in place, without a copy")
        owner = (self._tensor, getattr(self._tensor, "owner", None))
        kind = dlpack.DeviceType(device_type)
        return dlpack.make_capsule(self.data_ptr(), self._tensor.dtype, self._tensor.shape, kind, device_id, owner)

    def to_dlpack(self) -> object:
        """A DLPack capsule, for packages that take no objects."""
        return self.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's (device type, index): where the memory really is, also when the device is simulated."""
        return (2, self._tensor.device_id) if isinstance(self._tensor, DeviceTensor) else (1, 0)

    def _type(self) -> ElementType:
        return of_dtype(self._tensor.dtype)

    def __repr__(self) -> str:
        return f"OrtValue({self.data_type()}, {self.shape()}, {self._device})"
