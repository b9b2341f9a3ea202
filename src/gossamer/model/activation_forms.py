"""Which activation an expression is, however a model writes it.

Exporters write one function in many ways: x · clip(x + 3, 0, 6) / 6, x · hardsigmoid(x), (x / 6) · clip(…). Here an
expression of one variable becomes a polynomial in atoms, an atom being x or a function of such a polynomial, with
ONNX's composite operators spelt out. Equal functions then mostly have equal polynomials, which are compared with those
of known activations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import onnx_ir as ir

from gossamer.model.edit import constant_of, static_shape
from gossamer.model.polynomials import (
    Atom,
    Monomial,
    Polynomial,
    X,
    added,
    applied,
    close,
    from_number,
    multiplied,
    same,
    scaled,
    to_number,
    unscaled,
)

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


class Step(NamedTuple):
    """One node of an expression of x. operands: see `Operand`. attributes: pairs of name and value."""

    operator: tuple[str, str]
    operands: tuple[Operand, ...]
    attributes: tuple[tuple[str, Any], ...]


Operand: TypeAlias = "int | tuple[float] | None"
"""How many steps make it (none: it is x), a constant, or nothing where an input is omitted."""
Form: TypeAlias = "tuple[Step, ...]"
"""An expression as it is written, without the names in it: what the results of this module are remembered by."""


def activation_after(source: ir.Value) -> Match | None:
    """The longest activation of `source` that is all that reads it."""
    found = None
    cone: list[ir.Node] = []
    for node, form in _followers(source):
        cone.append(node)
        activation = _activation_of(form, _tolerance(source))
        if activation is not None and _is_closed(source, node.outputs[0], cone):
            found = Match(activation, node.outputs[0], tuple(cone))
    return found


def _followers(source: ir.Value) -> Iterator[tuple[ir.Node, Form]]:
    """The nodes that compute functions of `source` alone, producers first, and the form that ends with each."""
    form: Form = ()
    known, pending, graph, rank = {source: 0}, [source], source.graph, len(source.shape or ())
    while pending and len(known) <= MOST_NODES:
        for node in {use.node: None for use in pending.pop(0).uses()}:
            step = _step(node, known, rank) if node.graph is graph else None
            if step is None or node.outputs[0] in known or _polynomial((*form, step)) is None:
                continue
            form = (*form, step)
            known[node.outputs[0]] = len(form)
            pending.append(node.outputs[0])
            yield node, form


def _is_closed(source: ir.Value, result: ir.Value, cone: Sequence[ir.Node]) -> bool:
    """Whether only `result` leaves the cone, and every node of it is needed."""
    inside = set(cone)
    inner = [source, *(node.outputs[0] for node in cone if node.outputs[0] is not result)]
    readers = ([use.node for use in value.uses()] if not value.is_graph_output() else [] for value in inner)
    return all(nodes and inside.issuperset(nodes) for nodes in readers)


def _tolerance(value: ir.Value) -> float:
    """Constants are rounded to the value's type, sometimes twice."""
    return 2e-3 if value.dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16) else 1e-5


def _clip(p: Polynomial, low: float, high: float) -> Polynomial:
    """A bounded clip is an affine function of a clip to 0 … 1: that makes ReLU6 forms and HardSigmoid alike."""
    if math.isinf(low) or math.isinf(high) or high <= low:
        return applied("relu", p) if (low, high) == (0.0, math.inf) else applied("clip", p, low, high)
    unit = scaled(added(p, from_number(-low)), 1.0 / (high - low))
    return added(scaled(applied("unit", unit), high - low), from_number(low))


# From nodes to polynomials.


def _step(node: ir.Node, known: Mapping[ir.Value, int], rank: int) -> Step | None:
    """The node as a step after those that are known, None where it depends on something else.

    All results have the shape of x, since constants of one element and no more axes than its `rank` do not change that.
    """
    operator = (node.domain, node.op_type)
    if operator not in _RULES or len(node.outputs) != 1:
        return None
    operands: list[Operand] = []
    for value in node.inputs:
        if value is None or value in known:
            operands.append(None if value is None else known[value])
            if value is not None and value.dtype != node.outputs[0].dtype:
                return None
            continue
        number = scalar_constant(value)
        if number is None or len(value.shape or ()) > rank:
            return None
        operands.append((number,))
    attributes = tuple((name, attribute.value) for name, attribute in node.attributes.items())
    return Step(operator, tuple(operands), attributes)


