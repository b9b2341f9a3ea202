"""Elementwise operators with random types, opset versions, shapes, attributes and numbers, against NumPy by the
operator's text, and against onnxruntime where it has a kernel for the type."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes

import harness
from cases.drawing import FLOATS, INTEGERS, SIGNED, numbers, numpy_dtype, opsets, seeds, shapes, type_of, types
from cases.elementwise import UNARY, Case, compare
from examples import examples

many = settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])

Reference = Callable[..., np.ndarray]


def check(case: Case, *, onnxruntime_too: bool = True) -> None:
    """Ours against the reference, and onnxruntime against it."""
    want = case.expected()
    outputs = [(type_of(y.dtype.name), y.shape) for y in want]
    model = harness.node_model(
        case.op_type,
        case.inputs,
        case.attributes,
        opset=case.opset,
        domain=case.domain,
        constants=case.constants,
        n_outputs=case.n_outputs,
        output_types=outputs,
    )
    for got, y in zip(harness.run_model(model, case.feeds()), want, strict=True):
        compare(got, y, case.atol)
    key = (case.op_type, case.domain, case.opset, tuple(x.dtype.name for x in case.inputs if x is not None), case.out)
    if not onnxruntime_too or (case.op_type, case.dtype) in IMPRECISE or not _onnxruntime_has(*key):
        return
    for attribute in model.graph.node[0].attribute:
        if attribute.name == "saturate":
            attribute.i = 1  # onnxruntime refuses 0 where the attribute does not apply
    for got, y in zip(harness.ort(model, case.feeds()), want, strict=True):
        compare(got, y, max(case.atol, 4.0))


IMPRECISE = {*(("Shrink", dtype) for dtype in ("float64", *INTEGERS)), ("Clip", "float16")}
"""What onnxruntime computes in another type: its answers are not those of the type itself."""


@cache
def _onnxruntime_has(op_type: str, domain: str, opset: int, dtypes: tuple[str, ...], out: str) -> bool:
    """Whether its CPU provider has a kernel for these types."""
    if "bfloat16" in (*dtypes, out):
        return False  # its Python bindings take none
    inputs = [np.ones((), dtype) for dtype in dtypes]
    attributes = {"to": type_of(out)} if op_type == "Cast" else {"direction": "LEFT"} if op_type == "BitShift" else {}
    if op_type == "Mod" and dtypes[0] in FLOATS:
        attributes = {"fmod": 1}
    outputs = [(type_of(out or dtypes[0]), ())]
    model = harness.node_model(op_type, inputs, attributes, opset=opset, domain=domain, output_types=outputs)
    try:
        harness.ort(model, {f"x{i}": x for i, x in enumerate(inputs)})
    except (
        onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented,
        onnxruntime.capi.onnxruntime_pybind11_state.Fail,
    ):
        return False
    return True


def _case(op_type: str, opset: int, inputs: Sequence[np.ndarray | None], reference: Reference, **rest: Any) -> Case:
    arrays = [None if x is None else np.asarray(x) for x in inputs]
    return Case("random", op_type, arrays, reference, opset=opset, **rest)


# One operand.


def _erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1.0) / (1 + e)


def _gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + _erf(x / math.sqrt(2)))


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _celu(x: np.ndarray, alpha: float) -> np.ndarray:
    return np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(x / alpha))


def _shrink(x: np.ndarray, lambd: float, bias: float) -> np.ndarray:
    if x.dtype.kind == "f":
        return np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0))
    limits, exact = np.iinfo(x.dtype), x.astype(object)  # in float64 large ones would be rounded
    y = np.where(exact < -lambd, exact + int(bias), np.where(exact > lambd, exact - int(bias), 0))
    return np.asarray((y - limits.min) % 2**limits.bits + limits.min, object)


PARAMETRIC: Mapping[str, tuple[Mapping[str, float], Reference]] = {
    "Celu": ({"alpha": 1.0}, _celu),
    "Elu": ({"alpha": 1.0}, lambda x, alpha: np.where(x < 0, alpha * np.expm1(x), x)),
    "HardSigmoid": ({"alpha": 0.2, "beta": 0.5}, lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1)),
    "HardSwish": ({}, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "LeakyRelu": ({"alpha": 0.01}, lambda x, alpha: np.where(x < 0, alpha * x, x)),
    "Mish": ({}, lambda x: x * np.tanh(np.logaddexp(x, 0.0))),
    "Selu": (
        {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805},
        lambda x, alpha, gamma: gamma * np.where(x <= 0, alpha * np.expm1(x), x),
    ),
    "Shrink": ({"lambd": 0.5, "bias": 0.0}, _shrink),
    "Swish": ({"alpha": 1.0}, lambda x, alpha: x * _sigmoid(alpha * x)),
    "ThresholdedRelu": ({"alpha": 1.0}, lambda x, alpha: np.where(x > alpha, x, 0)),
}
"""Activations: their attributes' defaults, and the formula."""
CANCELLING = ("Gelu", "HardSigmoid", "HardSwish", "Mish", "Swish", "Shrink", "Selu", "Celu", "Elu")


