"""CumSum and CumProd along any axis, without a transpose.

A row is scanned block by block. Where rows are few and long they are cut into parts: a first pass leaves the total of
each part, a second scans those, then each part starts from what came before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl

from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.kernels.launch import launch
from gossamer.kernels.reduction import combined_steps
from gossamer.kernels.reduction_geometry import (
    STREAMS,
    THREADS,
    Geometry,
    Tile,
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
from gossamer.program import Buffer, Launch, Target, dtype_of


@triton.jit
def scan_kernel(
    x_ptr, axis_ptr, carry_ptr, y_ptr, n_rows, n_inner, n_steps, chunk, axis, rank,
    PRODUCT: tl.constexpr, EXCLUSIVE: tl.constexpr, REVERSE: tl.constexpr, TOTALS: tl.constexpr,
    TYPE: tl.constexpr, WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_STEPS: tl.constexpr, BLOCK_INNER: tl.constexpr,
):  # fmt: skip
    """y[row, step, k] = sum (or product) of x[row, j, k] over j <= step; exclusive: j < step; reverse: from the end.

    A part of the steps starts from carry[part, row, k], where there are several. TOTALS: y[part, row, k] is the sum of
    the part. Nothing happens where axis_ptr holds another axis than `axis`.
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
    part_out = part.to(tl.int64) * n_rows * n_inner + row * n_inner + k
    neutral = 1 if PRODUCT else 0
    carry = as_type(tl.full((BLOCK_ROWS, 1, BLOCK_INNER), neutral, tl.int32), TYPE)
    if carry_ptr is not None:
        carry = tl.load(carry_ptr + part_out, live, other=neutral)
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
        tl.store(y_ptr + part_out, carry, live)


@lowers("CumSum", "CumProd")
def lower_scan(node: Node, target: Target) -> Lowered:
    """CumSum, opset 11 to 14, and CumProd, opset 26; floats in fp32 (fp64 in fp64), integers exact.

    Where the axis is known only when the model runs there are launches for every axis, of which one set goes ahead.
    """
    axis = node.constant(1)
    if axis is not None:
        return _scans(node, int(axis.reshape(())) % max(1, node.x.rank), None, target)
    return tuple(call for i in range(node.x.rank) for call in _scans(node, i, node.inputs[1], target))


@dataclass(frozen=True, slots=True)
class Cut:
    """How the steps of a scan are cut: into parts, each scanned by programs of num_warps tile by tile."""

    geometry: Geometry
    tile: Tile
    parts: int
    num_warps: int

    @staticmethod
    def of(geometry: Geometry, dtype: str, target: Target) -> Cut:
        """Columns by thread where they are many, else tiles that lanes scan together."""
        itemsize = dtype_of(dtype).itemsize
        tile = column_tile(geometry, itemsize, dtype_of(accumulator_of(dtype)).itemsize)
        if target.interpreted or tile is None:
            tile = tile_for(geometry, itemsize, target)
            return Cut._of_tile(geometry, tile, splits_for(geometry, tile, target), target)
        wanted = STREAMS // 2 * target.sm_count // max(1, tile.programs(geometry))
        parts = max(1, min(wanted, geometry.steps // (8 * tile.steps)))
        return Cut(geometry, tile, parts, max(1, tile.inner * itemsize // 512))

    @staticmethod
    def whole(geometry: Geometry, dtype: str, target: Target) -> Cut:
        """A single part."""
        return Cut._of_tile(geometry, tile_for(geometry, dtype_of(dtype).itemsize, target), 1, target)

    @staticmethod
    def _of_tile(geometry: Geometry, tile: Tile, parts: int, target: Target) -> Cut:
        return Cut(geometry, tile, parts, warps_for(tile.elements, tile.programs(geometry) * parts, target))


def column_tile(geometry: Geometry, itemsize: int, accumulated: int) -> Tile | None:
    """The tile of which each thread scans columns of its own, so that no lanes exchange anything.

    None where a warp cannot read 512 contiguous bytes of a step. accumulated: bytes per element of the sums, of which a
    thread keeps 256 bytes.
    """
    vector = 16 // itemsize
    if geometry.inner < 32 * vector:
        return None
    steps = max(1, min(8, 256 // (vector * accumulated), power_of_two(geometry.steps)))
    return Tile(1, steps, min(power_of_two(geometry.inner), THREADS * vector))


def _scans(node: Node, axis: int, wanted_axis: Buffer | None, target: Target) -> tuple[Launch, ...]:
    """The launches that scan along `axis`, if that is what `wanted_axis` turns out to hold."""
    geometry = geometry_of(runs_of(node.x.shape, (axis,)))
    assert geometry is not None
    accumulator = accumulator_of(node.x.dtype)
    shared: dict[str, Any] = {
        "axis_ptr": wanted_axis,
        "axis": None if wanted_axis is None else axis,
        "rank": None if wanted_axis is None else node.x.rank,
        "PRODUCT": node.op_type == "CumProd",
        "TYPE": accumulator,
    }
    cut = Cut.of(geometry, node.x.dtype, target)
    exclusive, reverse = bool(node.attribute("exclusive", 0)), bool(node.attribute("reverse", 0))
    final = {**shared, "EXCLUSIVE": exclusive, "REVERSE": reverse}
    if cut.parts == 1:
        return (_scan(node.x, node.y, cut, None, **final, TOTALS=False),)
    totals, carry = (node.temporary((cut.parts, geometry.outputs), accumulator) for _ in range(2))
    between = Cut.whole(Geometry(1, 1, 1, cut.parts, geometry.outputs), accumulator, target)
    return (
        _scan(node.x, totals, cut, None, **final, TOTALS=True),
        _scan(totals, carry, between, None, **shared, EXCLUSIVE=True, REVERSE=False, TOTALS=False),
        _scan(node.x, node.y, cut, carry, **final, TOTALS=False),
    )


def _scan(x: Buffer, y: Buffer, cut: Cut, carry: Buffer | None, **shared: Any) -> Launch:
    geometry, tile = cut.geometry, cut.tile
    return launch(
        scan_kernel,
        (tile.programs(geometry), cut.parts),
        writes=y,
        num_warps=cut.num_warps,
        x_ptr=x,
        carry_ptr=carry,
        y_ptr=y,
        n_rows=geometry.rows,
        n_inner=geometry.inner,
        n_steps=geometry.steps,
        chunk=cdiv(cdiv(geometry.steps, tile.steps), cut.parts) * tile.steps,
        WIDE=geometry.wide,
        **shared,
        **tile.constants(),
    )
