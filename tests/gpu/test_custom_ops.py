"""Custom operators on a GPU: on the stream, between CUDA graphs, beside PyTorch, and with cuDNN's handle."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, parser

import gossamer
from gossamer import custom_ops
from gossamer.cudnn import Graph, loader
from gossamer.custom_ops import KernelContext
from gossamer.errors import CudnnUnavailable
from gossamer.run import driver

HEAD = '<ir_version: 10, opset_import: ["": 21, "my": 1]>'
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom_ops, "_operators", {})


def session_of(model: str | bytes, *more: str, **options: object) -> gossamer.InferenceSession:
    source = parser.parse_model(model).SerializeToString() if isinstance(model, str) else model
    return gossamer.InferenceSession(
        source, providers=[("CUDAExecutionProvider", {"device": "cuda", **options}), *more]
    )


def copy(target: int, source: int, nbytes: int, stream: int) -> None:
    if nbytes:
        driver.call("cuMemcpyDtoDAsync", target, source, nbytes, stream, doing="copying in a test")


def register_twice() -> None:
    """y = x, x: with the driver alone."""

    @gossamer.custom_op("my", "Twice", outputs=lambda node, x: [((2 * x.shape[0], *x.shape[1:]), x.dtype)])
    def twice(ctx: KernelContext) -> None:
        (x,), (y,) = ctx.inputs, ctx.outputs
        for half in (0, 1):
            copy(y.data_ptr() + half * x.nbytes, x.data_ptr(), x.nbytes, ctx.stream)


TWICE = f"""{HEAD} g (float[n,64] x) => (float[m,64] y) {{
    a = Neg(x) b = my.Twice(a) c = Exp(b) d = my.Twice(c) y = Relu(d) }}"""


def expected_of_twice(x: np.ndarray) -> np.ndarray:
    return np.tile(np.exp(-x), (4, 1))


@pytest.mark.parametrize("graphs", ["auto", "0", "1"])
def test_between_graphs_for_several_signatures(graphs: str) -> None:
    register_twice()
    feeds = [RNG.standard_normal((n, 64)).astype(np.float32) for n in (1, 7, 4096, 33, 0)]
    with session_of(TWICE, enable_cuda_graph=graphs) as session:
        for _ in range(4):
            for x in feeds:
                np.testing.assert_allclose(session.run(None, {"x": x})[0], expected_of_twice(x), rtol=1e-5)


def test_from_many_threads() -> None:
    register_twice()
    feeds = [RNG.standard_normal((n, 64)).astype(np.float32) for n in (1, 7, 64, 33)]
    wrong: list[int] = []
    with session_of(TWICE) as session:
        want = [session.run(None, {"x": x})[0] for x in feeds]

        def work(index: int) -> None:
            for turn in range(50):
                which = (index + turn) % len(feeds)
                if not np.array_equal(session.run(None, {"x": feeds[which]})[0], want[which]):
                    wrong.append(which)

        threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_constants_views_several_outputs_and_cpu_nodes() -> None:
    @gossamer.custom_op("my", "Swap", outputs=lambda node, x, nothing, w: [(w.shape, w.dtype), (x.shape, x.dtype)])
    def swap(ctx: KernelContext) -> None:
        x, nothing, w = ctx.inputs
        assert nothing is None
        first, second = ctx.outputs
        copy(first.data_ptr(), w.data_ptr(), w.nbytes, ctx.stream)
        copy(second.data_ptr(), x.data_ptr(), x.nbytes, ctx.stream)

    text = f"""{HEAD} g (float[4,8] x) => (y, rows, found) <int64[1] one = {{1}}, int64[1] three = {{3}},
            int64[1] zero = {{0}}, int64[3] w = {{5, 6, 7}}, int64[1] flat = {{-1}}> {{
        part = Slice(x, one, three, zero)
        y, b = my.Swap(part, , w)
        rows = Reshape(b, flat)
        found = NonZero(rows)
    }}"""
    x = RNG.standard_normal((4, 8)).astype(np.float32)
    with session_of(text, "CPUExecutionProvider") as session:
        for _ in range(3):
            y, rows, found = session.run(None, {"x": x})
            np.testing.assert_array_equal(y, [5, 6, 7])
            np.testing.assert_array_equal(rows, x[1:3].reshape(-1))
            np.testing.assert_array_equal(found, np.nonzero(rows))


def test_an_error_leaves_the_session_usable() -> None:
    @gossamer.custom_op("my", "Picky")
    def picky(ctx: KernelContext) -> None:
        (x,), (y,) = ctx.inputs, ctx.outputs
        if x.shape[0] == 2:
            raise ValueError("two rows")
        copy(y.data_ptr(), x.data_ptr(), x.nbytes, ctx.stream)

    with session_of(
        f"{HEAD} g (float[n,64] x) => (float[n,64] y) {{ a = Neg(x) [here] b = my.Picky(a) y = Exp(b) }}"
    ) as session:
        for rows in (1, 2, 3, 2, 1):
            x = RNG.standard_normal((rows, 64)).astype(np.float32)
            if rows == 2:
                with pytest.raises(ValueError, match="two rows") as caught:
                    session.run(None, {"x": x})
                assert caught.value.__notes__ == ["in custom operator my.Picky (node 'here')"]
            else:
                np.testing.assert_allclose(session.run(None, {"x": x})[0], np.exp(-x), rtol=1e-5)


def test_calls_are_in_the_profile() -> None:
    register_twice()
    from gossamer.engines import DeviceEngine
    from gossamer.options import CompileOptions, CudaOptions
    from gossamer.run.profile import profile_text

    engine = DeviceEngine(
        parser.parse_model(TWICE).SerializeToString(), CudaOptions(device="cuda"), CompileOptions(), cpu_listed=False
    )
    x = np.ones((3, 64), np.float32)
    try:
        program = engine.program({"x": x.shape})
        text = profile_text(program, engine._executor.time_calls(program, {"x": x}))
    finally:
        engine.close()
    assert text.count("python Twice  my.Twice") == 2


# Beside PyTorch


def register_torch_scale(torch: Any, *, on_kernels_stream: bool) -> None:
    """y = 2 x, by several kernels, so that a missing order shows."""

    @gossamer.custom_op("my", "Scale")
    def scale(ctx: KernelContext) -> None:
        stream = torch.cuda.ExternalStream(ctx.stream) if on_kernels_stream else torch.cuda.current_stream()
        with torch.cuda.stream(stream):
            x, y = torch.from_dlpack(ctx.inputs[0]), torch.from_dlpack(ctx.outputs[0])
            assert (x.data_ptr(), y.data_ptr()) == (ctx.inputs[0].data_ptr(), ctx.outputs[0].data_ptr())
            torch.mul(x, 2, out=y)


@pytest.mark.parametrize("on_kernels_stream", [True, False], ids=["its stream", "PyTorch's own stream"])
@pytest.mark.parametrize("own", [False, True], ids=["default", "side"])
def test_pytorchs_kernels_are_in_order(torch: Any, on_kernels_stream: bool, own: bool) -> None:
    """On the kernel's stream, and on PyTorch's current one, the default or another; large, so that a race shows."""
    register_torch_scale(torch, on_kernels_stream=on_kernels_stream)
    body = "a0 = Relu(x)" + "".join(f" b{i} = my.Scale(a{i}) a{i + 1} = Abs(b{i})" for i in range(4)) + " y = Neg(a4)"
    with session_of(f"{HEAD} g (float[n] x) => (float[n] y) {{ {body} }}") as session:
        current = torch.cuda.Stream() if own else torch.cuda.default_stream()
        for turn in range(6):
            x = np.full(1 << 24, turn + 1, np.float32)
            with torch.cuda.stream(current):
                (y,) = session.run(None, {"x": x})
            assert (y == -16 * (turn + 1)).all()


def model_of_reverse(dtype: int) -> bytes:
    x, y = (helper.make_tensor_value_info(name, dtype, ["n"]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Reverse", ["x"], ["y"], domain="my")], "g", [x], [y])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("my", 1)]
    made: bytes = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    return made


@pytest.mark.parametrize("name", ["BOOL", "INT8", "UINT8", "INT32", "INT64", "FLOAT16", "BFLOAT16", "FLOAT", "DOUBLE"])
def test_every_type_of_element(torch: Any, name: str) -> None:
    dtype = getattr(TensorProto, name)

    @gossamer.custom_op("my", "Reverse")
    def reverse(ctx: KernelContext) -> None:
        with torch.cuda.stream(torch.cuda.ExternalStream(ctx.stream)):
            torch.from_dlpack(ctx.outputs[0]).copy_(torch.from_dlpack(ctx.inputs[0]).flip(0))

    for size in (6, 0):
        array = np.arange(size).astype(_numpy_type(dtype))
        with session_of(model_of_reverse(dtype)) as session:
            (result,) = session.run(None, {"x": array})
        assert result.dtype == array.dtype
        np.testing.assert_array_equal(result, array[::-1])


def _numpy_type(dtype: int) -> np.dtype[Any]:
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16) if dtype == TensorProto.BFLOAT16 else helper.tensor_dtype_to_np_dtype(dtype)


def test_the_cuda_array_interface(torch: Any) -> None:
    @gossamer.custom_op("my", "Reverse")
    def reverse(ctx: KernelContext) -> None:
        with torch.cuda.stream(torch.cuda.ExternalStream(ctx.stream)):
            x, y = (torch.as_tensor(_InterfaceOnly(one), device="cuda") for one in (ctx.inputs[0], ctx.outputs[0]))
            assert x.data_ptr() == ctx.inputs[0].data_ptr()
            y.copy_(x.flip(0))

    array = RNG.standard_normal(1000).astype(np.float32)
    with session_of(model_of_reverse(TensorProto.FLOAT)) as session:
        np.testing.assert_array_equal(session.run(None, {"x": array})[0], array[::-1])


class _InterfaceOnly:
    def __init__(self, tensor: Any) -> None:
        self.__cuda_array_interface__ = tensor.__cuda_array_interface__


def test_in_a_capture_of_the_callers(torch: Any) -> None:
    """The function's work becomes part of the caller's graph."""
    register_torch_scale(torch, on_kernels_stream=True)
    stream = torch.cuda.Stream()
    text = f"{HEAD} g (float[n] x) => (float[n] y) {{ a = Neg(x) b = my.Scale(a) y = Abs(b) }}"
    with torch.cuda.stream(stream), session_of(text, user_compute_stream=stream.cuda_stream) as session:
        x, y = torch.randn(1000, device="cuda"), torch.zeros(1000, device="cuda")
        binding = session.io_binding()
        binding.bind_input("x", "cuda", 0, np.float32, (1000,), x.data_ptr())
        binding.bind_output("y", "cuda", 0, np.float32, (1000,), y.data_ptr())
        session.run_with_iobinding(binding)
        options = gossamer.RunOptions()
        options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            session.run_with_iobinding(binding, options)
        for _ in range(3):
            x.copy_(torch.randn_like(x))
            y.zero_()
            graph.replay()
            assert torch.equal(y, 2 * x.abs())
        stream.synchronize()


# cuDNN's handle


def register_product() -> list[int | None]:
    """relu(a · b) by a plan of cuDNN's; the handles that it saw."""
    handles: list[int | None] = []
    plans: dict[Any, Any] = {}

    @gossamer.custom_op("my", "ProductRelu", outputs=lambda node, a, b: [((*a.shape[:-1], b.shape[-1]), a.dtype)])
    def product(ctx: KernelContext) -> None:
        handles.append(ctx.cudnn_handle)
        handle = ctx.require_cudnn("ProductRelu")
        (a, b), (y,) = ctx.inputs, ctx.outputs
        key = a.shape, b.shape, ctx.device_id
        if key not in plans:
            with Graph(handle=handle) as graph:
                made = graph.matmul(graph.tensor("a", a.shape, a.dtype), graph.tensor("b", b.shape, b.dtype))
                graph.output(graph.relu(made), dtype=a.dtype, name="y")
                plans[key] = graph.build(workspace_limit=0)
        plans[key].execute({"a": a, "b": b, "y": y}, handle=handle)

    return handles