@st.composite
def unaries(draw: st.DrawFn) -> Case:
    op_type = draw(st.sampled_from((*UNARY, *PARAMETRIC, "Gelu", "IsNaN", "IsInf", "Not", "BitwiseNot")))
    opset = draw(st.sampled_from([v for v in opsets(op_type) if types(op_type, v)]))
    dtype = draw(st.sampled_from(types(op_type, opset)))
    x = numbers(draw(seeds), draw(shapes(0, 4, size=300)), dtype)
    if op_type in PARAMETRIC:
        return _activation(draw, op_type, opset, x)
    if op_type == "IsInf":
        signs = {f"detect_{s}": draw(st.integers(0, 1)) for s in ("negative", "positive") if draw(st.booleans())}
        return _case(op_type, opset, [x], lambda x: _is_infinite(x, **signs), attributes=signs, out="bool")
    if op_type == "Gelu":
        approximate = draw(st.sampled_from(("none", "tanh")))
        formula = _gelu if approximate == "none" else _gelu_tanh
        return _case(op_type, opset, [x], formula, attributes={"approximate": approximate}, atol=1.0)
    plain: dict[str, Reference] = {"IsNaN": np.isnan, "Not": np.logical_not, "BitwiseNot": np.bitwise_not}
    out = "bool" if op_type == "IsNaN" else ""
    return _case(op_type, opset, [x], plain.get(op_type) or UNARY[op_type], out=out)


def _is_infinite(x: np.ndarray, detect_negative: int = 1, detect_positive: int = 1) -> np.ndarray:
    return (np.isneginf(x) & bool(detect_negative)) | (np.isposinf(x) & bool(detect_positive))


def _activation(draw: st.DrawFn, op_type: str, opset: int, x: np.ndarray) -> Case:
    """The parameters are fp32, whatever x is."""
    defaults, formula = PARAMETRIC[op_type]
    given = {name: draw(st.sampled_from((0.25, 1.0, 0.7, 3.5, 0.01))) for name in defaults if draw(st.booleans())}
    if op_type == "Shrink" and x.dtype.name in INTEGERS:
        given = {name: float(draw(st.integers(0, 3))) for name in defaults}
    parameters = {name: float(np.float32(value)) for name, value in (defaults | given).items()}
    atol = 1.0 if op_type in CANCELLING else 0.0
    return _case(op_type, opset, [x], lambda x: formula(x, **parameters), attributes=given, atol=atol)


@many
@given(unaries())
def test_unary(case: Case) -> None:
    check(case)


# Several operands.


def _operands(draw: st.DrawFn, count: int, dtypes: Sequence[str]) -> tuple[list[np.ndarray], tuple[int, ...]]:
    """Arrays of shapes that broadcast to one another, and which of them are constants."""
    drawn = draw(mutually_broadcastable_shapes(num_shapes=count, max_dims=5, max_side=4, min_side=0))
    seed = draw(seeds)
    arrays = [numbers(seed + i, s, dtype) for i, (s, dtype) in enumerate(zip(drawn.input_shapes, dtypes, strict=True))]
    if arrays[0].shape == arrays[-1].shape and arrays[0].dtype == arrays[-1].dtype:  # equal numbers here and there
        arrays[-1] = np.where(numbers(seed, arrays[0].shape, "bool"), arrays[0], arrays[-1])
    constants = tuple(i for i in range(count) if draw(st.integers(0, 3)) == 0)
    return arrays, constants if len(constants) < count else ()


