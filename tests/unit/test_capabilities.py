"""A test whose need is not met is skipped with the reason; GOSSAMER_STRICT=1 makes that a failure."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"
FETCHER = Path(__file__).parents[1] / "models"


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A suite of one interpreter test where Triton (an empty module: it is only looked for) would compile."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.delenv("GOSSAMER_STRICT", raising=False)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (pytester.path, FETCHER, CONFTEST.parent))))
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
