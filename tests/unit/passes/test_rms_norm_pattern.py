from __future__ import annotations

import pytest

from gossamer.model.passes.layer_norm_pattern import layer_norm_pattern
from gossamer.model.passes.rms_norm_pattern import rms_norm_pattern
from our_operators import parse, run_and_compare, unchanged

MEAN = "ReduceMean <axes = [-1]>"
CONSTANTS = "<float two = {2.0}, float less_half = {-0.5}, float one = {1.0}, float eps = {0.00001}>"
MEAN_SQUARE = f"q = Pow (x, two) v = {MEAN} (q) e = Add (v, eps)"
T5 = f"{MEAN_SQUARE} r = Sqrt (e) i = Div (one, r) n = Mul (x, i)"
OUTPUT = "float[2,3,8] y"


def model(body: str, inputs: str = "float[2,3,8] x, float[8] w", outputs: str = OUTPUT):
    return parse(f"g ({inputs}) => ({outputs}) {CONSTANTS} {{ {body} }}", 13)


def merged(body: str, **rest) -> str:
    """The norm's line, short of its type and what all norms here have in common."""
    result = run_and_compare(model(body, **rest), rms_norm_pattern)
    (line,) = (line.strip() for line in result.splitlines() if "RMSNormalization" in line)
    return line.partition(" : ")[0].replace("[axis=-1, epsilon=1e-05]", "")


def test_text(text):
    assert run_and_compare(model(f"{T5} y = Mul (w, n)"), rms_norm_pattern) == text("""
        graph g(%x : float32[2,3,8], %w : float32[8]) {
          %two : float32[] = {2}
          %less_half : float32[] = {-0.5}
          %one : float32[] = {1}
          %eps : float32[] = {1e-05}
          %y = RMSNormalization[axis=-1, epsilon=1e-05](%x, %w) : float32[2,3,8]
          return %y
        }
        """)


@pytest.mark.parametrize(
    "body",
    [
        f"{MEAN_SQUARE} r = Sqrt (e) n = Div (x, r) y = Mul (n, w)",
        f"{MEAN_SQUARE} r = Sqrt (e) i = Reciprocal (r) n = Mul (x, i) y = Mul (n, w)",
        f"{MEAN_SQUARE} i = Pow (e, less_half) n = Mul (i, x) y = Mul (n, w)",
        f"q = Mul (x, x) v = {MEAN} (q) e = Add (eps, v) r = Sqrt (e) i = Reciprocal (r) f = Mul (i, w) y = Mul (f, x)",
    ],
)
def test_ways_to_divide(body):
    assert merged(body) == "%y = RMSNormalization(%x, %w)"


def test_without_scale():
    assert merged(T5.replace("n = ", "y = ")) == "%y = gossamer::RMSNormalization(%x)"


LLAMA = f"{T5} c = Cast <to = 10> (n) y = Mul (w, c)"


def test_float16_computed_in_fp32():
    inputs = "float16[2,3,8] h, float16[8] w"
    found = merged(f"x = Cast <to = 1> (h) {LLAMA}", inputs=inputs, outputs="float16[2,3,8] y")
    assert found == "%y = RMSNormalization(%h, %w)"


def test_the_operator_takes_a_scale_of_the_results_type():
    inputs = "float16[2,3,8] h, float[8] w"
    assert merged(f"x = Cast <to = 1> (h) {T5} y = Mul (w, n)", inputs=inputs) == "%y = RMSNormalization(%h, %w)"
    found = merged(
        f"x = Cast <to = 1> (h) {T5} m = Mul (w, n) y = Cast <to = 10> (m)", inputs=inputs, outputs="float16[2,3,8] y"
    )
    assert found == "%y = gossamer::RMSNormalization(%h, %w)"


def test_an_added_bias_stays_outside():
    assert merged(f"{T5} m = Mul (n, w) y = Add (m, w)") == "%m = RMSNormalization(%x, %w)"


def test_the_residual_is_read_by_others():
    found = merged(f"{T5} m = Mul (n, w) y = Add (m, x)")
    assert found == "%m = RMSNormalization(%x, %w)"


def test_what_layer_norm_pattern_has_to_leave_is_the_norm_of_a_difference():
    body = f"m = {MEAN} (z) x = Sub (z, m) {T5} y = Mul (n, w)"
    source = model(body, "float[2,3,8] z, float[8] w", f"{OUTPUT}, float[2,3,1] m")
    unchanged(source, layer_norm_pattern)
    assert "%y = RMSNormalization[axis=-1, epsilon=1e-05](%x, %w)" in run_and_compare(source, rms_norm_pattern)


@pytest.mark.parametrize(
    "body",
    [
        f"q = Pow (x, two) v = {MEAN} (q) r = Sqrt (v) y = Div (x, r)",  # no epsilon
        f"q = Pow (x, one) v = {MEAN} (q) e = Add (v, eps) r = Sqrt (e) y = Div (x, r)",  # no square
        f"{MEAN_SQUARE} r = Sqrt (e) y = Div (two, r)",
        f"{MEAN_SQUARE} r = Sqrt (e) i = Div (two, r) y = Mul (x, i)",
        f"{MEAN_SQUARE} r = Sqrt (e) n = Neg (x) y = Div (n, r)",
        "q = Pow (x, two) v = ReduceMax <axes = [-1]> (q) e = Add (v, eps) r = Sqrt (e) y = Div (x, r)",
    ],
)
def test_kept(body):
    unchanged(model(body, outputs=OUTPUT if "two, r) y" not in body else "float[2,3,1] y"), rms_norm_pattern)


def test_kept_when_returned():
    unchanged(model(f"{T5} y = Mul (n, w)", outputs=f"{OUTPUT}, float[2,3,1] i"), rms_norm_pattern)


def test_kept_in_subgraphs():
    branch = f"{{ b () => (float[2,3,8] z) {{ {T5.replace('n =', 'z =')} }} }}"
    then, other = branch, "{ c () => (float[2,3,8] o) { o = Neg (x) } }"
    body = f"y = If (p) <then_branch = {then[1:-1]}, else_branch = {other[1:-1]}>"
    unchanged(model(body, "float[2,3,8] x, bool p"), rms_norm_pattern)
