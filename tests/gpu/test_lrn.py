"""LRN on the GPU: the interpreter's cases, and a larger one."""

from __future__ import annotations

import pytest

from cases.lrn import CASES, LARGE
from cases.node_case import NodeCase


@pytest.mark.parametrize("node", [*CASES, *LARGE], ids=str)
def test_lrn(node: NodeCase) -> None:
    node.check("cuda")
