from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper

from gossamer.model.passes.attention_pattern import attention_pattern
from our_operators import parse, run_and_compare, unchanged

HEADS = "float[2,6,12] q, float[2,5,12] k, float[2,5,12] v"
SPLIT = """
    qs = Reshape (q, split)  qt = Transpose <perm = [0,2,1,3]> (qs)
    ks = Reshape (k, split)  kt = Transpose <perm = [0,2,3,1]> (ks)
    vs = Reshape (v, split)  vt = Transpose <perm = [0,2,1,3]> (vs)
"""
MERGE = "t = Transpose <perm = [0,2,1,3]> (o)  y = Reshape (t, merge)"
CONSTANTS = (
    "<int64[4] split = {0, 0, 3, 4}, int64[3] merge = {0, 0, 12},"
    " float two = {2.0}, float half = {0.5}, float root = {0.25}>"
)
LAYOUTS = "layoutQ=[0,72,4,12,1], layoutK=[0,60,4,12,1], layoutV=[0,60,4,12,1], layoutY=[0,72,4,12,1]"


def fused(body, inputs=HEADS, output="float[2,6,12] y", constants=CONSTANTS, opset=20, **arrays):
    """The line of the one FusedAttention that the body becomes."""
    model = parse(f"g ({inputs}) => ({output}) {constants} {{ {body} }}", opset)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    text = run_and_compare(model, attention_pattern)
    (line,) = (line for line in text.splitlines() if "FusedAttention" in line)
    assert "Softmax" not in text
    assert "MatMul" not in text
    return line.strip().partition("gossamer::FusedAttention")[2].partition(" : ")[0]


def test_bert(text):
    source = parse(
        f"g ({HEADS}, float[2,1,1,5] m) => (float[2,6,12] y)"
        f"<int64[4] split = {{0, 0, 3, 4}}, int64[3] merge = {{0, 0, 12}}, float two = {{2.0}}> {{ {SPLIT} "
        f"s = MatMul (qt, kt) d = Div (s, two) a = Add (d, m) p = Softmax <axis = -1> (a) o = MatMul (p, vt) {MERGE} }}"
    )
    attributes = f"shape=[2,3,3,6,5,4,4], scale=0.5, {LAYOUTS}, layoutBias=[0,5,0,0,1]"
    assert run_and_compare(source, attention_pattern) == text(f"""
        graph g(%q : float32[2,6,12], %k : float32[2,5,12], %v : float32[2,5,12], %m : float32[2,1,1,5]) {{
          %split : int64[4] = {{0,0,3,4}}
          %merge : int64[3] = {{0,0,12}}
          %two : float32[] = {{2}}
          %t = gossamer::FusedAttention[{attributes}](%q, %k, %v, %m) : float32[2,6,3,4]
          %y = Reshape(%t, %merge) : float32[2,6,12]
          return %y
        }}
        """)


@pytest.mark.parametrize(
    "scaled",
    [
        "s = MatMul (qt, kt) d = Div (s, two)",
        "s = MatMul (qt, kt) d = Mul (half, s)",
        "h = Mul (qt, half) d = MatMul (h, kt)",
        "h = Div (qs, two) ht = Transpose <perm = [0,2,1,3]> (h) d = MatMul (ht, kt)",
    ],
)
def test_scales(scaled):
    assert fused(f"{SPLIT} {scaled} p = Softmax (d) o = MatMul (p, vt) {MERGE}") == (
        f"[shape=[2,3,3,6,5,4,4], scale=0.5, {LAYOUTS}](%q, %k, %v)"
    )


def test_roots_of_scales_and_zeros_for_nothing_seen():
    """As torch.onnx exports scaled_dot_product_attention."""
    body = """ qh = Mul (qt, root) kh = Mul (kt, root) s = MatMul (qh, kh) a = Add (s, m) p = Softmax <axis = -1> (a)
        n = IsNaN (p) g = Where (n, zero, p) o = MatMul (g, vt) """
    found = fused(
        f"{SPLIT} {body} {MERGE}",
        HEADS + ", float[6,5] m",
        constants=CONSTANTS[:-1] + ", float zero = {0.0}>",
    )
    assert found == (
        f"[shape=[2,3,3,6,5,4,4], scale=0.0625, {LAYOUTS}, layoutBias=[0,0,0,5,1], zero_empty=1](%q, %k, %v, %m)"
    )


