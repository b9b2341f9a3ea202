"""Pad: every element of the result is one of the input's, found by folding its coordinates back, or the constant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import triton
import triton.language as tl

from gossamer.kernels.copies import as_words, choose_lines, is_wide, movable, tile_of
from gossamer.kernels.division import Divisor, divide_by, divisor_of
from gossamer.kernels.extents import cdiv
from gossamer.kernels.launch import Address, launch
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import Node
from gossamer.program import Buffer, Refusal, Target, dtype_of


@triton.jit
def fold(i, extent, period, MODE: tl.constexpr, WIDE: tl.constexpr):
    """The coordinate in 0 … extent - 1 that pads coordinate i, and whether there is one. Folded ones are i ≥ 0."""
    inside = tl.full(i.shape, 1, tl.int1)
    if MODE == "constant":
        inside = (i >= 0) & (i < extent)
        i = tl.where(inside, i, 0)
    elif MODE == "edge":
        i = tl.minimum(tl.maximum(i, 0), extent - 1)
    else:
        i -= divide_by(i, period, WIDE) * period[0]
        if MODE == "reflect":
            i = tl.where(i < extent, i, period[0] - i)
        else:
            tl.static_assert(MODE == "wrap")
    return i, inside


@triton.jit
def source_of(index, axes, MODE: tl.constexpr, WIDE: tl.constexpr):
    """The offset in x of y's element `index`, and whether x has it; axes: see `_columns`."""
    offset = index * 0
    found = index >= 0
    rest = index
    for d in tl.static_range(len(axes[0]) - 1, -1, -1):
        coordinate = rest
        if d > 0:
            rest = divide_by(rest, axes[0][d], WIDE)
            coordinate -= rest * axes[0][d][0]
        folded, inside = fold(coordinate - axes[1][d], axes[2][d], axes[4][d], MODE, WIDE)
        offset += folded * axes[3][d]
        found = found & inside
    return offset, found


