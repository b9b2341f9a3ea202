"""The stand-in for the driver: built once, kept where only the user writes, loaded only where there is no driver."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import missing
from fake_cudnn import Python, library_path
from gossamer import settings
from gossamer.cudnn import driver_stand_in
from gossamer.errors import PlanError

USE = """
    import ctypes, json, os
    from gossamer.cudnn import driver_stand_in
    path = driver_stand_in.load()
    again = driver_stand_in.load()
    resident = ctypes.CDLL("libcuda.so.1", os.RTLD_NOLOAD | os.RTLD_NOW)
    count, text = ctypes.c_int(7), ctypes.c_char_p()
    answers = [resident.cuInit(0), resident.cuDeviceGetCount(ctypes.byref(count)), resident.cuTensorMapEncodeTiled()]
    resident.cuGetErrorString(100, ctypes.byref(text))
    print(json.dumps([str(path), str(again), answers, count.value, text.value.decode()]))
"""


@pytest.fixture
def compiler() -> str:
    if sys.platform != "linux":
        missing("Linux, whose driver is stood in for")
    found = shutil.which("cc")
    if found is None:
        missing("a C compiler (cc)")
    return found


@pytest.fixture
def no_driver() -> None:
    if driver_stand_in.driver_available():
        pytest.skip("there is a driver here, so that no stand-in is loaded")


def test_it_answers_no_device(python: Python, compiler: str, no_driver: None) -> None:
    path, again, answers, count, text = python.run(USE)
    assert path == again
    assert answers == [100, 100, 100]
    assert count == 0
    assert "no CUDA-capable device" in text
    place = Path(path)
    assert place.is_relative_to(python.cache / "driver_stand_in")
    assert place.stat().st_size < 20_000
    assert [one.stat().st_mode & 0o777 for one in (place, place.parent)] == [0o700, 0o700]
    assert [file.name for file in place.parent.iterdir()] == ["libcuda.so.1"]


def test_it_is_built_once(python: Python, compiler: str, no_driver: None) -> None:
    path = Path(python.run(USE)[0])
    before = path.stat().st_mtime_ns
    assert Path(python.run(USE, PATH="/nowhere")[0]).stat().st_mtime_ns == before


def test_many_build_it_at_once(python: Python, compiler: str, no_driver: None) -> None:
    """Each sees a whole library, and one remains."""
    code = "from gossamer.cudnn import driver_stand_in; print(driver_stand_in.load())"
    command = [str(python.folder / "bin" / "python"), "-c", code]
    environment = {"GOSSAMER_CACHE_DIR": str(python.cache), "PATH": "/usr/bin:/bin"}
    running = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    paths = {process.communicate()[0].strip() for process in running}
    assert [process.returncode for process in running] == [0] * 4
    assert len(paths) == 1


def test_never_where_a_driver_exists(python: Python, compiler: str, tmp_path: Path) -> None:
    """Any libcuda.so.1 that the dynamic loader finds is a driver."""
    (tmp_path / "driver.c").write_text("int cuInit(unsigned flags) { return 42; }")
    driver = tmp_path / "libcuda.so.1"
    command = [compiler, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(driver), str(tmp_path / "driver.c")]
    subprocess.run(command, check=True)
    found = python.run(
        "import json; from gossamer.cudnn import driver_stand_in; print(json.dumps(driver_stand_in.load()))",
        **library_path([tmp_path]),
    )
    assert found is None
    assert not (python.cache / "driver_stand_in").exists()


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(driver_stand_in, "driver_available", lambda: False)
    monkeypatch.setattr(driver_stand_in, "_loaded", [])
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    with settings.override(CACHE_DIR=tmp_path), pytest.raises(PlanError, match="no C compiler") as raised:
        driver_stand_in.load()
    assert raised.value.reason == "PREREQUISITE_MISSING"


@pytest.mark.parametrize("which", ["file", "folder"])
def test_what_others_can_write_is_not_loaded(
    monkeypatch: pytest.MonkeyPatch, compiler: str, tmp_path: Path, which: str
) -> None:
    monkeypatch.setattr(driver_stand_in, "driver_available", lambda: False)
    monkeypatch.setattr(driver_stand_in, "_loaded", [])
    with settings.override(CACHE_DIR=tmp_path):
        path = driver_stand_in.library_path()
        path.parent.mkdir(parents=True, mode=0o700)
        path.write_bytes(b"somebody else's")
        path.chmod(0o722 if which == "file" else 0o700)
        path.parent.chmod(0o777 if which == "folder" else 0o700)
        with pytest.raises(PlanError, match="can be written by others"):
            driver_stand_in.load()
    assert driver_stand_in._loaded == []


def test_another_source_is_another_file(monkeypatch: pytest.MonkeyPatch) -> None:
    before = driver_stand_in.library_path()
    monkeypatch.setattr(driver_stand_in, "SOURCE", driver_stand_in.SOURCE + "\n")
    assert driver_stand_in.library_path() != before
    assert driver_stand_in.library_path().name == before.name
