"""Norms of rows that several programs share: each leaves the mean and the spread of its part, then all are combined."""

from __future__ import annotations

from dataclasses import replace

import triton
import triton.language as tl

from gossamer.kernels.activations import activate
from gossamer.kernels.elementwise_math import divide
from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.kernels.launch import launch
from gossamer.kernels.normalization_arguments import Channels, Norm, Skip, Statistics
from gossamer.kernels.normalization_math import (
    load_summed,
    normalized,
    parameter_index,
    scale_of,
    scaled,
    spread_of,
)
from gossamer.kernels.reduction_geometry import (
    Geometry,
    Tile,
    as_type,
    float_accumulator,
    part_tile,
    row_offsets,
    step_offsets,
    warps_for,
)
from gossamer.model.node import Node
from gossamer.program import Buffer, Launch, Target


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
    part_mean_ptr, part_spread_ptr, group, live, stride, n_steps, width,
    CENTRED: tl.constexpr, TYPE: tl.constexpr, PART: tl.constexpr, BLOCK_PARTS: tl.constexpr,
):  # fmt: skip
    """The mean and spread of a group from those of its parts: of `width` channels, each in PART steps at a time, the
    last ones perhaps fewer."""
    n_parts = tl.cdiv(n_steps, PART) * width
    mean = as_type(tl.zeros(live.shape, tl.int32), TYPE)
    spread = mean
    if CENTRED:
        for first in range(0, n_parts, BLOCK_PARTS):
            i = (first + tl.arange(0, BLOCK_PARTS))[None, :, None]
            places = (i // width).to(tl.int64) * stride + group * width + i % width
            part_mean = tl.load(part_mean_ptr + places, live & (i < n_parts), other=0.0)
            mean += tl.sum(part_mean * tl.minimum(n_steps - i // width * PART, PART), axis=1, keep_dims=True)
        mean = divide(mean, (n_steps + tl.zeros_like(mean)) * width)
    for first in range(0, n_parts, BLOCK_PARTS):
        i = (first + tl.arange(0, BLOCK_PARTS))[None, :, None]
        mask = live & (i < n_parts)
        places = (i // width).to(tl.int64) * stride + group * width + i % width
        terms = tl.load(part_spread_ptr + places, mask, other=0.0)
        if CENTRED:
            shift = tl.load(part_mean_ptr + places, mask, other=0.0) - mean
            terms += tl.where(mask, shift * shift, 0.0) * tl.minimum(n_steps - i // width * PART, PART)
        spread += tl.sum(terms, axis=1, keep_dims=True)
    return mean, spread


@triton.jit
def combine_moments_kernel(
    part_mean_ptr, part_spread_ptr, mean_ptr, spread_ptr, n_groups, stride, n_steps, width,
    CENTRED: tl.constexpr, TYPE: tl.constexpr, PART: tl.constexpr, BLOCK_PARTS: tl.constexpr,
):  # fmt: skip
    """mean[group], spread[group] = combined_moments of the group's parts."""
    group = tl.program_id(0).to(tl.int64) + tl.zeros((1, 1, 1), tl.int64)
    live = group < n_groups
    mean, spread = combined_moments(
        part_mean_ptr, part_spread_ptr, group, live, stride, n_steps, width, CENTRED, TYPE, PART, BLOCK_PARTS
    )
    if CENTRED:
        tl.store(mean_ptr + group, mean, live)
    tl.store(spread_ptr + group, spread, live)


@triton.jit
def normalize_from_moments_kernel(
    x_ptr, gamma_ptr, beta_ptr, y_ptr, part_mean_ptr, part_spread_ptr, mean_ptr, scale_ptr, variance_ptr,
    n_rows, kept1, reduced1, n_inner, n_steps, groups, per_group, repeat, width,
    KIND: tl.constexpr, CENTRED: tl.constexpr, EPSILON: tl.constexpr, ACTIVATION: tl.constexpr, BY: tl.constexpr,
    TYPE: tl.constexpr, NESTED: tl.constexpr, WIDE: tl.constexpr, PART: tl.constexpr, BLOCK_PARTS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_STEPS: tl.constexpr, BLOCK_INNER: tl.constexpr,
):  # fmt: skip
    """normalize_kernel for one part of the steps, from the moments of all parts of `width` channels.

    BLOCK_PARTS: how many are combined at a time; 0 where they have been.
    """
    inner_blocks = tl.cdiv(n_inner, BLOCK_INNER)
    parts = tl.cdiv(n_steps, BLOCK_STEPS)
    block, part = tl.program_id(0) // parts, tl.program_id(0) % parts
    row = ((block // inner_blocks).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None, None]
    k = ((block % inner_blocks) * BLOCK_INNER + tl.arange(0, BLOCK_INNER))[None, None, :]
    live = (row < n_rows) & (k < n_inner)
    step = (part * BLOCK_STEPS + tl.arange(0, BLOCK_STEPS))[None, :, None]
    offsets = row_offsets(row, kept1, reduced1, n_inner, n_steps, NESTED) + k
    offsets += step_offsets(step, kept1, reduced1, n_inner, NESTED, WIDE)
    mask = live & (step < n_steps)
    x = as_type(tl.load(x_ptr + offsets, mask, other=0.0), TYPE)
    index, exists = parameter_index(row, step, k, n_rows, n_steps, n_inner, groups, per_group, repeat, BY)
    out = row * n_inner + k
    group = row * (n_inner // width) + k // width if BY == "inner" else out // width
    if BLOCK_PARTS == 0:
        spread = tl.load(part_spread_ptr + group, live, other=0.0)
        mean = tl.load(part_mean_ptr + group, live, other=0.0) if CENTRED else tl.zeros_like(spread)
    else:
        mean, spread = combined_moments(
            part_mean_ptr, part_spread_ptr, group, live, n_rows * n_inner, n_steps, width,
            CENTRED, TYPE, PART, BLOCK_PARTS,
        )  # fmt: skip
    scale = scale_of(spread, (n_steps + tl.zeros_like(spread)) * width, KIND, EPSILON)
    once = live & (part + tl.zeros_like(row) == 0)
    if mean_ptr is not None:
        tl.store(mean_ptr + out, mean.to(mean_ptr.dtype.element_ty), once)
    if scale_ptr is not None:
        tl.store(scale_ptr + out, scale.to(scale_ptr.dtype.element_ty), once)
    if variance_ptr is not None:
        tl.store(variance_ptr + out, divide(spread, n_steps + tl.zeros_like(spread)), once)
    y = scaled(normalized(x - mean, scale, KIND), gamma_ptr, beta_ptr, index, exists)
    tl.store(y_ptr + offsets, activate(y, ACTIVATION, 1.0, 0.0).to(y_ptr.dtype.element_ty), mask)


COMBINED = 4096
"""Partial results a program combines at a time, over all rows of its tile."""


def normalize_in_parts(
    node: Node, x: Buffer, y: Buffer, channels: Channels, norm: Norm, target: Target, statistics: Statistics, skip: Skip
) -> tuple[Launch, ...]:
    """The launches that leave moments of parts, combine them, and normalise."""
    geometry, parameters, width = channels.geometry, channels.parameters, channels.width
    tile = part_tile(geometry, x.itemsize, target)
    parts = cdiv(geometry.steps, tile.steps)
    programs = tile.programs(geometry) * parts
    num_warps = warps_for(tile.elements, programs, target)
    accumulator = float_accumulator(x.dtype)
    mean = node.temporary((parts, geometry.outputs), accumulator) if norm.centred else None
    spread = node.temporary((parts, geometry.outputs), accumulator)
    summed = skip.skip is not None or skip.bias is not None
    if summed and skip.total is None:
        skip = replace(skip, total=node.temporary(x.shape, x.dtype))
    moments = _moments(x, channels, norm, tile, num_warps, mean, spread, skip)
    combine: tuple[Launch, ...] = ()
    block_parts = max(1, min(power_of_two(parts * width), COMBINED // (tile.rows * tile.inner)))
    if width > 1 and tile.inner > 1:  # else each would gather what many need
        combine, mean, spread = _combine(node, geometry, width, mean, spread, norm, tile.steps)
        block_parts = 0
    source = skip.total if summed and skip.total is not None else x
    normalize = launch(
        normalize_from_moments_kernel,
        (programs,),
        writes=(y, *statistics.buffers()),
        num_warps=num_warps,
        inplace=((y, source),) if source.name != (skip.total.name if skip.total else "") else (),
        x_ptr=source,
        y_ptr=y,
        part_mean_ptr=mean,
        part_spread_ptr=spread,
        width=width,
        EPSILON=norm.epsilon,
        ACTIVATION=norm.activation,
        PART=tile.steps,
        BLOCK_PARTS=block_parts,
        **parameters.arguments(),
        **statistics.arguments(),
        **norm.constants(x.dtype),
        **geometry.arguments(),
        **tile.constants(),
    )
    return moments, *combine, normalize


def _moments(
    x: Buffer,
    channels: Channels,
    norm: Norm,
    tile: Tile,
    num_warps: int,
    mean: Buffer | None,
    spread: Buffer,
    skip: Skip,
) -> Launch:
    geometry, parameters = channels.geometry, channels.parameters
    return launch(
        moments_kernel,
        (tile.programs(geometry) * cdiv(geometry.steps, tile.steps),),
        writes=tuple(buffer for buffer in (mean, spread, skip.total) if buffer is not None),
        num_warps=num_warps,
        x_ptr=x,
        mean_ptr=mean,
        spread_ptr=spread,
        **skip.arguments(geometry, parameters),
        **parameters.index_arguments(),
        **norm.constants(x.dtype),
        **geometry.arguments(),
        **tile.constants(),
    )


def _combine(
    node: Node, geometry: Geometry, width: int, part_mean: Buffer | None, part_spread: Buffer, norm: Norm, part: int
) -> tuple[tuple[Launch, ...], Buffer | None, Buffer]:
    """The launch that combines the moments of each group's parts, and where it leaves them."""
    groups = geometry.outputs // width
    mean = None if part_mean is None else node.temporary((groups,), part_mean.dtype)
    spread = node.temporary((groups,), part_spread.dtype)
    combine = launch(
        combine_moments_kernel,
        (groups,),
        writes=(spread,) if mean is None else (mean, spread),
        part_mean_ptr=part_mean,
        part_spread_ptr=part_spread,
        mean_ptr=mean,
        spread_ptr=spread,
        n_groups=groups,
        stride=geometry.outputs,
        n_steps=geometry.steps,
        width=width,
        CENTRED=norm.centred,
        TYPE=part_spread.dtype,
        PART=part,
        BLOCK_PARTS=min(power_of_two(cdiv(geometry.steps, part) * width), COMBINED),
    )
    return (combine,), mean, spread
