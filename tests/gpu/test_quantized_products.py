"""Products and convolutions of 8-bit integers on the GPU: sums are exact, whatever multiplies."""

from __future__ import annotations

import pytest

from cases.node_case import NodeCase
from cases.quantized_products import CASES, LARGE


@pytest.mark.parametrize("node", [*CASES, *LARGE], ids=str)
def test_product(node: NodeCase) -> None:
    node.check("cuda")
