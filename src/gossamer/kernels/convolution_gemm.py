"""Convolution as an implicit matrix product: rows are output pixels, columns output channels, K is taps × channels.

The window's elements are gathered while they are multiplied, so no im2col matrix exists; any layout, stride, dilation
and padding is arithmetic on addresses. Products of few tiles split K. A transposed convolution is, for each phase of
its stride, such a convolution with fewer taps: see `convolution_transpose`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

import triton
import triton.language as tl

from gossamer.kernels.convolution_epilogue import Epilogue, add_partial_sums
from gossamer.kernels.convolution_geometry import Convolution
from gossamer.kernels.convolution_pixels import pixel_coordinates, pixel_offset, write_tile
from gossamer.kernels.convolution_tiles import Extents, extents_of
from gossamer.kernels.extents import cdiv
from gossamer.kernels.gemm import multiply_tiles
from gossamer.kernels.gemm_tiles import Tiles
from gossamer.kernels.launch import launch
from gossamer.kernels.tf32 import multiplies_in_tf32
from gossamer.model.node import Node
from gossamer.program import Buffer, Call, Target


@triton.jit
def window_tile(
    x_rows, d, h, w, step, k, x_strides, x_channel_stride, x_extents, dilations, taps_here, n_channels, chunks,
    KERNEL: tl.constexpr, RANK: tl.constexpr, FLAT: tl.constexpr, PADDED: tl.constexpr, PARTIAL: tl.constexpr,
    WIDE: tl.constexpr, ALIGN: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The inputs that block `step` of K multiplies, for every pixel of the tile: zero outside the image.

    x_rows, d, h, w: address and coordinates of each pixel's first tap. taps_here: how many taps there are, where they
    may be fewer than KERNEL says. FLAT: the channels, where K runs across taps.
    """
    if FLAT > 0:
        index = step * BLOCK_K + k
        tap, channel = index // FLAT, index % FLAT
        inside = index < KERNEL[0] * KERNEL[1] * KERNEL[2] * FLAT
    else:
        tap, channel = step // chunks, step % chunks * BLOCK_K + k
        if WIDE:
            tap += k * 0  # which makes it 64 bits wide, as k is
        inside = channel < n_channels * ALIGN if PARTIAL else tl.full(k.shape, True, tl.int1)
    t, r, s = tap // (KERNEL[1] * KERNEL[2]), tap // KERNEL[2] % KERNEL[1], tap % KERNEL[2]
    if PADDED:
        if RANK >= 3:
            inside &= (d + t * dilations[0] >= 0) & (d + t * dilations[0] < x_extents[0])
        if RANK >= 2:
            inside &= (h + r * dilations[1] >= 0) & (h + r * dilations[1] < x_extents[1])
        if RANK >= 1:
            inside &= (w + s * dilations[2] >= 0) & (w + s * dilations[2] < x_extents[2])
    if taps_here is not None:
        exists = (t < taps_here[0]) & (r < taps_here[1]) & (s < taps_here[2])
        inside &= k < tl.where(exists, BLOCK_K, 0)  # the interpreter makes int32 of a block & a scalar
    shift = t * dilations[0] * x_strides[1] + r * dilations[1] * x_strides[2] + s * dilations[2] * x_strides[3]
    at = x_rows + (shift * ALIGN + channel * x_channel_stride)
    return tl.load(at, mask=inside, other=0.0) if PADDED or PARTIAL else tl.load(at)


