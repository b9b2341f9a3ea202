from __future__ import annotations

import pytest

from gossamer.model.passes.layer_norm_pattern import layer_norm_pattern
from our_operators import parse, run_and_compare, unchanged

MEAN = "ReduceMean <axes = [-1]>"
INPUTS = "float[2,3,8] x, float[8] scale, float[8] bias, "
CONSTANTS = (
    "<float two = {2.0}, float half = {0.5}, float less_half = {-0.5}, float one = {1.0}, float eps = {0.00001}>"
)
VARIANCE = f"m = {MEAN} (x) d = Sub (x, m) q = Pow (d, two) v = {MEAN} (q) e = Add (v, eps)"
PYTORCH = f"{VARIANCE} r = Sqrt (e) n = Div (d, r)"


def model(body: str, inputs: str = "", outputs: str = "float[2,3,8] y", constants: str = CONSTANTS, opset: int = 13):
    return parse(f"g ({INPUTS}{inputs}) => ({outputs}) {constants} {{ {body} }}".replace(", )", ")"), opset)


def merged(body: str, **rest) -> str:
    """The norm's line, short of its type and what all norms here have in common."""
    result = run_and_compare(model(body, **rest), layer_norm_pattern)
    (line,) = (line.strip() for line in result.splitlines() if "LayerNormalization" in line)
    assert "Sqrt" not in result
    assert "Pow" not in result
    return line.partition(" : ")[0].replace("[axis=-1, epsilon=1e-05]", "")


def kept(body: str, **rest) -> None:
    unchanged(model(body, **rest), layer_norm_pattern)


def test_text(text):
    assert run_and_compare(model(f"{PYTORCH} t = Mul (n, scale) y = Add (t, bias)"), layer_norm_pattern) == text("""
        graph g(%x : float32[2,3,8], %scale : float32[8], %bias : float32[8]) {
          %two : float32[] = {2}
          %half : float32[] = {0.5}
          %less_half : float32[] = {-0.5}
          %one : float32[] = {1}
          %eps : float32[] = {1e-05}
          %y = LayerNormalization[axis=-1, epsilon=1e-05](%x, %scale, %bias) : float32[2,3,8]
          return %y
        }
        """)


@pytest.mark.parametrize(
    "body",
    [
        f"{VARIANCE} r = Pow (e, half) n = Div (d, r)",
        f"{VARIANCE} r = Sqrt (e) i = Reciprocal (r) n = Mul (i, d)",
        f"{VARIANCE} r = Sqrt (e) i = Div (one, r) n = Mul (d, i)",
        f"{VARIANCE} i = Pow (e, less_half) n = Mul (d, i)",
        f"m = {MEAN} (x) d = Sub (x, m) q = Mul (d, d) v = {MEAN} (q) e = Add (eps, v) r = Sqrt (e) n = Div (d, r)",
    ],
)
def test_ways_to_divide(body):
    assert merged(f"{body} t = Mul (scale, n) y = Add (bias, t)") == "%y = LayerNormalization(%x, %scale, %bias)"


def test_axes_are_an_input_since_opset_18():
    mean = "ReduceMean <keepdims = 1> "
    body = f"m = {mean} (x, a) d = Sub (x, m) q = Pow (d, two) v = {mean} (q, a) e = Add (v, eps) r = Sqrt (e)"
    constants = CONSTANTS.replace("<", "<int64[1] a = {2}, ")
    found = merged(f"{body} n = Div (d, r) y = Mul (n, scale)", constants=constants, opset=18)
    assert found == "%y = LayerNormalization(%x, %scale)"


def test_keras():
    """x · f + (bias - mean · f), where f is scale / deviation."""
    body = f"{VARIANCE} r = Sqrt (e) i = Reciprocal (r) f = Mul (i, scale) a = Mul (x, f) b = Mul (m, f)"
    assert merged(f"{body} s = Sub (bias, b) y = Add (a, s)") == "%y = LayerNormalization(%x, %scale, %bias)"


def test_keras_without_scale():
    body = f"{VARIANCE} r = Sqrt (e) f = Reciprocal (r) a = Mul (x, f) b = Mul (f, m) s = Sub (bias, b) y = Add (s, a)"
    assert merged(body) == "%y = gossamer::LayerNormalization(%x, _, %bias)"


def test_several_axes_with_a_scale_for_all_of_them():
    mean = "ReduceMean <axes = [1,2]>"
    body = f"m = {mean} (x) d = Sub (x, m) q = Pow (d, two) v = {mean} (q) e = Add (v, eps) r = Sqrt (e) n = Div (d, r)"
    found = merged(f"{body} y = Mul (n, s)", inputs="float[3,8] s")
    assert found == "%y = LayerNormalization[axis=-2, epsilon=1e-05](%x, %s)"


def test_a_scale_along_other_axes_stays_outside():
    found = merged(f"{PYTORCH} y = Mul (n, s)", inputs="float[2,1,8] s")
    assert found == "%n = gossamer::LayerNormalization(%x)"


