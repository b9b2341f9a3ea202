"""Types and shapes of com.microsoft's attention operators, as onnxruntime has them."""

from __future__ import annotations

import onnx
import pytest

from cases.attention import CASES
from cases.node_case import NodeCase
from gossamer.model.edit import static_shape
from gossamer.model.load import load
from gossamer.model.passes import infer_shapes, lift_constants
from harness import tensor_type

SEQUENCE_LENGTH = 6
"""The input of GroupQueryAttention whose content decides a shape."""


@pytest.mark.parametrize("case", [case for case in CASES if case.domain == "com.microsoft"], ids=str)
def test_shapes_agree_with_results(case: NodeCase) -> None:
    constants = (SEQUENCE_LENGTH,) if case.op_type == "GroupQueryAttention" else ()
    proto = NodeCase(
        "", case.op_type, case.inputs, case.attributes, case.opset, constants, case.n_outputs, case.domain
    ).model()
    for output in proto.graph.output:
        output.ClearField("type")
    model = load(proto)
    infer_shapes(model)
    want = [(tensor_type(array), array.shape) for array in case.expected()]
    assert [(value.dtype, static_shape(value)) for value in model.graph.outputs] == want


def test_shapes_flow_through_layers_in_one_go() -> None:
    """Twelve layers whose inputs' shapes are known only from the one before."""
    layers = [f"h{i} = com.microsoft.Attention <num_heads = 2> (h{i - 1}, w, b) " for i in range(1, 13)]
    source = f"g (float[2,5,16] h0, float[16,48] w, float[48] b) => (float[2,n,m] h12) {{ {''.join(layers)} }}"
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]>\n{source}')
    model = load(proto)
    lift_constants(model)
    infer_shapes(model)
    assert {static_shape(node.outputs[0]) for node in model.graph} == {(2, 5, 16)}


def test_a_cache_of_unknown_length_stays_unknown() -> None:
    case = next(case for case in CASES if case.name == "GroupQueryAttention-shared")
    proto = NodeCase("", case.op_type, case.inputs, case.attributes, case.opset, (), 3, case.domain).model()
    for output in proto.graph.output:
        output.ClearField("type")
    model = load(proto)
    infer_shapes(model)
    first, *caches = (static_shape(value) for value in model.graph.outputs)
    assert first == (2, 1, 96)
    assert caches == [None, None]
