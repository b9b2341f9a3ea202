"""Resize and Upsample in the interpreter, against onnxruntime."""

from __future__ import annotations

import pytest

from cases.node_case import NodeCase
from cases.resize import CASES


@pytest.mark.parametrize("case", CASES, ids=str)
def test_resize(case: NodeCase) -> None:
    case.check("interpreter")