@triton.jit
def convolution_kernel(
    x_ptr, w_ptr, bias_ptr, z_ptr, y_ptr, phases_ptr, n_pixels, n_channels, n_outputs, n_groups, steps, chunks,
    split_stride, x_strides, x_channel_stride, x_extents, y_strides, y_channel_stride, y_extents, y_pixels, cells,
    strides, pads, dilations, alpha, beta, KERNEL: tl.constexpr, RANK: tl.constexpr, FLAT: tl.constexpr,
    PADDED: tl.constexpr, PARTIAL: tl.constexpr, WIDE: tl.constexpr, X_PIXELS_INNER: tl.constexpr,
    Y_PIXELS_INNER: tl.constexpr, X_ALIGN: tl.constexpr, Y_ALIGN: tl.constexpr, Y_RUN: tl.constexpr,
    KIND: tl.constexpr, MULTIPLY: tl.constexpr, UPCAST: tl.constexpr, SPLIT: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """y[n,k,o] = KIND(Σ over taps, c of x[n,c, o · strides − pads + tap · dilations] · w[k,tap,c] + bias[k] + z[n,k,o])

    Filters are packed (`convolution_weights`). Strides, n_channels and n_outputs are in units of X_ALIGN and Y_ALIGN
    elements. y_pixels: of an image, in units of Y_RUN. cells: extents of the output that pixels are numbered over.
    phases_ptr: for a transposed convolution nine integers per phase: input coordinate of the first tap of cell 0,
    output coordinate of cell 0, and how many taps exist. Cell c of a phase is output c · strides + that coordinate.
    With SPLIT, y[s] is the plain sum over the s-th part of K.
    """
    columns = tl.cdiv(n_outputs * Y_ALIGN, BLOCK_N)
    tile = tl.program_id(0)
    group, line = tile // columns % n_groups, tile // columns // n_groups
    pixel = (line.to(tl.int64) if WIDE else line) * BLOCK_M + tl.arange(0, BLOCK_M)
    image, z, p, q = pixel_coordinates(tl.minimum(pixel, n_pixels - 1), cells, RANK)
    kept = pixel < n_pixels
    phase = tl.program_id(2)
    if phases_ptr is None:
        d, h, w = z * strides[0] - pads[0], p * strides[1] - pads[1], q * strides[2] - pads[2]
        taps_here = None
    else:
        here = phases_ptr + phase * 9
        d, h, w = z + tl.load(here), p + tl.load(here + 1), q + tl.load(here + 2)
        z, p, q = (
            z * strides[0] + tl.load(here + 3),
            p * strides[1] + tl.load(here + 4),
            q * strides[2] + tl.load(here + 5),
        )
        kept &= (z < y_extents[0]) & (p < y_extents[1]) & (q < y_extents[2])
        taps_here = (tl.load(here + 6), tl.load(here + 7), tl.load(here + 8))
    x_rows = x_ptr + group.to(tl.int64) * (n_channels * X_ALIGN) * x_channel_stride
    x_rows += pixel_offset(image, d, h, w, x_strides, X_ALIGN)
    output = tile % columns * BLOCK_N + tl.arange(0, BLOCK_N)
    channel = group * (n_outputs * Y_ALIGN) + output
    filter_row = phase * n_groups * n_outputs * Y_ALIGN + tl.minimum(channel, (group + 1) * (n_outputs * Y_ALIGN) - 1)
    w_rows = w_ptr + filter_row.to(tl.int64) * (steps * BLOCK_K)
    k = tl.arange(0, BLOCK_K).to(tl.int64) if WIDE else tl.arange(0, BLOCK_K)
    first, last = 0, steps
    if SPLIT:
        share = tl.cdiv(steps, tl.num_programs(1))
        first = tl.program_id(1) * share
        last = tl.minimum(first + share, steps)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32)
    for step in range(first, last):
        if X_PIXELS_INNER:
            x = tl.trans(window_tile(
                x_rows[None, :], d[None, :], h[None, :], w[None, :], step, k[:, None], x_strides, x_channel_stride,
                x_extents, dilations, taps_here, n_channels, chunks, KERNEL, RANK, FLAT, PADDED, PARTIAL, WIDE,
                X_ALIGN, BLOCK_K,
            ))  # fmt: skip
        else:
            x = window_tile(
                x_rows[:, None], d[:, None], h[:, None], w[:, None], step, k[None, :], x_strides, x_channel_stride,
                x_extents, dilations, taps_here, n_channels, chunks, KERNEL, RANK, FLAT, PADDED, PARTIAL, WIDE,
                X_ALIGN, BLOCK_K,
            )  # fmt: skip
        filters = tl.load(w_rows[None, :] + (step * BLOCK_K + k)[:, None])
        acc = multiply_tiles(x, filters, acc, MULTIPLY, UPCAST)
    if Y_PIXELS_INNER and phases_ptr is None:  # said so that the compiler sees which addresses are neighbours
        at = (pixel // (y_pixels * Y_RUN)).to(tl.int64) * y_strides[0] + pixel % (y_pixels * Y_RUN)
    else:
        at = pixel_offset(image, z, p, q, y_strides, Y_ALIGN)
    if SPLIT:
        at += tl.program_id(1).to(tl.int64) * split_stride
    if WIDE:
        channel = channel.to(tl.int64)
    write_tile(acc, y_ptr, at, kept, channel, output < n_outputs * Y_ALIGN, y_channel_stride, bias_ptr, z_ptr, alpha,
               beta, KIND, not SPLIT, Y_PIXELS_INNER)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Phases:
    """How a transposed convolution's output falls into interleaved parts. cells: extents of one part. strides: of the
    output. table: the constant that `convolution_kernel` reads."""

    count: int
    cells: tuple[int, int, int]
    strides: tuple[int, int, int]
    table: Buffer


def padded_channels(extents: Extents, block_k: int) -> tuple[int, int]:
    """What a tap takes of a packed filter's row, and the row's length."""
    if extents.flat:
        return extents.channels, cdiv(extents.reduction, block_k) * block_k
    per_tap = cdiv(extents.channels, block_k) * block_k
    return per_tap, per_tap * extents.taps


def convolve(
    node: Node,
    target: Target,
    convolution: Convolution,
    epilogue: Epilogue,
    tiles: Tiles,
    x: Buffer,
    filters: Buffer,
    y: Buffer,
    phases: Phases | None = None,
) -> tuple[Call, ...]:
    """The launches of a convolution of x with packed `filters` into y. With phases, `convolution.window` is that of
    one phase."""
    dtype = "float64" if y.dtype == "float64" else "float32"
    sums = node.temporary((tiles.splits, *y.shape), dtype) if tiles.splits > 1 else y
    cells = phases.cells if phases else convolution.y.extents
    pixels = convolution.batch * cells[0] * cells[1] * cells[2]
    rows, columns = cdiv(pixels, tiles.block_m), cdiv(convolution.outputs, tiles.block_n)
    here = epilogue if tiles.splits == 1 else Epilogue()
    first = launch(
        convolution_kernel,
        (rows * columns * convolution.groups, tiles.splits, phases.count if phases else 1),
        writes=sums,
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
        inplace=here.inplace(y, x, filters),
        flops=2 * pixels * convolution.y.channels * convolution.channels * convolution.window.taps,
        x_ptr=x,
        w_ptr=filters,
        y_ptr=sums,
        phases_ptr=phases.table if phases else None,
        n_pixels=pixels,
        n_groups=convolution.groups,
        split_stride=y.size,
        cells=cells,
        strides=phases.strides if phases else convolution.window.strides,
        **_addresses(convolution),
        **_reduction(convolution, tiles),
        **here.arguments(),
        WIDE=convolution.wide,
        PADDED=phases is not None or convolution.padded,
        **_arithmetic(x.dtype, target),
    )
    if tiles.splits == 1:
        return (first,)
    return first, add_partial_sums(sums, tiles.splits, epilogue, y, convolution.y, target)


def _addresses(convolution: Convolution) -> dict[str, Any]:
    """The kernel arguments that say where pixels and channels are."""
    x, y, window = convolution.x, convolution.y, convolution.window
    run = gcd(16, y.pixels)
    x_align, y_align = x.alignment(convolution.channels), y.alignment(convolution.outputs)
    return {
        "n_channels": convolution.channels // x_align,
        "n_outputs": convolution.outputs // y_align,
        "x_strides": x.units(x_align),
        "x_channel_stride": x.channel_stride,
        "x_extents": x.extents,
        "y_strides": y.units(y_align),
        "y_channel_stride": y.channel_stride,
        "y_extents": y.extents,
        "y_pixels": y.pixels // run,
        "pads": window.pads,
        "dilations": window.dilations,
        "RANK": convolution.rank,
        "KERNEL": window.kernel,
        "X_PIXELS_INNER": not x.channels_last,
        "Y_PIXELS_INNER": not y.channels_last,
        "X_ALIGN": x_align,
        "Y_ALIGN": y_align,
        "Y_RUN": run,
    }


def _reduction(convolution: Convolution, tiles: Tiles) -> dict[str, Any]:
    """The kernel arguments that say how K is cut into blocks."""
    extents = extents_of(convolution)
    return {
        "steps": extents.steps(tiles.block_k),
        "chunks": cdiv(convolution.channels, tiles.block_k),
        "FLAT": convolution.channels if extents.flat else 0,
        "PARTIAL": extents.reduction % tiles.block_k != 0,
        "SPLIT": tiles.splits > 1,
        "BLOCK_M": tiles.block_m,
        "BLOCK_N": tiles.block_n,
        "BLOCK_K": tiles.block_k,
    }


def _arithmetic(dtype: str, target: Target) -> dict[str, Any]:
    """How tiles are multiplied; packed filters are rounded already."""
    precision = "tf32" if multiplies_in_tf32(dtype, target) else "ieee"
    return {"MULTIPLY": precision, "UPCAST": target.interpreted and dtype in ("float16", "bfloat16")}
