from __future__ import annotations

import pytest

from gossamer.model.load import load
from gossamer.model.passes import infer_shapes
from gossamer.model.passes.channels_last import channels_last
from gossamer.model.passes.conv_epilogue import conv_epilogue
from our_operators import parse, run_and_compare, unchanged

IN = "float[2,8,6,5] x, float[8,8,3,3] w, float[8] b"
CONV = "{} = Conv <kernel_shape = [3,3], pads = [1,1,1,1]> ({}, w, b)"
FIRST, LAST = CONV.format("a", "x"), CONV.format("y", "z")
TWO_FIRST, TWO_LAST = (
    f"{CONV.format('k', 'x')} {CONV.format('a', 'k')}",
    f"{CONV.format('l', 'z')} {CONV.format('y', 'l')}",
)


def between(
    body: str,
    inputs: str = "",
    constants: str = "",
    first: str = FIRST,
    last: str = LAST,
    output: str = "float[2,8,6,5] y",
    opset: int = 20,
) -> str:
    """The pass over convolutions with something between them, which computes z from a."""
    return run_and_compare(
        parse(f"g ({IN}{inputs}) => ({output}) {constants} {{ {first} {body} {last} }}", opset), channels_last
    )


def transposes(text: str) -> int:
    return text.count("= Transpose[")


def test_from_the_first_to_the_last_convolution(text):
    assert between("z = MaxPool <kernel_shape = [3,3], pads = [1,1,1,1]> (a)") == text("""
        graph g(%x : float32[2,8,6,5], %w : float32[8,8,3,3], %b : float32[8]) {
          %x_last = Transpose[perm=[0,2,3,1]](%x) : float32[2,6,5,8]
          %a = gossamer.nhwc::Conv[kernel_shape=[3,3], pads=[1,1,1,1]](%x_last, %w, %b) : float32[2,6,5,8]
          %z = gossamer.nhwc::MaxPool[kernel_shape=[3,3], pads=[1,1,1,1]](%a) : float32[2,6,5,8]
          %y_last = gossamer.nhwc::Conv[kernel_shape=[3,3], pads=[1,1,1,1]](%z, %w, %b) : float32[2,6,5,8]
          %y = Transpose[perm=[0,3,1,2]](%y_last) : float32[2,8,6,5]
          return %y
        }
        """)


def test_an_image_is_read_as_it_is():
    source = parse(
        "g (float[1,3,6,5] x, float[8,3,3,3] v, float[8,8,1,1] w) => (float[1,8,1,1] y)"
        "{ a = Conv (x, v) c = Conv (a, w) y = GlobalAveragePool (c) }"
    )
    text = run_and_compare(source, channels_last)
    assert "gossamer.nhwc::Conv[x_channels_first=1](%x, %v)" in text
    assert transposes(text) == 0
    assert "%y = Reshape(%y_last" in text  # only axes of extent 1 move


@pytest.mark.parametrize(("body", "want"), [
    ("z = Relu (a)", "Relu(%a)"),
    ("z = Add (a, a)", "Add(%a, %a)"),
    ("z = Mul (a, channel)", "Mul(%a, %channel_last)"),
    ("z = Mul (column, a)", "Mul(%column_last, %a)"),
    ("z = Mul (a, number)", "Mul(%a, %number)"),
    ("z = PRelu (a, channel)", "PRelu(%a, %channel_last)"),
    ("m = GlobalAveragePool (a) z = Mul (a, m)", "Mul(%a, %m)"),
    ("s = Concat <axis = 1> (a, a) z, r = Split <axis = -3, num_outputs = 2> (s)", "Split[axis=3, num_outputs=2](%s)"),
    ("z = Softmax <axis = 1> (a)", "Softmax[axis=3](%a)"),
    ("m = ReduceMean (a, axes) z = Sub (a, m)", "ReduceMean(%a, %m_parameter)"),
    ("m = ReduceMax (a) z = Sub (a, m)", "ReduceMax(%a)"),
    ("m = ArgMax <axis = 1> (a) n = CastLike (m, a) z = Sub (a, n)", "ArgMax[axis=3](%a)"),
    ("s = Slice (a, ones, five, axes) z = Pad (s, pads)", "Pad(%s, %z_parameter)"),
    ("s = Reshape (a, merged) z = Reshape (s, split)", "Reshape(%a, %s_parameter) : float32[2,30,8]"),
    ("s = Unsqueeze (a, two) z = Squeeze (s, two)", "Squeeze(%s, %z_parameter)"),
    ("z = LRN <size = 3> (a)", "gossamer.nhwc::LRN[size=3](%a)"),
    ("z = Resize (a, , scales)", "gossamer.nhwc::Resize(%a, _, %scales)"),
])  # fmt: skip
def test_what_lies_between_is_adapted(body, want):
    constants = """<float[8,1,1] channel = {1,2,3,4,5,6,7,8}, float[6,1] column = {1,2,3,4,5,6}, float number = {2.0},
        int64[2] axes = {2,-1}, int64[2] ones = {1,1}, int64[2] five = {6,5}, int64[8] pads = {0,0,1,0,0,0,0,1},
        int64[3] merged = {2,8,30}, int64[4] split = {2,8,6,5}, int64[1] two = {2}, float[4] scales = {1,1,1,1}>"""
    result = between(body, constants=constants)
    assert want in result
    assert transposes(result) == 2