@lru_cache(maxsize=1024)
def _polynomial(form: Form) -> Polynomial | None:
    """What the last step computes. Remembered: a model repeats few forms, and has them in every signature."""
    if not form:
        return X
    operator, operands, attributes = form[-1]
    arguments = []
    for operand in operands:
        if isinstance(operand, int):
            arguments.append(_polynomial(form[:operand]))
        else:
            arguments.append({} if operand is None else from_number(*operand))
    return _RULES[operator](dict(attributes), *arguments)


@lru_cache(maxsize=1024)
def _activation_of(form: Form, tolerance: float) -> Activation | None:
    polynomial = _polynomial(form)
    return None if polynomial is None else recognise(polynomial, tolerance)


def scalar_constant(value: ir.Value | None) -> float | None:
    """The number in an initializer of one element."""
    if value is None or value.const_value is None:
        return None
    shape = static_shape(value)
    if shape is None or math.prod(shape) != 1:
        return None  # before anything is decoded
    array = constant_of(value)
    return None if array is None or array.dtype.kind in "cOSU" else float(array.item())


Attributes: TypeAlias = "Mapping[str, Any]"


def _div(_: Attributes, a: Polynomial, b: Polynomial) -> Polynomial | None:
    divisor = to_number(b)
    return scaled(a, 1.0 / divisor) if divisor else None


def _pow(_: Attributes, a: Polynomial, b: Polynomial) -> Polynomial | None:
    exponent = to_number(b)
    if exponent not in (2.0, 3.0):
        return None
    square = multiplied(a, a)
    return square if exponent == 2.0 else multiplied(square, a)


def _clip_node(
    attributes: Attributes, a: Polynomial, low: Polynomial | None = None, high: Polynomial | None = None
) -> Polynomial | None:
    """Clip (-6) has attributes, Clip (-11, -12, -13) inputs that may be omitted."""
    bounds = [to_number(bound) if bound else None for bound in (low, high)]
    if (low and bounds[0] is None) or (high and bounds[1] is None):
        return None
    least = bounds[0] if bounds[0] is not None else attributes.get("min", -math.inf)
    most = bounds[1] if bounds[1] is not None else attributes.get("max", math.inf)
    # Clip-6's defaults are the type's own bounds.
    return _clip(a, -math.inf if least <= -3.4e38 else least, math.inf if most >= 3.4e38 else most)


def _max(_: Attributes, a: Polynomial, *others: Polynomial) -> Polynomial | None:
    """Of two; Max takes any number."""
    if len(others) != 1:
        return None
    (b,) = others
    if to_number(a) == 0.0:
        return applied("relu", b)
    return applied("relu", a) if to_number(b) == 0.0 else None


def _prelu(_: Attributes, a: Polynomial, slope: Polynomial) -> Polynomial | None:
    value = to_number(slope)
    return None if value is None else applied("leaky_relu", a, value)


def _hard_sigmoid(p: Polynomial, alpha: float, beta: float) -> Polynomial:
    return _clip(added(scaled(p, alpha), from_number(beta)), 0.0, 1.0)


def _hard_swish(p: Polynomial) -> Polynomial:
    return multiplied(p, _hard_sigmoid(p, 1 / 6, 0.5))


def _silu(p: Polynomial, alpha: float) -> Polynomial:
    return multiplied(p, applied("sigmoid", scaled(p, alpha)))


def _gelu(p: Polynomial) -> Polynomial:
    return scaled(multiplied(p, added(applied("erf", scaled(p, math.sqrt(0.5))), from_number(1.0))), 0.5)


