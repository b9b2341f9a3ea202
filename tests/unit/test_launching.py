"""Kernels and TMA descriptors as the driver is asked for them."""

from __future__ import annotations

from typing import Any

import pytest

from gossamer.errors import DriverError
from gossamer.program import Copy, TensorMap
from gossamer.program.calls import TRITON_TYPES
from gossamer.program.cubin import Cubin, TensorMapLayout
from gossamer.run import driver
from gossamer.run.context import Segment
from gossamer.run.cudnn import CudnnStep
from gossamer.run.launching import _TENSOR_MAP_TYPES, PreparedLaunch, encode_tensor_map, load_kernel


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(driver, "call", lambda *arguments, doing: calls.append(arguments))
    return calls


def test_a_descriptor_is_innermost_first_and_in_the_bindings_own_integers(asked: list[tuple[Any, ...]]) -> None:
    what = TensorMap("x", "float16", (32, 56, 56, 64), (200704, 3584, 64, 1), (2, 8, 8, 64))
    encode_tensor_map(what, 4096, TensorMapLayout(3, 2, 6, (2, 8, 8, 64), False))
    ((function, kind, rank, address, extents, strides, box, gaps, *_),) = asked
    assert (function, rank, address) == ("cuTensorMapEncodeTiled", 4, 4096)
    assert kind.name == "CU_TENSOR_MAP_DATA_TYPE_FLOAT16"
    assert [int(n) for n in extents] == [64, 56, 56, 32]
    assert [int(n) for n in strides] == [128, 7168, 401408]
    assert [int(n) for n in box] == [64, 8, 8, 2]
    assert [int(n) for n in gaps] == [1, 1, 1, 1]
    assert {type(n).__name__ for n in (*extents, *strides)} == {"cuuint64_t"}
    assert {type(n).__name__ for n in (*box, *gaps)} == {"cuuint32_t"}


def test_a_box_with_gaps_spans_them(asked: list[tuple[Any, ...]]) -> None:
    """The driver wants what a box spans, and takes one element of every so many: box / gap of them, rounded up."""
    what = TensorMap("x", "float32", (32, 56, 56, 64), (200704, 3584, 64, 1), (2, 8, 8, 32), (1, 2, 3, 1))
    encode_tensor_map(what, 0, TensorMapLayout(3, 4, 7, (2, 8, 8, 32), False))
    ((*_, box, gaps, _interleave, _swizzle, _promotion, _fill),) = asked
    assert [int(n) for n in box] == [32, 24, 16, 2]
    assert [int(n) for n in gaps] == [1, 3, 2, 1]


@pytest.mark.parametrize("failing", ["cuModuleGetFunction", "cuFuncSetAttribute"])
def test_a_module_without_its_function_is_unloaded(monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    calls: list[tuple[Any, ...]] = []

    def call(function: str, *arguments: Any, doing: str) -> int:
        calls.append((function, *arguments))
        if function in (failing, "cuModuleUnload"):
            raise DriverError(function, 500, "not found", doing)
        return 99

    monkeypatch.setattr(driver, "call", call)
    with pytest.raises(DriverError, match=failing):
        load_kernel(Cubin("kernel", 90, 4, 64 << 10, 0, 1, (), "3.9.0", b"code"))
    assert calls[-1] == ("cuModuleUnload", 99)


def test_every_type_that_kernels_take_has_a_descriptor() -> None:
    for dtype in TRITON_TYPES:
        name = f"CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_{_TENSOR_MAP_TYPES[dtype]}"
        assert driver.constant(name).name.endswith(_TENSOR_MAP_TYPES[dtype])


def test_which_runs_a_graph_may_capture() -> None:
    """The first one of kernels, the second where a library loads what it needs while it runs for the first time."""
    launch, cudnn = object.__new__(PreparedLaunch), object.__new__(CudnnStep)
    copy = Copy("x", "y", 4)
    assert not Segment([]).may_be_captured(2)
    assert Segment([launch, copy]).may_be_captured(1)
    assert not Segment([launch, cudnn, copy]).may_be_captured(1)
    assert Segment([launch, cudnn, copy]).may_be_captured(2)
