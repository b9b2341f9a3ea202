"""Graphs that nodes become for cuDNN, computed by NumPy, and the launches around them, interpreted: the same cases and
results as the native kernels have. No cuDNN is needed: that it has engines for them, tests/cudnn shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

import cudnn_graph_numpy
import harness
from cases import attention, contrib_convolution, convolution
from cases.node_case import NodeCase
from gossamer.cudnn import DeviceProperties, loader
from gossamer.cudnn.loader import Library, State
from gossamer.cudnn.plan_cache import Planned, Task
from gossamer.errors import PlanError
from gossamer.program import CudnnCall, Launch, Target, Unavailable
from gossamer.providers.cudnn import Policy, graphs
from gossamer.run.interpreter import enter_interpreter_mode

OPERATORS = ("Conv", "ConvTranspose", "FusedConv", "NhwcConv", "Attention", "MultiHeadAttention")
POLICY = Policy(enabled=True, only=OPERATORS, attention=True)
Accepts = Callable[[Task], bool]


@pytest.fixture(autouse=True)
def available() -> Iterator[None]:
    with loader.forced(Library(State.AVAILABLE, version=92801, lacking=frozenset())):
        yield


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Callable[[Accepts], None]:
    """Says for which graphs there are engines."""

    def only_for(accepts: Accepts) -> None:
        def planned(task: Task, _: DeviceProperties, most: int = 1) -> tuple[Planned, ...]:
            if not accepts(task):
                raise PlanError("NOT_SUPPORTED", "no engine")
            return (Planned(b"", "engine 0"),)

        monkeypatch.setattr(graphs, "planned", planned)
        monkeypatch.setattr(graphs, "properties_of", lambda _: DeviceProperties.named("sm_90"))

    return only_for


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> tuple[list[np.ndarray], list[dict[str, Any]]]:
    enter_interpreter_mode()
    program, constants = harness.lower_model(model, Target.named("sm_90"), POLICY)
    assert any(isinstance(call, CudnnCall | Unavailable) for call in program.calls)
    return cudnn_graph_numpy.run(program, constants, feeds)


CONVOLUTIONS = [
    *convolution.PLAIN,
    *convolution.DEPTHWISE,
    *convolution.TRANSPOSED,
    *convolution.FUSED,
    *convolution.CONTRIB,
    *(replace(case, constants=False) for case in convolution.PLAIN if case.name in ("3x3", "groups", "1d")),
    *(replace(case, dtype=np.float16) for case in (*convolution.FUSED, *convolution.TRANSPOSED) if case.name == "relu"),
]


def check(case: convolution.Case) -> list[dict[str, Any]]:
    model, feeds = case.model()
    (got,), ran = run(model, feeds)
    want = convolution.channels_last(case.want()) if case.domain == convolution.NHWC else case.want()
    harness.assert_close(got, want, case.reduction)
    return ran


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_in_one_graph(case: convolution.Case, engines: Callable[[Accepts], None]) -> None:
    """Whatever engines there may be, the first form that is tried computes the node."""
    engines(lambda _: True)
    assert len(check(case)) == 1


@pytest.mark.parametrize("case", [case for case in CONVOLUTIONS if case.bias or case.residual], ids=str)
def test_with_a_native_epilogue(case: convolution.Case, engines: Callable[[Accepts], None]) -> None:
    engines(lambda task: '"Pointwise"' not in task.graph)
    (graph,) = check(case)
    assert [operation["operation"] for operation in graph["operations"]] == ["Convolution"]


@pytest.mark.parametrize("case", [case for case in convolution.TRANSPOSED if case.name == "3x3"], ids=str)
def test_a_fused_transposed_convolution(case: convolution.Case, engines: Callable[[Accepts], None]) -> None:
    engines(lambda task: '"Pointwise"' in task.graph)
    domain = case.domain or "gossamer"
    fused = replace(case, op_type="FusedConvTranspose", domain=domain, attributes={"activation": "relu"})
    assert len(check(fused)) == 1


@pytest.mark.parametrize("case", contrib_convolution.CASES, ids=str)
def test_contrib(case: NodeCase, engines: Callable[[Accepts], None]) -> None:
    engines(lambda _: True)
    (got,), _ = run(case.model(), case.feeds())
    harness.assert_close(got, case.expected()[0], rtol=case.rtol)


FIXED_ORDER = convolution.Case(
    "order", (1, 8, 5, 5), (16, 8, 3, 3), {"activation": "relu"}, "FusedConv", "gossamer", np.float16
)


def test_residual_before_bias(engines: Callable[[Accepts], None]) -> None:
    """The order in which precompiled engines know them; and there is a bias, if only of zeros."""
    engines(lambda _: True)
    (graph,) = check(replace(FIXED_ORDER, bias=False, residual=True))
    names = {tensor["uid"]: tensor["name"] for tensor in graph["tensors"]}
    read = [names[operation["b"]] for operation in graph["operations"] if operation.get("b") is not None]
    assert read == ["z", "b"]


def test_filters_are_packed_once(engines: Callable[[Accepts], None]) -> None:
    """Constant filters of channels-last convolutions have their channels last, under a key of their own."""
    engines(lambda _: True)
    case = next(case for case in convolution.PLAIN if case.name == "3x3" and case.domain == convolution.NHWC)
    program, _ = harness.lower_model(case.model()[0], Target.named("sm_90"), POLICY)
    assert "x1#channels_last" in program.weights


def test_what_no_engine_takes_is_native(engines: Callable[[Accepts], None]) -> None:
    engines(lambda _: False)
    model, feeds = FIXED_ORDER.model()
    enter_interpreter_mode()
    preferred = Policy(enabled=True)
    program, constants = harness.lower_model(model, Target.named("sm_90"), preferred)
    assert all(isinstance(call, Launch) for call in program.calls)
    (got,), _ = cudnn_graph_numpy.run(program, constants, feeds)
    harness.assert_close(got, FIXED_ORDER.want(), FIXED_ORDER.reduction)


def onnx_cases() -> Iterator[NodeCase]:
    small = attention.qkv("small", 2, 3, 3, 5, 7, 8, 6, "float16")
    group = attention.qkv("group", 2, 6, 2, 5, 7, 8, 8, "float16")
    flat = [x.transpose(0, 2, 1, 3).reshape(2, x.shape[2], -1) for x in group]
    yield attention.attention("plain", *small)
    yield attention.attention("scaled", *small, scale=0.7)
    yield attention.attention("causal", *small, is_causal=1)
    yield attention.attention("groups", *group)
    yield attention.attention("rank_3", *flat, q_num_heads=6, kv_num_heads=2, is_causal=1)
    yield from (case for case in (*attention.SPLIT, *attention.LARGE) if case.name in FUSED_ATTENTION)


FUSED_ATTENTION = ("FusedAttention-split", "FusedAttention-bert_1", "FusedAttention-t5", "FusedAttention-odd_heads")


@pytest.mark.parametrize("case", list(onnx_cases()), ids=str)
def test_attention(case: NodeCase, engines: Callable[[Accepts], None]) -> None:
    engines(lambda _: True)
    (got,), ran = run(case.model(), case.feeds())
    harness.assert_close(got, case.expected()[0], rtol=case.rtol)
    assert len(ran) == 1
