"""Device functions for the steps of `model/steps`: one branch a step, decided while the kernel is traced.

Values are blocks of one size, in the type that their step computes in: fp32 for 16-bit floats too.
"""

from __future__ import annotations

import triton
import triton.language as tl

from gossamer.kernels.activations import activate
from gossamer.kernels.elementwise_math import (
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    cosh,
    divide,
    exp,
    fmod,
    integer_power,
    maximum,
    minimum,
    power,
    reciprocal,
    round_half_even,
    round_to_odd,
    sinh,
    square_root,
    tan,
    with_sign_of,
)
from gossamer.kernels.narrow_types import decode, encode_float, encode_integer, encode_scale


@triton.jit
def evaluate(STEP: tl.constexpr, values, parameters, BLOCK: tl.constexpr):
    """The result of one step. STEP: (op, numbers of its operands, number of its first parameter, dtype name or "")."""
    OP: tl.constexpr = STEP[0]
    TO: tl.constexpr = STEP[3]
    if OP == "constant":
        return constant(parameters[STEP[2]], TO, BLOCK)
    elif OP == "cast":
        return cast(values[STEP[1][0]], TO)
    elif OP == "encode_integer":
        return encode_integer(values[STEP[1][0]], TO)
    elif OP == "encode_float":
        return encode_float(values[STEP[1][0]], parameters[STEP[2]], TO)
    elif OP == "encode_scale":
        return encode_scale(values[STEP[1][0]], parameters[STEP[2]], parameters[STEP[2] + 1])
    elif OP == "decode":
        return decode(values[STEP[1][0]], TO)
    elif OP == "is_inf" or OP == "shrink":
        return detect(OP, values[STEP[1][0]], parameters[STEP[2]], parameters[STEP[2] + 1])
    elif len(STEP[1]) == 3:
        return tl.where(values[STEP[1][0]], values[STEP[1][1]], values[STEP[1][2]])
    elif len(STEP[1]) == 2:
        return binary(OP, values[STEP[1][0]], values[STEP[1][1]])
    elif STEP[4] == 2:
        return activate(values[STEP[1][0]], OP, parameters[STEP[2]], parameters[STEP[2] + 1])
    elif STEP[4] == 1:
        return activate(values[STEP[1][0]], OP, parameters[STEP[2]], 0.0)
    else:
        return unary(OP, values[STEP[1][0]])


@triton.jit
def constant(value, TO: tl.constexpr, BLOCK: tl.constexpr):
    """A block full of a parameter. fp64 travels as the integer of the same bits: scalar parameters are fp32."""
    if TO == "float64":
        return tl.full((BLOCK,), value, tl.int64).to(tl.float64, bitcast=True)
    elif TO == "float32" or TO == "float16" or TO == "bfloat16":
        return tl.full((BLOCK,), value, tl.float32)
    else:
        return integer_cast(tl.full((BLOCK,), value, tl.int64), TO)


@triton.jit
def integer_cast(x, TO: tl.constexpr):
    """x in an integer type or bool; more bits than fit are dropped."""
    if TO == "bool":
        return x != 0
    elif TO == "int8":
        return x.to(tl.int8)
    elif TO == "int16":
        return x.to(tl.int16)
    elif TO == "int32":
        return x.to(tl.int32)
    elif TO == "int64":
        return x.to(tl.int64)
    elif TO == "uint8":
        return x.to(tl.uint8)
    elif TO == "uint16":
        return x.to(tl.uint16)
    elif TO == "uint32":
        return x.to(tl.uint32)
    elif TO == "uint64":
        return x.to(tl.uint64)
    else:
        tl.static_assert(False, "unknown type")


@triton.jit
def cast(x, TO: tl.constexpr):
    """ONNX's Cast. What ONNX leaves open is done as onnxruntime does on x86: floats out of an integer type's range are
    converted by way of a wider integer whose lower bits remain."""
    if TO == "float64":
        return x.to(tl.float64)
    elif TO == "float32":
        return x.to(tl.float32)
    elif TO == "float16":
        return x.to(tl.float32).to(tl.float16).to(tl.float32)
    elif TO == "bfloat16":
        return x.to(tl.float32).to(tl.bfloat16).to(tl.float32)
    elif x.dtype.is_floating() and TO != "bool":
        if TO == "int64" or TO == "uint32":
            return integer_cast(x.to(tl.int64), TO)
        elif TO == "uint64":
            return x.to(tl.uint64)
        else:
            return integer_cast(x.to(tl.int32), TO)
    else:
        return integer_cast(x, TO)


