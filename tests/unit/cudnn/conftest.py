"""Fake libraries and fresh interpreters to load them in."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

import fake_cudnn
from conftest import missing

if importlib.util.find_spec("onnx_ir") is None:  # the base install, which cannot compile
    collect_ignore = ["test_convolution_windows.py", "test_preference.py", "test_tuning.py"]


@pytest.fixture(scope="session")
def linux() -> None:
    """For tests that speak of Linux's files and signals; test_windows.py has the others."""
    if sys.platform != "linux":
        missing("Linux")


@pytest.fixture(scope="session")
def fakes(linux: None, tmp_path_factory: pytest.TempPathFactory) -> fake_cudnn.Library:
    if fake_cudnn.TOOLCHAINS["linux"].compiler() is None:
        missing("a C compiler (cc), for fake libraries")
    return fake_cudnn.Library(tmp_path_factory.mktemp("fakes"))


@pytest.fixture
def python(linux: None, tmp_path: Path) -> fake_cudnn.Python:
    return fake_cudnn.Python.create(tmp_path / "python")
