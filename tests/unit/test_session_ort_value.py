from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fake_driver
from fake_driver import FakeDriver
from gossamer.errors import InvalidArgument
from gossamer.run import dlpack
from gossamer.run.device_tensor import DeviceTensor, is_dense
from gossamer.session import OrtValue, memory
from gossamer.session.element_types import ELEMENT_TYPES

X = np.arange(6, dtype=np.float32).reshape(2, 3)

DLPACK_TYPES = [
    np.dtype(name) for name in ("float16", "float32", "float64", "int8", "uint16", "int64", "bool", "complex64")
]
NOT_NUMPYS = [np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    return fake_driver.install(monkeypatch)


def test_element_types_are_onnxs() -> None:
    onnx = pytest.importorskip("onnx")
    numbers = dict(onnx.TensorProto.DataType.items())
    assert {row.number for row in ELEMENT_TYPES} <= set(numbers.values())
    for row in ELEMENT_TYPES:
        assert numbers[row.text.upper()] == row.number
        if row.name != "string":
            assert onnx.helper.tensor_dtype_to_np_dtype(row.number) == row.dtype


def test_from_numpy_shares_memory() -> None:
    x = X.copy()
    value = OrtValue.ortvalue_from_numpy(x)
    assert (value.data_type(), value.element_type(), value.shape()) == ("tensor(float)", 1, [2, 3])
    assert (value.device_name(), value.device_id(), value.tensor_size_in_bytes()) == ("cpu", 0, 24)
    assert (value.is_tensor(), value.is_tensor_sequence(), value.is_sparse_tensor(), value.has_value()) == (
        True,
        False,
        False,
        True,
    )
    assert value.data_ptr() == x.ctypes.data
    assert np.shares_memory(value.numpy(), x)
    assert np.shares_memory(np.asarray(value), x)
    assert np.asarray(value, dtype=np.int64).dtype == np.int64


def test_from_numpy_keeps_the_array_alive() -> None:
    x = X.copy()
    gone = weakref.ref(x)
    value = OrtValue.ortvalue_from_numpy(x)
    del x
    gc.collect()
    np.testing.assert_array_equal(value.numpy(), X)
    del value
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("element_type", [np.float32, "float32", 1, np.dtype("float32")])
def test_from_shape_and_type(element_type: Any) -> None:
    value = OrtValue.ortvalue_from_shape_and_type([2, 3], element_type)
    assert (value.data_type(), value.shape()) == ("tensor(float)", [2, 3])
    value.update_inplace(X)
    np.testing.assert_array_equal(value.numpy(), X)


def test_types_that_numpy_lacks() -> None:
    value = OrtValue.ortvalue_from_shape_and_type([2], 16)
    assert (value.data_type(), value.numpy().dtype) == ("tensor(bfloat16)", np.dtype(ml_dtypes.bfloat16))
    bits = np.array([0x3F80, 0x4000], np.uint16)
    value = OrtValue.ortvalue_from_numpy_with_onnx_type(bits, 16)
    assert value.numpy().tolist() == [1.0, 2.0]
    assert np.shares_memory(value.numpy(), bits)
    with pytest.raises(InvalidArgument, match="2-byte"):
        OrtValue.ortvalue_from_numpy_with_onnx_type(X, 16)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: OrtValue.ortvalue_from_numpy([1.0]), "got a list"),
        (lambda: OrtValue.ortvalue_from_numpy(np.zeros(2, "datetime64[s]")), "datetime64"),
        (lambda: OrtValue.ortvalue_from_numpy(X, "tpu"), "cpu, cuda, gpu"),
        (lambda: OrtValue.ortvalue_from_numpy(X, "cuda", -1), "device_id"),
        (lambda: OrtValue.ortvalue_from_numpy(X, "gpu", 0, 0x1002), "NVIDIA"),
        (lambda: OrtValue.ortvalue_from_shape_and_type([2, -1], np.float32), r"shape \[2, -1\]"),
        (lambda: OrtValue.ortvalue_from_shape_and_type([2], 99), "99"),
        (lambda: OrtValue.ortvalue_from_shape_and_type([2], "flaot"), "flaot"),
        (lambda: OrtValue.from_dlpack("text"), "DLPack capsule"),
        (lambda: OrtValue.from_cuda_array_interface(X), "__cuda_array_interface__"),
        (lambda: OrtValue.ortvalue_from_numpy(X).update_inplace(X[:1]), r"\[1, 3\].*\[2, 3\]"),
        (lambda: OrtValue.ortvalue_from_numpy(X).update_inplace(X.astype(int)), "int64"),
        (lambda: OrtValue.ortvalue_from_numpy(X).update_inplace([1]), "got a list"),
    ],
)
def test_wrong_arguments(make: Any, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        make()


def test_device_memory(gpu: FakeDriver) -> None:
    value = OrtValue.ortvalue_from_numpy(X.T, "cuda", 0)
    assert (value.device_name(), value.shape(), value.data_type()) == ("cuda", [3, 2], "tensor(float)")
    assert isinstance(value.tensor, DeviceTensor)
    assert value.data_ptr() in gpu.live
    np.testing.assert_array_equal(value.numpy(), X.T)
    assert not np.shares_memory(value.numpy(), value.numpy())
    other = OrtValue.ortvalue_from_shape_and_type([3, 2], np.float32, "cuda")
    other.update_inplace(value)
    value.update_inplace(np.zeros((3, 2), np.float32))
    np.testing.assert_array_equal(other.numpy(), X.T)
    host = OrtValue.ortvalue_from_shape_and_type([3, 2], np.float32)
    host.update_inplace(other)
    np.testing.assert_array_equal(host.numpy(), X.T)


def test_device_memory_is_freed_with_its_last_holder(gpu: FakeDriver) -> None:
    value = OrtValue.ortvalue_from_numpy(X, "cuda")
    capsule = value.to_dlpack()
    del value
    gc.collect()
    assert len(gpu.live) == 1, "the capsule holds it"
    other = OrtValue.from_dlpack(capsule)
    del capsule
    gc.collect()
    np.testing.assert_array_equal(other.numpy(), X)
    del other
    gc.collect()
    assert gpu.live == {}


def test_empty_tensors_on_the_device(gpu: FakeDriver) -> None:
    value = OrtValue.ortvalue_from_numpy(np.zeros((0, 3), np.float32), "cuda")
    assert value.numpy().shape == (0, 3)


def test_strings_stay_on_the_host(gpu: FakeDriver) -> None:
    assert OrtValue.ortvalue_from_numpy(np.array(["a"], object)).data_type() == "tensor(string)"
    with pytest.raises(InvalidArgument, match="host memory only"):
        OrtValue.ortvalue_from_numpy(np.array(["a"], object), "cuda")


def test_a_simulated_device_is_host_memory_that_says_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSAMER_DEVICE", "interpreter")
    x = X.copy()
    value = OrtValue.ortvalue_from_numpy(x, "cuda", 1)
    assert (value.device_name(), value.device_id(), value.__dlpack_device__()) == ("cuda", 1, (1, 0))
    assert not np.shares_memory(value.numpy(), x)
    np.testing.assert_array_equal(value.numpy(), X)


@pytest.mark.parametrize("dtype", DLPACK_TYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 2)], ids=str)
def test_dlpack_to_and_from_numpy(dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    array = np.ones(shape, dtype)
    value = OrtValue.from_dlpack(array)
    assert value.numpy().dtype == dtype
    np.testing.assert_array_equal(value.numpy(), array)
    back = np.from_dlpack(value)
    assert back.dtype == dtype
    np.testing.assert_array_equal(back, array)
    if array.size:
        assert np.shares_memory(value.numpy(), array)
        assert np.shares_memory(back, array)


@pytest.mark.parametrize("dtype", NOT_NUMPYS, ids=str)
def test_dlpack_types_that_numpy_lacks(dtype: np.dtype[Any]) -> None:
    array = np.arange(6).astype(dtype).reshape(2, 3)
    again = OrtValue.from_dlpack(OrtValue.ortvalue_from_numpy(array))
    assert again.numpy().dtype == dtype
    assert again.data_ptr() == array.ctypes.data
    np.testing.assert_array_equal(again.numpy(), array)


def test_dlpack_with_strides_on_the_host() -> None:
    wide = np.arange(12, dtype=np.float32).reshape(3, 4)
    value = OrtValue.from_dlpack(wide[:, ::2].T)
    np.testing.assert_array_equal(value.numpy(), wide[:, ::2].T)
    value.update_inplace(np.zeros((2, 3), np.float32))
    assert wide[:, ::2].sum() == 0
    assert wide[:, 1::2].sum() != 0


def test_dlpack_keeps_the_source_alive_until_the_consumer_is_done() -> None:
    array = X.copy()
    gone = weakref.ref(array)
    consumer = np.from_dlpack(OrtValue.ortvalue_from_numpy(array))
    before = dlpack.live_exports()
    del array
    gc.collect()
    np.testing.assert_array_equal(consumer, X)
    assert gone() is not None
    del consumer
    gc.collect()
    assert gone() is None
    assert dlpack.live_exports() == before - 1


def test_an_unconsumed_capsule_releases_its_tensor() -> None:
    before = dlpack.live_exports()
    capsule = OrtValue.ortvalue_from_numpy(X).to_dlpack()
    assert dlpack.live_exports() == before + 1
    del capsule
    assert dlpack.live_exports() == before


def test_a_capsule_is_consumed_once() -> None:
    capsule = OrtValue.ortvalue_from_numpy(X).to_dlpack()
    value = OrtValue.from_dlpack(capsule)
    with pytest.raises(InvalidArgument, match="nobody has consumed"):
        OrtValue.from_dlpack(capsule)
    np.testing.assert_array_equal(value.numpy(), X)


def test_dlpack_refuses_what_it_cannot_do() -> None:
    value = OrtValue.ortvalue_from_numpy(X)
    with pytest.raises(BufferError):
        value.__dlpack__(copy=True)
    with pytest.raises(BufferError):
        value.__dlpack__(dl_device=(2, 0))
    with pytest.raises(InvalidArgument, match="int4"):
        OrtValue.ortvalue_from_numpy(np.zeros(2, ml_dtypes.int4)).to_dlpack()


class Producer:
    """A tensor of another package, in device memory."""

    def __init__(self, value: OrtValue, strides: tuple[int, ...] | None = None) -> None:
        self.value = value
        self.asked_for: list[object] = []
        self.strides = strides

    def __dlpack__(self, *, stream: int | None = None) -> object:
        self.asked_for.append(stream)
        return self.value.to_dlpack()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.value.__dlpack_device__()


class CudaArray(Producer):
    stream: int | None = 7

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "data": (self.value.data_ptr(), False),
            "shape": tuple(self.value.shape()),
            "typestr": "<f4",
            "strides": self.strides,
            "version": 3,
            "stream": self.stream,
        }


