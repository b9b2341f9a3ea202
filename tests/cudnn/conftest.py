"""Releases of cuDNN to plan with, installed together with the libraries that they open."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import missing
from cudnn_releases import RELEASES, Release, link
from fake_cudnn import Python


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
