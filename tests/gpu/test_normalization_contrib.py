"""GroupNorm and SkipGroupNorm on the GPU: the interpreter's cases, and those of a diffusion model."""

from __future__ import annotations

import pytest

from cases.node_case import NodeCase
from cases.normalization_contrib import CASES, LARGE


@pytest.mark.parametrize("node", [*CASES, *LARGE], ids=str)
def test_norm(node: NodeCase) -> None:
    node.check("cuda")
