"""Which elementwise program an ONNX operator is: one rule per operator, all versions from opset 7 on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from gossamer.model.steps import NARROW, NARROW_INTEGERS, SCALE, Expression, ExpressionBuilder, Number, is_float
from gossamer.program import Refusal

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = frozenset((*_FLOATS, *_INTEGERS, "bool"))
"""Element types that elementwise programs are made for."""
_EXACT_IN_FLOAT32 = frozenset(("float16", "bfloat16", "float32", "bool", "int8", "int16", "uint8", "uint16"))


def number_of(scalar: np.ndarray) -> Number:
    """The element of an array of one, as a rule gets it: bool as 0 or 1, any float as a Python float."""
    value = scalar.reshape(-1)[0]
    return int(value) if scalar.dtype.kind in "biu" else float(value)


@dataclass(frozen=True, slots=True)
class Operator:
    """What a rule sees of a node.

    inputs, outputs: dtype names, None for omitted ones. attribute: (name, default) → value. scalar: the value of an
    input that is a constant of one element, else None.
    """

    op_type: str
    domain: str
    version: int
    inputs: tuple[str | None, ...]
    outputs: tuple[str | None, ...]
    attribute: Callable[[str, Any], Any]
    scalar: Callable[[int], Number | None]


@dataclass(frozen=True, slots=True)
class Expansion:
    """The program of a node. sources: for each input of the expression the index of the node's input. The results are
    the node's outputs that are not omitted, in order."""

    expression: Expression
    sources: tuple[int, ...]


def expand(operator: Operator) -> Expansion | Refusal:
    """The program that computes an operator's outputs, element by element, from inputs broadcast to their shape."""
    rule = RULES.get((operator.domain, operator.op_type))
    if rule is None:
        return Refusal(f"{operator.op_type} is not elementwise")
    known = DTYPES | NARROW if operator.op_type in ("Cast", "CastLike") else DTYPES
    for dtype in (*operator.inputs, *operator.outputs):
        if dtype is not None and dtype not in known:
            return Refusal(f"{operator.op_type} of {dtype} has no kernel")
    rule_results = rule(context := _Context(operator))
    if isinstance(rule_results, Refusal):
        return rule_results
    results = [reference for reference, dtype in zip(rule_results, operator.outputs, strict=False) if dtype is not None]
    expression = context.finish(results)
    return Expansion(expression, tuple(int(str(key)) for key in context.keys))


class _Context(ExpressionBuilder):
    """The expression of one operator in the making."""

    def __init__(self, operator: Operator) -> None:
        super().__init__()
        self.operator = operator

    def operand(self, index: int) -> int:
        """Input `index`: a constant where its only element is known, which saves its loads."""
        scalar = self.operator.scalar(index)
        return self.input(index) if scalar is None else self.constant(scalar, self.dtype(index))

    def dtype(self, index: int = 0) -> str:
        dtype = self.operator.inputs[index]
        assert dtype is not None
        return dtype

    def has(self, index: int) -> bool:
        return index < len(self.operator.inputs) and self.operator.inputs[index] is not None

    def number(self, name: str, default: float) -> float:
        return float(self.operator.attribute(name, default))

    def cast(self, reference: int, source: str, to: str) -> int:
        return reference if source == to else self.step("cast", reference, to=to)


Rule: TypeAlias = Callable[[_Context], "tuple[int, ...] | Refusal"]


def _plain(op: str, arity: int) -> Rule:
    def rule(c: _Context) -> tuple[int, ...]:
        return (c.step(op, *(c.operand(index) for index in range(arity))),)

    return rule


def _swapped(op: str) -> Rule:
    return lambda c: (c.step(op, c.operand(1), c.operand(0)),)


def _activation(op: str, **defaults: float) -> Rule:
    """An activation whose parameters are attributes. defaults: by attribute, in the order of the step's parameters."""

    def rule(c: _Context) -> tuple[int, ...]:
        parameters = [c.number(attribute, default) for attribute, default in defaults.items()]
        return (c.step(op, c.operand(0), parameters=parameters),)

    return rule


def _folded(op: str) -> Rule:
    """Max, Min, Sum of any number of inputs."""

    def rule(c: _Context) -> tuple[int, ...]:
        result = c.operand(0)
        for index in range(1, len(c.operator.inputs)):
            result = c.step(op, result, c.operand(index))
        return (result,)

    return rule


