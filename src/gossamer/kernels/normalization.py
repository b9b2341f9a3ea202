"""LayerNormalization and its kin: RMS, Instance, Group, Lp, MeanVariance, and com.microsoft's with a skip connection.

All are y = (x - mean) · scale · gamma + beta with statistics over the steps of a `Geometry`, in fp32 at least, centred before they
are squared. A row that fits one program's registers is read once. A longer one is read twice: programs that share a row first
leave the mean and the spread of their parts, then each combines them all and writes its part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl

from gossamer.kernels.elementwise_math import divide, reciprocal, square_root
from gossamer.kernels.launch import launch
from gossamer.kernels.reduction_geometry import (
    Geometry,
    as_type,
    float_accumulator,
    power_of_two,
    resident_tile,
    row_offsets,
    step_offsets,
    tile_for,
    warps_for,
)
from gossamer.model.node import Node
from gossamer.program import Buffer, Launch, Target


@triton.jit
def load_summed(
    x_ptr, skip_ptr, bias_ptr, offsets, row, step, n_steps, skip_rows, mask, TYPE: tl.constexpr
):  # fmt: skip
    """x, plus a skip connection that repeats after skip_rows rows and a bias per step, where given."""
    x = as_type(tl.load(x_ptr + offsets, mask, other=0.0), TYPE)
    if skip_ptr is not None:
        x += as_type(tl.load(skip_ptr + row % skip_rows * n_steps + step, mask, other=0.0), TYPE)
    if bias_ptr is not None:
        x += as_type(tl.load(bias_ptr + step, step < n_steps, other=0.0), TYPE)
    return x


@triton.jit
def spread_of(x, mask, KIND: tl.constexpr):
    """Sum of squares along the steps, or of magnitudes."""
    terms = tl.abs(x) if KIND == "l1" else x * x
    return tl.sum(tl.where(mask, terms, 0.0), axis=1, keep_dims=True)


@triton.jit
def scale_of(spread, n_steps, KIND: tl.constexpr, EPSILON: tl.constexpr):
    """What deviations are multiplied by."""
    if KIND == "l1" or KIND == "l2":
        norm = square_root(spread) if KIND == "l2" else spread
        return tl.where(norm == 0.0, 0.0, reciprocal(norm))
    else:
        variance = divide(spread, n_steps + tl.zeros_like(spread))
        if KIND == "mean_variance":
            return reciprocal(square_root(variance) + EPSILON)
        else:
            return reciprocal(square_root(variance + EPSILON))


@triton.jit
def parameter_index(row, step, k, groups, per_group, repeat, BY: tl.constexpr):
    """Which gamma and beta belong to an element. `group`: those of the row's group, each for `repeat` steps in turn."""
    if BY == "step":
        return step.to(tl.int64)
    elif BY == "inner":
        return k.to(tl.int64)
    elif BY == "row":
        return row % groups
    else:
        tl.static_assert(BY == "group")
        return (row % groups) * per_group + (step // repeat) % per_group


@triton.jit
def store_normalized(y_ptr, gamma_ptr, beta_ptr, y, offsets, index, index_mask, mask):
    """Applies gamma and beta, where given, and stores."""
    if gamma_ptr is not None:
        y *= tl.load(gamma_ptr + index, index_mask, other=0.0).to(y.dtype)
    if beta_ptr is not None:
        y += tl.load(beta_ptr + index, index_mask, other=0.0).to(y.dtype)
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask)


@triton.jit
def normalize_kernel(
    x_ptr, skip_ptr, bias_ptr, gamma_ptr, beta_ptr, y_ptr, sum_ptr, mean_ptr, scale_ptr, variance_ptr,
    n_rows, kept1, reduced1, n_inner, n_steps, skip_rows, groups, per_group, repeat,
    KIND: tl.constexpr, CENTRED: tl.constexpr, EPSILON: tl.constexpr, BY: tl.constexpr, TYPE: tl.constexpr,
    NESTED: tl.constexpr, WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_STEPS: tl.constexpr, BLOCK_INNER: tl.constexpr,
):  # fmt: skip
    """y = (x - mean) · scale(sum of (x - mean)²) · gamma + beta along the steps, all of which are in one tile."""
    inner_blocks = tl.cdiv(n_inner, BLOCK_INNER)
    row = ((tl.program_id(0) // inner_blocks).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None, None]
    k = ((tl.program_id(0) % inner_blocks) * BLOCK_INNER + tl.arange(0, BLOCK_INNER))[None, None, :]
    step = tl.arange(0, BLOCK_STEPS)[None, :, None]
    live = (row < n_rows) & (k < n_inner)
    mask = live & (step < n_steps)
    offsets = row_offsets(row, kept1, reduced1, n_inner, n_steps, NESTED) + k
    offsets += step_offsets(step, kept1, reduced1, n_inner, NESTED, WIDE)
    x = load_summed(x_ptr, skip_ptr, bias_ptr, offsets, row, step, n_steps, skip_rows, mask, TYPE)
    if sum_ptr is not None:
        tl.store(sum_ptr + offsets, x.to(sum_ptr.dtype.element_ty), mask)
    if CENTRED:
        mean = tl.sum(tl.where(mask, x, 0.0), axis=1, keep_dims=True)
        mean = divide(mean, n_steps + tl.zeros_like(mean))
        x -= mean
        if mean_ptr is not None:
            tl.store(mean_ptr + row * n_inner + k, mean.to(mean_ptr.dtype.element_ty), live)
    spread = spread_of(x, mask, KIND)
    scale = scale_of(spread, n_steps, KIND, EPSILON)
    if scale_ptr is not None:
        tl.store(scale_ptr + row * n_inner + k, scale.to(scale_ptr.dtype.element_ty), live)
    if variance_ptr is not None:
        tl.store(variance_ptr + row * n_inner + k, divide(spread, n_steps + tl.zeros_like(spread)), live)
    index = parameter_index(row, step, k, groups, per_group, repeat, BY)
    store_normalized(y_ptr, gamma_ptr, beta_ptr, x * scale, offsets, index, mask, mask)


@triton.jit
def moments_kernel(
    x_ptr, skip_ptr, bias_ptr, sum_ptr, mean_ptr, spread_ptr,
    n_rows, kept1, reduced1, n_inner, n_steps, skip_rows,
    KIND: tl.constexpr, CENTRED: tl.constexpr, TYPE: tl.constexpr, NESTED: tl.constexpr, WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_STEPS: tl.constexpr, BLOCK_INNER: tl.constexpr,
):  # fmt: skip
    """mean[part, row, k] = mean of x over the part's steps, spread = sum of (x - mean)²; a part is one tile."""
    inner_blocks = tl.cdiv(n_inner, BLOCK_INNER)
    parts = tl.cdiv(n_steps, BLOCK_STEPS)
    block, part = tl.program_id(0) // parts, tl.program_id(0) % parts
    row = ((block // inner_blocks).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None, None]
    k = ((block % inner_blocks) * BLOCK_INNER + tl.arange(0, BLOCK_INNER))[None, None, :]
    step = (part * BLOCK_STEPS + tl.arange(0, BLOCK_STEPS))[None, :, None]
    live = (row < n_rows) & (k < n_inner)
    mask = live & (step < n_steps)
    offsets = row_offsets(row, kept1, reduced1, n_inner, n_steps, NESTED) + k
    offsets += step_offsets(step, kept1, reduced1, n_inner, NESTED, WIDE)
    x = load_summed(x_ptr, skip_ptr, bias_ptr, offsets, row, step, n_steps, skip_rows, mask, TYPE)
    if sum_ptr is not None:
        tl.store(sum_ptr + offsets, x.to(sum_ptr.dtype.element_ty), mask)
    out = (part.to(tl.int64) * n_rows + row) * n_inner + k
    if CENTRED:
        mean = tl.sum(tl.where(mask, x, 0.0), axis=1, keep_dims=True)
        count = tl.minimum(n_steps - part * BLOCK_STEPS, BLOCK_STEPS)
        mean = divide(mean, count + tl.zeros_like(mean))
        x -= mean
        tl.store(mean_ptr + out, mean, live)
    tl.store(spread_ptr + out, spread_of(x, mask, KIND), live)


@triton.jit
def combined_moments(
    part_mean_ptr, part_spread_ptr, places, live, stride, n_steps,
    CENTRED: tl.constexpr, PART: tl.constexpr, BLOCK_PARTS: tl.constexpr,
):  # fmt: skip
    """The mean and spread of a row from those of its parts, which have PART steps each, the last one perhaps fewer."""
    n_parts = tl.cdiv(n_steps, PART)
    mean = tl.zeros_like(tl.load(part_spread_ptr + places, live, other=0.0))
    spread = mean
    if CENTRED:
        for first in range(0, n_parts, BLOCK_PARTS):
            part = (first + tl.arange(0, BLOCK_PARTS))[None, :, None]
            weight = tl.maximum(tl.minimum(n_steps - part * PART, PART), 0) / n_steps
            part_mean = tl.load(part_mean_ptr + part * stride + places, live & (part < n_parts), other=0.0)
            mean += tl.sum(part_mean * weight.to(mean.dtype), axis=1, keep_dims=True)
    for first in range(0, n_parts, BLOCK_PARTS):
        part = (first + tl.arange(0, BLOCK_PARTS))[None, :, None]
        mask = live & (part < n_parts)
        terms = tl.load(part_spread_ptr + part * stride + places, mask, other=0.0)
        if CENTRED:
            shift = tl.load(part_mean_ptr + part * stride + places, mask, other=0.0) - mean
            terms += tl.where(mask, shift * shift, 0.0) * tl.minimum(n_steps - part * PART, PART)
        spread += tl.sum(terms, axis=1, keep_dims=True)
    return mean, spread
