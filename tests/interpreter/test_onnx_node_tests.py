"""ONNX's own node tests, in the interpreter."""

from __future__ import annotations

import unittest
from fnmatch import filter as matching

import pytest

import gossamer.backend
from cases.onnx_node_tests import COVERED, NOT_COVERED, RECORD, NodeTest, cases, load
from gossamer import settings


@pytest.mark.parametrize("test", cases("interpreter"))
def test_onnx_node_test(test: NodeTest) -> None:
    test.check("interpreter")


def test_the_record_speaks_of_tests_that_there_are() -> None:
    names = [test.name for test in load()]
    unused = [
        pattern
        for entry in (*RECORD["exceptions"], *RECORD["tolerances"])
        for pattern in entry["tests"]
        if not matching(names, pattern)
    ]
    assert not unused


def test_the_record_speaks_of_every_operator() -> None:
    assert not COVERED & NOT_COVERED.keys()
    assert frozenset().union(*(test.operators for test in load())) == COVERED | NOT_COVERED.keys()


def test_onnx_runner_takes_the_backend() -> None:
    from onnx.backend.test import BackendTest

    suite = BackendTest(gossamer.backend, __name__).include("^test_(add|relu)_c").test_suite
    with settings.override(DEVICE="interpreter"):
        result = suite.run(unittest.TestResult())
    assert result.wasSuccessful(), result.errors + result.failures
    run = {str(test).split()[0] for test in _tests(suite)} - {str(test).split()[0] for test, _ in result.skipped}
    assert run == {"test_add_cuda", "test_relu_cuda"}


def _tests(suite: unittest.TestSuite) -> list[unittest.TestCase]:
    return [test for part in suite for test in (_tests(part) if isinstance(part, unittest.TestSuite) else [part])]
