"""Gather in all its forms, and what an index means.

An index outside of its axis is an error in ONNX that a GPU cannot raise: here it reads as zero. Memory beyond the
tensor is never touched.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl

from gossamer.kernels.copies import (
    Strided,
    as_words,
    choose_lines,
    choose_tile,
    copy_strided,
    is_wide,
    movable,
    offset_of_rows,
    tile_of,
    walk,
    with_divisors,
)
from gossamer.kernels.division import Divisor, divide_by, divisor_of
from gossamer.kernels.extents import cdiv
from gossamer.kernels.launch import launch
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import Node
from gossamer.program import Buffer, Launch, Target

FLAT_BLOCK = 1024


@triton.jit
def place_of(index, extent):
    """The coordinate that an index means (negative ones count from the end), and whether there is one."""
    index = index.to(tl.int64)
    index = tl.where(index < 0, index + extent, index)
    inside = (index >= 0) & (index < extent)
    return tl.where(inside, index, 0), inside


@triton.jit
def place_of_tuple(index_ptrs, extents, strides, mask):
    """The offset that the index tuple at index_ptrs means, and where all its members are inside of extents and mask."""
    offset = mask.to(tl.int64) * 0
    for d in tl.static_range(len(extents)):
        place, inside = place_of(tl.load(index_ptrs + d, mask=mask, other=0), extents[d])
        offset += place * strides[d]
        mask = mask & inside
    return offset, mask


@triton.jit
def gather_rows_kernel(
    x_ptr,
    index_ptr,
    y_ptr,
    extent,
    n_indices,
    n_rows,
    inner,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    WIDE: tl.constexpr,
):
    """y[o, j, c] = x[o, index[j], c] for rows r = (o, j)."""
    pid = tl.program_id(0)
    if WIDE:
        pid = pid.to(tl.int64)
    col_tiles = tl.cdiv(inner, COLS)
    rows = pid // col_tiles * ROWS + tl.arange(0, ROWS)
    cols = pid % col_tiles * COLS + tl.arange(0, COLS)
    row_mask, col_mask = rows < n_rows, cols < inner
    place, inside = place_of(tl.load(index_ptr + rows % n_indices, mask=row_mask, other=0), extent)
    source = (rows // n_indices * extent + place.to(rows.dtype)) * inner
    values = tl.load(
        x_ptr + source[:, None] + cols[None, :], mask=(row_mask & inside)[:, None] & col_mask[None, :], other=0
    )
    tl.store(y_ptr + (rows * inner)[:, None] + cols[None, :], values, mask=row_mask[:, None] & col_mask[None, :])


@triton.jit
def gather_columns_kernel(
    x_ptr, index_ptr, y_ptr, extent, inner, n_rows, n_cols,
    LINES: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """y[o, j, c] = x[o, index[j], c] for rows o and columns (j, c): an index serves all rows of a program.

    inner: the extent of c, as a divisor.
    """
    row, col = tile_of(tl.program_id(0), n_cols, LINES, ROWS, COLS, WIDE)
    j = divide_by(col, inner, WIDE)
    place, inside = place_of(tl.load(index_ptr + j, mask=col < n_cols, other=0), extent)
    source = place.to(col.dtype) * inner[0] + (col - j * inner[0])
    lines = ()  # all loads come before the first store: the compiler cannot know that x and y are not one
    for k in tl.static_range(LINES):
        at = row + k * ROWS
        mask = (at < n_rows) & (inside & (col < n_cols))
        y = tl.load(x_ptr + at * extent * inner[0] + source, mask=mask, other=0)
        lines = lines + (y,)  # type: ignore[assignment]  # noqa: RUF005
    for k in tl.static_range(LINES):
        at = row + k * ROWS
        tl.store(y_ptr + at * n_cols + col, lines[k], mask=(at < n_rows) & (col < n_cols))


@triton.jit
def gather_elements_kernel(
    x_ptr, index_ptr, y_ptr, others, axis_stride, extent, size, BLOCK: tl.constexpr, WIDE: tl.constexpr
):  # fmt: skip
    """y[i] = x[i with index[i] as its coordinate on the axis]; others: how x steps along the other axes of index."""
    pid = tl.program_id(0)
    if WIDE:
        pid = pid.to(tl.int64)
    at = pid * BLOCK + tl.arange(0, BLOCK)
    mask = at < size
    place, inside = place_of(tl.load(index_ptr + at, mask=mask, other=0), extent)
    offset = offset_of_rows(at, others, WIDE) + place * axis_stride
    values = tl.load(x_ptr + offset, mask=mask & inside, other=0)
    tl.store(y_ptr + at, values, mask=mask)


@triton.jit
def gather_nd_kernel(
    x_ptr,
    index_ptr,
    y_ptr,
    extents,
    strides,
    batch_stride,
    rows_per_batch,
    n_rows,
    inner,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """y[b, j, c] = x[b, index[b, j, 0], index[b, j, 1], …, c] for rows r = (b, j)."""
    pid = tl.program_id(0).to(tl.int64)
    col_tiles = tl.cdiv(inner, COLS)
    rows = pid // col_tiles * ROWS + tl.arange(0, ROWS)
    cols = pid % col_tiles * COLS + tl.arange(0, COLS)
    row_mask, col_mask = rows < n_rows, cols < inner
    place, inside = place_of_tuple(index_ptr + rows * len(extents), extents, strides, row_mask)
    source = rows // rows_per_batch * batch_stride + place
    values = tl.load(x_ptr + source[:, None] + cols[None, :], mask=inside[:, None] & col_mask[None, :], other=0)
    tl.store(y_ptr + (rows * inner)[:, None] + cols[None, :], values, mask=row_mask[:, None] & col_mask[None, :])


@lowers("Gather")
def lower_gather(node: Node, target: Target) -> Lowered:
    """Slices of x at the indices along an axis (ONNX Gather 1, negative indices since 11)."""
    x, y, indices = node.x, node.y, node.inputs[1]
    assert indices is not None
    if refusal := movable(x):
        return refusal
    axis = node.attribute("axis", 0) % x.rank
    extent, inner, outer = x.shape[axis], math.prod(x.shape[axis + 1 :]), math.prod(x.shape[:axis])
    if indices.size == 1 and (known := node.constant(1)) is not None and -extent <= known.item() < extent:
        offset = known.item() % extent * inner
        return copy_strided((outer, inner), Strided(x, (extent * inner, 1), offset), Strided(y, (inner, 1)), target)
    if inner < SHORT and (extent * inner < LONG or inner * x.itemsize >= SECTOR):
        return (_gather_columns(node, indices, outer, extent, inner, target),)
    n_rows = outer * indices.size
    rows, cols = choose_tile(n_rows, inner, x.itemsize, False, target)
    return (
        launch(
            gather_rows_kernel,
            (cdiv(n_rows, rows) * cdiv(inner, cols),),
            writes=y,
            x_ptr=as_words(x),
            index_ptr=indices,
            y_ptr=as_words(y),
            extent=extent,
            n_indices=indices.size,
            n_rows=n_rows,
            inner=inner,
            ROWS=rows,
            COLS=cols,
            WIDE=is_wide(x.size, y.size),
        ),
    )


SHORT = 32
"""Slices of fewer elements are gathered column by column."""
LONG, SECTOR = 1024, 32
"""Where rows of x have as many elements, and slices fewer bytes, a program takes one row at a time: few picks from each
of several rows would share no sectors."""


def _gather_columns(node: Node, indices: Buffer, outer: int, extent: int, inner: int, target: Target) -> Launch:
    x, y = node.x, node.y
    n_cols, wide = indices.size * inner, is_wide(x.size, y.size)
    tile = choose_lines(outer, n_cols, target)
    return launch(
        gather_columns_kernel,
        (cdiv(outer, tile.lines * tile.rows) * cdiv(n_cols, tile.cols),),
        writes=y,
        num_warps=tile.num_warps,
        x_ptr=as_words(x),
        index_ptr=indices,
        y_ptr=as_words(y),
        extent=extent,
        inner=divisor_of(inner, wide),
        n_rows=outer,
        n_cols=n_cols,
        LINES=tile.lines,
        ROWS=tile.rows,
        COLS=tile.cols,
        WIDE=wide,
    )


@lowers("GatherElements")
def lower_gather_elements(node: Node, target: Target) -> Lowered:
    """y[i] = x[i with indices[i] as its coordinate on the axis] (ONNX GatherElements 11)."""
    x, y, indices = node.x, node.y, node.inputs[1]
    assert indices is not None
    if refusal := movable(x):
        return refusal
    axis = node.attribute("axis", 0) % x.rank
    block, wide = 2**16 if target.interpreted else FLAT_BLOCK, is_wide(x.size, y.size)
    return (
        launch(
            gather_elements_kernel,
            (cdiv(y.size, block),),
            writes=y,
            x_ptr=as_words(x),
            index_ptr=indices,
            y_ptr=as_words(y),
            others=other_axes(x, indices, axis, wide),
            axis_stride=x.strides[axis],
            extent=x.shape[axis],
            size=y.size,
            BLOCK=block,
            WIDE=wide,
        ),
    )


def other_axes(x: Buffer, indices: Buffer, axis: int, wide: bool) -> tuple[tuple[Divisor, ...], tuple[int, ...]]:
    """How x steps along the axes of `indices`, not at all along `axis`, as `offset_of_rows` takes it."""
    strides = [0 if d == axis else stride for d, stride in enumerate(x.strides)]
    return with_divisors(walk(list(zip(indices.shape, strides, strict=True))), wide)


@lowers("GatherND")
def lower_gather_nd(node: Node, target: Target) -> Lowered:
    """Slices of x at index tuples, the last axis of the indices (ONNX GatherND 11, batch_dims since 12)."""
    x, y, indices = node.x, node.y, node.inputs[1]
    assert indices is not None
    if refusal := movable(x):
        return refusal
    batch, length = node.attribute("batch_dims", 0), indices.shape[-1]
    inner = math.prod(x.shape[batch + length :])
    n_rows = math.prod(indices.shape[:-1])
    rows, cols = choose_tile(n_rows, inner, x.itemsize, False, target)
    return (
        launch(
            gather_nd_kernel,
            (cdiv(n_rows, rows) * cdiv(inner, cols),),
            writes=y,
            x_ptr=as_words(x),
            index_ptr=indices,
            y_ptr=as_words(y),
            extents=x.shape[batch : batch + length],
            strides=x.strides[batch : batch + length],
            batch_stride=math.prod(x.shape[batch:]),
            rows_per_batch=math.prod(indices.shape[batch:-1]),
            n_rows=n_rows,
            inner=inner,
            ROWS=rows,
            COLS=cols,
        ),
    )
