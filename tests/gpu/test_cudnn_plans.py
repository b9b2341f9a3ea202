"""Plans of cuDNN on a GPU: made and restored without a handle, executed with one, and compared. (R10.1, R10.11)"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

import cudnn_graphs
from conftest import missing
from gossamer import OrtValue
from gossamer.cudnn import DeviceProperties, Graph, Handle, Plan, PlanError, loader
from gossamer.run import driver


@pytest.fixture(autouse=True)
def on_device(planning_cudnn: loader.Library) -> Iterator[None]:
    with driver.device(0).active():
        yield


@pytest.fixture
def here() -> DeviceProperties:
    return DeviceProperties.from_device(0)


def run(plan: Plan, arrays: dict[str, np.ndarray[Any, Any]], result: np.ndarray[Any, Any], **how: Any) -> Any:
    """The result of a plan, `y`; the arrays hold memory in the order in which the plan's tensors have it."""
    with ExitStack() as stack:
        scratch = stack.enter_context(driver.allocate(max(plan.workspace_size, 16)))
        pointers = {"y": stack.enter_context(driver.allocate(result.nbytes)).pointer}
        for name, array in arrays.items():
            memory = stack.enter_context(driver.allocate(array.nbytes))
            driver.copy_to_device(memory.pointer, array)
            pointers[name] = memory.pointer
        plan.execute(pointers, workspace=scratch.pointer, **how)
        driver.synchronize()
        driver.copy_to_host(result, pointers["y"])
    return result


def product(properties: DeviceProperties | None, handle: Handle | None = None) -> Graph:
    graph = Graph(properties=properties, handle=handle)
    a, b = graph.tensor("a", (1, 64, 96), "float16"), graph.tensor("b", (1, 96, 128), "float16")
    graph.output(graph.relu(graph.add(graph.matmul(a, b), graph.tensor("c", (1, 1, 128), "float16"))), name="y")
    return graph


