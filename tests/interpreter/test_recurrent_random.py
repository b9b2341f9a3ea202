"""RNN, LSTM and GRU with random attributes, inputs and values, against their text in NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cases.node_case import NodeCase
from cases.recurrent import DEFAULTS, DIRECTIONS, TAKES_ALPHA, TAKES_BETA, Recurrent
from examples import examples

BOUNDED = ("Tanh", "Sigmoid", "Softsign", "HardSigmoid")
UNBOUNDED = ("Relu", "LeakyRelu", "ThresholdedRelu", "Elu", "Softplus", "Affine", "ScaledTanh")


@st.composite
def nodes(draw: st.DrawFn) -> NodeCase:
    op, direction = draw(st.sampled_from(sorted(DEFAULTS))), draw(st.sampled_from(sorted(DIRECTIONS)))
    steps, batch = draw(st.integers(0, 5)), draw(st.integers(0, 4))
    attributes: dict[str, Any] = {"direction": direction, "layout": draw(st.integers(0, 1))}
    if draw(st.booleans()):
        attributes["clip"] = draw(st.sampled_from((0.1, 0.7, 5.0)))
    if op == "GRU":
        attributes["linear_before_reset"] = draw(st.integers(0, 1))
    if op == "LSTM":
        attributes["input_forget"] = draw(st.integers(0, 1))
    if draw(st.booleans()):
        attributes |= _activations(draw, len(DEFAULTS[op]) * DIRECTIONS[direction])
    node = Recurrent(
        op,
        steps,
        batch,
        draw(st.integers(1, 9)),
        draw(st.integers(1, 9)),
        attributes,
        draw(st.booleans()),
        draw(st.none() | st.lists(st.integers(0, steps), min_size=batch, max_size=batch)),
        draw(st.booleans()),
        op == "LSTM" and draw(st.booleans()),
        draw(st.sampled_from((None, 1, 2))),
        draw(st.sampled_from(("float32", "float64"))),
        draw(st.sampled_from(((), (1, 2, 3)))),
    ).case("random")
    x = node.inputs[0]
    assert x is not None
    if x.size and draw(st.booleans()):
        x.reshape(-1)[draw(st.integers(0, x.size - 1))] = draw(st.sampled_from((np.nan, np.inf, -np.inf)))
    return node


def _activations(draw: st.DrawFn, count: int) -> dict[str, Any]:
    """Names, and values for some of those that take any. The first of each cell is a gate, and stays bounded."""
    names = [draw(st.sampled_from(BOUNDED if index % 3 == 0 else BOUNDED + UNBOUNDED)) for index in range(count)]
    alphas = [0.25 + 0.125 * index for index, name in enumerate(names) if name in TAKES_ALPHA]
    betas = [0.5 - 0.0625 * index for index, name in enumerate(names) if name in TAKES_BETA]
    given = {"activation_alpha": alphas, "activation_beta": betas}
    return {"activations": names, **{name: values for name, values in given.items() if values}}


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(nodes())
def test_recurrent_agrees_with_its_text(node: NodeCase) -> None:
    with np.errstate(all="ignore"):
        replace(node, rtol=4e-5 if node.name.endswith("32") else 1e-10).check("interpreter")
