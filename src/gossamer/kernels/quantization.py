"""QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear: between real numbers and integers with scale and zero point.

Scales stand for the whole tensor, one index of an axis, or a block along an axis: in each case the scale of element
(outer, index along the axis, inner) is at outer · s₀ + index // block · s₁ + inner · s₂.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import triton
import triton.language as tl

from gossamer.kernels.copies import choose_tile
from gossamer.kernels.elementwise_math import divide, maximum, minimum, round_half_even
from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.kernels.launch import launch
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import Node
from gossamer.program import Buffer, Call, Refusal, Target

REAL = ("float16", "bfloat16", "float32")
LIMITS = {
    "int4": (-8, 7),
    "uint4": (0, 15),
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-32768, 32767),
    "uint16": (0, 65535),
}
"""Of the types that reals are quantised to."""
NIBBLES = ("int4", "uint4")
"""These lie in the lower halves of bytes, as ml_dtypes keeps them."""
MOST_PARTS = 1024
"""Programs that look for extremes: the second launch reads what each of them found."""


@triton.jit
def scale_places(rows, cols, axis_rows, inner, block, steps):
    """Where the scales of rows × cols are; rows may span (outer, axis), columns (axis, inner)."""
    of_rows = rows // axis_rows * steps[0] + rows % axis_rows // block * steps[1]
    of_cols = cols // inner // block * steps[1] + cols % inner * steps[2]
    return of_rows[:, None] + of_cols[None, :]


@triton.jit
def quantize(x, scale, zero, LOW: tl.constexpr, HIGH: tl.constexpr):
    """x / scale + zero, rounded to the nearest integer, half to even, within LOW … HIGH; all in fp32. NaN gives LOW."""
    q = round_half_even(divide(x, scale))
    q = tl.where(q == q, q, LOW - zero)  # noqa: PLR0124
    return tl.minimum(tl.maximum(q, LOW - zero), HIGH - zero) + zero


@triton.jit
def integer(x, NIBBLE: tl.constexpr):
    """x in int32. NIBBLE: `int4` or `uint4` where x are bytes with such in their lower halves."""
    if NIBBLE == "int4":
        return ((x & 15) ^ 8).to(tl.int32) - 8
    else:
        return x.to(tl.int32)


@triton.jit
def quantize_linear_kernel(
    x_ptr, scale_ptr, zero_ptr, y_ptr, n_rows, n_cols, axis_rows, inner, block, steps,
    LOW: tl.constexpr, HIGH: tl.constexpr, NIBBLE: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """y = saturate(round(x / scale) + zero)."""
    tiles = tl.cdiv(n_cols, COLS)
    rows = (tl.program_id(0) // tiles).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = (tl.program_id(0) % tiles).to(tl.int64) * COLS + tl.arange(0, COLS)
    mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    places = scale_places(rows, cols, axis_rows, inner, block, steps)
    scale = tl.load(scale_ptr + places, mask=mask, other=1).to(tl.float32)
    zero = tl.zeros((ROWS, COLS), tl.float32)
    if zero_ptr is not None:
        zero += integer(tl.load(zero_ptr + places, mask=mask, other=0), NIBBLE).to(tl.float32)
    at = rows[:, None] * n_cols + cols[None, :]
    x = tl.load(x_ptr + at, mask=mask, other=0).to(tl.float32)
    y = quantize(x, scale, zero, LOW, HIGH).to(tl.int32)
    if NIBBLE != "":
        y = y & 15
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def dequantize_linear_kernel(
    x_ptr, scale_ptr, zero_ptr, y_ptr, n_rows, n_cols, axis_rows, inner, block, steps,
    NIBBLE: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """y = (x - zero) · scale."""
    tiles = tl.cdiv(n_cols, COLS)
    rows = (tl.program_id(0) // tiles).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = (tl.program_id(0) % tiles).to(tl.int64) * COLS + tl.arange(0, COLS)
    mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    places = scale_places(rows, cols, axis_rows, inner, block, steps)
    at = rows[:, None] * n_cols + cols[None, :]
    x = integer(tl.load(x_ptr + at, mask=mask, other=0), NIBBLE)
    if zero_ptr is not None:
        x -= integer(tl.load(zero_ptr + places, mask=mask, other=0), NIBBLE)
    scale = tl.load(scale_ptr + places, mask=mask, other=0).to(tl.float32)
    tl.store(y_ptr + at, (x.to(tl.float32) * scale).to(y_ptr.dtype.element_ty), mask=mask)


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
    x_ptr, extremes_ptr, y_ptr, scale_ptr, zero_ptr, n, n_parts, PARTS: tl.constexpr, BLOCK: tl.constexpr
):
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
    y = quantize(x, tl.broadcast_to(scale, (BLOCK,)), zero, 0.0, 255.0)
    tl.store(y_ptr + i, y.to(tl.int32).to(tl.uint8), mask=i < n)
    if tl.program_id(0) == 0:
        tl.store(scale_ptr + tl.arange(0, 1), scale)
        tl.store(zero_ptr + tl.arange(0, 1), zero.to(tl.int32).to(tl.uint8))


@dataclass(frozen=True, slots=True)
class Scales:
    """How scales spread over a tensor seen as rows × cols: see `scale_places`."""

    rows: int
    cols: int
    axis_rows: int
    inner: int
    block: int
    steps: tuple[int, int, int]


ROW_COLUMNS = 32
"""Inner extents from which on an index of the axis has rows of its own."""


def scales_of(node: Node, scale: Buffer) -> Scales | Refusal:
    """The scales of QuantizeLinear and DequantizeLinear, of one of ONNX's three granularities."""
    shape, size = node.x.shape, node.x.size
    if scale.size == 1:
        return Scales(1, size, 1, 1, 1, (0, 0, 0))
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
        return Scales(outer * extent, inner, extent, inner, block, steps)
    return Scales(outer, extent * inner, 1, inner, block, steps)


