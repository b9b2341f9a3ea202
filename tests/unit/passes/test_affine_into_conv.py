from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.model.load import load
from gossamer.model.passes import affine_into_conv, remove_unused, run_passes


def numbers(*shape, seed=0):
    random = np.random.default_rng(seed)
    return ", ".join(f"{value:.3f}" for value in random.uniform(0.5, 1.5, int(np.prod(shape))))


NORM = "float[2] s = {2.0, 3.0}, float[2] o = {1.0, 2.0}, float[2] m = {0.5, -1.0}, float[2] v = {4.0, 0.25}"
"""With epsilon 0, factors 1 and 6, shifts 0.5 and 8."""
WEIGHT = "float[2,3,1,1] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}"


def tidied(model):
    folded = affine_into_conv(model)
    return remove_unused(model) or folded


def test_batch_normalization(bench, text):
    assert bench.after(
        tidied,
        f"""
        g (float[1,3,4,4] x) => (float[1,2,4,4] y)
        <{WEIGHT}, {NORM}>
        {{
          c = Conv (x, w)
          n = BatchNormalization <epsilon = 0.0> (c, s, o, m, v)
          y = Relu (n)
        }}""",
        1e-5,
    ) == text("""
        graph g(%x : float32[1,3,4,4]) {
          %c_weight : float32[2,3,1,1] = {1,2,3,24,30,36}
          %c_bias : float32[2] = {0.5,8}
          %c = Conv(%x, %c_weight, %c_bias)
          %y = Relu(%c) : float32[1,2,4,4]
          return %y
        }
    """)


def test_learnt_scales_and_shifts_in_a_row_keep_the_outputs_name(bench, text):
    assert bench.after(
        tidied,
        f"""
        g (float[1,3,4,4] x) => (float[1,2,4,4] y)
        <{WEIGHT}, float[2] b = {{1.0, 2.0}}, float[1] k = {{2.0}},
         float[1,2,1,1] d = {{2.0, 4.0}}, float[2,1,1] o = {{0.5, 0.25}}, float t = {{1.0}}>
        {{
          c = Conv (x, w, b)
          e = Mul (k, c)
          f = Div (e, d)
          h = Add (f, o)
          y = Sub (t, h)
        }}""",
        1e-5,
    ) == text("""
        graph g(%x : float32[1,3,4,4]) {
          %c_weight_2 : float32[2,3,1,1] = {-1,-2,-3,-2,-2.5,-3}
          %c_bias_3 : float32[2] = {-0.5,-0.25}
          %y = Conv(%x, %c_weight_2, %c_bias_3) : float32[1,2,4,4]
          return %y
        }
    """)


def test_a_bias_alone_leaves_the_weight(bench, text):
    assert bench.after(
        tidied,
        """
        g (float[1,1,4] x) => (float[1,1,4] y)
        <float[1,1,1] w = {3.0}, float[1,1,1] o = {0.5}>
        { c = Conv (x, w) y = Add (c, o) }""",
    ) == text("""
        graph g(%x : float32[1,1,4]) {
          %w : float32[1,1,1] = {3}
          %c_bias : float32[1] = {0.5}
          %y = Conv(%x, %w, %c_bias) : float32[1,1,4]
          return %y
        }
    """)


def test_shared_weights_are_copied(bench):
    result = bench.after(
        tidied,
        f"""
        g (float[1,3,4,4] x) => (float[1,2,4,4] y, float[1,2,4,4] z)
        <{WEIGHT}, {NORM}>
        {{
          c = Conv (x, w)
          y = BatchNormalization (c, s, o, m, v)
          z = Conv (x, w)
        }}""",
        1e-5,
    )
    assert "%y = Conv(%x, %c_weight, %c_bias)" in result
    assert "%z = Conv(%x, %w)" in result


