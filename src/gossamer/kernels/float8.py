"""8-bit floats as their bits: conversions from and to fp32 by the tables of ONNX's Cast (-19).

Nothing else is computed in these types, and integer arithmetic converts them on every architecture; the instructions
that newer ones have know two of the four formats.
"""

from __future__ import annotations

import triton
import triton.language as tl

from gossamer.kernels.elementwise_math import power_of_two, round_half_even


@triton.jit
def encode_float8(x, saturate, FORMAT: tl.constexpr):
    """The bits of x, rounded half to even, as uint8. What is too large, ∞ as well, becomes the largest number if
    saturate, else ∞, or NaN where the format has no ∞."""
    MANTISSA: tl.constexpr = 3 if FORMAT == "float8_e4m3fn" or FORMAT == "float8_e4m3fnuz" else 2
    ONE_ZERO: tl.constexpr = FORMAT == "float8_e4m3fnuz" or FORMAT == "float8_e5m2fnuz"
    BIAS: tl.constexpr = (7 if MANTISSA == 3 else 15) + (1 if ONE_ZERO else 0)
    LARGEST: tl.constexpr = 127 if ONE_ZERO else (126 if MANTISSA == 3 else 123)
    NAN: tl.constexpr = 128 if ONE_ZERO else 127
    BEYOND: tl.constexpr = 124 if FORMAT == "float8_e5m2" else NAN
    bits = x.to(tl.int32, bitcast=True)
    magnitude = tl.abs(x)
    finite = magnitude < float("inf")
    exponent = tl.maximum(((bits >> 23) & 255) - 127, 1 - BIAS)  # of what is subnormal in 8 bits, the least one
    quanta = round_half_even(tl.where(finite, magnitude, 0.0) * power_of_two(MANTISSA - exponent, tl.float32))
    code = ((exponent + (BIAS - 1)) << MANTISSA) + quanta.to(tl.int32)  # quanta hold the leading one, and its carry
    code = tl.where((code > LARGEST) | (finite == 0), tl.where(saturate != 0.0, LARGEST, BEYOND), code)
    code = tl.where(x != x, NAN, code)  # noqa: PLR0124  # where it is NaN
    sign = tl.where(bits < 0, 128, 0)
    if ONE_ZERO:
        sign = tl.where(code == 0, 0, sign)
    return (code | sign).to(tl.uint8)


@triton.jit
def decode_float8(code, FORMAT: tl.constexpr):
    """The fp32 number whose bits in FORMAT are `code`."""
    MANTISSA: tl.constexpr = 3 if FORMAT == "float8_e4m3fn" or FORMAT == "float8_e4m3fnuz" else 2
    ONE_ZERO: tl.constexpr = FORMAT == "float8_e4m3fnuz" or FORMAT == "float8_e5m2fnuz"
    BIAS: tl.constexpr = (7 if MANTISSA == 3 else 15) + (1 if ONE_ZERO else 0)
    code = code.to(tl.int32)
    magnitude = code & 127
    exponent = magnitude >> MANTISSA
    quanta = (magnitude & ((1 << MANTISSA) - 1)) + tl.where(exponent > 0, 1 << MANTISSA, 0)
    x = quanta.to(tl.float32) * power_of_two(tl.maximum(exponent, 1) - (BIAS + MANTISSA), tl.float32)
    if ONE_ZERO:
        x = tl.where(code == 128, float("nan"), x)
    elif FORMAT == "float8_e4m3fn":
        x = tl.where(magnitude == 127, float("nan"), x)
    else:
        x = tl.where(magnitude == 124, float("inf"), tl.where(magnitude > 124, float("nan"), x))
    return tl.where(code >= 128, x * -1.0, x)
