"""Einsum on the GPU: the interpreter's cases, and sizes that take its products' and copies' faster paths."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cases.einsum import CASES, LARGE
from cases.node_case import NodeCase


@pytest.mark.parametrize("node", [*CASES, *LARGE], ids=str)
def test_einsum(node: NodeCase) -> None:
    tf32 = 2.0**-8 if node.rtol is not None and node.name.endswith("float32") else 0.0  # operands of products lose bits
    replace(node, rtol=None if node.rtol is None else node.rtol + tf32).check("cuda")
