"""Softmax, LogSoftmax and Hardmax along any axis, without a transpose.

A row that fits one program's registers is read once. A longer one is read twice: programs that share a row first leave
their maximum and sum of exponentials, then each combines them all and writes its part.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton
import triton.language as tl

from gossamer.kernels.arg_reduction import arg_calls
from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.kernels.launch import launch
from gossamer.kernels.reduction_geometry import (
    Geometry,
    as_type,
    float_accumulator,
    geometry_of,
    part_bounds,
    resident_tile,
    runs_of,
    step_offsets,
    tile_for,
    warps_for,
)
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import Node
from gossamer.program import Buffer, Call, Launch, Target

PARTIALS = 4096
"""Partial results a program combines at most, over all rows of its tile."""


@triton.jit
def softmax_kernel(
    x_ptr, y_ptr, n_rows, n_inner, n_steps,
    LOG: tl.constexpr, TYPE: tl.constexpr, WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_STEPS: tl.constexpr, BLOCK_INNER: tl.constexpr,
):  # fmt: skip
    """y = exp(x - max x) / sum of exp(x - max x) along the steps, or its logarithm; a tile holds all steps."""
    inner_blocks = tl.cdiv(n_inner, BLOCK_INNER)
    row = ((tl.program_id(0) // inner_blocks).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None, None]
    k = ((tl.program_id(0) % inner_blocks) * BLOCK_INNER + tl.arange(0, BLOCK_INNER))[None, None, :]
    step = tl.arange(0, BLOCK_STEPS)[None, :, None]
    mask = (row < n_rows) & (k < n_inner) & (step < n_steps)
    offsets = row * n_steps * n_inner + k + step_offsets(step, 1, n_steps, n_inner, False, WIDE)
    x = as_type(tl.load(x_ptr + offsets, mask, other=float("-inf")), TYPE)
    x -= tl.max(x, axis=1, keep_dims=True)
    power = tl.exp(x)
    total = tl.sum(power, axis=1, keep_dims=True)
    y = x - tl.log(total) if LOG else power / total
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask)


@triton.jit
def softmax_partials_kernel(
    x_ptr, most_ptr, total_ptr, n_rows, n_inner, n_steps, chunk,
    LOWEST: tl.constexpr, TYPE: tl.constexpr, WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_STEPS: tl.constexpr, BLOCK_INNER: tl.constexpr,
):  # fmt: skip
    """most[part, row, k] = max of x over the part's steps; total = sum of exp(x - most)."""
    inner_blocks = tl.cdiv(n_inner, BLOCK_INNER)
    row = ((tl.program_id(0) // inner_blocks).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None, None]
    k = ((tl.program_id(0) % inner_blocks) * BLOCK_INNER + tl.arange(0, BLOCK_INNER))[None, None, :]
    part = tl.program_id(1)
    live = (row < n_rows) & (k < n_inner)
    base_ptr = x_ptr + row * n_steps * n_inner + k
    total = as_type(tl.zeros((BLOCK_ROWS, BLOCK_STEPS, BLOCK_INNER), tl.int32), TYPE)
    most = total + LOWEST  # finite, so that minus infinity less the maximum is no NaN
    begin, end = part_bounds(part, chunk, n_steps, WIDE)
    for start in range(begin, end, BLOCK_STEPS):
        step = (start + tl.arange(0, BLOCK_STEPS))[None, :, None]
        mask = live & (step < end)
        x_ptrs = base_ptr + step_offsets(step, 1, n_steps, n_inner, False, WIDE)
        x = as_type(tl.load(x_ptrs, mask, other=float("-inf")), TYPE)
        decay = tl.exp(-tl.abs(x - most))  # one exponential serves both the old sum and the new term
        total = tl.where(x > most, total * decay + 1, total + decay)
        most = tl.maximum(most, x)
    row_most = tl.max(most, axis=1, keep_dims=True)
    row_total = tl.sum(total * tl.exp(most - row_most), axis=1, keep_dims=True)
    out = part.to(tl.int64) * n_rows * n_inner + row * n_inner + k
    tl.store(most_ptr + out, row_most, live)
    tl.store(total_ptr + out, row_total, live)


@triton.jit
def softmax_from_partials_kernel(
    x_ptr, y_ptr, most_ptr, total_ptr, n_rows, n_inner, n_steps, n_parts,
    LOG: tl.constexpr, LOWEST: tl.constexpr, TYPE: tl.constexpr, WIDE: tl.constexpr, BLOCK_PARTS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_STEPS: tl.constexpr, BLOCK_INNER: tl.constexpr,
):  # fmt: skip
    """y = exp(x - most) / total, or its logarithm, with most and total combined from those of the row's parts."""
    inner_blocks = tl.cdiv(n_inner, BLOCK_INNER)
    step_blocks = tl.cdiv(n_steps, BLOCK_STEPS)
    block = tl.program_id(0) // step_blocks
    row = ((block // inner_blocks).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None, None]
    k = ((block % inner_blocks) * BLOCK_INNER + tl.arange(0, BLOCK_INNER))[None, None, :]
    live = (row < n_rows) & (k < n_inner)
    part = tl.arange(0, BLOCK_PARTS)[None, :, None]
    partial = part.to(tl.int64) * n_rows * n_inner + row * n_inner + k
    part_most = tl.load(most_ptr + partial, live & (part < n_parts), other=LOWEST)
    part_total = tl.load(total_ptr + partial, live & (part < n_parts), other=0.0)
    most = tl.max(part_most, axis=1, keep_dims=True)
    total = tl.sum(part_total * tl.exp(part_most - most), axis=1, keep_dims=True)
    step = (tl.program_id(0) % step_blocks * BLOCK_STEPS + tl.arange(0, BLOCK_STEPS))[None, :, None]
    offsets = row * n_steps * n_inner + k + step_offsets(step, 1, n_steps, n_inner, False, WIDE)
    mask = live & (step < n_steps)
    x = as_type(tl.load(x_ptr + offsets, mask, other=0.0), TYPE) - most
    y = x - tl.log(total) if LOG else tl.exp(x) / total
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask)


@triton.jit
def one_hot_kernel(index_ptr, y_ptr, n_elements, n_inner, n_steps, BLOCK: tl.constexpr):
    """y[row, step, k] = 1 where step = index[row, k], else 0."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    outer = i // n_inner
    index = tl.load(index_ptr + (outer // n_steps) * n_inner + i % n_inner, i < n_elements, other=-1)
    tl.store(y_ptr + i, (outer % n_steps == index).to(y_ptr.dtype.element_ty), i < n_elements)


def softmax_calls(
    node: Node, x: Buffer, y: Buffer, geometry: Geometry, target: Target, *, log: bool = False
) -> tuple[Launch, ...]:
    """The launches that write the softmax of `x` along the steps of `geometry`, which is not nested, to `y`."""
    shared: dict[str, Any] = {"LOG": log, "TYPE": float_accumulator(x.dtype)}
    tile = resident_tile(geometry, x.itemsize, target)
    if tile is None:
        return _in_parts(node, x, y, geometry, target, shared)
    return (
        launch(
            softmax_kernel,
            (tile.programs(geometry),),
            writes=y,
            num_warps=warps_for(tile.elements, tile.programs(geometry), target, most=16),
            inplace=((y, x),),
            x_ptr=x,
            y_ptr=y,
            **shared,
            **_extents(geometry),
            **tile.constants(),
        ),
    )


def _extents(geometry: Geometry) -> dict[str, Any]:
    return {"n_rows": geometry.rows, "n_inner": geometry.inner, "n_steps": geometry.steps, "WIDE": geometry.wide}


def _in_parts(
    node: Node, x: Buffer, y: Buffer, geometry: Geometry, target: Target, shared: dict[str, Any]
) -> tuple[Launch, ...]:
    tile = tile_for(geometry, x.itemsize, target)
    blocks = cdiv(geometry.steps, tile.steps)
    parts = min(blocks, PARTIALS // (tile.rows * tile.inner), 4 * target.sm_count // max(1, tile.programs(geometry)))
    parts = max(1, parts)
    accumulator = float_accumulator(x.dtype)
    most, total = (node.temporary((parts, geometry.outputs), accumulator) for _ in range(2))
    lowest = float(np.finfo(accumulator).min)
    partials = launch(
        softmax_partials_kernel,
        (tile.programs(geometry), parts),
        writes=(most, total),
        num_warps=warps_for(tile.elements, tile.programs(geometry) * parts, target),
        x_ptr=x,
        most_ptr=most,
        total_ptr=total,
        chunk=cdiv(blocks, parts) * tile.steps,
        LOWEST=lowest,
        TYPE=accumulator,
        **_extents(geometry),
        **tile.constants(),
    )
    combined = launch(
        softmax_from_partials_kernel,
        (tile.programs(geometry) * blocks,),
        writes=y,
        num_warps=warps_for(tile.elements, tile.programs(geometry) * blocks, target),
        inplace=((y, x),),
        x_ptr=x,
        y_ptr=y,
        most_ptr=most,
        total_ptr=total,
        n_parts=parts,
        LOWEST=lowest,
        BLOCK_PARTS=power_of_two(parts),
        **shared,
        **_extents(geometry),
        **tile.constants(),
    )
    return partials, combined


def _softmax_geometry(node: Node) -> Geometry:
    """Up to opset 12 the axes from `axis` on are one, since 13 only `axis` counts.

    Before opset 11 `axis` may be the rank, and is by default where that is 1: rows then have one element.
    """
    shape = node.x.shape or (1,)
    axis = node.attribute("axis", 1 if node.version < 13 else -1)
    axis += len(shape) if axis < 0 else 0
    axes = (axis,) if node.version >= 13 else tuple(range(axis, len(shape)))
    geometry = geometry_of(runs_of(shape, axes))
    assert geometry is not None
    return geometry


@lowers("Softmax", "LogSoftmax")
def lower_softmax(node: Node, target: Target) -> Lowered:
    """Softmax, LogSoftmax, opset 1 to 13, in fp32 (fp64 in fp64)."""
    return softmax_calls(node, node.x, node.y, _softmax_geometry(node), target, log=node.op_type == "LogSoftmax")


@lowers("Hardmax")
def lower_hardmax(node: Node, target: Target) -> Lowered:
    """Hardmax, opset 1 to 13: one at the first of the largest, else zero."""
    if node.x.size == 0:
        return ()
    geometry = _softmax_geometry(node)
    rows = node.x.reshaped(geometry.rows, geometry.steps, geometry.inner)
    index = node.temporary((geometry.outputs,), "int64")
    calls: tuple[Call, ...] = arg_calls(node, rows, index, 1, target)
    block = 2**14 if target.interpreted else 1024
    mark = launch(
        one_hot_kernel,
        (cdiv(node.x.size, block),),
        writes=node.y,
        index_ptr=index,
        y_ptr=node.y,
        n_elements=node.x.size,
        n_inner=geometry.inner,
        n_steps=geometry.steps,
        BLOCK=block,
    )
    return (*calls, mark)
