"""The cases of the generators family on a GPU."""

from __future__ import annotations

import pytest

from cases.generators import CASES
from cases.node_case import NodeCase


@pytest.mark.parametrize("case", CASES, ids=str)
def test_generators(case: NodeCase) -> None:
    case.check("cuda")