def _identity(c: _Context) -> tuple[int, ...]:
    return (c.input(0),)


def _mean(c: _Context) -> tuple[int, ...]:
    (total,) = _folded("add")(c)  # type: ignore[misc]  # it never refuses
    count = len(c.operator.inputs)
    return (total if count == 1 else c.step("div", total, c.constant(count, c.dtype())),)


def _relu(c: _Context) -> tuple[int, ...]:
    if is_float(c.dtype()):
        return (c.step("relu", c.operand(0)),)
    return (c.step("max", c.operand(0), c.constant(0, c.dtype())),)  # ints since opset 14


def _clip(c: _Context) -> tuple[int, ...]:
    """min(max(x, low), high), in this order: where low > high the result is high. Bounds are attributes before opset
    11.

    An absent bound is the lowest or the largest number, of the type itself since opset 11, of float32 before: ∞ becomes
    that. So says the operator's text, and does onnxruntime; ONNX's function body leaves ∞ as it is.
    """
    x, dtype = c.operand(0), c.dtype()
    bounds: list[Number | None]
    if c.operator.version < 11:
        bounds = [c.number(name, default) for name, default in zip(("min", "max"), _RANGES["float32"], strict=True)]
    else:
        ends = _RANGES.get(dtype, (None, None))  # integers have nothing beyond theirs
        bounds = [c.operator.scalar(index) if c.has(index) else end for index, end in zip((1, 2), ends, strict=True)]
    low, high = bounds
    if low is not None and high is not None and is_float(dtype) and dtype != "float64":
        return (c.step("clip", x, parameters=(low, high)),)
    for index, (op, bound) in enumerate(zip(("max", "min"), bounds, strict=True), start=1):
        if bound is not None:
            x = c.step(op, x, c.constant(bound, dtype))
        elif c.operator.version >= 11 and c.has(index):
            x = c.step(op, x, c.input(index))
    return (x,)


_RANGES: Mapping[str, tuple[Number, Number]] = {
    "float16": (-65504.0, 65504.0),
    "bfloat16": (-3.3895313892515355e38, 3.3895313892515355e38),
    "float32": (-3.4028234663852886e38, 3.4028234663852886e38),
    "float64": (-1.7976931348623157e308, 1.7976931348623157e308),
}
"""The lowest and the largest finite number of each type of float."""

_INTEGER_POWERS: Mapping[Number, str] = {1: "", 2: "square", 3: "cube"}
_FLOAT_POWERS: Mapping[Number, str] = {**_INTEGER_POWERS, -1: "reciprocal", 0.5: "sqrt"}


def _pow(c: _Context) -> tuple[int, ...]:
    x, dtype, exponent = c.operand(0), c.dtype(), c.operator.scalar(1)
    short = _FLOAT_POWERS if is_float(dtype) else _INTEGER_POWERS
    if exponent is not None and exponent in short:
        return (_short_power(c, x, short[exponent]),)
    return (_general_power(c, x, c.operand(1), dtype, c.dtype(1)),)


def _short_power(c: _Context, x: int, op: str) -> int:
    if op == "sqrt":  # unlike √, (−∞)^½ is +∞ and (−0)^½ is +0
        infinity = c.step("is_inf", x, parameters=(1, 0))
        x = c.step("where", infinity, c.step("abs", x), x)
        return c.step("abs", c.step("sqrt", x))
    return c.step(op, x) if op else x


def _general_power(c: _Context, x: int, y: int, base: str, exponent: str) -> int:
    if not is_float(base) and not is_float(exponent):
        return c.step("pow", x, c.cast(y, exponent, "int64"))
    scalar = c.operator.scalar(1)
    fits = exponent in _EXACT_IN_FLOAT32 or (scalar is not None and float(np.float32(scalar)) == scalar)
    if is_float(base) and base != "float64" and fits:
        if scalar is not None:
            return c.step("pow", x, c.constant(scalar, "float32"))
        return c.step("pow", x, y if is_float(exponent) else c.cast(y, exponent, "float32"))
    result = c.step("pow", c.cast(x, base, "float64"), c.cast(y, exponent, "float64"))
    return c.cast(result, "float64", base)


def _mod(c: _Context) -> tuple[int, ...]:
    return (c.step("fmod" if c.operator.attribute("fmod", 0) else "mod", c.operand(0), c.operand(1)),)


