"""Shape inference goes through operators that ONNX has no rule for, or a wrong one, and agrees with onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from gossamer.model.edit import static_shape
from gossamer.model.load import load
from gossamer.model.passes import infer_shapes
from harness import ort
from our_operators import parse

F16, F32 = "FLOAT16", "FLOAT"


def inferred(graph: str, opset: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Type and shape of every named output of a node."""
    model = load(parse(graph, opset))
    infer_shapes(model)
    found = {}
    for node in model.graph:
        for value in node.outputs:
            if value.name:
                assert value.dtype is not None
                assert static_shape(value) is not None, f"{value.name}: {value.shape}"
                found[value.name] = (value.dtype.name, static_shape(value))
    return found


@pytest.mark.parametrize(("body", "shapes"), [
    ("y = com.microsoft.QuickGelu (x)", {"y": (F32, (2, 6, 8))}),
    ("y = com.microsoft.Gelu (x)", {"y": (F32, (2, 6, 8))}),
    ("y = com.microsoft.FastGelu (x, v)", {"y": (F32, (2, 6, 8))}),
    ("y = com.microsoft.BiasGelu (x, v)", {"y": (F32, (2, 6, 8))}),
    ("y = com.microsoft.BiasSoftmax <axis = 2, is_inner_broadcast = 0> (x, x)", {"y": (F32, (2, 6, 8))}),
    ("y = com.microsoft.SimplifiedLayerNormalization <axis = -1> (h, hv)", {"y": (F16, (2, 6, 8))}),
    ("y, s = com.microsoft.SimplifiedLayerNormalization <axis = 1> (h, hv)",
     {"y": (F16, (2, 6, 8)), "s": (F32, (2, 1, 1))}),
    ("y = com.microsoft.SkipLayerNormalization (h, h, hv)", {"y": (F16, (2, 6, 8))}),
    ("y, u, s, t = com.microsoft.SkipLayerNormalization (h, h, hv)",
     {"y": (F16, (2, 6, 8)), "u": (F32, (2, 6, 1)), "s": (F32, (2, 6, 1)), "t": (F16, (2, 6, 8))}),
    ("y, , , t = com.microsoft.SkipSimplifiedLayerNormalization (h, h, hv)",
     {"y": (F16, (2, 6, 8)), "t": (F16, (2, 6, 8))}),
    ("y = com.microsoft.RotaryEmbedding (x, i, w, w)", {"y": (F32, (2, 6, 8))}),
    ("y = com.microsoft.FusedGemm <transB = 1, activation = \"Relu\"> (m, n)", {"y": (F32, (3, 5))}),
    ("y = com.microsoft.FusedMatMul <alpha = 2.0> (x, k)", {"y": (F32, (2, 6, 4))}),
    ("y = com.microsoft.FusedMatMul <transA = 1> (x, x)", {"y": (F32, (2, 8, 8))}),
    ("y = com.microsoft.FusedMatMul <transB = 1> (x, x)", {"y": (F32, (2, 6, 6))}),
    ("y = com.microsoft.FusedMatMul <transA = 1, transB = 1> (x, g)", {"y": (F32, (2, 8, 7))}),
    ("y = com.microsoft.FusedMatMul <transBatchA = 1, transBatchB = 1> (x, b)", {"y": (F32, (6, 2, 5))}),
    ("y = com.microsoft.FusedMatMul <transBatchA = 1, transA = 1> (x, c)", {"y": (F32, (6, 8, 3))}),
    ("y = com.microsoft.FusedConv <activation = \"Relu\", pads = [1,1,1,1]> (p, q)", {"y": (F32, (1, 2, 5, 5))}),
    ("y = com.microsoft.FusedConv <activation = \"Relu\", strides = [2,2]> (p, q)", {"y": (F32, (1, 2, 2, 2))}),
    ("y = com.microsoft.NhwcFusedConv <activation = \"Relu\", pads = [1,1,1,1]> (l, q)", {"y": (F32, (1, 6, 5, 2))}),
    ("y = com.microsoft.NhwcConv <strides = [2,1]> (l, r)", {"y": (F32, (1, 2, 3, 2))}),
    ("y = com.microsoft.GroupNorm <groups = 2, activation = 1> (l, e, e)", {"y": (F32, (1, 6, 5, 4))}),
    ("y, s = com.microsoft.SkipGroupNorm <groups = 2, activation = 0> (l, e, e, l)",
     {"y": (F32, (1, 6, 5, 4)), "s": (F32, (1, 6, 5, 4))}),
    ("t = com.microsoft.QuickGelu (x) y = Neg (t)", {"t": (F32, (2, 6, 8)), "y": (F32, (2, 6, 8))}),
])  # fmt: skip
def test_operators_of_onnxruntime(body, shapes):
    inputs = (
        "float[2,6,8] x, float[8] v, float16[2,6,8] h, float16[8] hv, int64[1] i, float[9,2] w, float[3,4] m, "
        "float[5,4] n, float[2,8,4] k, float[2,7,6] g, float[8,6,5] b, float[6,2,3] c, float[1,4,5,5] p, "
        "float[2,4,3,3] q, float[1,6,5,4] l, float[2,3,3,4] r, float[4] e"
    )
    kind = "float16" if shapes["y"][0] == F16 else "float"
    assert inferred(f"g ({inputs}) => ({kind}[] y) {{ {body} }}", 17) == shapes


