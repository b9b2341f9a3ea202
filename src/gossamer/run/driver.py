"""The CUDA driver, through NVIDIA's own bindings: every call passes `call`, which checks it.

Devices use the primary context, which PyTorch and the CUDA runtime share, pushed for the length of a call and popped
again: the caller's current device is never changed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from gossamer.errors import DeviceNotFound, DriverError, OutOfMemory
from gossamer.program import Target

_OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY


def call(function: str, *arguments: Any, doing: str = "") -> Any:
    """The results of a driver function without its status: nothing, the one value, or a tuple.

    Raises DriverError with the function, the code, the driver's text for it, and what was being done.
    """
    status, *results = getattr(_bindings(), function)(*arguments)
    if status != 0:
        raise DriverError(function, int(status), _text(status), doing)
    return results[0] if len(results) == 1 else tuple(results) if results else None


@contextmanager
def undone_on_error(function: str, handle: Any, doing: str) -> Iterator[None]:
    """Where the block does not end well, `function` releases `handle`, and the error is told as it came."""
    try:
        yield
    except BaseException:
        with suppress(DriverError):  # after an error of the GPU's, nothing can be released
            call(function, handle, doing=doing)
        raise


def constant(name: str) -> Any:
    """A member of one of the driver's enums, as `CUdevice_attribute.CU_DEVICE_ATTRIBUTE_…`."""
    value: Any = _bindings()
    for part in name.split("."):
        value = getattr(value, part)
    return value


@cache
def _bindings() -> ModuleType:
    from cuda.bindings import driver

    return driver  # type: ignore[no-any-return, unused-ignore]


def _text(status: Any) -> str:
    name, words = _bindings().cuGetErrorName(status)[1], _bindings().cuGetErrorString(status)[1]
    return f"{(name or b'unknown').decode()}: {(words or b'').decode()}"


def why_unavailable() -> tuple[str, ...]:
    """What was looked for and not found, or nothing where a GPU can be used."""
    try:
        count = device_count()
    except (RuntimeError, ImportError, DriverError) as error:  # RuntimeError: the bindings found no libcuda.so.1
        return (f"NVIDIA driver (libcuda.so.1): {error}",)
    return () if count else ("NVIDIA driver (libcuda.so.1): found", "CUDA devices: none (nvidia-smi lists them)")


@cache
def _initialise() -> None:
    call("cuInit", 0, doing="initialising the driver")


def device_count() -> int:
    """How many GPUs the driver shows. Raises the bindings' RuntimeError or ImportError where there is no driver."""
    _initialise()
    count: int = call("cuDeviceGetCount", doing="counting GPUs")
    return count


def require_device(ordinal: int) -> None:
    """Raises DeviceNotFound, saying what was looked for."""
    missing = why_unavailable()
    if not missing and ordinal >= device_count():
        missing = (f"CUDA devices: {device_count()}, numbered from 0",)
    if missing:
        raise DeviceNotFound(
            f"CUDA device {ordinal}",
            missing,
            "list CPUExecutionProvider after CUDAExecutionProvider to run on the CPU here, or install NVIDIA's driver "
            "(`gossamer doctor` shows what is there)",
        )


@cache
def device(ordinal: int) -> Device:
    """The device. Raises DeviceNotFound."""
    require_device(ordinal)
    return Device(ordinal, call("cuDeviceGet", ordinal, doing=f"opening GPU {ordinal}"))


@cache
def _primary_context(device: int) -> Any:
    """Retained for the life of the process. Making it takes a tenth of a second."""
    return call("cuDevicePrimaryCtxRetain", device, doing=f"opening GPU {device}")


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU. handle: CUdevice."""

    ordinal: int
    handle: Any

    @property
    def context(self) -> Any:
        """Its primary CUcontext, made when it is first asked for."""
        return _primary_context(int(self.handle))

    @property
    def name(self) -> str:
        text: bytes = call("cuDeviceGetName", 256, self.handle)
        return text.split(b"\0")[0].decode()

    def attribute(self, name: str) -> int:
        """A device attribute by the end of its name: `MULTIPROCESSOR_COUNT`."""
        attribute = constant(f"CUdevice_attribute.CU_DEVICE_ATTRIBUTE_{name}")
        value: int = call("cuDeviceGetAttribute", attribute, self.handle, doing=f"reading {name}")
        return value

    @property
    def arch(self) -> int:
        return 10 * self.attribute("COMPUTE_CAPABILITY_MAJOR") + self.attribute("COMPUTE_CAPABILITY_MINOR")

    def target(self, use_tf32: bool = True) -> Target:
        """What to compile for to run here."""
        return Target(
            f"sm_{self.arch}",
            self.arch,
            self.attribute("MULTIPROCESSOR_COUNT"),
            self.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            use_tf32=use_tf32,
            device=self.ordinal,
        )

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes."""
        with self.active():
            free, total = call("cuMemGetInfo", doing="asking for free memory")
        return free, total

    @contextmanager
    def active(self) -> Iterator[None]:
        """The device's context is current inside, and what was current before is afterwards."""
        call("cuCtxPushCurrent", self.context, doing=f"entering GPU {self.ordinal}")
        try:
            yield
        finally:
            call("cuCtxPopCurrent", doing=f"leaving GPU {self.ordinal}")


