"""LayerNormalization and its kin: RMS, Instance, Group, Lp, MeanVariance, and com.microsoft's with a skip connection.

All are y = (x - mean) · scale · gamma + beta with statistics over the steps of a `Geometry`, in fp32 at least, centred
before they are squared. A row that fits one program's registers is read once. A longer one is read twice: by one
program, the second time from cache, where there are enough rows for that; else in parts.
"""

from __future__ import annotations

import triton
import triton.language as tl

from gossamer.kernels.activations import activate
from gossamer.kernels.elementwise_math import divide
from gossamer.kernels.launch import launch
from gossamer.kernels.normalization_arguments import (
    NO_PARAMETERS,
    NO_SKIP,
    NO_STATISTICS,
    Channels,
    Norm,
    Parameters,
    Skip,
    Statistics,
)
from gossamer.kernels.normalization_math import (
    load_summed,
    normalized,
    parameter_index,
    scale_of,
    scaled,
    spread_of,
)
from gossamer.kernels.normalization_parts import normalize_in_parts
from gossamer.kernels.reduction_geometry import (
    Geometry,
    Tile,
    as_type,
    cached_rows,
    resident_tile,
    row_offsets,
    step_offsets,
    warps_for,
)
from gossamer.model.node import Node
from gossamer.program import Buffer, Launch, Target


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
def moments_of_row(
    row_ptr, n_steps, KIND: tl.constexpr, CENTRED: tl.constexpr, TYPE: tl.constexpr,
    BLOCK_STEPS: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """(mean, spread), [1, 1], of contiguous steps: lanes keep their own by Welford's recurrence until the end."""
    lane = tl.arange(0, BLOCK_STEPS)[None, :]
    mean = as_type(tl.zeros((1, BLOCK_STEPS), tl.int32), TYPE)
    spread = mean
    for start in range(0, n_steps, UNROLL * BLOCK_STEPS):
        for i in tl.static_range(UNROLL):
            first = start + i * BLOCK_STEPS
            mask = first + lane < n_steps
            x = as_type(tl.load(row_ptr + first + lane, mask, other=0.0), TYPE)
            if CENTRED:
                deviation = tl.where(mask, x - mean, 0.0)
                mean += deviation * (1.0 / as_type(first // BLOCK_STEPS + 1, TYPE))
                spread += deviation * (x - mean)
            else:
                spread += tl.abs(x) if KIND == "l1" else x * x
    if CENTRED:
        count = (n_steps - lane + BLOCK_STEPS - 1) // BLOCK_STEPS  # that a lane has seen
        row_mean = tl.sum(mean * count, axis=1, keep_dims=True)
        row_mean = divide(row_mean, n_steps + tl.zeros_like(row_mean))
        spread += (mean - row_mean) * (mean - row_mean) * count
        return row_mean, tl.sum(spread, axis=1, keep_dims=True)
    else:
        row_spread = tl.sum(spread, axis=1, keep_dims=True)
        return tl.zeros_like(row_spread), row_spread


@triton.jit
def normalize_cached_rows_kernel(
    x_ptr, gamma_ptr, beta_ptr, y_ptr, mean_ptr, scale_ptr, variance_ptr,
    n_rows, n_steps, groups, per_group, repeat,
    KIND: tl.constexpr, CENTRED: tl.constexpr, EPSILON: tl.constexpr, ACTIVATION: tl.constexpr, BY: tl.constexpr,
    TYPE: tl.constexpr, BLOCK_STEPS: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """normalize_kernel for one contiguous row, which is read twice."""
    row = tl.program_id(0).to(tl.int64)
    row_ptr = x_ptr + row * n_steps
    mean, spread = moments_of_row(row_ptr, n_steps, KIND, CENTRED, TYPE, BLOCK_STEPS, UNROLL)
    count = n_steps + tl.zeros_like(spread)
    scale = scale_of(spread, count, KIND, EPSILON)
    out = row + tl.zeros((1, 1), tl.int32)
    if mean_ptr is not None:
        tl.store(mean_ptr + out, mean.to(mean_ptr.dtype.element_ty))
    if scale_ptr is not None:
        tl.store(scale_ptr + out, scale.to(scale_ptr.dtype.element_ty))
    if variance_ptr is not None:
        tl.store(variance_ptr + out, divide(spread, count))
    lane = tl.arange(0, UNROLL)[:, None] * BLOCK_STEPS + tl.arange(0, BLOCK_STEPS)[None, :]
    for start in range(0, n_steps, UNROLL * BLOCK_STEPS):
        step = start + lane
        mask = step < n_steps
        x = as_type(tl.load(row_ptr + step, mask, other=0.0, eviction_policy="evict_first"), TYPE)
        index, exists = parameter_index(row, step, 0, n_rows, n_steps, 1, groups, per_group, repeat, BY)
        y = activate(
            scaled(normalized(x - mean, scale, KIND), gamma_ptr, beta_ptr, index, exists), ACTIVATION, 1.0, 0.0
        )
        y = y.to(y_ptr.dtype.element_ty)
        tl.store(y_ptr + row * n_steps + step, y, mask, eviction_policy="evict_first")


GATHERED = 4096
"""Steps of a row of several channels from which on looking up every element's parameters costs more than a launch."""


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
    channels: Channels | None = None,
) -> tuple[Launch, ...]:
    """The launches that normalise `x` (+ skip) along the steps of `geometry` into `y`.

    channels: the same norm by channel, where its rows are groups of them. Elements of a channel share their parameters:
    longer rows are taken so.
    """
    if y.size == 0 and not statistics.buffers():  # those of rows of nothing are NaN
        return ()
    tile = resident_tile(geometry, x.itemsize, target, tensors=1 if skip.skip is None else 2)
    if channels is not None and (tile is None or geometry.steps > GATHERED):
        return normalize_in_parts(node, x, y, channels, norm, target, statistics, skip)
    added = skip.skip is not None or skip.bias is not None or skip.total is not None
    if tile is None and not added and (cached := cached_rows(geometry, x.itemsize, target)) is not None:
        return (_cached(x, y, geometry, *cached, norm, parameters, statistics),)
    if tile is None:
        return normalize_in_parts(node, x, y, Channels(geometry, parameters, 1), norm, target, statistics, skip)
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


def _cached(
    x: Buffer,
    y: Buffer,
    geometry: Geometry,
    tile: Tile,
    num_warps: int,
    norm: Norm,
    parameters: Parameters,
    statistics: Statistics,
) -> Launch:
    return launch(
        normalize_cached_rows_kernel,
        (geometry.rows,),
        writes=(y, *statistics.buffers()),
        num_warps=num_warps,
        inplace=((y, x),),
        x_ptr=x,
        y_ptr=y,
        n_rows=geometry.rows,
        n_steps=geometry.steps,
        EPSILON=norm.epsilon,
        ACTIVATION=norm.activation,
        BLOCK_STEPS=tile.steps,
        UNROLL=tile.unroll,
        **parameters.arguments(),
        **statistics.arguments(),
        **norm.constants(x.dtype),
    )
