"""Rotary position embeddings: pairs of channels turned by angles that grow with the position.

`prepared_rows` is what attention does to queries and keys on their way in: bias, norm, rotation. The operators that
only rotate are here too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl

from gossamer.kernels.copies import is_wide
from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.kernels.launch import launch
from gossamer.kernels.reduction_geometry import as_type
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import FUSED, Node
from gossamer.program import Buffer, Refusal, Target

MICROSOFT = "com.microsoft"
FLOATS = ("float16", "bfloat16", "float32")


@triton.jit
def prepared_rows(
    x_at, x_stride, d, size, mask, bias_at, norm, rotary, position, ROTARY: tl.constexpr, TYPE: tl.constexpr
):  # fmt: skip
    """rotate((x + bias) / rms · weight): rows at x_at[R, 1], columns d[1, D], of which `size` exist.

    bias_at: the rows' biases, or None. norm: (weight pointer or None, epsilon). rotary: (cos pointer, sin pointer, row
    stride, half the rotated columns); position[R, 1]: row of the tables. ROTARY: `none`, `half` (column d turns with
    d + half), `interleaved` (2i with 2i + 1) or `each` (as `half`, with a column of the tables for each of x).
    """
    in_size = mask & (d < size)
    x = as_type(tl.load(x_at + d * x_stride, mask=in_size, other=0.0), TYPE)
    if bias_at is not None:
        x += as_type(tl.load(bias_at + d, mask=in_size, other=0.0), TYPE)
    if norm[0] is not None:
        scale = tl.rsqrt(tl.sum(x * x, axis=1, keep_dims=True) / size + norm[1])
        x = x * scale * as_type(tl.load(norm[0] + d, mask=d < size, other=0.0), TYPE)
    if ROTARY != "none":
        half = rotary[3]
        turns = in_size & (d < 2 * half)
        if ROTARY == "interleaved":
            partner, angle, is_real = d ^ 1, d // 2, d % 2 == 0
        else:
            partner, is_real = tl.where(d < half, d + half, d - half), d < half
            angle = d if ROTARY == "each" else d % half
        other = as_type(tl.load(x_at + partner * x_stride, mask=turns, other=0.0), TYPE)
        if bias_at is not None:
            other += as_type(tl.load(bias_at + partner, mask=turns, other=0.0), TYPE)
        if norm[0] is not None:
            other = other * scale * as_type(tl.load(norm[0] + partner, mask=d < 2 * half, other=0.0), TYPE)
        at = position.to(tl.int64) * rotary[2] + angle
        cos = as_type(tl.load(rotary[0] + at, mask=turns, other=1.0), TYPE)
        sin = as_type(tl.load(rotary[1] + at, mask=turns, other=0.0), TYPE)
        x = x * cos + tl.where(is_real, other * -1.0, other) * sin
    return x


@triton.jit
def rotate_kernel(
    x_ptr, positions_ptr, y_ptr, rotary, n_rows, n_steps, n_heads, size, batch_stride, step_stride, head_stride,
    POSITIONS: tl.constexpr, ROTARY: tl.constexpr, WIDE: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """y[b, s, h] = x[b, s, h] with its pairs of channels turned by the angles of position p.

    p: by POSITIONS, `each` positions[b, s], `first` positions[0] + s, `step` s, `row` b · n_steps + s.
    """
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    if WIDE:
        row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    d = tl.arange(0, BLOCK_D)[None, :]
    mask = row < n_rows
    head, step, batch = row % n_heads, row // n_heads % n_steps, row // (n_heads * n_steps)
    if POSITIONS == "each":
        position = tl.load(positions_ptr + batch * n_steps + step, mask=mask, other=0)
    elif POSITIONS == "first":
        position = tl.load(positions_ptr) + step
    elif POSITIONS == "step":
        position = step
    else:
        position = batch * n_steps + step
    at = batch * batch_stride + step * step_stride + head * head_stride
    y = prepared_rows(x_ptr + at, 1, d, size, mask, None, (None, 0.0), rotary, position, ROTARY, "float32")
    tl.store(y_ptr + at + d, y.to(y_ptr.dtype.element_ty), mask=mask & (d < size))


@dataclass(frozen=True, slots=True)
class Rotary:
    """Tables of angles.

    cos, sin: one row per position, a column per rotated pair of channels, or where `each` per rotated channel.
    """

    cos: Buffer
    sin: Buffer
    interleaved: bool
    each: bool = False

    @property
    def kind(self) -> str:
        return "each" if self.each else "interleaved" if self.interleaved else "half"

    @property
    def arguments(self) -> tuple[Any, ...]:
        columns = self.cos.shape[-1]
        return (self.cos, self.sin, columns, columns // 2 if self.each else columns)

    def position(self, positions: Buffer | None, steps: int) -> str:
        """How `rotate_kernel` finds positions. Without any the tables have a row per step, of each entry or of all."""
        if positions is not None:
            return "first" if positions.size == 1 and steps > 1 else "each"
        return "step" if self.cos.size // self.cos.shape[-1] < steps else "row"


NO_ROTARY = (None, None, 0, 0)


def rotate(
    node: Node, x: Buffer, y: Buffer, heads: int, positions: Buffer | None, rotary: Rotary, target: Target
) -> Lowered:
    """x of [batch, steps, heads · size] or [batch, heads, steps, size], rotated into y of the same shape."""
    if x.dtype not in FLOATS:
        return Refusal(f"no rotary embedding of {x.dtype}")
    if x.rank == 4:
        batch, heads, steps, size = x.shape
        strides = (heads * steps * size, size, steps * size)
    else:
        batch, steps, width = x.shape
        size = width // heads
        strides = (steps * width, width, size)
    n_rows = batch * steps * heads
    block_d = power_of_two(max(size, 2), 2**16)
    block_rows = power_of_two(n_rows, max(1, (2**16 if target.interpreted else 1024) // block_d))
    return (
        launch(
            rotate_kernel,
            (cdiv(n_rows, block_rows),),
            writes=y,
            x_ptr=x,
            positions_ptr=positions,
            y_ptr=y,
            rotary=rotary.arguments,
            n_rows=n_rows,
            n_steps=steps,
            n_heads=heads,
            size=size,
            batch_stride=strides[0],
            step_stride=strides[1],
            head_stride=strides[2],
            POSITIONS=rotary.position(positions, batch * steps),
            ROTARY=rotary.kind,
            WIDE=is_wide(x.size),
            BLOCK_ROWS=block_rows,
            BLOCK_D=block_d,
        ),
    )


@lowers("RotaryEmbedding", since=23)
def lower_rotary(node: Node, target: Target) -> Lowered:
    """ONNX RotaryEmbedding-23: X, cos, sin, position_ids, without which the tables have a row per entry and step."""
    cos, sin = node.inputs[1], node.inputs[2]
    assert cos is not None
    assert sin is not None
    rotary = Rotary(cos, sin, bool(node.attribute("interleaved", 0)))
    return rotate(node, node.x, node.y, node.attribute("num_heads", 0), node.input(3), rotary, target)


@lowers("RotaryEmbedding", domain=MICROSOFT)
def lower_contrib_rotary(node: Node, target: Target) -> Lowered:
    """com.microsoft::RotaryEmbedding (-1): input, position_ids ([1]: that of the first step, or each), cos, sin."""
    positions, cos, sin = node.inputs[1], node.inputs[2], node.inputs[3]
    assert cos is not None
    assert sin is not None
    rotary = Rotary(cos, sin, bool(node.attribute("interleaved", 0)))
    heads = node.attribute("num_heads", 0) or node.x.shape[-1] // (2 * cos.shape[-1])
    return rotate(node, node.x, node.y, heads, positions, rotary, target)


@lowers("RotaryEmbedding", domain=FUSED)
def lower_fused_rotary(node: Node, target: Target) -> Lowered:
    """gossamer::RotaryEmbedding(x, cos, sin): x · cos + rotate_half(x) · sin on the first columns, as many as cos has.

    x: [batch, heads, steps, size]. cos, sin: [batch or 1, 1, steps, columns] or without leading ones.
    """
    cos, sin = node.inputs[1], node.inputs[2]
    assert cos is not None
    assert sin is not None
    return rotate(node, node.x, node.y, 0, None, Rotary(cos, sin, interleaved=False, each=True), target)
