"""Attention that begins with the projection of its input: com.microsoft's Attention and QAttention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import triton
import triton.language as tl

from gossamer.kernels.attention import Attention, Heads, Lengths, attention_calls
from gossamer.kernels.attention_cache import Cache, append_calls, dense_heads
from gossamer.kernels.attention_operators import MICROSOFT, default_scale, with_padding
from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.kernels.gemm import Epilogue, Matrix, Product, multiply
from gossamer.kernels.launch import launch
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import Node
from gossamer.program import Buffer, Call, Launch, Refusal, Target


@triton.jit
def between_kernel(bounds_ptr, mask_ptr, n_batch, n_columns, BLOCK: tl.constexpr):
    """mask[b, j] = whether bounds[n_batch + b] ≤ j < bounds[b]."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = i < n_batch * n_columns
    batch, column = i // n_columns, i % n_columns
    end = tl.load(bounds_ptr + batch, mask=live, other=0)
    start = tl.load(bounds_ptr + n_batch + batch, mask=live, other=0)
    tl.store(mask_ptr + i, ((column >= start) & (column < end)).to(mask_ptr.dtype.element_ty), mask=live)


@triton.jit
def dequantize_kernel(
    x_ptr, scale_ptr, zero_ptr, y_ptr, n_elements, n_columns, PER_COLUMN: tl.constexpr, BLOCK: tl.constexpr
):
    """y = (x - zero) · scale. PER_COLUMN: whether scale, and whether zero, has a number for each column."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < n_elements
    column = i % n_columns
    x = tl.load(x_ptr + i, mask=live, other=0).to(tl.int32)
    if zero_ptr is not None:
        x -= tl.load(zero_ptr + (column if PER_COLUMN[1] else column * 0), mask=live, other=0).to(tl.int32)
    scale = tl.load(scale_ptr + (column if PER_COLUMN[0] else column * 0), mask=live, other=0).to(tl.float32)
    tl.store(y_ptr + i, (x.to(tl.float32) * scale).to(y_ptr.dtype.element_ty), mask=live)


@dataclass(frozen=True, slots=True)
class _Inputs:
    """past: [2, batch, heads, rows, columns], keys then values; with past_length, how many of its rows count."""

    padding: Buffer | None
    past: Buffer | None
    bias: Buffer | None = None
    past_length: Buffer | None = None


@lowers("Attention", domain=MICROSOFT)
def lower_packed_attention(node: Node, target: Target) -> Lowered:
    """com.microsoft::Attention (-1): one product with packed weights, then attention. Every form of mask and past."""
    if node.attribute("do_rotary", 0):
        return Refusal("Attention that rotates by itself has no kernel: RotaryEmbedding does")
    weights = node.inputs[1]
    assert weights is not None
    product, packed = _projected(node, target, node.x, weights, node.input(2))
    sizes: tuple[int, ...] = node.attribute("qkv_hidden_sizes", (weights.shape[1] // 3,) * 3)
    inputs = _Inputs(node.input(3), node.input(4), node.input(5), node.input(6))
    rest = _attend_packed(node, target, packed, sizes, inputs)
    return rest if isinstance(rest, Refusal) else (*product, *rest)


@lowers("QAttention", domain=MICROSOFT)
def lower_quantized_attention(node: Node, target: Target) -> Lowered:
    """com.microsoft::QAttention (-1): input and weights are dequantised to the type of their scales."""
    if node.attribute("do_rotary", 0):
        return Refusal("QAttention that rotates by itself has no kernel")
    weights, bias, x_scale, w_scale = node.inputs[1], node.inputs[2], node.inputs[3], node.inputs[4]
    assert weights is not None
    assert bias is not None
    assert x_scale is not None
    assert w_scale is not None
    x = node.temporary(node.x.shape, x_scale.dtype)
    w = node.temporary(weights.shape, x_scale.dtype)
    before = (
        _dequantize(node.x, x_scale, node.input(6), x, target),
        _dequantize(weights, w_scale, node.input(7), w, target),
    )
    product, packed = _projected(node, target, x, w, bias)
    rest = _attend_packed(node, target, packed, (weights.shape[1] // 3,) * 3, _Inputs(node.input(5), node.input(8)))
    return rest if isinstance(rest, Refusal) else (*before, *product, *rest)


def _dequantize(x: Buffer, scale: Buffer, zero: Buffer | None, y: Buffer, target: Target) -> Launch:
    block = power_of_two(x.size, 2**16 if target.interpreted else 1024)
    return launch(
        dequantize_kernel,
        (cdiv(x.size, block),),
        writes=y,
        x_ptr=x,
        scale_ptr=scale,
        zero_ptr=zero,
        y_ptr=y,
        n_elements=x.size,
        n_columns=x.shape[-1],
        PER_COLUMN=(scale.size > 1, zero is not None and zero.size > 1),
        BLOCK=block,
    )


def _projected(
    node: Node, target: Target, x: Buffer, weights: Buffer, bias: Buffer | None
) -> tuple[tuple[Call, ...], Buffer]:
    """x [batch, rows, in] · weights [in, out] + bias, and the buffer [batch, rows, out] that it is written to."""
    batch, rows, inner = x.shape
    packed = node.temporary((batch, rows, weights.shape[1]), x.dtype)
    a, b = Matrix(x, (), inner, 1), Matrix(weights, (), weights.shape[1], 1)
    product = Product(a, b, packed, batch * rows, weights.shape[1], inner, (), Epilogue(bias))
    return multiply(node, target, product), packed


def _attend_packed(
    node: Node, target: Target, packed: Buffer, sizes: Sequence[int], inputs: _Inputs
) -> tuple[Call, ...] | Refusal:
    """Attention among the rows of packed [batch, rows, queries | keys | values], whose widths are `sizes`."""
    batch, rows, width = packed.shape
    heads, past, shared = node.attribute("num_heads"), inputs.past, inputs.past_length is not None
    q_width, _, v_width = sizes
    size, v_size = q_width // heads, v_width // heads
    q, k, v = (
        Heads(packed, (rows * width, columns, width, 1), offset)
        for columns, offset in ((size, 0), (size, q_width), (v_size, 2 * q_width))
    )
    attention = Attention(
        q,
        k,
        v,
        Heads(node.y, (rows * v_width, v_size, v_width, 1)),
        batch,
        heads,
        heads,
        rows,
        rows,
        size,
        v_size,
        default_scale(node, size),
        causal=bool(node.attribute("unidirectional", 0)),
        first=0 if past is None or shared else past.shape[3],
        lengths=None if inputs.past_length is None else Lengths(inputs.past_length, 0, rows, "past"),
    )
    appended, attention = _cached(node, target, attention, past, shared)
    marked, padding = _bounds_as_mask(node, target, inputs.padding, attention)
    masked = with_padding(node, attention, padding, inputs.bias)
    if isinstance(masked, Refusal):
        return masked
    calls = attention_calls(node, target, masked)
    return calls if isinstance(calls, Refusal) else (*appended, *marked, *calls)


def _cached(
    node: Node, target: Target, attention: Attention, past: Buffer | None, shared: bool
) -> tuple[tuple[Call, ...], Attention]:
    """Keys and values behind the past, in the one buffer of the output `present`."""
    present = node.output(1)
    if past is None and present is None:
        return (), attention
    past_rows = 0 if past is None else past.shape[3]
    rows = past_rows if shared else past_rows + attention.keys
    if present is None:
        shape = (2, attention.batch, attention.kv_heads, rows, attention.head_size)
        present = node.temporary(shape, attention.dtype)
    cache = Cache(None if past is None else _halves(past), _halves(present), past_rows, rows)
    return append_calls(attention, cache, target)


def _halves(cache: Buffer) -> tuple[Heads, Heads]:
    return dense_heads(cache), dense_heads(cache, cache.strides[0])


def _bounds_as_mask(
    node: Node, target: Target, padding: Buffer | None, attention: Attention
) -> tuple[tuple[Call, ...], Buffer | None]:
    """[2 · batch], ends and starts of the keys that count, becomes a mask of [batch, keys]; all else stays as it is."""
    batch = attention.batch
    if padding is None or padding.rank != 1 or padding.size != 2 * batch:
        return (), padding
    mask = node.temporary((batch, attention.keys), "int8")
    block = power_of_two(mask.size, 2**16 if target.interpreted else 1024)
    marked = launch(
        between_kernel,
        (cdiv(mask.size, block),),
        writes=mask,
        bounds_ptr=padding,
        mask_ptr=mask,
        n_batch=batch,
        n_columns=attention.keys,
        BLOCK=block,
    )
    return (marked,), mask
