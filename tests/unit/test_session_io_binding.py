from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import fake_driver
from fake_driver import FakeDriver
from fake_engine import FakeEngine
from gossamer.errors import InvalidArgument
from gossamer.run.device_tensor import DeviceTensor
from gossamer.session import InferenceSession, OrtValue, inference_session, memory
from gossamer.session.engine import Tensor
from gossamer.session.memory import Device

X = np.arange(6, dtype=np.float32).reshape(2, 3)


class DeviceEngine(FakeEngine):
    """As the fake engine, with inputs and outputs in device memory."""

    def run(self, feeds: Mapping[str, Tensor], outputs: Any, **how: Any) -> dict[str, Tensor]:
        on_host = {name: memory.to_host(value) for name, value in feeds.items()}
        bound, on_device = how.pop("bound", {}), how.get("on_device", ())
        results = super().run(on_host, outputs, **how)
        self.calls[-1]["feeds"] = dict(feeds)
        for name, target in bound.items():
            memory.copy(results[name], target)
            results[name] = target
        for name in on_device:
            array = results[name]
            results[name] = memory.empty(array.shape, array.dtype, Device("cuda", 0))
            memory.copy(array, results[name])
        return results


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[InferenceSession]:
    """A session in host memory."""
    monkeypatch.setenv("GOSSAMER_DEVICE", "interpreter")
    monkeypatch.setattr(inference_session, "create_engine", lambda *given: FakeEngine())
    with InferenceSession(b"", providers=["CUDAExecutionProvider"]) as made:
        yield made


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    return fake_driver.install(monkeypatch)


@pytest.fixture
def engine() -> DeviceEngine:
    return DeviceEngine()


@pytest.fixture
def gpu_session(gpu: FakeDriver, engine: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[InferenceSession]:
    monkeypatch.setattr(inference_session, "create_engine", lambda *given: engine)
    with InferenceSession(b"", providers=["CUDAExecutionProvider"]) as made:
        yield made


def test_host_to_host(session: InferenceSession) -> None:
    binding = session.io_binding()
    assert binding.get_outputs() == []
    binding.bind_cpu_input("x", X)
    binding.bind_output("total")
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    total, y = binding.copy_outputs_to_cpu()
    assert total == 15
    np.testing.assert_array_equal(y, X + 1)
    assert [value.device_name() for value in binding.get_outputs()] == ["cpu", "cpu"]


def test_bound_arrays_are_read_in_every_run(session: InferenceSession) -> None:
    x = X.copy()
    binding = session.io_binding()
    binding.bind_cpu_input("x", x.T.copy().T)
    binding.bind_cpu_input("x", x)
    binding.bind_output("y")
    for step in range(3):
        x[...] = step
        session.run_with_iobinding(binding)
        assert (binding.copy_outputs_to_cpu()[0] == step + 1).all()


def test_outputs_without_memory_of_their_own_are_new_in_every_run(session: InferenceSession) -> None:
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    (first,) = binding.get_outputs()
    binding.bind_cpu_input("x", X + 1)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(first.numpy(), X + 1)
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), X + 2)


def test_outputs_are_written_into_bound_memory(session: InferenceSession) -> None:
    by_address, by_value = np.zeros_like(X), np.zeros((), np.float32)
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, X.shape, X.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, X.shape, by_address.ctypes.data)
    binding.bind_ortvalue_output("total", OrtValue.ortvalue_from_numpy(by_value))
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(by_address, X + 1)
    assert by_value == 15
    assert binding.get_outputs()[0].data_ptr() == by_address.ctypes.data


def test_a_binding_keeps_what_is_bound_until_it_is_cleared(session: InferenceSession) -> None:
    x, y = X.copy(), np.zeros_like(X)
    held = [weakref.ref(x), weakref.ref(y)]
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_ortvalue_output("y", OrtValue.ortvalue_from_numpy(y))
    del x, y
    gc.collect()
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], X + 1)
    binding.clear_binding_inputs()
    binding.clear_binding_outputs()
    gc.collect()
    # The fake engine's record of calls is the last holder of the input.
    session._live_engine().calls.clear()  # type: ignore[attr-defined]
    assert [reference() for reference in held] == [None, None]
    assert binding.get_outputs() == []


def test_rebinding_releases_what_was_bound(session: InferenceSession) -> None:
    x = X.copy()
    held = weakref.ref(x)
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_cpu_input("x", X)
    del x
    gc.collect()
    assert held() is None


