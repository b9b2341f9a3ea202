from __future__ import annotations

import pytest

from gossamer.model.passes.matmul_epilogue import matmul_epilogue
from our_operators import parse, run_and_compare, unchanged

INPUTS = "float[2,6,8] x, float[8,4] w, float[4] b, float[2,6,4] z"


def merged(body: str, inputs: str = INPUTS, output: str = "float[2,6,4] y", constants: str = "") -> str:
    text = run_and_compare(parse(f"g ({inputs}) => ({output}) {constants} {{ {body} }}"), matmul_epilogue)
    (line,) = (line for line in text.splitlines() if "FusedMatMul" in line)
    return line.strip().removeprefix("%y = gossamer::FusedMatMul").partition(" : ")[0]


def kept(body: str, inputs: str = INPUTS, output: str = "float[2,6,4] y", constants: str = "") -> None:
    unchanged(parse(f"g ({inputs}) => ({output}) {constants} {{ {body} }}"), matmul_epilogue)


def test_bias_and_activation(text):
    source = parse(
        "g (float[2,6,8] x, float[8,4] w, float[4] b) => (float[2,6,4] y)"
        "{ p = MatMul (x, w) h = Add (p, b) g = Sigmoid (h) y = Mul (h, g) }"
    )
    assert run_and_compare(source, matmul_epilogue) == text("""
        graph g(%x : float32[2,6,8], %w : float32[8,4], %b : float32[4]) {
          %y = gossamer::FusedMatMul[activation="silu", activation_params=[1]](%x, %w, %b) : float32[2,6,4]
          return %y
        }
        """)


@pytest.mark.parametrize(
    "body",
    [
        "p = MatMul (x, w) h = Add (p, b) s = Add (h, z) y = Relu (s)",
        "p = MatMul (x, w) h = Add (z, p) s = Add (b, h) y = Relu (s)",
    ],
)
def test_bias_and_residual_in_any_order(body):
    assert merged(body) == '[activation="relu"](%x, %w, %b, %z)'


def test_residual_alone():
    assert merged("p = MatMul (x, w) y = Add (p, z)") == "(%x, %w, _, %z)"


def test_bias_with_leading_ones():
    assert merged("p = MatMul (x, w) y = Add (p, c)", INPUTS + ", float[1,1,4] c") == "(%x, %w, %c)"


def test_scaled_attention_scores():
    inputs, constants = "float[2,3,6,8] q, float[2,3,5,8] k", "<float c = {0.25}, float four = {4.0}>"
    body = "s = Mul (q, c) t = Transpose <perm = [0,1,3,2]> (k) p = MatMul (s, t) y = Div (p, four)"
    assert merged(body, inputs, "float[2,3,6,5] y", constants) == "[transB=1, alpha=0.0625](%q, %k)"


def test_heads_are_split_while_reading():
    inputs = "float[2,6,3,8] q, float[2,5,3,8] k"
    body = "a = Transpose <perm = [0,2,1,3]> (q) b = Transpose <perm = [0,2,3,1]> (k) y = MatMul (a, b)"
    assert merged(body, inputs, "float[2,3,6,5] y") == "[permA=[0,2,1,3], permB=[0,2,3,1]](%q, %k)"


def test_transpositions_in_a_row():
    body = "a = Transpose <perm = [0,2,1]> (x) c = Transpose <perm = [0,2,1]> (a) p = MatMul (c, w) y = Relu (p)"
    assert merged(body) == '[activation="relu"](%x, %w)'


def test_a_transpose_that_others_read_stays_for_them():
    result = run_and_compare(parse("""
        g (float[6,8] x, float[6,4] w) => (float[8,4] y, float[8,6] z) {
          t = Transpose (x)
          y = MatMul (t, w)
          z = Neg (t)
        }"""), matmul_epilogue)  # fmt: skip
    assert "%y = gossamer::FusedMatMul[transA=1](%x, %w)" in result
    assert "%z = Neg(%t)" in result


@pytest.mark.parametrize(
    ("gemm", "inputs", "want"),
    [
        ("Gemm (x, w, c)", "float[4] c", "[{}](%x, %w, %c)"),
        ("Gemm (x, w, c)", "float[1,4] c", "[{}](%x, %w, %c)"),
        ("Gemm (x, w, c)", "float[6,4] c", "[{}](%x, %w, _, %c)"),
        ("Gemm (x, w)", "float[4] c", "[{}](%x, %w)"),
        ("Gemm <alpha = 0.5> (x, w, c)", "float[4] c", "[alpha=0.5, {}](%x, %w, %c)"),
    ],
)
def test_gemm(gemm, inputs, want):
    found = merged(f"p = {gemm} y = Tanh (p)", f"float[6,8] x, float[8,4] w, {inputs}", "float[6,4] y")
    assert found == want.format('activation="tanh"')


def test_transposed_gemm():
    found = merged(
        "p = Gemm <transA = 1, transB = 1> (x, w) y = Tanh (p)", "float[8,6] x, float[4,8] w", "float[6,4] y"
    )
    assert found == '[transA=1, transB=1, activation="tanh"](%x, %w)'


@pytest.mark.parametrize(
    "body",
    [
        "y = MatMul (x, w)",
        "p = MatMul (x, w) y = Add (p, column)",  # one value per row
        "p = MatMul (x, w) y = Add (p, p)",
        "p = MatMul (x, w) n = Neg (p) y = Add (n, p)",  # others read the product
        "a = Transpose <perm = [2,1,0]> (turned) y = MatMul (a, w)",  # neither rows nor columns contiguous
        "s = Mul (x, scale) y = MatMul (s, w)",  # no constant
    ],
)
def test_kept(body):
    kept(body, INPUTS + ", float[2,6,1] column, float[8,6,2] turned, float scale")


@pytest.mark.parametrize(
    "body",
    [
        "p = Gemm <beta = 0.5> (x, w, b) y = Relu (p)",
        "p = Gemm (x, w, column) y = Relu (p)",
        "y = Gemm (x, w, b)",  # nothing gained
    ],
)
def test_kept_gemm(body):
    kept(body, "float[6,8] x, float[8,4] w, float[4] b, float[6,1] column", "float[6,4] y")


def test_vectors_and_integers_are_kept():
    kept("p = MatMul (x, w) y = Relu (p)", "float[6,8] x, float[8] w", "float[6] y")
    kept("p = MatMul (x, w) y = Add (p, b)", "int32[6,8] x, int32[8,4] w, int32[4] b", "int32[6,4] y")
