"""The dynamic loader of the operating system: opening libraries, finding symbols, saying what is open already.

Linux and Windows. The Windows branches were written from its documentation and have only been read, never run.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable
from pathlib import Path

if sys.platform == "win32":
    # LoadLibraryEx: the folder of the library itself, the application's, System32 and what AddDllDirectory named. The
    # working directory and PATH are none of them.
    _SEARCH_DEFAULT_DIRS, _SEARCH_DLL_LOAD_DIR = 0x1000, 0x100
    _kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
    _kernel32.GetModuleHandleW.argtypes = [ctypes.c_wchar_p]
    _kernel32.GetModuleHandleW.restype = ctypes.c_void_p
    _kernel32.GetModuleFileNameW.argtypes = [ctypes.c_void_p, ctypes.c_wchar_p, ctypes.c_uint32]
    _kernel32.GetModuleFileNameW.restype = ctypes.c_uint32

    def open_library(path: str) -> ctypes.CDLL:
        """Opens a library by its absolute path, or by a name to search for. Raises OSError with the loader's words."""
        own_folder = _SEARCH_DLL_LOAD_DIR if os.path.isabs(path) else 0
        return ctypes.CDLL(path, winmode=_SEARCH_DEFAULT_DIRS | own_folder)

    def open_umbrella(path: str, parts: Iterable[str]) -> ctypes.CDLL:
        """Opens cuDNN. Its parts come first: it opens them by name, and a name that is loaded already is not searched
        for in the folders of PATH.
        """
        for part in parts:
            open_library(part)
        return open_library(path)

    def open_if_resident(name: str) -> ctypes.CDLL | None:
        """The library that this process already has under a name, or None. Loads nothing."""
        handle = _kernel32.GetModuleHandleW(name)
        return ctypes.CDLL(name, handle=handle) if handle else None

    def path_of(library: ctypes.CDLL) -> str:
        """The file that a library came from."""
        buffer = ctypes.create_unicode_buffer(32768)
        _kernel32.GetModuleFileNameW(library._handle, buffer, len(buffer))
        return buffer.value

else:

    class _LinkMap(ctypes.Structure):
        """The beginning of glibc's and musl's `struct link_map`."""

        _fields_ = (("l_addr", ctypes.c_void_p), ("l_name", ctypes.c_char_p))

    _RTLD_DI_LINKMAP = 2

    def open_library(path: str) -> ctypes.CDLL:
        """Opens a library by its absolute path, or by a name to search for. Raises OSError with the loader's words."""
        return ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)

    def open_umbrella(path: str, parts: Iterable[str]) -> ctypes.CDLL:
        """Opens cuDNN, RTLD_NOW | RTLD_LOCAL and itself only: it opens its parts when it needs them. (R1.3)"""
        return open_library(path)

    def open_if_resident(name: str) -> ctypes.CDLL | None:
        """The library that this process already has under a name, or None. Loads nothing.

        A copy that somebody opened RTLD_GLOBAL stays global: RTLD_LOCAL takes nothing away.
        """
        try:
            return ctypes.CDLL(name, mode=os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_NOLOAD)
        except OSError:
            return None

    def path_of(library: ctypes.CDLL) -> str:
        """The file that a library came from, as the loader found it: symbolic links are not followed."""
        dlinfo = ctypes.pythonapi["dlinfo"]  # among the process's own symbols; nothing is opened for it
        dlinfo.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
        dlinfo.restype = ctypes.c_int
        found = ctypes.POINTER(_LinkMap)()
        if dlinfo(library._handle, _RTLD_DI_LINKMAP, ctypes.byref(found)) != 0:
            return library._name
        name: bytes = found.contents.l_name
        return os.path.abspath(os.fsdecode(name))


def has_symbol(library: ctypes.CDLL, name: str) -> bool:
    """Whether a library, or one that it needs, has a symbol."""
    try:
        library[name]
    except AttributeError:
        return False
    return True


def resident_files(prefix: str) -> list[str]:
    """Files mapped into this process whose names start with `prefix`, sorted; nothing where the system does not say."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return []
    paths = {line.split(maxsplit=5)[5] for line in maps.splitlines() if line.count("/")}
    return sorted(path for path in paths if os.path.basename(path).startswith(prefix))
