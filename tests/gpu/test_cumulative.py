"""CumSum and CumProd on the GPU: the interpreter's cases, and sizes that are cut into parts."""

from __future__ import annotations

import pytest

from cases.cumulative import CASES, LARGE
from cases.node_case import NodeCase


@pytest.mark.parametrize("node", [*CASES, *LARGE], ids=str)
def test_scan(node: NodeCase) -> None:
    node.check("cuda")
