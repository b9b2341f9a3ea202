"""Matrix products on the GPU: the interpreter's cases, and sizes that take each path of the launch choice."""

from __future__ import annotations

import pytest

from cases import matmul as cases


@pytest.mark.parametrize("case", [*cases.CASES, *cases.LARGE], ids=str)
def test_product(case: cases.Case) -> None:
    case.check("cuda")
