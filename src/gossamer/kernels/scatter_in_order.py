"""Scatter's reductions in the order of the updates, for results that do not depend on timing.

The price: every program looks at all updates of its lines, so time grows with outputs × updates. `scatter` uses this
only where SessionOptions ask for deterministic results and sums or products are rounded.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl

from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.kernels.indexing import place_of_tuple
from gossamer.kernels.launch import launch
from gossamer.program import Buffer, Launch, Target


@triton.jit
def lines_of(index, shape, steps):
    """For row-major coordinates of `index` in shape: Σ_d coordinate_d · steps[k][d] for k = 0, 1, 2, and whether every
    coordinate_d < steps[3][d]."""
    first, second, third, inside = index * 0, index * 0, index * 0, index >= 0
    rest = index
    for d in tl.static_range(len(shape)):
        coordinate = rest % shape[len(shape) - 1 - d]
        first += coordinate * steps[0][len(shape) - 1 - d]
        second += coordinate * steps[1][len(shape) - 1 - d]
        third += coordinate * steps[2][len(shape) - 1 - d]
        inside = inside & (coordinate < steps[3][len(shape) - 1 - d])
        rest = rest // shape[len(shape) - 1 - d]
    return first, second, third, inside


@triton.jit
def scatter_in_order_kernel(
    x_ptr,
    index_ptr,
    update_ptr,
    y_ptr,
    extents,
    weights,
    axis_stride,
    axis_extent,
    line_shape,
    line_steps,
    n_lines,
    n_updates,
    index_stride,
    update_stride,
    REDUCTION: tl.constexpr,
    DEPTH: tl.constexpr,
    LINES: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """y[d, l] = x[d, l] ∘ update[j_1, l] ∘ update[j_2, l] … over the j, in order, whose index[j, l] means d.

    A program owns DEPTH × LINES elements of y. It reads the indices CHUNK at a time, and looks at single updates only
    where one of them is its own. line_steps: strides of x, index and update along line_shape, and its part that has
    updates.
    """
    line_tiles = tl.cdiv(n_lines, LINES)
    pid = tl.program_id(0).to(tl.int64)
    top = pid // line_tiles * DEPTH
    depth = top + tl.arange(0, DEPTH)
    line = pid % line_tiles * LINES + tl.arange(0, LINES)
    at_line, index_line, update_line, updated = lines_of(line, line_shape, line_steps)
    mask = (depth < axis_extent)[:, None] & (line < n_lines)[None, :]
    at = (depth * axis_stride)[:, None] + at_line[None, :]
    accumulator = tl.load(x_ptr + at, mask=mask)
    if accumulator.dtype.primitive_bitwidth < 32:
        accumulator = accumulator.to(tl.float32)
    updated = updated & (line < n_lines)
    for first in range(0, n_updates, CHUNK):
        chunk = first + tl.arange(0, CHUNK).to(tl.int64)
        asked = (chunk < n_updates)[:, None] & updated[None, :]
        places, hits = place_of_tuple(
            index_ptr + (chunk * index_stride)[:, None] + index_line[None, :], extents, weights, asked
        )
        if tl.max((hits & (places >= top) & (places < top + DEPTH)).to(tl.int32), axis=None) > 0:
            for j in range(first, tl.minimum(first + CHUNK, n_updates)):
                row = j + tl.zeros((1,), tl.int64)
                place, hit = place_of_tuple(index_ptr + row * index_stride + index_line, extents, weights, updated)
                update = tl.load(update_ptr + row * update_stride + update_line, mask=updated)
                chosen = (depth[:, None] == place[None, :]) & hit[None, :]
                operand = update.to(accumulator.dtype)[None, :]
                if REDUCTION == "add":
                    accumulator = tl.where(chosen, accumulator + operand, accumulator)
                else:
                    tl.static_assert(REDUCTION == "mul")
                    accumulator = tl.where(chosen, accumulator * operand, accumulator)
    tl.store(y_ptr + at, accumulator.to(y_ptr.dtype.element_ty), mask=mask)


@dataclass(frozen=True, slots=True)
class Columns:
    """A scatter seen as independent columns: y[place, line] gets updates[j, line] for the places that index[j, line]
    means.

    extents, weights: of the index tuples, and how a place is counted from one. depth, depth_stride: places there are,
    and how far y's are apart. shape: of the lines; x, index, update: how each steps along it; updated: its part that
    has updates. n_updates: per line, index_stride and update_stride apart.
    """

    extents: tuple[int, ...]
    weights: tuple[int, ...]
    depth: int
    depth_stride: int
    shape: tuple[int, ...]
    x: tuple[int, ...]
    index: tuple[int, ...]
    update: tuple[int, ...]
    updated: tuple[int, ...]
    n_lines: int
    n_updates: int
    index_stride: int
    update_stride: int


def scatter_in_order(
    x: Buffer, indices: Buffer, updates: Buffer, y: Buffer, columns: Columns, reduction: str, target: Target
) -> Launch:
    """y = x with the updates added or multiplied in, one after the other. x: of a floating-point type."""
    lines = power_of_two(columns.n_lines, 64 if target.interpreted else 128)
    depth = power_of_two(columns.depth, 1024 if target.interpreted else 4)
    return launch(
        scatter_in_order_kernel,
        (cdiv(columns.depth, depth) * cdiv(columns.n_lines, lines),),
        writes=y,
        inplace=((y, x),),
        x_ptr=x,
        index_ptr=indices,
        update_ptr=updates,
        y_ptr=y,
        extents=columns.extents,
        weights=columns.weights,
        axis_stride=columns.depth_stride,
        axis_extent=columns.depth,
        line_shape=columns.shape,
        line_steps=(columns.x, columns.index, columns.update, columns.updated),
        n_lines=columns.n_lines,
        n_updates=columns.n_updates,
        index_stride=columns.index_stride,
        update_stride=columns.update_stride,
        REDUCTION=reduction,
        DEPTH=depth,
        LINES=lines,
        CHUNK=32,
    )
