from __future__ import annotations

import pytest

from gossamer.model.passes.flattened_gemm import flattened_gemm
from our_operators import parse, run_and_compare, unchanged

INPUTS = "float[2,6,8] x, float[8,4] w, float[4] b"
SHAPES = {"rows": (12, 8), "back": (2, 6, 4), "split": (2, 6, 2, 2)}


def source(body: str, inputs: str = INPUTS, output: str = "float[2,6,4] y"):
    used = ", ".join(
        f"int64[{len(dims)}] {name} = {{{','.join(map(str, dims))}}}" for name, dims in SHAPES.items() if name in body
    )
    return parse(f"g ({inputs}) => ({output}) <{used}> {{ {body} }}")


def test_bias(text):
    body = "f = Reshape (x, rows) g = Gemm (f, w, b) y = Reshape (g, back)"
    assert run_and_compare(source(body), flattened_gemm) == text("""
        graph g(%x : float32[2,6,8], %w : float32[8,4], %b : float32[4]) {
          %rows : int64[2] = {12,8}
          %back : int64[3] = {2,6,4}
          %y_product = MatMul(%x, %w) : float32[2,6,4]
          %y = Add(%y_product, %b) : float32[2,6,4]
          return %y
        }
        """)


def test_transposed_weight_and_no_bias(text):
    body = "f = Reshape (x, rows) g = Gemm <transB = 1> (f, w) y = Reshape (g, back)"
    assert run_and_compare(source(body, "float[2,6,8] x, float[4,8] w"), flattened_gemm) == text("""
        graph g(%x : float32[2,6,8], %w : float32[4,8]) {
          %rows : int64[2] = {12,8}
          %back : int64[3] = {2,6,4}
          %w_transposed = Transpose(%w) : float32[8,4]
          %y = MatMul(%x, %w_transposed) : float32[2,6,4]
          return %y
        }
        """)


def test_flat_rows_that_others_read_stay():
    body = "f = Reshape (x, rows) s = Softmax (f) g = Gemm (f, w, b) y = Reshape (g, back)"
    outputs = "float[2,6,4] y, float[12,8] s"
    made = run_and_compare(source(body, output=outputs), flattened_gemm)
    assert "MatMul(%x, %w)" in made
    assert "Reshape(%x" in made


def test_heads_are_merged_without_flattening_the_batch():
    body = "f = Reshape (x, rows) g = Gemm (f, w, b) y = Reshape (g, back)"
    made = run_and_compare(source(body, "float[2,6,2,4] x, float[8,4] w, float[4] b"), flattened_gemm)
    assert "Reshape(%x, %x_shape) : float32[2,6,8]" in made
    assert "Gemm" not in made


@pytest.mark.parametrize(
    "body",
    [
        "f = Reshape (x, rows) g = Gemm <alpha = 2.0> (f, w, b) y = Reshape (g, back)",
        "f = Reshape (x, rows) g = Gemm <beta = 2.0> (f, w, b) y = Reshape (g, back)",
    ],
)
def test_scaled_ones_are_kept(body):
    unchanged(source(body), flattened_gemm)


def test_columns_that_come_back_split_are_kept():
    body = "f = Reshape (x, rows) g = Gemm (f, w, b) y = Reshape (g, split)"
    unchanged(source(body, output="float[2,6,2,2] y"), flattened_gemm)


def test_a_product_that_is_read_flat_is_kept():
    body = "f = Reshape (x, rows) g = Gemm (f, w, b) y = Reshape (g, back)"
    unchanged(source(body, output="float[2,6,4] y, float[12,4] g"), flattened_gemm)


def test_c_that_varies_by_row_is_kept():
    body = "f = Reshape (x, rows) g = Gemm (f, w, c) y = Reshape (g, back)"
    unchanged(source(body, "float[2,6,8] x, float[8,4] w, float[12,1] c"), flattened_gemm)
