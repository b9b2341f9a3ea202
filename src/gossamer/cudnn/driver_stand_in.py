"""A stand-in for the CUDA driver, for machines that compile and have none.

cuDNN's runtime-compiled engines link against `libcuda.so.1`; without it cuDNN proposes fewer engines, and from 9.28 on
it does not even read device properties. They never call it while a plan is made. So where there is no driver, a library
of a few functions, each of which answers "no device", lets them be planned for.

`load` is called by the process that compiles, never by one that runs models, and does nothing where a driver exists.
The library is built once with the machine's C compiler and kept in Gossamer's cache under the SHA-256 of its source, in
a folder that only the user can write: what others could write there would be loaded into this process.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

from gossamer import settings
from gossamer.cudnn import linking
from gossamer.errors import PlanError

__all__ = ["DRIVER", "SOURCE", "driver_available", "library_path", "load"]

DRIVER = "libcuda.so.1"

_ANSWERING_NOTHING = (
    # linked against
    *("cuModuleGetFunction", "cuModuleLoadData", "cuModuleUnload", "cuTensorMapEncodeIm2col", "cuTensorMapEncodeTiled"),
    # looked up, with a line on standard error for each that is not there
    *("cuInit", "cuDeviceGet", "cuGetErrorName", "cuStreamGetCtx", "cuOccupancyMaxPotentialClusterSize"),
    *("cuCtxGetCurrent", "cuCtxGetLimit", "cuCtxPopCurrent", "cuCtxPushCurrent"),
    *("cuLinkCreate", "cuLinkAddData", "cuLinkComplete", "cuLinkDestroy"),
    *("cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel"),
    *("cuLibraryLoadData", "cuLibraryLoadFromFile", "cuLibraryGetKernel", "cuLibraryUnload"),
    *("cuKernelGetAttribute", "cuKernelSetAttribute", "cuKernelGetFunction"),
)
"""Functions that set nothing. Whatever is not named here is looked up by its users, and found missing."""

SOURCE = """\
/* Answers CUDA_ERROR_NO_DEVICE to everything. */
enum { NO_DEVICE = 100 };
int cuGetErrorString(int error, const char **text)
{ (void)error; *text = "no CUDA-capable device is detected (stand-in for the driver)"; return 0; }
int cuDriverGetVersion(int *version) { *version = 0; return NO_DEVICE; }
int cuDeviceGetCount(int *count) { *count = 0; return NO_DEVICE; }
""" + "".join(f"int {name}(void) {{ return NO_DEVICE; }}\n" for name in _ANSWERING_NOTHING)

_SONAME = f"-Wl,-soname,{DRIVER}"
_FLAGS = ("-shared", "-fPIC", "-O1", "-s", _SONAME)

_loaded: list[ctypes.CDLL] = []  # held open: cuDNN finds it by its name


def load() -> Path | None:
    """Make a stand-in resident, unless this process has a driver, or can have one; None then.

    Returns the library's path. PlanError PREREQUISITE_MISSING where there is no C compiler to build it with, or its
    folder can be written by others. Linux only; elsewhere it does nothing.
    """
    if _loaded:
        return Path(linking.path_of(_loaded[0]))
    if not sys.platform.startswith("linux") or driver_available():
        return None
    path = library_path()
    if not path.exists():
        _build(path)
    _refuse_others(path)
    _loaded.append(linking.open_library(str(path)))
    return path


def driver_available() -> bool:
    """Whether `libcuda.so.1` is in the process, or the dynamic loader finds it: a stand-in counts once it is loaded."""
    try:
        linking.open_library(DRIVER)
    except OSError:
        return False
    return True


def library_path() -> Path:
    """Where the stand-in is kept: its folder is named after its source, how it is built, and the machine."""
    named = hashlib.sha256("\0".join((SOURCE, *_FLAGS, os.uname().machine)).encode()).hexdigest()
    return settings.CACHE_DIR() / "driver_stand_in" / named[:32] / DRIVER


def _build(path: Path) -> None:
    """Build it beside its place and move it there: another process sees all of it or nothing."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise PlanError(
            "PREREQUISITE_MISSING",
            "there is no CUDA driver here, and no C compiler (cc, gcc, clang) to build the stand-in for it with, which "
            "cuDNN's runtime-compiled engines need; install one, e.g. apt-get install gcc",
        )
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        source, built = Path(scratch, "driver.c"), Path(scratch, DRIVER)
        source.write_text(SOURCE)
        command = [compiler, *_FLAGS, "-o", str(built), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            said = done.stderr.strip()
            raise PlanError(
                "PREREQUISITE_MISSING", f"{' '.join(command)} failed, the driver's stand-in is not built:\n{said}"
            )
        built.chmod(0o700)
        os.replace(built, path)


def _refuse_others(path: Path) -> None:
    """PlanError unless file and folder belong to this user and nobody else can write them."""
    for place in (path, path.parent):
        status = place.stat()
        if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PlanError(
                "PREREQUISITE_MISSING",
                f"{place} belongs to user {status.st_uid} or can be written by others, and would be loaded into this "
                f"process; remove it, or set {settings.CACHE_DIR.name} to a folder of your own",
            )