PACKED = "float[2,6,36] x"
UNPACK = f"q, k, v = Split <axis = 2, num_outputs = 3> (x) {SPLIT}"
PACKED_LAYOUTS = "layoutQ=[0,216,4,36,1], layoutK=[12,216,4,36,1], layoutV=[24,216,4,36,1], layoutY=[0,72,4,12,1]"


@pytest.mark.parametrize("dtype", [bool, np.uint8])
def test_gpt2(dtype):
    """Packed projection, causal Where by a constant, then the attention mask."""
    body = """s = MatMul (qt, kt) d = Div (s, two) w = Where (c, d, low) a = Add (w, m)
        p = Softmax <axis = -1> (a) o = MatMul (p, vt)"""
    if dtype is np.uint8:
        body = "c = Cast <to = 9> (u)" + body
        name = "u"
    else:
        name = "c"
    mask = np.tri(6, dtype=dtype).reshape(1, 1, 6, 6)
    constants = CONSTANTS[:-1] + ", float low = {-10000.0}>"
    found = fused(f"{UNPACK} {body} {MERGE}", PACKED + ", float[2,1,1,6] m", constants=constants, **{name: mask})
    if dtype is bool:
        assert found == (
            f"[shape=[2,3,3,6,6,4,4], scale=0.5, {PACKED_LAYOUTS}, layoutBias=[0,6,0,0,1], causal=1](%x, %x, %x, %m)"
        )
    else:
        assert "layoutMask=[0,0,0,6,1], fill=-10000](%x, %x, %x, %m, %c)" in found


def test_causal_mask_with_a_past():
    """Three keys before the first query; minus infinity added above the diagonal."""
    past = np.where(np.tri(2, 5, 3, dtype=bool), 0, -np.inf).astype(np.float32)
    found = fused(
        "s = MatMul (q, kt) a = Add (past, s) p = Softmax (a) y = MatMul (p, v)",
        "float[1,3,2,4] q, float[1,3,4,5] kt, float[1,3,5,4] v",
        "float[1,3,2,4] y",
        "",
        past=past,
    )
    assert found == "[shape=[1,3,3,2,5,4,4], layoutK=[0,0,20,1,5], causal=1, first=3](%q, %kt, %v)"


@pytest.mark.parametrize(
    ("mask", "want"),
    [
        (np.zeros((1, 1, 1, 5), np.float32), "(%q, %k, %v)"),
        (np.tri(6, 5, dtype=np.float32) - 1, "layoutBias=[0,0,0,5,1]](%q, %k, %v, %m)"),
        (np.where(np.tri(6, 5, 1) > 0, 0, -1e9).astype(np.float32), "causal=1, first=1](%q, %k, %v)"),
        (np.where(np.tri(6, 5, -1) > 0, 0, -1e9).astype(np.float32), "layoutBias=[0,0,0,5,1]](%q, %k, %v, %m)"),
    ],
    ids=["nothing", "soft", "causal", "first query sees nothing"],
)
def test_constant_masks(mask, want):
    body = "s = MatMul (qt, kt) a = Add (s, m) p = Softmax (a) o = MatMul (p, vt)"
    assert fused(f"{SPLIT} {body} {MERGE}", m=mask).endswith(want)


def test_masked_fill_by_an_input():
    """The other way round: hidden where the mask is true."""
    source = "s = MatMul (qt, kt) w = Where (c, low, s) p = Softmax (w) o = MatMul (p, vt)"
    constants = CONSTANTS[:-1] + ", float low = {-10000.0}>"
    found = fused(f"c = Cast <to = 9> (m) {SPLIT} {source} {MERGE}", HEADS + ", float[2,1,1,5] m", constants=constants)
    assert found.endswith("layoutMask=[0,5,0,0,1], fill=-10000](%q, %k, %v, _, %c_not)")


def test_t5_bias():
    found = fused(
        f"{SPLIT} s = MatMul (qt, kt) a = Add (s, b) p = Softmax (a) o = MatMul (p, vt) {MERGE}",
        HEADS + ", float[1,3,6,5] b",
    )
    assert found == f"[shape=[2,3,3,6,5,4,4], {LAYOUTS}, layoutBias=[0,0,30,5,1]](%q, %k, %v, %b)"


