"""The libraries that cuDNN opens while it plans: cuBLASLt, NVRTC, the driver. Found and opened before it looks for
them.

A cuDNN whose precompiled engines do not find cuBLASLt ends the process ("Invalid handle. Cannot load symbol
cublasLtGetVersion"), so that is asked for first. Wheels install these libraries next to cuDNN's, where neither the
dynamic loader nor always cuDNN looks; a library that is already open is found by its name from everywhere.

Once per process and cuDNN; on Linux. Nothing here is searched for in the working directory, sys.path or PYTHONPATH.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from gossamer.cudnn import calls, driver_stand_in, linking, loader, search
from gossamer.diagnostics import logger
from gossamer.errors import PlanError

__all__ = ["prepare"]

_lock = threading.Lock()
_prepared: set[str] = set()  # paths of cuDNNs
_open: list[ctypes.CDLL] = []  # held open for cuDNN to find

_WHEELS = {"cublasLt": ("cublas", "cu13"), "nvrtc": ("cuda_nvrtc", "cu13")}
"""Folders below `nvidia` that the wheels of CUDA 12 and of CUDA 13 put a library into."""


def prepare() -> None:
    """Open what this process's cuDNN will look for. PlanError PREREQUISITE_MISSING names what is not there.

    NVRTC may be missing: cuDNN then refuses the engines that need it, one by one. Where there is no cuDNN, nothing
    happens.
    """
    library = loader.load()
    if not sys.platform.startswith("linux") or not library.available or library.path in _prepared:
        return
    with _lock:
        if library.path in _prepared:
            return
        _require_driver()
        major = int(calls.cudnnGetCudartVersion()) // 1000
        if any(part.name == "engines_precompiled" for part in library.parts) and not _opened(
            "cublasLt", major, library
        ):
            raise PlanError(
                "PREREQUISITE_MISSING",
                f"cuDNN {library.version_text} needs libcublasLt.so.{major}, and would end the process without it; "
                f"pip install {'nvidia-cublas' if major >= 13 else f'nvidia-cublas-cu{major}'}",
            )
        if not _opened("nvrtc", major, library):
            logger.warning("libnvrtc.so.%d is not here: cuDNN's runtime-compiled engines cannot be used", major)
        _prepared.add(library.path)


def _require_driver() -> None:
    if not driver_stand_in.driver_available():
        raise PlanError(
            "PREREQUISITE_MISSING",
            f"there is no CUDA driver here ({driver_stand_in.DRIVER}); to plan for a device that is not here, call "
            "gossamer.cudnn.driver_stand_in.load() first",
        )


def _opened(name: str, major: int, library: loader.Library) -> bool:
    """Whether a library is open now, from the first place that has one that opens."""
    for target in _places(name, f"lib{name}.so.{major}", library):
        try:
            _open.append(linking.open_library(target))
        except OSError as error:
            logger.debug("%s: %s", target, error)
            continue
        logger.debug("%s for cuDNN: %s", name, linking.path_of(_open[-1]))
        return True
    return False


def _places(name: str, file: str, library: loader.Library) -> Iterator[str]:
    """What is resident; beside cuDNN; in the wheels beside cuDNN's; in installed wheels; the system's."""
    if linking.open_if_resident(file) is not None:
        yield file
    beside = Path(library.path).parent
    wheels = [beside.parent.parent, *(folder / "nvidia" for folder in search.package_folders())]
    folders = [beside, *(wheel / part / "lib" for wheel in wheels for part in _WHEELS[name])]
    yield from (str(folder / file) for folder in folders if (folder / file).is_file())
    yield file