@triton.jit
def pad_kernel(
    x_ptr, value_ptr, y_ptr, rows, cols, n_rows, n_cols,
    MODE: tl.constexpr, LINES: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """y[r, c] = x[fold(r), fold(c)]; the value (0 where value_ptr is None) where MODE is constant and x has no such."""
    row, col = tile_of(tl.program_id(0), n_cols, LINES, ROWS, COLS, WIDE)
    col_offset, col_found = source_of(col, cols, MODE, WIDE)
    col_found = col_found & (col < n_cols)
    value = 0
    if value_ptr is not None:
        value = tl.load(value_ptr)
    lines = ()  # all loads come before the first store: the compiler cannot know that x and y are not one
    for j in tl.static_range(LINES):
        at = row + j * ROWS
        row_offset, row_found = source_of(at, rows, MODE, WIDE)
        mask = (row_found & (at < n_rows)) & col_found
        y = tl.load(x_ptr + row_offset + col_offset, mask=mask, other=value)
        lines = lines + (y,)  # type: ignore[assignment]  # noqa: RUF005
    for j in tl.static_range(LINES):
        at = row + j * ROWS
        tl.store(y_ptr + at * n_cols + col, lines[j], mask=(at < n_rows) & (col < n_cols))


@dataclass(frozen=True, slots=True)
class PaddedAxis:
    """`begin` elements in front of `extent` of x make `out` of y. stride: x's, in elements."""

    out: int
    begin: int
    extent: int
    stride: int

    @property
    def padded(self) -> bool:
        return self.out != self.extent

    def period(self, mode: str) -> int:
        """After how many elements the axis repeats itself; 0 where it does not."""
        return {"reflect": max(2 * self.extent - 2, 1), "wrap": self.extent}.get(mode, 0)


@lowers("Pad")
def lower_pad(node: Node, target: Target) -> Lowered:
    """y = x with pads around it (ONNX Pad 2 with attributes, 11 with inputs, 18 with axes, 19 with mode wrap).

    Negative pads crop first, in every mode. Reflection goes back and forth where a pad is longer than the axis.
    """
    x, y = node.x, node.y
    if refusal := movable(x):
        return refusal
    pads = _pads(node)
    if isinstance(pads, Refusal):
        return pads
    mode: str = node.attribute("mode", "constant")
    kept = tuple(n + min(b, 0) + min(e, 0) for n, (b, e) in zip(x.shape, pads, strict=True))
    if mode != "constant" and 0 in kept and y.size:
        return Refusal(f"an empty axis cannot be padded in mode {mode}")
    offset = -sum(min(begin, 0) * stride for (begin, _), stride in zip(pads, x.strides, strict=True))
    axes = [
        PaddedAxis(out, max(begin, 0), extent, stride)
        for out, (begin, _), extent, stride in zip(y.shape, pads, kept, x.strides, strict=True)
    ]
    return _launch_pad(x, offset, y, _value(node), join(axes, mode), mode, target)


def _pads(node: Node) -> list[tuple[int, int]] | Refusal:
    """(before, after) for every axis."""
    rank = node.x.rank
    axes: Sequence[int] = range(rank)
    if node.version < 11:
        flat: Sequence[int] = node.attribute("pads")
    else:
        given, given_axes = node.constant(1), node.constant(3)
        if given is None or (node.input(3) is not None and given_axes is None):
            return Refusal("how much is padded is known only when the model runs")
        flat = given.tolist()
        axes = axes if given_axes is None else given_axes.tolist()
    pads = [(0, 0)] * rank
    for i, axis in enumerate(axes):
        pads[axis] = (flat[i], flat[i + len(axes)])
    return pads


def _value(node: Node) -> Buffer | None:
    """The one element that pads, None for zero."""
    if node.version >= 11:
        return node.input(2)
    value, dtype = float(node.attribute("value", 0.0)), node.x.dtype
    if not value:
        return None
    return node.constant_buffer(f"value {value!r} {dtype}", (1,), dtype, lambda: np.full(1, value, dtype_of(dtype)))


def join(axes: Sequence[PaddedAxis], mode: str) -> list[PaddedAxis]:
    """The fewest axes that mean the same: an axis without pads joins the one outside of it, if that has none either or
    if the mode folds whole rows as it folds their elements."""
    joined: list[PaddedAxis] = []
    for axis in axes:
        outer = joined[-1] if joined else None
        whole = outer is not None and outer.stride == axis.extent * axis.stride and not axis.padded
        if outer and whole and (not outer.padded or mode in ("constant", "wrap")):
            n = axis.extent
            joined[-1] = PaddedAxis(outer.out * n, outer.begin * n, outer.extent * n, axis.stride)
        else:
            joined.append(axis)
    return joined or [PaddedAxis(1, 0, 1, 1)]


def _launch_pad(
    x: Buffer, offset: int, y: Buffer, value: Buffer | None, axes: list[PaddedAxis], mode: str, target: Target
) -> Lowered:
    rows, cols = axes[:-1], axes[-1:]
    while rows and math.prod(axis.out for axis in cols) < 32:
        cols.insert(0, rows.pop())
    rows = rows or [PaddedAxis(1, 0, 1, 0)]
    n_rows, n_cols = (math.prod(axis.out for axis in part) for part in (rows, cols))
    tile = choose_lines(n_rows, n_cols, target)
    wide = is_wide(x.size, y.size)
    kept = math.prod(axis.extent for axis in axes)
    return (
        launch(
            pad_kernel,
            (cdiv(n_rows, tile.lines * tile.rows) * cdiv(n_cols, tile.cols),),
            writes=y,
            num_warps=tile.num_warps,
            x_ptr=Address(as_words(x), offset if kept else 0),
            value_ptr=None if value is None else as_words(value),
            y_ptr=as_words(y),
            rows=_columns(rows, mode, wide),
            cols=_columns(cols, mode, wide),
            n_rows=n_rows,
            n_cols=n_cols,
            MODE=mode,
            LINES=tile.lines,
            ROWS=tile.rows,
            COLS=tile.cols,
            WIDE=wide,
        ),
    )


def _columns(axes: Sequence[PaddedAxis], mode: str, wide: bool) -> tuple[Any, ...]:
    """(y shape as divisors, begins, x shape, x strides, periods as divisors). What is folded begins whole periods
    earlier, so that no coordinate is negative."""
    periods = [axis.period(mode) for axis in axes]
    shifts = [cdiv(axis.begin, period) * period if period else 0 for axis, period in zip(axes, periods, strict=True)]
    folds: list[Divisor | None] = [divisor_of(period, wide) if period else None for period in periods]
    return (
        tuple(divisor_of(axis.out, wide) for axis in axes),
        tuple(axis.begin - shift for axis, shift in zip(axes, shifts, strict=True)),
        tuple(axis.extent for axis in axes),
        tuple(axis.stride for axis in axes),
        tuple(folds),
    )