def _bit_shift(c: _Context) -> tuple[int, ...]:
    direction = str(c.operator.attribute("direction", "LEFT")).lower()
    return (c.step(f"shift_{direction}", c.operand(0), c.operand(1)),)


def _cast(c: _Context) -> tuple[int, ...] | Refusal:
    """Narrow types by way of the numbers that their bits stand for."""
    source, to = c.dtype(), c.operator.outputs[0]
    assert to is not None
    if source == to:
        return (c.input(0),)
    if source in NARROW:
        x, source = c.step("decode", c.input(0), to=source), NARROW_INTEGERS.get(source, "float32")
    else:
        x = c.operand(0)
    if to in NARROW_INTEGERS:
        return (_encoded_integer(c, x, source, to),)
    return _encoded_float(c, x, source, to) if to in NARROW else (c.cast(x, source, to),)


def _encoded_integer(c: _Context, x: int, source: str, to: str) -> int:
    """Rounded to the nearest integer, half to even, of which the lower bits remain, as ONNX's pages on these types say:
    "Cast to a 4 bit type is done by rounding to the nearest-integer (with ties to even) […] and truncating"."""
    if is_float(source):
        x = c.step("cast", c.step("round", x), to="int32")
    return c.step("encode_integer", c.cast(x, "bool", "uint8") if source == "bool" else x, to=to)


_ROUNDINGS = {"down": 0, "up": 1, "nearest": 2}
"""Cast's round_mode → the parameter of `encode_scale`."""


def _encoded_float(c: _Context, x: int, source: str, to: str) -> tuple[int, ...] | Refusal:
    """By way of float32. Rounding twice would be wrong where the first makes a tie of what was none."""
    if source in _EXACT_IN_FLOAT32:
        x = c.cast(x, source, "float32")
    elif source != "float32":
        x = c.step("round_to_odd", c.cast(x, source, "float64"))
    saturate = c.number("saturate", 1)
    if to != SCALE:
        return (c.step("encode_float", x, parameters=(saturate,), to=to),)
    mode = c.operator.attribute("round_mode", "up")
    if mode not in _ROUNDINGS:
        return Refusal(f"{c.operator.op_type} knows no round_mode '{mode}'")
    return (c.step("encode_scale", x, parameters=(saturate, _ROUNDINGS[mode]), to=to),)


def _shrink(c: _Context) -> tuple[int, ...]:
    """x + bias below -lambd, x - bias above lambd, else 0. In float64, integers of 64 bits would be rounded."""
    lambd, bias = c.number("lambd", 0.5), c.number("bias", 0.0)
    if is_float(c.dtype()):
        return (c.step("shrink", c.operand(0), parameters=(lambd, bias)),)
    limits = np.iinfo(c.dtype())
    if bias.is_integer() and limits.min <= bias <= limits.max and 0 <= lambd <= limits.max // 2:
        return (_shrink_integer(c, int(lambd), int(bias)),)
    x = c.cast(c.operand(0), c.dtype(), "float64")
    return (c.cast(c.step("shrink", x, parameters=(lambd, bias)), "float64", c.dtype()),)


def _shrink_integer(c: _Context, lambd: int, bias: int) -> int:
    """lambd ≥ 0, cut to an integer, which makes no difference to integers."""
    x, dtype = c.operand(0), c.dtype()
    shift = c.constant(bias, dtype)
    above = c.step("less", c.constant(lambd, dtype), x)
    result = c.step("where", above, c.step("sub", x, shift), c.constant(0, dtype))
    if dtype.startswith("u"):
        return result
    below = c.step("less", x, c.constant(-lambd, dtype))
    return c.step("where", below, c.step("add", x, shift), result)


def _erf(c: _Context) -> tuple[int, ...]:
    """Of integers, which ONNX allows: cut towards zero, so 0 up to 5, and ±1 from where float64 can hold no less."""
    if is_float(c.dtype()):
        return (c.step("erf", c.operand(0)),)
    return (c.cast(c.step("erf", c.cast(c.operand(0), c.dtype(), "float64")), "float64", c.dtype()),)


def _is_inf(c: _Context) -> tuple[int, ...]:
    signs = c.number("detect_negative", 1), c.number("detect_positive", 1)
    return (c.step("is_inf", c.operand(0), parameters=signs),)


