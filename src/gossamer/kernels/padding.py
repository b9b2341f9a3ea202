"""Pad: every element of the result is one of the input's, found by folding its coordinates back, or the constant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import triton
import triton.language as tl

from gossamer.kernels.copies import as_words, choose_tile, is_wide, movable
from gossamer.kernels.extents import cdiv
from gossamer.kernels.launch import Address, launch
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import Node
from gossamer.program import Buffer, Refusal, Target, dtype_of


@triton.jit
def fold(i, extent, MODE: tl.constexpr):
    """The coordinate in 0 … extent - 1 that pads coordinate i, and whether there is one."""
    inside = (i >= 0) & (i < extent)
    if MODE == "constant":
        i = tl.where(inside, i, 0)
    else:
        inside = inside | True
        if MODE == "edge":
            i = tl.minimum(tl.maximum(i, 0), extent - 1)
        elif MODE == "wrap":
            i = (i % extent + extent) % extent
        else:
            tl.static_assert(MODE == "reflect")
            period = tl.maximum(2 * extent - 2, 1)
            i = (i % period + period) % period
            i = tl.where(i < extent, i, period - i)
    return i, inside


@triton.jit
def source_of(index, axes, MODE: tl.constexpr):
    """The offset in x of y's element `index`, and whether x has it; axes = (y shape, begins, x shape, x strides)."""
    offset = index * 0
    found = index >= 0
    rest = index
    for d in tl.static_range(len(axes[0]) - 1):
        coordinate = rest % axes[0][len(axes[0]) - 1 - d] - axes[1][len(axes[0]) - 1 - d]
        folded, inside = fold(coordinate, axes[2][len(axes[0]) - 1 - d], MODE)
        offset += folded * axes[3][len(axes[0]) - 1 - d]
        found = found & inside
        rest = rest // axes[0][len(axes[0]) - 1 - d]
    folded, inside = fold(rest - axes[1][0], axes[2][0], MODE)
    return offset + folded * axes[3][0], found & inside


@triton.jit
def pad_kernel(
    x_ptr,
    value_ptr,
    y_ptr,
    rows,
    cols,
    n_rows,
    n_cols,
    MODE: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    WIDE: tl.constexpr,
):
    """y[r, c] = x[fold(r), fold(c)]; the value (0 where value_ptr is None) where MODE is constant and x has no such."""
    pid = tl.program_id(0)
    if WIDE:
        pid = pid.to(tl.int64)
    col_tiles = tl.cdiv(n_cols, COLS)
    row = pid // col_tiles * ROWS + tl.arange(0, ROWS)
    col = pid % col_tiles * COLS + tl.arange(0, COLS)
    row_offset, row_found = source_of(row, rows, MODE)
    col_offset, col_found = source_of(col, cols, MODE)
    mask = (row < n_rows)[:, None] & (col < n_cols)[None, :]
    found = row_found[:, None] & col_found[None, :]
    value = 0
    if value_ptr is not None:
        value = tl.load(value_ptr)
    elements = tl.load(x_ptr + row_offset[:, None] + col_offset[None, :], mask=mask & found, other=value)
    tl.store(y_ptr + row[:, None] * n_cols + col[None, :], elements, mask=mask)


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
    block_rows, block_cols = choose_tile(n_rows, n_cols, x.itemsize, False, target)
    kept = math.prod(axis.extent for axis in axes)
    return (
        launch(
            pad_kernel,
            (cdiv(n_rows, block_rows) * cdiv(n_cols, block_cols),),
            writes=y,
            x_ptr=Address(as_words(x), offset if kept else 0),
            value_ptr=None if value is None else as_words(value),
            y_ptr=as_words(y),
            rows=_columns(rows),
            cols=_columns(cols),
            n_rows=n_rows,
            n_cols=n_cols,
            MODE=mode,
            ROWS=block_rows,
            COLS=block_cols,
            WIDE=is_wide(x.size, y.size),
        ),
    )


def _columns(axes: Sequence[PaddedAxis]) -> tuple[Any, ...]:
    return (
        tuple(axis.out for axis in axes),
        tuple(axis.begin for axis in axes),
        tuple(axis.extent for axis in axes),
        tuple(axis.stride for axis in axes),
    )
