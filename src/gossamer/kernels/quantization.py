"""QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear: between real numbers and integers, or floats of up to 8
bits, with scale and zero point.

Scales stand for the whole tensor, one index of an axis, or a block along an axis: in each case the scale of element
(outer, index along the axis, inner) is at outer · s₀ + index // block · s₁ + inner · s₂.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import triton
import triton.language as tl

from gossamer.kernels.copies import choose_tile, is_wide
from gossamer.kernels.elementwise_math import divide, maximum, minimum, reciprocal, round_half_even
from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.kernels.launch import launch
from gossamer.kernels.narrow_types import decode, encode_float, encode_integer, in_bits
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import Node
from gossamer.model.steps import NARROW, NARROW_FLOATS, SCALE
from gossamer.program import Buffer, Call, Refusal, Target

REAL = ("float16", "bfloat16", "float32")
LIMITS = {
    "int2": (-2, 1),
    "uint2": (0, 3),
    "int4": (-8, 7),
    "uint4": (0, 15),
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-32768, 32767),
    "uint16": (0, 65535),
}
"""Of the integers that reals are quantised to."""
MOST_PARTS = 1024
"""Programs that look for extremes: the second launch reads what each of them found."""


@triton.jit
def scales_at(ptr, rows, cols, n_rows, n_cols, axis_rows, inner, block, steps, SPREAD: tl.constexpr):
    """What belongs to rows × cols of the numbers at ptr, in the smallest shape that broadcasts to them.

    rows may span (outer, axis), columns (axis, inner). SPREAD: along which of them the numbers differ.
    """
    places = tl.zeros((1, 1), rows.dtype)
    mask = places == 0
    if SPREAD == "rows" or SPREAD == "both":
        places += (rows // axis_rows * steps[0] + rows % axis_rows // block * steps[1])[:, None]
        mask = mask & (rows < n_rows)[:, None]
    if SPREAD == "cols" or SPREAD == "both":
        places += (cols // inner // block * steps[1] + cols % inner * steps[2])[None, :]
        mask = mask & (cols < n_cols)[None, :]
    return tl.load(ptr + places, mask=mask, other=1)


@triton.jit
def quotient(x, divisor, FUSED: tl.constexpr):
    """x / divisor in fp32, correctly rounded where it is below 2²⁰. divisor: of a shape that broadcasts to x's.

    FUSED: by one reciprocal for all that is divided by it, and a correction of each quotient by its remainder, for
    which tl.fma has to round once (P. Markstein, "Computation of elementary functions on the IBM RISC System/6000
    processor", 1990, theorem 8.3).
    """
    if FUSED:
        magnitude = tl.abs(divisor)
        small, large = magnitude < 5.421010862427522e-20, magnitude > 18446744073709551616.0  # 2^∓64
        stretch = tl.where(small, 18446744073709551616.0, tl.where(large, 5.421010862427522e-20, 1.0))
        x, divisor = x * stretch, divisor * stretch  # so that nothing that matters is subnormal
        inverse = reciprocal(divisor)
        divisor = tl.where(inverse == 0.0, 0.0, divisor)  # infinity leaves no remainder
        first = x * inverse
        remainder = tl.fma(-first, tl.broadcast_to(divisor, x.shape), x)
        corrected = tl.fma(remainder, tl.broadcast_to(inverse, x.shape), first)
        return tl.where(tl.abs(first) < 1048576.0, corrected, first)
    else:
        return divide(x, tl.broadcast_to(divisor, x.shape))


@triton.jit
def quantize(x, scale, zero, LOW: tl.constexpr, HIGH: tl.constexpr, FUSED: tl.constexpr):
    """x / scale in fp32, rounded to the nearest integer, half to even, + zero, within LOW … HIGH: int32. NaN gives LOW.

    scale, and zero in int32, are of shapes that broadcast to x's.
    """
    least, most = (LOW - zero).to(tl.float32), (HIGH - zero).to(tl.float32)
    q = quotient(x, scale, FUSED)
    q = tl.where(q == q, tl.minimum(tl.maximum(q, least), most), least)  # noqa: PLR0124  # where it is no NaN
    shifted = q + 12582912.0  # 1.5 · 2²³: the sum's last bit is worth one, and its bits count in integers
    return shifted.to(tl.int32, bitcast=True) + (zero - 1262485504)


@triton.jit
def number(x, FORMAT: tl.constexpr, TYPE: tl.constexpr):
    """x in TYPE. FORMAT: a narrow type if x are bits in it."""
    if FORMAT != "":
        x = decode(x, FORMAT)
    return x.to(TYPE)


@triton.jit
def quantize_linear_kernel(
    x_ptr, scale_ptr, zero_ptr, y_ptr, n_rows, n_cols, axis_rows, inner, block, steps,
    LIMITS: tl.constexpr, SATURATE: tl.constexpr, FORMAT: tl.constexpr, SCALE: tl.constexpr, SPREAD: tl.constexpr,
    FUSED: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """y = saturate(round(x / scale) + zero), or, without LIMITS, round(x / scale + zero) in the floats of FORMAT.

    FORMAT, SCALE: the narrow type that y, and the scale, are bits in; else "".
    """
    rows, cols = tile_at(tl.program_id(0), n_cols, ROWS, COLS, WIDE)
    mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    scales = scales_at(scale_ptr, rows, cols, n_rows, n_cols, axis_rows, inner, block, steps, SPREAD)
    scale = number(scales, SCALE, tl.float32)
    TYPE: tl.constexpr = tl.int32 if len(LIMITS) == 2 else tl.float32
    zero = tl.zeros((1, 1), TYPE)
    if zero_ptr is not None:
        zeros = scales_at(zero_ptr, rows, cols, n_rows, n_cols, axis_rows, inner, block, steps, SPREAD)
        zero = number(zeros, FORMAT, TYPE)
    at = rows[:, None] * n_cols + cols[None, :]
    x = tl.load(x_ptr + at, mask=mask, other=0).to(tl.float32)
    if len(LIMITS) == 0:
        y = encode_float(quotient(x, scale, FUSED) + zero, SATURATE, FORMAT)
    else:
        y = quantize(x, scale, zero, LIMITS[0], LIMITS[1], FUSED)
        if FORMAT != "":
            y = encode_integer(y, FORMAT)
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def dequantize_linear_kernel(
    x_ptr, scale_ptr, zero_ptr, y_ptr, n_rows, n_cols, axis_rows, inner, block, steps,
    REAL: tl.constexpr, FORMAT: tl.constexpr, SCALE: tl.constexpr, SPREAD: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """y = (x - zero) · scale. FORMAT, SCALE: the narrow type that x, and the scale, are bits in; else "". REAL: x are
    floats."""
    rows, cols = tile_at(tl.program_id(0), n_cols, ROWS, COLS, WIDE)
    mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    scales = scales_at(scale_ptr, rows, cols, n_rows, n_cols, axis_rows, inner, block, steps, SPREAD)
    scale = number(scales, SCALE, tl.float32)
    TYPE: tl.constexpr = tl.float32 if REAL else tl.int32
    at = rows[:, None] * n_cols + cols[None, :]
    x = number(tl.load(x_ptr + at, mask=mask, other=0), FORMAT, TYPE)
    if zero_ptr is not None:
        zeros = scales_at(zero_ptr, rows, cols, n_rows, n_cols, axis_rows, inner, block, steps, SPREAD)
        x -= number(zeros, FORMAT, TYPE)
    tl.store(y_ptr + at, (x.to(tl.float32) * scale).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def tile_at(program, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr, WIDE: tl.constexpr):
    """The rows and columns of a program's tile."""
    if WIDE:
        program = program.to(tl.int64)
    tiles = tl.cdiv(n_cols, COLS)
    return program // tiles * ROWS + tl.arange(0, ROWS), program % tiles * COLS + tl.arange(0, COLS)


@triton.jit
def extremes_kernel(x_ptr, y_ptr, n, chunk, BLOCK: tl.constexpr):
    """y[part] = min(0, x …), max(0, x …) over the part's `chunk` elements."""
    part = tl.program_id(0).to(tl.int64)
    low = tl.zeros((BLOCK,), tl.float32)
    high = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, chunk, BLOCK):
        i = part * chunk + start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + i, mask=i < n, other=0).to(tl.float32)
        low, high = minimum(low, x), maximum(high, x)
    tl.store(y_ptr + 2 * part, tl.min(low, axis=0))
    tl.store(y_ptr + 2 * part + 1, tl.max(high, axis=0))


