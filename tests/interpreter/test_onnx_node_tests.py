"""ONNX's own node tests, in the interpreter."""

from __future__ import annotations

import unittest
from fnmatch import filter as matching

import numpy as np
import onnx
import pytest

import gossamer.backend
from cases.onnx_node_tests import COVERED, NOT_COVERED, RECORD, NodeTest, cases, load
from gossamer import settings


@pytest.mark.parametrize("test", cases("interpreter"))
def test_onnx_node_test(test: NodeTest) -> None:
    test.check("interpreter")


of_the_recorded_version = pytest.mark.skipif(
    not onnx.__version__.startswith(f"{RECORD['onnx']}."), reason=f"the record is of onnx {RECORD['onnx']}"
)


@of_the_recorded_version
def test_the_record_speaks_of_tests_that_there_are() -> None:
    names = [test.name for test in load()]
    unused = [
        pattern
        for entry in (*RECORD["exceptions"], *RECORD["tolerances"])
        for pattern in entry["tests"]
        if not matching(names, pattern)
    ]
    assert not unused


@of_the_recorded_version
def test_the_record_speaks_of_every_operator() -> None:
    assert not COVERED & NOT_COVERED.keys()
    assert frozenset().union(*(test.operators for test in load())) == COVERED | NOT_COVERED.keys()


def test_onnx_runner_takes_the_backend() -> None:
    from onnx.backend.test import BackendTest

    with settings.override(DEVICE="interpreter"):
        runner = BackendTest(gossamer.backend, __name__).include("^test_(add|relu)_(cpu|cuda)$")
        result = runner.test_suite.run(unittest.TestResult())
    assert result.wasSuccessful(), result.errors + result.failures
    assert result.testsRun - len(result.skipped) == 2  # on CUDA; there is no device CPU


def test_run_node() -> None:
    x, indices = np.array([[1, 5, 2], [7, 3, 4]], np.float32), np.array([2, -3])
    node = onnx.helper.make_node("Gather", ["x", "i"], ["y"], axis=1)
    with settings.override(DEVICE="interpreter"):
        (y,) = gossamer.backend.run_node(node, [x, indices])
        (as_declared,) = gossamer.backend.run_node(
            node, [x, indices], "CUDA:0", outputs_info=[(np.float32, (2, 2))], opset_version=11
        )
    np.testing.assert_array_equal(y, [[2, 1], [4, 7]])
    np.testing.assert_array_equal(as_declared, y)