@pytest.mark.parametrize("opset", [11, 17])
def test_norms_that_onnxruntime_adds_to_onnx(opset):
    source = """g (float16[2,6,8] x, float16[8] v) => (float16[] y) {
        t, , s = LayerNormalization <axis = -1> (x, v)
        y = SimplifiedLayerNormalization <axis = -1> (t, v) }"""
    assert inferred(source, opset) == {"t": (F16, (2, 6, 8)), "s": (F32, (2, 6, 1)), "y": (F16, (2, 6, 8))}


@pytest.mark.parametrize("opset", [7, 11, 13, 21])
def test_computed_shapes_are_found_in_one_go(opset):
    """Integers are followed whatever the opset, as PyTorch and Paddle write shape computations."""
    one = "u = Unsqueeze <axes = [0]> (c)" if opset < 13 else "u = Unsqueeze (c, zero)"
    source = f"""g (float[2,3,4,5] x) => (float[] y, float[] z)
        <int64 two = {{2}}, int64[1] zero = {{0}}, int64[1] rest = {{-1}}> {{
          s = Shape (x)
          i = Cast <to = 6> (s)
          g = Gather (i, two)
          c = Cast <to = 7> (g)
          {one}
          w = Concat <axis = 0> (u, rest)
          y = Reshape (x, w)
          z = Reshape (y, s) }}"""
    found = inferred(source, opset)
    assert (found["y"], found["z"]) == ((F32, (4, 30)), (F32, (2, 3, 4, 5)))


@pytest.mark.parametrize(("opset", "body"), [
    (7, "y = Upsample <scales = [1.0, 1.0, 2.0, 1.5]> (x)"),
    (9, "y = Upsample (x, scales)"),
    (10, "y = Resize (x, scales)"),
    (11, "y = Resize (x, none, scales)"),
    (11, "y = Resize (x, none, none, sizes)"),
    (13, "y = Resize (x, , scales)"),
    (18, "y = Resize (x, , scales)"),
    (21, "y = Resize (x, , , sizes)"),
])  # fmt: skip
def test_forms_of_older_opsets_are_read_as_such(opset, body):
    source = f"""g (float[1,2,4,6] x) => (float[] y)
        <float[4] scales = {{1,1,2,1.5}}, float[0] none = {{}}, int64[4] sizes = {{1,2,8,9}}> {{ {body} }}"""
    assert inferred(source, opset)["y"] == (F32, (1, 2, 8, 9))


