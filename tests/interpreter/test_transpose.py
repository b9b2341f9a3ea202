"""Permutations of axes in the interpreter, against onnxruntime."""

from __future__ import annotations

import pytest

from cases.node_case import NodeCase
from cases.transpose import CASES, INTERLEAVED
from harness import SMALL_GPU


@pytest.mark.parametrize("case", CASES, ids=str)
def test_transpose(case: NodeCase) -> None:
    case.check("interpreter")


@pytest.mark.parametrize("case", INTERLEAVED, ids=str)
def test_interleaving_with_the_launches_of_a_gpu(case: NodeCase) -> None:
    case.check(SMALL_GPU)
