"""Which activation an expression is, however a model writes it.

Exporters write one function in many ways: x · clip(x + 3, 0, 6) / 6, x · hardsigmoid(x), (x / 6) · clip(…). Here an
expression of one variable becomes a polynomial in atoms, an atom being x or a function of such a polynomial, with
ONNX's composite operators spelt out. Equal functions then mostly have equal polynomials, which are compared with those
of known activations.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir

from gossamer.model.edit import constant_of

Atom: TypeAlias = "tuple[Any, ...]"
"""("x",) or (function, parameter, …, polynomial as a tuple)."""
Monomial: TypeAlias = "tuple[Atom, ...]"
Polynomial: TypeAlias = "dict[Monomial, float]"
"""Coefficients by the sorted atoms they multiply; the empty product is the constant term."""

X: Polynomial = {(("x",),): 1.0}
MOST_NODES = 16
"""The longest form, GELU by tanh with its cube as two products, has nine nodes and may be scaled on top."""


@dataclass(frozen=True, slots=True)
class Activation:
    """A kind of `kernels.activations` with its parameters."""

    kind: str
    parameters: tuple[float, ...] = ()


NONE = Activation("none")


@dataclass(frozen=True, slots=True)
class Match:
    """value = activation(source), computed by `nodes` (in order), which nobody else reads anything of."""

    activation: Activation
    value: ir.Value
    nodes: tuple[ir.Node, ...]


def activation_after(source: ir.Value) -> Match | None:
    """The longest activation of `source` that is all that reads it."""
    found = None
    polynomials: dict[ir.Value, Polynomial] = {source: X}
    cone: list[ir.Node] = []
    for node in _followers(source, polynomials):
        cone.append(node)
        value = node.outputs[0]
        activation = recognise(polynomials[value], _tolerance(source))
        if activation is not None and _is_closed(source, value, cone):
            found = Match(activation, value, tuple(cone))
    return found


def _followers(source: ir.Value, polynomials: dict[ir.Value, Polynomial]) -> Iterator[ir.Node]:
    """The nodes that compute functions of `source` alone, producers first; their polynomials are entered on the way."""
    pending, graph = [source], source.graph
    while pending and len(polynomials) <= MOST_NODES:
        for node in {use.node: None for use in pending.pop(0).uses()}:
            polynomial = _polynomial_of(node, polynomials) if node.graph is graph else None
            if polynomial is None or node.outputs[0] in polynomials:
                continue
            polynomials[node.outputs[0]] = polynomial
            pending.append(node.outputs[0])
            yield node


def _is_closed(source: ir.Value, result: ir.Value, cone: Sequence[ir.Node]) -> bool:
    """Whether only `result` leaves the cone, and every node of it is needed."""
    inside = set(cone)
    inner = [source, *(node.outputs[0] for node in cone if node.outputs[0] is not result)]
    readers = ([use.node for use in value.uses()] if not value.is_graph_output() else [] for value in inner)
    return all(nodes and inside.issuperset(nodes) for nodes in readers)


def _tolerance(value: ir.Value) -> float:
    """Constants are rounded to the value's type, sometimes twice."""
    return 2e-3 if value.dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16) else 1e-5


# Arithmetic on polynomials.


def _constant(value: float) -> Polynomial:
    return {(): value}


def _add(a: Polynomial, b: Polynomial, sign: float = 1.0) -> Polynomial:
    total = Counter(a)
    for monomial, coefficient in b.items():
        total[monomial] += sign * coefficient  # type: ignore[assignment]
    return {monomial: coefficient for monomial, coefficient in total.items() if coefficient != 0}


def _multiply(a: Polynomial, b: Polynomial) -> Polynomial:
    product: Polynomial = {}
    for left, x in a.items():
        for right, y in b.items():
            monomial = tuple(sorted(left + right, key=repr))
            product[monomial] = product.get(monomial, 0.0) + x * y
    return product


def _scale(a: Polynomial, factor: float) -> Polynomial:
    return {monomial: coefficient * factor for monomial, coefficient in a.items()}


