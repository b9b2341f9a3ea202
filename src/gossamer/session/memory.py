"""Where tensors lie, and how they get there: host arrays, GPU memory, and tensors that other packages own.

Under GOSSAMER_DEVICE=interpreter or null, memory asked for on `cuda` is host memory that says it is on `cuda`, so that
a program written for a GPU runs unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gossamer import settings
from gossamer.errors import InvalidArgument
from gossamer.run.device_tensor import DeviceTensor, is_dense, owned_tensor
from gossamer.session.engine import HostTensor, Tensor

LEGACY_STREAM = 1
"""CU_STREAM_LEGACY: the stream that waits for, and is waited for by, every ordinary stream of its device."""


@dataclass(frozen=True, slots=True)
class Device:
    """A place for tensors. type: `cpu` or `cuda`. id: the GPU's index; 0 for `cpu`."""

    type: str
    id: int

    @classmethod
    def named(cls, device_type: str, device_id: int = 0, vendor_id: int = -1) -> Device:
        """The device that onnxruntime's arguments mean. Errors: InvalidArgument."""
        name = {"cpu": "cpu", "cuda": "cuda", "gpu": "cuda"}.get(str(device_type).lower())
        if name is None:
            raise InvalidArgument(f"device type {device_type!r} is not one of cpu, cuda, gpu")
        if vendor_id not in (-1, 0, _NVIDIA):
            raise InvalidArgument(f"vendor id {vendor_id:#x} is not NVIDIA's ({_NVIDIA:#x})")
        index = settings.whole(0).read("device_id", device_id)
        return cls(name, index if name == "cuda" else 0)

    @property
    def is_simulated(self) -> bool:
        """Whether memory of this device is host memory that stands for a GPU's."""
        return self.type == "cuda" and settings.DEVICE() != "cuda"

    @property
    def is_host(self) -> bool:
        """Whether this process can read memory of this device directly."""
        return self.type == "cpu" or self.is_simulated

    def __str__(self) -> str:
        return self.type if self.type == "cpu" else f"{self.type}:{self.id}"


_NVIDIA = 0x10DE

HOST = Device("cpu", 0)


class _ForeignArray:
    """Host memory that somebody else owns, in the form that NumPy makes an array of."""

    def __init__(
        self, pointer: int, shape: tuple[int, ...], strides: tuple[int, ...] | None, itemsize: int, owner: object
    ) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "data": (pointer, False),
            "shape": shape,
            "strides": strides,
            "typestr": f"|V{itemsize}",
            "version": 3,
        }


def host_view(
    pointer: int, dtype: np.dtype[Any], shape: tuple[int, ...], owner: object, strides: tuple[int, ...] | None = None
) -> HostTensor:
    """An array on host memory at an address; strides in elements, None for dense. `owner` lives as long as the
    array.
    """
    if 0 in shape:
        return np.empty(shape, dtype)
    in_bytes = None if strides is None else tuple(stride * dtype.itemsize for stride in strides)
    raw = np.asarray(_ForeignArray(pointer, shape, in_bytes, dtype.itemsize, owner))
    return raw.view(dtype)


