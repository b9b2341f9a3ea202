from __future__ import annotations

import logging

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from gossamer.model.load import load
from gossamer.model.passes import fold_constants, infer_shapes
from gossamer.model.passes.fold_constants import FOLDED


def test_whole_expressions(bench, text):
    assert bench.after(
        fold_constants,
        """
        g (float[4] x) => (float[4] y)
        <float a = {0.5}, float[4] b = {1.0, 2.0, 3.0, 4.0}>
        {
          c = Mul (a, b)
          d = Sqrt (c)
          e = Mul (d, d)
          y = Add (x, e)
        }""",
        1e-6,
    ) == text("""
        graph g(%x : float32[4]) {
          %a : float32[] = {0.5}
          %b : float32[4] = {1,2,3,4}
          %e : float32[4] = {0.5,1,1.5,2}
          %y = Add(%x, %e) : float32[4]
          return %y
        }
    """)


def test_weights_that_are_stored_as_integers(bench):
    result = bench.after(
        fold_constants,
        """
        g (float[1,1,2,2] x) => (float[1,1,2,2] y)
        <int8[1,1,1,1] w = {64}, float k = {0.5}>
        {
          f = Cast <to = 1> (w)
          s = Mul (f, k)
          y = Conv (x, s)
        }""",
    )
    assert "%s : float32[1,1,1,1] = {32}" in result
    assert "%y = Conv(%x, %s)" in result


def test_computations_with_shapes_that_are_static(bench, text):
    """What PaddlePaddle's exporter makes of flatten."""
    assert bench.after(
        fold_constants,
        """
        g (float[2,3,4] x) => (float[2,12] y, int64 n)
        <int64[1] start = {0}, int64[1] end = {1}, int64[1] rest = {-1}>
        {
          s = Shape (x)
          f = Slice (s, start, end)
          c = Cast <to = 6> (f)
          d = Cast <to = 7> (c)
          t = Concat <axis = 0> (d, rest)
          y = Reshape (x, t)
          z = Size (x)
          n = Neg (z)
        }""",
    ) == text("""
        graph g(%x : float32[2,3,4]) {
          %start : int64[1] = {0}
          %end : int64[1] = {1}
          %rest : int64[1] = {-1}
          %t : int64[2] = {2,-1}
          %n_value : int64[] = {-24}
          %y = Reshape(%x, %t) : float32[2,12]
          %n = Identity(%n_value) : int64[]
          return %y, %n
        }
    """)


@pytest.mark.parametrize(
    ("bounds", "value"),
    [
        ("", "2,3,4"),
        ("start = 1", "3,4"),
        ("end = -1", "2,3"),
        ("start = -2, end = 2", "3"),
        ("start = -9, end = 9", "2,3,4"),
        ("start = 2, end = 1", ""),
    ],
)
def test_slices_of_shapes(bench, bounds, value):
    attributes = f"<{bounds}>" if bounds else ""
    result = bench.after(
        fold_constants, f"g (float[2,3,4] x) => (int64[n] y) {{ s = Shape {attributes} (x) y = Neg (s) }}"
    )
    negated = ",".join(f"-{dim}" for dim in value.split(",") if dim)
    assert f"= {{{negated}}}" in result


def test_branches_are_left_alone(bench):
    bench.keeps(
        fold_constants,
        """
        g (bool c, float[2] x) => (float[2] y)
        <float k = {2.0}>
        {
          y = If (c) <
            then_branch = t () => (float[2] r) { l = Mul (k, k) r = Mul (x, l) },
            else_branch = e () => (float[2] r) { s = Shape (x) r = Cast <to = 1> (s) }
          >
        }""",
    )


@pytest.mark.parametrize(
    "nodes",
    [
        "s = Shape (u) y = Cast <to = 1> (s)",  # a symbolic dimension
        "r = RandomUniform <shape = [2]> () y = Add (x, r)",
        "q = DequantizeLinear (w, k) y = Add (x, q)",  # kernels take quantised weights as they are
        "h = ReduceSum (halves) y = Cast <to = 1> (h)",  # NumPy would add up in 16 bits
        "e = Expand (k, much) y = ReduceSum (e)",
        "e = Tile (k1, many) y = ReduceSum (e)",
        "e = Range (n0, n9, n1) f = Cast <to = 1> (e) y = ReduceSum (f)",
        "e = Add (row, column) y = ReduceSum (e)",
        "y = Identity (k)",
    ],
)
def test_what_is_kept(bench, nodes):
    """Results over 256 MiB among them: they have to be recognised without being made."""
    zeros = ", ".join(["0.0"] * 12000)
    bench.keeps(
        fold_constants,
        f"""
        g (float[2] x, float[N,2] u) => (float[a] y)
        <int8[2] w = {{1, 2}}, float k = {{2.0}}, float[1] k1 = {{1.0}}, float16[2] halves = {{15360, 16384}},
         int64[2] much = {{1000000, 1000000}},
         int64[1] many = {{1000000000000}}, int64 n0 = {{0}}, int64 n9 = {{1000000000000}}, int64 n1 = {{1}},
         float[12000,1] row = {{{zeros}}}, float[12000] column = {{{zeros}}}>
        {{ {nodes} }}""",
    )


