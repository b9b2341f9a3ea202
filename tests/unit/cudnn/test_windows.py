"""The loader on Windows: DLLs in a wheel's `bin`, found, examined, refused. (R1, R9.4)

Only the first test has ever been run, on Linux with MinGW's cross-compiler; the fakes that it builds were then loaded
under Wine, with the flags and in the order of `linking.open_umbrella`. The rest has been read, not run.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import fake_cudnn
from fake_cudnn import PARTS, TOOLCHAINS, Fake, Python

on_windows = pytest.mark.skipif(sys.platform != "win32", reason="Windows")

LOAD = """
    import json, sys
    opened = []
    sys.addaudithook(lambda event, given: opened.append(str(given[0])) if event == "ctypes.dlopen" else None)
    from gossamer.cudnn import calls, loader
    library = loader.load()
    print(json.dumps({
        "state": library.state, "reason": library.reason, "version": library.version_text, "path": library.path,
        "step": library.step, "tried": [str(attempt) for attempt in library.tried],
        "parts": sorted(part.name for part in library.parts), "number": calls.cudnnGetVersion(),
        "opened": [path for path in opened if "cudnn" in path],
    }))
"""


def compiler() -> str:
    """MinGW's; there is none on most machines, and none is missed there."""
    found = TOOLCHAINS["win32"].compiler()
    if found is None:
        pytest.skip("MinGW's gcc, for fake libraries")
    return found


@pytest.fixture
def python(tmp_path: Path) -> Python:
    return Python.create(tmp_path / "python")


@pytest.fixture(scope="module")
def fakes(tmp_path_factory: pytest.TempPathFactory) -> fake_cudnn.Library:
    compiler()
    return fake_cudnn.Library(tmp_path_factory.mktemp("fakes"))


def load(python: Python, **where: Any) -> dict[str, Any]:
    loaded: dict[str, Any] = python.run(LOAD, **where)
    return loaded


@pytest.mark.parametrize("fake", [Fake(), Fake(broken="graph", stand_in=True), Fake(version=8907, parts=())])
def test_fakes_compile_for_windows(tmp_path: Path, fake: Fake) -> None:
    """Without a warning, wherever MinGW is."""
    compiler()
    umbrella = fake.build(tmp_path, "win32")
    assert umbrella.name == "cudnn64_9.dll"
    assert {path.name for path in tmp_path.iterdir()} == {
        umbrella.name,
        *(f"cudnn_{part}64_9.dll" for part in fake.parts),
    }
    assert {path.read_bytes()[:2] for path in tmp_path.iterdir()} == {b"MZ"}


@on_windows
def test_absent(python: Python) -> None:
    """R1.8."""
    loaded = load(python)
    assert (loaded["state"], loaded["number"]) == ("missing", 0)
    assert loaded["tried"] == [
        "cudnn64_9.dll (already loaded in the process): not found",
        "cudnn64_9.dll (the system's search for the versioned name): not found",
    ]


@on_windows
def test_wheel(python: Python, fakes: fake_cudnn.Library) -> None:
    """R1.2, R1.5: found in the wheel's folder; each part is opened by its path before the umbrella wants it."""
    umbrella = fakes.installed(python)
    loaded = load(python)
    assert (loaded["state"], loaded["reason"], loaded["version"]) == ("available", "", "9.28.1")
    assert Path(loaded["path"]).samefile(umbrella)
    assert (loaded["step"], loaded["number"]) == ("installed package", 92801)
    assert loaded["parts"] == sorted(PARTS)
    absolute = [path for path in loaded["opened"] if os.path.isabs(path)]
    assert len(absolute) == len(PARTS) + 1
    assert Path(absolute[-1]).samefile(umbrella)


@on_windows
@pytest.mark.parametrize("part", ["graph", "ops", "engines_runtime_compiled"])
def test_half_installed(python: Python, fakes: fake_cudnn.Library, part: str) -> None:
    """R1.5."""
    umbrella = fakes.installed(python)
    (umbrella.parent / f"cudnn_{part}64_9.dll").unlink()
    loaded = load(python)
    assert loaded["state"] == "incompatible"
    assert f"is half-installed: cudnn_{part}64_9.dll missing from " in loaded["reason"]


@on_windows
@pytest.mark.parametrize(
    ("fake", "reason"),
    [
        (Fake(version=8907, parts=()), "is cuDNN 8.9.7, and Gossamer needs cuDNN 9"),
        (Fake(lacks=("cudnnSetStream",)), r"\(cuDNN 9.28.1\) lacks cudnnSetStream"),
        (Fake(versions=(("ops", 91900),)), r"has parts of different versions: .*cudnn_ops64_9.dll is 9.19.0"),
        (Fake(broken="umbrella"), r"opening .*cudnn64_9.dll: the process that did this ended with code \d+"),
        (Fake(broken="graph"), r"opening .*cudnn_graph64_9.dll: the process that did this ended with code \d+"),
    ],
)
def test_unusable(python: Python, fakes: fake_cudnn.Library, fake: Fake, reason: str) -> None:
    """R1.4, R1.5: the process survives and says what is wrong."""
    fakes.installed(python, fake)
    loaded = load(python)
    assert loaded["state"] == "incompatible"
    assert re.search(reason, loaded["reason"])


@on_windows
def test_copy_that_is_loaded_already_comes_first(python: Python, fakes: fake_cudnn.Library, tmp_path: Path) -> None:
    """R1.2."""
    fakes.installed(python)
    theirs = fakes.at(tmp_path / "theirs", Fake(version=92500))
    loaded = python.run(f"    import ctypes; theirs = ctypes.CDLL({str(theirs)!r})\n{LOAD}")
    assert Path(loaded["path"]).samefile(theirs)
    assert (loaded["version"], loaded["step"]) == ("9.25.0", "already loaded in the process")


@on_windows
def test_preload(python: Python, fakes: fake_cudnn.Library, tmp_path: Path) -> None:
    """R8.1: the way to one that is in no wheel."""
    mine = fakes.at(tmp_path / "mine")
    loaded = python.run(f"    import gossamer; gossamer.preload_dlls(directory={str(mine.parent)!r})\n{LOAD}")
    assert Path(loaded["path"]).samefile(mine)
    assert loaded["step"] == "preload_dlls"


@on_windows
def test_neither_working_directory_nor_path(python: Python, fakes: fake_cudnn.Library, tmp_path: Path) -> None:
    """R1.2: LoadLibraryEx with its default folders looks in neither."""
    hostile = fakes.at(tmp_path / "hostile", Fake(broken="umbrella")).parent
    fakes.at(hostile / "nvidia" / "cudnn" / "bin", Fake(broken="umbrella"))
    loaded = load(python, cwd=hostile, PATH=f"{hostile};{os.environ['PATH']}", PYTHONPATH=str(hostile))
    assert loaded["state"] == "missing"
    assert python.openings() == {}


@on_windows
def test_nothing_is_opened_before_it_is_needed(python: Python, fakes: fake_cudnn.Library) -> None:
    """R1.1, R3.3."""
    fakes.installed(python)
    python.run("""
        import gossamer
        from gossamer.cudnn import loader
        from gossamer.options import CudaOptions
        CudaOptions.parse({"enable_cudnn": "1"})
        loader.effective(False)
        print("null")
    """)
    assert python.openings() == {}
