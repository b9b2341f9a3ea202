"""However an activation is written, it is recognised; what only resembles one is not."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from gossamer.model.activation_forms import Activation, activation_after
from gossamer.model.load import load
from gossamer.model.passes import infer_shapes
from our_operators import parse

NUMBERS = {
    "half": 0.5, "one": 1.0, "two": 2.0, "three": 3.0, "six": 6.0, "zero": 0.0, "sixth": 1 / 6,
    "root2": 2**0.5, "rroot2": 0.5**0.5,
    "cubic": 0.044715, "slope": 0.7978845608, "quick": 1.702, "low": -1.5,
}  # fmt: skip


TANH = "j = Mul (i, slope) t = Tanh (j) a = Add (one, t)"


def found(body: str, opset: int = 20, *, half_precision: bool = False) -> Activation | None:
    """The activation of c in a graph that computes y from it."""
    constants = ", ".join(f"float {name} = {{{value}}}" for name, value in NUMBERS.items())
    source = parse(f"g (float[2,3] x) => (float[2,3] y) <{constants}> {{ c = Identity (x) {body} }}", opset)
    model = load(in_half_precision(source) if half_precision else source)
    infer_shapes(model)
    match = activation_after(next(iter(model.graph)).outputs[0])
    if match is None:
        return None
    assert match.value is model.graph.outputs[0]
    assert len(match.nodes) == len(model.graph) - 1
    return Activation(match.activation.kind, tuple(round(p, 6) for p in match.activation.parameters))


def in_half_precision(model: onnx.ModelProto) -> onnx.ModelProto:
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name))
    return model


@pytest.mark.parametrize(("body", "kind"), [
    ("y = Relu (c)", ("relu",)),
    ("y = Max (c, zero)", ("relu",)),
    ("y = Clip (c, zero)", ("relu",)),
    ("y = Clip (c, zero, six)", ("clip", 0.0, 6.0)),
    ("y = Clip (c, low, two)", ("clip", -1.5, 2.0)),
    ("y = Clip (c, low)", ("clip", -1.5, float("inf"))),
    ("y = LeakyRelu <alpha = 0.1> (c)", ("leaky_relu", 0.1)),
    ("y = PRelu (c, half)", ("leaky_relu", 0.5)),
    ("y = Elu (c)", ("elu", 1.0)),
    ("y = Selu (c)", ("selu", 1.673263, 1.050701)),
    ("y = Celu <alpha = 2.0> (c)", ("celu", 2.0)),
    ("y = ThresholdedRelu <alpha = 0.5> (c)", ("thresholded_relu", 0.5)),
    ("y = Sigmoid (c)", ("sigmoid",)),
    ("y = Tanh (c)", ("tanh",)),
    ("y = Softplus (c)", ("softplus",)),
    ("y = Softsign (c)", ("softsign",)),
    ("y = HardSigmoid (c)", ("hard_sigmoid", 0.2, 0.5)),
    ("t = Add (c, three) u = Clip (t, zero, six) y = Div (u, six)", ("hard_sigmoid", 0.166667, 0.5)),
    ("y = HardSwish (c)", ("hard_swish",)),
    ("h = HardSigmoid <alpha = 0.16666667, beta = 0.5> (c) y = Mul (c, h)", ("hard_swish",)),
    ("t = Add (three, c) u = Clip (t, zero, six) v = Mul (u, sixth) y = Mul (v, c)", ("hard_swish",)),
    ("t = Add (c, three) u = Clip (t, zero, six) d = Div (c, six) y = Mul (d, u)", ("hard_swish",)),
    ("h = HardSwish (c) s = Mul (h, two) y = Add (s, three)", ("affine_hard_swish", 2.0, 3.0)),
    ("r = Relu (c) s = Mul (two, r) y = Sub (s, half)", ("affine_relu", 2.0, -0.5)),
    ("s = Sigmoid (c) y = Mul (s, c)", ("silu", 1.0)),
    ("q = Mul (c, quick) s = Sigmoid (q) y = Mul (c, s)", ("silu", 1.702)),
    ("y = com.microsoft.QuickGelu (c)", ("silu", 1.702)),
    ("y = Mish (c)", ("mish",)),
    ("s = Softplus (c) t = Tanh (s) y = Mul (c, t)", ("mish",)),
    ("y = Gelu (c)", ("gelu",)),
    ("y = com.microsoft.Gelu (c)", ("gelu",)),
    ("d = Div (c, root2) e = Erf (d) a = Add (e, one) m = Mul (c, a) y = Mul (m, half)", ("gelu",)),
    ("h = Mul (c, half) d = Mul (c, rroot2) e = Erf (d) a = Add (one, e) y = Mul (h, a)", ("gelu",)),
    ('y = Gelu <approximate = "tanh"> (c)', ("gelu_tanh",)),
    ("y = com.microsoft.FastGelu (c)", ("gelu_tanh",)),
    (f"p = Pow (c, three) k = Mul (p, cubic) i = Add (c, k) {TANH} h = Mul (c, half) y = Mul (h, a)", ("gelu_tanh",)),
    (f"q = Mul (c, c) p = Mul (q, c) k = Mul (cubic, p) i = Add (k, c) {TANH} h = Mul (a, half) y = Mul (c, h)",
     ("gelu_tanh",)),
])  # fmt: skip
def test_recognised(body, kind):
    activation = found(body)
    assert activation is not None
    assert (activation.kind, *activation.parameters) == kind


@pytest.mark.parametrize(
    "body",
    [
        "y = Neg (c)",
        "y = Mul (c, two)",
        "y = Add (c, c)",
        "s = Sigmoid (c) t = Mul (s, c) y = Mul (t, c)",
        "h = HardSigmoid (c) y = Mul (c, h)",  # 0.2 x + 0.5 is no hard swish
        "d = Div (c, two) e = Erf (d) a = Add (e, one) m = Mul (c, a) y = Mul (m, half)",
        "y = Div (one, c)",
        "y = Pow (c, half)",
        "t = Add (c, three) y = Clip (t, zero, six)",  # shifted
        "y = Max (c, zero, one)",
    ],
)
def test_not_recognised(body):
    assert found(body) is None


def test_a_constant_with_more_axes_broadcasts():
    model = load(
        parse("g (float[2] x) => (float[1,2] y) <float[1,1] zero = {0.0}> { c = Identity (x) y = Max (c, zero) }")
    )
    infer_shapes(model)
    assert activation_after(model.graph[0].outputs[0]) is None


def test_forms_that_differ_in_attributes_or_constants_alone_are_told_apart():
    """What was found before is remembered by form."""
    assert found("y = LeakyRelu <alpha = 0.25> (c)") == Activation("leaky_relu", (0.25,))
    assert found("y = LeakyRelu <alpha = 0.75> (c)") == Activation("leaky_relu", (0.75,))
    assert found("y = PRelu (c, half)") == Activation("leaky_relu", (0.5,))
    assert found("y = PRelu (c, three)") == Activation("leaky_relu", (3.0,))
    assert found("s = Sigmoid (c) y = Mul (s, c)") == Activation("silu", (1.0,))
    assert found("s = Sigmoid (c) y = Mul (s, one)") == Activation("sigmoid")


def test_clip_with_attributes():
    assert found("y = Clip <min = 0.0, max = 6.0> (c)", opset=7) == Activation("clip", (0.0, 6.0))
    assert found("y = Clip <min = 0.0> (c)", opset=7) == Activation("relu")


def test_rounding_of_the_constants_to_fp16_is_forgiven():
    body = "h = Mul (c, half) d = Mul (c, rroot2) e = Erf (d) a = Add (one, e) y = Mul (h, a)"
    assert found(body, half_precision=True) == Activation("gelu")


def test_a_shorter_one_is_found_where_the_longer_is_none():
    """The scale after the sigmoid is nobody's activation; the sigmoid is."""
    model = load(
        parse(
            "g (float[2] x) => (float[2] y) <float two = {2.0}> { c = Identity (x) s = Sigmoid (c) y = Mul (s, two) }"
        )
    )
    infer_shapes(model)
    match = activation_after(next(iter(model.graph)).outputs[0])
    assert match is not None
    assert (match.activation.kind, match.value.name) == ("sigmoid", "s")
