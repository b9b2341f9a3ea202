"""RNN, LSTM and GRU by cuDNN's recurrent layers.

cuDNN has directions inside of a result's rows and outside of states, ONNX the other way round or both outside; and
cuDNN reads no sequence backward alone, which is forward over turned time. Strided copies make up for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from gossamer.cudnn.loader import Library
from gossamer.cudnn.routines.recurrent import Recurrent
from gossamer.kernels.copies import Strided, copy_strided
from gossamer.model.node import Node
from gossamer.program import Buffer, Call, Refusal, Target
from gossamer.providers.cudnn import Lowered, lowers
from gossamer.providers.cudnn.direct import Images, direct_call, refusal_of

ACTIVATIONS = {"RNN": ("tanh",), "LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh")}
GATES = {"RNN": ("h",), "LSTM": ("input", "output", "forget", "cell"), "GRU": ("update", "reset", "new")}
"""In ONNX's order, by the names of cuDNN's."""
WEIGHTS = {"w": 1, "r": 2, "b": 3}
STATES = {"h0": 5, "c0": 6}
LAST_STATES = {"h": 1, "c": 2}
"""Roles → inputs and outputs of the operators."""


@dataclass(frozen=True, slots=True)
class Layer:
    """What a node asks for. backward: it reads its sequences that way alone."""

    steps: int
    batch: int
    inputs: int
    hidden: int
    directions: int
    batch_first: bool
    backward: bool

    @classmethod
    def of(cls, node: Node) -> Layer:
        r, batch_first = node.inputs[2], bool(node.attribute("layout", 0))
        assert r is not None
        batch, steps = node.x.shape[:2] if batch_first else node.x.shape[1::-1]
        backward = node.attribute("direction", "forward") == "reverse"
        return cls(steps, batch, node.x.shape[2], r.shape[2], r.shape[0], batch_first, backward)

    def sequences(self, buffer: Buffer, width: int, directions: int) -> tuple[tuple[int, ...], Strided]:
        """x or y in cuDNN's order: its shape, and where in the buffer that is."""
        row = directions * width
        if self.batch_first:
            step, batch, direction = row, self.steps * row, width
        else:
            step, batch, direction = self.batch * row, width, self.batch * width
        offset, step = ((self.steps - 1) * step, -step) if self.backward else (0, step)
        outer = (
            ((self.batch, batch), (self.steps, step)) if self.batch_first else ((self.steps, step), (self.batch, batch))
        )
        shape, strides = zip(*outer, (directions, direction), (width, 1), strict=True)
        return shape, Strided(buffer, strides, offset)

    def states(self, buffer: Buffer) -> tuple[tuple[int, ...], Strided]:
        """Initial or last states in cuDNN's order, as above."""
        row = self.directions * self.hidden
        strides = (self.hidden, row, 1) if self.batch_first else (self.batch * self.hidden, self.hidden, 1)
        return (self.directions, self.batch, self.hidden), Strided(buffer, strides)

    @property
    def rows(self) -> int:
        return self.steps * self.batch * self.directions


@lowers("RNN", "LSTM", "GRU")
def lower_recurrent(node: Node, target: Target, library: Library) -> Lowered:
    """RNN, LSTM, GRU (-7, -14, -22) with the activations that cuDNN has."""
    cell, layer = _cell(node), Layer.of(node)
    if isinstance(cell, Refusal):
        return cell
    if refusal := refusal_of(library, Recurrent, node.x.dtype, Images.of(node.x)) or _refusal_of(node, layer):
        return refusal
    return _calls(node, target, cell, layer)


def _cell(node: Node) -> str | Refusal:
    """cuDNN's cell that is the node's."""
    op = node.op_type
    if node.attribute("clip", None) is not None:
        return Refusal("cuDNN does not clip what activations get")
    if node.input(7) is not None:
        return Refusal("cuDNN's LSTM has no peepholes")
    if node.attribute("input_forget", 0):
        return Refusal("cuDNN's LSTM does not couple input and forget gates")
    if op == "GRU" and not node.attribute("linear_before_reset", 0):
        return Refusal("cuDNN's GRU resets behind the product (linear_before_reset = 1), not before it")
    given: tuple[str, ...] = node.attribute("activations", ())
    names = [name.lower() for name in given]
    if op == "RNN" and set(names) == {"relu"}:
        return "rnn_relu"
    defaults = ACTIVATIONS[op]
    if any(name != defaults[index % len(defaults)] for index, name in enumerate(names)):
        return Refusal(f"cuDNN's {op} has no activations but {', '.join(defaults)}, not {', '.join(names)}")
    return {"RNN": "rnn_tanh", "LSTM": "lstm", "GRU": "gru"}[op]


