from __future__ import annotations

import pytest

from gossamer.model.load import load
from gossamer.model.passes import infer_shapes, run_passes
from gossamer.model.passes.elementwise_chains import elementwise_chains
from gossamer.model.passes.matmul_epilogue import matmul_epilogue
from gossamer.model.passes.rms_norm_pattern import rms_norm_pattern
from gossamer.model.passes.skip_norm import skip_norm
from our_operators import parse, run_and_compare, unchanged

INPUTS = "float[2,3,8] x, float[2,3,8] z"
WEIGHTS = ", ".join(f"float[8] {name} = {{1.5,2.5,3.5,4.5,5.5,6.5,7.5,8.5}}" for name in ("g", "h", "c"))
OUTPUT = "float[2,3,8] y"
NORM = "LayerNormalization <axis = -1, epsilon = 0.01>"
RMS_NORM = "SimplifiedLayerNormalization <axis = -1, epsilon = 0.01>"


def model(body: str, inputs: str = INPUTS, outputs: str = OUTPUT, opset: int = 20):
    return parse(f"g ({inputs}) => ({outputs}) <{WEIGHTS}> {{ {body} }}", opset)


def merged(body: str, *passes, **rest) -> str:
    result = run_and_compare(model(body, **rest), *passes, skip_norm)
    (line,) = (line.strip() for line in result.splitlines() if "Skip" in line)
    return line.partition(" : ")[0].replace("[epsilon=0.01]", "").replace("com.microsoft::", "")


def kept(body: str, **rest) -> None:
    unchanged(model(body, **rest), skip_norm)


def test_text(text):
    body = f"b = Add (x, c) s = Add (b, z) y = {NORM} (s, g, h) u = Neg (s)"
    assert run_and_compare(model(body, outputs=f"{OUTPUT}, float[2,3,8] u"), skip_norm) == text("""
        graph g(%x : float32[2,3,8], %z : float32[2,3,8]) {
          %g : float32[8] = {1.5,2.5,3.5,4.5,5.5,6.5,7.5,8.5}
          %h : float32[8] = {1.5,2.5,3.5,4.5,5.5,6.5,7.5,8.5}
          %c : float32[8] = {1.5,2.5,3.5,4.5,5.5,6.5,7.5,8.5}
          %y, _, _, %s = com.microsoft::SkipLayerNormalization[epsilon=0.01](%x, %z, %g, %h, %c) : float32[2,3,8], float32[2,3,8]
          %u = Neg(%s) : float32[2,3,8]
          return %y, %u
        }
        """)  # noqa: E501


def test_nobody_else_reads_the_sum():
    assert merged(f"s = Add (x, z) y = {NORM} (s, g)") == "%y = SkipLayerNormalization(%x, %z, %g)"


def test_the_sum_is_returned():
    found = merged(f"s = Add (x, z) y = {NORM} (s, g, h)", outputs=f"{OUTPUT}, float[2,3,8] s")
    assert found == "%y, _, _, %s = SkipLayerNormalization(%x, %z, %g, %h)"


def test_position_embeddings_repeat_for_each_sequence():
    found = merged(f"s = Add (z, x) y = {NORM} (s, g, h)", inputs="float[2,3,8] x, float[1,3,8] z")
    assert found == "%y = SkipLayerNormalization(%x, %z, %g, %h)"


def test_a_bias_on_the_other_summand():
    assert (
        merged(f"b = Add (z, c) s = Add (x, b) y = {NORM} (s, g)") == "%y = SkipLayerNormalization(%z, %x, %g, _, %c)"
    )


def test_rms_norm():
    body = "s = Add (x, z) q = Mul (s, s) v = ReduceMean <keepdims = 1> (q, a) e = Add (v, eps) r = Sqrt (e)"
    body += " n = Div (s, r) y = Mul (n, g) u = MatMul (s, w)"
    constants = f"<{WEIGHTS}, int64[1] a = {{2}}, float eps = {{0.01}}>"
    inputs = f"{INPUTS}, float[8,5] w"
    source = f"g ({inputs}) => ({OUTPUT}, float[2,3,5] u) {constants} {{ {body} }}"
    result = run_and_compare(parse(source), rms_norm_pattern, skip_norm)
    assert "%y, _, _, %s = com.microsoft::SkipSimplifiedLayerNormalization[epsilon=0.01](%x, %z, %g)" in result


@pytest.mark.parametrize(
    ("inputs", "output"),
    [
        ("float[2,2,3,8] x, float[1,1,3,8] z", "float[2,2,3,8] y"),  # rank 4
        ("float[6,8] x, float[6,8] z, float[1,8] k", "float[6,8] y"),  # the scale has rank 2
    ],
)
def test_outside_of_onnxruntimes_schema(inputs, output):
    scale = "k" if "k" in inputs else "g"
    found = merged(f"s = Add (x, z) y = {NORM} (s, {scale})", inputs=inputs, outputs=output)
    assert found == f"%y = gossamer::SkipLayerNormalization(%x, %z, %{scale})"


def test_products_do_additions_themselves():
    body = f"p = MatMul (x, w) s = Add (p, z) y = {NORM} (s, g, h)"
    source = model(body, inputs=f"{INPUTS}, float[8,8] w")
    result = run_and_compare(source, matmul_epilogue, skip_norm)
    assert "%s = gossamer::FusedMatMul(%x, %w, _, %z)" in result
    assert "Skip" not in result


def test_elementwise_kernels_do_additions_themselves():
    body = f"e = Exp (x) s = Add (e, z) y = {NORM} (s, g, h)"
    kept(body)
    graph = load(model(body))
    infer_shapes(graph)
    run_passes(graph, (skip_norm, elementwise_chains))
    assert [node.op_type for node in graph.graph] == ["Elementwise", "LayerNormalization"]


@pytest.mark.parametrize(
    "body",
    [
        f"s = Add (x, x) y = {NORM} (s, g, h)",
        f"s = Add (x, c) y = {NORM} (s, g, h)",  # one value per column: no residual
        f"s = Add (x, column) y = {NORM} (s, g, h)",
        f"s = Mul (x, z) y = {NORM} (s, g, h)",
        "s = Add (x, z) y = LayerNormalization <axis = 1> (s, whole)",
        f"s = Add (x, z) t = Abs (c) y = {NORM} (s, t)",  # a computed scale might come of the sum
    ],
)
def test_kept(body):
    kept(body, inputs=f"{INPUTS}, float[2,3,1] column, float[3,8] whole")


def test_kept_where_statistics_are_asked_for():
    outputs = f"{OUTPUT}, float[2,3,1] m"
    kept("s = Add (x, z) y, m = LayerNormalization <axis = -1> (s, g)", outputs=outputs)
