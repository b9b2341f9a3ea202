"""Permutations of axes in the interpreter, against onnxruntime."""

from __future__ import annotations

import pytest

from cases.node_case import NodeCase
from cases.transpose import CASES


@pytest.mark.parametrize("case", CASES, ids=str)
def test_transpose(case: NodeCase) -> None:
    case.check("interpreter")
