"""Cast from and to types of up to 8 bits: every code of each, and what lies between and beyond.

References look numbers up in the list of those that a type has. Texts: the tables of Cast, the pages float4, float6,
int4 and int2 of https://onnx.ai/onnx/technical/.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
from onnx import TensorProto, defs
from onnx.numpy_helper import from_array

from cases.node_case import NodeCase
from gossamer.program import Target
from gossamer.providers.cudnn import NEVER, Policy
from harness import run_model

_NEW = {"float6_e2m3fn": "FLOAT6E2M3", "float6_e3m2fn": "FLOAT6E3M2"}
"""Types that onnx and onnx-ir have not had for long."""
FLOATS = {
    "float4_e2m1fn": TensorProto.FLOAT4E2M1,
    **{name: getattr(TensorProto, word) for name, word in _NEW.items() if hasattr(ir.DataType, word)},
    "float8_e4m3fn": TensorProto.FLOAT8E4M3FN,
    "float8_e4m3fnuz": TensorProto.FLOAT8E4M3FNUZ,
    "float8_e5m2": TensorProto.FLOAT8E5M2,
    "float8_e5m2fnuz": TensorProto.FLOAT8E5M2FNUZ,
}
INTEGERS = {
    "int2": TensorProto.INT2,
    "uint2": TensorProto.UINT2,
    "int4": TensorProto.INT4,
    "uint4": TensorProto.UINT4,
}
SCALE = "float8_e8m0fnu"
NARROW = {**FLOATS, **INTEGERS, SCALE: TensorProto.FLOAT8E8M0}
"""Name → number in TensorProto.DataType."""
WHOLE = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
WIDE = {
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "bool": TensorProto.BOOL,
    **{name: getattr(TensorProto, name.upper()) for name in WHOLE},
}
NEWEST = min(28, defs.onnx_opset_version())
"""The first opset with all of these types."""


def dtype_named(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


def bits_of(name: str) -> int:
    """Each name has its width in it: `float4_e2m1fn`."""
    return int(name.partition("_")[0].lstrip("uintfloa"))


def every(name: str) -> np.ndarray:
    """Every code of a type; where it has less than 8 bits, with all that may lie above them in the byte."""
    return np.arange(256, dtype=np.uint8).view(dtype_named(name))


def every_number(name: str) -> np.ndarray:
    """What `every` stands for, in float64. (ml_dtypes' 4-bit float wants zeros above its bits.)"""
    codes = np.arange(256, dtype=np.uint8) & np.uint8(2 ** bits_of(name) - 1)
    return codes.view(dtype_named(name)).astype(np.float64)


@dataclass(frozen=True)
class _Numbers:
    """The numbers from 0 on, by code. following: what would come after the largest."""

    values: np.ndarray
    following: float

    @staticmethod
    def of(name: str) -> _Numbers:
        codes = np.arange(2 ** (bits_of(name) - 1), dtype=np.uint8)
        values = codes.view(dtype_named(name)).astype(np.float64)
        values = values[np.isfinite(values)]
        return _Numbers(values, 2 * values[-1] - values[-2])

    @property
    def middles(self) -> np.ndarray:
        upper = np.append(self.values[1:], self.following)
        return (self.values + upper) / 2


_WITHOUT_NAN = ("float4_e2m1fn", *_NEW)


def encoded(x: np.ndarray, name: str, saturate: bool = True) -> np.ndarray:
    """Numbers in one of the `FLOATS`."""
    numbers, x = _Numbers.of(name), x.astype(np.float64)
    magnitude = np.abs(x)
    code = np.searchsorted(numbers.middles, magnitude, "left")
    tie = np.append(numbers.middles, np.nan)[code] == magnitude
    code += tie & (code % 2 == 1)
    most, sign = len(numbers.values) - 1, 2 ** (bits_of(name) - 1)
    one_zero = name.endswith("fnuz") or name in _NEW
    not_a_number = most if name in _WITHOUT_NAN else 128 if one_zero else 127
    beyond = {"float8_e5m2": 124}.get(name, not_a_number)
    code = np.where(code > most, most if saturate else beyond, code)
    negative = np.signbit(x) & ~(one_zero & (code == 0))
    code = np.where(np.isnan(x), not_a_number, code | np.where(negative, sign, 0))
    return code.astype(np.uint8).view(dtype_named(name))


def powers_of_two(x: np.ndarray, saturate: bool = True, mode: str = "up") -> np.ndarray:
    """Numbers in float8_e8m0fnu."""
    x = x.astype(np.float64)
    inside = (x >= 2.0**-127) & (x <= 2.0**127)
    fraction, exponent = np.frexp(np.where(inside, x, 1.0))  # x = fraction · 2 ** exponent, ½ ≤ fraction < 1
    up = {"up": fraction > 0.5, "down": fraction < 0, "nearest": fraction >= 0.75}[mode]
    code = exponent - 1 + up + 127
    outside = np.where(x < 2.0**-127, 0, 254) if saturate else np.full(x.shape, 255)
    code = np.where(inside, code, outside)
    return np.where(np.isnan(x), 255, code).astype(np.uint8).view(dtype_named(SCALE))


def narrowed(x: np.ndarray, name: str) -> np.ndarray:
    """Numbers in one of the `INTEGERS`: rounded, the lower bits kept."""
    whole = x.astype(np.int64) if x.dtype.kind in "biu" else np.rint(x.astype(np.float64)).astype(np.int64)
    return (whole & (2 ** bits_of(name) - 1)).astype(np.uint8).view(dtype_named(name))


Reference = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class CastCase(NodeCase):
    """Results are the reference's, the sign of zero as well."""

    def check(self, device: str | Target, policy: Policy = NEVER) -> None:
        (got,), (want,) = run_model(self.model(), self.feeds(), device, policy), self.expected()
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        one, other = (y.astype(np.float64) for y in (got, want))
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(np.signbit(one) & (one == 0), np.signbit(other) & (other == 0))


def cast_case(
    name: str, x: np.ndarray, to: str, reference: Reference, op_type: str = "Cast", **attributes: Any
) -> CastCase:
    number = {**NARROW, **WIDE}[to]
    like = [np.zeros(1, dtype_named(to))] if op_type == "CastLike" else []
    return CastCase(
        f"{op_type}-{name}-{x.dtype.name}-{to}",
        op_type,
        [x, *like],
        attributes if like else {"to": number, **attributes},
        opset=NEWEST,
        output_types=[(number, x.shape)],
        want=lambda: [reference(x)],
    )


def _to_floats() -> list[CastCase]:
    """Rounding: ties and their neighbours, what is subnormal, and what is too large. In float64 the neighbours are so
    near that float32 has but the ties."""
    cases = []
    for name in FLOATS:
        numbers = _Numbers.of(name)
        special = [1e30, np.inf, np.nan, 0.0, 1e-45, 3.4e38]
        for kind in (np.float32, np.float64):
            ties = numbers.middles.astype(kind)
            near = [np.nextafter(ties, kind(end)) for end in (-np.inf, np.inf)]
            magnitudes = np.concatenate([numbers.values, ties, *near, special]).astype(kind)
            x = np.concatenate([magnitudes, -magnitudes])
            cases.append(cast_case("rounded", x, name, partial(encoded, name=name)))
        x = x.astype(np.float32)
        beyond = partial(encoded, name=name, saturate=False)
        cases.append(cast_case("unsaturated", x, name, beyond, saturate=0))
        cases.append(cast_case("alike", x, name, partial(encoded, name=name), "CastLike"))
        for source in ("float16", "bfloat16", "int8", "uint8", "int32", "uint64", "bool"):
            small = np.arange(-20, 21).astype(dtype_named(source))
            cases.append(cast_case("small", small, name, partial(encoded, name=name)))
    return cases


def _to_integers() -> list[CastCase]:
    cases = []
    for name in INTEGERS:
        for source in WIDE:
            x = np.arange(-140, 140) if source in (*WHOLE, "bool") else np.arange(-40, 40) / 4
            cases.append(cast_case("cut", x.astype(dtype_named(source)), name, partial(narrowed, name=name)))
        ties = np.float32([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 7.5, 0.49999997])
        cases.append(cast_case("alike", ties, name, partial(narrowed, name=name), "CastLike"))
    return cases


def _to_powers() -> list[CastCase]:
    """Powers of two and what lies after them, as far as subnormal float32; what is too large, and too small."""
    powers = np.ldexp(1.0, [-149, -140, -128, -127, -126, -125, -1, 0, 1, 30, 126, 127])
    between = [powers * factor for factor in (1, 1.25, 1.5, 1.75, 1 + 2.0**-23, 1.5 - 2.0**-23)]
    single = np.concatenate([*between, [0.0, -0.0, np.inf, -np.inf, np.nan, -2]]).astype(np.float32)
    double = np.array([1, 1 + 2.0**-52, 1.5, 1.5 - 2.0**-52, 1e300, 1e-300, 2.0**127 * (1 + 2.0**-52)])
    cases = []
    for x in (single, double):
        for saturate, mode in product((0, 1), ("up", "down", "nearest")):
            reference = partial(powers_of_two, saturate=bool(saturate), mode=mode)
            attributes = {"saturate": saturate, "round_mode": mode}
            cases.append(cast_case(f"{mode}_{saturate}", x, SCALE, reference, **attributes))
    for source in ("float16", "bfloat16", "int32", "uint8"):
        cases.append(cast_case("default", np.arange(41).astype(dtype_named(source)), SCALE, powers_of_two))
    large = np.array([2**24 + 1, 2**40 + 1, 2**52, 3], np.int64)
    return [*cases, cast_case("default", large, SCALE, powers_of_two)]


def _decoded(_: np.ndarray, name: str, to: str) -> np.ndarray:
    numbers = every_number(name)
    if to == "bool":
        return numbers != 0
    with np.errstate(over="ignore"):
        return (np.trunc(numbers) if to in WHOLE else numbers).astype(dtype_named(to))


def _from_all() -> list[CastCase]:
    """Every code as a number."""
    cases = []
    for name in NARROW:
        wholes = {SCALE: (), "float4_e2m1fn": ("int8", "int32")}.get(name, WHOLE if name in INTEGERS else ())
        for to in ("float32", "float16", "bfloat16", "float64", "bool", *wholes):
            cases.append(cast_case("every", every(name), to, partial(_decoded, name=name, to=to)))
    return cases


def _between() -> list[CastCase]:
    """From one narrow type to another."""
    pairs = [("int4", "uint4"), ("uint4", "int2"), ("int2", "int4"), ("int4", "float8_e4m3fn"), ("uint2", SCALE),
             ("float8_e4m3fn", "float8_e5m2"), ("float8_e5m2", "float4_e2m1fn"), ("float4_e2m1fn", "int4"),
             ("float8_e4m3fnuz", SCALE), (SCALE, "float8_e5m2")]  # fmt: skip

    def reference(_: np.ndarray, source: str, to: str) -> np.ndarray:
        x = every_number(source)
        if to in INTEGERS:
            return narrowed(x, to)
        return powers_of_two(x) if to == SCALE else encoded(x, to)

    return [cast_case("between", every(one), to, partial(reference, source=one, to=to)) for one, to in pairs]


def _moved() -> list[NodeCase]:
    """What ONNX lets move elements of these types."""
    cases: list[NodeCase] = []
    for name in NARROW:
        x = every(name)[:120].reshape(2, 3, 20)
        value = np.array(1).astype(x.dtype)
        padded = np.full((2, 3, 23), value)
        padded[..., 2:22] = x
        cases += [
            _moving("Identity", [x], x),
            _moving("Reshape", [x, np.array([6, -1])], x.reshape(6, 20)),
            _moving("Transpose", [x], x.transpose(2, 0, 1), perm=[2, 0, 1]),
            _moving("Pad", [x, np.array([0, 0, 2, 0, 0, 1]), value], padded),
            _moving("ConstantOfShape", [np.array([2, 3])], np.full((2, 3), value), (0,), value=from_array(value[None])),
        ]
    return cases


def _moving(
    op_type: str, inputs: Sequence[np.ndarray], y: np.ndarray, constants: Sequence[int] = (1, 2), **attributes: Any
) -> NodeCase:
    return CastCase(
        f"{op_type}-{y.dtype.name}",
        op_type,
        inputs,
        attributes,
        opset=NEWEST,
        constants=constants,
        output_types=[(NARROW[y.dtype.name], y.shape)],
        want=lambda: [y],
    )


CASES = [*_to_floats(), *_to_integers(), *_to_powers(), *_from_all(), *_between(), *_moved()]