def _truncated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a / b as C divides."""
    if a.dtype.kind == "f":
        return a / b
    quotient = np.abs(a.astype(object)) // np.abs(b.astype(object))
    return np.where((a < 0) != (b < 0), -quotient, quotient)


def _floored(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a − ⌊a / b⌋ · b; a zero has the sign of b."""
    if a.dtype.kind != "f":
        return np.mod(a, b)
    r = np.fmod(a, b)
    r = np.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)
    return np.where(r == 0, np.copysign(0, b), r)


def _shifted(direction: str) -> Reference:
    """By the width or more, or by less than nothing, only the sign remains."""

    def shift(x: np.ndarray, amount: np.ndarray) -> np.ndarray:
        width = 8 * x.itemsize
        inside = (amount >= 0) & (amount < width)
        within = np.where(inside, amount, 0).astype(x.dtype)
        if direction == "LEFT":
            return np.where(inside, np.left_shift(x, within), 0)
        return np.where(inside, np.right_shift(x, within), np.where(x < 0, x | ~x, x ^ x))

    return shift


BINARY: Mapping[str, Reference] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": _truncated,
    "PRelu": lambda x, slope: np.where(x < 0, x * slope, x),
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
    "Equal": np.equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
}
COMPARISONS = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")


@st.composite
def binaries(draw: st.DrawFn) -> Case:
    op_type = draw(st.sampled_from((*BINARY, "Mod", "Mod", "BitShift")))
    opset = draw(st.sampled_from(opsets(op_type)))
    dtype = draw(st.sampled_from([name for name in types(op_type, opset) if name != "complex64"]))
    arrays, constants = _operands(draw, 2, (dtype, dtype))
    attributes: dict[str, Any] = {}
    if op_type == "PRelu":  # the slope is broadcast to x, not x to the slope
        arrays[0] = np.ascontiguousarray(np.broadcast_to(arrays[0], np.broadcast_shapes(*(a.shape for a in arrays))))
    if op_type in ("Div", "Mod") and dtype in INTEGERS:
        # Nothing divides by zero, and what overflows (the least number by −1) is undefined in C.
        arrays[1] = np.where((arrays[1] == 0) | ((arrays[1] < 0) & (arrays[1] > -2)), 3, arrays[1]).astype(dtype)
    if op_type == "BitShift":
        attributes["direction"] = draw(st.sampled_from(("LEFT", "RIGHT")))
        if opset < 28 or draw(st.booleans()):
            arrays[1] = (np.abs(arrays[1] % (8 * arrays[1].itemsize))).astype(dtype)
        return _case(
            op_type, opset, arrays, _shifted(attributes["direction"]), attributes=attributes, constants=constants
        )
    if op_type == "Mod":
        fmod = int(draw(st.booleans()) or (dtype in FLOATS and opset < 28))
        attributes = {"fmod": fmod} if fmod or draw(st.booleans()) else {}
        reference = np.fmod if fmod else _floored
        return _case(op_type, opset, arrays, reference, attributes=attributes, constants=constants)
    out = "bool" if op_type in COMPARISONS else ""
    return _case(op_type, opset, arrays, BINARY[op_type], out=out, constants=constants)


@many
@given(binaries())
def test_binary(case: Case) -> None:
    check(case)


