"""Trampolines: complete prototypes, bound late, harmless where there is no cuDNN. (R2.4)"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fake_cudnn
import gossamer
from fake_cudnn import JIT_PARTS, Fake, Python
from gossamer.cudnn import calls, loader
from gossamer.cudnn.symbols import FUNCTIONS


@pytest.fixture
def absent() -> Iterator[None]:
    with loader.force_absent():
        yield


class EveryName:
    """A library that has every function. (A fake cuDNN, opened here, would be found by every later test.)"""

    def __getitem__(self, name: str) -> Any:
        return ctypes.pythonapi["Py_IsInitialized"]


def test_prototypes_are_complete() -> None:
    """R2.1: every argument and the result have a type; ctypes would otherwise pass ints of 32 bits."""
    results = {"cudnnStatus_t": ctypes.c_int, "size_t": ctypes.c_size_t, "const char *": ctypes.c_char_p, "void": None}
    for name, function in FUNCTIONS.items():
        bound: Any = calls.bind(function, EveryName())  # type: ignore[arg-type]
        assert len(bound.argtypes) == len(function.arguments), name
        assert None not in bound.argtypes, name
        assert bound.restype is results[function.returns], name


def test_pointers_are_pointers() -> None:
    """R2.1: no argument that is a pointer in C is cut to 32 bits."""
    bound: Any = calls.bind(FUNCTIONS["cudnnSetTensorNdDescriptor"], EveryName())  # type: ignore[arg-type]
    assert bound.argtypes == [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]


@pytest.mark.parametrize(
    ("spelling", "type_"),
    [
        ("int", ctypes.c_int),
        ("size_t", ctypes.c_size_t),
        ("int64_t", ctypes.c_int64),
        ("unsigned long long", ctypes.c_ulonglong),
        ("double", ctypes.c_double),
        ("cudnnDataType_t", ctypes.c_int),
        ("cudnnHandle_t", ctypes.c_void_p),
        ("cudnnHandle_t *", ctypes.c_void_p),
        ("const void *", ctypes.c_void_p),
        ("cudnnConvolutionFwdAlgoPerf_t *", ctypes.c_void_p),
        ("void", None),
    ],
)
def test_types(spelling: str, type_: object) -> None:
    assert calls.c_type(spelling) is type_


@pytest.mark.usefixtures("absent")
def test_absent() -> None:
    """R2.4: NOT_INITIALIZED, 0, or a fixed text; nothing is called."""
    expected = {"cudnnStatus_t": 1001, "size_t": 0, "const char *": b"cuDNN is not available", "void": None}
    for name, function in FUNCTIONS.items():
        assert getattr(calls, name)(*[None] * len(function.arguments)) == expected[function.returns], name


def test_unknown_names() -> None:
    with pytest.raises(AttributeError, match="cuDNN has no such function"):
        calls.cudnnMakeItFast  # noqa: B018


def test_trampolines_are_made_once_and_documented() -> None:
    assert calls.cudnnSetStream is calls.cudnnSetStream
    assert calls.cudnnSetStream.__name__ == "cudnnSetStream"
    assert calls.cudnnSetStream.__doc__ == "cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t streamId)"


@pytest.mark.usefixtures("absent")
def test_check_without_cudnn() -> None:
    """R2.4: the error's text never comes from a library that is not there."""
    calls.check(0, "cudnnCreate")
    with pytest.raises(gossamer.CudnnError) as caught:
        calls.check(calls.cudnnCreate(None), "cudnnCreate", "making a handle")
    assert str(caught.value) == (
        "cudnnCreate returned 1001 (CUDNN_STATUS_NOT_INITIALIZED: cuDNN was not found at runtime. "
        "Install cuDNN, or disable CUDA execution for this op/model.) while making a handle"
    )
    assert (caught.value.call, caught.value.status, caught.value.code) == ("cudnnCreate", 1001, "EP_FAIL")


@pytest.mark.usefixtures("absent")
def test_check_of_a_status_that_is_newer_than_the_manifest() -> None:
    with pytest.raises(gossamer.CudnnError, match=r"returned 9999 \(a status newer than the manifest: "):
        calls.check(9999, "cudnnCreate")


def test_bound_at_first_call(python: Python, fakes: fake_cudnn.Library) -> None:
    """R1.1, R2.4: neither import nor naming a function opens anything; calling does. Texts are the library's."""
    fakes.installed(python)
    seen = python.run("""
        import json, sys
        opened = []
        sys.addaudithook(lambda event, given: opened.append(given[0]) if event == "ctypes.dlopen" else None)
        from gossamer.cudnn import calls
        function = calls.cudnnGetVersion
        before = [path for path in opened if path]
        version = function()
        after = [path for path in opened if path and path.startswith("/")]
        try:
            calls.check(2000, "cudnnCreate")
        except Exception as error:
            text = str(error)
        print(json.dumps([before, version, len(after), calls.cudnnSetStream(None, None), text]))
    """)
    assert seen == [[], 92801, 1, 0, "cudnnCreate returned 2000 (CUDNN_STATUS_BAD_PARAM: a fake status)"]


def test_functions_that_this_cudnn_has_not(python: Python, fakes: fake_cudnn.Library) -> None:
    """R1.4: cuDNN's own status for a part that is not installed, and the umbrella's function is not called."""
    fakes.installed(python, Fake(parts=JIT_PARTS), "cudnn_jit")
    seen = python.run("""
        import json
        from gossamer.cudnn import calls
        print(json.dumps([calls.cudnnOpsVersionCheck(), calls.cudnnRNNForward(*[None] * 20), calls.cudnnDestroy(None)]))
    """)
    assert seen == [3009, 3009, 0]


def test_bound_again_after_a_retry(python: Python, fakes: fake_cudnn.Library, tmp_path: Path) -> None:
    """R1.7: a trampoline that was called in vain finds the library that preload_dlls found."""
    umbrella = fakes.at(tmp_path / "mine")
    seen = python.run(f"""
        import json
        import gossamer
        from gossamer.cudnn import calls
        before = calls.cudnnGetVersion(), calls.cudnnSetStream(None, None)
        gossamer.preload_dlls(directory={str(umbrella.parent)!r})
        print(json.dumps([before, calls.cudnnGetVersion(), calls.cudnnSetStream(None, None)]))
    """)
    assert seen == [[0, 1001], 92801, 0]
