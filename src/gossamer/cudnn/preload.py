"""`gossamer.preload_dlls`: the one way for a program to say which cuDNN is to be loaded."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from gossamer.cudnn import linking, loader, search
from gossamer.cudnn.search import NAMING, Candidate, Step
from gossamer.diagnostics import logger
from gossamer.errors import InvalidArgument

_PYTORCH = "torch/lib"

CUDA_FILES: dict[str, tuple[str, ...]] = {
    "linux": ("libnvrtc.so.13", "libnvrtc.so.12", "libcublasLt.so.13", "libcublasLt.so.12"),
    # Read about, never run.
    "win32": ("nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "cublasLt64_13.dll", "cublasLt64_12.dll"),
}
"""What cuDNN looks for by name when it compiles kernels or multiplies matrices, newest first. Gossamer needs none."""

CUDA_FOLDERS = {
    "linux": ("nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib", "nvidia/cublas/lib"),
    "win32": ("nvidia/cu13/bin/x86_64", "nvidia/cuda_nvrtc/bin", "nvidia/cublas/bin"),
}
"""Folders of NVIDIA's wheels for CUDA below a folder of packages."""


def preload_dlls(
    cuda: bool = True, cudnn: bool = True, directory: str | os.PathLike[str] | None = None, *, msvc: bool = True
) -> None:
    """Load CUDA's and cuDNN's libraries now, as onnxruntime's function of this name does. Nothing needs to be called
    where cuDNN is in one of the usual places.

    cuda: the libraries of CUDA that cuDNN uses: NVRTC and cuBLASLt. Gossamer needs none, so missing ones are no error.
    cudnn: cuDNN. If none can be loaded, that is logged as an error, which names the file; a session that was refused
    cuDNN before asks again after this succeeded.
    directory: where to look first. None: PyTorch's folder, then NVIDIA's wheels. "": NVIDIA's wheels. Otherwise a
    folder; a relative one is meant from this package's own folder, never from the working directory. Then comes what
    the system's loader finds by name.
    msvc: without effect; Python for Windows has Microsoft's runtime with it.

    Raises InvalidArgument if the directory does not exist.
    """
    folders = _given_folders(directory)
    if sys.platform in NAMING and cuda:
        _preload_cuda(folders)
    if cudnn:
        library = loader.preload(_candidates(folders))
        if not library.available:
            name = NAMING[sys.platform].versioned if sys.platform in NAMING else "cuDNN"
            tried = "; ".join(map(str, library.tried)) or "there is no cuDNN for this platform"
            logger.error("preload_dlls: %s was not loaded: %s", name, tried)


def _given_folders(directory: str | os.PathLike[str] | None) -> tuple[Path, ...] | None:
    """The one folder that was named; none for ""; None where nothing was said."""
    if directory is None:
        return None
    if not os.fspath(directory):
        return ()
    folder = Path(os.path.normpath(Path(__file__).parents[1] / directory))
    if not folder.is_dir():
        raise InvalidArgument(f"preload_dlls: directory={os.fspath(directory)!r} is no folder ({folder})")
    return (folder,)


def _candidates(folders: tuple[Path, ...] | None) -> Iterator[Candidate]:
    """A copy that is loaded already, then the folders, then the usual search."""
    environment = search.environment()
    if environment.platform not in NAMING:
        return
    name = NAMING[environment.platform].versioned
    yield from search.resident(environment)
    pytorch = [folder / _PYTORCH for folder in environment.packages if (folder / _PYTORCH / name).is_file()]
    yield from (Candidate(str(folder / name), Step.PRELOADED) for folder in (pytorch if folders is None else folders))
    if not folders:  # a folder that was named takes the place of the wheels
        yield from search.packages(environment)
    yield from search.system_versioned(environment)
    yield from search.system_unversioned(environment)


def _preload_cuda(folders: tuple[Path, ...] | None) -> None:
    """Opens the first of each library that is found; a name that is loaded already is what cuDNN will find by it."""
    if not folders:
        packages = search.package_folders()
        folders = tuple(package / folder for package in packages for folder in (_PYTORCH, *CUDA_FOLDERS[sys.platform]))
    for name in CUDA_FILES[sys.platform]:
        for path in (folder / name for folder in folders):
            if path.is_file():
                try:
                    linking.open_library(str(path))
                except OSError as error:
                    logger.debug("preload_dlls: %s does not load: %s", path, error)
                break
