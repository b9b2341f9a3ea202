"""Norms on the GPU: the interpreter's cases, and larger ones, of which some are taken in parts."""

from __future__ import annotations

import pytest

from cases import batch_normalization as batch
from cases.node_case import NodeCase
from cases.normalization import CASES, LARGE


@pytest.mark.parametrize("node", [*CASES, *batch.CASES, *LARGE, *batch.LARGE], ids=str)
def test_norm(node: NodeCase) -> None:
    node.check("cuda")
