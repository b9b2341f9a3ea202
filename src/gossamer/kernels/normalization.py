"""LayerNormalization and its kin: RMS, Instance, Group, Lp, MeanVariance, and com.microsoft's with a skip connection.

All are y = (x - mean) · scale · gamma + beta with statistics over the steps of a `Geometry`, in fp32 at least, centred
before they are squared. A row that fits one program's registers is read once. A longer one is read twice: programs that
share a row first leave the mean and the spread of their parts, then each combines them all and writes its part.
"""

from __future__ import annotations

from dataclasses import replace

import triton
import triton.language as tl

from gossamer.kernels.activations import activate
from gossamer.kernels.elementwise_math import divide, reciprocal, square_root
from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.kernels.launch import launch
from gossamer.kernels.normalization_arguments import (
    NO_PARAMETERS,
    NO_SKIP,
    NO_STATISTICS,
    Norm,
    Parameters,
    Skip,
    Statistics,
)
from gossamer.kernels.reduction_geometry import (
    Geometry,
    as_type,
    float_accumulator,
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
    x_ptr, skip_ptr, bias_ptr, offsets, row, step, index, exists, n_steps, groups, skip_period, mask,
    SKIP: tl.constexpr, TYPE: tl.constexpr,
):  # fmt: skip
    """x, plus a skip connection, and a bias that has the parameters' index, where given.

    SKIP: `rows`, which repeat after skip_period rows; `same`, laid out as x; or `image`, one value for each parameter
    and image, which has `groups` rows and skip_period parameters.
    """
    x = as_type(tl.load(x_ptr + offsets, mask, other=0.0), TYPE)
    if skip_ptr is not None:
        if SKIP == "rows":
            x += as_type(tl.load(skip_ptr + row % skip_period * n_steps + step, mask, other=0.0), TYPE)
        elif SKIP == "same":
            x += as_type(tl.load(skip_ptr + offsets, mask, other=0.0), TYPE)
        else:
            tl.static_assert(SKIP == "image")
            x += as_type(tl.load(skip_ptr + row // groups * skip_period + index, mask, other=0.0), TYPE)
    if bias_ptr is not None:
        x += as_type(tl.load(bias_ptr + index, exists, other=0.0), TYPE)
    return x


@triton.jit
def spread_of(x, mask, KIND: tl.constexpr):
    """Sum of squares along the steps, or of magnitudes."""
    terms = tl.abs(x) if KIND == "l1" else x * x
    return tl.sum(tl.where(mask, terms, 0.0), axis=1, keep_dims=True)


@triton.jit
def scale_of(spread, n_steps, KIND: tl.constexpr, EPSILON: tl.constexpr):
    """What deviations are multiplied by; or divided by, for norms: the reciprocal of a small one overflows."""
    if KIND == "l1" or KIND == "l2":
        norm = spread if KIND == "l1" else square_root(spread)
        return tl.where(norm == 0.0, float("inf"), norm)
    else:
        variance = divide(spread, n_steps + tl.zeros_like(spread))
        if KIND == "mean_variance":
            return reciprocal(square_root(variance) + EPSILON)
        else:
            return reciprocal(square_root(variance + EPSILON))


@triton.jit
def normalized(x, scale, KIND: tl.constexpr):
    """Deviations with a scale of `scale_of`."""
    return divide(x, scale) if KIND == "l1" or KIND == "l2" else x * scale


@triton.jit
def parameter_index(row, step, k, n_rows, n_steps, n_inner, groups, per_group, repeat, BY: tl.constexpr):
    """Which gamma and beta belong to an element, and whether they exist; no larger than they differ.

    `group`: those of the row's group, each for `repeat` steps in turn.
    """
    if BY == "step":
        return step, step < n_steps
    elif BY == "inner":
        return k, k < n_inner
    elif BY == "row":
        return row % groups, row < n_rows
    elif BY == "element":
        return row * n_steps + step, (row < n_rows) & (step < n_steps)
    else:
        tl.static_assert(BY == "group")
        return (row % groups) * per_group + (step // repeat) % per_group, (row < n_rows) & (step < n_steps)


@triton.jit
def scaled(x, gamma_ptr, beta_ptr, index, mask):
    """x · gamma + beta, as far as they are given."""
    if gamma_ptr is not None:
        x *= tl.load(gamma_ptr + index, mask, other=0.0).to(x.dtype)
    if beta_ptr is not None:
        x += tl.load(beta_ptr + index, mask, other=0.0).to(x.dtype)
    return x


@triton.jit
def normalize_kernel(
    x_ptr, skip_ptr, bias_ptr, gamma_ptr, beta_ptr, y_ptr, sum_ptr, mean_ptr, scale_ptr, variance_ptr,
    n_rows, kept1, reduced1, n_inner, n_steps, skip_period, groups, per_group, repeat,
    KIND: tl.constexpr, CENTRED: tl.constexpr, EPSILON: tl.constexpr, ACTIVATION: tl.constexpr, SKIP: tl.constexpr,
    BY: tl.constexpr, TYPE: tl.constexpr, NESTED: tl.constexpr, WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_STEPS: tl.constexpr, BLOCK_INNER: tl.constexpr,
):  # fmt: skip
    """y = ACTIVATION((x - mean) · scale(sum of (x - mean)²) · gamma + beta) along the steps, all in one tile."""
    inner_blocks = tl.cdiv(n_inner, BLOCK_INNER)
    row = ((tl.program_id(0) // inner_blocks).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None, None]
    k = ((tl.program_id(0) % inner_blocks) * BLOCK_INNER + tl.arange(0, BLOCK_INNER))[None, None, :]
    step = tl.arange(0, BLOCK_STEPS)[None, :, None]
    live = (row < n_rows) & (k < n_inner)
    mask = live & (step < n_steps)
    offsets = row_offsets(row, kept1, reduced1, n_inner, n_steps, NESTED) + k
    offsets += step_offsets(step, kept1, reduced1, n_inner, NESTED, WIDE)
    index, exists = parameter_index(row, step, k, n_rows, n_steps, n_inner, groups, per_group, repeat, BY)
    x = load_summed(
        x_ptr, skip_ptr, bias_ptr, offsets, row, step, index, exists, n_steps, groups, skip_period, mask, SKIP, TYPE
    )
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
    y = activate(scaled(normalized(x, scale, KIND), gamma_ptr, beta_ptr, index, exists), ACTIVATION, 1.0, 0.0)
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask)


@triton.jit
def moments_kernel(
    x_ptr, skip_ptr, bias_ptr, sum_ptr, mean_ptr, spread_ptr,
    n_rows, kept1, reduced1, n_inner, n_steps, skip_period, groups, per_group, repeat,
    KIND: tl.constexpr, CENTRED: tl.constexpr, SKIP: tl.constexpr, BY: tl.constexpr, TYPE: tl.constexpr,
    NESTED: tl.constexpr, WIDE: tl.constexpr,
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
    index, exists = parameter_index(row, step, k, n_rows, n_steps, n_inner, groups, per_group, repeat, BY)
    x = load_summed(
        x_ptr, skip_ptr, bias_ptr, offsets, row, step, index, exists, n_steps, groups, skip_period, mask, SKIP, TYPE
    )
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
    CENTRED: tl.constexpr, TYPE: tl.constexpr, PART: tl.constexpr, BLOCK_PARTS: tl.constexpr,
):  # fmt: skip
    """The mean and spread of a row from those of its parts, which have PART steps each, the last one perhaps fewer."""
    n_parts = tl.cdiv(n_steps, PART)
    mean = as_type(tl.zeros(live.shape, tl.int32), TYPE)
    spread = mean
    if CENTRED:
        for first in range(0, n_parts, BLOCK_PARTS):
            part = (first + tl.arange(0, BLOCK_PARTS))[None, :, None]
            part_mean_ptrs = part_mean_ptr + part.to(tl.int64) * stride + places
            part_mean = tl.load(part_mean_ptrs, live & (part < n_parts), other=0.0)
            mean += tl.sum(part_mean * tl.minimum(n_steps - part * PART, PART), axis=1, keep_dims=True)
        mean = divide(mean, n_steps + tl.zeros_like(mean))
    for first in range(0, n_parts, BLOCK_PARTS):
        part = (first + tl.arange(0, BLOCK_PARTS))[None, :, None]
        mask = live & (part < n_parts)
        part_places = part.to(tl.int64) * stride + places
        terms = tl.load(part_spread_ptr + part_places, mask, other=0.0)
        if CENTRED:
            shift = tl.load(part_mean_ptr + part_places, mask, other=0.0) - mean
            terms += tl.where(mask, shift * shift, 0.0) * tl.minimum(n_steps - part * PART, PART)
        spread += tl.sum(terms, axis=1, keep_dims=True)
    return mean, spread


@triton.jit
def normalize_from_moments_kernel(
    x_ptr, gamma_ptr, beta_ptr, y_ptr, part_mean_ptr, part_spread_ptr, mean_ptr, scale_ptr, variance_ptr,
    n_rows, kept1, reduced1, n_inner, n_steps, groups, per_group, repeat,
    KIND: tl.constexpr, CENTRED: tl.constexpr, EPSILON: tl.constexpr, ACTIVATION: tl.constexpr, BY: tl.constexpr,
    TYPE: tl.constexpr, NESTED: tl.constexpr, WIDE: tl.constexpr, BLOCK_PARTS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_STEPS: tl.constexpr, BLOCK_INNER: tl.constexpr,
):  # fmt: skip
    """normalize_kernel for one part of the steps, from the moments of all parts."""
    inner_blocks = tl.cdiv(n_inner, BLOCK_INNER)
    parts = tl.cdiv(n_steps, BLOCK_STEPS)
    block, part = tl.program_id(0) // parts, tl.program_id(0) % parts
    row = ((block // inner_blocks).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None, None]
    k = ((block % inner_blocks) * BLOCK_INNER + tl.arange(0, BLOCK_INNER))[None, None, :]
    live = (row < n_rows) & (k < n_inner)
    out = row * n_inner + k
    mean, spread = combined_moments(
        part_mean_ptr, part_spread_ptr, out, live, n_rows * n_inner, n_steps, CENTRED, TYPE, BLOCK_STEPS, BLOCK_PARTS
    )
    scale = scale_of(spread, n_steps, KIND, EPSILON)
    once = live & (part + tl.zeros_like(row) == 0)
    if mean_ptr is not None:
        tl.store(mean_ptr + out, mean.to(mean_ptr.dtype.element_ty), once)
    if scale_ptr is not None:
        tl.store(scale_ptr + out, scale.to(scale_ptr.dtype.element_ty), once)
    if variance_ptr is not None:
        tl.store(variance_ptr + out, divide(spread, n_steps + tl.zeros_like(spread)), once)
    step = (part * BLOCK_STEPS + tl.arange(0, BLOCK_STEPS))[None, :, None]
    offsets = row_offsets(row, kept1, reduced1, n_inner, n_steps, NESTED) + k
    offsets += step_offsets(step, kept1, reduced1, n_inner, NESTED, WIDE)
    mask = live & (step < n_steps)
    x = as_type(tl.load(x_ptr + offsets, mask, other=0.0), TYPE) - mean
    index, exists = parameter_index(row, step, k, n_rows, n_steps, n_inner, groups, per_group, repeat, BY)
    y = activate(scaled(normalized(x, scale, KIND), gamma_ptr, beta_ptr, index, exists), ACTIVATION, 1.0, 0.0)
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask)


COMBINED = 4096
"""Partial results a program combines at a time, over all rows of its tile."""


def normalize_calls(
    node: Node,
    x: Buffer,
    y: Buffer,
    geometry: Geometry,
    norm: Norm,
    target: Target,
    *,
    parameters: Parameters = NO_PARAMETERS,
    statistics: Statistics = NO_STATISTICS,
    skip: Skip = NO_SKIP,
) -> tuple[Launch, ...]:
    """The launches that normalise `x` (+ skip) along the steps of `geometry` into `y`."""
    if y.size == 0 and not statistics.buffers():  # those of rows of nothing are NaN
        return ()
    tile = resident_tile(geometry, x.itemsize, target)
    if tile is None:
        return _in_parts(node, x, y, geometry, norm, target, parameters, statistics, skip)
    total = () if skip.total is None else (skip.total,)
    return (
        launch(
            normalize_kernel,
            (tile.programs(geometry),),
            writes=(y, *total, *statistics.buffers()),
            num_warps=warps_for(tile.elements, tile.programs(geometry), target, most=16),
            inplace=((y, x),),
            x_ptr=x,
            y_ptr=y,
            EPSILON=norm.epsilon,
            ACTIVATION=norm.activation,
            **skip.arguments(geometry, parameters),
            **parameters.arguments(),
            **statistics.arguments(),
            **norm.constants(x.dtype),
            **geometry.arguments(),
            **tile.constants(),
        ),
    )


def _in_parts(
    node: Node,
    x: Buffer,
    y: Buffer,
    geometry: Geometry,
    norm: Norm,
    target: Target,
    parameters: Parameters,
    statistics: Statistics,
    skip: Skip,
) -> tuple[Launch, ...]:
    tile = tile_for(geometry, x.itemsize, target, elements=8192)
    parts = cdiv(geometry.steps, tile.steps)
    accumulator = float_accumulator(x.dtype)
    mean = node.temporary((parts, geometry.outputs), accumulator) if norm.centred else None
    spread = node.temporary((parts, geometry.outputs), accumulator)
    summed = skip.skip is not None or skip.bias is not None
    if summed and skip.total is None:
        skip = replace(skip, total=node.temporary(x.shape, x.dtype))
    written = (mean, spread, skip.total)
    shared = {**norm.constants(x.dtype), **geometry.arguments(), **tile.constants()}
    moments = launch(
        moments_kernel,
        (tile.programs(geometry) * parts,),
        writes=tuple(buffer for buffer in written if buffer is not None),
        num_warps=warps_for(tile.elements, tile.programs(geometry) * parts, target),
        x_ptr=x,
        mean_ptr=mean,
        spread_ptr=spread,
        **skip.arguments(geometry, parameters),
        **parameters.index_arguments(),
        **shared,
    )
    source = skip.total if summed and skip.total is not None else x
    normalize = launch(
        normalize_from_moments_kernel,
        (tile.programs(geometry) * parts,),
        writes=(y, *statistics.buffers()),
        num_warps=warps_for(tile.elements, tile.programs(geometry) * parts, target),
        inplace=((y, source),) if source.name != (skip.total.name if skip.total else "") else (),
        x_ptr=source,
        y_ptr=y,
        part_mean_ptr=mean,
        part_spread_ptr=spread,
        EPSILON=norm.epsilon,
        ACTIVATION=norm.activation,
        BLOCK_PARTS=max(1, min(power_of_two(parts), COMBINED // (tile.rows * tile.inner))),
        **parameters.arguments(),
        **statistics.arguments(),
        **shared,
    )
    return moments, normalize
