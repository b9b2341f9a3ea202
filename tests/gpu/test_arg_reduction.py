"""ArgMax and ArgMin on the GPU: the interpreter's cases, and sizes that split."""

from __future__ import annotations

import pytest

from cases.arg_reduction import CASES, LARGE
from cases.node_case import NodeCase


@pytest.mark.parametrize("node", [*CASES, *LARGE], ids=str)
def test_arg_reduction(node: NodeCase) -> None:
    node.check("cuda")