def _gelu_tanh(p: Polynomial) -> Polynomial:
    cube = multiplied(multiplied(p, p), p)
    inner = scaled(added(p, scaled(cube, 0.044715)), math.sqrt(2 / math.pi))
    return scaled(multiplied(p, added(applied("tanh", inner), from_number(1.0))), 0.5)


def _mish(p: Polynomial) -> Polynomial:
    return multiplied(p, applied("tanh", applied("softplus", p)))


def _gelu_node(attributes: Attributes, p: Polynomial) -> Polynomial:
    return _gelu_tanh(p) if attributes.get("approximate", "none") in ("tanh", b"tanh") else _gelu(p)


_Rule: TypeAlias = "Callable[..., Polynomial | None]"


def _function(name: str, **defaults: float) -> _Rule:
    """A function with float attributes for parameters, in order."""
    return lambda attributes, p: applied(name, p, *(attributes.get(key, value) for key, value in defaults.items()))


_RULES: Mapping[tuple[str, str], _Rule] = {
    ("", "Add"): lambda _, a, b: added(a, b),
    ("", "Sub"): lambda _, a, b: added(a, b, -1.0),
    ("", "Mul"): lambda _, a, b: multiplied(a, b),
    ("", "Div"): _div,
    ("", "Neg"): lambda _, a: scaled(a, -1.0),
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
    ("", "HardSigmoid"): lambda attributes, p: _hard_sigmoid(
        p, attributes.get("alpha", 0.2), attributes.get("beta", 0.5)
    ),
    ("", "HardSwish"): lambda _, p: _hard_swish(p),
    ("", "Swish"): lambda attributes, p: _silu(p, attributes.get("alpha", 1.0)),
    ("", "Mish"): lambda _, p: _mish(p),
    ("", "Gelu"): _gelu_node,
    ("com.microsoft", "Gelu"): lambda _, p: _gelu(p),
    ("com.microsoft", "FastGelu"): lambda _, p, bias={}: _gelu_tanh(added(p, bias)),
    ("com.microsoft", "QuickGelu"): lambda attributes, p: _silu(p, attributes.get("alpha", 1.702)),
}


# From polynomials to activations.


def recognise(polynomial: Polynomial, tolerance: float) -> Activation | None:
    """The activation of x that the polynomial is, up to relative errors of its coefficients."""
    constant = polynomial.get((), 0.0)
    terms = {monomial: coefficient for monomial, coefficient in polynomial.items() if monomial}
    for whole, kind in _WHOLE:
        if same(polynomial, whole, tolerance):
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
    if not same(argument, X, tolerance):
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
    if close(slope, 1.0, tolerance) and abs(offset) <= tolerance * max(abs(constant), abs(scale)):
        return Activation("clip", (constant, constant + scale))
    if constant == 0.0 and close(scale, 1.0, tolerance):
        return Activation("hard_sigmoid", (slope, offset))
    return None


def _of_gate(monomial: Monomial, scale: float, constant: float, tolerance: float) -> Activation | None:
    """scale · x · f(…) + constant."""
    ones = {monomial: 1.0}
    if same(ones, unscaled(_hard_swish(X)), tolerance):
        plain = close(scale, 1.0, tolerance) and constant == 0.0
        return Activation("hard_swish") if plain else Activation("affine_hard_swish", (scale, constant))
    if not close(scale, 1.0, tolerance) or constant != 0.0:
        return None
    if same(ones, _mish(X), tolerance):
        return Activation("mish")
    gates = [atom for atom in monomial if atom[0] == "sigmoid"]
    if len(monomial) == 2 and len(gates) == 1 and ("x",) in monomial:
        inner = dict(gates[0][-1])
        if inner.keys() == X.keys():
            return Activation("silu", (inner[(("x",),)],))
    return None


_WHOLE = ((_gelu(X), "gelu"), (_gelu_tanh(X), "gelu_tanh"))
_PLAIN = frozenset(
    {"relu", "clip", "sigmoid", "tanh", "softplus", "softsign", "leaky_relu", "elu", "celu", "selu", "thresholded_relu"}
)
