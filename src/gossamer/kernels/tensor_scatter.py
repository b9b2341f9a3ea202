"""TensorScatter: a cache of fixed length with some of its slots overwritten, as decoders keep their keys and values.

Every slot looks for the step that belongs there, so that nothing depends on the order of writes. Where past and present
are the same memory (the memory plan lets a present take the place of a past that nobody reads any more), only the
update moves.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl

from gossamer.kernels.copies import as_words, choose_tile, is_wide, movable
from gossamer.kernels.division import divide_by, divisor_of
from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.kernels.launch import launch
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import Node
from gossamer.program import Refusal, Target

MODES = ("linear", "circular")


@triton.jit
def tensor_scatter_kernel(
    past_ptr, update_ptr, first_ptr, y_ptr, tiles, n_lines, n_rows, n_steps, slots, inner,
    CIRCULAR: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """y[b, l, t, c] = update[b, l, t - first[b], c] where there is such a step, past[b, l, t, c] elsewhere.

    A batch has n_rows rows (l, t) and as many programs as `tiles`. slots: the extent of t, as a divisor. first: 0 where
    it is absent. CIRCULAR: t - first counts modulo that extent.
    """
    pid = tl.program_id(0)
    if WIDE:
        pid = pid.to(tl.int64)
    batch, tile = pid // tiles, pid % tiles
    col_tiles = tl.cdiv(inner, COLS)
    rows = tile // col_tiles * ROWS + tl.arange(0, ROWS)
    cols = (tile % col_tiles * COLS + tl.arange(0, COLS))[None, :]
    n_slots = slots[0]
    line = divide_by(rows, slots, WIDE)
    step = rows - line * n_slots
    if first_ptr is not None:
        first = tl.load(first_ptr + batch)
        if CIRCULAR:
            first = (first % n_slots + n_slots) % n_slots  # truncated, as in C
            step -= first.to(rows.dtype)
            step = tl.where(step < 0, step + n_slots, step)
        else:
            step -= tl.minimum(tl.maximum(first, -n_steps), n_slots).to(rows.dtype)
    is_new = (rows < n_rows) & (step >= 0) & (step < n_steps)
    is_kept = (rows < n_rows) & ~is_new
    if past_ptr.to(tl.int64) == y_ptr.to(tl.int64):
        is_kept = is_kept & (rows < 0)
    source = ((batch * n_lines + line) * n_steps + step) * inner
    at = ((batch * n_rows + rows) * inner)[:, None] + cols
    new = tl.load(update_ptr + source[:, None] + cols, mask=is_new[:, None] & (cols < inner))
    old = tl.load(past_ptr + at, mask=is_kept[:, None] & (cols < inner))
    tl.store(y_ptr + at, tl.where(is_new[:, None], new, old), mask=(is_new | is_kept)[:, None] & (cols < inner))


@lowers("TensorScatter", since=24)
def lower_tensor_scatter(node: Node, target: Target) -> Lowered:
    """The cache with the update in the slots from write_indices[batch] on along an axis (ONNX TensorScatter 24).

    Steps that would go beyond the cache, which mode `linear` forbids, go nowhere.
    """
    past, update, present = node.x, node.inputs[1], node.y
    assert update is not None
    mode: str = node.attribute("mode", "linear")
    if mode not in MODES:
        return Refusal(f"there is no mode '{mode}'")
    if refusal := movable(past):
        return refusal
    axis, first = node.attribute("axis", -2) % past.rank, node.input(2)
    n_batches = 1 if first is None else past.shape[0]
    n_slots, inner = past.shape[axis], math.prod(past.shape[axis + 1 :])
    n_lines = math.prod(past.shape[:axis]) // max(n_batches, 1)
    n_rows, wide = n_lines * n_slots, is_wide(past.size)
    rows, cols = choose_tile(n_batches * n_rows, inner, past.itemsize, False, target)
    rows = power_of_two(n_rows, rows)
    tiles = cdiv(n_rows, rows) * cdiv(inner, cols)
    return (
        launch(
            tensor_scatter_kernel,
            (n_batches * tiles,),
            writes=present,
            inplace=((present, past),),
            past_ptr=as_words(past),
            update_ptr=as_words(update),
            first_ptr=first,
            y_ptr=as_words(present),
            tiles=tiles,
            n_lines=n_lines,
            n_rows=n_rows,
            n_steps=update.shape[axis],
            slots=divisor_of(n_slots, wide),
            inner=inner,
            CIRCULAR=mode == "circular",
            ROWS=rows,
            COLS=cols,
            WIDE=wide,
        ),
    )
