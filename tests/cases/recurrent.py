"""RNN, LSTM and GRU: every attribute and input, against the operators' text in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from cases.node_case import NodeCase, random_array
from cases.references import floats
from harness import tensor_type, tolerance

GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}
DEFAULTS = {"RNN": ["Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"]}
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}

Function = Callable[[np.ndarray], np.ndarray]


def _single(value: float) -> float:
    """As an attribute keeps it."""
    return float(np.float32(value))


ALPHAS = {"LeakyRelu": 0.01, "ThresholdedRelu": 1.0, "HardSigmoid": 0.2, "Elu": 1.0}


def _function(name: str, alpha: float | None, beta: float | None) -> Function:
    alpha = _single(ALPHAS.get(name, 1.0) if alpha is None else alpha)
    beta = _single((0.5 if name == "HardSigmoid" else 1.0) if beta is None else beta)
    return {
        "Relu": lambda x: np.maximum(x, 0),
        "Tanh": np.tanh,
        "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "Softsign": lambda x: x / (1 + np.abs(x)),
        "Softplus": lambda x: np.log1p(np.exp(x)),
        "Affine": lambda x: alpha * x + beta,
        "LeakyRelu": lambda x: np.where(x < 0, alpha * x, x),
        "ThresholdedRelu": lambda x: np.where(x > alpha, x, 0),
        "ScaledTanh": lambda x: alpha * np.tanh(beta * x),
        "HardSigmoid": lambda x: np.clip(alpha * x + beta, 0, 1),
        "Elu": lambda x: np.where(x < 0, alpha * np.expm1(x), x),
    }[name]


TAKES_ALPHA = ("Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu")
TAKES_BETA = ("Affine", "ScaledTanh", "HardSigmoid")


def _functions(op: str, attributes: Mapping[str, Any], directions: int) -> list[list[Function]]:
    alphas, betas = iter(attributes.get("activation_alpha", ())), iter(attributes.get("activation_beta", ()))
    functions = [
        _function(
            name, next(alphas, None) if name in TAKES_ALPHA else None, next(betas, None) if name in TAKES_BETA else None
        )
        for name in attributes.get("activations", DEFAULTS[op] * directions)
    ]
    count = len(DEFAULTS[op])
    return [functions[first : first + count] for first in range(0, len(functions), count)]


@dataclass(frozen=True)
class Weights:
    """One direction's parameters, by gate: w [gates, H, I], r [gates, H, H], biases [gates, H], peepholes i, o, f."""

    w: np.ndarray
    r: np.ndarray
    wb: np.ndarray
    rb: np.ndarray
    p: np.ndarray | None


