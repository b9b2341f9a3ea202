"""Sessions with real cuDNN installed, on a machine that need not have a GPU: the null device compiles. (R3, R7)"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conftest import no_triton
from cudnn_releases import RELEASES, link
from cudnn_sessions import TWO_SESSIONS, run
from fake_cudnn import Python
from gossamer.options import CUDNN_OPERATORS
from gossamer.providers.cudnn.preference import NATIVE


@pytest.fixture(scope="module")
def python(wheel_members: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Python:
    """Real cuDNN where pip would have put it."""
    if lack := no_triton():
        pytest.skip(lack)
    made = Python.create(tmp_path_factory.mktemp("sessions") / "python")
    link(wheel_members(RELEASES["9.28"], "nvidia/cudnn/lib/*"), made, "nvidia/cudnn/lib/libcudnn*")
    return made


def test_two_sessions_of_one_process_differ(python: Python) -> None:
    """R3.3, R3.4: 0 opens nothing, 1 loads at first need, and the first stays without."""
    seen = run(python, TWO_SESSIONS)
    assert seen["created"] == seen["disabled ran"] == seen["enabled created"] == [[], []]
    assert seen["enabled ran"][0] == [str(python.packages / "nvidia/cudnn/lib/libcudnn.so.9")]
    assert any("/nvidia/cudnn/lib/libcudnn.so.9" in path for path in seen["enabled ran"][1])
    assert seen["texts"] == ["disabled", "disabled"]


def test_native_by_default(python: Python) -> None:
    """R6: with cuDNN there and enabled, these never ask for it; there is no option by which they would."""
    reductions = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
    bodies = [
        *("y = Softmax <axis = 1> (x)", "y = LogSoftmax <axis = 1> (x)"),
        *(f"y = Reduce{name} <keepdims = 0> (x)" for name in reductions),
        *("y = ArgMax <axis = 1> (x)", "y = ArgMin <axis = 3> (x)"),
        'y = Einsum <equation = "nchw,nchw->nc"> (x, x)',
    ]
    code = f"""
        kinds = set()
        for body in {bodies!r}:
            calls = session(body, device="null").program({{"x": X}}).calls
            kinds |= {{type(call).__name__ for call in calls}}
        print(json.dumps([sorted(kinds), opened_here(), mapped()]))
    """
    kinds, opened, mapped = run(python, code)
    assert "Launch" in kinds
    assert {"CudnnCall", "HostCall", "Unavailable"}.isdisjoint(kinds)
    assert (opened, mapped) == ([], [])
    native = {"Softmax", "LogSoftmax", "ArgMax", "ArgMin", "Einsum", "BiasSoftmax", "GroupQueryAttention", "QAttention"}
    assert native.isdisjoint(CUDNN_OPERATORS)
    assert not any(name.startswith("Reduce") for name in CUDNN_OPERATORS)


def test_dispatch(python: Python) -> None:
    """R7: cuDNN where it is there and enabled; native with 0, where cuDNN does not take the node, and where the native
    kernel was measured faster.
    """
    assert "LRN" in NATIVE[90]
    assert "LRN" not in NATIVE.get(80, ())
    calls = run(
        python,
        """
        reports = {}

        def kinds(body, target="sm_80", **options):
            made = session(body, device="null", target=target, **options)
            made.run(None, {"x": X})
            reports[body] = str(made.placement())
            return [type(call).__name__ for call in made.program({"x": X}).calls]

        print(json.dumps({
            "default": kinds("y = LRN <size = 3, bias = 2.0> (x)"),
            "disabled": kinds("y = LRN <size = 3, bias = 2.0> (x)", enable_cudnn=0),
            "measured": kinds("y = LRN <size = 3, bias = 2.0> (x)", target="sm_90"),
            "too large": kinds("y = LRN <size = 17, bias = 2.0> (x)"),
            "not symmetric": kinds("y = MaxPool <kernel_shape = [2, 2], pads = [0, 0, 1, 1]> (x)"),
            "not cuDNN's": kinds("y = Relu (x)"),
            "reports": reports,
        }))
        """,
    )
    reports = calls.pop("reports")
    assert "not on cuDNN: cuDNN" in reports["y = LRN <size = 17, bias = 2.0> (x)"]
    padding = "its padding or ceil_mode asks for windows at the border that cuDNN does not have"
    assert f"not on cuDNN: {padding}" in reports["y = MaxPool <kernel_shape = [2, 2], pads = [0, 0, 1, 1]> (x)"]
    assert "not on" not in reports["y = Relu (x)"]
    assert "CudnnCall" in calls.pop("default")
    assert set(map(tuple, calls.values())) == {("Launch",)}
