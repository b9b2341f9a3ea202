"""Scatter in all its forms: x with some elements replaced by, or combined with, updates.

An index outside of its axis is an error in ONNX that a GPU cannot raise: here it does nothing.
"""

from __future__ import annotations

import math
from typing import Any

import triton
import triton.language as tl

from gossamer.kernels.copies import as_words, choose_tile, is_wide, movable, offset_along, power_of_two
from gossamer.kernels.indexing import FLAT_BLOCK, other_axes, place_of, place_of_tuple
from gossamer.kernels.launch import launch
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import Node
from gossamer.program import Buffer, Call, Copy, Launch, Target


@triton.jit
def scatter_elements_kernel(
    update_ptr, index_ptr, y_ptr, others, axis_stride, extent, size, BLOCK: tl.constexpr, WIDE: tl.constexpr
):  # fmt: skip
    """y[i with index[i] as its coordinate on the axis] = update[i]; others: how y steps along index's other axes."""
    pid = tl.program_id(0)
    if WIDE:
        pid = pid.to(tl.int64)
    at = pid * BLOCK + tl.arange(0, BLOCK)
    mask = at < size
    place, inside = place_of(tl.load(index_ptr + at, mask=mask, other=0), extent)
    values = tl.load(update_ptr + at, mask=mask)
    tl.store(y_ptr + offset_along(at, others) + place * axis_stride, values, mask=mask & inside)


@triton.jit
def scatter_nd_kernel(
    update_ptr, index_ptr, y_ptr, extents, strides, n_rows, inner, ROWS: tl.constexpr, COLS: tl.constexpr
):  # fmt: skip
    """y[index[r, 0], index[r, 1], …, c] = update[r, c]."""
    pid = tl.program_id(0).to(tl.int64)
    col_tiles = tl.cdiv(inner, COLS)
    rows = pid // col_tiles * ROWS + tl.arange(0, ROWS)
    cols = pid % col_tiles * COLS + tl.arange(0, COLS)
    row_mask, col_mask = rows < n_rows, cols < inner
    place, inside = place_of_tuple(index_ptr + rows * len(extents), extents, strides, row_mask)
    mask = inside[:, None] & col_mask[None, :]
    values = tl.load(update_ptr + (rows * inner)[:, None] + cols[None, :], mask=mask)
    tl.store(y_ptr + place[:, None] + cols[None, :], values, mask=mask)


@triton.jit
def combine(a, b, REDUCTION: tl.constexpr):
    """a ∘ b; a NaN wins."""
    if REDUCTION == "add":
        a = a + b
    elif REDUCTION == "mul":
        a = a * b
    elif REDUCTION == "max":
        a = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    else:
        tl.static_assert(REDUCTION == "min")
        a = tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
    return a


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
def scatter_reduce_kernel(
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
):
    """y[d, l] = x[d, l] ∘ update[j_1, l] ∘ update[j_2, l] … over the j, in order, whose index[j, l] means d.

    A program owns DEPTH × LINES elements of y and looks at all updates of its lines: results do not depend on timing,
    and are those of a loop over the updates. line_steps: strides of x, index and update along line_shape, and its part
    that has updates.
    """
    line_tiles = tl.cdiv(n_lines, LINES)
    pid = tl.program_id(0).to(tl.int64)
    depth = pid // line_tiles * DEPTH + tl.arange(0, DEPTH)
    line = pid % line_tiles * LINES + tl.arange(0, LINES)
    at_line, index_line, update_line, updated = lines_of(line, line_shape, line_steps)
    mask = (depth < axis_extent)[:, None] & (line < n_lines)[None, :]
    at = (depth * axis_stride)[:, None] + at_line[None, :]
    accumulator = tl.load(x_ptr + at, mask=mask)
    if accumulator.dtype.is_floating() and accumulator.dtype.primitive_bitwidth < 32:
        accumulator = accumulator.to(tl.float32)
    index_ptrs, update_ptrs = index_ptr + index_line, update_ptr + update_line
    updated = updated & (line < n_lines)
    for _ in range(n_updates):
        place, hits = place_of_tuple(index_ptrs, extents, weights, updated)
        update = tl.load(update_ptrs, mask=updated).to(accumulator.dtype)
        chosen = (depth[:, None] == place[None, :]) & hits[None, :]
        accumulator = tl.where(chosen, combine(accumulator, update[None, :], REDUCTION), accumulator)
        index_ptrs += index_stride
        update_ptrs += update_stride
    tl.store(y_ptr + at, accumulator.to(y_ptr.dtype.element_ty), mask=mask)


