"""Kernels of the pools: windows over planes (channels first), or over pixels with their channels (channels last).

Tiles are rows × cols. Where channels come first, a row is a line of windows of one plane, cols are its windows; where
lines are short, a row is a window and there is one col. Where channels come last, a row is a window and cols are its
channels. Each row stands for `LINES` windows, one below the other, that share what they have read.
"""

from __future__ import annotations

import triton
import triton.language as tl

from gossamer.kernels.division import divide_by
from gossamer.kernels.elementwise_math import divide, maximum
from gossamer.kernels.reduction import integer_power, root
from gossamer.kernels.reduction_geometry import as_type


@triton.jit
def windows_of(
    program, n_rows, n_cols, y_extents,
    LINES: tl.constexpr, PLANES: tl.constexpr, DEEP: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """image, depth, line, column and channel of the windows of a program's tile, and which rows and cols there are.

    y_extents: depth, lines divided by LINES, and columns, as divisors.
    """
    if WIDE:
        program = program.to(tl.int64)
    tiles = tl.cdiv(n_cols, COLS)
    row = (program // tiles * ROWS + tl.arange(0, ROWS))[:, None]
    col = (program % tiles * COLS + tl.arange(0, COLS))[None, :]
    if PLANES:
        lines, column, channel = row, col, tl.zeros((1, 1), tl.int32)
    else:
        lines = divide_by(row, y_extents[2], WIDE)
        column, channel = row - lines * y_extents[2][0], col
    depths = divide_by(lines, y_extents[1], WIDE)
    line = (lines - depths * y_extents[1][0]) * LINES
    image, depth = depths, tl.zeros((1, 1), tl.int32)
    if DEEP:
        image = divide_by(depths, y_extents[0], WIDE)
        depth = depths - image * y_extents[0][0]
    return image, depth, line, column, channel, row < n_rows, col < n_cols


@triton.jit
def typed(x, TYPE: tl.constexpr):
    """x in the type that is computed in."""
    return x.to(tl.float16) if TYPE == "float16" else as_type(x, TYPE)


@triton.jit
def merged(a, b, KIND: tl.constexpr):
    """What two parts of a window give together."""
    return maximum(a, b) if KIND == "max" else a + b


@triton.jit
def count_along(start, extent, end, TAPS: tl.constexpr, GAP: tl.constexpr, COUNT_PADS: tl.constexpr):
    """How many taps of windows that begin at `start` count in an average."""
    count = tl.zeros_like(start)
    for t in tl.range(TAPS, loop_unroll_factor=TAPS if TAPS <= 16 else 4):
        i = start + t * GAP
        count += ((i < end) if COUNT_PADS else (i >= 0) & (i < extent)).to(count.dtype)
    return count


@triton.jit
def averaged(
    total, d0, h0, w0, extents, ends, KERNEL: tl.constexpr, GAPS: tl.constexpr,
    COUNT_PADS: tl.constexpr, INSIDE: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """total divided by how many taps count of windows that begin at d0, h0, w0. INSIDE: all. HALF: about right."""
    if INSIDE:
        return total * (1.0 / (KERNEL[0] * KERNEL[1] * KERNEL[2]))
    count = count_along(h0, extents[1], ends[1], KERNEL[1], GAPS[1], COUNT_PADS)
    count = count * count_along(w0, extents[2], ends[2], KERNEL[2], GAPS[2], COUNT_PADS)
    count = count * count_along(d0, extents[0], ends[0], KERNEL[0], GAPS[0], COUNT_PADS)
    count = tl.maximum(count, 1).to(total.dtype)
    return total / count if HALF else divide(total, count)


@triton.jit
def pooled_line(
    corner_ptr, d0, h, w0, row_live, col_live, strides, extents,
    KIND: tl.constexpr, P: tl.constexpr, LOWEST: tl.constexpr, INSIDE: tl.constexpr, SURE: tl.constexpr,
    KERNEL: tl.constexpr, GAPS: tl.constexpr, TYPE: tl.constexpr, PLANES: tl.constexpr,
):  # fmt: skip
    """What the taps in line h give together. corner_ptr: at line h. INSIDE: none is outside of
    the image, SURE: and none below it, where a row has fewer windows than others."""
    total = None
    for t in tl.static_range(KERNEL[0]):
        d = d0 + t * GAPS[0]
        here = row_live
        if not INSIDE:
            here = here & (d >= 0) & (d < extents[0]) & (h >= 0)
        if not SURE:
            here = here & (h < extents[1])
        for s in tl.static_range(KERNEL[2]):
            w = w0 + s * GAPS[2]
            if INSIDE:
                mask = here & col_live
            elif PLANES:
                mask = here & (col_live & (w >= 0) & (w < extents[2]))
            else:
                mask = (here & (w >= 0) & (w < extents[2])) & col_live
            place = corner_ptr + (t * GAPS[0] * strides[1] + s * GAPS[2] * strides[3])
            x = typed(tl.load(place, mask, other=LOWEST if KIND == "max" else 0), TYPE)
            if KIND == "lp":
                x = integer_power(tl.abs(x), P)
            total = x if t == 0 and s == 0 else merged(total, x, KIND)
    return total


@triton.jit
def pool_kernel(
    x_ptr, y_ptr, n_rows, n_cols, n_channels, y_lines, x_strides, x_extents, y_extents, ends,
    KIND: tl.constexpr, P: tl.constexpr, LOWEST: tl.constexpr, COUNT_PADS: tl.constexpr, INSIDE: tl.constexpr,
    KERNEL: tl.constexpr, STEPS: tl.constexpr, PADS: tl.constexpr, GAPS: tl.constexpr,
    TYPE: tl.constexpr, LINES: tl.constexpr, PLANES: tl.constexpr, DEEP: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """y[p, c] = pool over taps t of x[p · STEPS - PADS + t · GAPS, c]: line by line, then over lines.

    x_strides: image, depth, line, column. ends: where the declared padding ends; taps beyond are never counted.
    INSIDE: no window reaches beyond the image. LINES above one: windows have no gaps between their lines.
    """
    image, depth, line, column, channel, row_live, col_live = windows_of(
        tl.program_id(0), n_rows, n_cols, y_extents, LINES, PLANES, DEEP, ROWS, COLS, WIDE
    )
    d0, h0, w0 = depth * STEPS[0] - PADS[0], line * STEPS[1] - PADS[1], column * STEPS[2] - PADS[2]
    corner_ptr = x_ptr + (image.to(tl.int64) * x_strides[0] + d0 * x_strides[1] + h0 * x_strides[2])
    corner_ptr = corner_ptr + (w0 * x_strides[3] + channel)
    lines = ()  # grows line by line; Triton has no lists
    for k in tl.static_range((LINES - 1) * STEPS[1] + KERNEL[1]):
        pooled = pooled_line(
            corner_ptr + k * GAPS[1] * x_strides[2], d0, h0 + k * GAPS[1], w0, row_live, col_live, x_strides,
            x_extents, KIND, P, LOWEST, INSIDE, INSIDE and LINES == 1, KERNEL, GAPS, TYPE, PLANES,
        )  # fmt: skip
        lines = lines + (pooled,)  # type: ignore[assignment]  # noqa: RUF005
    HALF: tl.constexpr = y_ptr.dtype.element_ty == tl.float16
    for j in tl.static_range(LINES):
        result = lines[j * STEPS[1]]  # type: ignore[var-annotated]
        for k in tl.static_range(1, KERNEL[1]):
            result = merged(result, lines[j * STEPS[1] + k], KIND)
        if KIND == "lp":  # an approximate root is exact enough for halves, and has no branches
            result = tl.sqrt(result) if P == 2 and HALF else root(result, P)
        elif KIND == "average":
            start = h0 + j * STEPS[1]
            result = averaged(result, d0, start, w0, x_extents, ends, KERNEL, GAPS, COUNT_PADS, INSIDE, HALF)
        at = ((image.to(tl.int64) * y_extents[0][0] + depth) * y_lines + line + j) * y_extents[2][0]
        stored = (row_live & (line + j < y_lines)) & col_live
        tl.store(y_ptr + (at + column) * n_channels + channel, result.to(y_ptr.dtype.element_ty), stored)


@triton.jit
def pool_taps_kernel(
    x_ptr, y_ptr, index_ptr, n_rows, n_cols, n_channels, y_lines, x_strides, x_extents, y_extents, ends, index_strides,
    KIND: tl.constexpr, P: tl.constexpr, LOWEST: tl.constexpr, COUNT_PADS: tl.constexpr, COLUMN_MAJOR: tl.constexpr,
    KERNEL: tl.constexpr, STEPS: tl.constexpr, PADS: tl.constexpr, GAPS: tl.constexpr, UNROLL: tl.constexpr,
    TYPE: tl.constexpr, PLANES: tl.constexpr, DEEP: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """As `pool_kernel`, tap by tap, for windows of many taps, and where the places of maxima are asked for.

    Where index_ptr is given, index is the place of the (first) maximum in the tensor of x in channels-first order, -1
    where a window holds nothing but padding. index_strides: x's of image and channel in that order.
    """
    image, depth, line, column, channel, row_live, col_live = windows_of(
        tl.program_id(0), n_rows, n_cols, y_extents, 1, PLANES, DEEP, ROWS, COLS, WIDE
    )
    d0, h0, w0 = depth * STEPS[0] - PADS[0], line * STEPS[1] - PADS[1], column * STEPS[2] - PADS[2]
    corner_ptr = x_ptr + (image.to(tl.int64) * x_strides[0] + d0 * x_strides[1] + h0 * x_strides[2])
    corner_ptr = corner_ptr + (w0 * x_strides[3] + channel)
    result = typed(tl.zeros((ROWS, COLS), tl.int32), TYPE)
    if KIND == "max":
        result = tl.full((ROWS, COLS), LOWEST, result.dtype)
    index = tl.full((ROWS, COLS), -1, d0.dtype)
    for tap in tl.range(0, KERNEL[0] * KERNEL[1] * KERNEL[2], loop_unroll_factor=UNROLL):
        d_step = tap // (KERNEL[1] * KERNEL[2]) * GAPS[0]
        h_step = tap // KERNEL[2] % KERNEL[1] * GAPS[1]
        w_step = tap % KERNEL[2] * GAPS[2]
        d, h, w = d0 + d_step, h0 + h_step, w0 + w_step
        inside = (d >= 0) & (d < x_extents[0]) & (h >= 0) & (h < x_extents[1]) & (w >= 0) & (w < x_extents[2])
        step = d_step * x_strides[1] + h_step * x_strides[2] + w_step * x_strides[3]
        x = tl.load(corner_ptr + step, inside & row_live & col_live, other=LOWEST if KIND == "max" else 0)
        x = typed(x, TYPE)
        if KIND == "average":
            result += x
        elif KIND == "lp":
            result += integer_power(tl.abs(x), P)
        elif index_ptr is None:
            result = maximum(result, x)
        else:
            taken = inside & ((x > result) | (index < 0) | ((x != x) & (result == result)))  # noqa: PLR0124
            row_major = (d * x_extents[1] + h) * x_extents[2] + w
            here = d + x_extents[0] * (h + x_extents[1] * w) if COLUMN_MAJOR else row_major
            result = tl.where(taken, x, result)
            index = tl.where(taken, here, index)
    if KIND == "average":
        result = averaged(result, d0, h0, w0, x_extents, ends, KERNEL, GAPS, COUNT_PADS, False, False)
    elif KIND == "lp":
        result = root(result, P)
    at = ((image.to(tl.int64) * y_extents[0][0] + depth) * y_lines + line) * y_extents[2][0]
    out = (at + column) * n_channels + channel
    tl.store(y_ptr + out, result.to(y_ptr.dtype.element_ty), row_live & col_live)
    if index_ptr is not None:
        place = tl.where(index < 0, -1, image.to(tl.int64) * index_strides[0] + channel * index_strides[1] + index)
        tl.store(index_ptr + out, place, row_live & col_live)
