"""The same model gives the same bytes: in another process, with an empty cache, on fewer cores, and from sources that
lie elsewhere. (R10)
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

import gossamer
from cases.compiled_models import CASES

pytestmark = pytest.mark.compile

SOURCES = Path(gossamer.__file__).parents[1]
MODELS = {case.name: case.model for case in CASES}
COMPILE = """
import sys, gossamer
gossamer.compile_model(sys.argv[1], sys.argv[2], targets=["sm_80", "sm_90"], cudnn="no")
"""


def compiled(model: Path, folder: Path, sources: Path = SOURCES, **environment: str) -> bytes:
    """The file that a process of its own writes, with a cache of its own below `folder`."""
    folder.mkdir(exist_ok=True)
    path, cache = folder / "model.gossamer", folder / "cache"
    paths = os.pathsep.join((str(sources), *filter(None, sys.path)))
    known = os.environ | {"PYTHONPATH": paths, "GOSSAMER_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", COMPILE, str(model), str(path)]
    subprocess.run(command, env=known | environment, cwd=folder, check=True, timeout=300)
    return path.read_bytes()


@pytest.mark.parametrize("name", ["convolution", "product and norm"])
def test_the_same_bytes_anywhere(name: str, tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    onnx.save(MODELS[name](), model)
    first = compiled(model, tmp_path / "first", PYTHONHASHSEED="1", GOSSAMER_COMPILE_JOBS="1")
    warm = compiled(model, tmp_path / "first", PYTHONHASHSEED="2")

    elsewhere = tmp_path / "a longer path" / "src"
    shutil.copytree(SOURCES / "gossamer", elsewhere / "gossamer", ignore=shutil.ignore_patterns("__pycache__"))
    moved = shutil.copy(model, elsewhere / "other.onnx")
    second = compiled(Path(moved), tmp_path / "second", elsewhere, PYTHONHASHSEED="3", GOSSAMER_COMPILE_JOBS="2")
    assert {hashlib.sha256(data).hexdigest() for data in (first, warm, second)} == {hashlib.sha256(first).hexdigest()}
    for path in (SOURCES, tmp_path, Path(sys.prefix)):
        assert str(path).encode() not in first
