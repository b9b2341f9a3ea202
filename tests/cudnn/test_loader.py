"""The loader with real releases, found as users' are: in a folder of packages, or by the system's loader. (R1, R8.2)"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fake_cudnn import Python, library_path

RELEASES = {
    "cudnn-9.28": ("nvidia/cudnn/lib", "9.28.1"),
    "cudnn-9.19": ("nvidia/cudnn/lib", "9.19.0"),
    "cudnn-9.8": ("nvidia/cudnn/lib", "9.8.0"),
    "cudnn-jit-9.27": ("nvidia/cudnn_jit/lib", "9.27.0"),
}

LOAD = """
    import json
    import gossamer
    before = gossamer.cudnn_version
    from gossamer.cudnn import calls, loader
    library = loader.load()
    print(json.dumps({
        "state": library.state, "reason": library.reason, "version": library.version_text, "path": library.path,
        "before": before, "number": calls.cudnnGetVersion(), "text": calls.cudnnGetErrorString(3000).decode(),
        "has": [library.has(name) for name in ("cudnnBackendExecute", "cudnnConvolutionForward", "cudnnRNNForward")],
        "parts": sorted(part.name for part in library.parts), "handle": library.handle,
    }))
"""

Members = Callable[..., Path]


@pytest.fixture
def python(tmp_path: Path) -> Python:
    return Python.create(tmp_path / "python")


@pytest.fixture
def folder(wheel_members: Members) -> Callable[[str], Path]:
    """Release → the folder of its libraries."""
    return lambda name: wheel_members(name, f"{RELEASES[name][0]}/*") / RELEASES[name][0]


def install(python: Python, libraries: Path, wheel: str = "nvidia/cudnn") -> Path:
    """Put a release, by links, where pip would have; its libraries can be taken away one by one."""
    place = python.packages / wheel / "lib"
    place.mkdir(parents=True)
    for file in libraries.glob("libcudnn*"):
        (place / file.name).symlink_to(file)
    return place


@pytest.mark.parametrize("name", RELEASES)
def test_wheel(python: Python, folder: Callable[[str], Path], name: str) -> None:
    """R1.4, R1.5, R8.2: available, with the version that it is; the jit package has graphs only."""
    place = install(python, folder(name), RELEASES[name][0].removesuffix("/lib"))
    loaded: dict[str, Any] = python.run(LOAD)
    version = RELEASES[name][1]
    assert (loaded["state"], loaded["reason"]) == ("available", "")
    assert (loaded["version"], loaded["before"]) == (version, version)
    assert loaded["path"] == str(place / "libcudnn.so.9")
    assert loaded["text"] == "CUDNN_STATUS_NOT_SUPPORTED"
    assert loaded["has"] == ([True, False, False] if "jit" in name else [True, True, True])
    major, minor, patch = map(int, version.split("."))
    assert loaded["number"] == major * 10000 + minor * 100 + patch
    assert {"graph", "engines_runtime_compiled"} <= set(loaded["parts"])


def test_system_search(python: Python, folder: Callable[[str], Path]) -> None:
    """R1.2: where LD_LIBRARY_PATH says."""
    libraries = folder("cudnn-9.28")
    loaded = python.run(LOAD, **library_path([libraries]))
    assert (loaded["state"], loaded["path"]) == ("available", str(libraries / "libcudnn.so.9"))


def test_copy_in_the_process(python: Python, folder: Callable[[str], Path]) -> None:
    """R1.2: what PyTorch would have opened, although another is installed."""
    install(python, folder("cudnn-9.28"))
    theirs = folder("cudnn-9.19") / "libcudnn.so.9"
    loaded = python.run(f"    import ctypes; theirs = ctypes.CDLL({str(theirs)!r}, ctypes.RTLD_GLOBAL)\n{LOAD}")
    assert (loaded["version"], loaded["path"]) == ("9.19.0", str(theirs))


@pytest.mark.parametrize("name", ["cudnn-9.28", "cudnn-9.8"])
@pytest.mark.parametrize("part", ["graph", "ops", "engines_precompiled"])
def test_half_installed(python: Python, folder: Callable[[str], Path], name: str, part: str) -> None:
    """R1.5: cuDNN 9.8 calls abort for want of a part; this process does not notice."""
    place = install(python, folder(name))
    (place / f"libcudnn_{part}.so.9").unlink()
    loaded = python.run(LOAD)
    assert loaded["state"] == "incompatible"
    assert f"is half-installed: libcudnn_{part}.so.9 missing from {place}" in loaded["reason"]
    assert (loaded["number"], loaded["before"]) == (0, None)


def test_mixed_versions(python: Python, folder: Callable[[str], Path]) -> None:
    """R1.5."""
    place = install(python, folder("cudnn-9.28"))
    (place / "libcudnn_ops.so.9").unlink()
    (place / "libcudnn_ops.so.9").symlink_to(folder("cudnn-9.19") / "libcudnn_ops.so.9")
    loaded = python.run(LOAD)
    assert loaded["state"] == "incompatible"
    assert f"{place}/libcudnn_graph.so.9 is 9.28.1, {place}/libcudnn_ops.so.9 is 9.19.0" in loaded["reason"]


@pytest.mark.parametrize("part", ["cnn", "engines_precompiled", "heuristic"])
def test_parts_that_do_not_say_their_version(python: Python, folder: Callable[[str], Path], part: str) -> None:
    """R1.5: mixed in, they do not load, or fail cuDNN's own comparison."""
    place = install(python, folder("cudnn-9.28"))
    (place / f"libcudnn_{part}.so.9").unlink()
    (place / f"libcudnn_{part}.so.9").symlink_to(folder("cudnn-9.19") / f"libcudnn_{part}.so.9")
    loaded = python.run(LOAD)
    assert loaded["state"] == "incompatible"
    assert f"libcudnn_{part}.so.9" in loaded["reason"]


def test_parts_of_another_release_in_the_library_path(python: Python, folder: Callable[[str], Path]) -> None:
    """R1.5: 9.8 has a RUNPATH, before which the dynamic loader looks into LD_LIBRARY_PATH: a known way to break it.

    The umbrella of one release with all parts of another works; what must not be said is that it is 9.8.
    """
    place = install(python, folder("cudnn-9.8"))
    loaded = python.run(LOAD, **library_path([folder("cudnn-9.19")]))
    assert loaded["path"] == str(place / "libcudnn.so.9")
    assert loaded["state"] == "incompatible" or loaded["version"] == "9.19.0"
