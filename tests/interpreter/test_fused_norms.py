"""The norms and the rotary embedding that passes make, in the interpreter, against NumPy in fp64."""

from __future__ import annotations

import pytest

from cases.fused_norms import CASES
from cases.node_case import NodeCase


@pytest.mark.parametrize("node", CASES, ids=str)
def test_node(node: NodeCase) -> None:
    node.check("interpreter")