def test_constant_of_shape_of_any_size_is_stored_as_one_element(bench):
    model = bench.load("""
        g (float[1,20000] x) => (float[1,20000] y)
        <int64[2] shape = {20000, 20000}>
        { w = ConstantOfShape <value = float[1] {0.5}> (shape) y = MatMul (x, w) }""")
    assert fold_constants(model)
    array = model.graph.initializers["w"].const_value.numpy()
    assert array.shape == (20000, 20000)
    assert array.strides == (0, 0)
    assert array[19999, 19999] == 0.5


def test_a_node_that_cannot_be_evaluated_stays_and_is_logged(bench, caplog):
    with caplog.at_level(logging.INFO, logger="gossamer"):
        bench.keeps(
            fold_constants,
            """
            g (float[6] x) => (float[a] y)
            <float[6] k = {1.0,2.0,3.0,4.0,5.0,6.0}, int64[2] shape = {4, 4}>
            { r = Reshape (k, shape) y = ReduceSum (r) }""",
        )
    assert "Reshape 'Reshape_0' is not folded: onnx.reference cannot evaluate it" in caplog.text


I, F = np.int64, np.float32  # noqa: E741
FLOATS = np.array([[-2.5, -0.5, 0.0], [0.5, 1.5, 4.0]], F)
POSITIVE = np.abs(FLOATS) + F(0.25)
INTS = np.array([[-7, 7, -1], [8, 3, -9]], I)
ONE = np.array([1], I)
BOOLS = FLOATS > 0
OTHER = BOOLS[::-1].copy()
CASES = [
    ("Abs", [FLOATS], {}),
    ("Abs", [INTS], {}),
    ("Add", [FLOATS, POSITIVE[0]], {}),
    ("Add", [INTS, ONE], {}),
    ("And", [BOOLS, OTHER], {}),
    ("BitwiseAnd", [INTS, INTS[::-1].copy()], {}),
    ("BitwiseNot", [INTS], {}),
    ("BitwiseOr", [INTS, ONE], {}),
    ("BitwiseXor", [INTS, ONE], {}),
    ("Cast", [FLOATS], {"to": 7}),
    ("Cast", [FLOATS], {"to": 9}),
    ("Cast", [INTS], {"to": 1}),
    ("Cast", [FLOATS], {"to": 10}),
    ("Cast", [INTS.astype(np.int8)], {"to": 1}),
    ("Cast", [FLOATS * F(1 / 3)], {"to": 16}),
    ("Ceil", [FLOATS], {}),
    ("Clip", [FLOATS, np.array(-1, F), np.array(1, F)], {}),
    ("Clip", [INTS, np.array(0, I)], {}),
    ("Concat", [FLOATS, POSITIVE], {"axis": -1}),
    ("ConstantOfShape", [np.array([2, 3], I)], {}),
    ("Cos", [FLOATS], {}),
    ("CumSum", [FLOATS, np.array(1, I)], {"reverse": 1, "exclusive": 1}),
    ("Div", [INTS, np.array([[2, -2, 4], [-3, 2, 4]], I)], {}),
    ("Div", [INTS * 2**60, np.array([3], I)], {}),
    ("Div", [FLOATS, FLOATS], {}),
    ("Equal", [INTS, INTS[::-1].copy()], {}),
    ("Exp", [FLOATS], {}),
    ("Expand", [FLOATS, np.array([4, 1, 3], I)], {}),
    ("Flatten", [np.ones((2, 3, 4), F)], {"axis": 2}),
    ("Floor", [FLOATS], {}),
    ("Gather", [INTS, np.array([[0, -1]], I)], {"axis": 1}),
    ("GatherElements", [INTS, np.array([[0, -1], [1, 1]], I)], {"axis": 1}),
    ("GatherND", [INTS, np.array([[0, 1], [1, -1]], I)], {}),
    ("Greater", [FLOATS, POSITIVE], {}),
    ("GreaterOrEqual", [INTS, ONE], {}),
    ("Identity", [FLOATS], {}),
    ("Less", [FLOATS, POSITIVE], {}),
    ("LessOrEqual", [INTS, ONE], {}),
    ("Log", [POSITIVE], {}),
    ("Max", [FLOATS, POSITIVE, F([1])], {}),
    ("Min", [INTS, ONE], {}),
    ("Mod", [INTS, np.array([[2, -2, 4], [-3, 2, 4]], I)], {}),
    ("Mod", [FLOATS, POSITIVE], {"fmod": 1}),
    ("Mod", [INTS, np.array([[2, -2, 4], [-3, 2, 4]], I)], {"fmod": 1}),
    ("Mul", [FLOATS, POSITIVE], {}),
    ("Neg", [INTS], {}),
    ("NonZero", [FLOATS], {}),
    ("Not", [BOOLS], {}),
    ("Or", [BOOLS, OTHER], {}),
    ("Pow", [POSITIVE, np.array(2, I)], {}),
    ("Pow", [INTS, np.array(2, F)], {}),
    ("Range", [np.array(7, I), np.array(-2, I), np.array(-3, I)], {}),
    ("Range", [np.array(0, F), np.array(1, F), np.array(0.3, F)], {}),
    ("Reciprocal", [POSITIVE], {}),
    ("ReduceMax", [FLOATS, ONE], {}),
    ("ReduceMean", [FLOATS, ONE], {"keepdims": 0}),
    ("ReduceMin", [INTS], {}),
    ("ReduceProd", [INTS, np.array([-1], I)], {"keepdims": 0}),
    ("ReduceSum", [FLOATS, np.array([0, 1], I)], {}),
    ("ReduceSum", [FLOATS, np.array([], I)], {"noop_with_empty_axes": 1}),
    ("ReduceSum", [INTS], {"keepdims": 0}),
    ("Relu", [FLOATS], {}),
    ("Reshape", [INTS, np.array([0, -1, 1], I)], {}),
    ("Round", [FLOATS], {}),
    ("Shape", [FLOATS], {"start": -1}),
    ("Sign", [FLOATS], {}),
    ("Sin", [FLOATS], {}),
    ("Size", [FLOATS], {}),
    ("Slice", [INTS, np.array([-1], I), np.array([-9], I), ONE, np.array([-2], I)], {}),
    ("Split", [INTS, np.array([1, 2], I)], {"axis": 1}),
    ("Sqrt", [POSITIVE], {}),
    ("Squeeze", [INTS[None], np.array([0], I)], {}),
    ("Sub", [FLOATS, POSITIVE], {}),
    ("Sum", [FLOATS, POSITIVE, FLOATS], {}),
    ("Tile", [INTS, np.array([2, 1], I)], {}),
    ("Transpose", [INTS], {"perm": [1, 0]}),
    ("Transpose", [np.ones((2, 3, 4), F)], {}),
    ("Unsqueeze", [INTS, np.array([0, -1], I)], {}),
    ("Where", [BOOLS, FLOATS, POSITIVE], {}),
    ("Xor", [BOOLS, OTHER], {}),
]


