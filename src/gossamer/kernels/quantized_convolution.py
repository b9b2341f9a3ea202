"""Convolutions of 8-bit integers: ConvInteger and QLinearConv, as an implicit product of pixels and output channels.

Padding stands for zero, which is x's zero point: pixels outside the image are given that value, so that the correction
for zero points may take every tap for one inside.
"""

from __future__ import annotations

from math import prod

import triton
import triton.language as tl

from gossamer.kernels.convolution_geometry import Convolution, convolution_of
from gossamer.kernels.convolution_pixels import pixel_coordinates, pixel_offset
from gossamer.kernels.launch import launch
from gossamer.kernels.quantized_products import (
    BYTES,
    Outcome,
    Zeros,
    as_signed,
    choose_byte_tiles,
    load_zeros,
    settle,
    steps_of,
    zeros_of,
)
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import Node
from gossamer.program import Buffer, Launch, Refusal, Target


@triton.jit
def byte_convolution_kernel(
    x_ptr, w_ptr, x_zero_ptr, w_zero_ptr, a_scale_ptr, b_scale_ptr, y_scale_ptr, y_zero_ptr, bias_ptr, y_ptr,
    n_pixels, n_outputs, n_groups, n_channels, n_products, taps, window, x_strides, x_channel_stride, x_extents,
    y_strides, y_channel_stride, y_extents, strides, pads, dilations, w_zero_step, w_scale_step,
    X_UNSIGNED: tl.constexpr, W_UNSIGNED: tl.constexpr, X_ZERO: tl.constexpr, W_ZERO: tl.constexpr, RANK: tl.constexpr,
    KIND: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """y[n,k,o] = settle(Σ over taps, c of (x[n,c, window(o, tap)] − x_zero) · (w[k,c,tap] − w_zero)).

    n_outputs, n_channels: of one group. n_products: channels × taps, the filters' own order. X_ZERO, W_ZERO: whether
    there is a zero point other than 0, once uint8 is moved.
    """
    columns = tl.cdiv(n_outputs, BLOCK_N)
    tile = tl.program_id(0)
    group = tile // columns % n_groups
    pixel = (tile // columns // n_groups).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    kept = pixel < n_pixels
    image, z, p, q = pixel_coordinates(pixel, y_extents, RANK)
    d, h, w = z * strides[0] - pads[0], p * strides[1] - pads[1], q * strides[2] - pads[2]
    x_rows = pixel_offset(image, d, h, w, x_strides, 1) + group.to(tl.int64) * n_channels * x_channel_stride
    output = tile % columns * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = output < n_outputs
    channel = group * n_outputs + output
    w_rows = w_ptr + channel.to(tl.int64) * n_products
    x_zero = tl.zeros((1,), tl.int32)
    if X_ZERO:
        x_zero = load_zeros(x_zero_ptr, tl.arange(0, 1), tl.arange(0, 1) == 0, X_UNSIGNED)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.int32)
    x_sums, w_sums = tl.zeros((BLOCK_M,), tl.int32), tl.zeros((BLOCK_N,), tl.int32)
    W_NEUTRAL: tl.constexpr = 128 if W_UNSIGNED else 0
    for start in range(0, n_products, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        tap, c = k % taps, k // taps
        t, r, s = tap // (window[1] * window[2]), tap // window[2] % window[1], tap % window[2]
        shift = t * dilations[0] * x_strides[1] + r * dilations[1] * x_strides[2] + s * dilations[2] * x_strides[3]
        inside = kept[:, None] & (k < n_products)[None, :]
        inside &= within(d, t * dilations[0], x_extents[0]) & within(h, r * dilations[1], x_extents[1])
        inside &= within(w, s * dilations[2], x_extents[2])
        at = x_rows[:, None] + (shift + c.to(tl.int64) * x_channel_stride)[None, :]
        x = as_signed(tl.load(x_ptr + at, mask=inside, other=0))
        x = tl.where(inside, x, tl.where((k < n_products)[None, :], x_zero[None, :], 0).to(tl.int8))
        mask = (k < n_products)[:, None] & inner[None, :]
        filters = as_signed(tl.load(w_rows[None, :] + k[:, None], mask=mask, other=W_NEUTRAL))
        acc = tl.dot(x, filters, acc, out_dtype=tl.int32)
        if W_ZERO:
            x_sums += tl.sum(x.to(tl.int32), axis=1)
        if X_ZERO:
            w_sums += tl.sum(filters.to(tl.int32), axis=0)
    acc -= x_zero[:, None] * w_sums[None, :]
    if W_ZERO:
        w_zero = load_zeros(w_zero_ptr, channel * w_zero_step, inner, W_UNSIGNED)
        acc += (n_products * x_zero - x_sums)[:, None] * w_zero[None, :]
    no_places = tl.zeros_like(pixel)[:, None]
    y = settle(acc, no_places, (channel * w_scale_step)[None, :], channel[None, :], kept[:, None], inner[None, :],
               a_scale_ptr, b_scale_ptr, y_scale_ptr, y_zero_ptr, bias_ptr, KIND, LOW, HIGH)  # fmt: skip
    at = pixel_offset(image, z, p, q, y_strides, 1)[:, None] + channel.to(tl.int64)[None, :] * y_channel_stride
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=kept[:, None] & inner[None, :])


@triton.jit
def within(first, shift, extent):
    """Whether the coordinates first[m] + shift[k] exist: [m, k]."""
    coordinate = first[:, None] + shift[None, :]
    return (coordinate >= 0) & (coordinate < extent)


@lowers("ConvInteger", since=10)
def lower_conv_integer(node: Node, target: Target) -> Lowered:
    """ONNX ConvInteger (-10): int32 sums; a zero point for X, one or one per output channel for W."""
    filters = node.inputs[1]
    assert filters is not None
    return convolve_bytes(node, target, filters, zeros_of(node, node.x, 2), zeros_of(node, filters, 3), Outcome())


@lowers("QLinearConv", since=10)
def lower_qlinear_conv(node: Node, target: Target) -> Lowered:
    """ONNX QLinearConv (-10): scales of X and Y per tensor, of W per tensor or output channel; int32 bias."""
    filters = node.inputs[3]
    assert filters is not None
    if node.y.dtype not in BYTES:
        return Refusal(f"QLinearConv to {node.y.dtype} has no kernel")
    outcome = Outcome("quantized", node.inputs[1], node.inputs[4], node.inputs[6], node.input(7), node.input(8))
    return convolve_bytes(node, target, filters, zeros_of(node, node.x, 2), zeros_of(node, filters, 5), outcome)


def convolve_bytes(
    node: Node, target: Target, filters: Buffer, x_zeros: Zeros, w_zeros: Zeros, outcome: Outcome
) -> Lowered:
    """The convolution of the node's first input, less its zero point, settled into the node's output."""
    if node.x.dtype not in BYTES or filters.dtype not in BYTES:
        return Refusal(f"no convolution of {node.x.dtype} with {filters.dtype}")
    if not 3 <= node.x.rank <= 5:
        return Refusal(f"{node.op_type} over {node.x.rank - 2} spatial dimensions has no kernel")
    of_whole = (x_zeros.buffer, outcome.a_scale, outcome.y_scale, outcome.y_zero)
    if any(buffer is not None and buffer.size != 1 for buffer in of_whole):
        return Refusal("scales and zero points of X and Y must be scalars")
    m = filters.shape[0]
    zero_steps, scale_steps = (steps_of(buffer, 1, m, "W") for buffer in (w_zeros.buffer, outcome.b_scale))
    if isinstance(zero_steps, Refusal):
        return zero_steps
    if isinstance(scale_steps, Refusal):
        return scale_steps
    convolution = convolution_of(node, filters).simplified()
    return (_launch(node, target, filters, convolution, (x_zeros, w_zeros), outcome, (zero_steps[1], scale_steps[1])),)


def _launch(
    node: Node,
    target: Target,
    filters: Buffer,
    convolution: Convolution,
    zeros: tuple[Zeros, Zeros],
    outcome: Outcome,
    steps: tuple[int, int],
) -> Launch:
    """steps: from channel to channel, of the filters' zero points and scales."""
    (x_zeros, w_zeros), x, y, window = zeros, convolution.x, convolution.y, convolution.window
    products = prod(filters.shape[1:])
    tiles = choose_byte_tiles(convolution.pixels, convolution.outputs, products, convolution.groups, target)
    return launch(
        byte_convolution_kernel,
        (tiles.programs(convolution.pixels, convolution.outputs, convolution.groups),),
        writes=node.y,
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
        flops=convolution.flops,
        x_ptr=node.x,
        w_ptr=filters,
        x_zero_ptr=x_zeros.buffer,
        w_zero_ptr=w_zeros.buffer,
        y_ptr=node.y,
        n_pixels=convolution.pixels,
        n_outputs=convolution.outputs,
        n_groups=convolution.groups,
        n_channels=convolution.channels,
        n_products=products,
        taps=window.taps,
        window=window.kernel,
        x_strides=x.strides,
        x_channel_stride=x.channel_stride,
        x_extents=x.extents,
        y_strides=y.strides,
        y_channel_stride=y.channel_stride,
        y_extents=y.extents,
        strides=window.strides,
        pads=window.pads,
        dilations=window.dilations,
        w_zero_step=steps[0],
        w_scale_step=steps[1],
        X_UNSIGNED=x_zeros.unsigned,
        W_UNSIGNED=w_zeros.unsigned,
        X_ZERO=x_zeros.needed,
        W_ZERO=w_zeros.needed,
        RANK=convolution.rank,
        **outcome.arguments(node.y),
        BLOCK_M=tiles.block_m,
        BLOCK_N=tiles.block_n,
        BLOCK_K=tiles.block_k,
    )
