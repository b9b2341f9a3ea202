"""Elementwise operators: inputs and what NumPy, in float64 or in the integer type itself, makes of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto

from cases.node_case import random_array
from harness import node_model, run_model

FLOATS = ("float16", "bfloat16", "float32", "float64")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = SIGNED + UNSIGNED
TENSOR_TYPES = {
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "bool": TensorProto.BOOL,
    **{name: getattr(TensorProto, name.upper()) for name in INTEGERS},
}

# Half a unit in the last place is rounding; fp32 and fp64 allow for the functions' own errors, bf16 for Triton's
# interpreter, which truncates.
RTOL = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 1e-6, "float64": 4e-15}
TINY = {"float16": 2.0**-24, "bfloat16": 1.2e-38, "float32": 1.2e-38, "float64": 1e-307}
"""An absolute tolerance where results are subnormal."""

Reference = Callable[..., np.ndarray | tuple[np.ndarray, ...]]


@dataclass(frozen=True)
class Case:
    """One node. reference: from the inputs, floats as float64, to the outputs; they are then cast to `out` (by default
    the first input's type). atol: where the formula itself cancels, in units of the type's rtol. exact: zeros have the
    right sign, too."""

    name: str
    op_type: str
    inputs: Sequence[np.ndarray | None]
    reference: Reference
    attributes: Mapping[str, Any] = field(default_factory=dict)
    out: str = ""
    opset: int = 21
    domain: str = ""
    constants: Sequence[int] = ()
    n_outputs: int = 1
    atol: float = 0.0
    exact: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def dtype(self) -> str:
        first = self.inputs[0]
        assert first is not None
        return self.out or first.dtype.name

    def model(self) -> Any:
        # In domains and opsets that onnx's shape inference knows nothing of, the types are said.
        outputs = None
        if self.domain or self.opset >= 24:
            shape = np.broadcast_shapes(*(x.shape for x in self.inputs if x is not None))
            outputs = [(TENSOR_TYPES[self.dtype], shape)]
        return node_model(
            self.op_type,
            self.inputs,
            self.attributes,
            opset=self.opset,
            domain=self.domain,
            constants=self.constants,
            n_outputs=self.n_outputs,
            output_types=outputs,
        )

    def feeds(self) -> dict[str, np.ndarray]:
        return {f"x{i}": x for i, x in enumerate(self.inputs) if x is not None and i not in self.constants}

    def expected(self) -> list[np.ndarray]:
        wide = [None if x is None else _widened(x) for x in self.inputs]
        with np.errstate(all="ignore"):
            results = self.reference(*wide)
            results = results if isinstance(results, tuple) else (results,)
            return [np.asarray(y).astype(y.dtype if y.dtype == bool else _numpy(self.dtype)) for y in results]

    def check(self, device: str) -> None:
        """Runs the node on `device` and compares."""
        got = run_model(self.model(), self.feeds(), device)
        for one, want in zip(got, self.expected(), strict=True):
            compare(one, want, self.atol)
            if self.exact:
                np.testing.assert_array_equal(np.signbit(one), np.signbit(want))


def compare(got: np.ndarray, want: np.ndarray, atol: float = 0.0) -> None:
    """Equal up to relative error, element by element; NaN, infinities and what is no float exactly."""
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    name = got.dtype.name
    if name not in RTOL:
        np.testing.assert_array_equal(got, want)
        return
    exact, expected = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_allclose(exact, expected, rtol=RTOL[name], atol=atol * RTOL[name] + TINY[name])


def _numpy(dtype: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, dtype, dtype))


def _widened(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64) if x.dtype.name in FLOATS else x


_SPECIAL = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    math.inf,
    -math.inf,
    math.nan,
    88.0,
    -88.0,
    -103.0,
    200.0,
    1e-6,
    -3e-4,
)


def floats(dtype: str, spread: float = 2.0) -> np.ndarray:
    """Special values and normally distributed ones."""
    values = np.concatenate([_SPECIAL, np.random.default_rng(7).normal(0, spread, 77 - len(_SPECIAL))])
    return values.reshape(7, 11).astype(_numpy(dtype))


def numbers(name: str, dtype: str, shape: Sequence[int] = (3, 14)) -> np.ndarray:
    """Random values of any type, no specials."""
    return random_array(name, shape, dtype)


def _erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1.0) / (1 + e)


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(x, 0.0)


def _gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + _erf(x / math.sqrt(2)))


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _elu(alpha: float) -> Reference:
    return lambda x: np.where(x < 0, np.float32(alpha) * np.expm1(x), x)


UNARY: Mapping[str, Reference] = {
    "Abs": np.abs,
    "Acos": np.arccos,
    "Acosh": np.arccosh,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "Ceil": np.ceil,
    "Cos": np.cos,
    "Cosh": np.cosh,
    "Erf": _erf,
    "Exp": np.exp,
    "Floor": np.floor,
    "Log": np.log,
    "Neg": np.negative,
    "Reciprocal": np.reciprocal,
    "Relu": lambda x: np.maximum(x, 0),
    "Round": np.rint,
    "Sigmoid": _sigmoid,
    "Sign": np.sign,
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Softplus": _softplus,
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Sqrt": np.sqrt,
    "Tan": np.tan,
    "Tanh": np.tanh,
}
"""Operators of one float input without attributes, since opset 7 to 9."""

_ACTIVATIONS: Sequence[tuple[str, Mapping[str, Any], Reference, int, float]] = [
    ("Celu", {"alpha": 2.0}, lambda x: np.maximum(x, 0) + np.minimum(0, 2 * np.expm1(x / 2)), 12, 0.0),
    ("Elu", {}, _elu(1.0), 7, 0.0),
    ("Elu", {"alpha": 0.3}, _elu(0.3), 7, 0.0),
    ("Gelu", {}, _gelu, 20, 1.0),
    ("Gelu", {"approximate": "tanh"}, _gelu_tanh, 20, 1.0),
    ("HardSigmoid", {}, lambda x: np.clip(x * np.float32(0.2) + 0.5, 0, 1), 7, 1.0),
    ("HardSigmoid", {"alpha": 0.25, "beta": 0.125}, lambda x: np.clip(x * 0.25 + 0.125, 0, 1), 7, 1.0),
    ("HardSwish", {}, lambda x: x * np.clip(x / 6 + 0.5, 0, 1), 14, 1.0),
    ("LeakyRelu", {}, lambda x: np.where(x < 0, x * np.float32(0.01), x), 7, 0.0),
    ("LeakyRelu", {"alpha": 0.5}, lambda x: np.where(x < 0, x * 0.5, x), 16, 0.0),
    ("Mish", {}, lambda x: x * np.tanh(_softplus(x)), 18, 0.0),
    (
        "Selu",
        {},
        lambda x: np.float32(1.0507009873554805) * np.where(x < 0, np.float32(1.6732632423543772) * np.expm1(x), x),
        7,
        0.0,
    ),
    ("Selu", {"alpha": 2.0, "gamma": 0.5}, lambda x: 0.5 * np.where(x < 0, 2 * np.expm1(x), x), 7, 0.0),
    ("Shrink", {}, lambda x: np.where(np.abs(x) > 0.5, x, 0), 9, 0.0),
    (
        "Shrink",
        {"lambd": 1.0, "bias": 0.25},
        lambda x: np.where(x < -1, x + 0.25, np.where(x > 1, x - 0.25, 0)),
        9,
        0.0,
    ),
    ("Swish", {"alpha": 0.5}, lambda x: x * _sigmoid(0.5 * x), 24, 0.0),
    ("ThresholdedRelu", {"alpha": 0.75}, lambda x: np.where(x > 0.75, x, 0), 10, 0.0),
]

_X32 = floats("float32")


def _unary_cases() -> list[Case]:
    cases = [
        Case(f"{op}-{dtype}", op, [floats(dtype)], reference) for op, reference in UNARY.items() for dtype in FLOATS
    ]
    for op, attributes, reference, opset, atol in _ACTIVATIONS:
        detail = "_".join(f"{key}_{value}" for key, value in attributes.items())
        cases += [
            Case(f"{op}-{detail}{dtype}", op, [floats(dtype)], reference, attributes, opset=opset, atol=atol)
            for dtype in (FLOATS if not detail else ("float32",))
        ]
    for dtype in FLOATS:
        cases.append(Case(f"IsNaN-{dtype}", "IsNaN", [floats(dtype)], np.isnan, out="bool", opset=20))
        cases.append(Case(f"IsInf-{dtype}", "IsInf", [floats(dtype)], np.isinf, out="bool", opset=20))
    cases += [
        Case("IsInf-negative", "IsInf", [_X32], np.isneginf, {"detect_positive": 0}, "bool", opset=10),
        Case("IsInf-positive", "IsInf", [_X32], np.isposinf, {"detect_negative": 0}, "bool", opset=10),
        Case("Not", "Not", [numbers("not", "bool")], np.logical_not),
    ]
    for dtype in INTEGERS:
        x = numbers("unary", dtype)
        cases += [
            Case(f"Abs-{dtype}", "Abs", [x], np.abs),
            Case(f"BitwiseNot-{dtype}", "BitwiseNot", [x], np.bitwise_not),
            Case(f"Sign-{dtype}", "Sign", [x], np.sign),
            Case(f"Erf-{dtype}", "Erf", [np.arange(12).astype(dtype)], lambda x: (x > 5) * 1),
        ]
    for dtype in SIGNED:
        x = numbers("unary", dtype)
        cases.append(Case(f"Neg-{dtype}", "Neg", [x], np.negative))
        cases.append(Case(f"Relu-{dtype}", "Relu", [x], lambda x: np.maximum(x, 0), opset=14))
    for dtype in INTEGERS:
        limits = np.iinfo(dtype)
        x = np.array([0, 3, 4, limits.max - 1, limits.max, limits.min, max(limits.min, -4)], dtype)
        cases.append(Case(f"Shrink-{dtype}", "Shrink", [x], _shrunk, {"lambd": 3.25, "bias": 2.0}))
    return cases


def _shrunk(x: np.ndarray) -> np.ndarray:
    wide = x.astype(object)
    return np.where(wide < -3, wide + 2, np.where(wide > 3, wide - 2, 0))


def _truncated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a / b as C divides integers."""
    quotient = np.abs(a.astype(object)) // np.abs(b.astype(object))
    return np.where((a < 0) != (b < 0), -quotient, quotient)


def _floored(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a − ⌊a / b⌋ · b of floats, where a zero has the sign of b."""
    r = np.fmod(a, b)
    r = np.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)
    return np.where(r == 0, np.copysign(0, b), r)


def _without_zero(x: np.ndarray) -> np.ndarray:
    return np.where(x == 0, np.ones_like(x), x)


ARITHMETIC: Mapping[str, Reference] = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}
_COMPARISONS: Mapping[str, Reference] = {
    "Equal": np.equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
}


def _binary_cases() -> list[Case]:
    cases = []
    for dtype in FLOATS:
        a, b = floats(dtype), floats(dtype).T.copy().reshape(7, 11)
        for op, reference in {**ARITHMETIC, "Div": np.divide, "Max": np.maximum, "Min": np.minimum}.items():
            cases.append(Case(f"{op}-{dtype}", op, [a, b], reference, opset=14 if dtype == "bfloat16" else 8))
        cases.append(Case(f"Mod-fmod_{dtype}", "Mod", [a, b], np.fmod, {"fmod": 1}, opset=13))
        cases.append(Case(f"PRelu-{dtype}", "PRelu", [a, b[:1]], lambda x, s: np.where(x < 0, x * s, x), opset=16))
        cases.append(Case(f"Pow-{dtype}", "Pow", [a, b], np.power, opset=15))
    for dtype in INTEGERS:
        a, b = numbers("a", dtype), numbers("b", dtype)
        for op, reference in {**ARITHMETIC, "Max": np.maximum, "Min": np.minimum}.items():
            cases.append(Case(f"{op}-{dtype}", op, [a, b], reference, opset=14))
        small = np.abs(a % 5).astype(dtype)
        divisor = _without_zero(b // (1 << (8 * b.itemsize - 5)))
        cases += [
            Case(f"Div-{dtype}", "Div", [a, divisor], _truncated, opset=14),
            Case(f"Mod-{dtype}", "Mod", [a, divisor], np.mod, opset=13),
            Case(f"Mod-fmod_{dtype}", "Mod", [a, divisor], np.fmod, {"fmod": 1}, opset=13),
            Case(f"BitwiseAnd-{dtype}", "BitwiseAnd", [a, b], np.bitwise_and),
            Case(f"BitwiseOr-{dtype}", "BitwiseOr", [a, b], np.bitwise_or),
            Case(f"BitwiseXor-{dtype}", "BitwiseXor", [a, b], np.bitwise_xor),
        ]
        if dtype in ("int32", "int64"):
            cases.append(Case(f"Pow-{dtype}", "Pow", [a // 1000, small], np.power, opset=15))
    for op, reference in _COMPARISONS.items():
        for dtype in (*FLOATS, *INTEGERS):
            a = floats(dtype) if dtype in FLOATS else numbers("c", dtype)
            b = np.where(numbers("equal", "bool", a.shape), a, np.roll(a, 1))
            cases.append(Case(f"{op}-{dtype}", op, [a, b], reference, out="bool", opset=19))
    p, q = numbers("p", "bool"), numbers("q", "bool")
    logical = {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor, "Equal": np.equal}
    cases += [Case(f"{op}-bool", op, [p, q], reference) for op, reference in logical.items()]
    for dtype in UNSIGNED:
        a, amount = numbers("s", dtype), (numbers("n", dtype) % (8 * np.dtype(dtype).itemsize)).astype(dtype)
        cases.append(Case(f"BitShift-left_{dtype}", "BitShift", [a, amount], np.left_shift, {"direction": "LEFT"}))
        cases.append(Case(f"BitShift-right_{dtype}", "BitShift", [a, amount], np.right_shift, {"direction": "RIGHT"}))
    for dtype in SIGNED:
        width = 8 * np.dtype(dtype).itemsize
        a, amount = numbers("s", dtype), np.arange(-2, width + 3).astype(dtype)[:, None, None]
        left, right = {"direction": "LEFT"}, {"direction": "RIGHT"}
        cases.append(Case(f"BitShift-left_{dtype}", "BitShift", [a, amount], _shifted_left, left, opset=28))
        cases.append(Case(f"BitShift-right_{dtype}", "BitShift", [a, amount], _shifted_right, right, opset=28))
    return cases


def _floored_mod_cases() -> list[Case]:
    """Floats without fmod, since opset 28."""
    cases = [
        Case(f"Mod-28_{dtype}", "Mod", [floats(dtype), floats(dtype).T.copy().reshape(7, 11)], _floored, opset=28)
        for dtype in FLOATS
    ]
    far = [np.array([8.2e251, -1.16e126, 1.6e308, 1.0]), np.array([6.7e-300, -8.9e-228, 5e-324, 4.9e-310])]
    cases.append(Case("Mod-fmod_far", "Mod", far, np.fmod, {"fmod": 1}, opset=13))
    zeros = [np.array([6.0, -6.0, 0.0, -0.0, 0.0, -0.0]), np.array([3.0, -3.0, -3.0, 3.0, np.inf, -np.inf])]
    return [*cases, Case("Mod-28_signs_of_zeros", "Mod", zeros, _floored, opset=28, exact=True)]


def _shifted_left(x: np.ndarray, amount: np.ndarray) -> np.ndarray:
    """NumPy says nothing of shifts by the width or more, or by less than nothing."""
    width = 8 * x.itemsize
    return np.where((amount >= 0) & (amount < width), np.left_shift(x, amount % width), 0)


def _shifted_right(x: np.ndarray, amount: np.ndarray) -> np.ndarray:
    width = 8 * x.itemsize
    return np.right_shift(x, np.where((amount >= 0) & (amount < width), amount, width - 1))


def _power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """C's powl: np.power in float64 takes √ for exponents of 0.5, which is NaN at −∞."""
    return np.power(x.astype(np.longdouble), y.astype(np.longdouble)).astype(np.float64)


def _pow_cases() -> list[Case]:
    """Mixed types (opset 12 and later) and the exponents that are not computed by logarithms."""
    cases = []
    for exponent in (-2.0, -1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 4.0):
        for base in ("float16", "float32", "float64"):
            y = np.array(exponent, base)
            cases.append(Case(f"Pow-{base}_to_{exponent}", "Pow", [floats(base), y], _power, opset=15, constants=(1,)))
    for dtype in ("float32", "float64"):
        most = float(np.finfo(dtype).max)
        x = np.array([most, 1 + np.finfo(dtype).eps, 1 - np.finfo(dtype).eps, np.finfo(dtype).tiny, 2.0, -3.0], dtype)
        y = np.array([most, -most, 2.0**33, -(2.0**70), np.inf, -np.inf, 1.0, -1.0], dtype)[:, None]
        cases.append(Case(f"Pow-{dtype}_far", "Pow", [x, y], _power, opset=15))
    mixed = [
        ("float32", "int64"),
        ("float32", "int32"),
        ("float16", "int64"),
        ("float64", "float32"),
        ("float32", "float64"),
    ]
    for base, exponent in mixed:
        y = np.arange(-3, 4).astype(exponent)
        x = numbers("base", base, (6, 1))
        cases.append(
            Case(f"Pow-{base}_{exponent}", "Pow", [x, y], lambda x, y: np.power(x, y.astype(np.float64)), opset=15)
        )
        two = np.array(2, exponent)
        cases.append(Case(f"Pow-{base}_{exponent}_2", "Pow", [x, two], lambda x, _: x * x, opset=15, constants=(1,)))
    x, half = np.arange(0, 40, dtype=np.int32), np.array([0.5, 1.5], np.float32).reshape(2, 1)
    cases.append(
        Case("Pow-int32_float32", "Pow", [x, half], lambda x, y: np.trunc(np.power(x.astype(float), y)), opset=15)
    )
    return cases


_MOST = float(np.finfo(np.float32).max)
"""What an absent bound of fp32 means: infinities do not stay."""


def _clip_cases() -> list[Case]:
    cases = []
    low, high = np.float32(-0.75), np.float32(1.25)
    for detail, attributes in {
        "both": {"min": -0.75, "max": 1.25},
        "min": {"min": -0.75},
        "max": {"max": 1.25},
        "none": {},
    }.items():
        bounds = attributes.get("min", -_MOST), attributes.get("max", _MOST)
        cases.append(Case(f"Clip-6_{detail}", "Clip", [_X32], lambda x, b=bounds: np.clip(x, *b), attributes, opset=7))
    for detail, inputs in {
        "both": [low, high],
        "min": [low],
        "max": [None, high],
        "none": [],
        "crossed": [high, low],
    }.items():
        bounds = [*inputs, None, None][:2]

        def reference(x: np.ndarray, *_: Any, b: Sequence[Any] = tuple(bounds)) -> np.ndarray:
            x = np.maximum(x, -_MOST if b[0] is None else b[0])
            return np.minimum(x, _MOST if b[1] is None else b[1])

        arrays = [None if bound is None else np.array(bound) for bound in inputs]
        for constant in (False, True):
            given = tuple(i + 1 for i, bound in enumerate(arrays) if bound is not None) if constant else ()
            name = f"Clip-{detail}{'_constant' if constant else ''}"
            cases.append(Case(name, "Clip", [_X32, *arrays], reference, constants=given))
    for dtype in (*INTEGERS, "float16", "bfloat16", "float64"):
        x = floats(dtype) if dtype in FLOATS else numbers("clip", dtype)
        bounds = [np.array(value, x.dtype) for value in (3, 100)]
        cases.append(Case(f"Clip-{dtype}", "Clip", [x, *bounds], np.clip, constants=(1, 2)))
    return cases


def _variadic_cases() -> list[Case]:
    parts = [numbers("v1", "float32", (4, 1, 5)), numbers("v2", "float32", (3, 1)), numbers("v3", "float32", (5,))]

    def mean(*xs: np.ndarray) -> np.ndarray:
        return sum(xs[1:], xs[0]) / len(xs)

    folded: Mapping[str, Reference] = {
        "Sum": lambda *xs: sum(xs[1:], xs[0]),
        "Mean": mean,
        "Max": lambda *xs: np.maximum.reduce(np.broadcast_arrays(*xs)),
        "Min": lambda *xs: np.minimum.reduce(np.broadcast_arrays(*xs)),
    }
    return [
        Case(
            f"{op}-of_{count}_{dtype}",
            op,
            [part.astype(_numpy(dtype)) for part in parts[:count]],
            reference,
            opset=13,
            atol=1.0,
        )
        for op, reference in folded.items()
        for count in (1, 2, 3)
        for dtype in FLOATS
    ]


def _swiglu_cases() -> list[Case]:
    def reference(alpha: float) -> Reference:
        return lambda a, b: a * _sigmoid(alpha * a) * b

    gates = [(dtype, floats(dtype), floats(dtype)[:, ::-1].copy()) for dtype in FLOATS]
    cases = [Case(f"SwiGLU-{dtype}", "SwiGLU", [a, b], reference(1.0), opset=28) for dtype, a, b in gates]
    _, a, b = gates[2]
    return [*cases, Case("SwiGLU-alpha", "SwiGLU", [a, b], reference(0.25), {"alpha": 0.25}, opset=28)]


def _selection_cases() -> list[Case]:
    condition = numbers("condition", "bool", (3, 1))
    cases = []
    for dtype in (*FLOATS, *INTEGERS, "bool"):
        x, y = numbers("x", dtype, (2, 1, 5)), numbers("y", dtype, (3, 5))
        cases.append(Case(f"Where-{dtype}", "Where", [condition, x, y], np.where, out=dtype, opset=16))
    x = _X32
    cases += [
        Case("Identity", "Identity", [x], lambda x: x),
        Case("Dropout-7", "Dropout", [x], lambda x: x, {"ratio": 0.3}, opset=7),
        Case("Dropout-10_mask", "Dropout", [x], lambda x: (x, np.zeros(x.shape, bool)), opset=10, n_outputs=2),
        Case(
            "Dropout-13_mask",
            "Dropout",
            [x, np.float32(0.4), np.bool_(False)],
            _kept,
            opset=13,
            n_outputs=2,
            constants=(1, 2),
        ),
    ]
    return cases


def _kept(x: np.ndarray, *_: Any) -> tuple[np.ndarray, np.ndarray]:
    return x, np.ones(x.shape, bool)


def _cast_inputs(source: str) -> np.ndarray:
    """Values that are in every type's range after truncation, so that ONNX defines all results."""
    if source == "bool":
        return numbers("cast", "bool")
    if source in FLOATS:
        return np.array([0.0, 0.4, 0.5, 1.0, 1.5, 2.75, 99.9, 100.0, 127.0, 3.25, 0.999], _numpy(source))
    return np.arange(0, 127, 3).astype(source)


def _cast_cases() -> list[Case]:
    cases = []
    types = (*FLOATS, *INTEGERS, "bool")
    for source in types:
        for to in types:
            reference = (lambda x: x != 0) if to == "bool" else (lambda x, to=to: x.astype(_numpy(to)))
            x = _cast_inputs(source)
            cases.append(Case(f"Cast-{source}_{to}", "Cast", [x], reference, {"to": TENSOR_TYPES[to]}, to))
    for to in INTEGERS:
        x = numbers("wrapped", "int64")
        cases.append(
            Case(f"Cast-wrapped_{to}", "Cast", [x], lambda x, to=to: x.astype(to), {"to": TENSOR_TYPES[to]}, to)
        )
        negative = np.array([-1.5, -2.0, -99.9, -127.0], np.float32)
        if to in SIGNED:
            cases.append(
                Case(
                    f"Cast-negative_{to}",
                    "Cast",
                    [negative],
                    lambda x, to=to: x.astype(to),
                    {"to": TENSOR_TYPES[to]},
                    to,
                )
            )
    for to in ("float16", "bfloat16", "float64", "bool"):
        reference = (lambda x: x != 0) if to == "bool" else (lambda x: x)
        cases.append(Case(f"Cast-special_{to}", "Cast", [_X32 * 1000], reference, {"to": TENSOR_TYPES[to]}, to))
    like = np.zeros(1, np.int16)
    cases.append(
        Case("CastLike", "CastLike", [_cast_inputs("float32"), like], lambda x, _: x.astype(np.int16), out="int16")
    )
    return cases


_BROADCASTS: Sequence[tuple[Sequence[int], Sequence[int]]] = [
    ((), ()),
    ((5,), ()),
    ((), (2, 3)),
    ((1,), (1, 1, 1)),
    ((2, 3, 4, 5), (3, 1, 1)),
    ((2, 3, 4, 5), (5,)),
    ((2, 3, 1, 5), (3, 4, 1)),
    ((4, 1), (1, 6)),
    ((3, 16), (16,)),
    ((3, 32), (3, 1)),
    ((2, 1, 3, 1, 2, 1, 3, 1), (1, 2, 1, 3, 1, 2, 1, 3)),
    ((2, 3, 2, 3, 2, 3, 2, 3), (3, 1, 3, 1, 1, 2, 1)),
    ((0, 3), (1, 3)),
    ((2, 0), ()),
    ((1031, 257), (257,)),
]


def _broadcast_cases() -> list[Case]:
    cases = []
    for left, right in _BROADCASTS:
        a, b = numbers("left", "float32", left), numbers("right", "float32", right)
        name = f"{'x'.join(map(str, left)) or 'scalar'}_{'x'.join(map(str, right)) or 'scalar'}"
        cases.append(Case(f"Sub-{name}", "Sub", [a, b], np.subtract))
        cases.append(Case(f"Sub-{name}_swapped", "Sub", [b, a], np.subtract))
    return cases


def _contrib_cases() -> list[Case]:
    x, bias = floats("float32"), numbers("bias", "float32", (11,))
    common: dict[str, Any] = {"domain": "com.microsoft", "atol": 1.0}
    return [
        Case("com.microsoft.Gelu", "Gelu", [x], _gelu, **common),
        Case("com.microsoft.BiasGelu", "BiasGelu", [x, bias], lambda x, b: _gelu(x + b), **common),
        Case("com.microsoft.FastGelu", "FastGelu", [x], _gelu_tanh, **common),
        Case("com.microsoft.FastGelu-bias", "FastGelu", [x, bias], lambda x, b: _gelu_tanh(x + b), **common),
        Case("com.microsoft.QuickGelu", "QuickGelu", [x], lambda x: x * _sigmoid(np.float32(1.702) * x), **common),
        Case(
            "com.microsoft.QuickGelu-alpha", "QuickGelu", [x], lambda x: x * _sigmoid(2 * x), {"alpha": 2.0}, **common
        ),
    ]


def _fused_cases() -> list[Case]:
    """gossamer::Elementwise."""

    def case(
        name: str, steps: Sequence[str], inputs: Sequence[np.ndarray], reference: Reference, out: str = ""
    ) -> Case:
        results = [len(inputs) + len(steps) - 1]
        return Case(
            f"fused-{name}",
            "Elementwise",
            inputs,
            reference,
            {"steps": steps, "results": results},
            out,
            domain="gossamer",
            atol=4.0,
        )

    x, y = numbers("x", "float16", (4, 16)), numbers("y", "float16", (16,))
    return [
        case(
            "chain",
            ["add 0 1", "leaky_relu 2 alpha=0.1", "mul 3 0"],
            [x, y],
            lambda x, y: np.where(x + y < 0, (x + y) * np.float32(0.1), x + y) * x,
        ),
        case(
            "rounds",
            ["constant value=0.3333333 to=float32", "cast 1 to=float16", "mul 0 2"],
            [x],
            lambda x: x * float(np.float16(1 / 3)),
        ),
        case(
            "types",
            ["cast 0 to=int32", "constant value=-3 to=int32", "add 1 2"],
            [x * 9],
            lambda x: np.trunc(x) - 3,
            "int32",
        ),
        case(
            "bits", ["cast 0 to=float64", "constant value=0.1 to=float64", "mul 1 2"], [x], lambda x: x * 0.1, "float64"
        ),
        case("mask", ["less 0 1", "where 2 0 1"], [x, y], np.minimum),
    ]


DIFFERENT = {
    "Pow-int32": "integers that overflow do not wrap around in onnxruntime, which computes in float64",
    "Pow-int64": "as Pow-int32",
    "Erf-int32": "onnxruntime has no kernel",
    "Erf-int64": "onnxruntime has no kernel",
    "Relu-int64": "onnxruntime has no kernel",
    "Shrink-int32": "onnxruntime computes integers in float32",
    "Shrink-int64": "as Shrink-int32",
    "SwiGLU-float32": "onnxruntime has no kernel",
    "SwiGLU-alpha": "onnxruntime has no kernel",
    "Where-bool": "onnxruntime has no kernel",
}
"""Cases in which onnxruntime does not answer as we do, and why."""


CASES = [
    *_unary_cases(),
    *_binary_cases(),
    *_floored_mod_cases(),
    *_pow_cases(),
    *_clip_cases(),
    *_variadic_cases(),
    *_swiglu_cases(),
    *_selection_cases(),
    *_cast_cases(),
    *_broadcast_cases(),
    *_contrib_cases(),
    *_fused_cases(),
]

ORACLE_CASES = [
    case
    for case in CASES
    if case.domain != "gossamer"
    and {case.dtype, *(x.dtype.name for x in case.inputs if x is not None)} <= {"float32", "int32", "int64", "bool"}
    and case.name not in DIFFERENT
]
"""Cases in types for which onnxruntime has all kernels."""
