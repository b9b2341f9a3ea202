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
    streaming_tile,
    streaming_warps,
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
def best_of_lanes(best, index, LARGEST: tl.constexpr, LAST: tl.constexpr):
    """The best along axis 1 and its index; -1 where no lane has one."""
    value = tl.max(best, axis=1, keep_dims=True) if LARGEST else tl.min(best, axis=1, keep_dims=True)
    at_best = (index >= 0) & (best == value)
    if LAST:
        return value, tl.max(tl.where(at_best, index, -1), axis=1, keep_dims=True)
    else:
        first = tl.min(tl.where(at_best, index, 2**31 - 1), axis=1, keep_dims=True)
        return value, tl.where(first == 2**31 - 1, -1, first)


@triton.jit
def arg_reduce_kernel(
    x_ptr, x_index_ptr, value_ptr, index_ptr, n_rows, kept1, reduced1, n_inner, n_steps, chunk,
    LARGEST: tl.constexpr, LAST: tl.constexpr, WORST: tl.constexpr, TYPE: tl.constexpr,
    NESTED: tl.constexpr, WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_STEPS: tl.constexpr, BLOCK_INNER: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """index[part, row, k] = argmax over the part's steps of x[row, step, k]; value is what stands there.

    As onnxruntime has it, NaN is passed over except at step 0, where it wins. In a second pass x are the values of the
    parts and x_index what they came from, -1 where a part had none. A row where nothing is better than WORST has that
    at step 0, or NaN.
    """
    inner_blocks = tl.cdiv(n_inner, BLOCK_INNER)
    row = ((tl.program_id(0) // inner_blocks).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None, None]
    k = ((tl.program_id(0) % inner_blocks) * BLOCK_INNER + tl.arange(0, BLOCK_INNER))[None, None, :]
    part = tl.program_id(1)
    base = row_offsets(row, kept1, reduced1, n_inner, n_steps, NESTED) + k
    live = (row < n_rows) & (k < n_inner)
    lane = tl.arange(0, BLOCK_STEPS)[None, :, None]
    best = tl.full((BLOCK_ROWS, BLOCK_STEPS, BLOCK_INNER), WORST, as_type(tl.zeros((1,), tl.int32), TYPE).dtype)
    best_index = tl.full((BLOCK_ROWS, BLOCK_STEPS, BLOCK_INNER), -1, tl.int32)
    begin, end = part_bounds(part, chunk, n_steps, WIDE)
    for start in range(begin, end, UNROLL * BLOCK_STEPS):
        for i in tl.static_range(UNROLL):
            first = start + i * BLOCK_STEPS
            mask = live & (first + lane < end)
            offsets = base + step_offsets(first + lane, kept1, reduced1, n_inner, NESTED, WIDE)
            x = as_type(tl.load(x_ptr + offsets, mask, other=WORST), TYPE)
            taken = replaces(x, best, LARGEST, LAST)
            if x_index_ptr is None:
                taken = taken & mask if LAST else taken
                best_index = tl.where(taken, first.to(tl.int32), best_index)  # the same in every lane until the end
            else:
                index = tl.load(x_index_ptr + offsets, mask, other=-1).to(tl.int32)
                taken = taken & (index >= 0)
                best_index = tl.where(taken, index, best_index)
            best = tl.where(taken, x, best)
    if x_index_ptr is None:
        best_index = tl.where(best_index < 0, -1, best_index + lane)
    value, index = best_of_lanes(best, best_index, LARGEST, LAST)
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
    tile = streaming_tile(geometry, x.itemsize, target)
    splits = splits_for(geometry, tile, target)
    if splits == 1:
        return (_pass(x, None, None, index, geometry, tile, 1, largest, last),)
    values = node.temporary((splits, geometry.outputs), accumulator_of(x.dtype))
    indices = node.temporary((splits, geometry.outputs), "int64")
    rest = Geometry(1, 1, 1, splits, geometry.outputs)
    rest_tile = streaming_tile(rest, values.itemsize, target)
    return (
        _pass(x, None, values, indices, geometry, tile, splits, largest, last),
        _pass(values, indices, None, index, rest, rest_tile, 1, largest, last),
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
) -> Launch:
    taken = tile.steps * tile.unroll
    return launch(
        arg_reduce_kernel,
        (tile.programs(geometry), splits),
        writes=index if value is None else (value, index),
        num_warps=streaming_warps(tile),
        x_ptr=x,
        x_index_ptr=x_index,
        value_ptr=value,
        index_ptr=index,
        chunk=cdiv(cdiv(geometry.steps, taken), splits) * taken,
        LARGEST=largest,
        LAST=last,
        WORST=_worst(x.dtype, largest),
        TYPE=accumulator_of(x.dtype),
        UNROLL=tile.unroll,
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
