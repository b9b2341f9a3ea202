"""R9.2: no binary that the package ships or builds has cuDNN among the libraries that it needs to be loaded."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import gossamer
from conftest import missing
from gossamer.cudnn import driver_stand_in, shim
from shim_programs import compile_c, dynamic_section

PACKAGE = Path(gossamer.__file__).parent
MAGIC = (b"\x7fELF", b"MZ", b"!<arch>\n", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
"""How ELF, Windows' and macOS's libraries and programs begin, and archives of them."""

PROGRAM = '#include "cudnn_shim.h"\nint main(void) { return (int)cudnnGetVersion() + (int)cudnnCreate(0); }\n'


def test_the_package_ships_no_binary_at_all() -> None:
    """R9.2: Python, C sources and JSON; what is in this folder is what a wheel holds (pyproject.toml)."""
    files = [path for path in PACKAGE.rglob("*") if path.is_file() and path.parent.name != "__pycache__"]
    assert len(files) > 100
    assert [path for path in files if path.read_bytes()[:8].startswith(MAGIC)] == []


@pytest.fixture(scope="module")
def built(linux: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that the package builds, and programs linked with it."""
    for tool in ("cc", "readelf"):
        if shutil.which(tool) is None:
            missing(tool)
    folder = tmp_path_factory.mktemp("built")
    shim.write(folder)
    shim.build(folder)
    shim.build(folder, stand_in=True)
    driver_stand_in._build(folder / driver_stand_in.DRIVER)
    archive = str(folder / shim.ARCHIVE)
    compile_c(folder / "program", PROGRAM, f"-I{folder}", archive, "-pthread", "-ldl")
    compile_c(folder / "linked_with_stand_in", PROGRAM, f"-I{folder}", str(folder / shim.STAND_IN))
    return folder


@pytest.mark.parametrize("name", [shim.STAND_IN, driver_stand_in.DRIVER, "program"])
def test_nothing_that_it_builds_needs_cudnn(built: Path, name: str) -> None:
    """R9.2: nor anything of CUDA's. An archive needs nothing by itself; here is what is linked with it.

    That a stand-in has the name that it stands in for is its purpose: its own, not one that it needs.
    """
    needed = dynamic_section(built / name, "NEEDED")
    assert [library for library in needed if "cudnn" in library or library.startswith(("libcu", "libnv"))] == []


def test_a_need_would_be_seen(built: Path) -> None:
    """A program that is linked with the stand-in, as others are with cuDNN, has it in NEEDED."""
    assert shim.STAND_IN in dynamic_section(built / "linked_with_stand_in", "NEEDED")
    assert dynamic_section(built / shim.STAND_IN, "SONAME") == [shim.STAND_IN]
