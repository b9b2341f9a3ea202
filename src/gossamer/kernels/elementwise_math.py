"""Device functions that `triton.language` lacks or has only as fast approximations, built from operations that the
compiler and the interpreter share.

They take and give fp32 or fp64 tensors. In fp32 they stay within about four units in the last place over the whole
range (`tl.exp` alone is off by 40 at −80, and 1 − e^x or log(1 + x) written down as such lose every digit near zero).
NaN goes through, and infinities give their limits. Products that have to be exact are made of short factors: the
interpreter's `tl.fma` rounds twice.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def maximum(a, b):
    """max(a, b), NaN where either is NaN."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def minimum(a, b):
    """min(a, b), NaN where either is NaN."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def divide(a, b):
    """a / b, correctly rounded: Triton's own fp32 division is off by two units, and by everything where |b| > 2¹²⁶."""
    if a.dtype == tl.float64:
        return a / b
    else:
        return tl.div_rn(a, b)


@triton.jit
def reciprocal(x):
    """1 / x, correctly rounded."""
    if x.dtype == tl.float64:
        return 1.0 / x
    else:
        return tl.div_rn(1.0, x)


@triton.jit
def square_root(x):
    """√x, correctly rounded: Triton's own in fp32 is an approximation that flushes subnormals."""
    if x.dtype == tl.float64:
        return tl.sqrt(x)
    else:
        return tl.sqrt_rn(x)


@triton.jit
def sign_bit(x):
    """Whether the sign bit is set: true of −0 too."""
    if x.dtype == tl.float64:
        return x.to(tl.int64, bitcast=True) < 0
    else:
        return x.to(tl.int32, bitcast=True) < 0


@triton.jit
def with_sign_of(y, x):
    """y ≥ 0 with the sign of x, that of −0 included. (Triton's minus is 0 − y before 3.9, which loses −0.)"""
    return tl.where(sign_bit(x), y * -1.0, y)


