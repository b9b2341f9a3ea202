"""cuDNN's direct routines in NumPy, by its documentation, between launches that are interpreted: lowering asks for the
right thing. What real cuDNN makes of it, tests/gpu/test_cudnn_direct.py shows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from cases.node_case import NodeCase
from cudnn_direct_cases import OPERATORS, RANDOM, TAKEN
from gossamer.cudnn import loader
from gossamer.program import Call, CudnnCall, Target, Unavailable, dtype_of
from gossamer.providers.cudnn import Policy
from gossamer.run.interpreter import InterpreterExecutor, Memory, enter_interpreter_mode
from harness import assert_close, lower_model

LIBRARY = loader.Library(loader.State.AVAILABLE, version=92801, lacking=frozenset())
MOST = 200_000
"""Elements of what is checked in NumPy."""

Roles = Mapping[str, np.ndarray]
"""Role → the elements from its address on, without shape."""


class InNumpy(InterpreterExecutor):
    """Runs what cuDNN does, too."""

    def step(self, memory: Memory, call: Call) -> None:
        if not isinstance(call, CudnnCall):
            super().step(memory, call)
            return
        roles = {role: memory.array(pointer.buffer).reshape(-1) for role, pointer in call.arguments}
        assert all(not pointer.offset for _, pointer in call.arguments)
        ROUTINES[call.routine](json.loads(call.description), roles)


def tensor(described: Mapping[str, Any], memory: np.ndarray) -> np.ndarray:
    """A tensor as cuDNN's descriptor says."""
    assert memory.dtype == dtype_of(described["dtype"])
    reach = sum((dim - 1) * stride for dim, stride in zip(described["dims"], described["strides"], strict=True))
    assert reach < memory.size
    return as_strided(memory, described["dims"], [stride * memory.itemsize for stride in described["strides"]])


def pooling(settings: Mapping[str, Any], roles: Roles) -> None:
    """Windows step through an image that is padded alike before and behind."""
    x, y = tensor(settings["x"], roles["x"]), tensor(settings["y"], roles["y"])
    taps, pads, steps, mode = (settings[name] for name in ("window", "padding", "strides", "mode"))
    spatial = x.shape[2:]
    fits = [
        1 + (size + 2 * pad - span) // step for size, pad, span, step in zip(spatial, pads, taps, steps, strict=True)
    ]
    assert y.shape == (*x.shape[:2], *fits)
    around = [(0, 0), (0, 0), *((pad, pad + span) for pad, span in zip(pads, taps, strict=True))]
    axes = tuple(range(2, x.ndim))
    padded = np.pad(x.astype(np.float64), around, constant_values=-np.inf if mode == "max" else 0)
    inside = np.pad(np.ones(spatial), around[2:])
    for place in product(*map(range, y.shape[2:])):
        here = tuple(slice(i * step, i * step + span) for i, step, span in zip(place, steps, taps, strict=True))
        window = padded[(slice(None), slice(None), *here)]
        count = prod(taps) if mode == "average_with_padding" else inside[here].sum()
        y[(slice(None), slice(None), *place)] = window.max(axes) if mode == "max" else window.sum(axes) / count


def batch_normalization(settings: Mapping[str, Any], roles: Roles) -> None:
    x, y = tensor(settings["x"], roles["x"]), tensor(settings["x"], roles["y"])
    axes, exact, per_channel = (0, *range(2, x.ndim)), x.astype(np.float64), (-1, *(1,) * (x.ndim - 2))
    wanted = np.float64 if x.dtype == np.float64 else np.float32
    assert all(roles[name].dtype == wanted for name in ("scale", "bias"))
    mean, variance = roles.get("mean"), roles.get("variance")
    if settings["training"]:
        mean, variance = exact.mean(axes), exact.var(axes)
    assert mean is not None
    assert variance is not None
    assert all(array.size == x.shape[1] for array in (mean, variance, roles["scale"], roles["bias"]))
    mean, variance, scale, bias = (
        array.astype(np.float64).reshape(per_channel) for array in (mean, variance, roles["scale"], roles["bias"])
    )
    y[...] = (exact - mean) / np.sqrt(variance + settings["epsilon"]) * scale + bias


