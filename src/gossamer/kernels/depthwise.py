"""Depthwise convolution: one input channel per group. Memory is the bound, so it is a stencil and no matrix product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np
import triton
import triton.language as tl

from gossamer.kernels.convolution_epilogue import Epilogue
from gossamer.kernels.convolution_geometry import Convolution
from gossamer.kernels.convolution_pixels import finish, pixel_coordinates, pixel_offset
from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.kernels.launch import launch
from gossamer.model.node import Node
from gossamer.program import Buffer, Call, Target

MAX_UNROLLED = 64
"""Taps up to which the loop over them is unrolled: all their loads are then under way at once."""

ENOUGH_WARPS = 12
"""Per multiprocessor: with fewer it waits for memory."""


@triton.jit
def add_tap(
    acc, x_pixels, d, h, w, tap, w_at, kept, x_strides, x_extents, dilations, w_tap_stride,
    KERNEL: tl.constexpr, RANK: tl.constexpr, PADDED: tl.constexpr, ALIGN: tl.constexpr, W_ALIGN: tl.constexpr,
):  # fmt: skip
    """acc + x[window at tap] · w[tap]; x_pixels, d, h, w: addresses and coordinates of the first tap."""
    t, r, s = tap // (KERNEL[1] * KERNEL[2]), tap // KERNEL[2] % KERNEL[1], tap % KERNEL[2]
    inside = kept
    if PADDED:
        if RANK >= 3:
            inside &= ((d + t * dilations[0] >= 0) & (d + t * dilations[0] < x_extents[0]))[:, None]
        if RANK >= 2:
            inside &= ((h + r * dilations[1] >= 0) & (h + r * dilations[1] < x_extents[1]))[:, None]
        inside &= ((w + s * dilations[2] >= 0) & (w + s * dilations[2] < x_extents[2]))[:, None]
    shift = t * dilations[0] * x_strides[1] + r * dilations[1] * x_strides[2] + s * dilations[2] * x_strides[3]
    x = tl.load(x_pixels + shift * ALIGN, mask=inside, other=0.0).to(acc.dtype)
    return acc + x * tl.load(w_at + tap * (w_tap_stride * W_ALIGN), mask=kept, other=0.0).to(acc.dtype)


@triton.jit
def with_one_more(values, value):
    """A tuple with `value` behind the others."""
    return values + (value,)  # noqa: RUF005 - Triton has no starred expressions


@triton.jit
def add_row(
    sums, x_pixels, d, h, w, line: tl.constexpr, w_at, kept, x_strides, x_extents, dilations, w_tap_stride,
    KERNEL: tl.constexpr, RANK: tl.constexpr, PADDED: tl.constexpr, RUN: tl.constexpr, STEP: tl.constexpr,
    ALIGN: tl.constexpr, W_ALIGN: tl.constexpr,
):  # fmt: skip
    """sums[i] + Σ over s of x[window of output i at tap s of this line of taps] · w[line, s], for RUN outputs side by
    side, whose windows lie STEP columns apart: each column is read and converted once for all that see it."""
    t, r = line // KERNEL[1], line % KERNEL[1]
    inside = kept
    if PADDED:
        if RANK >= 3:
            inside &= ((d + t * dilations[0] >= 0) & (d + t * dilations[0] < x_extents[0]))[:, None]
        if RANK >= 2:
            inside &= ((h + r * dilations[1] >= 0) & (h + r * dilations[1] < x_extents[1]))[:, None]
    shift = t * dilations[0] * x_strides[1] + r * dilations[1] * x_strides[2]
    filters = ()
    for s in tl.static_range(KERNEL[2]):
        at = w_at + (line * KERNEL[2] + s) * (w_tap_stride * W_ALIGN)
        filters = with_one_more(filters, tl.load(at, mask=kept, other=0.0).to(sums[0].dtype))
    for s in tl.static_range((RUN - 1) * STEP + KERNEL[2]):
        column, seen = w + s * dilations[2], inside
        if PADDED:
            seen &= ((column >= 0) & (column < x_extents[2]))[:, None]
        at = x_pixels + (shift + s * dilations[2] * x_strides[3]) * ALIGN
        x = tl.load(at, mask=seen, other=0.0).to(sums[0].dtype)
        added = ()
        for i in tl.static_range(RUN):
            if s - i * STEP >= 0 and s - i * STEP < KERNEL[2]:
                added = with_one_more(added, sums[i] + x * filters[s - i * STEP])
            else:
                added = with_one_more(added, sums[i])
        sums = added
    return sums


@triton.jit
def depthwise_kernel(
    x_ptr, w_ptr, bias_ptr, z_ptr, y_ptr, n_runs, n_outputs, x_strides, x_channel_stride, x_extents, y_strides,
    y_channel_stride, y_extents, runs, w_tap_stride, w_channel_stride, strides, pads, dilations, alpha, beta,
    KERNEL: tl.constexpr, RANK: tl.constexpr, PADDED: tl.constexpr, WIDE: tl.constexpr, UNROLLED: tl.constexpr,
    RUN: tl.constexpr, STEP: tl.constexpr, MULTIPLIER: tl.constexpr, X_ALIGN: tl.constexpr, Y_ALIGN: tl.constexpr,
    W_ALIGN: tl.constexpr, KIND: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """y[n,k,o] = KIND(Σ over taps of x[n, k / MULTIPLIER, window(o, tap)] · w[k,tap] + bias[k] + z[n,k,o]).

    window(o, tap) = o · strides − pads + tap · dilations. The strides of x, n_outputs with the strides of y, and
    w_tap_stride are in units of X_ALIGN, Y_ALIGN and W_ALIGN elements. RUN: outputs side by side that a thread
    computes; runs: how many of these there are along each dimension of y.
    """
    columns = tl.cdiv(n_outputs * Y_ALIGN, BLOCK_C)
    line = tl.program_id(0) // columns
    run = (line.to(tl.int64) if WIDE else line) * BLOCK_P + tl.arange(0, BLOCK_P)
    channel = tl.program_id(0) % columns * BLOCK_C + tl.arange(0, BLOCK_C)
    if WIDE:
        channel = channel.to(tl.int64)
    channel_mask = channel < n_outputs * Y_ALIGN
    image, z, p, q = pixel_coordinates(run, runs, RANK)
    q *= RUN
    d, h, w = z * strides[0] - pads[0], p * strides[1] - pads[1], q * strides[2] - pads[2]
    x_pixels = x_ptr + pixel_offset(image, d, h, w, x_strides, X_ALIGN)[:, None]
    x_pixels += (channel // MULTIPLIER * x_channel_stride)[None, :]
    # One vector per thread and tap, where x's is: a row of filters would have to be passed around between threads.
    w_at = w_ptr + (channel * w_channel_stride)[None, :] + tl.zeros((BLOCK_P, 1), tl.int32)
    mask = (run < n_runs)[:, None] & channel_mask[None, :]
    acc = tl.zeros((BLOCK_P, BLOCK_C), tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32)
    sums = (acc,)
    for _ in tl.static_range(RUN - 1):
        sums = with_one_more(sums, acc)
    if UNROLLED:
        for line_of_taps in tl.static_range(KERNEL[0] * KERNEL[1]):
            sums = add_row(sums, x_pixels, d, h, w, line_of_taps, w_at, mask, x_strides, x_extents, dilations,
                           w_tap_stride, KERNEL, RANK, PADDED, RUN, STEP, X_ALIGN, W_ALIGN)  # fmt: skip
    else:
        for tap in range(KERNEL[0] * KERNEL[1] * KERNEL[2]):
            acc = add_tap(acc, x_pixels, d, h, w, tap, w_at, mask, x_strides, x_extents, dilations,
                          w_tap_stride, KERNEL, RANK, PADDED, X_ALIGN, W_ALIGN)  # fmt: skip
        sums = (acc,)
    first = pixel_offset(image, z, p, q, y_strides, Y_ALIGN)[:, None] + channel[None, :] * y_channel_stride
    for i in tl.static_range(RUN):
        at = first + i * (y_strides[3] * Y_ALIGN)
        kept = mask if RUN == 1 else mask & (q + i < y_extents[2])[:, None]
        y = finish(sums[i], channel[None, :], channel_mask[None, :], at, kept, bias_ptr, z_ptr, alpha, beta, KIND)
        tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=kept)


@dataclass(frozen=True, slots=True)
class Patch:
    """One program computes pixels × channels output elements; with `run`, as many times `pixels` outputs side by
    side."""

    pixels: int
    channels: int
    num_warps: int
    run: int = 1


def choose_patch(
    pixels: int, channels: int, itemsize: int, channels_last: bool, target: Target, *, runs: Sequence[int] = ()
) -> Patch:
    """Threads side by side along what is contiguous, 16 bytes each. runs: how many outputs a thread may compute.

    Where there is enough to do, a program is one warp, and its threads have several outputs: they share the filter, the
    arithmetic on addresses and, in a run, what they see. Else there are more warps, of one output per thread, to have
    more loads under way.
    """
    if target.interpreted:
        wide = power_of_two(channels, 4096)
        return Patch(min(2**18 // wide, power_of_two(pixels)), wide, 4)
    if not channels_last:
        block = power_of_two(pixels, 1024, least=128)
        while block > 128 and cdiv(pixels, block) * channels < 4 * target.sm_count:
            block //= 2
        return Patch(block, 1, 4)
    wide = min((power_of_two(channels, most) for most in (64, 32)), key=lambda block: cdiv(channels, block) * block)
    vectors = 32 * max(1, 16 // itemsize)
    enough = ENOUGH_WARPS * target.sm_count * vectors
    for run in runs:
        if pixels * channels >= run * enough:
            return Patch(max(1, vectors // wide), wide, 1, run)
    if pixels * channels >= 2 * enough:
        return Patch(max(1, 2 * vectors // wide), wide, 1)
    return Patch(max(1, 4 * vectors // wide), wide, 4)


def runs_of(convolution: Convolution) -> tuple[int, ...]:
    """How many outputs side by side a thread may compute, the best first: windows overlap, and few outputs of the last
    run in a row are left over."""
    window, columns = convolution.window, convolution.y.extents[2]
    overlap = window.strides[2] < window.kernel[2] and window.dilations[2] == 1 and window.taps <= MAX_UNROLLED
    return tuple(run for run in (4, 2) if overlap and 8 * cdiv(columns, run) * run <= 9 * columns)


def convolve_depthwise(
    node: Node,
    target: Target,
    convolution: Convolution,
    epilogue: Epilogue,
    filters: Buffer,
    patch: Patch | None = None,
) -> tuple[Call, ...]:
    """The launch of a convolution whose groups have one input channel. filters: ONNX's [K, 1, taps…]."""
    y, window = convolution.y, convolution.window
    runs = runs_of(convolution)
    patch = patch or choose_patch(convolution.pixels, y.channels, node.x.itemsize, y.channels_last, target, runs=runs)
    here = (*y.extents[:2], cdiv(y.extents[2], patch.run))
    n_runs = convolution.batch * here[0] * here[1] * here[2]
    return (
        launch(
            depthwise_kernel,
            (cdiv(n_runs, patch.pixels) * cdiv(y.channels, patch.channels),),
            n_runs=n_runs,
            runs=here,
            strides=window.strides,
            PADDED=convolution.padded or y.extents[2] % patch.run != 0,
            UNROLLED=window.taps <= MAX_UNROLLED,
            RUN=patch.run,
            STEP=window.strides[2],
            **stencil_arguments(node, convolution, epilogue, filters, patch),
        ),
    )


