"""RNN, LSTM and GRU in the interpreter, against the operators' text and, where it takes them, onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import triton
import triton.language as tl

from cases.node_case import NodeCase
from cases.recurrent import CASES, Recurrent
from gossamer.errors import UnsupportedModel
from gossamer.kernels import recurrent, recurrent_cells
from gossamer.kernels.recurrent_plan import Plan
from gossamer.program import Call, Launch
from harness import run_model


@pytest.mark.parametrize("node", CASES, ids=str)
def test_recurrent(node: NodeCase) -> None:
    node.check("interpreter")


def _known_to_onnxruntime(node: NodeCase) -> bool:
    """It has neither layout 1 nor types but float, and takes 0 for ThresholdedRelu's default."""
    x = node.inputs[0]
    assert x is not None
    told = "layout" not in node.attributes and "threshold_default" not in node.name
    return x.dtype == np.float32 and x.size > 0 and told and not node.domain


@pytest.mark.parametrize("node", [node for node in CASES if _known_to_onnxruntime(node)], ids=str)
def test_onnxruntime_agrees_with_the_reference(node: NodeCase) -> None:
    wanted = node.expected()
    for one, other in zip(replace(node, want=None, opset=14).expected(), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("node", [node for node in CASES if node.domain], ids=str)
def test_onnxruntime_agrees_as_far_as_it_does_not_round(node: NodeCase) -> None:
    """It quantises inputs and states to 8 bits at every step, which the weights' scale of 1/127 does not amplify."""
    for one, other in zip(replace(node, want=None).expected(), node.expected(), strict=True):
        np.testing.assert_allclose(one, other, atol=0.02)


FORMS = {"held": Plan(2, 8, 8, 4, "sum", True, True, 2), "anew": Plan(2, 8, 4, 4, "ieee", False, True, 1)}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("op", ["RNN", "LSTM", "GRU", "linear GRU"])
def test_states_that_pass_through_memory(op: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One part for each state, so that a program waits for itself only; tiles of the batch in turn and side by side."""
    monkeypatch.setattr(recurrent, "choose_plan", lambda *_: FORMS[form])
    attributes = {"direction": "bidirectional", "linear_before_reset": int(op == "linear GRU")}
    if op in ("RNN", "LSTM"):
        del attributes["linear_before_reset"]
    made = Recurrent(op.removeprefix("linear "), 3, 5, 4, 7, attributes, lengths=[3, 0, 1, 2, 3], initial=True)
    made.case(form).check("interpreter")


@triton.jit
def _leave(v, at, mask, counter_ptr, goal):  # type: ignore[no-untyped-def]
    """`publish` without the wait: the interpreter runs programs one after the other."""
    tl.store(at, v.to(at.dtype.element_ty), mask=mask)


@pytest.mark.parametrize("op", ["RNN", "LSTM", "GRU", "linear GRU"])
@pytest.mark.parametrize("block_h", [2, 4])
def test_parts_of_a_state_make_up_the_whole(op: str, block_h: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without waiting, a program reads stale parts; but what programs leave at the first exchange is right after one
    run of all, what they leave at the second after two. So after three runs results of two exchanges are right."""
    plan = Plan(2, block_h, 8, 4, "ieee", True, True, 1)
    monkeypatch.setattr(recurrent, "choose_plan", lambda *_: plan)
    monkeypatch.setattr(recurrent_cells, "publish", _leave)
    monkeypatch.setattr(recurrent, "_walk", _three_times(recurrent._walk))
    attributes = {"direction": "bidirectional", "linear_before_reset": int(op == "linear GRU")}
    if op in ("RNN", "LSTM"):
        del attributes["linear_before_reset"]
    steps = 1 if op == "GRU" else 2  # GRU exchanges twice a step
    Recurrent(op.removeprefix("linear "), steps, 2, 4, 7, attributes, initial=True).case("parts").check("interpreter")


def _three_times(walk: Callable[..., tuple[Call, ...]]) -> Callable[..., tuple[Call, ...]]:
    def walked(*arguments: Any) -> tuple[Call, ...]:
        fill, launch = walk(*arguments)
        assert isinstance(launch, Launch)
        return fill, launch, launch, launch

    return walked


def test_an_unknown_activation_is_refused_with_its_name() -> None:
    node = Recurrent("RNN", attributes={"activations": ["Tanh"]}).case("unknown")
    unknown = replace(node, attributes={**node.attributes, "activations": ["Gaussian"]})
    with pytest.raises(UnsupportedModel, match="knows no activation 'Gaussian'"):
        run_model(unknown.model(), unknown.feeds())
