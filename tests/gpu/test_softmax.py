"""Softmax and its kin on the GPU: the interpreter's cases, and larger ones."""

from __future__ import annotations

import pytest

from cases.node_case import NodeCase
from cases.softmax import CASES, LARGE


@pytest.mark.parametrize("node", [*CASES, *LARGE], ids=str)
def test_softmax(node: NodeCase) -> None:
    node.check("cuda")