def test_every_folded_operator_is_compared():
    assert {case[0] for case in CASES} == FOLDED


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes"), CASES, ids=[f"{index}-{case[0]}" for index, case in enumerate(CASES)]
)
def test_every_folded_operator_agrees_with_onnxruntime(op_type, inputs, attributes):
    outputs = ["y", "z"] if op_type == "Split" else ["y"]
    names = [f"i{index}" for index in range(len(inputs))]
    node = onnx.helper.make_node(op_type, names, outputs, **attributes)
    tensors = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in zip(names, inputs, strict=True)]
    results = [onnx.helper.make_empty_tensor_value_info(name) for name in outputs]
    proto = onnx.helper.make_model(
        onnx.helper.make_graph([node], "g", [], results, tensors),
        opset_imports=[onnx.helper.make_opsetid("", 18)],
        ir_version=8,
    )
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    typed = onnx.shape_inference.infer_shapes(proto)
    expected = onnxruntime.InferenceSession(
        typed.SerializeToString(), options, providers=["CPUExecutionProvider"]
    ).run_with_ort_values(None, {})
    model = load(proto)
    infer_shapes(model)
    if op_type == "Identity":  # a copy to an output stays
        assert not fold_constants(model)
        return
    assert fold_constants(model)
    for name, wanted in zip(outputs, expected, strict=True):
        output = next(value for value in model.graph.outputs if value.name == name)
        found = output.producer().inputs[0].const_value.numpy()
        if found.dtype == ml_dtypes.bfloat16:
            np.testing.assert_array_equal(
                found.astype(np.float32), inputs[0].astype(ml_dtypes.bfloat16).astype(np.float32)
            )
            continue
        array = wanted.numpy()
        assert found.dtype == array.dtype
        assert found.shape == array.shape
        np.testing.assert_allclose(found, array, rtol=0 if found.dtype.kind in "bi" else 1e-6)


def test_old_opsets_take_axes_as_attributes(bench_of):
    source = """
        g (float[2,1] x) => (float[a,b,c] y)
        <float[2,1] k = {1.0, 2.0}>
        { s = Squeeze <axes = [1]> (k) u = Unsqueeze <axes = [0, 2]> (s) y = Add (x, u) }"""
    assert "%u : float32[1,2,1] = {1,2}" in bench_of(11).after(fold_constants, source)


def test_bfloat16_weights():
    weight = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    k = onnx.helper.make_tensor("k", onnx.TensorProto.BFLOAT16, [2], weight.view(np.uint16).tobytes(), raw=True)
    nodes = [onnx.helper.make_node("Cast", ["k"], ["f"], to=1), onnx.helper.make_node("Add", ["x", "f"], ["y"])]
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy")
    model = load(
        onnx.helper.make_model(
            onnx.helper.make_graph(nodes, "g", [x], [y], [k]),
            opset_imports=[onnx.helper.make_opsetid("", 18)],
            ir_version=8,
        )
    )
    assert fold_constants(model)
    assert isinstance(model.graph.initializers["f"].const_value, ir.Tensor)
    np.testing.assert_array_equal(model.graph.initializers["f"].const_value.numpy(), np.array([1.5, -2.0], np.float32))