def test_a_scale_with_leading_ones_is_none_of_onnxs():
    assert merged(f"{PYTORCH} y = Mul (n, s)", inputs="float[1,1,8] s") == "%y = gossamer::LayerNormalization(%x, %s)"


def test_the_quotient_is_read_twice():
    body = f"{PYTORCH} y = Mul (n, scale) z = Add (n, bias)"
    assert merged(body, outputs="float[2,3,8] y, float[2,3,8] z") == "%n = gossamer::LayerNormalization(%x)"


def test_float16_with_statistics_in_fp32():
    body = f"""f = Cast <to = 1> (h) m = {MEAN} (f) d = Sub (f, m) q = Pow (d, two) v = {MEAN} (q) e = Add (v, eps)
        r = Sqrt (e) n = Div (d, r) c = Cast <to = 10> (n) t = Mul (c, s) y = Add (t, b)"""
    found = merged(body, inputs="float16[2,3,8] h, float16[8] s, float16[8] b", outputs="float16[2,3,8] y")
    assert found == "%y = LayerNormalization(%h, %s, %b)"


def test_casts_around_single_operators():
    body = f"""m = {MEAN} (h) d = Sub (h, m) f = Cast <to = 1> (d) q = Pow (f, two) c = Cast <to = 10> (q)
        v = {MEAN} (c) e = Add (v, small) r = Sqrt (e) n = Div (d, r) t = Mul (n, s) y = Add (t, b)"""
    found = merged(
        body,
        inputs="float16[2,3,8] h, float16[8] s, float16[8] b",
        outputs="float16[2,3,8] y",
        constants=CONSTANTS.replace("<", "<float16 small = {5120}, "),  # the bits of 2⁻¹⁰
    )
    assert found == "%y = LayerNormalization[axis=-1, epsilon=0.000976562](%h, %s, %b)"


def test_autocast_has_parameters_in_fp32():
    """Types of our own: 16 bits in and out."""
    body = f"""x = Cast <to = 1> (h) {PYTORCH} t = Mul (n, scale) u = Add (t, bias) y = Cast <to = 10> (u)"""
    source = f"g (float16[2,3,8] h, float[8] scale, float[8] bias) => (float16[2,3,8] y) {CONSTANTS} {{ {body} }}"
    assert "%y = gossamer::LayerNormalization[axis=-1, epsilon=1e-05](%h, %scale, %bias) : float16" in run_and_compare(
        parse(source, 13), layer_norm_pattern
    )


def test_a_cast_of_x_that_others_read_stays_for_them():
    body = f"x = Cast <to = 1> (h) {PYTORCH} y = Cast <to = 10> (n) z = Neg (x)"
    source = f"g (float16[2,3,8] h) => (float16[2,3,8] y, float[2,3,8] z) {CONSTANTS} {{ {body} }}"
    result = run_and_compare(parse(source, 13), layer_norm_pattern)
    assert "%y = gossamer::LayerNormalization[axis=-1, epsilon=1e-05](%h)" in result
    assert "%x = Cast[to=1](%h)" in result


def test_float64():
    source = f"""g (double[2,8] x) => (double[2,8] y) <double two = {{2.0}}, double eps = {{0.5}}>
        {{ {VARIANCE} r = Sqrt (e) y = Div (d, r) }}"""
    assert "gossamer::LayerNormalization" in run_and_compare(parse(source, 13), layer_norm_pattern)
    unchanged(parse(source.replace("0.5", "0.00001"), 13), layer_norm_pattern)


@pytest.mark.parametrize(
    "body",
    [
        VARIANCE.replace("[-1]", "[1]") + " r = Sqrt (e) y = Div (d, r)",  # not the last axis
        VARIANCE.replace("[-1]", "[1,2]", 1) + " r = Sqrt (e) y = Div (d, r)",  # different means
        f"m = {MEAN} (x) d = Sub (x, m) q = Mul (d, d) v = {MEAN} (q) e = Add (v, given) r = Sqrt (e) y = Div (d, r)",
        f"{VARIANCE} r = Sqrt (e) y = Div (x, r)",  # not x - mean
        f"{VARIANCE} r = Sqrt (e) y = Div (r, d)",
        f"m = {MEAN} (x) d = Sub (m, x) q = Mul (d, d) v = {MEAN} (q) e = Add (v, eps) r = Sqrt (e) y = Div (d, r)",
        f"{VARIANCE} r = Sqrt (e) n = Div (d, r) s = Add (n, d) y = Mul (s, scale)",  # others read d
        f"m = {MEAN} (x) d = Sub (x, m) q = Mul (d, x) v = {MEAN} (q) e = Add (v, eps) r = Sqrt (e) y = Div (d, r)",
    ],
)
def test_kept(body):
    kept(body, inputs="float given")


def test_kept_when_returned():
    kept(f"{PYTORCH} y = Mul (n, scale)", outputs="float[2,3,8] y, float[2,3,1] v")
