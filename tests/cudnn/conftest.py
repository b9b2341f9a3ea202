"""Real releases, installed with the libraries that they open, and processes to use them in: one cuDNN per process."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conftest import missing
from fake_cudnn import Python

RELEASES = {"9.28": "cudnn-9.28", "9.19": "cudnn-9.19"}
"""Newest and oldest supported release → the wheel."""

BEGIN = """
import json, sys
sys.path.append(FOLDER)
from gossamer.cudnn import DeviceProperties, Graph, KernelCache, PlanError, driver_stand_in
from cudnn_graphs import CASES, build
driver_stand_in.load()

def graph(device="h200", case=None, dtype="float16", **given):
    made = Graph(properties=DeviceProperties.named(device), **given)
    return build(made, case, dtype) if case else made

def refusal(action):
    try:
        return f"none, but {action()!r}"
    except Exception as error:
        return [getattr(error, "reason", type(error).__name__), str(error)]
"""


@dataclass(frozen=True)
class Release:
    """One cuDNN, where pip would have put it. Code finds DeviceProperties, Graph, graph, refusal and so on."""

    name: str
    python: Python

    def run(self, code: str, **environment: str) -> Any:
        """What the code prints last, as JSON."""
        begin = BEGIN.replace("FOLDER", repr(str(Path(__file__).parents[1])))
        return self.python.run(begin + textwrap.dedent(code), **environment)


@pytest.fixture(scope="session")
def release_named(
    wheel_members: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Release]:
    """Short version → the release, installed once."""
    made: dict[str, Release] = {}

    def named(name: str) -> Release:
        if shutil.which("cc") is None:
            missing("a C compiler (cc), for the stand-in for the driver")
        if name not in made:
            python = Python.create(tmp_path_factory.mktemp("release") / "python")
            link(wheel_members(RELEASES[name], "nvidia/cudnn/lib/*"), python, "nvidia/cudnn/lib/libcudnn*")
            link(wheel_members("nvrtc-13.5", "nvidia/cu13/lib/*"), python, "nvidia/cu13/lib/*")
            link(wheel_members("cublas-13.8", "nvidia/cu13/lib/libcublasLt*"), python, "nvidia/cu13/lib/*")
            made[name] = Release(name, python)
        return made[name]

    return named


@pytest.fixture(scope="session", params=RELEASES)
def release(request: pytest.FixtureRequest, release_named: Callable[[str], Release]) -> Release:
    """Each release in turn."""
    return release_named(request.param)


@pytest.fixture(scope="session")
def newest(release_named: Callable[[str], Release]) -> Release:
    return release_named("9.28")


def link(wheel: Path, python: Python, pattern: str) -> None:
    """Put files of a wheel into a Python's packages, by links."""
    for file in wheel.glob(pattern):
        place = python.packages / file.relative_to(wheel)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(file)
