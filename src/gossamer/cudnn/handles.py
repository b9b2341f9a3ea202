"""cuDNN handles: what executing needs, and planning does not.

Source: cudnn_graph.h, cudnnCreate, cudnnSetStream, cudnnGetStream, cudnnDestroy.
"""

from __future__ import annotations

import ctypes
import weakref
from types import TracebackType
from typing import Self

from gossamer.cudnn import calls
from gossamer.errors import Fail, WrongType

__all__ = ["Handle", "address_of"]


class Handle:
    """A handle for the CUDA context that is current when it is made; freed by `close` or by leaving `with`.

    CudnnError where that fails: without a driver, or a context.
    """

    def __init__(self, stream: int = 0) -> None:
        """stream: a `cudaStream_t` or `CUstream`; 0 is the default stream."""
        address = ctypes.c_void_p()
        calls.check(calls.cudnnCreate(ctypes.byref(address)), "cudnnCreate", "making a handle")
        if not address.value:
            raise Fail("cudnnCreate made a handle at a null address")
        self._address: int = address.value
        self._free = weakref.finalize(self, _destroy, address.value)
        self._free.atexit = False  # the library may have been torn down by then
        if stream:
            self.stream = stream

    @property
    def address(self) -> int:
        """The `cudnnHandle_t`, valid until `close`."""
        if not self._free.alive:
            raise Fail("the handle was closed")
        return self._address

    @property
    def stream(self) -> int:
        """The stream that work is put on."""
        stream = ctypes.c_void_p()
        status = calls.cudnnGetStream(self.address, ctypes.byref(stream))
        calls.check(status, "cudnnGetStream", "reading a handle's stream")
        return stream.value or 0

    @stream.setter
    def stream(self, stream: int) -> None:
        calls.check(calls.cudnnSetStream(self.address, stream), "cudnnSetStream", "setting a handle's stream")

    def close(self) -> None:
        """Free it; again does nothing."""
        self._free()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def address_of(handle: Handle | int) -> int:
    """The `cudnnHandle_t` of a Handle, or of another library's, given as its address."""
    if isinstance(handle, Handle):
        return handle.address
    given: object = handle  # callers are not all typed
    if isinstance(given, int) and not isinstance(given, bool) and given > 0:
        return given
    raise WrongType(f"a cuDNN handle is a Handle, or an address as int; this is {handle!r}")


def _destroy(address: int) -> None:
    calls.check(calls.cudnnDestroy(address), "cudnnDestroy", "freeing a handle")
