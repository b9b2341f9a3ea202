"""CumSum and CumProd along any axis, without a transpose.

A row is scanned block by block. Where rows are few and long they are cut into parts: a first pass leaves the total of
each part, then each part starts from the totals before it.
"""

from __future__ import annotations

import triton
import triton.language as tl

from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.kernels.launch import launch
from gossamer.kernels.reduction import combined_steps
from gossamer.kernels.reduction_geometry import (
    accumulator_of,
    as_type,
    geometry_of,
    part_bounds,
    runs_of,
    splits_for,
    step_offsets,
    tile_for,
    warps_for,
)
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import Node
from gossamer.program import Buffer, Launch, Target


@triton.jit
def scan_kernel(
    x_ptr, axis_ptr, y_ptr, total_ptr, n_rows, n_inner, n_steps, chunk, axis, rank,
    PRODUCT: tl.constexpr, EXCLUSIVE: tl.constexpr, REVERSE: tl.constexpr, TOTALS: tl.constexpr,
    TYPE: tl.constexpr, WIDE: tl.constexpr, BLOCK_PARTS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_STEPS: tl.constexpr, BLOCK_INNER: tl.constexpr,
):  # fmt: skip
    """y[row, step, k] = sum (or product) of x[row, j, k] over j <= step; exclusive: j < step; reverse: from the end.

    TOTALS: only total[part, row, k], that of the part's steps, is written. Otherwise each part starts from the totals
    of the parts before it, if there are several. Nothing happens where axis_ptr holds another axis than `axis`.
    """
    if axis_ptr is not None:
        wanted = tl.load(axis_ptr)
        if (wanted != axis) & (wanted != axis - rank):
            return
    inner_blocks = tl.cdiv(n_inner, BLOCK_INNER)
    row = ((tl.program_id(0) // inner_blocks).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None, None]
    k = ((tl.program_id(0) % inner_blocks) * BLOCK_INNER + tl.arange(0, BLOCK_INNER))[None, None, :]
    part = tl.program_id(1)
    live = (row < n_rows) & (k < n_inner)
    base = row * n_steps * n_inner + k
    out = row * n_inner + k
    neutral = 1 if PRODUCT else 0
    carry = as_type(tl.full((BLOCK_ROWS, 1, BLOCK_INNER), neutral, tl.int32), TYPE)
    if BLOCK_PARTS > 1 and not TOTALS:
        before = tl.arange(0, BLOCK_PARTS)[None, :, None]
        places = before.to(tl.int64) * n_rows * n_inner + out
        totals = tl.load(total_ptr + places, live & (before < part), other=neutral)
        carry = combined_steps(totals, "prod") if PRODUCT else tl.sum(totals, axis=1, keep_dims=True)
    begin, end = part_bounds(part, chunk, n_steps, WIDE)
    for start in range(begin, end, BLOCK_STEPS):
        step = (start + tl.arange(0, BLOCK_STEPS))[None, :, None]
        # Shifting what is read, rather than taking x off the sum, keeps infinities and rounding out of it.
        source = step - 1 if EXCLUSIVE and not TOTALS else step
        mask = live & (source >= 0) & (step < end)
        place = n_steps - 1 - source if REVERSE else source
        x_ptrs = x_ptr + base + step_offsets(place, 1, n_steps, n_inner, False, WIDE)
        x = as_type(tl.load(x_ptrs, mask, other=neutral), TYPE)
        if EXCLUSIVE and not TOTALS:
            x = tl.where(step == begin, neutral, x)
        if not TOTALS:
            sums = carry * tl.cumprod(x, axis=1) if PRODUCT else carry + tl.cumsum(x, axis=1)
            place = n_steps - 1 - step if REVERSE else step
            y_ptrs = y_ptr + base + step_offsets(place, 1, n_steps, n_inner, False, WIDE)
            tl.store(y_ptrs, sums.to(y_ptr.dtype.element_ty), live & (step < end))
        carry = carry * combined_steps(x, "prod") if PRODUCT else carry + tl.sum(x, axis=1, keep_dims=True)
    if TOTALS:
        tl.store(total_ptr + part.to(tl.int64) * n_rows * n_inner + out, carry, live)


@lowers("CumSum", "CumProd")
def lower_scan(node: Node, target: Target) -> Lowered:
    """CumSum, opset 11 to 14, and CumProd, opset 26; floats in fp32 (fp64 in fp64), integers exact.

    Where the axis is known only when the model runs there are launches for every axis, of which one set goes ahead.
    """
    axis = node.constant(1)
    if axis is not None:
        return _scans(node, int(axis.reshape(())) % max(1, node.x.rank), None, target)
    return tuple(call for i in range(node.x.rank) for call in _scans(node, i, node.inputs[1], target))


def _scans(node: Node, axis: int, wanted_axis: Buffer | None, target: Target) -> tuple[Launch, ...]:
    """The launches that scan along `axis`, if that is what `wanted_axis` turns out to hold."""
    geometry = geometry_of(runs_of(node.x.shape, (axis,)))
    assert geometry is not None
    tile = tile_for(geometry, node.x.itemsize, target)
    blocks = cdiv(geometry.steps, tile.steps)
    parts = max(1, min(splits_for(geometry, tile, target), 4096 // (tile.rows * tile.inner)))
    accumulator = accumulator_of(node.x.dtype)
    total = node.temporary((parts, geometry.outputs), accumulator) if parts > 1 else None

    def scan(*, totals: bool) -> Launch:
        return launch(
            scan_kernel,
            (tile.programs(geometry), parts),
            writes=total if totals and total is not None else node.y,
            num_warps=warps_for(tile.elements, tile.programs(geometry) * parts, target),
            x_ptr=node.x,
            axis_ptr=wanted_axis,
            y_ptr=None if totals else node.y,
            total_ptr=total,
            n_rows=geometry.rows,
            n_inner=geometry.inner,
            n_steps=geometry.steps,
            chunk=cdiv(blocks, parts) * tile.steps,
            axis=None if wanted_axis is None else axis,
            rank=None if wanted_axis is None else node.x.rank,
            PRODUCT=node.op_type == "CumProd",
            EXCLUSIVE=bool(node.attribute("exclusive", 0)),
            REVERSE=bool(node.attribute("reverse", 0)),
            TOTALS=totals,
            TYPE=accumulator,
            WIDE=geometry.wide,
            BLOCK_PARTS=power_of_two(parts),
            **tile.constants(),
        )

    return (scan(totals=False),) if total is None else (scan(totals=True), scan(totals=False))
