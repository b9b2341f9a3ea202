"""Hardmax along any axis, without a transpose: where the largest is, then its mark."""

from __future__ import annotations

import triton
import triton.language as tl

from gossamer.kernels.arg_reduction import arg_calls
from gossamer.kernels.extents import cdiv
from gossamer.kernels.launch import launch
from gossamer.kernels.reduction_geometry import part_tile, step_offsets, warps_for
from gossamer.kernels.registry import Lowered, lowers
from gossamer.kernels.softmax import softmax_geometry
from gossamer.model.node import Node
from gossamer.program import Target


@triton.jit
def one_hot_rows_kernel(
    index_ptr, y_ptr, n_rows, n_inner, n_steps, WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_STEPS: tl.constexpr, BLOCK_INNER: tl.constexpr,
):  # fmt: skip
    """y[row, step, k] = 1 where step = index[row, k], else 0."""
    inner_blocks = tl.cdiv(n_inner, BLOCK_INNER)
    step_blocks = tl.cdiv(n_steps, BLOCK_STEPS)
    block = tl.program_id(0) // step_blocks
    row = ((block // inner_blocks).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None, None]
    k = ((block % inner_blocks) * BLOCK_INNER + tl.arange(0, BLOCK_INNER))[None, None, :]
    step = (tl.program_id(0) % step_blocks * BLOCK_STEPS + tl.arange(0, BLOCK_STEPS))[None, :, None]
    live = (row < n_rows) & (k < n_inner)
    index = tl.load(index_ptr + row * n_inner + k, live, other=0).to(tl.int32)
    offsets = row * n_steps * n_inner + k + step_offsets(step, 1, n_steps, n_inner, False, WIDE)
    tl.store(y_ptr + offsets, (step == index).to(y_ptr.dtype.element_ty), live & (step < n_steps))


@lowers("Hardmax")
def lower_hardmax(node: Node, target: Target) -> Lowered:
    """Hardmax, opset 1 to 13: one at the first of the largest, else zero."""
    if node.x.size == 0:
        return ()
    geometry = softmax_geometry(node)
    rows = node.x.reshaped(geometry.rows, geometry.steps, geometry.inner)
    index = node.temporary((geometry.outputs,), "int64")
    tile = part_tile(geometry, node.y.itemsize, target)
    programs = tile.programs(geometry) * cdiv(geometry.steps, tile.steps)
    mark = launch(
        one_hot_rows_kernel,
        (programs,),
        writes=node.y,
        num_warps=warps_for(tile.elements, programs, target),
        index_ptr=index,
        y_ptr=node.y,
        n_rows=geometry.rows,
        n_inner=geometry.inner,
        n_steps=geometry.steps,
        WIDE=geometry.wide,
        **tile.constants(),
    )
    return (*arg_calls(node, rows, index, 1, target), mark)