@st.composite
def powers(draw: st.DrawFn) -> Case:
    """Bases and exponents of different types since opset 12. What leaves the range of an integer is undefined, unless
    both are integers: then it wraps around, as products do."""
    opset = draw(st.sampled_from(opsets("Pow")))
    base = draw(st.sampled_from(types("Pow", opset)))
    exponent = draw(st.sampled_from(types("Pow", opset, 1))) if opset >= 12 else base
    arrays, constants = _operands(draw, 2, (base, exponent))
    rng = np.random.default_rng(draw(seeds))
    if exponent in INTEGERS or draw(st.booleans()):
        small = rng.integers(-3 if exponent not in INTEGERS or exponent in SIGNED else 0, 6, arrays[1].shape)
        arrays[1] = np.asarray(small).astype(numpy_dtype(exponent))
    if base in INTEGERS and exponent in FLOATS:
        arrays[0] = np.asarray(rng.integers(1, 40, arrays[0].shape)).astype(base)
        arrays[1] = np.asarray(rng.integers(0, 9, arrays[1].shape) / 2).astype(numpy_dtype(exponent))
    elif base in INTEGERS:
        arrays[0] = np.where(arrays[0] == 0, 1, arrays[0]).astype(base)  # 0 to a negative power is undefined
    return _case("Pow", opset, arrays, _power, constants=constants)


def _power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """C's powl: np.power in float64 takes √ for exponents of 0.5, which is NaN at −∞."""
    if x.dtype.kind == "f":
        return np.power(x.astype(np.longdouble), y.astype(np.longdouble)).astype(np.float64)
    if y.dtype.kind == "f":
        return np.trunc(np.power(x.astype(np.longdouble), y.astype(np.longdouble))).astype(np.int64)
    limits = np.iinfo(x.dtype)
    return np.asarray((_integer_powers(x, y) - limits.min) % 2**limits.bits + limits.min, object)


