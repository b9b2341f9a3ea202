"""Trampolines: `calls.cudnnCreate(…)` and every other function of the manifest, by cuDNN's own names.

    handle = ctypes.c_void_p()
    calls.check(calls.cudnnCreate(ctypes.byref(handle)), "cudnnCreate", "making a handle")

Each is made when its name is first used and bound when it is first called: that loads cuDNN, if it was not yet.
Where there is no cuDNN, calling is harmless: functions that return a status return CUDNN_STATUS_NOT_INITIALIZED, the
others what `ABSENT` says. (R2.4) Pointers are passed as ctypes does (`byref`, arrays, addresses as int, None), enums as
their numbers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from gossamer.cudnn import loader
from gossamer.cudnn.enums import cudnnStatus
from gossamer.cudnn.symbols import FUNCTIONS, POINTER_TYPES, SCALAR_TYPES, Function
from gossamer.errors import CudnnError

ABSENT: dict[str, Any] = {
    "cudnnStatus_t": int(cudnnStatus.CUDNN_STATUS_NOT_INITIALIZED),
    "size_t": 0,
    "const char *": b"cuDNN is not available",
    "void": None,
}
"""Return type → what a trampoline returns where there is no cuDNN."""

_LACKING = ABSENT | {"cudnnStatus_t": int(cudnnStatus.CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE)}
"""The same, where there is a cuDNN that has not this function: newer than it, or in a part that is not installed."""

_C_TYPES: dict[str, Any] = {
    "int": ctypes.c_int,
    "unsigned": ctypes.c_uint,
    "unsigned long long": ctypes.c_ulonglong,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "size_t": ctypes.c_size_t,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}


def c_type(spelling: str) -> Any:
    """The ctypes type of a C type as the manifest spells it; None for void. Enums are ints."""
    if spelling == "void":
        return None
    if spelling.endswith("*") or spelling in POINTER_TYPES:
        return ctypes.c_void_p
    return _C_TYPES[spelling] if spelling in SCALAR_TYPES else ctypes.c_int


def bind(function: Function, library: ctypes.CDLL) -> Callable[..., Any]:
    """A function of an open library, with its complete prototype. Raises AttributeError where it is not there."""
    bound = library[function.name]  # a new object each time: its types are nobody else's
    bound.restype = ctypes.c_char_p if function.returns == "const char *" else c_type(function.returns)
    bound.argtypes = [c_type(spelling) for spelling, _ in function.arguments]
    return bound


def __getattr__(name: str) -> Callable[..., Any]:
    """Make a trampoline at its first use and keep it."""
    if name not in FUNCTIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}: cuDNN has no such function")
    trampoline = _trampoline(FUNCTIONS[name])
    globals()[name] = trampoline
    return trampoline


def _trampoline(function: Function) -> Callable[..., Any]:
    # One tuple, replaced at once: threads that race after a retry can only leave a pair that fits together.
    bound: tuple[loader.Library | None, Callable[..., Any]] = (None, _returning(ABSENT[function.returns]))

    def trampoline(*arguments: Any) -> Any:
        nonlocal bound
        library = loader.load()
        target = bound
        if target[0] is not library:  # the first call, or preload_dlls has found another since
            target = bound = library, _target(function, library)
        return target[1](*arguments)

    trampoline.__name__ = trampoline.__qualname__ = function.name
    trampoline.__doc__ = f"{function.returns} {function.name}({', '.join(' '.join(one) for one in function.arguments)})"
    return trampoline


def _target(function: Function, library: loader.Library) -> Callable[..., Any]:
    if library.opened is None:
        return _returning(ABSENT[function.returns])
    if not library.has(function.name):
        return _returning(_LACKING[function.returns])
    return bind(function, library.opened)


def _returning(value: Any) -> Callable[..., Any]:
    return lambda *_: value


def check(status: int, call: str, doing: str = "") -> None:
    """Raises CudnnError unless a status is CUDNN_STATUS_SUCCESS, with cuDNN's words for it.

    call: the function that returned it. doing: what was being done, in words that follow "while".
    """
    if status != 0:
        raise CudnnError(call, int(status), _text(status), doing)


def _text(status: int) -> str:
    """The status by name, cuDNN's text where it says more, and what it last had to say about an error."""
    known = {int(member): member.name for member in cudnnStatus}
    pieces = [known.get(status, "a status newer than the manifest")]
    library = loader.load()
    if not library.available:  # never ask a library that is not there
        return f"{pieces[0]}: {library.reason}"
    words = FUNCTIONS["cudnnGetErrorString"], FUNCTIONS["cudnnGetLastErrorString"]
    text = _trampoline(words[0])(status).decode(errors="replace")
    message = ctypes.create_string_buffer(2048)
    _trampoline(words[1])(message, len(message))
    pieces += [said for said in (text, message.value.decode(errors="replace").strip()) if said not in ("", *pieces)]
    return ": ".join(pieces)