@triton.jit
def power_of_two(n, LIKE: tl.constexpr):
    """2ⁿ in the type LIKE for integers n that leave it a normal number."""
    if LIKE == tl.float64:  # noqa: SIM300
        return ((n.to(tl.int64) + 1023) << 52).to(tl.float64, bitcast=True)
    else:
        return ((n + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def scale_by_power(x, n):
    """x · 2ⁿ, in two factors: 2ⁿ alone leaves the range where the result is subnormal or just below overflow."""
    half = n >> 1
    return x * power_of_two(half, x.dtype) * power_of_two(n - half, x.dtype)


@triton.jit
def _expm1_reduced(r):
    """eʳ − 1 for |r| ≤ ln(2)/2 in fp32: eight terms of the series, which leave 2⁻³⁰ of r."""
    p = tl.fma(r, 1.0 / 40320.0, 1.0 / 5040.0)
    p = tl.fma(p, r, 1.0 / 720.0)
    p = tl.fma(p, r, 1.0 / 120.0)
    p = tl.fma(p, r, 1.0 / 24.0)
    p = tl.fma(p, r, 1.0 / 6.0)
    p = tl.fma(p, r, 0.5)
    return tl.fma(p * r, r, r)


@triton.jit
def exp(x):
    """eˣ = 2ⁿ 2^(r / ln 2) with r = x − n ln 2: ten instructions in fp32. Subnormal results may be flushed to zero."""
    if x.dtype == tl.float64:
        return tl.exp(x)
    else:
        x = maximum(minimum(x, 89.0), -105.0)
        n = tl.floor(x * 1.4426950408889634)
        r = tl.fma(n, -0.693359375, x)  # nine bits of ln 2: the product is exact
        r = tl.fma(n, 2.1219444e-4, r)
        return tl.exp2(r * 1.4426950408889634) * tl.exp2(n)


@triton.jit
def expm1(x):
    """eˣ − 1, exact to the last places also near zero."""
    if x.dtype == tl.float64:
        u = tl.exp(x)  # Kahan: log u and u − 1 carry the same rounding error of u, and it cancels
        ratio = (u - 1.0) * (x / tl.log(u))
        return tl.where(u == 1.0, x, tl.where((u - 1.0 == -1.0) | (u == float("inf")), u - 1.0, ratio))
    else:
        bounded = maximum(minimum(x, 90.0), -30.0)
        n = tl.floor(tl.fma(bounded, 1.4426950408889634, 0.5))
        r = tl.fma(n, -0.693359375, bounded)
        p = _expm1_reduced(tl.fma(n, 2.1219444e-4, r))
        scale = power_of_two(minimum(n, 127.0).to(tl.int32), tl.float32)
        small = tl.fma(scale, p, scale - 1.0)
        large = scale_by_power(1.0 + p, n.to(tl.int32))  # above 2²⁴ the one no longer counts
        return tl.where(n > 25.0, large, tl.where(x == 0.0, x, small))


@triton.jit
def log1p(x):
    """log(1 + x), exact to the last places also near zero."""
    u = 1.0 + x  # Kahan again
    ratio = tl.log(u) * divide(x, u - 1.0)
    return tl.where(u == 1.0, x, tl.where(u == float("inf"), u, ratio))


@triton.jit
def tanh(x):
    """tanh x = sign(x) (1 − t) / (1 + t) with t = e^(−2|x|); below 0.55, where 1 − t cancels, x + x³ P(x²)."""
    a = tl.abs(x)
    if x.dtype == tl.float64:
        t = expm1(a * -2.0)
        return with_sign_of((t * -1.0) / (t + 2.0), x)
    else:
        t = exp(a * -2.0)
        square = a * a
        p = tl.fma(square, -0.0066157547, 0.0213127445)  # fitted at Chebyshev's points: 4e-9 of tanh x
        p = tl.fma(p, square, -0.0539100665)
        p = tl.fma(p, square, 0.133331176)
        p = tl.fma(p, square, -0.33333332)
        return with_sign_of(tl.where(a < 0.55, tl.fma(a * square, p, a), (1.0 - t) / (1.0 + t)), x)


@triton.jit
def sigmoid(x):
    """1 / (1 + e^(−x)), to full relative precision on both sides."""
    e = exp(tl.abs(x) * -1.0)
    return tl.where(x < 0.0, e, 1.0) / (1.0 + e)


@triton.jit
def sinh(x):
    """sinh x = (t + t / (t + 1)) / 2 with t = e^|x| − 1."""
    magnitude = tl.abs(x)
    t = expm1(magnitude)
    h = exp(0.5 * magnitude)  # e^|x| itself overflows before sinh does
    y = tl.where(magnitude > 40.0, (0.5 * h) * h, 0.5 * (t + divide(t, t + 1.0)))
    return with_sign_of(y, x)


@triton.jit
def cosh(x):
    """cosh x = (e^|x| + e^−|x|) / 2."""
    h = exp(0.5 * tl.abs(x))
    return (0.5 * h) * h + 0.5 * reciprocal(h * h)


@triton.jit
def asinh(x):
    """asinh x = sign(x) log(|x| + √(x² + 1))."""
    a = tl.abs(x)
    square = a * a
    y = log1p(a + divide(square, 1.0 + square_root(square + 1.0)))
    y = tl.where(a > 1e9, tl.log(a) + 0.6931471805599453, y)  # x² may overflow
    return with_sign_of(y, x)


@triton.jit
def acosh(x):
    """acosh x = log(x + √(x² − 1)), with t = x − 1: log(1 + t + √(2t + t²))."""
    t = x - 1.0
    y = log1p(t + square_root(t * (t + 2.0)))
    y = tl.where(x > 1e9, tl.log(x) + 0.6931471805599453, y)
    return tl.where(x < 1.0, float("nan"), y)


@triton.jit
def atanh(x):
    """atanh x = log((1 + x) / (1 − x)) / 2."""
    a = tl.abs(x)
    y = 0.5 * log1p(divide(2.0 * a, 1.0 - a))
    return with_sign_of(y, x)


@triton.jit
def atan(x):
    """atan x: |x| above 1 by π/2 − atan(1/|x|), the angle halved twice, then the series."""
    a = tl.abs(x)
    t = tl.where(a > 1.0, reciprocal(a), a)
    for _ in tl.static_range(2):
        t = divide(t, 1.0 + square_root(1.0 + t * t))  # tan(φ/2); at most tan(π/16) in the end
    square = t * t
    N: tl.constexpr = 12 if x.dtype == tl.float64 else 5
    p = 0.0 * square
    for k in tl.static_range(N, 0, -1):
        p = 1.0 / (2 * k + 1) - square * p
    y = 4.0 * (t - t * square * p)
    y = tl.where(a > 1.0, 1.5707963267948966 - y, y)
    return with_sign_of(y, x)


@triton.jit
def asin(x):
    """asin x = atan(x / √(1 − x²))."""
    return atan(divide(x, square_root((1.0 - x) * (1.0 + x))))


@triton.jit
def acos(x):
    """acos x = 2 atan √((1 − x) / (1 + x))."""
    return 2.0 * atan(square_root(divide(1.0 - x, 1.0 + x)))


@triton.jit
def tan(x):
    """tan x = sin x / cos x."""
    return divide(tl.sin(x), tl.cos(x))


@triton.jit
def round_half_even(x):
    """The nearest integer, of two the even one: what adding 2²³ (2⁵²) rounds to."""
    a = tl.abs(x)
    LIMIT: tl.constexpr = 4503599627370496.0 if x.dtype == tl.float64 else 8388608.0
    rounded = (a + LIMIT) - LIMIT
    y = tl.where(a < LIMIT, rounded, a)
    return with_sign_of(y, x)


@triton.jit
def round_to_odd(x):
    """x of fp64 in fp32 or, if it is no such number, of its two neighbours the one whose last bit is set: the nearest
    number in a format of fewer bits, and the tie, is still that of x (S. Boldo, G. Melquiond, "When double rounding is
    odd", 2005)."""
    y = x.to(tl.float32)
    back = y.to(tl.float64)
    bits = y.to(tl.int32, bitcast=True)
    odd = (bits - tl.where(tl.abs(back) > tl.abs(x), 1, 0)) | 1
    return tl.where((back == x) | (x != x), bits, odd).to(tl.float32, bitcast=True)  # noqa: PLR0124  # NaN as it is


@triton.jit
def _exponent(x):
    """⌊log₂ x⌋ of finite fp64 numbers x > 0, subnormal ones too; of zero something below all others."""
    small = x < 2.2250738585072014e-308
    lifted = tl.where(small, x * 18014398509481984.0, x)
    return ((lifted.to(tl.int64, bitcast=True) >> 52) - 1023).to(tl.int32) - tl.where(small, 54, 0)


@triton.jit
def fmod(x, y):
    """x − y · trunc(x / y), exact and with the sign of x, as C's fmod. x and y of one type and block shape."""
    r = tl.abs(x).to(tl.float64)
    d = tl.abs(y).to(tl.float64)
    valid = (r < float("inf")) & (d < float("inf")) & (d > 0.0)
    r = tl.where(valid, r, 0.0)
    safe = tl.where(valid, d, 1.0)
    pending = 1
    while pending != 0:
        # Long division, 28 bits of the quotient at a time: then quotient · divisor fits fp64 for fp32 operands.
        shift = tl.maximum(_exponent(r) - _exponent(safe) - 28, 0)
        first = tl.minimum(shift, 1000)  # fp64's exponents are up to 2097 apart, more than a power of two holds
        second = tl.minimum(shift - first, 1000)
        multiple = safe * power_of_two(first, tl.float64) * power_of_two(second, tl.float64)
        multiple = multiple * power_of_two(shift - first - second, tl.float64)
        r = tl.fma(-tl.floor(r / multiple), multiple, r)
        r = tl.where(r < 0.0, r + multiple, r)  # the quotient may have been rounded up to the next integer
        r = tl.where(r >= multiple, r - multiple, r)
        pending = tl.max((r >= safe).to(tl.int32), 0)
    r = tl.where(
        valid, r, tl.where((d == float("inf")) & (tl.abs(x) < float("inf")), tl.abs(x).to(tl.float64), float("nan"))
    )
    return with_sign_of(r.to(x.dtype), x)


@triton.jit
def integer_power(base, exponent):
    """base ** exponent for integers, wrapping around; a negative exponent gives the reciprocal truncated (0, 1 or
    −1)."""
    one = tl.full(base.shape, 1, base.dtype)
    odd = (exponent & 1) != 0
    inverse = tl.where(base == one, one, tl.where((base == -one) & (one > -one), tl.where(odd, -one, one), one - one))
    result = one
    square = base
    rest = exponent.to(tl.int64)
    rest = tl.where(rest < 0, 0, rest)
    while tl.max(rest, 0) > 0:
        result = tl.where((rest & 1) != 0, result * square, result)
        square = square * square
        rest = rest >> 1
    return tl.where(exponent < 0, inverse, result)


@triton.jit
def _leading(x):
    """x with the lower half of its significand cleared: the product of two such numbers is exact."""
    if x.dtype == tl.float64:
        return (x.to(tl.int64, bitcast=True) & -134217728).to(tl.float64, bitcast=True)
    else:
        return (x.to(tl.int32, bitcast=True) & -4096).to(tl.float32, bitcast=True)


@triton.jit
def _log2_split(a):
    """log₂ a for finite a > 0 as (hi, lo): hi has half a significand, hi + lo about 1.5."""
    DOUBLE: tl.constexpr = a.dtype == tl.float64
    TINY: tl.constexpr = 2.2250738585072014e-308 if DOUBLE else 1.1754943508222875e-38
    LIFT: tl.constexpr = 64
    lifted = a < TINY
    a = tl.where(lifted, a * 18446744073709551616.0, a)  # 2⁶⁴: subnormals have no exponent to read
    if DOUBLE:
        bits = a.to(tl.int64, bitcast=True) - 4604544271217802189  # √½: the significand falls into √½ … √2
        n = (bits >> 52).to(tl.int32)
        m = a * power_of_two(-(n >> 1), tl.float64) * power_of_two((n >> 1) - n, tl.float64)
    else:
        bits = a.to(tl.int32, bitcast=True) - 1060439283
        n = bits >> 23
        m = a * power_of_two(-(n >> 1), tl.float32) * power_of_two((n >> 1) - n, tl.float32)
    whole = (n - tl.where(lifted, LIFT, 0)).to(a.dtype)
    # log₂ m = 2/ln 2 · (t + t³/3 + t⁵/5 + …), t = (m − 1) / (m + 1); t itself in two parts.
    f = m - 1.0
    d = m + 1.0
    d_hi = _leading(d)
    d_lo = (d - d_hi) + (m - (d - 1.0))
    t_hi = _leading(f / d)
    t_lo = ((f - t_hi * d_hi) - t_hi * d_lo) / d
    t = t_hi + t_lo
    square = t * t
    TERMS: tl.constexpr = 12 if DOUBLE else 6
    p = 0.0 * t
    for k in tl.static_range(TERMS, 0, -1):
        p = p * square + 1.0 / (2 * k + 1)
    rest = t_lo + t * square * p
    C_HI: tl.constexpr = 2.885390043258667 if DOUBLE else 2.884765625
    C_LO: tl.constexpr = 3.851925982253235e-08 if DOUBLE else 0.0006244567779268
    hi = C_HI * t_hi
    lo = C_HI * rest + C_LO * (t_hi + rest)
    total = whole + hi
    low = (hi - (total - whole)) + lo
    leading = _leading(total + low)
    return leading, (total - leading) + low


@triton.jit
def power(x, y):
    """x ** y by IEEE 754's rules for zeros, infinities, NaN and negative x; x and y of one type, fp32 or fp64.

    2^(y log₂ x), the logarithm and the product in two parts each: a relative error of the product becomes an absolute
    one of the exponent, which is up to 128 (1024).
    """
    a = tl.abs(x)
    ordinary = (a > 0.0) & (a < float("inf"))
    log_hi, log_lo = _log2_split(tl.where(ordinary, a, 1.0))
    BOUND: tl.constexpr = 1.8446744073709552e19 if x.dtype == tl.float64 else 4294967296.0
    bounded = maximum(minimum(y, BOUND), -BOUND)  # any more overflows for every x but ±1
    y_hi = _leading(bounded)
    y_lo = bounded - y_hi
    main = y_hi * log_hi
    rest = bounded * log_lo + y_lo * log_hi
    LIMIT: tl.constexpr = 1100.0 if x.dtype == tl.float64 else 160.0
    rest = tl.where(tl.abs(main) > LIMIT, 0.0, rest)  # or it would outweigh what is left of the main part
    main = maximum(minimum(main, LIMIT), -LIMIT)
    n = tl.floor(main + rest + 0.5)
    fraction = ((main - n) + rest) * 0.6931471805599453
    n = maximum(minimum(n, LIMIT), -LIMIT)
    if x.dtype == tl.float64:
        y_abs = scale_by_power(tl.exp(fraction), n.to(tl.int32))
    else:
        y_abs = scale_by_power(1.0 + _expm1_reduced(fraction), n.to(tl.int32))
    infinite = (a == 0.0) == (y < 0.0)
    y_abs = tl.where(ordinary, y_abs, tl.where(infinite, float("inf"), 0.0))
    integral = tl.floor(y) == y
    odd = integral & (tl.floor(0.5 * y) != 0.5 * y)
    result = tl.where(odd, with_sign_of(y_abs, x), y_abs)
    result = tl.where((x < 0.0) & ordinary & (integral == 0), float("nan"), result)
    result = tl.where((x != x) | (y != y), float("nan"), result)  # noqa: PLR0124  # where one is NaN
    return tl.where((y == 0.0) | (x == 1.0), 1.0, result)
