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
    choose_tile,
    copy_strided,
    is_wide,
    movable,
    offset_along,
    walk,
)
from gossamer.kernels.extents import cdiv
from gossamer.kernels.launch import launch
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import Node
from gossamer.program import Buffer, Target

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
    values = tl.load(x_ptr + offset_along(at, others) + place * axis_stride, mask=mask & inside, other=0)
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


@lowers("GatherElements")
def lower_gather_elements(node: Node, target: Target) -> Lowered:
    """y[i] = x[i with indices[i] as its coordinate on the axis] (ONNX GatherElements 11)."""
    x, y, indices = node.x, node.y, node.inputs[1]
    assert indices is not None
    if refusal := movable(x):
        return refusal
    axis = node.attribute("axis", 0) % x.rank
    block = 2**16 if target.interpreted else FLAT_BLOCK
    return (
        launch(
            gather_elements_kernel,
            (cdiv(y.size, block),),
            writes=y,
            x_ptr=as_words(x),
            index_ptr=indices,
            y_ptr=as_words(y),
            others=other_axes(x, indices, axis),
            axis_stride=x.strides[axis],
            extent=x.shape[axis],
            size=y.size,
            BLOCK=block,
            WIDE=is_wide(x.size, y.size),
        ),
    )


def other_axes(x: Buffer, indices: Buffer, axis: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How x steps along the axes of `indices`, not at all along `axis`."""
    strides = [0 if d == axis else stride for d, stride in enumerate(x.strides)]
    return walk(list(zip(indices.shape, strides, strict=True)))


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
