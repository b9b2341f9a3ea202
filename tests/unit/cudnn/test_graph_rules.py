"""What a graph gives to cuDNN while it restores and executes plans, seen through a backend that only records. (R10)"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cudnn_plan_records import RECORD
from gossamer.cudnn import DeviceProperties, Graph, Handle, bindings, calls, enums, loader, versions
from gossamer.cudnn.descriptors import Attribute, Kind, Type
from gossamer.cudnn.plan_format import PlanRecord, encode
from gossamer.errors import CudnnError, InvalidArgument, PlanError, WrongType

H200 = DeviceProperties.named("h200")
MISMATCH = int(enums.cudnnStatus.CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH)


class Backend:
    """cuDNN's backend API as a recorder: descriptors are numbers, attributes are kept, finalizing may fail."""

    def __init__(self) -> None:
        self.numbers = count(0x1000, 0x10)
        self.kinds: dict[int, Kind] = {}
        self.attributes: dict[int, dict[Attribute, Any]] = {}
        self.alive: set[int] = set()
        self.statuses: dict[Kind, int] = {}
        self.executed: list[tuple[int, Kind, Kind]] = []
        self.handles = 0

    def create(self, kind: Kind, into: Any) -> int:
        number = into._obj.value = next(self.numbers)
        self.kinds[number], self.attributes[number] = kind, {}
        self.alive.add(number)
        return 0

    def set(self, number: int, attribute: Attribute, type: Type, length: int, values: Any) -> int:
        assert number in self.alive
        self.attributes[number][attribute] = (
            values.raw[:length] if type is Type.CUDNN_TYPE_CHAR else list(values[:length])
        )
        return 0

    def get(self, number: int, attribute: Attribute, type: Type, most: int, length: Any, into: Any) -> int:
        assert attribute is Attribute.CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE
        into._obj.value = 1000
        length._obj.value = 1
        return 0

    def finalize(self, number: int) -> int:
        return self.statuses.get(self.kinds[number], 0)

    def destroy(self, number: int) -> int:
        self.alive.remove(number)
        return 0

    def execute(self, handle: int, plan: int, pack: int) -> int:
        assert {plan, pack} <= self.alive
        self.executed.append((handle, self.kinds[plan], self.kinds[pack]))
        return 0

    def make_handle(self, into: Any) -> int:
        self.handles += 1
        into._obj.value = 0xABC0
        return 0

    def of(self, kind: Kind) -> dict[Attribute, Any]:
        """Attributes of the one descriptor of a kind that was ever made."""
        (found,) = (self.attributes[number] for number, one in self.kinds.items() if one is kind)
        return found


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    made = Backend()
    for name, function in {
        "cudnnBackendCreateDescriptor": made.create,
        "cudnnBackendSetAttribute": made.set,
        "cudnnBackendGetAttribute": made.get,
        "cudnnBackendFinalize": made.finalize,
        "cudnnBackendDestroyDescriptor": made.destroy,
        "cudnnBackendExecute": made.execute,
        "cudnnCreate": made.make_handle,
        "cudnnDestroy": lambda handle: 0,
    }.items():
        monkeypatch.setattr(calls, name, function, raising=False)
    with loader.force_absent():
        yield made


PLAN = Kind.CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR
PROPERTIES = Kind.CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR
PACK = Kind.CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR
DEVICEPROP = Attribute.CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP
HANDLE = Attribute.CUDNN_ATTR_EXECUTION_PLAN_HANDLE
BLOB = encode(replace(RECORD, graph=None))


def test_without_a_handle_properties_serve(backend: Backend) -> None:
    """R10.2, R10.8: and no handle is made on the way."""
    graph = Graph(properties=H200)
    plan = graph.deserialize(BLOB)
    attributes = backend.of(PLAN)
    assert DEVICEPROP in attributes
    assert HANDLE not in attributes
    assert attributes[Attribute.CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION] == RECORD.backend.text  # type: ignore[union-attr]
    assert graph.handle is None
    assert backend.handles == 0
    assert len(backend.alive) == 1, "the properties' descriptor was freed, the plan's was not"
    plan.close()
    plan.close()
    assert not backend.alive


