"""LRN: local response normalisation across channels, in either layout."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from gossamer.kernels.division import divide_by, divisor_of
from gossamer.kernels.elementwise_math import divide, power, square_root
from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.kernels.launch import launch
from gossamer.kernels.reduction_geometry import as_type, float_accumulator
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import CHANNELS_LAST, Node
from gossamer.program import Launch, Target

DEFAULT_ALPHA = 9.999999747378752e-05
"""1e-4 as ONNX has it: in fp32."""


@triton.jit
def over_power(x, base, POWER: tl.constexpr, HALF: tl.constexpr):
    """x / base ** POWER; by square roots where networks have it so, which for halves (HALF) may be approximate."""
    if POWER == 0.75 and HALF:
        root = tl.rsqrt(base)
        return x * (root * tl.sqrt(root))
    elif POWER == 0.75:
        root = square_root(base)
        return divide(x, root * square_root(root))
    elif POWER == 0.5:
        return divide(x, square_root(base))
    else:
        return divide(x, power(base, POWER + tl.zeros_like(base)))


@triton.jit
def lrn_kernel(
    x_ptr, y_ptr, n_elements, n_channels, n_inner,
    ALPHA: tl.constexpr, BETA: tl.constexpr, BIAS: tl.constexpr, SIZE: tl.constexpr,
    TYPE: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """y[c] = x[c] / (bias + alpha / size · sum of x[j]² over |j - c| within the window) ** beta.

    The window runs from c - (size - 1) // 2 to c + size // 2. x is [outer, channels, inner].
    """
    first = tl.program_id(0).to(tl.int64) * BLOCK if WIDE else tl.program_id(0) * BLOCK
    i = first + tl.arange(0, BLOCK)
    channel = (i // n_inner) % n_channels
    total = as_type(tl.zeros((BLOCK,), tl.int32), TYPE)
    for tap in tl.range(0, SIZE, loop_unroll_factor=SIZE if SIZE <= 16 else 4):
        step = tap - (SIZE - 1) // 2
        inside = (channel + step >= 0) & (channel + step < n_channels) & (i < n_elements)
        neighbour = as_type(tl.load(x_ptr + i + step * n_inner, inside, other=0.0), TYPE)
        total += neighbour * neighbour
    x = as_type(tl.load(x_ptr + i, i < n_elements, other=0.0), TYPE)
    HALF: tl.constexpr = y_ptr.dtype.element_ty.primitive_bitwidth == 16
    y = over_power(x, total * (ALPHA / SIZE) + BIAS, BETA, HALF)
    tl.store(y_ptr + i, y.to(y_ptr.dtype.element_ty), i < n_elements)


@triton.jit
def lrn_planes_kernel(
    x_ptr, y_ptr, n_pixels, n_channels, n_inner, inner,
    ALPHA: tl.constexpr, BETA: tl.constexpr, BIAS: tl.constexpr, SIZE: tl.constexpr,
    TYPE: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """As `lrn_kernel`, where channels lie apart: a pixel's CHANNELS neighbouring results share what they read.

    n_pixels: of all images; inner: n_inner, those of one, as a divisor.
    """
    blocks = tl.cdiv(n_channels, CHANNELS)
    first = tl.program_id(0) % blocks * CHANNELS + tl.arange(0, 1)  # a tensor: the interpreter's masks are of such
    pixel = tl.program_id(0) // blocks
    pixel = (pixel.to(tl.int64) if WIDE else pixel) * BLOCK + tl.arange(0, BLOCK)
    image = divide_by(pixel, inner, WIDE)
    offset = image.to(tl.int64) * n_channels * n_inner + (pixel - image * n_inner)
    plane = tl.cast(n_inner, tl.int64)
    place = offset + first * plane
    xs, squares = (), ()  # grow channel by channel; Triton has no lists
    for k in tl.static_range(CHANNELS + SIZE - 1):
        step = k - (SIZE - 1) // 2
        inside = (first + step >= 0) & (first + step < n_channels) & (pixel < n_pixels)
        x = as_type(tl.load(x_ptr + (place + step * plane), inside, other=0.0), TYPE)
        xs, squares = xs + (x,), squares + (x * x,)  # type: ignore[assignment]  # noqa: RUF005
    HALF: tl.constexpr = y_ptr.dtype.element_ty.primitive_bitwidth == 16
    for k in tl.static_range(CHANNELS):
        total = squares[k]  # type: ignore[var-annotated]
        for tap in tl.static_range(1, SIZE):
            total += squares[k + tap]
        y = over_power(xs[k + (SIZE - 1) // 2], total * (ALPHA / SIZE) + BIAS, BETA, HALF)
        stored = (first + k < n_channels) & (pixel < n_pixels)
        tl.store(y_ptr + (place + k * plane), y.to(y_ptr.dtype.element_ty), stored)


MAX_SIZE = 16
"""Of windows whose sums are unrolled."""


@lowers("LRN")
@lowers("LRN", domain=CHANNELS_LAST)
def lower_lrn(node: Node, target: Target) -> Lowered:
    """LRN, opset 1 to 13: odd and even sizes."""
    x = node.x
    n_channels, inner = (x.shape[-1], 1) if node.channels_last else (x.shape[1], x.strides[1])
    arguments = {
        "writes": node.y,
        "x_ptr": x,
        "y_ptr": node.y,
        "n_channels": n_channels,
        "n_inner": inner,
        "ALPHA": node.attribute("alpha", DEFAULT_ALPHA),
        "BETA": node.attribute("beta", 0.75),
        "BIAS": node.attribute("bias", 1.0),
        "SIZE": node.attribute("size"),
        "TYPE": float_accumulator(x.dtype),
    }
    if inner > 1 and arguments["SIZE"] <= MAX_SIZE:
        return (_launch_planes(x.size // max(1, n_channels), n_channels, inner, arguments, target),)
    block = power_of_two(x.size, 2**14) if target.interpreted else 1024
    wide = x.size >= 2**31 - block
    return (launch(lrn_kernel, (cdiv(x.size, block),), n_elements=x.size, WIDE=wide, BLOCK=block, **arguments),)


def _launch_planes(pixels: int, n_channels: int, inner: int, arguments: dict[str, Any], target: Target) -> Launch:
    block, channels = (power_of_two(pixels, 2**14), 4) if target.interpreted else (256, 8)
    while channels > 1 and cdiv(pixels, block) * cdiv(n_channels, channels) < 2 * target.sm_count:
        channels //= 2
    wide = pixels >= 2**31 - block
    return launch(
        lrn_planes_kernel,
        (cdiv(pixels, block) * cdiv(n_channels, channels),),
        n_pixels=pixels,
        inner=divisor_of(inner, wide),
        CHANNELS=channels,
        WIDE=wide,
        BLOCK=block,
        **arguments,
    )
