"""What matrix products and convolutions of 8-bit integers share: signs, zero points, and what becomes of the sums.

Both operands are multiplied as int8, uint8 moved down by 128 with its zero point. Zero points z and w come off
afterwards: Σ (a − z)(b − w) = Σ ab − w Σ a − z Σ b + K z w, which is exact in int32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import triton
import triton.language as tl

from gossamer.kernels.elementwise_math import divide, round_half_even
from gossamer.kernels.gemm_tiles import Tiles, choose_tiles
from gossamer.model.node import Node
from gossamer.program import Buffer, Refusal, Target

BYTES = ("int8", "uint8")


@triton.jit
def as_signed(x):
    """int8 as it is, uint8 less 128."""
    if x.dtype == tl.uint8:
        return (x.to(tl.int16) - 128).to(tl.int8)
    else:
        return x


@triton.jit
def load_zeros(zero_ptr, places, mask, UNSIGNED: tl.constexpr):
    """Zero points as `as_signed` moves them, in int32; 0 before that where none are given."""
    moved = tl.where(mask, 128, 128) if UNSIGNED else tl.where(mask, 0, 0)
    if zero_ptr is None:
        return 0 - moved
    else:
        return tl.load(zero_ptr + places, mask=mask, other=0).to(tl.int32) - moved


@triton.jit
def settle(
    acc, m_scales, n_scales, n, m_mask, n_mask, a_scale_ptr, b_scale_ptr, y_scale_ptr, y_zero_ptr, bias_ptr,
    KIND: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
):  # fmt: skip
    """What is stored of exact sums. m_scales, n_scales: where rows and columns have their scales.

    `integer`: the sums. `float`: sums · a_scale · b_scale + bias[n]. `quantized`: (sums + bias[n]) times a_scale ·
    b_scale / y_scale, plus y_zero, rounded and saturated.
    """
    if KIND == "integer":
        return acc
    else:
        scale = tl.load(a_scale_ptr + m_scales, mask=m_mask, other=0).to(tl.float32)
        scale = scale * tl.load(b_scale_ptr + n_scales, mask=n_mask, other=0).to(tl.float32)
        if bias_ptr is not None:
            bias = tl.load(bias_ptr + n, mask=n_mask, other=0)
        if KIND == "float":
            y = acc.to(tl.float32) * scale
            return y if bias_ptr is None else y + bias.to(tl.float32)
        else:
            acc = acc if bias_ptr is None else acc + bias
            y_scale = tl.load(y_scale_ptr).to(tl.float32)
            zero = 0.0 if y_zero_ptr is None else tl.load(y_zero_ptr).to(tl.float32)
            q = round_half_even(acc.to(tl.float32) * divide(scale, tl.zeros_like(scale) + y_scale))
            return (tl.minimum(tl.maximum(q, LOW - zero), HIGH - zero) + zero).to(tl.int32)


@dataclass(frozen=True, slots=True)
class Zeros:
    """One operand's zero points. unsigned: the operand is uint8. needed: there is something to take off.

    steps: from batch to batch and from row (column) to row, in elements of buffer.
    """

    buffer: Buffer | None
    unsigned: bool
    needed: bool
    steps: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What becomes of the sums: see `settle`. steps: as those of `Zeros`, for the scales of rows and of columns."""

    kind: str = "integer"
    a_scale: Buffer | None = None
    b_scale: Buffer | None = None
    y_scale: Buffer | None = None
    y_zero: Buffer | None = None
    bias: Buffer | None = None
    a_steps: tuple[int, int] = (0, 0)
    b_steps: tuple[int, int] = (0, 0)

    def arguments(self, y: Buffer) -> dict[str, Any]:
        """Those that every kernel has that calls `settle`."""
        limits = np.iinfo(y.dtype) if self.kind == "quantized" else None
        return {
            "a_scale_ptr": self.a_scale,
            "b_scale_ptr": self.b_scale,
            "y_scale_ptr": self.y_scale,
            "y_zero_ptr": self.y_zero,
            "bias_ptr": self.bias,
            "KIND": self.kind,
            "LOW": float(limits.min) if limits else 0.0,
            "HIGH": float(limits.max) if limits else 0.0,
        }


def zeros_of(node: Node, operand: Buffer, index: int, steps: tuple[int, int] = (0, 0)) -> Zeros:
    """The zero points in input `index`, or none. Constant ones that change nothing are left out."""
    buffer, unsigned = node.input(index), operand.dtype == "uint8"
    neutral = 128 if unsigned else 0
    value = None if buffer is None else node.constant(index)
    if value is not None and bool((value == neutral).all()):
        return Zeros(None, unsigned, needed=False)
    return Zeros(buffer, unsigned, unsigned or buffer is not None, steps)


def steps_of(values: Buffer | None, batches: int, extent: int, operand: str) -> tuple[int, int] | Refusal:
    """How scales or zero points spread over `batches` matrices of `extent` rows (columns): one for all, one for each
    row, or one for each row of each matrix."""
    if values is None or values.size == 1:
        return 0, 0
    if values.size == extent:
        return 0, 1
    if values.size == batches * extent:
        return extent, 1
    return Refusal(f"scales or zero points of shape {list(values.shape)} do not fit operand {operand}")


def choose_byte_tiles(m: int, n: int, k: int, batch: int, target: Target) -> Tiles:
    """Tiles for products of bytes: those of 16-bit floats, twice as long in K, for the same memory; K is not split."""
    tiles = choose_tiles(m, n, k, batch, "float16", target)
    longer = 1 if target.interpreted else 2
    return Tiles(tiles.block_m, tiles.block_n, max(32, longer * tiles.block_k), tiles.num_warps, tiles.num_stages)