class DeviceMemory:
    """A stretch of device memory. pointer: its address. Freed by `close()` or `with`."""

    def __init__(self, pointer: int, nbytes: int, owner: Device, ledger: Ledger | None) -> None:
        self.pointer = pointer
        self.nbytes = nbytes
        self._owner = owner
        self._ledger = ledger

    def close(self) -> None:
        if self.pointer:
            with self._owner.active():
                call("cuMemFree", self.pointer, doing=f"freeing {self.nbytes} bytes")
            self.pointer = 0
            if self._ledger:
                self._ledger.give_back(self.nbytes)

    def __enter__(self) -> DeviceMemory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(slots=True)
class Ledger:
    """What one session holds on its device, and how much it may (`gpu_mem_limit`; None: all there is). Bytes."""

    limit: int | None = None
    held: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, nbytes: int, doing: str) -> None:
        with self._lock:
            if self.limit is not None and self.held + nbytes > self.limit:
                raise OutOfMemory(nbytes, self.held, self.limit - self.held, self.limit, doing)
            self.held += nbytes

    def give_back(self, nbytes: int) -> None:
        with self._lock:
            self.held -= nbytes


def allocate(nbytes: int, device_id: int = 0, *, ledger: Ledger | None = None, doing: str = "") -> DeviceMemory:
    """Device memory, uninitialised. Raises OutOfMemory with what was asked, held and free; DeviceNotFound."""
    owner = device(device_id)
    nbytes = max(1, nbytes)
    if ledger:
        ledger.take(nbytes, doing)
    try:
        with owner.active():
            pointer = int(call("cuMemAlloc", nbytes, doing=doing or f"allocating {nbytes} bytes"))
    except DriverError as error:
        if ledger:
            ledger.give_back(nbytes)
        if error.status != _OUT_OF_MEMORY:
            raise
        free, total = owner.memory()
        raise OutOfMemory(nbytes, ledger.held if ledger else total - free, free, None, doing) from error
    return DeviceMemory(pointer, nbytes, owner, ledger)


class PinnedMemory:
    """Page-locked host memory, which copies at full speed and asynchronously. array: its bytes. Freed by `close()`."""

    def __init__(self, nbytes: int) -> None:
        self.pointer = int(call("cuMemHostAlloc", nbytes, 0, doing=f"pinning {nbytes} bytes of host memory"))
        self.__array_interface__ = {"data": (self.pointer, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}
        self.array = np.asarray(self)

    def close(self) -> None:
        if self.pointer:
            call("cuMemFreeHost", self.pointer, doing="freeing pinned memory")
            self.pointer = 0


def device_of(pointer: int) -> int:
    """The ordinal of the GPU that an address belongs to."""
    attribute = constant("CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL")
    _initialise()
    return int(call("cuPointerGetAttribute", attribute, pointer, doing=f"asking whose address {pointer:#x} is"))


def synchronize_stream(stream: int, device_id: int = 0) -> None:
    """Waits for everything queued on a stream."""
    with device(device_id).active():
        call("cuStreamSynchronize", stream, doing="waiting for a stream")


def synchronize(device_id: int = 0) -> None:
    """Waits for everything queued on a GPU, whoever queued it."""
    with device(device_id).active():
        call("cuCtxSynchronize", doing="waiting for a GPU")


def copy_to_device(pointer: int, array: np.ndarray, device_id: int = 0) -> None:
    """Copies a C-contiguous array to device memory and waits for it."""
    assert array.flags.c_contiguous
    if array.nbytes:
        with device(device_id).active():
            call("cuMemcpyHtoD", pointer, array.ctypes.data, array.nbytes, doing="copying to the GPU")
            # It returns when pageable memory was read, not when the GPU has it, and no stream of ours waits for that.
            call("cuStreamSynchronize", 0, doing="copying to the GPU")


def copy_to_host(array: np.ndarray, pointer: int, device_id: int = 0) -> None:
    """Copies device memory into a C-contiguous array and waits for it."""
    assert array.flags.c_contiguous
    if array.nbytes:
        with device(device_id).active():
            call("cuMemcpyDtoH", array.ctypes.data, pointer, array.nbytes, doing="copying from the GPU")


def copy_on_device(target: int, source: int, nbytes: int, device_id: int = 0) -> None:
    """Copies between two places in device memory and waits for it."""
    if nbytes:
        with device(device_id).active():
            call("cuMemcpyDtoD", target, source, nbytes, doing="copying on the GPU")
            call("cuStreamSynchronize", 0, doing="copying on the GPU")
