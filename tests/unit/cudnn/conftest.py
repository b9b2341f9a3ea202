"""Fake libraries and fresh interpreters to load them in."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

import fake_cudnn
from conftest import missing


@pytest.fixture(scope="session")
def fakes(tmp_path_factory: pytest.TempPathFactory) -> fake_cudnn.Library:
    if sys.platform != "linux":
        missing("Linux, whose shared libraries the fakes are")
    if shutil.which("cc") is None:
        missing("a C compiler (cc), for fake libraries")
    return fake_cudnn.Library(tmp_path_factory.mktemp("fakes"))


@pytest.fixture
def python(tmp_path: Path) -> fake_cudnn.Python:
    return fake_cudnn.Python.create(tmp_path / "python")
