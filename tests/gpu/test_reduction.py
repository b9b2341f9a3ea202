"""Reductions on the GPU: the interpreter's cases, and sizes that split."""

from __future__ import annotations

import pytest

from cases.node_case import NodeCase
from cases.reduction import CASES, LARGE


@pytest.mark.parametrize("node", [*CASES, *LARGE], ids=str)
def test_reduction(node: NodeCase) -> None:
    node.check("cuda")