@pytest.mark.parametrize("given", ["argument", "argument and properties", "graph"])
def test_with_a_handle_the_handle_serves(backend: Backend, given: str) -> None:
    """R10.2: properties are ignored then, even those of another device."""
    other = DeviceProperties.named("t4") if given == "argument and properties" else None
    graph = Graph(properties=other, handle=0xBEE0 if given == "graph" else None)
    plan = graph.deserialize(BLOB, handle=None if given == "graph" else 0xBEE0)
    attributes = backend.of(PLAN)
    assert attributes[HANDLE] == [0xBEE0]
    assert DEVICEPROP not in attributes
    assert PROPERTIES not in backend.kinds.values()
    plan.close()


def test_with_both_properties_restore_and_the_handle_runs(backend: Backend) -> None:
    """R10.2."""
    graph = Graph(properties=H200, handle=0xBEE0)
    with graph.deserialize(BLOB) as plan:
        attributes = backend.of(PLAN)
        assert DEVICEPROP in attributes
        assert HANDLE not in attributes
        plan.execute({"x": 0x1000, "y": 0x2000}, workspace=0x3000)
    assert backend.executed == [(0xBEE0, PLAN, PACK)]
    assert (graph.handle, graph.properties, backend.handles) == (0xBEE0, H200, 0)


def test_with_neither(backend: Backend) -> None:
    """R10.2: ATTRIBUTE_NOT_SET, saying which to give."""
    for action in (
        lambda: Graph().deserialize(BLOB),
        lambda: Graph().deserialize(encode(PlanRecord(None, graph=GRAPH))),
    ):
        with pytest.raises(PlanError, match=r"give Graph\(properties=…\).*or Graph\(handle=…\)") as raised:
            action()
        assert raised.value.reason == "ATTRIBUTE_NOT_SET"
    assert not backend.kinds


def _relu() -> dict[str, Any]:
    graph = Graph()
    graph.output(graph.relu(graph.tensor("x", (2, 3), "float16")), name="y")
    return graph.as_dict()


GRAPH = _relu()


def test_null_properties() -> None:
    """R10.2: what is no DeviceProperties is a type error at once, never a null deep inside."""
    for wrong in ("h200", H200.values, 5):
        with pytest.raises(WrongType, match="properties are DeviceProperties"):
            Graph(properties=wrong)  # type: ignore[arg-type]
    for handle in (0, -1, True, "handle"):
        with pytest.raises(WrongType, match="a cuDNN handle is"):
            Graph(handle=handle)  # type: ignore[arg-type]


@pytest.mark.parametrize(("running", "built_for"), [(90701, 92800), (92801, 90701)])
def test_versions_without_device_properties(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, running: int, built_for: int
) -> None:
    """R10.3: NOT_SUPPORTED naming both versions; only where there is no handle."""
    old = loader.Library(loader.State.AVAILABLE, path="libcudnn.so.9", version=running)
    monkeypatch.setattr(loader, "load", lambda: old)
    monkeypatch.setattr(versions, "BUILT_FOR", built_for)
    monkeypatch.setattr("gossamer.cudnn.prerequisites.prepare", lambda: None)
    with pytest.raises(PlanError, match=r"needs cuDNN 9\.8\.0") as raised:
        Graph(properties=H200).deserialize(BLOB)
    assert raised.value.reason == "NOT_SUPPORTED"
    for version in (running, built_for):
        assert versions.version_text(version) in str(raised.value)
    assert not backend.kinds, "nothing was tried"
    plan = Graph(handle=0xBEE0).deserialize(BLOB)
    plan.close()


