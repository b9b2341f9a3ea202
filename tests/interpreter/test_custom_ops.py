"""Custom operators in the interpreter: NumPy arrays in, NumPy arrays out, among kernels, CPU nodes and views."""

from __future__ import annotations

import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, parser

import gossamer
from gossamer import custom_ops
from gossamer.custom_ops import CustomNode, TensorInfo
from gossamer.errors import CudnnUnavailable

HEAD = '<ir_version: 10, opset_import: ["": 21, "my": 1]>'
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom_ops, "_operators", {})


def session_of(model: str | bytes, *more: str, **options: object) -> gossamer.InferenceSession:
    source = parser.parse_model(model).SerializeToString() if isinstance(model, str) else model
    return gossamer.InferenceSession(
        source, providers=[("CUDAExecutionProvider", {"device": "interpreter", **options}), *more]
    )


def register_scale() -> None:
    @gossamer.custom_op("my", "Scale")
    def scale(ctx: gossamer.KernelContext) -> None:
        assert (ctx.stream, ctx.device_id) == (0, 0)
        (x,), (y,) = ctx.inputs, ctx.outputs
        assert isinstance(x, np.ndarray)
        np.multiply(x, x.dtype.type(ctx.attributes["factor"]), out=y)


def test_among_kernels_for_several_signatures() -> None:
    register_scale()
    text = f"""{HEAD} g (float[n,4] x) => (float[n,4] y) <float[4] w = {{1, 2, 3, 4}}> {{
        a = Relu(x) b = my.Scale <factor = 2.0> (a) c = Add(b, w) d = my.Scale <factor = 3.0> (c) y = Neg(d) }}"""
    with session_of(text) as session:
        for rows in (3, 1, 5, 3):
            x = RNG.standard_normal((rows, 4)).astype(np.float32)
            (y,) = session.run(None, {"x": x})
            np.testing.assert_allclose(y, -3 * (2 * np.maximum(x, 0) + [1, 2, 3, 4]), rtol=1e-6)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64", "float8_e4m3fn"]
)
def test_every_type_of_element(dtype: str) -> None:
    given = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    number = getattr(TensorProto, {"bfloat16": "BFLOAT16", "float8_e4m3fn": "FLOAT8E4M3FN"}.get(dtype, ""), None)
    number = number or helper.np_dtype_to_tensor_dtype(given)

    @gossamer.custom_op("my", "Reverse")
    def reverse(ctx: gossamer.KernelContext) -> None:
        assert ctx.inputs[0].dtype == ctx.outputs[0].dtype == given
        ctx.outputs[0][...] = ctx.inputs[0][::-1]

    x, y = (helper.make_tensor_value_info(name, number, [6]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Reverse", ["x"], ["y"], domain="my")], "g", [x], [y])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("my", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    array = np.arange(6).astype(given)
    with session_of(model.SerializeToString()) as session:
        (result,) = session.run(None, {"x": array})
    np.testing.assert_array_equal(result, array[::-1])


def test_several_outputs_omitted_ones_and_omitted_inputs() -> None:
    def outputs(node: CustomNode, *inputs: TensorInfo | None) -> list[Any]:
        x = inputs[0]
        assert x is not None
        return [(x.shape[:1], "int64"), ((), "float32"), x]

    @gossamer.custom_op("my", "Parts", outputs=outputs)
    def parts(ctx: gossamer.KernelContext) -> None:
        x, nothing, bias = ctx.inputs
        where, nowhere, shifted = ctx.outputs
        assert nothing is None
        assert nowhere is None
        where[...] = x.argmax(1)
        shifted[...] = x + bias

    text = f"""{HEAD} g (float[n,4] x) => (where, shifted) <float[4] bias = {{1, 2, 3, 4}}> {{
        where, , shifted = my.Parts(x, , bias) }}"""
    x = RNG.standard_normal((3, 4)).astype(np.float32)
    with session_of(text) as session:
        where, shifted = session.run(None, {"x": x})
    np.testing.assert_array_equal(where, x.argmax(1))
    np.testing.assert_array_equal(shifted, x + np.float32([1, 2, 3, 4]))


def test_views_and_scalars_and_constants() -> None:
    """Inputs that are a part of another buffer, and outputs that are read through one."""
    register_scale()
    text = f"""{HEAD} g (float[4,8] x) => (y, k) <int64[1] one = {{1}}, int64[1] three = {{3}}, int64[1] zero = {{0}},
            int64[2] flat = {{4, 4}}, float half = {{0.5}}> {{
        rows = Slice(x, one, three, zero)
        scaled = my.Scale <factor = 2.0> (rows)
        y = Reshape(scaled, flat)
        k = my.Scale <factor = 3.0> (half)
    }}"""
    x = RNG.standard_normal((4, 8)).astype(np.float32)
    with session_of(text) as session:
        y, k = session.run(None, {"x": x})
        calls = [type(call).__name__ for call in session.program({"x": x}).calls]
    assert calls.count("View") == 2
    np.testing.assert_array_equal(y, (2 * x[1:3]).reshape(4, 4))
    assert k.shape == ()
    assert k == 1.5


def test_tensors_of_nothing() -> None:
    register_scale()
    text = f"{HEAD} g (float[n,4] x) => (y) {{ a = my.Scale <factor = 2.0> (x) y = Relu(a) }}"
    with session_of(text) as session:
        (y,) = session.run(None, {"x": np.zeros((0, 4), np.float32)})
    assert y.shape == (0, 4)


def test_beside_nodes_of_the_cpu() -> None:
    register_scale()
    text = f"""{HEAD} g (float[3,3] x) => (y, found) {{
        d = Det(x) a = Mul(x, d) b = my.Scale <factor = 2.0> (a) found = NonZero(b) c = my.Scale <factor = 0.5> (b)
        e = Det(c) y = Add(c, e) }}"""
    x = np.float32([[2, 0, 0], [0, 1, 0], [0, 0, 3]])
    with session_of(text, "CPUExecutionProvider") as session:
        y, found = session.run(None, {"x": x})
        kinds = [type(call).__name__ for call in session.program({"x": x}).calls]
    assert kinds.count("HostCall") >= 2
    np.testing.assert_allclose(y, 6 * x + np.linalg.det(6 * x), rtol=1e-6)
    np.testing.assert_array_equal(found, np.nonzero(x))


def test_an_input_and_an_initializer_that_nothing_else_reads() -> None:
    @gossamer.custom_op("my", "Add")
    def add(ctx: gossamer.KernelContext) -> None:
        np.add(*ctx.inputs, out=ctx.outputs[0])

    text = f"{HEAD} g (float[3] x) => (y) <float[3] w = {{1, 2, 3}}> {{ y = my.Add(x, w) }}"
    with session_of(text) as session:
        for _ in range(2):
            np.testing.assert_array_equal(session.run(None, {"x": np.float32([1, 1, 1])})[0], [2, 3, 4])


def test_arrays_speak_dlpack() -> None:
    @gossamer.custom_op("my", "Copy")
    def copy(ctx: gossamer.KernelContext) -> None:
        x, y = np.from_dlpack(ctx.inputs[0]), ctx.outputs[0]
        assert np.shares_memory(x, ctx.inputs[0])
        assert y.__dlpack_device__() == (1, 0)
        y[...] = x

    with session_of(f"{HEAD} g (float[3] x) => (y) {{ y = my.Copy(x) }}") as session:
        np.testing.assert_array_equal(session.run(None, {"x": np.float32([1, 2, 3])})[0], [1, 2, 3])


def test_tensors_among_attributes() -> None:
    @gossamer.custom_op("my", "Lookup", outputs=lambda node, x: [(x.shape, node.attributes["table"].dtype)])
    def lookup(ctx: gossamer.KernelContext) -> None:
        ctx.outputs[0][...] = ctx.attributes["table"][ctx.inputs[0]]

    x = helper.make_tensor_value_info("x", TensorProto.INT64, ["n"])
    table = helper.make_tensor("table", TensorProto.FLOAT16, [3], [0.5, 1.5, 2.5])
    node = helper.make_node("Lookup", ["x"], ["y"], domain="my", table=table)
    graph = helper.make_graph([node], "g", [x], [helper.make_tensor_value_info("y", TensorProto.FLOAT16, ["n"])])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("my", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    with session_of(model.SerializeToString()) as session:
        (y,) = session.run(None, {"x": np.int64([2, 0, 1, 2])})
    np.testing.assert_array_equal(y, np.float16([2.5, 0.5, 1.5, 2.5]))


def test_what_it_raises_leaves_run_and_the_session_stays_usable() -> None:
    class Own(Exception):
        pass

    @gossamer.custom_op("my", "Picky")
    def picky(ctx: gossamer.KernelContext) -> None:
        if ctx.inputs[0].min() < 0:
            raise Own("negative")
        ctx.outputs[0][...] = ctx.inputs[0]

    with session_of(f"{HEAD} g (float[2] x) => (y) {{ [the_node] y = my.Picky(x) }}") as session:
        with pytest.raises(Own, match="negative") as caught:
            session.run(None, {"x": np.float32([-1, 1])})
        assert caught.value.__notes__ == ["in custom operator my.Picky (node 'the_node')"]
        np.testing.assert_array_equal(session.run(None, {"x": np.float32([2, 1])})[0], [2, 1])


def test_replacing_reaches_sessions_that_exist() -> None:
    register_scale()
    with session_of(f"{HEAD} g (float[2] x) => (y) {{ y = my.Scale <factor = 2.0> (x) }}") as session:
        x = np.float32([1, 2])
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], 2 * x)

        @gossamer.custom_op("my", "Scale", replace=True)
        def negate(ctx: gossamer.KernelContext) -> None:
            np.negative(ctx.inputs[0], out=ctx.outputs[0])

        np.testing.assert_array_equal(session.run(None, {"x": x})[0], -x)


def test_a_function_may_run_another_session() -> None:
    register_scale()
    inner = session_of(f"{HEAD} g (float[n] x) => (y) {{ y = my.Scale <factor = 2.0> (x) }}")

    @gossamer.custom_op("my", "Nested")
    def nested(ctx: gossamer.KernelContext) -> None:
        ctx.outputs[0][...] = inner.run(None, {"x": ctx.inputs[0]})[0]

    with inner, session_of(f"{HEAD} g (float[n] x) => (y) {{ a = my.Nested(x) y = my.Nested(a) }}") as session:
        np.testing.assert_array_equal(session.run(None, {"x": np.float32([1, 2, 3])})[0], [4, 8, 12])


@pytest.mark.parametrize(
    ("enabled", "reason"),
    [
        (True, "cuDNN needs a GPU, and this session runs in the interpreter."),
        (False, "cuDNN was disabled by the CUDA provider option 'enable_cudnn'."),
    ],
)
def test_no_handle_without_a_gpu(enabled: bool, reason: str) -> None:
    @gossamer.custom_op("my", "Conv")
    def conv(ctx: gossamer.KernelContext) -> None:
        assert ctx.cudnn_handle is None
        ctx.require_cudnn("MyConv")

    text = f"{HEAD} g (float[2] x) => (y) {{ [the_node] y = my.Conv(x) }}"
    with session_of(text, enable_cudnn=enabled) as session, pytest.raises(CudnnUnavailable) as caught:
        session.run(None, {"x": np.float32([1, 2])})
    assert str(caught.value) == f"Operator 'MyConv' on the CUDA EP requires cuDNN, but {reason} (node 'the_node')"


def test_from_many_threads() -> None:
    register_scale()
    text = f"{HEAD} g (float[n] x) => (y) {{ a = Neg(x) y = my.Scale <factor = 2.0> (a) }}"
    wrong: list[int] = []
    with session_of(text) as session:

        def work(index: int) -> None:
            x = np.full(1 + index % 3, index, np.float32)
            for _ in range(20):
                if not np.array_equal(session.run(None, {"x": x})[0], -2 * x):
                    wrong.append(index)

        threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong
