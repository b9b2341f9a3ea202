"""com.microsoft::BiasSoftmax: the softmax of scores plus a bias that repeats over blocks of rows."""

from __future__ import annotations

from math import prod

import numpy as np
import triton
import triton.language as tl

from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.kernels.launch import launch
from gossamer.kernels.reduction_geometry import as_type, float_accumulator
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import Node
from gossamer.program import Buffer, Launch, Refusal, Target

RESIDENT = 16384
"""Elements of a row that one program keeps in registers."""


@triton.jit
def bias_softmax_kernel(
    x_ptr, bias_ptr, y_ptr, n_rows, n_cols, repeat, period,
    LOWEST: tl.constexpr, TYPE: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, LOOP: tl.constexpr,
):  # fmt: skip
    """y[r] = softmax(x[r] + bias[r / repeat % period]); with LOOP rows are longer than COLS, and read twice."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, COLS)[None, :]
    live = row < n_rows
    x_at, y_at = x_ptr + row * n_cols + col, y_ptr + row * n_cols + col
    bias_at = bias_ptr + (row // repeat % period) * n_cols + col
    if LOOP:
        total = as_type(tl.zeros((ROWS, COLS), tl.int32), TYPE)
        most = total + LOWEST  # finite, so that minus infinity less the maximum is no NaN
        for start in range(0, n_cols, COLS):
            mask = live & (start + col < n_cols)
            x = as_type(tl.load(x_at + start, mask, other=float("-inf")), TYPE)
            x += as_type(tl.load(bias_at + start, mask, other=0.0), TYPE)
            decay = tl.exp(-tl.abs(x - most))  # one exponential serves both the old sum and the new term
            total = tl.where(x > most, total * decay + 1, total + decay)
            most = tl.maximum(most, x)
        row_most = tl.max(most, axis=1, keep_dims=True)
        row_total = tl.sum(total * tl.exp(most - row_most), axis=1, keep_dims=True)
        for start in range(0, n_cols, COLS):
            mask = live & (start + col < n_cols)
            x = as_type(tl.load(x_at + start, mask, other=0.0), TYPE)
            x += as_type(tl.load(bias_at + start, mask, other=0.0), TYPE)
            y = tl.exp(x - row_most) / row_total
            tl.store(y_at + start, y.to(y_ptr.dtype.element_ty), mask)
    else:
        mask = live & (col < n_cols)
        x = as_type(tl.load(x_at, mask, other=float("-inf")), TYPE)
        x += as_type(tl.load(bias_at, mask, other=0.0), TYPE)
        power = tl.exp(x - tl.max(x, axis=1, keep_dims=True))
        y = power / tl.sum(power, axis=1, keep_dims=True)
        tl.store(y_at, y.to(y_ptr.dtype.element_ty), mask)


@lowers("BiasSoftmax", domain="com.microsoft")
def lower_bias_softmax(node: Node, target: Target) -> Lowered:
    """com.microsoft::BiasSoftmax (-1): rows are the axes from `axis` on; each row of the bias serves neighbouring rows
    (is_inner_broadcast = 1) or every so-manieth. Statistics in fp32 (fp64 in fp64)."""
    x, bias = node.x, node.inputs[1]
    assert bias is not None
    axis = node.attribute("axis", 1) % max(1, x.rank)
    n_rows, n_cols = prod(x.shape[:axis]), prod(x.shape[axis:])
    if n_cols and bias.size % n_cols:
        return Refusal(f"a bias of shape {bias.shape} does not fit rows of {n_cols}")
    if not x.size:
        return ()
    return (_launch(x, bias, node.y, n_rows, n_cols, bool(node.attribute("is_inner_broadcast")), target),)


def _launch(x: Buffer, bias: Buffer, y: Buffer, n_rows: int, n_cols: int, inner: bool, target: Target) -> Launch:
    bias_rows, accumulator = bias.size // n_cols, float_accumulator(x.dtype)
    cols = power_of_two(n_cols, 2**17 if target.interpreted else RESIDENT)
    rows = power_of_two(n_rows, max(1, (2**17 if target.interpreted else 2048) // cols))
    while rows > 1 and cdiv(n_rows, rows) < 4 * target.sm_count and not target.interpreted:
        rows //= 2
    return launch(
        bias_softmax_kernel,
        (cdiv(n_rows, rows),),
        writes=y,
        num_warps=max(1, min(16, rows * cols // 512)),
        inplace=((y, x),),
        x_ptr=x,
        bias_ptr=bias,
        y_ptr=y,
        n_rows=n_rows,
        n_cols=n_cols,
        repeat=n_rows // bias_rows if inner else 1,
        period=bias_rows,
        LOWEST=float(np.finfo(accumulator).min),
        TYPE=accumulator,
        ROWS=rows,
        COLS=cols,
        LOOP=n_cols > cols,
    )