def test_dlpack_on_the_device_waits_for_the_producer(gpu: FakeDriver) -> None:
    producer = Producer(OrtValue.ortvalue_from_numpy(X, "cuda"))
    value = OrtValue.from_dlpack(producer)
    assert (value.device_name(), value.data_ptr()) == ("cuda", producer.value.data_ptr())
    np.testing.assert_array_equal(value.numpy(), X)
    assert (producer.asked_for, gpu.waited) == ([1], [(1, 0)])


def test_cuda_array_interface(gpu: FakeDriver) -> None:
    source = CudaArray(OrtValue.ortvalue_from_numpy(X, "cuda"))
    value = OrtValue.from_cuda_array_interface(source)
    assert (value.device_name(), value.data_ptr()) == ("cuda", source.value.data_ptr())
    assert gpu.waited == [(7, 0)]
    gone = weakref.ref(source)
    del source
    gc.collect()
    assert gone() is not None, "the value keeps its source alive"
    np.testing.assert_array_equal(value.numpy(), X)
    dense = CudaArray(OrtValue.ortvalue_from_numpy(X, "cuda"), strides=(12, 4))
    np.testing.assert_array_equal(OrtValue.from_cuda_array_interface(dense).numpy(), X)
    with pytest.raises(InvalidArgument, match=r"row-major.*strides"):
        OrtValue.from_cuda_array_interface(CudaArray(dense.value, strides=(4, 8)))


