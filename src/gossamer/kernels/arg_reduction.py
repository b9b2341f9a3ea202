"""ArgMax and ArgMin along any axis, without a transpose; few long rows are split over programs in a first pass."""

from __future__ import annotations

import math

import numpy as np
import triton
import triton.language as tl

from gossamer.kernels.extents import cdiv
from gossamer.kernels.launch import launch
from gossamer.kernels.reduction_geometry import (
    Geometry,
    Tile,
    accumulator_of,
    as_type,
    geometry_of,
    part_bounds,
    row_offsets,
    runs_of,
    splits_for,
    step_offsets,
    tile_for,
    warps_for,
)
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import Node
from gossamer.program import Buffer, Launch, Refusal, Target, dtype_of


@triton.jit
def replaces(a, b, LARGEST: tl.constexpr, LAST: tl.constexpr):
    """Whether `a`, which comes later, takes the place of `b`; False where either is NaN."""
    if LARGEST:
        return a >= b if LAST else a > b
    else:
        return a <= b if LAST else a < b


@triton.jit
def arg_reduce_kernel(
    x_ptr, x_index_ptr, value_ptr, index_ptr, n_rows, kept1, reduced1, n_inner, n_steps, chunk,
    LARGEST: tl.constexpr, LAST: tl.constexpr, WORST: tl.constexpr, TYPE: tl.constexpr,
    NESTED: tl.constexpr, WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_STEPS: tl.constexpr, BLOCK_INNER: tl.constexpr,
):  # fmt: skip
    """index[part, row, k] = argmax over the part's steps of x[row, step, k]; value is what stands there.

    As onnxruntime has it, NaN is passed over except at step 0, where it wins. In a second pass x are the values of the
    parts and x_index what they came from, -1 where a part had none.
    """
    inner_blocks = tl.cdiv(n_inner, BLOCK_INNER)
    row = ((tl.program_id(0) // inner_blocks).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None, None]
    k = ((tl.program_id(0) % inner_blocks) * BLOCK_INNER + tl.arange(0, BLOCK_INNER))[None, None, :]
    part = tl.program_id(1)
    base = row_offsets(row, kept1, reduced1, n_inner, n_steps, NESTED) + k
    live = (row < n_rows) & (k < n_inner)
    origin = as_type(tl.zeros((BLOCK_ROWS, BLOCK_STEPS, BLOCK_INNER), tl.int32), TYPE)
    best = tl.full((BLOCK_ROWS, BLOCK_STEPS, BLOCK_INNER), WORST, origin.dtype)
    best_index = tl.full((BLOCK_ROWS, BLOCK_STEPS, BLOCK_INNER), -1, tl.int32)
    begin, end = part_bounds(part, chunk, n_steps, WIDE)
    for start in range(begin, end, BLOCK_STEPS):
        step = (start + tl.arange(0, BLOCK_STEPS))[None, :, None]
        mask = live & (step < end)
        offsets = base + step_offsets(step, kept1, reduced1, n_inner, NESTED, WIDE)
        x = as_type(tl.load(x_ptr + offsets, mask, other=0), TYPE)
        index = step if x_index_ptr is None else tl.load(x_index_ptr + offsets, mask, other=-1)
        # Until a lane holds a number, any number will do, the worst included.
        taken = mask & (index >= 0) & (replaces(x, best, LARGEST, LAST) | ((best_index < 0) & (x == x)))  # noqa: PLR0124
        best = tl.where(taken, x, best)
        best_index = tl.where(taken, index.to(best_index.dtype), best_index)
    found = best_index >= 0
    value = tl.max(best, axis=1, keep_dims=True) if LARGEST else tl.min(best, axis=1, keep_dims=True)
    at_best = found & (best == value)
    if LAST:
        index = tl.max(tl.where(at_best, best_index, -1), axis=1, keep_dims=True)
    else:
        first = tl.min(tl.where(at_best, best_index, 2**31 - 1), axis=1, keep_dims=True)
        index = tl.where(tl.max(found.to(tl.int32), axis=1, keep_dims=True) > 0, first, -1)
    start = as_type(tl.load(x_ptr + base, live, other=0), TYPE)
    stuck = (part == 0) & (start != start)  # noqa: PLR0124
    index = tl.where(stuck, 0, index)
    out = part.to(tl.int64) * n_rows * n_inner + row * n_inner + k
    if value_ptr is None:
        tl.store(index_ptr + out, tl.maximum(index, 0), live)
    else:
        tl.store(index_ptr + out, index, live)
        tl.store(value_ptr + out, tl.where(stuck, start, value), live)


def arg_calls(
    node: Node, x: Buffer, index: Buffer, axis: int, target: Target, *, largest: bool = True, last: bool = False
) -> tuple[Launch, ...]:
    """The launches that write the int64 indices of the extremes of `x` along `axis` (not negative, not empty)."""
    geometry = geometry_of(runs_of(x.shape, (axis,)))
    assert geometry is not None
    tile = tile_for(geometry, x.itemsize, target, elements=2048)
    splits = splits_for(geometry, tile, target)
    if splits == 1:
        return (_pass(x, None, None, index, geometry, tile, 1, largest, last, target),)
    values = node.temporary((splits, geometry.outputs), accumulator_of(x.dtype))
    indices = node.temporary((splits, geometry.outputs), "int64")
    rest = Geometry(1, 1, 1, splits, geometry.outputs)
    rest_tile = tile_for(rest, 8, target, elements=2048)
    return (
        _pass(x, None, values, indices, geometry, tile, splits, largest, last, target),
        _pass(values, indices, None, index, rest, rest_tile, 1, largest, last, target),
    )


def _pass(
    x: Buffer,
    x_index: Buffer | None,
    value: Buffer | None,
    index: Buffer,
    geometry: Geometry,
    tile: Tile,
    splits: int,
    largest: bool,
    last: bool,
    target: Target,
) -> Launch:
    blocks = cdiv(geometry.steps, tile.steps)
    return launch(
        arg_reduce_kernel,
        (tile.programs(geometry), splits),
        writes=index if value is None else (value, index),
        num_warps=warps_for(tile.elements, tile.programs(geometry) * splits, target),
        x_ptr=x,
        x_index_ptr=x_index,
        value_ptr=value,
        index_ptr=index,
        chunk=cdiv(blocks, splits) * tile.steps,
        LARGEST=largest,
        LAST=last,
        WORST=_worst(x.dtype, largest),
        TYPE=accumulator_of(x.dtype),
        **geometry.arguments(),
        **tile.constants(),
    )


def _worst(dtype: str, largest: bool) -> int | float:
    if dtype_of(dtype).kind not in "iu":
        return -math.inf if largest else math.inf
    return int(np.iinfo(dtype).min if largest else np.iinfo(dtype).max)


@lowers("ArgMax", "ArgMin")
def lower_arg_reduction(node: Node, target: Target) -> Lowered:
    """ArgMax, ArgMin, opset 1 to 13: the first of equals, or the last with `select_last_index`."""
    axis = node.attribute("axis", 0) % node.x.rank
    if node.y.size == 0:
        return ()
    if not 0 < node.x.shape[axis] < 2**31:
        return Refusal(f"axis {axis} of its input has {node.x.shape[axis]} elements")
    largest, last = node.op_type == "ArgMax", bool(node.attribute("select_last_index", 0))
    return arg_calls(node, node.x, node.y, axis, target, largest=largest, last=last)