@triton.jit
def dynamic_quantize_kernel(
    x_ptr, extremes_ptr, y_ptr, scale_ptr, zero_ptr, n, n_parts,
    FUSED: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """y = saturate(round(x / scale) + zero) for the scale and zero point that map x's range, and 0, onto 0 … 255."""
    part = tl.arange(0, PARTS)
    low = tl.min(tl.load(extremes_ptr + 2 * part, mask=part < n_parts, other=0), axis=0)
    high = tl.max(tl.load(extremes_ptr + 2 * part + 1, mask=part < n_parts, other=0), axis=0)
    low, high = tl.zeros((1,), tl.float32) + low, tl.zeros((1,), tl.float32) + high
    # ONNX divides by a scale of zero where x is zero throughout; onnxruntime takes 1, which gives zeros.
    scale = tl.where(low == high, 1.0, divide(high - low, tl.full((1,), 255.0, tl.float32)))
    zero = round_half_even(tl.minimum(tl.maximum(0.0 - divide(low, scale), 0.0), 255.0))
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0).to(tl.float32)
    y = quantize(x, scale, zero.to(tl.int32), 0, 255, FUSED)
    tl.store(y_ptr + i, y.to(tl.uint8), mask=i < n)
    if tl.program_id(0) == 0:
        tl.store(scale_ptr + tl.arange(0, 1), scale)
        tl.store(zero_ptr + tl.arange(0, 1), zero.to(tl.int32).to(tl.uint8))