@pytest.mark.parametrize("opset", [18, 21])
def test_group_normalization(opset):
    groups = 2 if opset < 21 else 4
    source = f"""g (float[2,4,3,3] x, float[{groups}] s, float[{groups}] b) => (float[a,b,c,d] y)
        {{ y = GroupNormalization <num_groups = 2> (x, s, b) }}"""
    assert inferred(source, opset) == {"y": (F32, (2, 4, 3, 3))}


def test_mean_variance_normalization_of_the_default_axes():
    source = "g (float16[2,4,3,3] x) => (float16[a,b,c,d] y) { y = MeanVarianceNormalization (x) }"
    assert inferred(source, 13) == {"y": (F16, (2, 4, 3, 3))}


@pytest.mark.parametrize(("opset", "outputs", "attributes"), [
    (7, "y, m, v, n, w", ""), (9, "y, m, v, n, w", ""), (14, "y, m, v", "<training_mode = 1>"),
    (15, "y", "<training_mode = 1>"), (15, "y, , v", "<training_mode = 1>"), (15, "y", ""),
])  # fmt: skip
def test_batch_normalization_and_its_statistics(opset, outputs, attributes):
    source = f"""g (float[2,4,5] x, float[4] s, float[4] b, float[4] e, float[4] u) => (float[i,j,k] y)
        {{ {outputs} = BatchNormalization {attributes} (x, s, b, e, u) }}"""
    want = {name.strip(): (F32, (4,)) for name in outputs.split(",") if name.strip()} | {"y": (F32, (2, 4, 5))}
    assert inferred(source, opset) == want


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("opset", [18, 21])
def test_pad_with_axes(opset, dtype):
    source = f"""g (float[2,3,4] x) => (float[a,b,c] y)
        <int64[4] pads = {{1, 2, 0, 1}}, {dtype}[2] axes = {{-1, 0}}> {{ y = Pad (x, pads, , axes) }}"""
    assert inferred(source, opset) == {"y": (F32, (5, 3, 5))}


def test_max_unpool_to_a_given_shape():
    source = """g (float16[1,1,2,2] x, int64[1,1,2,2] i) => (float16[a,b,c,d] y) <int64[4] s = {1,1,5,5}>
        { y = MaxUnpool <kernel_shape = [2,2], strides = [2,2]> (x, i, s) }"""
    assert inferred(source, 11) == {"y": (F16, (1, 1, 5, 5))}


@pytest.mark.parametrize("opset", [11, 17, 19, 21, 22])
@pytest.mark.parametrize("pool", ["AveragePool", "MaxPool"])
@pytest.mark.parametrize(("extent", "attributes"), [
    (4, "kernel_shape = [2], strides = [3], pads = [1,1], ceil_mode = 1"),
    (7, "kernel_shape = [3], strides = [2], ceil_mode = 1"),
    (8, "kernel_shape = [3], strides = [2], ceil_mode = 1"),
    (8, "kernel_shape = [3], strides = [2], ceil_mode = 0, pads = [1,1]"),
])  # fmt: skip
def test_windows_that_would_start_in_the_padding_at_the_end(opset, pool, extent, attributes):
    source = f"g (float[1,1,{extent}] x) => (float[a,b,c] y) {{ y = {pool} <{attributes}> (x) }}"
    (wanted,) = ort(parse(source, opset), {"x": np.ones((1, 1, extent), np.float32)})
    assert inferred(source, opset)["y"] == (F32, wanted.shape)


def test_indices_of_such_a_pool():
    source = """g (float[1,1,4] x) => (float[a,b,c] y, int64[d,e,f] i)
        { y, i = MaxPool <kernel_shape = [2], strides = [3], pads = [1,1], ceil_mode = 1> (x) }"""
    assert inferred(source, 12) == {"y": (F32, (1, 1, 2)), "i": ("INT64", (1, 1, 2))}