PRODUCT = f"""{HEAD} g (float16[1,64,96] a, float16[1,96,128] b) => (float16[1,64,128] y) {{
    n = Neg(a) [here] p = my.ProductRelu(n, b) y = Neg(p) }}"""


@pytest.mark.usefixtures("cudnn")
def test_cudnns_handle_is_on_the_stream() -> None:
    handles = register_product()
    with session_of(PRODUCT) as session:
        for _ in range(5):
            a, b = ((RNG.standard_normal(shape) / 4).astype(np.float16) for shape in ((1, 64, 96), (1, 96, 128)))
            (y,) = session.run(None, {"a": a, "b": b})
            want = -np.maximum(-a.astype(np.float64) @ b.astype(np.float64), 0)
            np.testing.assert_allclose(y, want, rtol=5e-3, atol=5e-3)
    assert len(set(handles)) == 1
    assert handles[0]


def test_no_handle_where_the_session_wants_none() -> None:
    handles = register_product()
    with session_of(PRODUCT, enable_cudnn=0) as session, pytest.raises(CudnnUnavailable) as caught:
        session.run(None, {"a": np.zeros((1, 64, 96), np.float16), "b": np.zeros((1, 96, 128), np.float16)})
    assert handles == [None]
    assert str(caught.value) == (
        "Operator 'ProductRelu' on the CUDA EP requires cuDNN, but cuDNN was disabled by the CUDA provider option "
        "'enable_cudnn'. (node 'here')"
    )


def test_no_handle_where_there_is_no_cudnn() -> None:
    handles = register_product()
    feeds = {"a": np.zeros((1, 64, 96), np.float16), "b": np.zeros((1, 96, 128), np.float16)}
    with (
        loader.force_absent(),
        session_of(PRODUCT, enable_cudnn=1) as session,
        pytest.raises(CudnnUnavailable, match="cuDNN was not found at runtime"),
    ):
        session.run(None, feeds)
    assert handles == [None]