def _refusal_of(node: Node, layer: Layer) -> Refusal | None:
    """Why cuDNN does not take these sequences."""
    if not node.x.size:
        return Refusal("cuDNN has no sequences of nothing")
    if node.input(4) is None:
        return None
    lengths = node.constant(4)
    if lengths is None:
        return Refusal("cuDNN wants to know the lengths of sequences before the model runs")
    if lengths.min() < 1 or lengths.max() > layer.steps:
        return Refusal("cuDNN wants sequences of at least one step, and of no more than there are")
    if layer.backward:
        return Refusal("cuDNN reads no sequences backward alone, and these begin at different ends")
    return None


def _calls(node: Node, target: Target, cell: str, layer: Layer) -> tuple[Call, ...]:
    x, before = _gathered(node, target, *layer.sequences(node.x, layer.inputs, 1))
    weights = {role: buffer for role, index in WEIGHTS.items() if (buffer := node.input(index)) is not None}
    given = {"x": x, **weights}
    for role, index in STATES.items():
        if (state := node.input(index)) is not None:
            given[role], copies = _gathered(node, target, *layer.states(state))
            before += copies
    y, after = node.output(0), tuple[Call, ...]()
    if y is None:  # cuDNN writes it in any case
        y = node.temporary((layer.rows, layer.hidden), node.x.dtype)
    else:
        y, after = _scattered(node, target, *layer.sequences(y, layer.hidden, layer.directions))
    made = {"y": y}
    for role, index in LAST_STATES.items():
        if (state := node.output(index)) is not None:
            made[role], copies = _scattered(node, target, *layer.states(state))
            after += copies
    settings = _settings(node, target, cell, layer, list(weights.values()))
    flops = 2 * layer.rows * len(GATES[node.op_type]) * layer.hidden * (layer.inputs + layer.hidden)
    return (*before, direct_call("recurrent", settings, given, made, flops), *after)


def _settings(node: Node, target: Target, cell: str, layer: Layer, weights: Sequence[Buffer]) -> dict[str, Any]:
    """What the routine is made from."""
    lengths = node.constant(4)
    return {
        "cell": cell,
        "gates": GATES[node.op_type],
        "dtype": node.x.dtype,
        "steps": layer.steps,
        "batch": layer.batch,
        "inputs": layer.inputs,
        "hidden": layer.hidden,
        "directions": layer.directions,
        "batch_first": layer.batch_first,
        "lengths": None if lengths is None else lengths.tolist(),
        "bias": node.input(3) is not None,
        "fma": node.x.dtype == "float32" and not target.use_tf32,
        "fixed": all(map(node.is_constant, weights)),
    }


def _gathered(node: Node, target: Target, shape: Sequence[int], x: Strided) -> tuple[Buffer, tuple[Call, ...]]:
    """A buffer that holds a region as if it were dense, and what makes it so."""
    if _is_dense(shape, x):
        return x.buffer, ()
    made = node.temporary(shape, x.buffer.dtype)
    return made, copy_strided(shape, x, Strided(made, made.strides), target)


def _scattered(node: Node, target: Target, shape: Sequence[int], y: Strided) -> tuple[Buffer, tuple[Call, ...]]:
    """A buffer to write a region to as if it were dense, and what brings it there."""
    if _is_dense(shape, y):
        return y.buffer, ()
    made = node.temporary(shape, y.buffer.dtype)
    return made, copy_strided(shape, Strided(made, made.strides), y, target)


def _is_dense(shape: Sequence[int], region: Strided) -> bool:
    dense = (prod(shape[axis + 1 :]) for axis in range(len(shape)))
    steps = zip(shape, region.strides, dense, strict=True)
    return not region.offset and all(stride == own or extent == 1 for extent, stride, own in steps)