def _integer_powers(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if y.dtype.name in FLOATS:
        return np.zeros(0, object)
    return np.asarray(np.vectorize(_integer_power, otypes=[object])(x.astype(object), y.astype(object)))


def _integer_power(x: int, y: int) -> int:
    if y >= 0:
        return int(x) ** int(y)
    return (x if y % 2 else 1) if abs(x) == 1 else 0


@many
@given(powers())
def test_pow(case: Case) -> None:
    """onnxruntime computes integers in float64, where large results are rounded, and what leaves the range is lost."""
    x, y = case.inputs
    assert x is not None
    assert y is not None
    exact = x.dtype.name in FLOATS or all(abs(n) < 2**31 for n in np.ravel(_integer_powers(x, y)))
    check(case, onnxruntime_too=exact)


@st.composite
def variadics(draw: st.DrawFn) -> Case:
    op_type = draw(st.sampled_from(("Sum", "Mean", "Max", "Min", "Where", "Clip", "Clip", "SwiGLU")))
    opset = draw(st.sampled_from(opsets(op_type)))
    dtype = draw(
        st.sampled_from([d for d in types(op_type, opset, 1 if op_type == "Where" else 0) if d != "complex64"])
    )
    if op_type == "Where":
        arrays, constants = _operands(draw, 3, ("bool", dtype, dtype))
        return _case(op_type, opset, arrays, np.where, constants=constants, out=dtype)
    if op_type == "Clip":
        return _clip(draw, opset, dtype)
    if op_type == "SwiGLU":
        return _swiglu(draw, opset, dtype)
    arrays, constants = _operands(draw, count := draw(st.integers(1, 6)), [dtype] * count)
    if opset < 8:  # nothing is broadcast yet
        arrays = [np.ascontiguousarray(a) for a in np.broadcast_arrays(*arrays)]
    return _case(op_type, opset, arrays, FOLDED[op_type], constants=constants, atol=_size_of(arrays, dtype))


def _swiglu(draw: st.DrawFn, opset: int, dtype: str) -> Case:
    """Gates as the random tests of Swish have them."""
    shape = draw(shapes(0, 4, size=300))
    a, b = (numbers(draw(seeds), shape, dtype) for _ in range(2))
    given = {"alpha": draw(st.sampled_from((0.25, 1.0, 1.702, -2.0)))} if draw(st.booleans()) else {}
    alpha = float(np.float32(given.get("alpha", 1.0)))
    constants = draw(st.sampled_from(((), (0,), (1,))))
    return _case(
        "SwiGLU", opset, [a, b], lambda a, b: a * _sigmoid(alpha * a) * b, attributes=given, constants=constants
    )


FOLDED: Mapping[str, Reference] = {
    "Sum": lambda *xs: sum(xs[1:], xs[0]),
    "Mean": lambda *xs: sum(xs[1:], xs[0]) / len(xs),
    "Max": lambda *xs: _folded(np.maximum, xs),
    "Min": lambda *xs: _folded(np.minimum, xs),
}


def _folded(ufunc: Any, xs: Sequence[np.ndarray]) -> np.ndarray:
    y = xs[0]
    for x in xs[1:]:
        y = ufunc(y, x)
    return y


def _size_of(arrays: Sequence[np.ndarray], dtype: str) -> float:
    """Sums cancel: their error is relative to what is added."""
    if dtype not in FLOATS:
        return 0.0
    finite = [np.abs(a[np.isfinite(a)]).astype(np.float64) for a in arrays]
    return max((float(a.max()) for a in finite if a.size), default=0.0)


def _clip(draw: st.DrawFn, opset: int, dtype: str) -> Case:
    """Absent bounds are the type's lowest and largest numbers, by the operator's text. Where bounds are attributes,
    onnxruntime refuses a lower one above the other."""
    x = numbers(draw(seeds), draw(shapes(0, 4, size=300)), dtype)
    low, high = (numbers(draw(seeds), (), dtype) for _ in range(2))
    assume(not np.isnan(low) and not np.isnan(high))
    limits = np.iinfo(dtype) if dtype in INTEGERS else ml_dtypes.finfo(numpy_dtype(dtype))
    if opset < 11:
        low, high = sorted((low, high))
        given = {n: float(np.float32(b)) for n, b in (("min", low), ("max", high)) if draw(st.booleans())}
        most = float(np.finfo(np.float32).max)
        bounds = given.get("min", -most), given.get("max", most)
        return _case("Clip", opset, [x], lambda x: np.minimum(np.maximum(x, bounds[0]), bounds[1]), attributes=given)
    inputs: list[np.ndarray | None] = [x, *(b if draw(st.booleans()) else None for b in (low, high))]
    ends = [limit if b is None else b for b, limit in zip(inputs[1:], (limits.min, limits.max), strict=True)]
    while inputs[-1] is None:
        inputs.pop()
    present = [i for i in range(1, len(inputs)) if inputs[i] is not None]
    constants = tuple(i for i in present if draw(st.booleans()))
    wide = [float(end) if dtype in FLOATS else end for end in ends]
    return _case("Clip", opset, inputs, lambda x, *_: np.minimum(np.maximum(x, wide[0]), wide[1]), constants=constants)


@many
@given(variadics())
def test_variadic(case: Case) -> None:
    check(case)


@st.composite
def casts(draw: st.DrawFn) -> Case:
    """A float that an integer type cannot hold becomes anything; everything else is defined."""
    op_type = draw(st.sampled_from(("Cast", "CastLike")))
    opset = draw(st.sampled_from(opsets(op_type)))
    source, to = (draw(st.sampled_from(types(op_type, opset))) for _ in range(2))
    x = numbers(draw(seeds), draw(shapes(0, 4, size=300)), source)
    if source in FLOATS and to in INTEGERS:
        limits = np.iinfo(to)
        with np.errstate(all="ignore"):
            whole = np.trunc(x.astype(np.longdouble))
            x = np.where((whole >= limits.min) & (whole <= limits.max), x, x.dtype.type(1.5))
    reference = (lambda x, *_: x != 0) if to == "bool" else (lambda x, *_: _converted(x, to))
    if op_type == "CastLike":
        like = numbers(draw(seeds), draw(shapes(0, 2, size=9)), to)
        return _case(op_type, opset, [x, like], reference, out=to)
    attributes: dict[str, Any] = {"to": type_of(to)}
    if opset >= 19 and draw(st.booleans()):
        attributes["saturate"] = draw(st.integers(0, 1))  # it concerns 8-bit floats only
    return _case(op_type, opset, [x], reference, attributes=attributes, out=to)


def _converted(x: np.ndarray, to: str) -> np.ndarray:
    if x.dtype.kind == "f" and to in INTEGERS:
        return x.astype(np.longdouble).astype(to if to != "uint64" else np.uint64)
    return x.astype(numpy_dtype(to))


@many
@given(casts())
def test_cast(case: Case) -> None:
    check(case)
