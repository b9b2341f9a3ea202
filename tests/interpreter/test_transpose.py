"""Permutations of axes in the interpreter, against onnxruntime."""

from __future__ import annotations

import pytest

from cases.transpose import CASES
from cases.node_case import NodeCase


@pytest.mark.parametrize("case", CASES, ids=str)
def test_transpose(case: NodeCase) -> None:
    case.check("interpreter")