@triton.jit
def detect(OP: tl.constexpr, x, alpha, beta):
    """is_inf: x = −∞ (if alpha) or +∞ (if beta). shrink: x moved by beta towards zero outside −alpha … alpha, 0
    inside."""
    if OP == "is_inf":
        return ((x == float("-inf")) & (alpha != 0)) | ((x == float("inf")) & (beta != 0))
    else:
        return tl.where(x < -alpha, x + beta, tl.where(x > alpha, x - beta, 0.0))


@triton.jit
def unary(OP: tl.constexpr, x):
    """OP(x) in the type of x; `not`, `is_nan` give booleans."""
    if OP == "abs":
        return tl.abs(x)
    elif OP == "neg":
        return x * -1.0 if x.dtype.is_floating() else (0 - x).to(x.dtype)
    elif OP == "sign" and x.dtype.is_int_unsigned():
        return tl.where(x > 0, 1, 0).to(x.dtype)
    elif OP == "sign":
        return tl.where(x > 0, 1, tl.where(x < 0, -1, x)).to(x.dtype)
    elif OP == "not":
        return x == 0
    elif OP == "bitwise_not":
        return (0 - x - 1).to(x.dtype)  # ~x, which Triton 3.6 interprets for signed integers only
    elif OP == "is_nan":
        return x != x  # noqa: PLR0124  # only NaN is not itself
    elif OP == "square":
        return x * x
    elif OP == "cube":
        return x * x * x
    elif OP == "floor":
        return tl.floor(x)
    elif OP == "ceil":
        return tl.ceil(x)
    elif OP == "round":
        return round_half_even(x)
    elif OP == "round_to_odd":
        return round_to_odd(x)
    elif OP == "sqrt":
        return square_root(x)
    elif OP == "reciprocal":
        return reciprocal(x)
    elif OP == "exp":
        return exp(x)
    elif OP == "log":
        return tl.log(x)
    elif OP == "erf":
        return tl.erf(x)
    else:
        return angular(OP, x)


@triton.jit
def angular(OP: tl.constexpr, x):
    """Trigonometric and hyperbolic functions and their inverses; what is none of them is an activation."""
    if OP == "sin":
        return tl.sin(x)
    elif OP == "cos":
        return tl.cos(x)
    elif OP == "tan":
        return tan(x)
    elif OP == "asin":
        return asin(x)
    elif OP == "acos":
        return acos(x)
    elif OP == "atan":
        return atan(x)
    elif OP == "sinh":
        return sinh(x)
    elif OP == "cosh":
        return cosh(x)
    elif OP == "asinh":
        return asinh(x)
    elif OP == "acosh":
        return acosh(x)
    elif OP == "atanh":
        return atanh(x)
    else:
        return activate(x, OP, 0.0, 0.0)


@triton.jit
def binary(OP: tl.constexpr, a, b):
    """OP(a, b) in their type; comparisons give booleans."""
    if OP == "add":
        return a + b
    elif OP == "sub":
        return a - b
    elif OP == "mul":
        return a * b
    elif OP == "div":
        return divide(a, b) if a.dtype.is_floating() else a // b
    elif OP == "max":
        return maximum(a, b)
    elif OP == "min":
        return minimum(a, b)
    elif OP == "equal":
        return a == b
    elif OP == "less":
        return a < b
    elif OP == "less_equal":
        return a <= b
    elif OP == "prelu":
        return tl.where(a < 0, a * b, a)
    elif OP == "pow":
        return power(a, b) if a.dtype.is_floating() else integer_power(a, b)
    else:
        return bitwise(OP, a, b)


@triton.jit
def shift_right(a, b):
    """a >> b, where nothing but copies of the sign is left of a if b is negative, or the width or more."""
    inside = (b >= 0) & (b < a.dtype.primitive_bitwidth)
    if a.dtype.is_int_signed():
        return a >> tl.where(inside, b, a.dtype.primitive_bitwidth - 1).to(a.dtype)
    else:
        return tl.where(inside, a >> b, 0).to(a.dtype)


@triton.jit
def bitwise(OP: tl.constexpr, a, b):
    """Operations on bits, and remainders."""
    if OP == "bitwise_and":
        return a & b
    elif OP == "bitwise_or":
        return a | b
    elif OP == "bitwise_xor":
        return a ^ b
    elif OP == "shift_left":
        return tl.where((b >= 0) & (b < a.dtype.primitive_bitwidth), a << b, 0).to(a.dtype)
    elif OP == "shift_right":
        return shift_right(a, b)
    elif OP == "fmod" or OP == "mod":
        r = fmod(a, b) if a.dtype.is_floating() else a % b
        if OP == "mod":
            r = tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)
            if a.dtype.is_floating():
                r = tl.where(r == 0.0, with_sign_of(tl.abs(r), b), r)
        return r
    else:
        tl.static_assert(False, "unknown step")
