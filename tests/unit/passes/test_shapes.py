from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

from gossamer.errors import InvalidArgument, InvalidGraph
from gossamer.model.load import load
from gossamer.model.passes import infer_shapes, lift_constants
from gossamer.model.text import to_text


def lines(model):
    return [line.strip() for line in to_text(model).splitlines()]


def inferred(model, **shapes):
    assert infer_shapes(model, shapes)
    before = to_text(model)
    assert not infer_shapes(model, shapes), "the pass is not idempotent"
    assert to_text(model) == before
    return lines(model)


CONV = f"""
    g (float[N,3,H,W] x) => (float[a,b,c,d] y)
    <float[8,3,3,3] w = {{{", ".join(["0.0"] * 216)}}}>
    {{ c = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (x, w) y = Relu (c) }}
"""


def test_static_shapes_of_inputs(bench):
    assert inferred(bench.load(CONV), x=(2, 3, 48, 320))[2:4] == [
        "%c = Conv[strides=[2,2], pads=[1,1,1,1]](%x, %w) : float32[2,8,24,160]",
        "%y = Relu(%c) : float32[2,8,24,160]",
    ]


def test_symbols_stay_symbols(bench):
    assert inferred(bench.load(CONV))[2].startswith("%c = Conv[strides=[2,2], pads=[1,1,1,1]](%x, %w) : float32[N,8,")


def test_shapes_are_followed_through_integers(bench):
    assert "%y = Reshape(%x, %t) : float32[2,12]" in inferred(
        bench.load("""
        g (float[N,3,4] x) => (float[a,b] y)
        <int64[1] zero = {0}, int64[1] rest = {-1}>
        { s = Shape (x) n = Gather (s, zero) t = Concat <axis = 0> (n, rest) y = Reshape (x, t) }"""),
        x=(2, 3, 4),
    )


def test_float_depth_of_one_hot_is_read(bench):
    assert "%y = OneHot(%x, %depth, %values) : float32[3,5]" in inferred(
        bench.load("""
        g (int64[3] x, float[2] values) => (float[a,b] y)
        <float depth = {5.0}>
        { y = OneHot (x, depth, values) }""")
    )


def test_float_scales_of_resize_are_read(bench):
    assert "%y = Resize(%x, _, %scales) : float32[1,2,8,12]" in inferred(
        bench.load("""
        g (float[1,2,4,4] x) => (float[a,b,c,d] y)
        <float[4] scales = {1.0, 1.0, 2.0, 3.0}>
        { y = Resize (x, , scales) }""")
    )


@pytest.mark.parametrize(
    ("node", "extent"),
    [
        ('MaxPool <kernel_shape = [3], strides = [2], auto_pad = "VALID", ceil_mode = 1> (x)', 3),
        ("MaxPool <kernel_shape = [3], strides = [2], ceil_mode = 1> (x)", 4),
        ("ConvTranspose <output_shape = [5]> (x, w)", 5),
        ('ConvTranspose <strides = [3], auto_pad = "SAME_UPPER"> (x, w)', 24),
        ('ConvTranspose <auto_pad = "SAME_LOWER", output_padding = [0]> (x, w)', 8),
    ],
)
def test_extents_that_inference_gets_wrong_by_itself(bench, node, extent):
    """The operators' text decides, as of any version."""
    text = f"""g (float[2,1,8] x) => (float[a,b,c] y) <float[1,1,2] w = {{1.0, 1.0}}> {{ y = {node} }}"""
    assert inferred(bench.load(text))[2].endswith(f" : float32[2,1,{extent}]")


@pytest.mark.parametrize(
    ("x", "y"), [("[2,9,4]", "[2,7,1]"), ("[2,9,9,4]", "[2,7,7,1]"), ("[2,9,9,9,4]", "[2,7,7,7,1]")]
)
def test_channels_last_convolutions_of_every_rank(x, y):
    filters = "1," + "3," * (x.count(",") - 1) + "4"
    imports = '<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>'
    text = f"{imports} g (float{x} x, float[{filters}] w) => (float{y} y) {{ y = com.microsoft.NhwcConv (x, w) }}"
    proto = onnx.parser.parse_model(text)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    model = load(proto)
    assert infer_shapes(model)
    assert f"%y = com.microsoft::NhwcConv(%x, %w) : float32{y}" in lines(model)


