"""The cases of the movement family on a GPU."""

from __future__ import annotations

import pytest

from cases.movement import CASES
from cases.node_case import NodeCase


@pytest.mark.parametrize("case", CASES, ids=str)
def test_movement(case: NodeCase) -> None:
    case.check("cuda")
