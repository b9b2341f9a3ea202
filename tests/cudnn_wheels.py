"""Real releases that tests of the cuDNN layer look into: wheels of the registry, by version and SHA-256.

`python tests/cudnn_wheels.py [NAME ...]` fetches all of them, or those named, and prints where each one is.

Nothing of a wheel is installed or executed. What a test asks for is unpacked into the cache of tests/models/fetch.py,
under the wheel's own paths, so that the folder on `PYTHONPATH` is what site-packages would be.
"""

from __future__ import annotations

import fnmatch
import hashlib
import importlib.metadata
import json
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).with_name("models")))

import fetch
from gossamer.cudnn.search import package_folders

HEADERS = "nvidia/cudnn/include/*.h"
UMBRELLA = "nvidia/cudnn/lib/libcudnn.so.9"
LIBRARIES = "nvidia/cudnn/lib/*"
EVERYTHING = "*"


@dataclass(frozen=True)
class Wheel:
    """One file of the registry. tag: the compatibility tag of its name, which pip is asked for by this very name."""

    package: str
    version: str
    tag: str
    sha256: str

    @property
    def folder(self) -> Path:
        """Where its members are unpacked."""
        return fetch.cache_folder() / f"{self.package}-{self.version}"

    @property
    def pip_options(self) -> tuple[str, ...]:
        """The same file for every Python and machine that tests run on: none of it is imported."""
        python, abi, platforms = self.tag.split("-")
        implementation, version = python[:2], python[2:]
        options = ["--implementation", implementation, "--abi", abi]
        options += ["--python-version", "3.11" if version == "3" else f"{version[0]}.{version[1:]}"]
        for platform in platforms.split("."):
            options += ["--platform", platform]
        return tuple(options)


WHEELS: dict[str, Wheel] = {
    "cudnn-9.28": Wheel(
        "nvidia-cudnn-cu13",
        "9.28.1.4",
        "py3-none-manylinux_2_27_x86_64",
        "a54f205b1db1f2895d99f398754db1369816f0569dd459731f925635cf7b65ec",
    ),
    "cudnn-9.19": Wheel(
        "nvidia-cudnn-cu13",
        "9.19.0.56",
        "py3-none-manylinux_2_27_x86_64",
        "d20e1734305e9d68889a96e3f35094d733ff1f83932ebe462753973e53a572bf",
    ),
    "cudnn-9.8": Wheel(
        "nvidia-cudnn-cu12",
        "9.8.0.87",
        "py3-none-manylinux_2_27_x86_64",
        "d6b02cd0e3e24aa31d0193a8c39fec239354360d7d81055edddb69f35d53a4c8",
    ),
    "cudnn-jit-9.27": Wheel(
        "nvidia-cudnn-jit-cu13",
        "9.27.0.42",
        "py3-none-manylinux_2_27_x86_64",
        "d78f193e03ae0d884101d50e9019bffb9f99dabc5a58f50e069d145b84730c35",
    ),
    "nvrtc-13.5": Wheel(
        "nvidia-cuda-nvrtc",
        "13.5.37",
        "py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64",
        "86b4d68058807988b7d9af5b44917a0601e9c337f35ccd657bfb3c759ff8d8bc",
    ),
    "cublas-13.8": Wheel(
        "nvidia-cublas",
        "13.8.2.12",
        "py3-none-manylinux_2_27_x86_64",
        "21721774d8e7044debec3034ecc1a8cd22e173eb6dae5d7f5f8a014852382894",
    ),
    "frontend-1.32": Wheel(
        "nvidia-cudnn-frontend",
        "1.32.0",
        "cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64",
        "c6006556017a4d1c914c52a556c71b1267f2d6a0500f742e7b4edef539878df0",
    ),
    "onnxruntime-gpu-1.31": Wheel(
        "onnxruntime-gpu",
        "1.31.1",
        "cp311-cp311-manylinux_2_28_x86_64",
        "e26c475fe361b2015f45b4b824bd13f0bb20204e59b62814e6f0acd5f3d491a6",
    ),
    "onnxruntime-gpu-1.22": Wheel(
        "onnxruntime-gpu",
        "1.22.0",
        "cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64",
        "d30c1512f22b1f01bacb4f177d49cbefd23e0f4bef56066f1282992d133e6ff8",
    ),
}

