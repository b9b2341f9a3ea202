"""Shape inference goes through onnxruntime's operators over quantised tensors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cases import quantization, quantized_products, recurrent
from cases.node_case import NodeCase
from gossamer.model.edit import static_shape
from gossamer.model.load import load
from gossamer.model.passes import infer_shapes
from gossamer.model.quantized_shapes import RULES

NODES = [
    node
    for node in (*quantization.CASES, *quantized_products.CASES, *recurrent.CASES)
    if node.domain == "com.microsoft" and not (node.inputs[0] is not None and node.inputs[0].size == 0)
]


@pytest.mark.parametrize("node", NODES, ids=str)
def test_outputs_have_their_types_and_shapes(node: NodeCase) -> None:
    model = load(replace(node, output_types=None).model())
    infer_shapes(model)
    found = [(value.dtype, static_shape(value)) for value in model.graph.outputs]
    assert node.output_types is not None
    assert found == [(element_type, tuple(shape)) for element_type, shape in node.output_types]


def test_every_rule_has_a_case() -> None:
    assert {op_type for _, op_type in RULES} == {node.op_type for node in NODES}
