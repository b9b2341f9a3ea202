"""QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear on the GPU."""

from __future__ import annotations

import pytest

from cases.node_case import NodeCase
from cases.quantization import CASES, LARGE


@pytest.mark.parametrize("node", [*CASES, *LARGE], ids=str)
def test_quantization(node: NodeCase) -> None:
    node.check("cuda")