def test_a_squeeze_of_spatial_axes_is_looked_through(bench, text):
    """PaddlePaddle's one-dimensional convolutions."""
    assert bench.after(
        tidied,
        f"""
        g (float[1,3,1,4] x) => (float[1,2,4] y)
        <{WEIGHT}, {NORM}, int64[1] axes = {{2}}>
        {{
          c = Conv (x, w)
          q = Squeeze (c, axes)
          y = BatchNormalization <epsilon = 0.0> (q, s, o, m, v)
        }}""",
        1e-5,
    ) == text("""
        graph g(%x : float32[1,3,1,4]) {
          %axes : int64[1] = {2}
          %c_weight : float32[2,3,1,1] = {1,2,3,24,30,36}
          %c_bias : float32[2] = {0.5,8}
          %c = Conv(%x, %c_weight, %c_bias)
          %y = Squeeze(%c, %axes) : float32[1,2,4]
          return %y
        }
    """)


def test_gemm(bench, text):
    assert bench.after(
        tidied,
        f"""
        g (float[5,3] x) => (float[5,2] y)
        <float[2,3] w = {{1.0, 2.0, 3.0, 4.0, 5.0, 6.0}}, float[1,2] b = {{1.0, 2.0}}, {NORM}>
        {{
          c = Gemm <alpha = 0.5, beta = 2.0, transB = 1> (x, w, b)
          y = BatchNormalization <epsilon = 0.0> (c, s, o, m, v)
        }}""",
        1e-5,
    ) == text("""
        graph g(%x : float32[5,3]) {
          %c_weight : float32[2,3] = {1,2,3,24,30,36}
          %c_bias : float32[2] = {2.5,32}
          %y = Gemm[alpha=0.5, transB=1](%x, %c_weight, %c_bias) : float32[5,2]
          return %y
        }
    """)


@pytest.mark.parametrize(
    "nodes",
    [
        "c = Conv (x, w) y = BatchNormalization (c, s, o, m, i)",  # a variance that is an input
        "c = Conv (x, w) n = BatchNormalization (c, s, o, m, v) y = Add (n, c)",  # the convolution is read twice
        "c = Conv (x, w) y, rm, rv = BatchNormalization <training_mode = 1> (c, s, o, m, v)",
        "c = Relu (x) y = BatchNormalization (x, s, o, m, v)",
        "c = Conv (x, w) q = Squeeze (c, batch) y = Add (q, k)",  # the channel is no longer axis 1
        "c = Conv (x, w) q = Squeeze (c) y = Add (q, k)",
        "c = Conv (x, w) y = Div (k, c)",
        "c = Conv (x, w) y = Div (c, zero)",
        "c = Conv (x, w) y = Add (c, rows)",  # one value a column of the image, not a channel
        "c = Conv (x, w) y = Mul (c, image)",
        "c = Conv (x, w) y = Add (c, deeper)",
        "c = Conv (x, w) y = Mul (c, huge)",  # beyond the weight's type
        "c = Conv (x, w, i) y = Mul (c, k)",  # a bias that is an input
    ],
)
def test_refusals(bench, nodes):
    bench.keeps(
        affine_into_conv,
        f"""
        g (float[1,2,4,2] x, float[2] i) => (float y)
        <float[2,2,1,1] w = {{1.0, 2.0, 3.0, 4.0}}, {NORM}, float k = {{2.0}}, int64[1] batch = {{0}},
         float zero = {{0.0}}, float[2] rows = {{1.0, 2.0}}, float[1,1,4,2] image = {{{numbers(8)}}},
         float[1,1,1,1,1] deeper = {{1.0}}, float huge = {{3e38}}>
        {{ {nodes} }}""",
    )


def test_a_convolution_that_is_an_output_stays(bench):
    bench.keeps(
        affine_into_conv,
        f"""
        g (float[1,3,4,4] x) => (float[1,2,4,4] c, float[1,2,4,4] y)
        <{WEIGHT}, {NORM}>
        {{ c = Conv (x, w) y = BatchNormalization (c, s, o, m, v) }}""",
    )


