"""Types of up to 8 bits as their bits, an element a byte: conversions by the tables of ONNX's Cast (-19 to -28) and by
its pages on integers of 2 and 4 and floats of 4 bits (https://onnx.ai/onnx/technical/).

Nothing else is computed in these types, and integer arithmetic converts them on every architecture; the instructions
that newer ones have know three of the formats.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import triton
import triton.language as tl

from gossamer.kernels.elementwise_math import power_of_two, round_half_even
from gossamer.model.steps import NARROW
from gossamer.program import Buffer


def in_bits(buffer: Buffer) -> Buffer:
    """The same memory as kernels take it: what is of a narrow type as uint8."""
    return replace(buffer, dtype="uint8") if buffer.dtype in NARROW else buffer


@triton.jit
def decode(code, FORMAT: tl.constexpr):
    """The numbers whose bits in FORMAT are the lower bits of `code`: integers in int8 or uint8, floats in fp32."""
    if FORMAT == "int4" or FORMAT == "int2":
        SIGN: tl.constexpr = 8 if FORMAT == "int4" else 2
        return (((code & (2 * SIGN - 1)) ^ SIGN).to(tl.int8) - SIGN).to(tl.int8)
    elif FORMAT == "uint4" or FORMAT == "uint2":
        return (code & (15 if FORMAT == "uint4" else 3)).to(tl.uint8)
    elif FORMAT == "float8_e8m0fnu":
        return decode_scale(code)
    else:
        return decode_float(code, FORMAT)


@triton.jit
def encode_integer(x, FORMAT: tl.constexpr):
    """The bits of integers, as uint8; more than the format has are dropped."""
    return (x & (15 if FORMAT == "int4" or FORMAT == "uint4" else 3)).to(tl.uint8)


@dataclass(frozen=True, slots=True)
class Float:
    """A format of floats: a sign, an exponent, `mantissa` bits.

    sign: its bit. bias: of the exponent. largest, infinity, nan: the codes of the largest number, of ∞ and of a NaN,
    None where there is none. signed_zero: whether what is negative and rounds to zero is −0.
    """

    sign: int
    mantissa: int
    bias: int
    largest: int
    infinity: int | None = None
    nan: int | None = None
    signed_zero: bool = True

    @property
    def from_nan(self) -> int:
        """What NaN becomes."""
        return self.largest if self.nan is None else self.nan

    @property
    def beyond(self) -> int:
        """What a number that is too large becomes, unless it saturates."""
        return self.from_nan if self.infinity is None else self.infinity


FLOATS = {
    "float4_e2m1fn": Float(8, 1, 1, 7),
    "float6_e2m3fn": Float(32, 3, 1, 31, signed_zero=False),
    "float6_e3m2fn": Float(32, 2, 3, 31, signed_zero=False),
    "float8_e4m3fn": Float(128, 3, 7, 126, nan=127),
    "float8_e4m3fnuz": Float(128, 3, 8, 127, nan=128, signed_zero=False),
    "float8_e5m2": Float(128, 2, 15, 123, infinity=124, nan=127),
    "float8_e5m2fnuz": Float(128, 2, 16, 127, nan=128, signed_zero=False),
}


@triton.constexpr_function  # type: ignore[untyped-decorator, unused-ignore]  # Triton is not typed
def of_format(name: str, what: str) -> Any:
    """A property of a format."""
    return getattr(FLOATS[name], what)


@triton.jit
def encode_float(x, saturate, FORMAT: tl.constexpr):
    """The bits of x, rounded half to even, as uint8. What is too large, ∞ as well, becomes the largest number if
    saturate, else ∞, or NaN where the format has no ∞. Formats without NaN saturate, and have NaN saturate, too."""
    MANTISSA: tl.constexpr = of_format(FORMAT, "mantissa")
    BIAS: tl.constexpr = of_format(FORMAT, "bias")
    LARGEST: tl.constexpr = of_format(FORMAT, "largest")
    bits = x.to(tl.int32, bitcast=True)
    magnitude = tl.abs(x)
    finite = magnitude < float("inf")
    exponent = tl.maximum(((bits >> 23) & 255) - 127, 1 - BIAS)  # of what is subnormal in the format, the least one
    quanta = round_half_even(tl.where(finite, magnitude, 0.0) * power_of_two(MANTISSA - exponent, tl.float32))
    code = ((exponent + (BIAS - 1)) << MANTISSA) + quanta.to(tl.int32)  # quanta hold the leading one, and its carry
    beyond = tl.where(saturate != 0.0, LARGEST, of_format(FORMAT, "beyond"))
    code = tl.where((code > LARGEST) | (finite == 0), beyond, code)
    signed = bits < 0
    if not of_format(FORMAT, "signed_zero"):
        signed = signed & (code != 0)
    if of_format(FORMAT, "nan") is None:
        signed = signed & (x == x)  # noqa: PLR0124  # unless it is NaN
    code = tl.where(x != x, of_format(FORMAT, "from_nan"), code)  # noqa: PLR0124
    return (code | tl.where(signed, of_format(FORMAT, "sign"), 0)).to(tl.uint8)


@triton.jit
def decode_float(code, FORMAT: tl.constexpr):
    """The fp32 number whose bits in FORMAT are `code`."""
    MANTISSA: tl.constexpr = of_format(FORMAT, "mantissa")
    BIAS: tl.constexpr = of_format(FORMAT, "bias")
    SIGN: tl.constexpr = of_format(FORMAT, "sign")
    NAN: tl.constexpr = of_format(FORMAT, "nan")
    code = code.to(tl.int32)
    magnitude = code & (SIGN - 1)
    exponent = magnitude >> MANTISSA
    quanta = (magnitude & ((1 << MANTISSA) - 1)) + tl.where(exponent > 0, 1 << MANTISSA, 0)
    x = quanta.to(tl.float32) * power_of_two(tl.maximum(exponent, 1) - (BIAS + MANTISSA), tl.float32)
    if NAN is not None:
        x = tl.where(code == NAN if NAN == SIGN else magnitude > of_format(FORMAT, "largest"), float("nan"), x)
    if of_format(FORMAT, "infinity") is not None:
        x = tl.where(magnitude == of_format(FORMAT, "infinity"), float("inf"), x)
    return tl.where((code & SIGN) != 0, x * -1.0, x)


@triton.jit
def encode_scale(x, saturate, rounding):
    """The bits of x in float8_e8m0fnu, which has the powers of two from 2⁻¹²⁷ to 2¹²⁷ and NaN, as uint8.

    rounding: 0 to the power below, 1 to that above, 2 to the nearest, up from the middle. What is not between the
    smallest and the largest power, numbers below zero as well, becomes the one or the other if saturate, else NaN.
    """
    bits = x.to(tl.int32, bitcast=True)
    exponent = bits >> 23
    # 2⁻¹²⁷ is subnormal in fp32: what lies between it and twice that has a significand of one bit less.
    rest = tl.where(exponent == 0, bits << 1, bits) & 8388607
    least = tl.where(rounding == 1.0, 1, tl.where(rounding == 2.0, 4194304, 8388608))
    code = exponent + tl.where(rest >= least, 1, 0)
    small = bits < 4194304  # as integers the bits of floats are ordered as these are, those with a sign below all
    large = bits > 2130706432  # ∞ too
    code = tl.where(small, tl.where(saturate != 0.0, 0, 255), code)
    code = tl.where(large, tl.where(saturate != 0.0, 254, 255), code)
    return tl.where(x != x, 255, code).to(tl.uint8)  # noqa: PLR0124  # where it is NaN


@triton.jit
def decode_scale(code):
    """The fp32 number whose bits in float8_e8m0fnu are `code`."""
    code = code.to(tl.int32)
    bits = tl.where(code == 0, 4194304, code << 23)
    return tl.where(code == 255, 2143289344, bits).to(tl.float32, bitcast=True)