BINARIES = {
    "onnxruntime-gpu-1.31": "onnxruntime/capi/libonnxruntime_providers_tensorrt.so",
    "onnxruntime-gpu-1.22": "onnxruntime/capi/libonnxruntime_providers_cuda.so",
}
"""Wheel → the one library in it that needs a libcudnn.so.9 to be loaded."""

NEEDED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("cudnn-9.28", "cudnn-9.19", "cudnn-9.8"), (HEADERS, LIBRARIES)),
    "cudnn-jit-9.27": ("nvidia/cudnn_jit/lib/*",),
    "nvrtc-13.5": ("nvidia/cu13/lib/*",),
    "cublas-13.8": ("nvidia/cu13/lib/libcublasLt*",),
    "frontend-1.32": (EVERYTHING,),
    **{name: (path,) for name, path in BINARIES.items()},
}
"""What the program fetches, and tests ask for."""


def members(name: str, *patterns: str) -> Path:
    """The folder of a wheel in which the members that match the patterns lie; downloaded if any of them is not there.

    Raises fetch.ModelUnavailable where the wheel cannot be had, fetch.ModelMismatch where it is another one or holds
    nothing of the kind. An unknown name is a KeyError.
    """
    wheel = WHEELS[name]
    with _alone(wheel.folder):
        if not _complete(wheel, patterns):
            _download(wheel, patterns)
    return wheel.folder


def installed_cudnn() -> Path | None:
    """The folder in which a cuDNN wheel is installed for this Python, `nvidia/cudnn` below it; None without one.

    A wheel that is only on PYTHONPATH is not installed.
    """
    folders = [str(folder) for folder in package_folders()]
    for distribution in importlib.metadata.distributions(path=folders):
        if distribution.name in ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12"):
            return Path(str(distribution.locate_file("")))
    return None


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time: test workers would otherwise download the same 600 MB at once."""
    import fcntl  # not on Windows, where nothing of these is used and this module must be importable

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _complete(wheel: Wheel, patterns: tuple[str, ...]) -> bool:
    listing = wheel.folder / ".members.json"
    if not listing.exists():
        return False
    sizes: dict[str, int] = json.loads(listing.read_text(encoding="utf-8"))
    wanted = _matching(wheel, sizes, patterns)
    return all(
        (wheel.folder / name).is_file() and (wheel.folder / name).stat().st_size == sizes[name] for name in wanted
    )


def _matching(wheel: Wheel, names: dict[str, int], patterns: tuple[str, ...]) -> list[str]:
    found = {pattern: fnmatch.filter(names, pattern) for pattern in patterns}
    for pattern, matches in found.items():
        if not matches:
            raise fetch.ModelMismatch(f"{wheel.package} {wheel.version} holds no {pattern}")
    return sorted({name for matches in found.values() for name in matches})


def _download(wheel: Wheel, patterns: tuple[str, ...]) -> None:
    # Beside the cache, not in /tmp, which is often too small, or memory.
    with tempfile.TemporaryDirectory(dir=wheel.folder) as folder:
        path = fetch.download_wheel(wheel.package, wheel.version, Path(folder), *wheel.pip_options)
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != wheel.sha256:
            raise fetch.ModelMismatch(f"{path.name} has SHA-256 {found}, cudnn_wheels.py says {wheel.sha256}")
        with zipfile.ZipFile(path) as archive:
            sizes = {entry.filename: entry.file_size for entry in archive.infolist() if not entry.is_dir()}
            archive.extractall(wheel.folder, _matching(wheel, sizes, patterns))
    (wheel.folder / ".members.json").write_text(json.dumps(sizes), encoding="utf-8")


def main(names: list[str]) -> int:
    """Fetch and print; exit status 1 when a wheel could not be had."""
    missing = 0
    for name in names or WHEELS:
        if name not in WHEELS:
            raise SystemExit(f"unknown wheel '{name}'; known: {', '.join(WHEELS)}")
        try:
            print(f"{name}: {members(name, *NEEDED[name])}", flush=True)
        except (fetch.ModelUnavailable, fetch.ModelMismatch) as error:
            missing = 1
            print(f"{name}: MISSING: {error}", file=sys.stderr, flush=True)
    return missing


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