@pytest.mark.parametrize(
    ("bind", "parts"),
    [
        (lambda b: b.bind_cpu_input("z", X), ["input 'z'"]),
        (lambda b: b.bind_cpu_input("x", X.astype(int)), ["input 'x'", "tensor(float)", "tensor(int64)"]),
        (lambda b: b.bind_ortvalue_input("x", OrtValue.ortvalue_from_numpy(X[0])), ["input 'x'", "rank 1"]),
        (lambda b: b.bind_ortvalue_input("x", X), ["OrtValue", "ndarray"]),
        (lambda b: b.bind_input("x", "cpu", 0, np.float32, (2, 4), X.ctypes.data), ["input 'x'", "dimension 1"]),
        (lambda b: b.bind_input("x", "cpu", 0, np.float32, (2, 3), 0), ["buffer_ptr"]),
        (lambda b: b.bind_input("x", "cpu", 0, np.float32, (2, 3), None), ["buffer_ptr"]),
        (lambda b: b.bind_output("z"), ["output 'z'"]),
        (lambda b: b.bind_output("y", "cpu", 0, None, None, 4096), ["output 'y'", "element_type and shape"]),
        (lambda b: b.bind_output("y", "cpu", 0, np.int32, (2, 3), 4096), ["output 'y'", "tensor(int32)"]),
        (lambda b: b.bind_output("y", "cpu", 0, np.float32, (2,), 4096), ["output 'y'", "rank 1 instead of 2"]),
        (lambda b: b.bind_ortvalue_output("y", X), ["OrtValue"]),
    ],
)
def test_wrong_bindings_are_refused_by_name(session: InferenceSession, bind: Any, parts: list[str]) -> None:
    binding = session.io_binding()
    with pytest.raises(InvalidArgument) as caught:
        bind(binding)
    for part in parts:
        assert part in str(caught.value)
    assert (dict(binding.inputs), dict(binding.outputs)) == ({}, {})


def test_incomplete_bindings(session: InferenceSession) -> None:
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    with pytest.raises(InvalidArgument, match=r"no output is bound.*y"):
        session.run_with_iobinding(binding)
    binding.clear_binding_inputs()
    binding.bind_output("y")
    with pytest.raises(InvalidArgument, match=r"missing inputs \['x'\]"):
        session.run_with_iobinding(binding)
    binding.bind_cpu_input("x", X)
    other = InferenceSession(b"", providers=["CUDAExecutionProvider"])
    with pytest.raises(InvalidArgument, match="session that made it"):
        other.run_with_iobinding(binding)


def test_a_failed_run_leaves_the_results_of_the_last(session: InferenceSession) -> None:
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_ortvalue_output("y", OrtValue.ortvalue_from_numpy(np.zeros_like(X)))
    session.run_with_iobinding(binding)
    binding.bind_cpu_input("x", np.zeros((5, 3), np.float32))
    with pytest.raises(InvalidArgument, match="output 'y'"):
        session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), X + 1)


def test_a_simulated_device(session: InferenceSession) -> None:
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", OrtValue.ortvalue_from_numpy(X, "cuda", 0))
    binding.bind_output("y", "cuda")
    session.run_with_iobinding(binding)
    (y,) = binding.get_outputs()
    assert y.device_name() == "cuda"
    np.testing.assert_array_equal(y.numpy(), X + 1)


def test_device_to_device(gpu_session: InferenceSession, engine: DeviceEngine, gpu: FakeDriver) -> None:
    x = OrtValue.ortvalue_from_numpy(X, "cuda")
    total = OrtValue.ortvalue_from_shape_and_type([], np.float32, "cuda")
    binding = gpu_session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_output("y", "cuda", 0)
    binding.bind_ortvalue_output("total", total)
    binding.synchronize_inputs()
    gpu_session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    assert gpu.waited == [(-1, 0), (-1, 0)]
    (call,) = engine.calls
    assert call["feeds"]["x"] is x.tensor
    assert call["on_device"] == ["y"]
    assert total.numpy() == 15
    y = binding.get_outputs()[0]
    assert isinstance(y.tensor, DeviceTensor)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], X + 1)


def test_the_result_of_one_run_feeds_the_next(gpu_session: InferenceSession) -> None:
    binding = gpu_session.io_binding()
    binding.bind_ortvalue_input("x", OrtValue.ortvalue_from_numpy(X, "cuda"))
    binding.bind_output("y", "cuda")
    for _ in range(4):
        gpu_session.run_with_iobinding(binding)
        binding.bind_ortvalue_input("x", binding.get_outputs()[0])
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], X + 4)


def test_binding_raw_device_memory(gpu_session: InferenceSession, engine: DeviceEngine) -> None:
    x = OrtValue.ortvalue_from_numpy(X, "cuda")
    y = OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32, "cuda")
    binding = gpu_session.io_binding()
    binding.bind_input("x", "cuda", 0, np.float32, [2, 3], x.data_ptr())
    binding.bind_output("y", "cuda", 0, 1, [2, 3], y.data_ptr())
    gpu_session.run_with_iobinding(binding)
    np.testing.assert_array_equal(y.numpy(), X + 1)
    assert engine.calls[0]["feeds"]["x"].owner is None


def test_memory_of_another_gpu_is_refused(gpu_session: InferenceSession) -> None:
    elsewhere = DeviceTensor(4096, X.dtype, X.shape, 3)
    with pytest.raises(InvalidArgument, match=r"input 'x' .*cuda:3.*cuda:0"):
        gpu_session.run(None, {"x": elsewhere})
    binding = gpu_session.io_binding()
    with pytest.raises(InvalidArgument, match=r"output 'y' cannot be bound to cuda:3"):
        binding.bind_output("y", "cuda", 3)


def test_a_session_on_the_cpu_reads_device_memory_and_refuses_to_write_it(
    gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    engine = FakeEngine()
    monkeypatch.setattr(inference_session, "create_engine", lambda *given: engine)
    session = InferenceSession(b"", providers=["CPUExecutionProvider"])
    y = session.run(["y"], {"x": OrtValue.ortvalue_from_numpy(X, "cuda")})[0]
    np.testing.assert_array_equal(y, X + 1)
    with pytest.raises(InvalidArgument, match="runs on no GPU"):
        session.io_binding().bind_output("y", "cuda")