def checked_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape as a tuple. Errors: InvalidArgument for an extent that is no whole number or is negative."""
    extent = settings.whole(0)
    return tuple(extent.read(f"shape {list(shape)}", given) for given in shape)


def empty(shape: tuple[int, ...], dtype: np.dtype[Any], device: Device) -> Tensor:
    """An uninitialised tensor. Errors: DeviceNotFound, OutOfMemory."""
    if device.is_host:
        return np.empty(shape, dtype)
    if dtype.hasobject:
        raise InvalidArgument(f"strings live in host memory only, not on {device}")
    return owned_tensor(shape, dtype, device.id)


def at_address(pointer: int, dtype: np.dtype[Any], shape: tuple[int, ...], device: Device) -> Tensor:
    """A tensor on memory that the caller answers for."""
    address = settings.whole(0 if 0 in shape else 1).read("buffer_ptr", pointer)
    if device.is_host:
        return host_view(address, dtype, shape, None)
    return DeviceTensor(address, dtype, shape, device.id)


def copy(source: Tensor, target: Tensor) -> None:
    """Copy between tensors of equal shape and dtype, whichever memory each is in. Complete on return."""
    if isinstance(source, np.ndarray) and isinstance(target, np.ndarray):
        np.copyto(target, source, casting="no")
        return
    if source.nbytes == 0:
        return
    from gossamer.run import driver

    if isinstance(source, np.ndarray):
        assert isinstance(target, DeviceTensor)
        driver.copy_to_device(target.pointer, dense(source), target.device_id)
    elif isinstance(target, DeviceTensor):
        driver.copy_on_device(target.pointer, source.pointer, source.nbytes, target.device_id)
    elif target.flags.c_contiguous:
        driver.copy_to_host(target, source.pointer, source.device_id)
    else:
        np.copyto(target, to_host(source), casting="no")


def to_host(tensor: Tensor) -> HostTensor:
    """The tensor as an array; a copy if it is in device memory. What is no tensor (a sequence) stays as it is."""
    if not isinstance(tensor, DeviceTensor):
        return tensor
    array = np.empty(tensor.shape, tensor.dtype)
    copy(tensor, array)
    return array


def dense(array: HostTensor) -> HostTensor:
    """The array itself if it is C-contiguous and in native byte order, else a copy that is."""
    return np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")


def is_foreign_tensor(value: object) -> bool:
    """Whether another package's tensor can be taken over without a copy."""
    return hasattr(value, "__cuda_array_interface__") or hasattr(value, "__dlpack__")


def adopt(value: Any, stream: int | None = None) -> Tensor:
    """Another package's tensor, in place. It stays alive as long as the result.

    With the caller's `stream`, that stream waits for the work that the tensor's owner has queued; without it, this call
    does.
    Errors: InvalidArgument for layouts, dtypes and devices that have no counterpart here.
    """
    interface = getattr(value, "__cuda_array_interface__", None)
    return adopt_dlpack(value, stream) if interface is None else _from_cuda_interface(interface, value, stream)


def from_capsule(capsule: object) -> Tensor:
    """The tensor of a DLPack capsule, in place; work on it must have ended."""
    from gossamer.run import dlpack

    given = dlpack.read_capsule(capsule)
    if given.device_type in (dlpack.DeviceType.CPU, dlpack.DeviceType.CUDA_HOST):
        return host_view(given.pointer, given.dtype, given.shape, given.owner, given.strides)
    _require_dense(given.shape, given.strides)
    return DeviceTensor(given.pointer, given.dtype, given.shape, given.device_id, given.owner)


def _require_dense(shape: Sequence[int], strides: Sequence[float]) -> None:
    if not is_dense(shape, strides):
        raise InvalidArgument(
            f"a tensor in device memory has to be contiguous and row-major, got shape {list(shape)} with strides "
            f"{list(strides)} (in elements)"
        )


def adopt_dlpack(value: Any, stream: int | None = None) -> Tensor:
    """As `adopt`, through `__dlpack__`."""
    device_type, device_id = value.__dlpack_device__()
    if device_type not in (2, 13):
        return from_capsule(value.__dlpack__())
    tensor = from_capsule(value.__dlpack__(stream=stream or LEGACY_STREAM))
    if stream is None:
        _wait_for(LEGACY_STREAM, device_id)
    return tensor


def _from_cuda_interface(interface: Mapping[str, Any], value: Any, stream: int | None) -> DeviceTensor:
    """Source: Numba's CUDA array interface, versions 2 and 3."""
    dtype, shape, strides = np.dtype(interface["typestr"]), tuple(interface["shape"]), interface.get("strides")
    if strides is not None:
        _require_dense(shape, [stride / dtype.itemsize for stride in strides])
    if interface.get("mask") is not None:
        raise InvalidArgument("masked arrays have no ONNX counterpart")
    tensor = DeviceTensor(int(interface["data"][0]), dtype, shape, _device_of_pointer(interface, value), value)
    producer = interface.get("stream")  # None: the producer leaves the order to its user
    if stream is None or producer not in (None, stream or LEGACY_STREAM):
        _wait_for(producer or LEGACY_STREAM, tensor.device_id)
    return tensor


def _device_of_pointer(interface: Mapping[str, Any], value: Any) -> int:
    from gossamer.run import driver

    pointer = int(interface["data"][0])
    return driver.device_of(pointer) if pointer else 0


def _wait_for(stream: int, device_id: int) -> None:
    from gossamer.run import driver

    driver.synchronize_stream(stream, device_id)