def test_before_opset_14_more_outputs_mean_training_and_spatial_0_is_kept(bench_of):
    head = f"g (float[1,3,4,4] x) => (float[1,2,4,4] y) <{WEIGHT}, {NORM}>"
    bench_of(9).keeps(
        affine_into_conv, head + "{ c = Conv (x, w) y, rm, rv, sm, sv = BatchNormalization (c, s, o, m, v) }"
    )
    bench_of(7).keeps(
        affine_into_conv, head + "{ c = Conv (x, w) y = BatchNormalization <spatial = 0> (c, s, o, m, v) }"
    )
    assert "BatchNormalization" not in bench_of(7).after(
        affine_into_conv, head + "{ c = Conv (x, w) y = BatchNormalization (c, s, o, m, v) }", 1e-5
    )


@st.composite
def convolutions(draw):
    """Conv or ConvTranspose with BatchNormalization, as attributes and shapes."""
    transposed, groups, rank = draw(st.booleans()), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    per_group_in, per_group_out = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    channels, kernel = groups * per_group_in, [draw(st.integers(1, 3)) for _ in range(rank)]
    weight = (channels, per_group_out, *kernel) if transposed else (groups * per_group_out, per_group_in, *kernel)
    return {
        "transposed": transposed,
        "group": groups,
        "x": (2, channels, *[4] * rank),
        "weight": weight,
        "outputs": groups * per_group_out,
        "bias": draw(st.booleans()),
        "seed": draw(st.integers(0, 999)),
    }


@settings(max_examples=40, deadline=None)
@given(convolutions())
def test_random_convolutions_give_the_same_numbers(case):
    random = np.random.default_rng(case["seed"])
    outputs = case["outputs"]
    weights = {
        "w": random.standard_normal(case["weight"]),
        "s": random.standard_normal(outputs),
        "o": random.standard_normal(outputs),
        "m": random.standard_normal(outputs),
        "v": random.uniform(0.1, 2, outputs),
    }
    if case["bias"]:
        weights["b"] = random.standard_normal(outputs)
    kind = onnx.TensorProto.FLOAT
    nodes = [
        onnx.helper.make_node(
            "ConvTranspose" if case["transposed"] else "Conv",
            ["x", "w", *(["b"] if case["bias"] else [])],
            ["c"],
            group=case["group"],
        ),
        onnx.helper.make_node("BatchNormalization", ["c", "s", "o", "m", "v"], ["y"], epsilon=1e-3),
    ]
    tensors = [onnx.numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    graph = onnx.helper.make_graph(
        nodes,
        "g",
        [onnx.helper.make_tensor_value_info("x", kind, case["x"])],
        [onnx.helper.make_tensor_value_info("y", kind, None)],
        tensors,
    )
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8)
    model = load(proto)
    assert run_passes(model, (affine_into_conv, remove_unused))
    assert [node.op_type for node in model.graph] == [nodes[0].op_type]
    x = random.standard_normal(case["x"]).astype(np.float32)
    expected, found = (run(p, x) for p in (proto, ir.to_proto(model)))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def run(proto, x):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def test_half_precision_is_rounded_once(bench):
    random = np.random.default_rng(0)
    w, s, v = (random.uniform(0.5, 2, shape).astype(np.float16) for shape in ((2, 3, 1, 1), 2, 2))
    zero = np.zeros(2, np.float16)
    arrays = {"w": w, "s": s, "o": zero, "m": zero, "v": v}
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Conv", ["x", "w"], ["c"]),
            onnx.helper.make_node("BatchNormalization", ["c", "s", "o", "m", "v"], ["y"]),
        ],
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT16, [1, 3, 4, 4])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT16, [1, 2, 4, 4])],
        [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    model = load(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8))
    assert affine_into_conv(model)
    found = model.graph.initializers["c_weight"].const_value.numpy()
    factor = s.astype(np.float64) / np.sqrt(v.astype(np.float64) + np.float32(1e-5))
    np.testing.assert_array_equal(found, (w.astype(np.float64) * factor.reshape(2, 1, 1, 1)).astype(np.float16))
