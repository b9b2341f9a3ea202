"""Every elementwise operator and type in the interpreter, against NumPy; NumPy's answers against onnxruntime's."""

from __future__ import annotations

import pytest

from cases.elementwise import CASES, Case


@pytest.mark.parametrize("case", CASES, ids=str)
def test_elementwise(case: Case) -> None:
    case.check("interpreter")