def _apply(function: str, argument: Polynomial, *parameters: float) -> Polynomial:
    return {((function, *parameters, tuple(sorted(argument.items(), key=repr))),): 1.0}


def _clip(p: Polynomial, low: float, high: float) -> Polynomial:
    """A bounded clip is an affine function of a clip to 0 … 1: that makes ReLU6 forms and HardSigmoid alike."""
    if math.isinf(low) or math.isinf(high) or high <= low:
        return _apply("relu", p) if (low, high) == (0.0, math.inf) else _apply("clip", p, low, high)
    unit = _scale(_add(p, _constant(-low)), 1.0 / (high - low))
    return _add(_scale(_apply("unit", unit), high - low), _constant(low))


# From nodes to polynomials.


def _polynomial_of(node: ir.Node, known: Mapping[ir.Value, Polynomial]) -> Polynomial | None:
    rule = _RULES.get((node.domain, node.op_type))
    if rule is None or len(node.outputs) != 1:
        return None
    arguments = [_argument(value, known) for value in node.inputs]
    variables = [value for value in node.inputs if value is not None and value in known]
    if not variables or any(argument is None for argument in arguments):
        return None
    result = node.outputs[0]
    if result.shape is None or result.shape != variables[0].shape or result.dtype != variables[0].dtype:
        return None
    return rule(node, *arguments)


def _argument(value: ir.Value | None, known: Mapping[ir.Value, Polynomial]) -> Polynomial | None:
    """A polynomial that is known, or a constant of one element; {} for an omitted input."""
    if value is None:
        return {}
    if value in known:
        return known[value]
    number = scalar_constant(value)
    return None if number is None else _constant(number)


def scalar_constant(value: ir.Value | None) -> float | None:
    """The number in an initializer of one element."""
    if value is None or value.const_value is None or value.const_value.size != 1:
        return None
    array = constant_of(value)
    return None if array is None else float(array.reshape(()).astype(np.float64))


def _number(polynomial: Polynomial) -> float | None:
    """The value of a constant polynomial."""
    if any(monomial for monomial in polynomial):
        return None
    return polynomial.get((), 0.0)


def _attribute(node: ir.Node, name: str, default: Any) -> Any:
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.value


def _div(_: ir.Node, a: Polynomial, b: Polynomial) -> Polynomial | None:
    divisor = _number(b)
    return _scale(a, 1.0 / divisor) if divisor else None


def _pow(_: ir.Node, a: Polynomial, b: Polynomial) -> Polynomial | None:
    exponent = _number(b)
    if exponent not in (2.0, 3.0):
        return None
    square = _multiply(a, a)
    return square if exponent == 2.0 else _multiply(square, a)


def _clip_node(
    node: ir.Node, a: Polynomial, low: Polynomial | None = None, high: Polynomial | None = None
) -> Polynomial | None:
    """Clip (-6) has attributes, Clip (-11, -12, -13) inputs that may be omitted."""
    bounds = [_number(bound) if bound else None for bound in (low, high)]
    if (low and bounds[0] is None) or (high and bounds[1] is None):
        return None
    least = bounds[0] if bounds[0] is not None else _attribute(node, "min", -math.inf)
    most = bounds[1] if bounds[1] is not None else _attribute(node, "max", math.inf)
    # Clip-6's defaults are the type's own bounds.
    return _clip(a, -math.inf if least <= -3.4e38 else least, math.inf if most >= 3.4e38 else most)


def _max(_: ir.Node, a: Polynomial, b: Polynomial) -> Polynomial | None:
    if _number(a) == 0.0:
        return _apply("relu", b)
    return _apply("relu", a) if _number(b) == 0.0 else None


def _prelu(_: ir.Node, a: Polynomial, slope: Polynomial) -> Polynomial | None:
    value = _number(slope)
    return None if value is None else _apply("leaky_relu", a, value)


def _hard_sigmoid(p: Polynomial, alpha: float, beta: float) -> Polynomial:
    return _clip(_add(_scale(p, alpha), _constant(beta)), 0.0, 1.0)


