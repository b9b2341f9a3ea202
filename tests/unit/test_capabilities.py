"""A test whose need is not met is skipped with the reason; GOSSAMER_STRICT=1 makes that a failure. A process of a leg
without cuDNN that has one fails."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"
FETCHER = Path(__file__).parents[1] / "models"
SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A suite of one interpreter test where Triton (an empty module: it is only looked for) would compile."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.delenv("GOSSAMER_STRICT", raising=False)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (pytester.path, FETCHER, CONFTEST.parent, SOURCE))))
    pytester.makepyfile(triton="")
    pytester.makeini("[pytest]\naddopts = --strict-markers\nmarkers =\n  interpreter: x\n  compile: x\n")
    pytester.makeconftest(CONFTEST.read_text(encoding="utf-8"))
    folder = pytester.mkdir("interpreter")
    (folder / "test_kernel.py").write_text("def test_kernel(): pass\n")
    return pytester


def test_skip_names_what_is_missing(suite: pytest.Pytester) -> None:
    result = suite.runpytest_subprocess("-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*TRITON_INTERPRET=1 before Python starts*"])


def test_strict_turns_the_skip_into_a_failure(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSAMER_STRICT", "1")
    result = suite.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*this machine lacks: Triton's interpreter*"])


def test_need_that_is_met_runs(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    suite.runpytest_subprocess("-m", "interpreter").assert_outcomes(passed=1)


def test_folder_marks_its_tests(suite: pytest.Pytester) -> None:
    suite.runpytest_subprocess("-m", "not interpreter").assert_outcomes(deselected=1)


# Legs


@pytest.fixture
def in_leg(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], pytest.RunResult]:
    """Name of a leg and code → the outcome of a test that is this code."""

    def run(leg: str, code: str) -> pytest.RunResult:
        monkeypatch.setenv("CUDNN_LEG", leg)
        monkeypatch.delenv("GOSSAMER_ENABLE_CUDNN", raising=False)
        suite.makepyfile(test_one=f"def test_one():\n    {code}\n")
        return suite.runpytest_subprocess("test_one.py")

    return run


ASKS = "from gossamer.cudnn import loader; loader.load()"
MAPS = "import _ctypes, ctypes, shutil; ctypes.CDLL(shutil.copy(_ctypes.__file__, './libcudnn_ops.so.9'))"


def test_disabled_is_the_default_of_sessions_and_nothing_looks_for_cudnn(in_leg: Any) -> None:
    """R3.3."""
    code = "import os; from gossamer.options import CudaOptions; assert not CudaOptions().enable_cudnn"
    in_leg("disabled", f"{code}; assert os.environ['GOSSAMER_ENABLE_CUDNN'] == '0'").assert_outcomes(passed=1)
    asked = in_leg("disabled", ASKS)
    asked.assert_outcomes(passed=1, errors=1)
    asked.stdout.fnmatch_lines(["*the loader was asked for cuDNN*"])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows a process what it has loaded")
@pytest.mark.parametrize("leg", ["absent", "disabled"])
def test_a_cudnn_in_the_process_of_a_leg_without_one_is_found(in_leg: Any, leg: str) -> None:
    """R9.1."""
    loaded = in_leg(leg, MAPS)
    loaded.assert_outcomes(passed=1, errors=1)
    loaded.stdout.fnmatch_lines(["*loaded in this process: */libcudnn_ops.so.9*"])
    in_leg("installed", MAPS).assert_outcomes(passed=1)


def test_a_leg_that_does_not_exist(in_leg: Any) -> None:
    outcome = in_leg("abssent", "pass")
    assert outcome.ret == pytest.ExitCode.USAGE_ERROR
    outcome.stderr.fnmatch_lines(["*CUDNN_LEG=abssent: there are absent, disabled, installed*"])