@pytest.mark.parametrize(
    ("producers", "ours", "waited"),
    [
        (None, None, [(1, 0)]),
        (1, None, [(1, 0)]),
        (7, None, [(7, 0)]),
        (None, 9, []),
        (9, 9, []),
        (7, 9, [(7, 0)]),
        (1, 9, [(1, 0)]),
        (1, 0, []),
    ],
)
def test_whom_a_cuda_array_waits_for(
    gpu: FakeDriver, producers: int | None, ours: int | None, waited: list[tuple[int, int]]
) -> None:
    """Work on the default stream is behind nothing else: streams that do not block never wait for it by themselves."""
    source = CudaArray(OrtValue.ortvalue_from_numpy(X, "cuda"))
    source.stream = producers
    memory.adopt(source, ours)
    assert gpu.waited == waited


@pytest.mark.parametrize(
    ("shape", "strides", "dense"),
    [
        ((2, 3), (3, 1), True),
        ((2, 3), (1, 2), False),
        ((2, 1, 3), (3, 99, 1), True),
        ((0, 3), (7, 7), True),
        ((), (), True),
        ((2, 3), (3.5, 1), False),
    ],
)
def test_is_dense(shape: tuple[int, ...], strides: tuple[float, ...], dense: bool) -> None:
    assert is_dense(shape, strides) is dense


def test_consumers_and_capsules_that_outlive_everything_do_not_disturb_the_exit() -> None:
    code = """
        import builtins
        import numpy as np
        from gossamer.session import OrtValue

        value = OrtValue.ortvalue_from_numpy(np.ones(3, np.float32))
        builtins.consumer = np.from_dlpack(value)
        builtins.capsule = value.to_dlpack()
        builtins.imported = OrtValue.from_dlpack(np.ones(3))
        builtins.cycle = [value.to_dlpack()]
        builtins.cycle.append(builtins.cycle)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
