"""Operators as public bug reports have them, in the interpreter."""

from __future__ import annotations

import pytest

from cases.op_cases import CASES, OpCase


@pytest.mark.parametrize("case", CASES, ids=str)
def test_op_case(case: OpCase) -> None:
    case.check("interpreter")
