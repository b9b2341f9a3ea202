"""Which nodes go to cuDNN's direct routines, with what, and why others do not. Lowering opens no library. (R7)"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cases import normalization, pooling
from cases.node_case import NodeCase
from cases.recurrent import Recurrent
from cases.references import channels_last, floats
from cudnn_direct_cases import CASES, OPERATORS, RANDOM, refusal_of
from gossamer.cudnn import loader
from gossamer.program import Call, Copy, CudnnCall, Fill, Launch, Program, Target, Unavailable
from gossamer.providers.cudnn import Policy
from harness import lower_model

ONLY = Policy(enabled=True, only=OPERATORS)
PREFERRED = Policy(enabled=True)
LIBRARY = loader.Library(loader.State.AVAILABLE, version=92801, lacking=frozenset())


@pytest.fixture(autouse=True)
def library() -> Iterator[None]:
    with loader.forced(LIBRARY):
        yield


def program_of(node: NodeCase, policy: Policy = ONLY, target: str = "sm_80", **changes: Any) -> Program:
    """By default for an architecture on which nothing was measured, where cuDNN is preferred wherever it is there."""
    return lower_model(node.model(), replace(Target.named(target), **changes), policy)[0]


def settings_of(node: NodeCase, **changes: Any) -> dict[str, Any]:
    """What the one call of cuDNN is made from."""
    (call,) = (call for call in program_of(node, **changes).calls if isinstance(call, CudnnCall))
    settings: dict[str, Any] = json.loads(call.description)
    return settings


def reason_of(calls: tuple[Call, ...]) -> str:
    return next((call.reason for call in calls if isinstance(call, Unavailable)), "")


@pytest.mark.parametrize("node", CASES, ids=str)
def test_taken_or_refused(node: NodeCase) -> None:
    """R5: where it must be cuDNN, its reason is the error; else the native kernels do it, and no cuDNN takes part."""
    calls, expected = program_of(node).calls, refusal_of(node)
    assert expected in reason_of(calls)
    if expected:
        assert reason_of(calls).startswith("cuDNN does not take this node: ")
        native = program_of(node, PREFERRED).calls
        assert not any(isinstance(call, CudnnCall | Unavailable) for call in native)
    else:
        assert not reason_of(calls)
        assert program_of(node, PREFERRED).calls == calls
        empty = any(a is not None and not a.size for a in node.inputs)
        assert sum(isinstance(call, CudnnCall) for call in calls) == (0 if empty else 1)
        assert all(isinstance(call, CudnnCall | Launch | Copy | Fill) for call in calls)


@pytest.mark.parametrize("op", OPERATORS)
def test_native_where_it_was_measured_faster(op: str) -> None:
    """R7: tuning may take the choice from cuDNN; an H200 measured all of these."""
    node = next(
        node for node in CASES if node.op_type == op and not refusal_of(node) and not reason_of(program_of(node).calls)
    )
    assert not any(isinstance(call, CudnnCall) for call in program_of(node, PREFERRED, "sm_90").calls)


@pytest.mark.parametrize("node", RANDOM, ids=str)
def test_random_pools(node: NodeCase) -> None:
    reasons = ("no indices", "no dilations", "windows at the border", "counts what ONNX does not")
    reason = reason_of(program_of(node).calls)
    assert not reason or any(known in reason for known in reasons)


def test_random_pools_are_of_both_kinds() -> None:
    taken = [node for node in RANDOM if not reason_of(program_of(node).calls)]
    assert 15 < len(taken) < len(RANDOM) - 15


def test_an_older_cudnn() -> None:
    node = Recurrent("LSTM", dtype="bfloat16").case("half")
    with loader.forced(replace(LIBRARY, version=90800)):
        assert "cuDNN 9.8.0 has no recurrent layers of bfloat16" in reason_of(program_of(node).calls)
    assert not reason_of(program_of(node).calls)


@pytest.mark.parametrize("function", ["cudnnPoolingForward", "cudnnLRNCrossChannelForward", "cudnnRNNForward"])
def test_a_cudnn_without_the_function(function: str) -> None:
    """R1.4: a function that is not there makes a refusal, not an error when the node runs."""
    words = {"cudnnPoolingForward": "MaxPool-VALID", "cudnnLRNCrossChannelForward": "LRN-size_3"}
    node = next(node for node in CASES if node.name == words.get(function, "LSTM-plain-float32"))
    with loader.forced(replace(LIBRARY, lacking=frozenset({function}))):
        assert reason_of(program_of(node).calls).endswith(f"cuDNN 9.28.1 has no {function}.")


def test_tensors_of_more_elements_than_cudnn_counts() -> None:
    x = np.broadcast_to(np.float16(0), (1, 2**15, 256, 256))
    node = NodeCase("GlobalMaxPool-large", "GlobalMaxPool", [x], opset=21)
    assert "2³¹ - 1 elements" in reason_of(program_of(node).calls)


def test_images_in_either_layout() -> None:
    """Missing dimensions have an extent of one; strides alone tell layouts apart."""
    x = floats("x", (2, 3, 9))
    line = pooling.case("MaxPool", "line", x, kernel_shape=[3], strides=[2], pads=[1, 1])
    first, last = settings_of(line), settings_of(channels_last(line))
    assert first["x"] == {"dtype": "float32", "dims": [2, 3, 1, 9], "strides": [27, 9, 9, 1]}
    assert last["x"] == {"dtype": "float32", "dims": [2, 3, 1, 9], "strides": [27, 1, 27, 3]}
    for settings in (first, last):
        assert settings["y"]["dims"] == [2, 3, 1, 5]
        assert (settings["window"], settings["padding"], settings["strides"]) == ([1, 3], [0, 1], [1, 2])


def test_modes_of_averages() -> None:
    x, window = floats("x", (1, 1, 6, 6)), {"kernel_shape": [3, 3], "pads": [1] * 4}
    modes = {count: pooling.case("AveragePool", "mode", x, count_include_pad=count, **window) for count in (0, 1)}
    assert settings_of(modes[0])["mode"] == "average"
    assert settings_of(modes[1])["mode"] == "average_with_padding"


def test_parameters_of_another_type_are_converted_once() -> None:
    """cuDNN wants those of half types in fp32."""
    node = next(node for node in CASES if node.name == "InstanceNormalization-float16")
    program = program_of(node)
    (call,) = program.calls
    assert isinstance(call, CudnnCall)
    assert all(program.buffers[name].dtype == "float32" for name in call.reads if name.startswith(("x1", "x2")))
    assert [program.buffers[name].shape for name in call.reads] == [node.inputs[0].shape, (12,), (12,)]  # type: ignore[union-attr]


def test_scales_that_are_not_constant_are_repeated_on_the_device() -> None:
    node = normalization.instance_norm("rows", floats("x", (3, 4, 5)))
    *copies, call = program_of(node).calls
    assert all(isinstance(copy, Launch) for copy in copies)
    assert len(copies) == 2
    assert isinstance(call, CudnnCall)
    assert json.loads(call.description)["x"]["dims"] == [1, 12, 1, 5]


def test_precision() -> None:
    """Without TF32, cuDNN multiplies fp32 without tensor cores, as native kernels do."""
    node = Recurrent("LSTM").case("precision")
    assert not settings_of(node)["fma"]
    assert settings_of(node, use_tf32=False)["fma"]
    assert not settings_of(Recurrent("LSTM", dtype="float16").case("half"), use_tf32=False)["fma"]


def test_weights_that_are_inputs_are_packed_for_every_run() -> None:
    assert settings_of(Recurrent("GRU", attributes={"linear_before_reset": 1}).case("constant"))["fixed"]
    node = Recurrent("GRU", attributes={"linear_before_reset": 1}, constants=(1, 3)).case("one_input")
    assert not settings_of(node)["fixed"]


@pytest.mark.parametrize(
    ("layer", "before", "after"),
    [
        (Recurrent("LSTM", initial=True), 0, 0),
        (Recurrent("LSTM", attributes={"layout": 1}, initial=True), 0, 0),
        (Recurrent("LSTM", attributes={"direction": "bidirectional"}, initial=True), 0, 1),
        (Recurrent("LSTM", attributes={"direction": "bidirectional"}, batch=1, initial=True), 0, 0),
        (Recurrent("LSTM", attributes={"direction": "bidirectional", "layout": 1}, initial=True), 2, 2),
        (Recurrent("LSTM", attributes={"direction": "reverse"}), 1, 1),
        (Recurrent("LSTM", attributes={"direction": "reverse"}, steps=1), 0, 0),
    ],
    ids=str,
)
def test_copies_only_where_orders_differ(layer: Recurrent, before: int, after: int) -> None:
    calls = program_of(layer.case("order")).calls
    place = next(index for index, call in enumerate(calls) if isinstance(call, CudnnCall))
    assert (place, len(calls) - place - 1) == (before, after)


def test_y_that_nobody_wants() -> None:
    """cuDNN writes it, and nobody brings it into ONNX's order."""
    node = Recurrent("LSTM", attributes={"direction": "bidirectional"}).case("last_states")
    model = node.model()
    model.graph.node[0].output[0] = ""
    del model.graph.output[0]
    (call,) = lower_model(model, Target.named("sm_90"), ONLY)[0].calls
    assert isinstance(call, CudnnCall)
    assert call.writes == (dict(call.arguments)["y"].buffer, "y1", "y2")
