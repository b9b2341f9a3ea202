"""Pad in the interpreter, against onnxruntime."""

from __future__ import annotations

import pytest

from cases.node_case import NodeCase
from cases.padding import CASES
from harness import SMALL_GPU


@pytest.mark.parametrize("case", CASES, ids=str)
def test_padding(case: NodeCase) -> None:
    case.check("interpreter")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_padding_with_the_launches_of_a_gpu(case: NodeCase) -> None:
    case.check(SMALL_GPU)
