"""Softmax and LogSoftmax along any axis, without a transpose.

A row that fits one program's registers is read once. A longer one is read twice: by one program, the second time from
cache, where there are enough rows for that; else programs that share a row first leave their maximum and sum of
exponentials, then each combines them all and writes its part.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton
import triton.language as tl

from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.kernels.launch import launch
from gossamer.kernels.logsumexp import exponentials_of_steps
from gossamer.kernels.reduction_geometry import (
    STREAMS,
    Geometry,
    Tile,
    as_type,
    cached_rows,
    edge_steps,
    float_accumulator,
    geometry_of,
    part_bounds,
    part_tile,
    resident_tile,
    runs_of,
    step_offsets,
    streaming_tile,
    streaming_warps,
    vector_of,
    warps_for,
)
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import Node
from gossamer.program import Buffer, Launch, Target

PARTIALS = 4096
"""Partial results a program combines at most, over all rows of its tile."""


@triton.jit
def softmax_of(x, most, total, LOG: tl.constexpr):
    """exp(x - most) / total, or its logarithm."""
    x -= most
    return x - tl.log(total) if LOG else tl.exp(x) / total


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
    BLOCK_ROWS: tl.constexpr, BLOCK_STEPS: tl.constexpr, BLOCK_INNER: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """most[part, row, k] = max of x over the part's steps; total = sum of exp(x - most)."""
    inner_blocks = tl.cdiv(n_inner, BLOCK_INNER)
    row = ((tl.program_id(0) // inner_blocks).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None, None]
    k = ((tl.program_id(0) % inner_blocks) * BLOCK_INNER + tl.arange(0, BLOCK_INNER))[None, None, :]
    part = tl.program_id(1)
    live = (row < n_rows) & (k < n_inner)
    begin, end = part_bounds(part, chunk, n_steps, WIDE)
    row_most, row_total = exponentials_of_steps(
        x_ptr + row * n_steps * n_inner + k, live, begin, end, 1, n_steps, n_inner,
        LOWEST, float("inf"), TYPE, False, WIDE, BLOCK_ROWS, BLOCK_STEPS, BLOCK_INNER, UNROLL,
    )  # fmt: skip
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
    step = (tl.program_id(0) % step_blocks * BLOCK_STEPS + tl.arange(0, BLOCK_STEPS))[None, :, None]
    offsets = row * n_steps * n_inner + k + step_offsets(step, 1, n_steps, n_inner, False, WIDE)
    mask = live & (step < n_steps)
    x = as_type(tl.load(x_ptr + offsets, mask, other=0.0), TYPE)
    part = tl.arange(0, BLOCK_PARTS)[None, :, None]
    partial = part.to(tl.int64) * n_rows * n_inner + row * n_inner + k
    part_most = tl.load(most_ptr + partial, live & (part < n_parts), other=LOWEST)
    part_total = tl.load(total_ptr + partial, live & (part < n_parts), other=0.0)
    most = tl.max(part_most, axis=1, keep_dims=True)
    total = tl.sum(part_total * tl.exp(part_most - most), axis=1, keep_dims=True)
    tl.store(y_ptr + offsets, softmax_of(x, most, total, LOG).to(y_ptr.dtype.element_ty), mask)


@triton.jit
def softmax_cached_rows_kernel(
    x_ptr, y_ptr, n_steps,
    LOG: tl.constexpr, LOWEST: tl.constexpr, TYPE: tl.constexpr, VECTOR: tl.constexpr,
    BLOCK_STEPS: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """y = exp(x - max x) / sum of exp(x - max x), or its logarithm, of one row, which is read twice."""
    row_start = tl.program_id(0).to(tl.int64) * n_steps
    edge, exists, head, body = edge_steps(row_start, n_steps, VECTOR)
    body_start = tl.multiple_of(row_start + head, VECTOR)
    live = tl.full((1, 1, 1), True, tl.int1)
    if VECTOR > 1:  # before lanes meet: y may stand where x does, and every warp loads these
        rest = as_type(tl.load(x_ptr + row_start + edge, exists, other=float("-inf")), TYPE)
    most, total = exponentials_of_steps(
        x_ptr + body_start + tl.zeros((1, 1, 1), tl.int32), live, 0, body, 1, n_steps, 1,
        LOWEST, float("inf"), TYPE, False, False, 1, BLOCK_STEPS, 1, UNROLL,
    )  # fmt: skip
    if VECTOR > 1:
        higher = tl.maximum(most, tl.max(rest, axis=1, keep_dims=True))
        total = total * tl.exp(most - higher) + tl.sum(tl.exp(rest - higher), axis=1, keep_dims=True)
        most = higher
        tl.store(y_ptr + row_start + edge, softmax_of(rest, most, total, LOG).to(y_ptr.dtype.element_ty), exists)
    lane = tl.arange(0, UNROLL)[:, None, None] * BLOCK_STEPS + tl.arange(0, BLOCK_STEPS)[None, :, None]
    for start in range(0, body, UNROLL * BLOCK_STEPS):
        step = start + lane
        x = tl.load(x_ptr + body_start + step, step < body, other=0.0, eviction_policy="evict_first")
        y = softmax_of(as_type(x, TYPE), most, total, LOG).to(y_ptr.dtype.element_ty)
        tl.store(y_ptr + body_start + step, y, step < body, eviction_policy="evict_first")


def softmax_calls(
    node: Node, x: Buffer, y: Buffer, geometry: Geometry, target: Target, *, log: bool = False
) -> tuple[Launch, ...]:
    """The launches that write the softmax of `x` along the steps of `geometry`, which is not nested, to `y`."""
    shared: dict[str, Any] = {"LOG": log, "TYPE": float_accumulator(x.dtype)}
    tile = resident_tile(geometry, x.itemsize, target)
    if tile is None and (cached := cached_rows(geometry, x.itemsize, target)) is not None:
        return (_cached(x, y, geometry, *cached, shared),)
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


def _cached(x: Buffer, y: Buffer, geometry: Geometry, tile: Tile, num_warps: int, shared: dict[str, Any]) -> Launch:
    return launch(
        softmax_cached_rows_kernel,
        (geometry.rows,),
        writes=y,
        num_warps=num_warps,
        inplace=((y, x),),
        x_ptr=x,
        y_ptr=y,
        n_steps=geometry.steps,
        LOWEST=float(np.finfo(shared["TYPE"]).min),
        VECTOR=vector_of(geometry.steps, x.itemsize),
        BLOCK_STEPS=tile.steps,
        UNROLL=tile.unroll,
        **shared,
    )


def _in_parts(
    node: Node, x: Buffer, y: Buffer, geometry: Geometry, target: Target, shared: dict[str, Any]
) -> tuple[Launch, ...]:
    """Parts as many as fill the machine, and as one program of the second launch can combine."""
    strip = streaming_tile(geometry, x.itemsize, target)
    tile = part_tile(geometry, x.itemsize, target)
    blocks = cdiv(geometry.steps, strip.steps * strip.unroll)
    programs = max(1, strip.programs(geometry))
    parts = max(1, min(blocks, PARTIALS // (tile.rows * tile.inner), STREAMS * target.sm_count // programs))
    accumulator = float_accumulator(x.dtype)
    most, total = (node.temporary((parts, geometry.outputs), accumulator) for _ in range(2))
    lowest = float(np.finfo(accumulator).min)
    partials = launch(
        softmax_partials_kernel,
        (strip.programs(geometry), parts),
        writes=(most, total),
        num_warps=streaming_warps(strip),
        x_ptr=x,
        most_ptr=most,
        total_ptr=total,
        chunk=cdiv(blocks, parts) * strip.steps * strip.unroll,
        LOWEST=lowest,
        TYPE=accumulator,
        UNROLL=strip.unroll,
        **_extents(geometry),
        **strip.constants(),
    )
    step_blocks = cdiv(geometry.steps, tile.steps)
    combined = launch(
        softmax_from_partials_kernel,
        (tile.programs(geometry) * step_blocks,),
        writes=y,
        num_warps=warps_for(tile.elements, tile.programs(geometry) * step_blocks, target),
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


def softmax_geometry(node: Node) -> Geometry:
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
    return softmax_calls(node, node.x, node.y, softmax_geometry(node), target, log=node.op_type == "LogSoftmax")
