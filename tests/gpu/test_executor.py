"""The CUDA executor: graphs, streams, threads, limits, and whose memory is whose."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import gossamer
from gossamer import errors
from gossamer.run import driver

RNG = np.random.default_rng(0)
WEIGHT = RNG.standard_normal((64, 64)).astype(np.float32) / 8


def model(batch: int | str = "n") -> bytes:
    """y = softmax(relu(x · w) · w)."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("MatMul", ["b", "w"], ["c"], name="second"),
        helper.make_node("Softmax", ["c"], ["y"], name="softmax", axis=-1),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 64])
    graph = helper.make_graph(nodes, "two_products", [x], [y], [numpy_helper.from_array(WEIGHT, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    made: bytes = model.SerializeToString()
    onnx.checker.check_model(made)
    return made


def expected(x: np.ndarray) -> np.ndarray:
    c = np.maximum(x.astype(np.float64) @ WEIGHT, 0) @ WEIGHT
    e = np.exp(c - c.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def session(**options: object) -> gossamer.InferenceSession:
    return gossamer.InferenceSession(
        model(), providers=[("CUDAExecutionProvider", {"device": "cuda", "use_tf32": "0", **options})]
    )


@pytest.fixture
def feeds() -> list[np.ndarray]:
    return [RNG.standard_normal((n, 64)).astype(np.float32) for n in (1, 7, 64, 33)]


@pytest.mark.parametrize("graphs", ["auto", "0", "1"])
def test_replays_give_the_first_answer(graphs: str, feeds: list[np.ndarray]) -> None:
    with session(enable_cuda_graph=graphs) as s:
        for _ in range(4):
            for x in feeds:
                np.testing.assert_allclose(s.run(None, {"x": x})[0], expected(x), rtol=1e-5, atol=1e-7)


def test_many_threads_get_the_single_thread_answers(feeds: list[np.ndarray]) -> None:
    with session() as s:
        want = [s.run(None, {"x": x})[0] for x in feeds]
        wrong: list[int] = []

        def work(index: int) -> None:
            for turn in range(200):
                which = (index + turn) % len(feeds)
                if not np.array_equal(s.run(None, {"x": feeds[which]})[0], want[which]):
                    wrong.append(which)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


def test_memory_limit_names_what_was_asked_and_leaves_the_session_usable(feeds: list[np.ndarray]) -> None:
    with session(gpu_mem_limit=1 << 20) as s:
        with pytest.raises(errors.OutOfMemory) as caught:
            s.run(None, {"x": np.ones((100_000, 64), np.float32)})
        assert caught.value.asked > 1 << 20
        assert caught.value.limit == 1 << 20
        assert 0 < caught.value.held < 1 << 20
        np.testing.assert_allclose(s.run(None, {"x": feeds[1]})[0], expected(feeds[1]), rtol=1e-5, atol=1e-7)


def test_the_device_runs_out_of_memory() -> None:
    with pytest.raises(errors.OutOfMemory) as caught:
        driver.allocate(1 << 50, 0, doing="asking for a petabyte")
    assert caught.value.asked == 1 << 50
    assert caught.value.free > 0
    assert "asking for a petabyte" in str(caught.value)


RELEASED_BY = {
    "cuMemAlloc": "cuMemFree",
    "cuMemHostAlloc": "cuMemFreeHost",
    "cuModuleLoadData": "cuModuleUnload",
    "cuStreamCreate": "cuStreamDestroy",
    "cuEventCreate": "cuEventDestroy",
    "cuStreamEndCapture": "cuGraphDestroy",
    "cuGraphInstantiate": "cuGraphExecDestroy",
}


def test_a_session_gives_back_what_it_takes(feeds: list[np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted where the driver is called: the device's free memory is other processes' business too."""
    call, ledger_type = driver.call, driver.Ledger
    ledgers: list[driver.Ledger] = []
    taken: set[str] = set()
    held: set[tuple[str, int]] = set()

    def counted(function: str, *arguments: Any, doing: str = "") -> Any:
        result = call(function, *arguments, doing=doing)
        if function in RELEASED_BY:
            taken.add(function)
            held.add((RELEASED_BY[function], int(result)))
        elif function in RELEASED_BY.values():
            held.discard((function, int(arguments[0])))
        return result

    def ledger(limit: int | None = None) -> driver.Ledger:
        ledgers.append(ledger_type(limit))
        return ledgers[-1]

    monkeypatch.setattr(driver, "call", counted)
    monkeypatch.setattr(driver, "Ledger", ledger)
    with session(enable_cuda_graph="1") as s:
        for x in [*feeds, np.ones((4096, 64), np.float32)]:  # the arena grows, and graphs with it
            s.run(None, {"x": x})
            s.run(None, {"x": x})
        assert ledgers[0].held > WEIGHT.nbytes
    assert taken == RELEASED_BY.keys()
    assert not held
    assert [ledger.held for ledger in ledgers] == [0]


def test_device_bound_input_and_output(feeds: list[np.ndarray]) -> None:
    with session() as s:
        for x in feeds:
            binding = s.io_binding()
            binding.bind_ortvalue_input("x", gossamer.OrtValue.ortvalue_from_numpy(x, "cuda", 0))
            binding.bind_output("y", "cuda")
            for _ in range(3):
                s.run_with_iobinding(binding)
            (y,) = binding.get_outputs()
            assert y.device_name() == "cuda"
            np.testing.assert_allclose(y.numpy(), expected(x), rtol=1e-5, atol=1e-7)


torch = pytest.importorskip("torch", reason="PyTorch, as another owner of streams and memory")


@pytest.fixture
def stream() -> Iterator[torch.cuda.Stream]:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        yield stream
    stream.synchronize()


def on_stream(stream: torch.cuda.Stream) -> gossamer.InferenceSession:
    return session(user_compute_stream=stream.cuda_stream)


def bind(s: gossamer.InferenceSession, x: torch.Tensor, y: torch.Tensor) -> gossamer.IOBinding:
    binding = s.io_binding()
    binding.bind_input("x", "cuda", 0, np.float32, tuple(x.shape), x.data_ptr())
    binding.bind_output("y", "cuda", 0, np.float32, tuple(y.shape), y.data_ptr())
    return binding


def test_the_callers_stream_orders_the_work(stream: torch.cuda.Stream) -> None:
    """Neither side waits on the host; only the stream keeps the order."""
    with on_stream(stream) as s:
        x, y = torch.empty(256, 64, device="cuda"), torch.empty(256, 64, device="cuda")
        binding = bind(s, x, y)
        options = gossamer.RunOptions()
        options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        total = torch.zeros(256, 64, device="cuda")
        want = np.zeros((256, 64))
        for turn in range(20):
            x.copy_(torch.full((256, 64), float(turn), device="cuda") / 20)
            s.run_with_iobinding(binding, options)
            total += y
            want += expected(np.full((256, 64), turn / 20))
        np.testing.assert_allclose(total.cpu().numpy(), want, rtol=1e-4)


def test_a_callers_capture_takes_the_launches_in(stream: torch.cuda.Stream) -> None:
    with on_stream(stream) as s:
        x, y = torch.randn(33, 64, device="cuda"), torch.zeros(33, 64, device="cuda")
        binding = bind(s, x, y)
        s.run_with_iobinding(binding)
        graph = torch.cuda.CUDAGraph()
        options = gossamer.RunOptions()
        options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        with torch.cuda.graph(graph, stream=stream):
            s.run_with_iobinding(binding, options)
        for _ in range(3):
            x.copy_(torch.randn_like(x))
            other = np.ones((5, 64), np.float32)
            s.run(None, {"x": other})  # another arena: the graph's must stay as it is
            y.zero_()
            graph.replay()
            np.testing.assert_allclose(y.cpu().numpy(), expected(x.cpu().numpy()), rtol=1e-4, atol=1e-6)
        del graph


def test_torch_tensors_are_fed_in_place(feeds: list[np.ndarray]) -> None:
    with session() as s:
        x = torch.from_numpy(feeds[2]).cuda()
        np.testing.assert_allclose(s.run(None, {"x": x})[0], expected(feeds[2]), rtol=1e-5, atol=1e-7)


def test_the_current_device_of_the_caller_stays() -> None:
    before = driver.call("cuCtxGetCurrent")
    with session() as s:
        s.run(None, {"x": np.ones((2, 64), np.float32)})
    assert int(driver.call("cuCtxGetCurrent")) == int(before)