@lowers("QuantizeLinear", since=10)
@lowers("QuantizeLinear", domain="com.microsoft")
def lower_quantize(node: Node, target: Target) -> Lowered:
    """ONNX QuantizeLinear (-10, -13, -19, -21, -23, -24, -25) and onnxruntime's; the division is done in fp32."""
    if node.x.dtype not in (*REAL, "int32") or node.y.dtype not in LIMITS:
        return Refusal(f"QuantizeLinear from {node.x.dtype} to {node.y.dtype} has no kernel")
    low, high = map(float, LIMITS[node.y.dtype])
    return _elementwise(node, target, quantize_linear_kernel, node.y.dtype, {"LOW": low, "HIGH": high})


@lowers("DequantizeLinear", since=10)
@lowers("DequantizeLinear", domain="com.microsoft")
def lower_dequantize(node: Node, target: Target) -> Lowered:
    """ONNX DequantizeLinear (-10, -13, -19, -21, -23, -24, -25) and onnxruntime's."""
    if node.x.dtype not in (*LIMITS, "int32") or node.y.dtype not in REAL:
        return Refusal(f"DequantizeLinear from {node.x.dtype} to {node.y.dtype} has no kernel")
    return _elementwise(node, target, dequantize_linear_kernel, node.x.dtype, {})


def _elementwise(node: Node, target: Target, kernel: object, quantized: str, constants: dict[str, Any]) -> Lowered:
    """quantized: the dtype on the integers' side."""
    scale, zero = node.inputs[1], node.input(2)
    assert scale is not None
    scales = scales_of(node, scale)
    if isinstance(scales, Refusal):
        return scales
    rows, cols = choose_tile(scales.rows, scales.cols, max(node.x.itemsize, node.y.itemsize), False, target)
    return (
        launch(
            kernel,
            (cdiv(scales.rows, rows) * cdiv(scales.cols, cols),),
            writes=node.y,
            x_ptr=_as_bytes(node.x),
            scale_ptr=scale,
            zero_ptr=None if zero is None else _as_bytes(zero),
            y_ptr=_as_bytes(node.y),
            n_rows=scales.rows,
            n_cols=scales.cols,
            axis_rows=scales.axis_rows,
            inner=scales.inner,
            block=scales.block,
            steps=scales.steps,
            NIBBLE=quantized if quantized in NIBBLES else "",
            ROWS=rows,
            COLS=cols,
            **constants,
        ),
    )


def _as_bytes(buffer: Buffer) -> Buffer:
    """4-bit integers as the bytes they lie in."""
    return replace(buffer, dtype="uint8") if buffer.dtype in NIBBLES else buffer


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
        PARTS=power_of_two(parts),
        BLOCK=block,
    )
    return first, second