def test_gemma_caps_scores():
    body = """s = MatMul (qt, kt) h = Mul (s, half) c = Div (h, two) g = Tanh (c) d = Mul (g, two) a = Add (d, m)
        p = Softmax (a) o = MatMul (p, vt)"""
    found = fused(f"{SPLIT} {body} {MERGE}", HEADS + ", float[6,5] m")
    assert found == (
        f"[shape=[2,3,3,6,5,4,4], scale=0.5, softcap=2, {LAYOUTS}, layoutBias=[0,0,0,5,1]](%q, %k, %v, %m)"
    )


def test_llama_repeats_heads_of_keys():
    """Six query heads, two of keys, which repeat_kv copies; the mask is expanded, too."""
    repeat = """ {0}u = Unsqueeze ({0}, two) {0}e = Expand ({0}u, groups) {0}r = Reshape ({0}e, joined) """
    body = (
        repeat.format("k") + repeat.format("v") + "kt = Transpose <perm = [0,1,3,2]> (kr) me = Expand (m, square)"
        " s = MatMul (q, kt) d = Mul (s, half) a = Add (d, me) p = Softmax (a) o = MatMul (p, vr)"
        " t = Transpose <perm = [0,2,1,3]> (o) y = Reshape (t, merge)"
    )
    constants = (
        "<int64[1] two = {2}, int64[5] groups = {2, 2, 3, 5, 4}, int64[4] joined = {2, 6, 5, 4},"
        " int64[3] merge = {0, 0, -1}, float half = {0.5}, int64[4] square = {2, 1, 1, 5}>"
    )
    inputs = "float[2,6,1,4] q, float[2,2,5,4] k, float[2,2,5,4] v, float[1,1,1,5] m"
    assert fused(body, inputs, "float[2,1,24] y", constants) == (
        "[shape=[2,6,2,1,5,4,4], scale=0.5, layoutK=[0,40,20,4,1], layoutV=[0,40,20,4,1], layoutY=[0,24,4,0,1], "
        "layoutBias=[0,0,0,0,1]](%q, %k, %v, %m)"
    )


def test_vit_gathers_from_a_packed_projection():
    body = """ a = Reshape (x, split) b = Transpose <perm = [2,0,3,1,4]> (a)
        q = Gather <axis = 0> (b, zero) k = Gather <axis = 0> (b, one) v = Gather <axis = 0> (b, two)
        kt = Transpose <perm = [0,1,3,2]> (k) s = MatMul (q, kt) p = Softmax (s) o = MatMul (p, v) """
    constants = (
        "<int64[5] split = {0, 0, 3, 3, 4}, int64 zero = {0}, int64 one = {1}, int64 two = {2},"
        " int64[3] merge = {0, 0, 12}>"
    )
    assert fused(f"{body} {MERGE}", PACKED, constants=constants) == (
        f"[shape=[2,3,3,6,6,4,4], {PACKED_LAYOUTS}](%x, %x, %x)"
    )


def test_scores_of_rank_3():
    """BART: batch and heads are one axis, apart from where the mask is added."""
    flat = "{0}f = Reshape ({0}p, flat) "
    body = (
        "qs = Reshape (q, split)  qp = Transpose <perm = [0,2,1,3]> (qs)"
        "ks = Reshape (k, split)  kp = Transpose <perm = [0,2,1,3]> (ks)"
        "vs = Reshape (v, split)  vp = Transpose <perm = [0,2,1,3]> (vs)"
        + flat.format("k") + flat.format("v") + "qf = Reshape (qp, qflat) kt = Transpose <perm = [0,2,1]> (kf)"
        "s = MatMul (qf, kt) g = Reshape (s, grid) a = Add (g, m) b = Reshape (a, rows) p = Softmax <axis = 2> (b)"
        "o3 = MatMul (p, vf) o = Reshape (o3, heads)"
    )  # fmt: skip
    constants = CONSTANTS[:-1] + (
        ", int64[3] flat = {6, 5, 4}, int64[3] qflat = {6, 6, 4}, int64[4] grid = {2, 3, 6, 5},"
        " int64[3] rows = {6, 6, 5}, int64[4] heads = {2, 3, 6, 4}>"
    )
    found = fused(f"{body} {MERGE}", HEADS + ", float[2,1,6,5] m", constants=constants)
    assert found == f"[shape=[2,3,3,6,5,4,4], {LAYOUTS}, layoutBias=[0,30,0,5,1]](%q, %k, %v, %m)"


