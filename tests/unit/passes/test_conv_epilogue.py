from __future__ import annotations

import pytest

from gossamer.model.load import load
from gossamer.model.passes import infer_shapes
from gossamer.model.passes.conv_epilogue import conv_epilogue
from gossamer.model.text import to_text
from our_operators import parse, run_and_compare, unchanged

CONV = "c = Conv <pads = [1,1,1,1]> (x, w, b)"
WEIGHTS = "float[4,4,3,3] w, float[4] b, "
SHAPE = "float[1,4,5,5]"


def merged(body: str, inputs: str = f"{SHAPE} x", constants: str = "", conv: str = CONV) -> str:
    return run_and_compare(
        parse(f"g ({WEIGHTS}{inputs}) => ({SHAPE} y) {constants} {{ {conv} {body} }}"), conv_epilogue
    )


def kept(
    body: str, inputs: str = f"{SHAPE} x", outputs: str = f"{SHAPE} y", constants: str = "", conv: str = CONV
) -> None:
    unchanged(parse(f"g ({WEIGHTS}{inputs}) => ({outputs}) {constants} {{ {conv} {body} }}"), conv_epilogue)


def test_residual_and_activation(text):
    assert merged("s = Add (c, z) y = Relu (s)", f"{SHAPE} x, {SHAPE} z") == text("""
        graph g(%w : float32[4,4,3,3], %b : float32[4], %x : float32[1,4,5,5], %z : float32[1,4,5,5]) {
          %y = gossamer::FusedConv[pads=[1,1,1,1], activation="relu"](%x, %w, %b, %z) : float32[1,4,5,5]
          return %y
        }
        """)


def test_paddlepaddles_hard_swish(text):
    constants = "<float three = {3.0}, float zero = {0.0}, float[1] six = {6.0}>"
    assert merged(
        "t = Add (c, three) u = Clip (t, zero, six) v = Mul (c, u) y = Div (v, six)", constants=constants
    ) == text("""
        graph g(%w : float32[4,4,3,3], %b : float32[4], %x : float32[1,4,5,5]) {
          %three : float32[] = {3}
          %zero : float32[] = {0}
          %six : float32[1] = {6}
          %y = gossamer::FusedConv[pads=[1,1,1,1], activation="hard_swish"](%x, %w, %b) : float32[1,4,5,5]
          return %y
        }
        """)


def test_without_bias_and_activation(text):
    assert merged("y = Add (z, c)", f"{SHAPE} x, {SHAPE} z", conv="c = Conv <kernel_shape = [1,1]> (x, v)",
                  constants="<float[4,4,1,1] v = {1,0,0,0,0,2,0,0,0,0,3,0,0,0,0,4}>") == text("""
        graph g(%w : float32[4,4,3,3], %b : float32[4], %x : float32[1,4,5,5], %z : float32[1,4,5,5]) {
          %v : float32[4,4,1,1]
          %y = gossamer::FusedConv[kernel_shape=[1,1]](%x, %v, _, %z) : float32[1,4,5,5]
          return %y
        }
        """)  # fmt: skip


def test_the_later_of_two_convolutions_adds(text):
    conv = "Conv <pads = [1,1,1,1]>"
    body = f"d = {conv} (c, w, b) e = {conv} (x, w) s = Add (e, d) y = Relu (s)"
    assert merged(body) == text("""
        graph g(%w : float32[4,4,3,3], %b : float32[4], %x : float32[1,4,5,5]) {
          %c = Conv[pads=[1,1,1,1]](%x, %w, %b) : float32[1,4,5,5]
          %d = Conv[pads=[1,1,1,1]](%c, %w, %b) : float32[1,4,5,5]
          %y = gossamer::FusedConv[pads=[1,1,1,1], activation="relu"](%x, %w, _, %d) : float32[1,4,5,5]
          return %y
        }
        """)


def test_transposed_convolution():
    result = merged("y = Sigmoid (c)", conv="c = ConvTranspose <pads = [1,1,1,1]> (x, w, b)")
    assert 'gossamer::FusedConvTranspose[pads=[1,1,1,1], activation="sigmoid"](%x, %w, %b)' in result


def test_a_residual_computed_after_the_convolution():
    """The merged node stands where the addition stood."""
    result = merged("n = Neg (x) y = Add (c, n)")
    assert result.index("Neg") < result.index("FusedConv")


@pytest.mark.parametrize(
    "body",
    [
        "s = Add (c, per_channel) y = Relu (s)",  # of another shape: affine_into_conv's business
        "r = Relu (c) y = Add (r, c)",  # others read the convolution
        "n = Neg (c) y = Abs (n)",  # no activation
        "s = Sigmoid (c) t = Sigmoid (c) y = Mul (s, t)",  # not a gate of x
        "y = Clip (c, low)",  # the bound comes at run time
    ],
)
def test_kept(body):
    kept(body, f"{SHAPE} x, float[4,1,1] per_channel, float low")


def test_kept_when_returned():
    kept("y = Relu (c)", outputs=f"{SHAPE} c, {SHAPE} y")


def test_kept_in_float64_when_a_parameter_would_be_rounded():
    body = "{ c = Conv (p, q) y = PRelu (c, a) }"
    source = f"g (double[1,1,3] p, double[1,1,1] q) => (double[1,1,3] y) <double a = {{%s}}> {body}"
    unchanged(parse(source % 0.1), conv_epilogue)
    model = load(parse(source % 0.25))
    infer_shapes(model)
    assert conv_epilogue(model)
    assert 'activation="leaky_relu", activation_params=[0.25]' in to_text(model)


def test_kept_where_there_is_no_kernel():
    source = "g (float[1,1,2,2,2,2] x, float[1,1,1,1,1,1] w) => (float[1,1,2,2,2,2] y) { c = Conv (x, w) y = Relu (c) }"
    unchanged(parse(source), conv_epilogue)


def test_activations_need_no_sizes_but_additions_do(text):
    source = """g (float[N,4,H,W] x, float[4,4,1,1] w, float[N,4,H,W] z) => (float[N,4,H,W] y) <float zero = {0.0}> {
        a = Conv (x, w) b = Relu (a) p = MaxPool <kernel_shape = [3,3]> (b) c = Conv (p, w) d = Max (c, zero)
        e = Conv (x, w) f = Add (e, z) y = Sigmoid (f) }"""
    model = load(parse(source))
    infer_shapes(model)
    assert conv_epilogue(model)
    assert not conv_epilogue(model)
    assert [line.split(" : ")[0] for line in to_text(model).splitlines() if "Conv" in line] == [
        '  %b = gossamer::FusedConv[activation="relu"](%x, %w)',
        '  %d = gossamer::FusedConv[activation="relu"](%p, %w)',
        "  %e = Conv(%x, %w)",
    ]


def test_kept_where_the_shape_may_depend_on_data():
    """Such a convolution is onnxruntime's, which knows no operator of ours."""
    graph = "g (float[1,4,9,9] x, float[4,4,1,1] w, int64[4] s) => (float[a,4,b,c] y)"
    unchanged(parse(f"{graph} {{ r = Reshape (x, s) c = Conv (r, w) y = Relu (c) }}"), conv_epilogue)


def test_kept_in_the_body_of_a_loop():
    unchanged(
        parse("""g (float[1,4,5,5] x, float[4,4,1,1] w, int64 n) => (float[1,4,5,5] y) {
          y = Loop (n, , x) <body = b (int64 i, bool k, float[1,4,5,5] h) => (bool l, float[1,4,5,5] r) {
            l = Identity (k) c = Conv (h, w) r = Relu (c) }> }"""),
        conv_epilogue,
    )