def _hard_swish(p: Polynomial) -> Polynomial:
    return _multiply(p, _hard_sigmoid(p, 1 / 6, 0.5))


def _silu(p: Polynomial, alpha: float) -> Polynomial:
    return _multiply(p, _apply("sigmoid", _scale(p, alpha)))


def _gelu(p: Polynomial) -> Polynomial:
    return _scale(_multiply(p, _add(_apply("erf", _scale(p, math.sqrt(0.5))), _constant(1.0))), 0.5)


def _gelu_tanh(p: Polynomial) -> Polynomial:
    cube = _multiply(_multiply(p, p), p)
    inner = _scale(_add(p, _scale(cube, 0.044715)), math.sqrt(2 / math.pi))
    return _scale(_multiply(p, _add(_apply("tanh", inner), _constant(1.0))), 0.5)


def _mish(p: Polynomial) -> Polynomial:
    return _multiply(p, _apply("tanh", _apply("softplus", p)))


def _gelu_node(node: ir.Node, p: Polynomial) -> Polynomial:
    return _gelu_tanh(p) if _attribute(node, "approximate", "none") in ("tanh", b"tanh") else _gelu(p)


_Rule: TypeAlias = "Callable[..., Polynomial | None]"


def _function(name: str, **defaults: float) -> _Rule:
    """A function with float attributes for parameters, in order."""
    return lambda node, p: _apply(name, p, *(_attribute(node, key, value) for key, value in defaults.items()))


_RULES: Mapping[tuple[str, str], _Rule] = {
    ("", "Add"): lambda _, a, b: _add(a, b),
    ("", "Sub"): lambda _, a, b: _add(a, b, -1.0),
    ("", "Mul"): lambda _, a, b: _multiply(a, b),
    ("", "Div"): _div,
    ("", "Neg"): lambda _, a: _scale(a, -1.0),
    ("", "Pow"): _pow,
    ("", "Max"): _max,
    ("", "Clip"): _clip_node,
    ("", "PRelu"): _prelu,
    ("", "Relu"): _function("relu"),
    ("", "Sigmoid"): _function("sigmoid"),
    ("", "Tanh"): _function("tanh"),
    ("", "Erf"): _function("erf"),
    ("", "Softplus"): _function("softplus"),
    ("", "Softsign"): _function("softsign"),
    ("", "LeakyRelu"): _function("leaky_relu", alpha=0.01),
    ("", "Elu"): _function("elu", alpha=1.0),
    ("", "Celu"): _function("celu", alpha=1.0),
    ("", "Selu"): _function("selu", alpha=1.67326319217681884765625, gamma=1.05070102214813232421875),
    ("", "ThresholdedRelu"): _function("thresholded_relu", alpha=1.0),
    ("", "HardSigmoid"): lambda node, p: _hard_sigmoid(
        p, _attribute(node, "alpha", 0.2), _attribute(node, "beta", 0.5)
    ),
    ("", "HardSwish"): lambda _, p: _hard_swish(p),
    ("", "Swish"): lambda node, p: _silu(p, _attribute(node, "alpha", 1.0)),
    ("", "Mish"): lambda _, p: _mish(p),
    ("", "Gelu"): _gelu_node,
    ("com.microsoft", "Gelu"): lambda _, p: _gelu(p),
    ("com.microsoft", "FastGelu"): lambda _, p, bias={}: _gelu_tanh(_add(p, bias)),
    ("com.microsoft", "QuickGelu"): lambda node, p: _silu(p, _attribute(node, "alpha", 1.702)),
}


# From polynomials to activations.


def recognise(polynomial: Polynomial, tolerance: float) -> Activation | None:
    """The activation of x that the polynomial is, up to relative errors of its coefficients."""
    constant = polynomial.get((), 0.0)
    terms = {monomial: coefficient for monomial, coefficient in polynomial.items() if monomial}
    for whole, kind in _WHOLE:
        if _same(polynomial, whole, tolerance):
            return Activation(kind)
    if len(terms) != 1:
        return None
    ((monomial, scale),) = terms.items()
    if len(monomial) == 1:
        return _of_function(monomial[0], scale, constant, tolerance)
    return _of_gate(monomial, scale, constant, tolerance)