@lowers("Scatter", "ScatterElements")
def lower_scatter_elements(node: Node, target: Target) -> Lowered:
    """x with updates[i] at (or reduced into) i with indices[i] as its coordinate on the axis.

    ONNX Scatter 9, ScatterElements 11, reductions since 16 (add, mul) and 18 (max, min): in order of the updates, so
    deterministic. Without reduction ONNX forbids that two updates meet; where they do, which one stays is not defined.
    """
    x, y, indices, updates = node.x, node.y, node.inputs[1], node.inputs[2]
    assert indices is not None
    assert updates is not None
    if refusal := movable(x):
        return refusal
    axis = node.attribute("axis", 0) % x.rank
    reduction: str = node.attribute("reduction", "none")
    if reduction != "none":
        return _reduce_elements(x, indices, updates, y, axis, reduction, target)
    block = 2**16 if target.interpreted else FLAT_BLOCK
    scatter = launch(
        scatter_elements_kernel,
        (-(-updates.size // block),),
        writes=y,
        update_ptr=as_words(updates),
        index_ptr=indices,
        y_ptr=as_words(y),
        others=other_axes(x, indices, axis),
        axis_stride=x.strides[axis],
        extent=x.shape[axis],
        size=updates.size,
        BLOCK=block,
        WIDE=is_wide(x.size, updates.size),
    )
    return (*_copy_of(x, y), scatter)


def _reduce_elements(
    x: Buffer, indices: Buffer, updates: Buffer, y: Buffer, axis: int, reduction: str, target: Target
) -> Lowered:
    others = [d for d in range(x.rank) if d != axis]
    shape = tuple(x.shape[d] for d in others)
    steps = [tuple(of.strides[d] for d in others) for of in (x, indices, updates)]
    return (
        _launch_reduce(
            (x, indices, updates, y),
            reduction,
            target,
            extents=(x.shape[axis],),
            weights=(1,),
            axis_stride=x.strides[axis],
            axis_extent=x.shape[axis],
            line_shape=shape or (1,),
            line_steps=(*(step or (0,) for step in steps), tuple(indices.shape[d] for d in others) or (1,)),
            n_lines=math.prod(shape),
            n_updates=indices.shape[axis],
            index_stride=indices.strides[axis],
            update_stride=updates.strides[axis],
        ),
    )


@lowers("ScatterND")
def lower_scatter_nd(node: Node, target: Target) -> Lowered:
    """x with slices of the updates at (or reduced into) the index tuples, the last axis of the indices.

    ONNX ScatterND 11, reductions since 16 (add, mul) and 18 (max, min). As to order: see ScatterElements.
    """
    x, y, indices, updates = node.x, node.y, node.inputs[1], node.inputs[2]
    assert indices is not None
    assert updates is not None
    if refusal := movable(x):
        return refusal
    length = indices.shape[-1]
    extents, inner, n_rows = x.shape[:length], math.prod(x.shape[length:]), math.prod(indices.shape[:-1])
    reduction: str = node.attribute("reduction", "none")
    if reduction != "none":
        reduce = _launch_reduce(
            (x, indices, updates, y),
            reduction,
            target,
            extents=extents,
            weights=tuple(stride // max(inner, 1) for stride in x.strides[:length]),
            axis_stride=inner,
            axis_extent=math.prod(extents),
            line_shape=(inner,),
            line_steps=((1,), (0,), (1,), (inner,)),
            n_lines=inner,
            n_updates=n_rows,
            index_stride=length,
            update_stride=inner,
        )
        return (reduce,)
    rows, cols = choose_tile(n_rows, inner, x.itemsize, False, target)
    scatter = launch(
        scatter_nd_kernel,
        (-(-n_rows // rows) * -(-inner // cols),),
        writes=y,
        update_ptr=as_words(updates),
        index_ptr=indices,
        y_ptr=as_words(y),
        extents=extents,
        strides=x.strides[:length],
        n_rows=n_rows,
        inner=inner,
        ROWS=rows,
        COLS=cols,
    )
    return (*_copy_of(x, y), scatter)


def _copy_of(x: Buffer, y: Buffer) -> tuple[Call, ...]:
    """y = x, in memory of its own: it is written to."""
    return (Copy(x.name, y.name, x.nbytes),) if x.nbytes else ()


def _launch_reduce(
    buffers: tuple[Buffer, Buffer, Buffer, Buffer], reduction: str, target: Target, **arguments: Any
) -> Launch:
    x, indices, updates, y = buffers
    if x.dtype == "bool":  # one byte, 0 or 1: or is max, and is min
        x, updates, y = as_words(x), as_words(updates), as_words(y)
        reduction = {"add": "max", "mul": "min"}.get(reduction, reduction)
    elements = 2**16 if target.interpreted else 1024
    lines = power_of_two(arguments["n_lines"], 64)
    depth = power_of_two(arguments["axis_extent"], elements // lines)
    return launch(
        scatter_reduce_kernel,
        (-(-arguments["axis_extent"] // depth) * -(-arguments["n_lines"] // lines),),
        writes=y,
        inplace=((y, x),),
        x_ptr=x,
        index_ptr=indices,
        update_ptr=updates,
        y_ptr=y,
        REDUCTION=reduction,
        DEPTH=depth,
        LINES=lines,
        **arguments,
    )