def stencil_arguments(
    node: Node, convolution: Convolution, epilogue: Epilogue, filters: Buffer, patch: Patch
) -> dict[str, Any]:
    """What the launches of both stencils, of convolutions and of transposed ones, have in common."""
    x, y, window = convolution.x, convolution.y, convolution.window
    x_align, y_align = x.alignment(x.channels), y.alignment(y.channels)
    weights, w_strides = filters_by_tap(node, filters, window.taps, y.channels)
    w_align = gcd(16, w_strides[0])
    return {
        "writes": node.y,
        "num_warps": patch.num_warps,
        "inplace": epilogue.inplace(node.y, node.x, weights),
        "x_ptr": node.x,
        "w_ptr": weights,
        "y_ptr": node.y,
        "n_outputs": y.channels // y_align,
        "x_strides": x.units(x_align),
        "x_channel_stride": x.channel_stride,
        "x_extents": x.extents,
        "y_strides": y.units(y_align),
        "y_channel_stride": y.channel_stride,
        "y_extents": y.extents,
        "w_tap_stride": w_strides[0] // w_align,
        "w_channel_stride": w_strides[1],
        "pads": window.pads,
        "dilations": window.dilations,
        **epilogue.arguments(),
        "KERNEL": window.kernel,
        "RANK": convolution.rank,
        "WIDE": convolution.wide,
        "MULTIPLIER": convolution.outputs,
        "X_ALIGN": x_align,
        "Y_ALIGN": y_align,
        "W_ALIGN": w_align,
        "BLOCK_P": patch.pixels,
        "BLOCK_C": patch.channels,
    }


def filters_by_tap(node: Node, filters: Buffer, taps: int, channels: int) -> tuple[Buffer, tuple[int, int]]:
    """The filters with channels contiguous, and their strides (tap, channel); as they are if they are not constant."""
    if taps == 1 or not node.is_constant(filters):
        return filters, (1, taps)

    def by_tap(array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(array.reshape(channels, taps).T)

    return node.derived(filters, "by tap", (taps, channels), filters.dtype, by_tap), (channels, 1)
