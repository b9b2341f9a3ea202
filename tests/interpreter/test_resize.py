"""Resize and Upsample in the interpreter, against onnxruntime."""

from __future__ import annotations

import pytest

from cases.node_case import NodeCase
from cases.resize import CASES
from harness import SMALL_GPU


@pytest.mark.parametrize("case", CASES, ids=str)
def test_resize(case: NodeCase) -> None:
    case.check("interpreter")


@pytest.mark.parametrize("case", [case for i, case in enumerate(CASES) if i % 6 == 0 or "lines" in case.name], ids=str)
def test_resize_with_the_launches_of_a_gpu(case: NodeCase) -> None:
    case.check(SMALL_GPU)