def test_a_mismatch_with_a_handle_names_its_device(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """R10.5."""
    backend.statuses[PLAN] = MISMATCH
    monkeypatch.setattr(DeviceProperties, "from_handle", classmethod(lambda cls, handle: cls.named("t4")))
    with pytest.raises(PlanError, match=r"is for NVIDIA H200 \(sm_90.*this is for Tesla T4 \(sm_75") as raised:
        Graph(handle=0xBEE0).deserialize(BLOB)
    assert raised.value.reason == "ARCH_MISMATCH"
    assert not backend.alive, "a plan that was refused is freed"


def test_other_refusals_while_restoring(backend: Backend) -> None:
    for status, reason in ((3000, "VERSION_MISMATCH"), (2000, "VERSION_MISMATCH")):
        backend.statuses[PLAN] = status
        with pytest.raises(PlanError) as raised:
            Graph(properties=H200).deserialize(BLOB)
        assert raised.value.reason == reason  # no cuDNN is of another version than the plan's
        assert isinstance(raised.value.__cause__, CudnnError)


def pack_of(backend: Backend) -> dict[int, int]:
    attributes = backend.of(PACK)
    uids = attributes[Attribute.CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS]
    return dict(zip(uids, attributes[Attribute.CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS], strict=True))


def test_variant_packs(backend: Backend) -> None:
    """R10.9: every tensor of the plan by uid, scalars in host memory, and the workspace."""
    plan = Graph(properties=H200, handle=0xBEE0).deserialize(BLOB)
    assert plan.workspace_size == 1000
    with plan, plan.bind({"x": 0x1000, 3: 0x2000}, workspace=0x4000) as binding:
        pointers = pack_of(backend)
        assert (pointers[1], pointers[3]) == (0x1000, 0x2000)
        assert ctypes.c_float.from_address(pointers[2]).value == 0.125
        assert backend.of(PACK)[Attribute.CUDNN_ATTR_VARIANT_PACK_WORKSPACE] == [0x4000]
        binding.execute()
        binding.execute(0xCAF0)
    assert [handle for handle, *_ in backend.executed] == [0xBEE0, 0xCAF0]
    assert not backend.alive


def test_scalars_can_be_given(backend: Backend) -> None:
    with Graph(properties=H200).deserialize(BLOB) as plan:
        binding = plan.bind({plan.tensors[1]: 0x1000, "y": 0x2000, 2: 0.5}, workspace=0x4000)
        assert ctypes.c_float.from_address(pack_of(backend)[2]).value == 0.5
        binding.close()


def test_the_frontends_workspace_comes_first(backend: Backend) -> None:
    record = replace(RECORD, placed={3: 256}, reserved_workspace=512, replacements={1: (17, 64)}, graph=None)
    with Graph(properties=H200).deserialize(encode(record)) as plan:
        assert plan.workspace_size == 1512
        plan.bind({17: 0x1000}, workspace=0x8000).close()
    assert {uid: address for uid, address in pack_of(backend).items() if uid != 2} == {1: 0x1040, 3: 0x8100}
    assert backend.of(PACK)[Attribute.CUDNN_ATTR_VARIANT_PACK_WORKSPACE] == [0x8200]


def test_executing_without_a_handle_makes_one(backend: Backend) -> None:
    """R10.11: then, not before; and it goes with the plan."""
    with Graph(properties=H200).deserialize(BLOB) as plan:
        assert backend.handles == 0
        for _ in range(2):
            plan.execute({"x": 0x1000, "y": 0x2000}, workspace=0x4000)
        assert backend.handles == 1
    assert [handle for handle, *_ in backend.executed] == [0xABC0, 0xABC0]


@pytest.mark.parametrize(
    ("given", "workspace", "match"),
    [
        ({"x": 0x1000}, 0x4000, r"no address for y"),
        ({"x": 0x1000, "y": 0x2000, "z": 0x3000}, 0x4000, r"no tensor 'z'; it has x.*, y"),
        ({"x": 0x1000, "y": 0x2008}, 0x4000, r"0x2008 for tensor y.*a multiple of 16"),
        ({"x": 0x1000, "y": 0}, 0x4000, r"0x0 for tensor y"),
        ({"x": 0x1000, "y": 0x2000}, None, r"a workspace of 1000 bytes"),
        ({"x": 0x1000, "y": "0x2000"}, 0x4000, r"str for tensor y"),
    ],
)
def test_bindings_that_are_refused(backend: Backend, given: dict[Any, Any], workspace: Any, match: str) -> None:
    with (
        Graph(properties=H200).deserialize(BLOB) as plan,
        pytest.raises(InvalidArgument, match=match),
    ):
        plan.bind(given, workspace)


@dataclass
class Interface:
    """What describes its memory by `__cuda_array_interface__`."""

    typestr: str = "<f2"
    shape: tuple[int, ...] = (2, 3)
    strides: tuple[int, ...] | None = None

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "typestr": self.typestr,
            "shape": self.shape,
            "strides": self.strides,
            "data": (0x5000, False),
            "version": 3,
        }


