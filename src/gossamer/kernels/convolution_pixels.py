"""Device functions that the convolution kernels share: numbering of pixels, the epilogue, writing a tile."""

from __future__ import annotations

import triton
import triton.language as tl

from gossamer.kernels.activations import activate


@triton.jit
def pixel_coordinates(pixel, extents, RANK: tl.constexpr):
    """(image, depth, row, column) of pixels numbered image by image; extents: depth, rows, columns of an image.

    RANK: how many of the extents may differ from 1. At 0 every pixel is an image.
    """
    zero = tl.zeros_like(pixel)
    if RANK == 0:
        return pixel, zero, zero, zero
    if RANK == 1:
        return pixel // extents[2], zero, zero, pixel % extents[2]
    if RANK == 2:
        line = pixel // extents[2]
        return line // extents[1], zero, line % extents[1], pixel % extents[2]
    line = pixel // extents[2]
    sheet = line // extents[1]
    return sheet // extents[0], sheet % extents[0], line % extents[1], pixel % extents[2]


@triton.jit
def pixel_offset(image, depth, row, column, strides, ALIGN: tl.constexpr):
    """Offset of a pixel in elements, in 64 bits; strides in units of ALIGN elements."""
    within = (depth * strides[1] + row * strides[2] + column * strides[3]) * ALIGN
    return image.to(tl.int64) * (strides[0] * ALIGN) + within


@triton.jit
def finish(acc, channel, channel_mask, at, mask, bias_ptr, z_ptr, alpha, beta, KIND: tl.constexpr):
    """KIND(acc + bias[channel] + z[at]; alpha, beta)."""
    if bias_ptr is not None:
        acc += tl.load(bias_ptr + channel, mask=channel_mask, other=0.0).to(acc.dtype)
    if z_ptr is not None:
        acc += tl.load(z_ptr + at, mask=mask, other=0.0).to(acc.dtype)
    return activate(acc, KIND, alpha, beta)


@triton.jit
def write_tile(
    acc, y_ptr, pixel_at, kept, channel, inner, channel_stride, bias_ptr, z_ptr, alpha, beta, KIND: tl.constexpr,
    FINISHED: tl.constexpr, PIXELS_INNER: tl.constexpr,
):  # fmt: skip
    """y[pixel_at[m] + channel[n] · channel_stride] = acc[m, n], after the epilogue if FINISHED, for m kept, n inner.

    PIXELS_INNER: channels come first in memory, so neighbouring threads have to write neighbouring pixels. What is
    passed around between them for that is y itself where it can be, half as much as sums.
    """
    if FINISHED and z_ptr is None:
        acc = finish(acc, channel[None, :], inner[None, :], 0, None, bias_ptr, z_ptr, alpha, beta, KIND)
        acc = acc.to(y_ptr.dtype.element_ty)
    if PIXELS_INNER:
        acc = tl.trans(acc)
        pixel_at, kept, channel, inner = pixel_at[None, :], kept[None, :], channel[:, None], inner[:, None]
    else:
        pixel_at, kept, channel, inner = pixel_at[:, None], kept[:, None], channel[None, :], inner[None, :]
    at = pixel_at + channel * channel_stride
    mask = kept & inner
    if FINISHED and z_ptr is not None:
        acc = finish(acc, channel, inner, at, mask, bias_ptr, z_ptr, alpha, beta, KIND)
    tl.store(y_ptr + at, acc.to(y_ptr.dtype.element_ty), mask=mask)