def lrn(settings: Mapping[str, Any], roles: Roles) -> None:
    """lookBehind = (n - 1) / 2, lookAhead = n - lookBehind - 1."""
    x, y = tensor(settings["x"], roles["x"]), tensor(settings["x"], roles["y"])
    size, squares = settings["size"], x.astype(np.float64) ** 2
    behind = (size - 1) // 2
    ahead = size - behind - 1
    for c in range(x.shape[1]):
        total = squares[:, max(0, c - behind) : c + ahead + 1].sum(1)
        y[:, c] = x[:, c] / (settings["k"] + settings["alpha"] / size * total) ** settings["beta"]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def recurrent(settings: Mapping[str, Any], roles: Roles) -> None:
    """Every sequence of a batch for itself, in each direction; results behind its end are zero."""
    steps, batch, n_in, hidden, directions = (
        settings[name] for name in ("steps", "batch", "inputs", "hidden", "directions")
    )
    outer = (batch, steps) if settings["batch_first"] else (steps, batch)
    count = len(settings["gates"])
    x, y = roles["x"].reshape(*outer, n_in), roles["y"].reshape(*outer, directions, hidden)
    if settings["batch_first"]:
        x, y = x.swapaxes(0, 1), y.swapaxes(0, 1)
    y[...] = 0
    w = roles["w"].reshape(directions, count, hidden, n_in).astype(np.float64)
    r = roles["r"].reshape(directions, count, hidden, hidden).astype(np.float64)
    b = np.zeros((directions, 2, count, hidden))
    if settings["bias"]:
        b = roles["b"].reshape(b.shape).astype(np.float64)
    states = {
        role: roles[role].reshape(directions, batch, hidden) if role in roles else np.zeros((directions, batch, hidden))
        for role in ("h0", "c0", "h", "c")
    }
    for d, row in product(range(directions), range(batch)):
        length = steps if settings["lengths"] is None else settings["lengths"][row]
        h, c = states["h0"][d, row].astype(np.float64), states["c0"][d, row].astype(np.float64)
        for t in reversed(range(length)) if d else range(length):
            h, c = cell(settings, w[d] @ x[t, row] + b[d, 0], r[d] @ h + b[d, 1], h, c)
            y[t, row, d] = h
        states["h"][d, row], states["c"][d, row] = h, c


def cell(
    settings: Mapping[str, Any], inputs: np.ndarray, recurrences: np.ndarray, h: np.ndarray, c: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """One step of one sequence. inputs, recurrences: by gate, as the settings name them."""
    index = settings["gates"].index
    both = inputs + recurrences
    match settings["cell"]:
        case "rnn_tanh":
            return np.tanh(both[0]), c
        case "rnn_relu":
            return np.maximum(both[0], 0), c
        case "lstm":
            i, f, o = (sigmoid(both[index(gate)]) for gate in ("input", "forget", "output"))
            c = f * c + i * np.tanh(both[index("cell")])
            return o * np.tanh(c), c
    update, reset, new = sigmoid(both[index("update")]), sigmoid(both[index("reset")]), index("new")
    return (1 - update) * np.tanh(inputs[new] + reset * recurrences[new]) + update * h, c


ROUTINES: dict[str, Callable[[Mapping[str, Any], Roles], None]] = {
    "pooling": pooling,
    "batch_normalization": batch_normalization,
    "lrn": lrn,
    "recurrent": recurrent,
}


@pytest.fixture(autouse=True)
def library() -> Iterator[None]:
    enter_interpreter_mode()
    with loader.forced(LIBRARY):
        yield


def small(nodes: Sequence[NodeCase]) -> list[NodeCase]:
    return [node for node in nodes if sum(a.size for a in node.inputs if a is not None) < MOST]


@pytest.mark.parametrize("node", small([*TAKEN, *RANDOM]), ids=str)
def test_what_cudnn_is_asked_for(node: NodeCase) -> None:
    policy = Policy(enabled=True, only=OPERATORS)
    program, constants = lower_model(node.model(), Target.named("sm_90"), policy)
    if any(isinstance(call, Unavailable) for call in program.calls):
        assert node in RANDOM
        return
    results = InNumpy(constants).run(program, node.feeds())
    for output, want in zip(program.outputs, node.expected(), strict=True):
        assert_close(results[output], want, rtol=node.rtol)