class Packed:
    """NumPy memory that says by DLPack that it is on a GPU."""

    def __init__(self, array: np.ndarray[Any, Any], device: int = 2) -> None:
        self.array = array
        self.device = device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0

    def __dlpack__(self, stream: int | None = None) -> Any:
        assert stream == -1, "no synchronisation"
        return self.array.__dlpack__()


X = RECORD.backend.tensors[1] if RECORD.backend else None


def test_what_describes_its_memory() -> None:
    assert X is not None
    x = replace(X, alignment=1)
    assert bindings.address_of(Interface(), x) == 0x5000
    assert bindings.address_of(Interface(shape=(6,)), x) == 0x5000
    assert bindings.address_of(Interface(strides=(16, 2)), x) == 0x5000
    array = np.zeros((4, 3), np.float16)
    assert bindings.address_of(Packed(array), x) == array.ctypes.data
    assert bindings.address_of(Packed(array[2:]), x) == array.ctypes.data + 12


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (Interface(typestr="<f4"), "float32 for tensor"),
        (Interface(shape=(5,)), "10 bytes for tensor .*takes 12"),
        (Interface(shape=(0, 3)), "0 bytes"),
        (Packed(np.zeros(6, np.float16), device=1), "not in the memory of a CUDA device"),
        (Packed(np.zeros(6, np.int16)), "int16 for tensor"),
        (Packed(np.zeros((6, 2), np.float16)[:3, 0]), "10 bytes"),
    ],
)
def test_memory_that_does_not_fit(given: Any, match: str) -> None:
    assert X is not None
    with pytest.raises(InvalidArgument, match=match):
        bindings.address_of(given, replace(X, alignment=1))


def test_workspaces() -> None:
    assert bindings.workspace_address(None, 0) == 0
    array = np.zeros(64, np.uint8)
    offset = -array.ctypes.data % 16
    assert bindings.workspace_address(Packed(array[offset:]), 32) == array.ctypes.data + offset
    assert bindings.workspace_address(Packed(np.zeros(64, np.float64)[0:]), 32) % 16 == 0
    with pytest.raises(InvalidArgument, match="bytes for tensor workspace"):
        bindings.workspace_address(Packed(array[offset:]), 640)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32", "int64"])
def test_host_scalars(dtype: str) -> None:
    scalar = bindings.HostScalar(3, dtype)
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    assert np.frombuffer(ctypes.string_at(scalar.address, kind.itemsize), kind)[0] == 3


def test_handles(backend: Backend) -> None:
    with Handle() as handle:
        assert handle.address == 0xABC0
    handle.close()
    with pytest.raises(Exception, match="the handle was closed"):
        _ = handle.address


def test_without_cudnn() -> None:
    """R1.8: the reason is in the error."""
    with loader.force_absent(), pytest.raises(CudnnError, match="cuDNN was not found at runtime"):
        Graph(properties=H200).deserialize(BLOB)


def test_nothing_is_built_without_cudnn() -> None:
    """R5: building is guarded, not only executing; with a handle, too, which can be nothing but stale."""
    for how in ({"properties": H200}, {"handle": 0xBEE0}):
        graph = Graph(**how)  # type: ignore[arg-type]
        graph.output(graph.relu(graph.tensor("x", (1, 4, 4, 4), "float16")), name="y")
        with loader.force_absent(), pytest.raises(CudnnError, match="cuDNN was not found at runtime"):
            graph.build()
    with loader.force_absent(), pytest.raises(CudnnError, match="cuDNN was not found at runtime"):
        Handle()
