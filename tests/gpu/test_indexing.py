"""The cases of the indexing family on a GPU."""

from __future__ import annotations

import pytest

from cases.indexing import CASES
from cases.node_case import NodeCase


@pytest.mark.parametrize("case", CASES, ids=str)
def test_indexing(case: NodeCase) -> None:
    case.check("cuda")