@dataclass(frozen=True, slots=True)
class Scales:
    """How scales spread over a tensor seen as rows × cols: see `scales_at`."""

    rows: int
    cols: int
    axis_rows: int
    inner: int
    block: int
    steps: tuple[int, int, int]
    spread: str


ROW_COLUMNS = 32
"""Inner extents from which on an index of the axis has rows of its own."""


def scales_of(node: Node, scale: Buffer) -> Scales | Refusal:
    """The scales of QuantizeLinear and DequantizeLinear, of one of ONNX's three granularities."""
    shape, size = node.x.shape, node.x.size
    if scale.size == 1:
        return Scales(1, size, 1, 1, 1, (0, 0, 0), "")
    axis = node.attribute("axis", 1) % max(1, node.x.rank)
    block: int = node.attribute("block_size", 0)
    outer, extent, inner = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
    if block:
        if scale.rank != node.x.rank or scale.shape[axis] != cdiv(extent, block):
            return Refusal(
                f"scales {list(scale.shape)} do not fit blocks of {block} along axis {axis} of {list(shape)}"
            )
        steps = (scale.shape[axis] * inner, inner, 1)
    elif scale.size == extent:
        block, steps = 1, (0, 1, 0)
    else:
        return Refusal(f"{scale.size} scales do not fit axis {axis} of {list(shape)}")
    if inner >= ROW_COLUMNS:
        return Scales(outer * extent, inner, extent, inner, block, steps, "both" if steps[2] else "rows")
    return Scales(outer, extent * inner, 1, inner, block, steps, "both" if steps[0] else "cols")


@lowers("QuantizeLinear", since=10)
@lowers("QuantizeLinear", domain="com.microsoft")
def lower_quantize(node: Node, target: Target) -> Lowered:
    """ONNX QuantizeLinear (-10, -13, -19, -21, -23, -24, -25, -28) and onnxruntime's; the division is done in fp32."""
    if node.x.dtype not in (*REAL, "int32") or node.y.dtype not in (*LIMITS, *NARROW_FLOATS):
        return Refusal(f"QuantizeLinear from {node.x.dtype} to {node.y.dtype} has no kernel")
    constants = {
        "LIMITS": LIMITS.get(node.y.dtype, ()),
        "SATURATE": node.attribute("saturate", 1),
        "FUSED": not target.interpreted,
    }
    return _elementwise(node, target, quantize_linear_kernel, node.y.dtype, constants)


