"""The fetcher of wheels: it unpacks what is asked for, downloads again only for what is not there, and checks."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

import cudnn_wheels
import fetch
from cudnn_wheels import WHEELS, Wheel, members

FILES = {
    "nvidia/cudnn/include/a.h": "header",
    "nvidia/cudnn/lib/libcudnn.so.9": "umbrella",
    "nvidia/cudnn/lib/part": "part",
}


class Registry:
    """A wheel served in pip's place; counts the downloads."""

    def __init__(self, folder: Path) -> None:
        self.downloads = 0
        self.path = folder / "served.whl"
        with zipfile.ZipFile(self.path, "w") as archive:
            for name, text in FILES.items():
                archive.writestr(name, text)

    def download(self, package: str, version: str, folder: Path, *options: str) -> Path:
        assert (package, version) == ("tiny-cudnn", "9.1")
        assert options[:4] == ("--implementation", "py", "--abi", "none")
        self.downloads += 1
        return Path(shutil.copy(self.path, folder))


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    made = Registry(tmp_path)
    sha256 = hashlib.sha256(made.path.read_bytes()).hexdigest()
    monkeypatch.setitem(WHEELS, "tiny", Wheel("tiny-cudnn", "9.1", "py3-none-manylinux_2_27_x86_64", sha256))
    monkeypatch.setenv("GOSSAMER_MODELS", str(tmp_path / "cache"))
    monkeypatch.setattr(fetch, "download_wheel", made.download)
    return made


def unpacked(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file() and path.name[0] != "."}


def test_unpacks_what_is_asked_for(registry: Registry) -> None:
    folder = members("tiny", cudnn_wheels.HEADERS, cudnn_wheels.UMBRELLA)
    assert unpacked(folder) == {"nvidia/cudnn/include/a.h", "nvidia/cudnn/lib/libcudnn.so.9"}
    assert (folder / cudnn_wheels.UMBRELLA).read_text(encoding="utf-8") == "umbrella"
    assert members("tiny", cudnn_wheels.HEADERS) == folder
    assert registry.downloads == 1
    members("tiny", cudnn_wheels.EVERYTHING)
    assert unpacked(folder) == set(FILES)
    assert registry.downloads == 2


def test_a_damaged_file_is_fetched_again(registry: Registry) -> None:
    path = members("tiny", cudnn_wheels.UMBRELLA) / cudnn_wheels.UMBRELLA
    path.write_text("umb", encoding="utf-8")
    members("tiny", cudnn_wheels.UMBRELLA)
    assert path.read_text(encoding="utf-8") == "umbrella"
    assert registry.downloads == 2


def test_refuses_another_wheel(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WHEELS, "tiny", replace(WHEELS["tiny"], sha256="0" * 64))
    with pytest.raises(fetch.ModelMismatch, match="SHA-256"):
        members("tiny", cudnn_wheels.HEADERS)
    assert unpacked(WHEELS["tiny"].folder) == set()
    assert registry.downloads == 1


def test_says_when_the_wheel_holds_nothing_of_the_kind(registry: Registry) -> None:
    with pytest.raises(fetch.ModelMismatch, match="holds no docs"):
        members("tiny", "docs/*")
    assert registry.downloads == 1


def test_the_program_knows_what_is_needed_of_each() -> None:
    assert cudnn_wheels.NEEDED.keys() == WHEELS.keys()


@pytest.mark.parametrize("name", WHEELS)
def test_tags_are_pips(name: str) -> None:
    options = WHEELS[name].pip_options
    assert options[:2] in {("--implementation", "py"), ("--implementation", "cp")}
    assert options[options.index("--python-version") + 1] == "3.11"
    assert options.count("--platform") == WHEELS[name].tag.count("manylinux")