def _of_function(atom: Atom, scale: float, constant: float, tolerance: float) -> Activation | None:
    """scale · f(argument) + constant."""
    if atom == ("x",):
        return None
    name, parameters, argument = atom[0], atom[1:-1], dict(atom[-1])
    if name == "unit":
        return _of_clip(argument, scale, constant, tolerance)
    if not _same(argument, X, tolerance):
        return None
    if (scale, constant) == (1.0, 0.0):
        return Activation(name, tuple(parameters)) if name in _PLAIN else None
    return Activation("affine_relu", (scale, constant)) if name == "relu" else None


def _of_clip(argument: Polynomial, scale: float, constant: float, tolerance: float) -> Activation | None:
    """scale · clip(a x + c, 0, 1) + constant, which is clip(scale (a x + c) + constant, constant, constant + scale)."""
    slope = argument.get((("x",),), 0.0) * scale
    offset = argument.get((), 0.0) * scale + constant
    if len(argument.keys() - {()}) != 1 or slope == 0 or scale <= 0:
        return None
    if _close(slope, 1.0, tolerance) and abs(offset) <= tolerance * max(abs(constant), abs(scale)):
        return Activation("clip", (constant, constant + scale))
    if constant == 0.0 and _close(scale, 1.0, tolerance):
        return Activation("hard_sigmoid", (slope, offset))
    return None


def _of_gate(monomial: Monomial, scale: float, constant: float, tolerance: float) -> Activation | None:
    """scale · x · f(…) + constant."""
    ones = {monomial: 1.0}
    if _same(ones, _unscaled(_hard_swish(X)), tolerance):
        plain = _close(scale, 1.0, tolerance) and constant == 0.0
        return Activation("hard_swish") if plain else Activation("affine_hard_swish", (scale, constant))
    if not _close(scale, 1.0, tolerance) or constant != 0.0:
        return None
    if _same(ones, _mish(X), tolerance):
        return Activation("mish")
    gates = [atom for atom in monomial if atom[0] == "sigmoid"]
    if len(monomial) == 2 and len(gates) == 1 and ("x",) in monomial:
        inner = dict(gates[0][-1])
        if inner.keys() == X.keys():
            return Activation("silu", (inner[(("x",),)],))
    return None


def _unscaled(polynomial: Polynomial) -> Polynomial:
    return dict.fromkeys(polynomial, 1.0)


_WHOLE = ((_gelu(X), "gelu"), (_gelu_tanh(X), "gelu_tanh"))
_PLAIN = frozenset(
    {"relu", "clip", "sigmoid", "tanh", "softplus", "softsign", "leaky_relu", "elu", "celu", "selu", "thresholded_relu"}
)


def _same(a: Polynomial, b: Polynomial, tolerance: float) -> bool:
    """Whether the monomials pair off, with coefficients close to each other at every depth."""
    if len(a) != len(b):
        return False
    rest = dict(b)
    for monomial, coefficient in a.items():
        partner = next(
            (m for m, c in rest.items() if _close(coefficient, c, tolerance) and _same_product(monomial, m, tolerance)),
            None,
        )
        if partner is None:
            return False
        del rest[partner]
    return True


def _same_product(a: Monomial, b: Monomial, tolerance: float) -> bool:
    return len(a) == len(b) and all(_same_atom(x, y, tolerance) for x, y in zip(a, b, strict=True))


def _same_atom(a: Atom, b: Atom, tolerance: float) -> bool:
    if a[0] != b[0] or len(a) != len(b):
        return False
    if a == b:
        return True
    parameters = all(_close(x, y, tolerance) for x, y in zip(a[1:-1], b[1:-1], strict=True))
    return parameters and _same(dict(a[-1]), dict(b[-1]), tolerance)


def _close(a: float, b: float, tolerance: float) -> bool:
    return abs(a - b) <= tolerance * max(abs(a), abs(b))