@lowers("DequantizeLinear", since=10)
@lowers("DequantizeLinear", domain="com.microsoft")
def lower_dequantize(node: Node, target: Target) -> Lowered:
    """ONNX DequantizeLinear (-10, -13, -19, -21, -23, -24, -25, -28) and onnxruntime's; products are made in fp32."""
    if node.x.dtype not in (*LIMITS, *NARROW_FLOATS, "int32") or node.y.dtype not in REAL:
        return Refusal(f"DequantizeLinear from {node.x.dtype} to {node.y.dtype} has no kernel")
    constants = {"REAL": node.x.dtype in NARROW_FLOATS}
    return _elementwise(node, target, dequantize_linear_kernel, node.x.dtype, constants)


def _elementwise(node: Node, target: Target, kernel: object, quantized: str, constants: dict[str, Any]) -> Lowered:
    """quantized: the dtype on the narrow side."""
    scale, zero = node.inputs[1], node.input(2)
    assert scale is not None
    scales = scales_of(node, scale)
    if isinstance(scales, Refusal):
        return scales
    rows, cols = _tile(scales, max(node.x.itemsize, node.y.itemsize), target)
    return (
        launch(
            kernel,
            (cdiv(scales.rows, rows) * cdiv(scales.cols, cols),),
            writes=node.y,
            x_ptr=in_bits(node.x),
            scale_ptr=in_bits(scale),
            zero_ptr=None if zero is None else in_bits(zero),
            y_ptr=in_bits(node.y),
            n_rows=scales.rows,
            n_cols=scales.cols,
            axis_rows=scales.axis_rows,
            inner=scales.inner,
            block=scales.block,
            steps=scales.steps,
            FORMAT=quantized if quantized in NARROW else "",
            SCALE=SCALE if scale.dtype == SCALE else "",
            SPREAD=scales.spread,
            ROWS=rows,
            COLS=cols,
            WIDE=is_wide(node.x.size),
            **constants,
        ),
    )


def _tile(scales: Scales, itemsize: int, target: Target) -> tuple[int, int]:
    """Rows and columns per program; 16 elements a thread where there is but one long row."""
    if scales.rows == 1 and scales.cols >= 4096 * target.sm_count and not target.interpreted:
        return 1, 2048
    return choose_tile(scales.rows, scales.cols, itemsize, False, target)


@lowers("DynamicQuantizeLinear", since=11)
def lower_dynamic_quantize(node: Node, target: Target) -> Lowered:
    """ONNX DynamicQuantizeLinear (-11): fp32 to uint8."""
    y, scale, zero = node.outputs
    assert y is not None
    assert scale is not None
    assert zero is not None
    return dynamic_quantize(node, target, node.x, y, scale, zero)


def dynamic_quantize(node: Node, target: Target, x: Buffer, y: Buffer, scale: Buffer, zero: Buffer) -> tuple[Call, ...]:
    """The calls that leave x quantised to uint8 in y, with its scale and zero point: extremes, then everything else."""
    block = power_of_two(x.size, 2**16 if target.interpreted else 1024)
    most = 4 if target.interpreted else min(MOST_PARTS, 4 * target.sm_count)
    chunk = cdiv(cdiv(max(1, x.size), most), block) * block
    parts = cdiv(max(1, x.size), chunk)
    extremes = node.temporary((parts, 2), "float32")
    first = launch(
        extremes_kernel, (parts,), writes=extremes, x_ptr=x, y_ptr=extremes, n=x.size, chunk=chunk, BLOCK=block
    )
    second = launch(
        dynamic_quantize_kernel,
        (cdiv(max(1, x.size), block),),
        writes=(y, scale, zero),
        x_ptr=x,
        extremes_ptr=extremes,
        y_ptr=y,
        scale_ptr=scale,
        zero_ptr=zero,
        n=x.size,
        n_parts=parts,
        FUSED=not target.interpreted,
        PARTS=power_of_two(parts),
        BLOCK=block,
    )
    return first, second
