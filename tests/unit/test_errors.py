from __future__ import annotations

import pickle
import re

import pytest

from gossamer import errors
from gossamer.errors import (
    CompilationError,
    DeviceNotFound,
    DriverError,
    GossamerError,
    OutOfMemory,
    UnsupportedModel,
    UnsupportedNode,
)

ALL = [getattr(errors, name) for name in errors.__all__ if name != "UnsupportedNode"]

WITH_FIELDS = [
    OutOfMemory(asked=4096, held=512, free=100, limit=600, doing="growing an arena"),
    DriverError("cuMemAlloc", 2, "CUDA_ERROR_OUT_OF_MEMORY: out of memory", "growing an arena"),
    CompilationError(kernel="relu_kernel", target="sm_90", compiler_text="line 3: no"),
    DeviceNotFound("CUDA device 0", ("libcuda.so.1: not found",), "install a driver"),
    UnsupportedModel((UnsupportedNode("n1", "Foo", ("no kernel", "no CPU")), UnsupportedNode("n2", "Bar", ()))),
]


@pytest.mark.parametrize("error", ALL)
def test_every_error_has_the_base_and_a_code(error: type[GossamerError]) -> None:
    assert issubclass(error, GossamerError)
    assert re.fullmatch(r"[A-Z_]+", error.code)


def test_names_are_onnxruntimes() -> None:
    state = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state")
    children = [error.__name__ for error in ALL if error.__bases__[0] is GossamerError]
    assert children
    assert [name for name in children if not hasattr(state, name)] == []


def test_the_drawn_tree_is_the_tree() -> None:
    drawn = re.findall(r"^(.*?)(?:[├└]── )(\w+) +([A-Z_]+)", errors.__doc__ or "", re.MULTILINE)
    parents: list[str] = []
    for indent, name, code in drawn:
        depth = len(indent) // 4
        cls = getattr(errors, name)
        assert cls.code == code
        if depth:
            assert issubclass(cls, getattr(errors, parents[depth - 1])), name
        parents[depth:] = [name]
    assert {name for _, name, _ in drawn} == {error.__name__ for error in ALL}


def test_builtin_kin() -> None:
    assert issubclass(errors.InvalidArgument, ValueError)
    assert issubclass(errors.NotImplemented, NotImplementedError)
    assert issubclass(OutOfMemory, MemoryError)


@pytest.mark.parametrize("error", WITH_FIELDS, ids=lambda error: type(error).__name__)
def test_fields_survive_pickling(error: GossamerError) -> None:
    # Compilation errors come back from worker processes.
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))


def test_out_of_memory_says_asked_held_and_free() -> None:
    text = str(WITH_FIELDS[0])
    for part in ("4096", "512", "100", "gpu_mem_limit=600", "growing an arena"):
        assert part in text


def test_driver_error_names_call_code_text_and_purpose() -> None:
    text = str(WITH_FIELDS[1])
    for part in ("cuMemAlloc", "2", "CUDA_ERROR_OUT_OF_MEMORY", "growing an arena"):
        assert part in text


def test_unsupported_model_lists_every_node_and_reason() -> None:
    text = str(WITH_FIELDS[-1])
    for part in ("2 node(s)", "Bar, Foo", "Foo 'n1': no kernel; no CPU", "Bar 'n2': no provider has this operator"):
        assert part in text