def test_multihead_attention_of_torch_puts_the_batch_second():
    """[rows, batch, width] split into [rows, batch · heads, columns]."""
    part = "{0}s = Reshape ({0}, split) {0}t = Transpose <perm = [1,0,2]> ({0}s) "
    body = (
        part.format("q") + part.format("k") + part.format("v") + "kt2 = Transpose <perm = [0,2,1]> (kt)"
        "s = MatMul (qt, kt2) p = Softmax (s) o = MatMul (p, vt) t = Transpose <perm = [1,0,2]> (o)"
        "y = Reshape (t, merge)"
    )
    constants = "<int64[3] split = {5, 6, 4}, int64[3] merge = {5, 2, 12}>"
    inputs = "float[5,2,12] q, float[5,2,12] k, float[5,2,12] v"
    assert fused(body, inputs, "float[5,2,12] y", constants) == (
        "[shape=[6,1,1,5,5,4,4], layoutQ=[0,4,0,24,1], layoutK=[0,4,0,24,1], layoutV=[0,4,0,24,1], "
        "layoutY=[0,4,0,24,1]](%q, %k, %v)"
    )


def test_softmax_in_fp32_between_products_in_fp16():
    body = """s = MatMul (q, kt) w = Cast <to = 1> (s) a = Add (w, m) p = Softmax (a)
        h = Cast <to = 10> (p) y = MatMul (h, v)"""
    inputs = "float16[1,3,6,4] q, float16[1,3,4,5] kt, float16[1,3,5,4] v, float[6,5] m"
    found = fused(body, inputs, "float16[1,3,6,4] y", "")
    assert found == "[shape=[1,3,3,6,5,4,4], layoutK=[0,0,20,1,5], layoutBias=[0,0,0,5,1]](%q, %kt, %v, %m)"


def test_a_transpose_that_others_read_stays_for_them():
    body = f"{SPLIT} s = MatMul (qt, kt) p = Softmax (s) o = MatMul (p, vt) {MERGE} z = Neg (vt)"
    found = run_and_compare(
        parse(f"g ({HEADS}) => (float[2,6,12] y, float[2,3,5,4] z) {CONSTANTS} {{ {body} }}"), attention_pattern
    )
    assert "FusedAttention" in found
    assert "%vt = Transpose" in found
    assert "%kt" not in found


@pytest.mark.parametrize(
    "body",
    [
        "s = MatMul (q, kt) p = Softmax (s) y = MatMul (v, p)",  # probabilities on the right
        "s = MatMul (q, kt) p = Softmax <axis = 1> (s) y = MatMul (p, v)",
        "s = MatMul (q, kt) n = Neg (s) p = Softmax (n) y = MatMul (p, v)",
        "s = MatMul (q, kt) p = Softmax (s) o = MatMul (p, v) e = ReduceSum (p) y = Mul (o, e)",  # others read
        "s = MatMul (q, kt) a = Add (s, m) d = Mul (a, half) p = Softmax (d) y = MatMul (p, v)",  # scaled mask
        "s = MatMul (q, kt) a = Add (s, m) b = Add (a, m) p = Softmax (b) y = MatMul (p, v)",
        "p = Softmax (m) y = MatMul (p, v)",
    ],
)
def test_kept(body):
    inputs = "float[1,3,5,5] q, float[1,3,5,5] kt, float[1,3,5,5] v, float[1,3,5,5] m"
    unchanged(parse(f"g ({inputs}) => (float[1,3,5,5] y) <float half = {{0.5}}> {{ {body} }}"), attention_pattern)


@pytest.mark.parametrize("dtype", ["float", "double"])
def test_wide_heads_are_kept(dtype):
    most = 256 if dtype == "float" else 128
    for columns in (most, most + 1):
        inputs = f"{dtype}[1,1,3,{columns}] q, {dtype}[1,1,{columns},3] kt, {dtype}[1,1,3,2] v"
        source = parse(
            f"g ({inputs}) => ({dtype}[1,1,3,2] y) {{ s = MatMul (q, kt) p = Softmax (s) y = MatMul (p, v) }}"
        )
        (run_and_compare if columns == most else unchanged)(source, attention_pattern)
