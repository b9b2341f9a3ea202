"""Types of up to 8 bits on the GPU."""

from __future__ import annotations

import pytest

from cases.narrow_types import CASES, CastCase


@pytest.mark.parametrize("case", CASES, ids=str)
def test_narrow_types(case: CastCase) -> None:
    case.check("cuda")
