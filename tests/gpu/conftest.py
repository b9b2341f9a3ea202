"""What tests need on a GPU besides it."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

import cudnn_legs
from conftest import missing
from gossamer.cudnn import loader


@pytest.fixture(scope="session")
def cudnn() -> loader.Library:
    """This machine's cuDNN; in legs without one, tests that need it are skipped."""
    if cudnn_legs.LEG in cudnn_legs.WITHOUT:
        pytest.skip(f"cuDNN, {cudnn_legs.WITHOUT[cudnn_legs.LEG]}")
    library = loader.load()
    if not library.available:
        missing(f"cuDNN: {library.reason}")
    return library


@pytest.fixture(scope="session")
def planning_cudnn(cudnn: loader.Library) -> loader.Library:
    """A cuDNN that plans for device properties."""
    if cudnn.version < 90800:
        missing(f"cuDNN 9.8, which plans for device properties; this is {cudnn.version_text}")
    return cudnn


@pytest.fixture(scope="session")
def torch() -> Any:
    """PyTorch, another owner of streams and memory."""
    if cudnn_legs.LEG == "absent":
        pytest.skip(f"PyTorch, which brings cuDNN, {cudnn_legs.WITHOUT['absent']}")
    if importlib.util.find_spec("torch") is None:
        missing("PyTorch, as another owner of streams and memory")
    assert not cudnn_legs.contradiction()  # the last moment at which the process's memory tells
    return importlib.import_module("torch")
