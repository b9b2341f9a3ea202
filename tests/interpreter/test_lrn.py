"""LRN in the interpreter, against NumPy and onnxruntime."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cases.lrn import CASES, case
from cases.node_case import NodeCase
from cases.references import floats
from harness import SMALL_GPU


@pytest.mark.parametrize("node", CASES, ids=str)
def test_lrn(node: NodeCase) -> None:
    node.check("interpreter")


@pytest.mark.parametrize("node", CASES, ids=str)
def test_lrn_with_the_launches_of_a_gpu(node: NodeCase) -> None:
    node.check(SMALL_GPU)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_onnxruntime_agrees(size: int) -> None:
    replace(case("onnxruntime", floats("onnxruntime", (2, 6, 3, 4)), size), want=None).check("interpreter")
