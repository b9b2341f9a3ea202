"""Pools on the GPU: the interpreter's cases in both layouts, and larger ones."""

from __future__ import annotations

import pytest

from cases.node_case import NodeCase
from cases.pooling import CASES, LARGE, LAST
from cases.references import channels_last


@pytest.mark.parametrize("node", [*CASES, *LAST, *LARGE, *map(channels_last, LARGE)], ids=str)
def test_pool(node: NodeCase) -> None:
    node.check("cuda")