def matrices() -> tuple[dict[str, np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    random = np.random.default_rng(0)
    arrays = {
        name: (random.standard_normal(shape) / 4).astype(np.float16)
        for name, shape in {"a": (1, 64, 96), "b": (1, 96, 128), "c": (1, 1, 128)}.items()
    }
    a, b, c = (array.astype(np.float64) for array in arrays.values())
    return arrays, np.maximum(a @ b + c, 0)


def test_restored_without_a_handle_and_executed(here: DeviceProperties) -> None:
    """R10.11: the same numbers as a plan built with a handle, and the right ones."""
    arrays, expected = matrices()
    blob = product(here).build().serialize()
    graph = Graph(properties=here)
    restored = graph.deserialize(blob)
    assert graph.handle is None
    with restored, Handle() as handle, product(None, handle).build() as built:
        own = run(restored, arrays, np.empty(expected.shape, np.float16))
        given = run(restored, arrays, np.empty(expected.shape, np.float16), handle=handle)
        direct = run(built, arrays, np.empty(expected.shape, np.float16))
    np.testing.assert_allclose(own, expected, rtol=2e-3, atol=2e-3)
    np.testing.assert_array_equal(own, given)
    np.testing.assert_allclose(own, direct, rtol=2e-3, atol=2e-3)


def test_restored_with_a_handle(here: DeviceProperties) -> None:
    """R10.2: the handle's device serves, whatever the properties are."""
    arrays, expected = matrices()
    blob = product(here).build().serialize()
    with Handle() as handle:
        plan = Graph(properties=DeviceProperties.named("t4")).deserialize(blob, handle=handle)
        with plan:
            y = run(plan, arrays, np.empty(expected.shape, np.float16))
    np.testing.assert_allclose(y, expected, rtol=2e-3, atol=2e-3)


class Interface:
    """Memory on the GPU that describes itself by `__cuda_array_interface__`."""

    def __init__(self, value: OrtValue) -> None:
        typestr = value.numpy().dtype.str
        described = {"typestr": typestr, "shape": tuple(value.shape()), "data": (value.data_ptr(), False), "version": 3}
        self.__cuda_array_interface__ = described


MEMORY = {"address": OrtValue.data_ptr, "DLPack": lambda value: value, "interface": Interface}


@pytest.mark.parametrize("form", MEMORY)
def test_memory(here: DeviceProperties, form: str) -> None:
    """Tensors and workspace as addresses, by DLPack, and by `__cuda_array_interface__`."""
    arrays, expected = matrices()
    with product(here).build() as plan:
        arrays |= {"y": np.zeros(expected.shape, np.float16), "workspace": np.zeros(plan.workspace_size + 1, np.uint8)}
        values = {name: OrtValue.ortvalue_from_numpy(array, "cuda") for name, array in arrays.items()}
        given = {name: MEMORY[form](value) for name, value in values.items()}
        plan.execute(given, workspace=given.pop("workspace"))
        y = values["y"].numpy()
    np.testing.assert_allclose(y, expected, rtol=2e-3, atol=2e-3)


def test_convolution_channels_last(here: DeviceProperties) -> None:
    random = np.random.default_rng(1)
    x, w = random.integers(-2, 3, (2, 16, 9, 11)), random.integers(-2, 3, (8, 16, 3, 3))
    graph = Graph(properties=here)
    images = graph.tensor("x", x.shape, "float16", layout="NHWC")
    filters = graph.tensor("w", w.shape, "float16", layout="NHWC")
    graph.output(graph.convolution(images, filters, padding=1, stride=2), name="y")
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2]
    expected = np.einsum("nchwrs,kcrs->nhwk", windows, w)
    last = {name: one.transpose(0, 2, 3, 1).astype(np.float16, order="C") for name, one in {"x": x, "w": w}.items()}
    with graph.build() as plan:
        y = run(plan, last, np.empty(expected.shape, np.float16))
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(here: DeviceProperties, causal: bool, dtype: str) -> None:
    """In float32, products of tensor cores take TF32."""
    if here.values["deviceVer"] < 800:
        missing("an architecture with flash attention (sm_80)")
    graph = Graph(properties=here)
    graph.output(cudnn_graphs.attention(graph, dtype, causal=causal), name="y")
    random = np.random.default_rng(2)
    stored = {name: random.standard_normal((2, 128, 12, 64)).astype(dtype) for name in "qkv"}
    q, k, v = (one.transpose(0, 2, 1, 3).astype(np.float64) for one in stored.values())
    scores = q @ k.swapaxes(-1, -2) / 8
    if causal:
        scores = np.where(np.tri(128, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = (weights / weights.sum(-1, keepdims=True)) @ v
    with graph.build() as plan:
        y = run(plan, stored, np.empty((2, 128, 12, 64), dtype))
    np.testing.assert_allclose(y.transpose(0, 2, 1, 3), expected, rtol=5e-3, atol=5e-3)


def test_layer_normalization(here: DeviceProperties) -> None:
    """A scalar by value, epsilon, reaches the kernel."""
    graph = cudnn_graphs.build(Graph(properties=here), "layer_normalization")
    random = np.random.default_rng(3)
    x = random.standard_normal((512, 768)).astype(np.float16)
    scale, bias = random.standard_normal((2, 768)).astype(np.float32)
    centred = x.astype(np.float64) - x.mean(-1, keepdims=True, dtype=np.float64)
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6) * scale + bias
    with graph.build() as plan:
        y = run(plan, {"x": x, "scale": scale, "bias": bias}, np.empty(x.shape, np.float16))
    np.testing.assert_allclose(y, expected, rtol=2e-3, atol=2e-3)


def test_live_properties(here: DeviceProperties) -> None:
    """R10.1: from the device, from a handle, and round trips; what is shipped for this device agrees with it."""
    with Handle() as handle:
        assert DeviceProperties.from_handle(handle) == here
    assert DeviceProperties.from_json(here.serialize()) == here
    for name in DeviceProperties.names():
        shipped = DeviceProperties.named(name)
        if shipped.device_name == here.device_name:
            assert set(shipped.differences(here)) <= {"driverVer"}


def test_another_devices_plan(here: DeviceProperties) -> None:
    """R10.5, with a live handle. Of a precompiled engine: those compiled now are loaded while they are planned, which a
    live driver refuses for another architecture."""
    other = DeviceProperties.named("a10" if here.architecture != "sm_86" else "h200")
    with Graph(properties=other) as graph:
        x, w = (
            graph.tensor("x", (1, 64, 8, 8), "float16", layout="NHWC"),
            graph.tensor("w", (64, 64, 3, 3), "float16", layout="NHWC"),
        )
        graph.output(graph.convolution(x, w, padding=(1, 1)), name="y")
        blob = graph.build(forbid=["RUNTIME_COMPILATION"]).serialize()
    with Handle() as handle, pytest.raises(PlanError, match=other.architecture) as raised:
        Graph(handle=handle).deserialize(blob)
    assert raised.value.reason == "ARCH_MISMATCH"
    assert here.architecture in str(raised.value)