def test_values_in_subgraphs(bench):
    model = bench.load("""
        g (bool c, float[N,2] x) => (float[a,b] y)
        <float[2,5] w = {1.0,2.0,3.0,4.0,5.0,6.0,7.0,8.0,9.0,10.0}>
        {
          h = Relu (x)
          y = If (c) <
            then_branch = t () => (float[m,n] r) {
              k = Constant <value_float : float = 2.0> ()
              q = Mul (h, k)
              r = MatMul (q, w)
            },
            else_branch = e () => (float[m,n] r) { r = MatMul (h, w) }
          >
        }""")
    lift_constants(model)
    found = inferred(model, x=(3, 2))
    assert "%q = Mul(%h, %k) : float32[3,2]" in found
    assert "%r_1 = MatMul(%h, %w) : float32[3,5]" in found
    assert "%y = If(%c) : float32[3,5]" in found


def test_values_of_a_loops_body(bench):
    model = bench.load("""
        g (int64 n, bool c, float[2,3] x) => (float[2,3] y, float[a,b,d] scan) {
          y, scan = Loop (n, c, x) <
            body = b (int64 i, bool go, float[2,3] s) => (bool on, float[2,3] t, float[2,3] u) {
              on = Identity (go)
              t = Neg (s)
              u = Abs (t)
            }
          >
        }""")
    found = inferred(model)
    assert "%t = Neg(%s) : float32[2,3]" in found
    assert any(line.startswith("%y, %scan = Loop(%n, %c, %x) : float32[2,3], float32[") for line in found)


def test_other_domains_keep_what_the_file_declares():
    proto = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1, "unused.domain" : 99]>
        g (float[2,3] x) => (float[a,b] y)
        <float[2,3] f>
        { f = com.microsoft.FastGelu (x) y = Neg (f) }""")
    assert inferred(load(proto))[1:3] == [
        "%f = com.microsoft::FastGelu(%x) : float32[2,3]",
        "%y = Neg(%f) : float32[2,3]",
    ]


def test_stale_shapes_of_intermediate_values_are_not_believed(bench):
    proto = bench.parse("g (float[N,3] x) => (float[a,b] y) <float[7,7] c> { c = Relu (x) y = Neg (c) }")
    model = load(proto)
    assert model.graph[0].outputs[0].shape is None
    assert "%y = Neg(%c) : float32[2,3]" in inferred(model, x=(2, 3))


def test_stale_shapes_of_outputs_are_not_believed_either(bench):
    model = bench.load("g (float[2,3] x) => (float[2,5] y) { y = Neg (x) }")
    assert "%y = Neg(%x) : float32[2,3]" in inferred(model)


def test_shapes_that_depend_on_data_stay_open(bench):
    model = bench.load("g (float[4] x) => (int64[a,b] y) { z = NonZero (x) y = Neg (z) }")
    inferred(model)
    shape = model.graph.outputs[0].shape
    assert shape[0] == 1
    assert not isinstance(shape[1], int)


def test_weights_are_not_given_to_inference(bench, monkeypatch):
    seen = []
    infer = onnx.shape_inference.infer_shapes
    monkeypatch.setattr(
        onnx.shape_inference, "infer_shapes", lambda proto, **how: seen.append(proto.ByteSize()) or infer(proto, **how)
    )
    w = onnx.numpy_helper.from_array(np.zeros((512, 512), np.float32), "w")
    proto = bench.parse("g (float[1,512] x, float[512,512] w) => (float[a,b] y) { y = MatMul (x, w) }")
    del proto.graph.input[1]
    proto.graph.initializer.append(w)
    inferred(load(proto))
    assert max(seen) < 1000


def test_wrong_inputs(bench):
    model = bench.load(CONV)
    with pytest.raises(InvalidArgument, match=r"no input 'z'; its inputs are \['x'\]"):
        infer_shapes(model, {"z": (1,)})
    for shape in ((1, 3), (1, 4, 48, 320)):
        with pytest.raises(
            InvalidArgument, match=r"input 'x' has the shape \[N,3,H,W\] in the model, which .* does not fit"
        ):
            infer_shapes(model, {"x": shape})


def test_types_that_contradict_one_another(bench):
    proto = bench.parse("g (float[2] x) => (float[2] y) { y = Abs (x) }")
    proto.graph.node[0].attribute.add(name="unknown", type=onnx.AttributeProto.FLOAT, f=1.0)
    proto.graph.node[0].domain = "nowhere"
    with pytest.raises(InvalidGraph, match="imports no opset of the domain 'nowhere'"):
        load(proto)