def _gelu(c: _Context) -> tuple[int, ...] | Refusal:
    approximate = c.operator.attribute("approximate", "none")
    kinds = {"none": "gelu", "tanh": "gelu_tanh"}
    if approximate not in kinds:
        return Refusal(f"Gelu knows no approximation '{approximate}'")
    return (c.step(kinds[approximate], c.operand(0)),)


def _biased(op: str) -> Rule:
    def rule(c: _Context) -> tuple[int, ...]:
        x = c.operand(0)
        return (c.step(op, c.step("add", x, c.operand(1)) if c.has(1) else x),)

    return rule


def _swiglu(c: _Context) -> tuple[int, ...]:
    """Swish of the gate, times the value; unlike in ONNX's function body nothing is rounded in between."""
    gate = c.step("silu", c.operand(0), parameters=(c.number("alpha", 1.0),))
    return (c.step("mul", gate, c.operand(1)),)


def _dropout(c: _Context) -> tuple[int, ...] | Refusal:
    """Where nothing drops out (in inference, or at a ratio of 0): the input, and a mask: true by opset 12, before which
    ONNX says nothing and onnxruntime false."""
    ratio = c.operator.scalar(1) if c.has(1) else 0.5
    if c.has(2) and c.operator.scalar(2) != 0 and ratio != 0:
        return Refusal("Dropout in training mode is random")
    mask = c.operator.outputs[1] if len(c.operator.outputs) > 1 else None
    return (c.input(0),) if mask is None else (c.input(0), c.constant(int(c.operator.version >= 12), mask))


_UNARY = {
    **{
        name: name.lower() for name in ("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh")
    },
    **{name: name.lower() for name in ("Exp", "Floor", "Log", "Mish", "Neg", "Not", "Reciprocal", "Round", "Sigmoid")},
    **{name: name.lower() for name in ("Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh")},
    "BitwiseNot": "bitwise_not",
    "HardSwish": "hard_swish",
    "IsNaN": "is_nan",
}
_BINARY = {
    "Add": "add",
    "And": "bitwise_and",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "Div": "div",
    "Equal": "equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Mul": "mul",
    "Or": "bitwise_or",
    "PRelu": "prelu",
    "Sub": "sub",
    "Xor": "bitwise_xor",
}

RULES: Mapping[tuple[str, str], Rule] = {
    **{("", name): _plain(op, 1) for name, op in _UNARY.items()},
    **{("", name): _plain(op, 2) for name, op in _BINARY.items()},
    ("", "Where"): _plain("where", 3),
    ("", "Greater"): _swapped("less"),
    ("", "GreaterOrEqual"): _swapped("less_equal"),
    ("", "Max"): _folded("max"),
    ("", "Min"): _folded("min"),
    ("", "Sum"): _folded("add"),
    ("", "Mean"): _mean,
    ("", "Relu"): _relu,
    ("", "Clip"): _clip,
    ("", "Pow"): _pow,
    ("", "Mod"): _mod,
    ("", "BitShift"): _bit_shift,
    ("", "Cast"): _cast,
    ("", "CastLike"): _cast,
    ("", "Erf"): _erf,
    ("", "Shrink"): _shrink,
    ("", "IsInf"): _is_inf,
    ("", "Identity"): _identity,
    ("", "Dropout"): _dropout,
    ("", "Gelu"): _gelu,
    ("", "Celu"): _activation("celu", alpha=1.0),
    ("", "Elu"): _activation("elu", alpha=1.0),
    ("", "HardSigmoid"): _activation("hard_sigmoid", alpha=0.2, beta=0.5),
    ("", "LeakyRelu"): _activation("leaky_relu", alpha=0.01),
    ("", "Selu"): _activation("selu", alpha=1.6732632423543772, gamma=1.0507009873554805),
    ("", "SwiGLU"): _swiglu,
    ("", "Swish"): _activation("silu", alpha=1.0),
    ("", "ThresholdedRelu"): _activation("thresholded_relu", alpha=1.0),
    ("com.microsoft", "BiasGelu"): _biased("gelu"),
    ("com.microsoft", "FastGelu"): _biased("gelu_tanh"),
    ("com.microsoft", "Gelu"): _plain("gelu", 1),
    ("com.microsoft", "QuickGelu"): _activation("silu", alpha=1.702),
}
"""(domain, operator) → rule."""
