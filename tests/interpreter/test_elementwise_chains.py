"""Models whose elementwise nodes were joined, in the interpreter, against onnxruntime on the models as they were."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from examples import examples
from gossamer.model.load import load
from gossamer.model.passes import infer_shapes, run_passes
from gossamer.model.passes.elementwise_chains import elementwise_chains
from harness import assert_close, ort, run_model
from our_operators import parse

SHAPE = (3, 3)
UNARY = ("Neg", "Abs", "Sigmoid", "Tanh", "Softplus", "Relu", "Ceil")
BINARY = ("Add", "Sub", "Mul", "Max", "Min", "MatMul")


def _compare(proto: onnx.ModelProto, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    feeds = {}
    for value in proto.graph.input:
        tensor = value.type.tensor_type
        shape = [dim.dim_value for dim in tensor.shape.dim]
        feeds[value.name] = rng.standard_normal(shape).astype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    model = load(proto)
    infer_shapes(model)
    run_passes(model, (elementwise_chains,))
    for got, want in zip(run_model(ir.to_proto(model), feeds), ort(proto, feeds), strict=True):
        assert_close(got, want, reduction=64)


@pytest.mark.parametrize(
    "source",
    [
        "g (float[2,5] x, float[5] b) => (float[2,5] y) { s = Add (x, b) g = Sigmoid (s) y = Mul (s, g) }",
        """g (float16[4,5] x, float[4,5] z) => (bool[4,5] y) {
            a = Cast <to = 1> (x) b = Mul (a, z) c = Cast <to = 10> (b) y = Less (c, x) }""",
        "g (float[3,3] x) => (float[3,3] y, float[3,3] p) { a = Neg (x) p = MatMul (a, x) b = Exp (a) y = Add (b, x) }",
        "g (float[2,3] x) => (int64[2,3] y) <int64 two = {2}> { a = Floor (x) b = Cast <to = 7> (a) y = Mul (b, two) }",
        """g (float[2,3] x) => (float[2,3] y) <float lo = {-0.5}, float hi = {0.5}> {
            a = Clip (x, lo, hi) y = Div (a, hi) }""",
    ],
)
def test_joined_models(source: str) -> None:
    _compare(parse(source))


@st.composite
def graphs(draw: st.DrawFn) -> onnx.ModelProto:
    """Graphs of elementwise nodes and of products, which keep them apart; any values are outputs."""
    values = ["x", "z"]
    nodes = []
    for number in range(draw(st.integers(2, 14))):
        op_type = draw(st.sampled_from(UNARY + BINARY))
        inputs = [draw(st.sampled_from(values)) for _ in range(1 if op_type in UNARY else 2)]
        nodes.append(helper.make_node(op_type, inputs, [f"v{number}"]))
        values.append(f"v{number}")
    read = {name for node in nodes for name in node.input}
    extra = draw(st.sets(st.sampled_from(values[2:]), max_size=2))
    outputs = [name for name in values[2:] if name not in read or name in extra]

    def info(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE)

    graph = helper.make_graph(nodes, "random", [info("x"), info("z")], [info(name) for name in outputs])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@settings(max_examples=examples(100), deadline=None)
@given(graphs())
def test_random_graphs(proto: onnx.ModelProto) -> None:
    """Joining makes no cycles, loses no outputs, and changes no answers."""
    _compare(proto)
