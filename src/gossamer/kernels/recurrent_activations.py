"""The activations of RNN, LSTM and GRU: names, defaults, and who gets which of the values in activation_alpha."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gossamer.kernels.activations import KINDS
from gossamer.model.node import Node
from gossamer.program import Refusal

DEFAULTS = {"RNN": ("Tanh",), "LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh")}


@dataclass(frozen=True, slots=True)
class Kind:
    """An activation's name in the kernels, and the defaults of the parameters it takes (None: it takes none)."""

    name: str
    alpha: float | None = None
    beta: float | None = None


# By ONNX's names in lower case: onnxruntime does not tell cases apart. Defaults are those of the operators of the name,
# as ONNX asks for (onnxruntime's ThresholdedRelu has 0 here); Affine and ScaledTanh, which are no operators any more,
# leave their argument or its tanh as it is.
NAMES: Mapping[str, Kind] = {
    "relu": Kind("relu"),
    "tanh": Kind("tanh"),
    "sigmoid": Kind("sigmoid"),
    "softsign": Kind("softsign"),
    "softplus": Kind("softplus"),
    "affine": Kind("affine", 1.0, 0.0),
    "leakyrelu": Kind("leaky_relu", 0.01),
    "thresholdedrelu": Kind("thresholded_relu", 1.0),
    "scaledtanh": Kind("scaled_tanh", 1.0, 1.0),
    "hardsigmoid": Kind("hard_sigmoid", 0.2, 0.5),
    "elu": Kind("elu", 1.0),
}
assert {kind.name for kind in NAMES.values()} <= {*KINDS, "affine", "scaled_tanh"}


@dataclass(frozen=True, slots=True)
class Activations:
    """One direction's activations, always three (the last repeated): names, and alpha, beta of each."""

    kinds: tuple[str, ...]
    parameters: tuple[float, ...]


def activations_of(node: Node, op_type: str, directions: int) -> tuple[Activations, ...] | Refusal:
    """Of each direction. Values of activation_alpha and activation_beta go, in order, to functions that take any."""
    count = len(DEFAULTS[op_type])
    names = node.attribute("activations", DEFAULTS[op_type] * directions)
    if len(names) != count * directions:
        return Refusal(f"{len(names)} activations for {directions} direction(s) of {node.op_type}")
    alphas, betas = iter(node.attribute("activation_alpha", ())), iter(node.attribute("activation_beta", ()))
    chosen: list[tuple[str, float, float]] = []
    for name in names:
        kind = NAMES.get(name.lower())
        if kind is None:
            return Refusal(f"{node.op_type} knows no activation '{name}'")
        alpha = 0.0 if kind.alpha is None else float(next(alphas, kind.alpha))
        beta = 0.0 if kind.beta is None else float(next(betas, kind.beta))
        chosen.append((kind.name, alpha, beta))
    return tuple(_direction(chosen[first : first + count]) for first in range(0, len(chosen), count))


def _direction(chosen: list[tuple[str, float, float]]) -> Activations:
    filled = chosen + [chosen[-1]] * (3 - len(chosen))
    parameters = tuple(value for _, alpha, beta in filled for value in (alpha, beta))
    return Activations(tuple(name for name, _, _ in filled), parameters)
