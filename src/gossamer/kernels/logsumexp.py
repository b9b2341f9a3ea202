"""Sums of exponentials that cannot overflow: what LogSumExp is, and what Softmax of a long row begins with."""

from __future__ import annotations

import triton
import triton.language as tl

from gossamer.kernels.reduction_geometry import as_type, part_bounds, row_offsets, step_offsets


@triton.jit
def exponentials_of_steps(
    base_ptr, live, begin, end, kept1, reduced1, n_inner,
    LOWEST: tl.constexpr, HIGHEST: tl.constexpr, TYPE: tl.constexpr, NESTED: tl.constexpr, WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_STEPS: tl.constexpr, BLOCK_INNER: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """(most, total), [rows, 1, inner]: the largest x of the steps from begin to end, and the sum of exp(x - most).

    most stays between LOWEST, which is finite so that minus infinity less the maximum is no NaN, and HIGHEST. Every
    lane has a maximum of its own, which moves once for UNROLL elements: no lanes meet before the end.
    """
    total = as_type(tl.zeros((BLOCK_ROWS, BLOCK_STEPS, BLOCK_INNER), tl.int32), TYPE)
    most = total + LOWEST
    for start in range(begin, end, UNROLL * BLOCK_STEPS):
        tiles = ()  # one by one: as a tile of one more axis, Triton 3.6 would spread the steps of a lane over warps
        higher = most
        for i in tl.static_range(UNROLL):
            step = (start + i * BLOCK_STEPS + tl.arange(0, BLOCK_STEPS))[None, :, None]
            mask = live & (step < end)
            x = tl.load(base_ptr + step_offsets(step, kept1, reduced1, n_inner, NESTED, WIDE), mask, other=0)
            x = tl.where(mask, as_type(x, TYPE), float("-inf"))
            tiles = tiles + (x,)  # type: ignore[assignment]  # noqa: RUF005
            higher = tl.maximum(higher, x)
        higher = tl.minimum(higher, HIGHEST)
        total = total * tl.exp(most - higher)
        for i in tl.static_range(UNROLL):
            total += tl.exp(tiles[i] - higher)
        most = higher
    row_most = tl.max(most, axis=1, keep_dims=True)
    return row_most, tl.sum(total * tl.exp(most - row_most), axis=1, keep_dims=True)


@triton.jit
def logsumexp_kernel(
    x_ptr, y_ptr, n_rows, kept1, reduced1, n_inner, n_steps, chunk,
    LOWEST: tl.constexpr, TYPE: tl.constexpr, NESTED: tl.constexpr, WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_STEPS: tl.constexpr, BLOCK_INNER: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """y[part, row, k] = log of the sum of exp(x[row, step, k]) over the part's steps."""
    inner_blocks = tl.cdiv(n_inner, BLOCK_INNER)
    row = ((tl.program_id(0) // inner_blocks).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None, None]
    k = ((tl.program_id(0) % inner_blocks) * BLOCK_INNER + tl.arange(0, BLOCK_INNER))[None, None, :]
    part = tl.program_id(1)
    live = (row < n_rows) & (k < n_inner)
    begin, end = part_bounds(part, chunk, n_steps, WIDE)
    base_ptr = x_ptr + row_offsets(row, kept1, reduced1, n_inner, n_steps, NESTED) + k
    most, total = exponentials_of_steps(
        base_ptr, live, begin, end, kept1, reduced1, n_inner, LOWEST, -LOWEST, TYPE, NESTED, WIDE,
        BLOCK_ROWS, BLOCK_STEPS, BLOCK_INNER, UNROLL,
    )  # fmt: skip
    y_ptr += part.to(tl.int64) * n_rows * n_inner
    tl.store(y_ptr + row * n_inner + k, (most + tl.log(total)).to(y_ptr.dtype.element_ty), live)