def test_constants_are_transposed_once():
    result = between("s = Mul (a, c) z = Add (s, c)", constants="<float[8,1,1] c = {1,2,3,4,5,6,7,8}>")
    assert "%c_last : float32[1,1,1,8] = {1,2,3,4,5,6,7,8}" in result
    assert result.count("%c_last :") == 1


def test_channels_are_shuffled_where_they_are():
    body = "r = Reshape (a, split) t = Transpose <perm = [0,2,1,3,4]> (r) z = Reshape (t, back)"
    result = between(body, constants="<int64[5] split = {2,2,4,6,5}, int64[4] back = {2,8,6,5}>")
    assert "%t = Transpose[perm=[0,1,2,4,3]](%r) : float32[2,6,5,4,2]" in result
    assert transposes(result) == 3


@pytest.mark.parametrize(
    ("body", "opset"),
    [
        ("z = Softmax <axis = 1> (a)", 11),  # flattens C, H and W together
        ("r = Reshape (a, other) z = Reshape (r, back)", 20),
        ("z = Mul (a, plane)", 20),  # of a lower rank, not constant
    ],
)
def test_what_cannot_be_adapted_reads_what_it_did(body, opset):
    constants = "<int64[2] other = {16,30}, int64[4] back = {2,8,6,5}>"
    result = between(body, ", float[6,5] plane", constants, TWO_FIRST, TWO_LAST, opset=opset)
    assert transposes(result) == 4


def test_a_value_is_transposed_once_for_all_who_read_it_so():
    result = between("r = Reshape (a, flat) s = Reshape (a, flat) t = Add (r, s) z = Reshape (t, back)",
                     first=TWO_FIRST, last=TWO_LAST,
                     constants="<int64[1] flat = {480}, int64[4] back = {2,8,6,5}>")  # fmt: skip
    assert transposes(result) == 4


def test_transposes_that_are_there_are_used():
    """A model that was channels-last before it was exported."""
    source = parse("""
        g (float[2,6,5,8] x, float[8,8,3,3] w) => (float[2,6,5,8] y) {
          a = Transpose <perm = [0,3,1,2]> (x)
          c = Conv <kernel_shape = [3,3], pads = [1,1,1,1]> (a, w)
          y = Transpose <perm = [0,2,3,1]> (c)
        }""")
    result = run_and_compare(source, channels_last)
    assert transposes(result) == 0
    assert "%y = gossamer.nhwc::Conv[kernel_shape=[3,3], pads=[1,1,1,1]](%x, %w)" in result


def test_two_transposes_become_one():
    result = between(
        "z = Identity (a)",
        last=LAST.replace("y =", "c =") + " y = Transpose <perm = [0,2,1,3]> (c)",
        output="float[2,6,8,5] y",
    )
    assert transposes(result) == 2
    assert "Transpose[perm=[0,1,3,2]](%c)" in result


def test_values_that_are_returned_keep_their_layout():
    result = between(
        "z = Relu (a)", first=TWO_FIRST, last=TWO_LAST, output="float[2,8,6,5] y, float[2,8,6,5] z, float[2,8,6,5] a"
    )
    assert transposes(result) == 4


def test_one_dimensional_convolutions():
    source = parse("g (float[2,8,6] x, float[8,8,3] w) => (float[2,8,2] y) { a = Conv (x, w) y = Conv (a, w) }")
    assert "Transpose[perm=[0,2,1]](%x)" in run_and_compare(source, channels_last)


def test_fused_convolutions_with_residual():
    source = parse(f"g ({IN}) => (float[2,8,6,5] y) {{ {FIRST} {CONV.format('c', 'a')} s = Add (c, a) y = Relu (s) }}")
    result = run_and_compare(source, conv_epilogue, channels_last)
    assert (
        '%y_last = gossamer.nhwc::FusedConv[kernel_shape=[3,3], pads=[1,1,1,1], activation="relu"](%a, %w, %b, %a)'
        in result
    )
    assert transposes(result) == 2


def test_a_lone_convolution_between_others_keeps_its_layout():
    """Two transpositions would not pay."""
    unchanged(
        parse(f"g ({IN}) => (float[2,8,6,5] y) {{ s = Sin (x) {CONV.format('c', 's')} y = Cos (c) }}"), channels_last
    )


def test_the_region_ends_where_least_is_transposed():
    """Before the values that grow."""
    result = between("z = Relu (a)", constants="<float[4] scales = {1,1,4,4}>", output="float[2,8,24,20] y",
                     last=LAST.replace("y =", "c =") + " r = Relu (c) y = Resize (r, , scales)")  # fmt: skip
    assert "%y = Resize(%r" in result
    assert transposes(result) == 2


@pytest.mark.parametrize("source", [
    "g (float[2,8,6,5] x) => (float[2,8,6,5] y) { y = Relu (x) }",
    "g (float[N,8,6,5] x, float[8,8,1,1] w) => (float[N,8,6,5] y) { a = Conv (x, w) y = Conv (a, w) }",
    "g (double[2,2,2,2,2,2] x, double[2,2,1,1,1,1] w) => (double[2,2,2,2,2,2] y) { a = Conv (x, w) y = Conv (a, w) }",
])  # fmt: skip
def test_kept(source):
    unchanged(parse(source), channels_last)


def test_versions_stay_those_of_onnx():
    """Operators of the other domain mean what ONNX's do at the model's version."""
    model = load(
        parse("g (float[2,8,6] x, float[8,8,3] w) => (float[2,8,2] y) { a = Conv (x, w) y = Conv (a, w) }", 13)
    )
    infer_shapes(model)
    channels_last(model)
    assert model.opset_imports["gossamer.nhwc"] == 13