def _step(
    op: str, x: np.ndarray, h: np.ndarray, c: np.ndarray, weights: Weights, f: list[Function], a: Mapping[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    """The equations of the operator's text for one batch row."""
    clip = _single(a.get("clip", np.inf))

    def clipped(value: np.ndarray) -> np.ndarray:
        return np.clip(value, -clip, clip)

    gates = weights.w @ x + weights.wb
    recurrent = weights.r @ h + weights.rb
    if op == "RNN":
        return f[0](clipped(gates[0] + recurrent[0])), c
    if op == "GRU":
        z, r = (f[0](clipped(gates[k] + recurrent[k])) for k in (0, 1))
        linear = a.get("linear_before_reset", 0)
        inner = r * recurrent[2] if linear else weights.r[2] @ (r * h) + weights.rb[2]
        return (1 - z) * f[1](clipped(gates[2] + inner)) + z * h, c
    arguments = gates + recurrent

    def peeped(gate: int, peephole: int, c: np.ndarray) -> np.ndarray:
        return arguments[gate] if weights.p is None else arguments[gate] + weights.p[peephole] * c

    i = f[0](clipped(peeped(0, 0, c)))
    forget = 1 - i if a.get("input_forget", 0) else f[0](clipped(peeped(2, 2, c)))
    c = forget * c + i * f[1](clipped(arguments[3]))
    o = f[0](clipped(peeped(1, 1, c)))
    return o * f[2](c), c


def reference(op: str, inputs: Sequence[np.ndarray | None], attributes: Mapping[str, Any]) -> list[np.ndarray]:
    """Y, Y_h and, for LSTM, Y_c in float64 by the operators' text; sequences of length zero leave zeros."""
    exact = [None if a is None else a.astype(np.float64) for a in inputs] + [None] * (8 - len(inputs))
    x, w, r, b, lengths, h0, c0, p = exact
    assert x is not None
    assert w is not None
    assert r is not None
    if attributes.get("layout", 0):
        x = x.swapaxes(0, 1)
        h0, c0 = (None if s is None else s.swapaxes(0, 1) for s in (h0, c0))
    steps, batch, n_in = x.shape
    directions, _, hidden = r.shape
    gates = GATES[op]
    biases = np.zeros((directions, 2, gates, hidden)) if b is None else b.reshape(directions, 2, gates, hidden)
    peepholes = [None] * directions if p is None else p.reshape(directions, 3, hidden)
    y = np.zeros((steps, directions, batch, hidden))
    last = np.zeros((2, directions, batch, hidden))
    for d, functions in enumerate(_functions(op, attributes, directions)):
        backward = attributes.get("direction") == "reverse" or d == 1
        weights = Weights(
            w[d].reshape(gates, hidden, n_in), r[d].reshape(gates, hidden, hidden), *biases[d], peepholes[d]
        )
        for row in range(batch):
            length = steps if lengths is None else int(lengths[row])
            h, c = (np.zeros(hidden) if s is None else s[d, row] for s in (h0, c0))
            for t in reversed(range(length)) if backward else range(length):
                h, c = _step(op, x[t, row], h, c, weights, functions, attributes)
                y[t, d, row] = h
            if length:
                last[:, d, row] = h, c
    if attributes.get("layout", 0):
        y, last = y.transpose(2, 0, 1, 3), last.swapaxes(1, 2)
    return [y, *last[: 2 if op == "LSTM" else 1]]


@dataclass(frozen=True)
class Recurrent:
    """A case in the making: extents, and which optional inputs there are."""

    op: str
    steps: int = 4
    batch: int = 3
    inputs: int = 5
    hidden: int = 6
    attributes: Mapping[str, Any] = field(default_factory=dict)
    bias: bool = True
    lengths: Sequence[int] | None = None
    initial: bool = False
    peepholes: bool = False
    outputs: int | None = None
    dtype: str = "float32"
    constants: Sequence[int] = (1, 2, 3)

    def arrays(self) -> list[np.ndarray | None]:
        rng = np.random.default_rng(7)
        directions = DIRECTIONS[self.attributes.get("direction", "forward")]
        rows = GATES[self.op] * self.hidden

        def array(*shape: int) -> np.ndarray:
            spread = min(0.5, (3 / max(1, shape[-1])) ** 0.5)  # so that gates do not saturate
            return (rng.standard_normal(shape) * spread).astype(_dtype(self.dtype))

        swap = self.attributes.get("layout", 0)
        state = (self.batch, directions, self.hidden) if swap else (directions, self.batch, self.hidden)
        x = array(*((self.batch, self.steps) if swap else (self.steps, self.batch)), self.inputs)
        return [
            x,
            array(directions, rows, self.inputs),
            array(directions, rows, self.hidden),
            array(directions, 2 * rows) if self.bias else None,
            None if self.lengths is None else np.array(self.lengths, np.int32),
            array(*state) if self.initial else None,
            *((array(*state) if self.initial else None,) if self.op == "LSTM" else ()),
            *((array(directions, 3 * self.hidden),) if self.peepholes else ()),
        ]

    def _shapes(self) -> list[tuple[int, ...]]:
        """Of the outputs."""
        directions = DIRECTIONS[self.attributes.get("direction", "forward")]
        if self.attributes.get("layout", 0):
            y: tuple[int, ...] = (self.batch, self.steps, directions, self.hidden)
            state: tuple[int, ...] = (self.batch, directions, self.hidden)
        else:
            y, state = (self.steps, directions, self.batch, self.hidden), (directions, self.batch, self.hidden)
        return [y, state, state][: self.outputs or (3 if self.op == "LSTM" else 2)]

    def case(self, name: str) -> NodeCase:
        inputs = self.arrays()
        attributes = {"hidden_size": self.hidden, **self.attributes}
        dtype, shapes = _dtype(self.dtype), self._shapes()

        def want() -> list[np.ndarray]:
            return [array.astype(dtype) for array in reference(self.op, inputs, attributes)[: self.outputs]]

        # Halves are rounded once a step where the state is multiplied; gates damp what that does.
        unit = tolerance(self.dtype, self.inputs + self.hidden)
        return NodeCase(
            f"{self.op}-{name}-{self.dtype}",
            self.op,
            inputs,
            attributes,
            opset=22,
            constants=[i for i in self.constants if i < len(inputs) and inputs[i] is not None],
            n_outputs=len(shapes),
            output_types=[(tensor_type(np.zeros(0, dtype)), shape) for shape in shapes],
            want=want,
            rtol=2 * unit,
        )


def _dtype(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


LSTM_ACTIVATIONS = {
    "relu": (["Sigmoid", "Relu", "Softsign"], [], []),
    "affine": (["HardSigmoid", "Affine", "ScaledTanh"], [0.3, 0.7, 0.9], [0.4, 0.1, 0.8]),
    "some_alphas": (["Sigmoid", "ThresholdedRelu", "Elu"], [0.3, 0.7], []),
    "softplus": (["HardSigmoid", "LeakyRelu", "Softplus"], [0.3], [0.45]),
    "defaults": (["HardSigmoid", "LeakyRelu", "Elu"], [], []),
    "threshold_default": (["Sigmoid", "ThresholdedRelu", "Tanh"], [], []),
}


def _activations(names: list[str], alphas: list[float], betas: list[float]) -> dict[str, Any]:
    given = {"activation_alpha": alphas, "activation_beta": betas}
    return {"activations": names, **{key: value for key, value in given.items() if value}}


LSTM_DIRECTIONS = _activations(["Sigmoid", "Tanh", "Tanh", "HardSigmoid", "Relu", "Softsign"], [0.3], [0.4])
RNN_DIRECTIONS = _activations(["LeakyRelu", "Affine"], [0.3, 0.7], [0.1])


def _cases() -> list[NodeCase]:
    cases = []
    both = {"direction": "bidirectional"}
    for op in GATES:
        cases += [
            Recurrent(op).case("plain"),
            Recurrent(op, bias=False, constants=()).case("no_bias"),
            Recurrent(op, bias=True, constants=()).case("weights_as_inputs"),
            Recurrent(op, attributes={"direction": "reverse"}, initial=True).case("reverse_initial"),
            Recurrent(op, attributes=both, lengths=[4, 0, 2], initial=True).case("both_lengths_initial"),
            Recurrent(op, attributes={"direction": "reverse"}, lengths=[1, 4, 3]).case("reverse_lengths"),
            Recurrent(op, attributes={**both, "layout": 1}, lengths=[2, 4, 1], initial=True).case("batch_first"),
            Recurrent(op, attributes={"clip": 0.25}, initial=True).case("clip"),
            Recurrent(op, batch=1, hidden=9, attributes=both).case("one_row"),
            Recurrent(op, steps=1).case("one_step"),
            Recurrent(op, outputs=1).case("y_only"),
            Recurrent(op, steps=0, initial=True).case("no_steps"),
            Recurrent(op, batch=0).case("no_batch"),
        ]
        cases += [
            Recurrent(op, attributes=both, lengths=[4, 2, 3], initial=True, dtype=dtype).case("both")
            for dtype in ("float16", "bfloat16", "float64")
        ]
    linear = {"linear_before_reset": 1}
    cases += [
        Recurrent("GRU", attributes=linear).case("linear"),
        Recurrent("GRU", attributes=linear, bias=False).case("linear_no_bias"),
        Recurrent("GRU", attributes=linear, constants=()).case("linear_weights_as_inputs"),
        Recurrent("GRU", attributes=linear | both, lengths=[4, 0, 2], initial=True).case("linear_both_lengths"),
        Recurrent("GRU", attributes=linear | {"layout": 1, "clip": 0.3}, initial=True).case("linear_batch_first_clip"),
        Recurrent("GRU", attributes=linear, dtype="float16").case("linear"),
        Recurrent("GRU", attributes=_activations(["HardSigmoid", "LeakyRelu"], [], [])).case("activations"),
        Recurrent("LSTM", peepholes=True, initial=True).case("peepholes"),
        Recurrent("LSTM", peepholes=True, attributes=both | {"clip": 0.2}, lengths=[3, 4, 1]).case("peepholes_clip"),
        Recurrent("LSTM", attributes={"input_forget": 1}, initial=True).case("input_forget"),
        Recurrent("LSTM", outputs=2).case("no_y_c"),
        Recurrent("LSTM", attributes=both | LSTM_DIRECTIONS).case("differ_by_direction"),
        Recurrent("RNN", attributes=both | RNN_DIRECTIONS).case("differ_by_direction"),
        Recurrent("RNN", batch=70, hidden=3, steps=2).case("two_tiles"),
    ]
    for name, given in LSTM_ACTIVATIONS.items():
        cases.append(Recurrent("LSTM", attributes=_activations(*given)).case(f"activations_{name}"))
    return cases


def dynamic_quantize_case(dtype: str, *, bidirectional: bool = False, per_column: bool = False) -> NodeCase:
    """com.microsoft::DynamicQuantizeLSTM as the LSTM of its weights in fp32. Integers are of 7 bits: onnxruntime's
    sums of uint8 times int8 saturate on some machines."""
    directions = 2 if bidirectional else 1
    plain = Recurrent("LSTM", attributes={"direction": "bidirectional"} if bidirectional else {}, initial=True)
    x, w, r, b, lengths, h0, c0, *_ = plain.arrays()
    shape = (directions, 4 * plain.hidden) if per_column else (directions,)
    scale = floats("scale", shape, low=0.004, high=0.008)
    zero = np.full(shape, 64 if dtype == "uint8" else 0, dtype)
    packed = [random_array("w", array.swapaxes(1, 2).shape, "uint8") // 2 for array in (w, r) if array is not None]
    packed = [array if dtype == "uint8" else (array.astype(np.int16) - 64).astype(np.int8) for array in packed]
    spread = (directions, 1, -1)
    w, r = (((a.astype(np.float32) - zero.reshape(spread)) * scale.reshape(spread)).swapaxes(1, 2) for a in packed)
    wanted = reference("LSTM", [x, w, r, b, lengths, h0, c0], plain.attributes)
    results = [array.astype(np.float32) for array in wanted]
    return NodeCase(
        f"DynamicQuantizeLSTM-{dtype}-{shape}",
        "DynamicQuantizeLSTM",
        [x, *packed, b, lengths, h0, c0, None, scale, zero, scale, zero],
        {"hidden_size": plain.hidden, **plain.attributes},
        constants=(1, 2, 3, 8, 9, 10, 11),
        n_outputs=3,
        domain="com.microsoft",
        output_types=[(tensor_type(array), array.shape) for array in results],
        want=lambda: results,
        rtol=tolerance("float32", plain.inputs + plain.hidden),
    )


CASES = [
    *_cases(),
    dynamic_quantize_case("int8"),
    dynamic_quantize_case("uint8", bidirectional=True),
    dynamic_quantize_case("int8", bidirectional=True, per_column=True),
]


def _large() -> dict[str, Recurrent]:
    """Sizes that take every plan: alone or shared, held or read anew, few rows or many."""
    both, linear = {"direction": "bidirectional"}, {"linear_before_reset": 1}
    sizes = {
        "alone": (1, 64),
        "shared": (1, 256),
        "two_rows": (2, 700),
        "tiles_alone": (40, 48),
        "tiles_shared": (20, 256),
        "tiles_in_turn": (300, 500),
        "anew": (5, 1500),
    }
    cases = {}
    for name, (batch, hidden) in sizes.items():
        shape = {"steps": 7, "batch": batch, "inputs": 40, "hidden": hidden}
        lengths = [(3 * row) % 8 for row in range(batch)]
        for dtype in ("float16", "float32", "bfloat16"):
            cases[f"{name}_{dtype}"] = Recurrent("LSTM", attributes=both, lengths=lengths, dtype=dtype, **shape)
        cases[f"{name}_gru"] = Recurrent("GRU", attributes=both, initial=True, dtype="float16", **shape)
        cases[f"{name}_linear_gru"] = Recurrent("GRU", attributes=linear | both, dtype="float16", **shape)
        cases[f"{name}_rnn"] = Recurrent("RNN", attributes=both, lengths=lengths, dtype="float16", **shape)
    cases["double"] = Recurrent("LSTM", steps=5, batch=20, inputs=30, hidden=300, dtype="float64")
    cases["long"] = Recurrent("GRU", steps=2000, batch=1, inputs=16, hidden=256)
    return cases


LARGE = _large()
