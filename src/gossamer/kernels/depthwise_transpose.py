"""Depthwise transposed convolution: memory is the bound, so every output gathers what it is the sum of."""

from __future__ import annotations

import triton
import triton.language as tl

from gossamer.kernels.convolution_epilogue import Epilogue
from gossamer.kernels.convolution_geometry import Convolution
from gossamer.kernels.convolution_pixels import finish, pixel_coordinates, pixel_offset
from gossamer.kernels.depthwise import choose_patch, stencil_arguments
from gossamer.kernels.extents import cdiv
from gossamer.kernels.launch import launch
from gossamer.model.node import Node
from gossamer.program import Buffer, Call, Target


@triton.jit
def input_at(place, stride: tl.constexpr, extent):
    """The input that is spread to `place` of the output before pads are cut off, and whether there is one."""
    at = place // stride
    return at, (place >= 0) & (at * stride == place) & (at < extent)


@triton.jit
def depthwise_transpose_kernel(
    x_ptr, w_ptr, bias_ptr, z_ptr, y_ptr, n_pixels, n_outputs, x_strides, x_channel_stride, x_extents, y_strides,
    y_channel_stride, y_extents, w_tap_stride, w_channel_stride, pads, dilations, alpha, beta, KERNEL: tl.constexpr,
    STRIDES: tl.constexpr, RANK: tl.constexpr, WIDE: tl.constexpr, MULTIPLIER: tl.constexpr, X_ALIGN: tl.constexpr,
    Y_ALIGN: tl.constexpr, W_ALIGN: tl.constexpr, KIND: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """y[n,k,o] = KIND(Σ over taps of x[n, k / MULTIPLIER, (o + pads − tap · dilations) / STRIDES] · w[k,tap] + bias[k]
    + z[n,k,o]), over the taps for which the division leaves no remainder. Strides are in units as in
    `depthwise_kernel`.
    """
    columns = tl.cdiv(n_outputs * Y_ALIGN, BLOCK_C)
    line = tl.program_id(0) // columns
    pixel = (line.to(tl.int64) if WIDE else line) * BLOCK_P + tl.arange(0, BLOCK_P)
    channel = tl.program_id(0) % columns * BLOCK_C + tl.arange(0, BLOCK_C)
    if WIDE:
        channel = channel.to(tl.int64)
    channel_mask = channel < n_outputs * Y_ALIGN
    image, z, p, q = pixel_coordinates(pixel, y_extents, RANK)
    x_images = x_ptr + (channel // MULTIPLIER * x_channel_stride)[None, :]
    w_at = w_ptr + (channel * w_channel_stride)[None, :] + tl.zeros((BLOCK_P, 1), tl.int32)
    mask = (pixel < n_pixels)[:, None] & channel_mask[None, :]
    acc = tl.zeros((BLOCK_P, BLOCK_C), tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32)
    for tap in range(KERNEL[0] * KERNEL[1] * KERNEL[2]):
        t, r, s = tap // (KERNEL[1] * KERNEL[2]), tap // KERNEL[2] % KERNEL[1], tap % KERNEL[2]
        depth, in_depth = input_at(z + pads[0] - t * dilations[0], STRIDES[0], x_extents[0])
        row, in_rows = input_at(p + pads[1] - r * dilations[1], STRIDES[1], x_extents[1])
        column, in_columns = input_at(q + pads[2] - s * dilations[2], STRIDES[2], x_extents[2])
        seen = mask & (in_depth & in_rows & in_columns)[:, None]
        at = x_images + pixel_offset(image, depth, row, column, x_strides, X_ALIGN)[:, None]
        x = tl.load(at, mask=seen, other=0.0).to(acc.dtype)
        w = tl.load(w_at + tap * (w_tap_stride * W_ALIGN), mask=seen, other=0.0).to(acc.dtype)
        acc += x * w
    at = pixel_offset(image, z, p, q, y_strides, Y_ALIGN)[:, None] + channel[None, :] * y_channel_stride
    acc = finish(acc, channel[None, :], channel_mask[None, :], at, mask, bias_ptr, z_ptr, alpha, beta, KIND)
    tl.store(y_ptr + at, acc.to(y_ptr.dtype.element_ty), mask=mask)


def convolve_transposed_depthwise(
    node: Node, target: Target, convolution: Convolution, epilogue: Epilogue, filters: Buffer
) -> tuple[Call, ...]:
    """The launch of a ConvTranspose whose groups have one input channel. filters: ONNX's [C, K / C, taps…]. The window
    has the operator's own strides and dilations, and as pads what is cut off before output 0."""
    y, pixels = convolution.y, convolution.pixels
    patch = choose_patch(pixels, y.channels, node.x.itemsize, y.channels_last, target)
    return (
        launch(
            depthwise_transpose_kernel,
            (cdiv(pixels, patch.pixels) * cdiv(y.channels, patch.channels),),
            n_pixels=pixels,
            STRIDES=convolution.window.strides,
            **stencil_arguments(node, convolution, epilogue, filters, patch),
        ),
    )
