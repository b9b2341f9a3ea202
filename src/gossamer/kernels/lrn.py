"""LRN: local response normalisation across channels, in either layout."""

from __future__ import annotations

import triton
import triton.language as tl

from gossamer.kernels.elementwise_math import divide, power, square_root
from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.kernels.launch import launch
from gossamer.kernels.reduction_geometry import as_type, float_accumulator
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import CHANNELS_LAST, Node
from gossamer.program import Target

DEFAULT_ALPHA = 9.999999747378752e-05
"""1e-4 as ONNX has it: in fp32."""


@triton.jit
def raised(x, POWER: tl.constexpr):
    """x ** POWER; by square roots where networks have it so."""
    if POWER == 0.75:
        half = square_root(x)
        return half * square_root(half)
    elif POWER == 0.5:
        return square_root(x)
    else:
        return power(x, POWER + tl.zeros_like(x))


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
    y = divide(x, raised(total * (ALPHA / SIZE) + BIAS, BETA))
    tl.store(y_ptr + i, y.to(y_ptr.dtype.element_ty), i < n_elements)


@lowers("LRN")
@lowers("LRN", domain=CHANNELS_LAST)
def lower_lrn(node: Node, target: Target) -> Lowered:
    """LRN, opset 1 to 13: odd and even sizes."""
    x = node.x
    n_channels, inner = (x.shape[-1], 1) if node.channels_last else (x.shape[1], x.strides[1])
    block = power_of_two(x.size, 2**14) if target.interpreted else 1024
    return (
        launch(
            lrn_kernel,
            (cdiv(x.size, block),),
            writes=node.y,
            x_ptr=x,
            y_ptr=node.y,
            n_elements=x.size,
            n_channels=n_channels,
            n_inner=inner,
            ALPHA=node.attribute("alpha", DEFAULT_ALPHA),
            BETA=node.attribute("beta", 0.75),
            BIAS=node.attribute("bias", 1.0),
            SIZE=node.attribute("size"),
            TYPE=float_accumulator(x.dtype),
            WIDE=x.size >= 2**31 - block,
            BLOCK=block,
        ),
    )
