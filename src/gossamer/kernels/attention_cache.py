"""Caches of keys and values: the past, then the new rows, which may get a bias, a norm and their rotation on the way.

One launch writes both caches. Where past and present are the same memory (the memory plan lets a present take the place
of a past that nobody reads any more), only the new rows move.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import triton
import triton.language as tl

from gossamer.kernels.attention import Attention, Heads, key_arguments
from gossamer.kernels.attention_kernels import key_range
from gossamer.kernels.attention_tiles import block_of
from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.kernels.launch import Address, launch
from gossamer.kernels.rotary import NO_ROTARY, prepared_rows
from gossamer.program import Buffer, Call, Target


@triton.jit
def append(
    new, past, present, bias_ptr, norm, rotary, positions_ptr, keys, block, head, batch, n_new, n_past, n_rows,
    SIZE: tl.constexpr, FIRST: tl.constexpr, ROTARY: tl.constexpr, TYPE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """present[b, h, t] = past[b, h, t] before the first new row, new[b, h, t - first] from there on, 0 behind."""
    row = block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    d = tl.arange(0, BLOCK_D)[None, :]
    length, first, count = key_range(batch, n_new, keys, FIRST)
    step = row - first
    is_new = (step >= 0) & (step < count) & (row < length)
    written = row < n_rows
    bias_at = None
    if bias_ptr is not None:
        bias_at = bias_ptr + head * SIZE
    position = row
    if positions_ptr is not None:
        position = tl.load(positions_ptr + batch * n_new + step, mask=is_new, other=0)
    new_at = new[0] + batch.to(tl.int64) * new[1] + head.to(tl.int64) * new[2] + step.to(tl.int64) * new[3]
    x = prepared_rows(new_at, new[4], d, SIZE, is_new, bias_at, norm, rotary, position, ROTARY, TYPE)
    x = x.to(present[0].dtype.element_ty)
    if past[0] is not None:
        is_old = ~is_new & (row < n_past)
        if past[0].to(tl.int64) == present[0].to(tl.int64):
            is_old = is_old & (row < 0)
            written = is_new
        past_at = past[0] + batch.to(tl.int64) * past[1] + head.to(tl.int64) * past[2] + row.to(tl.int64) * past[3]
        x = tl.where(is_new, x, tl.load(past_at + d * past[4], mask=is_old & (d < SIZE), other=0.0))
    at = present[0] + batch.to(tl.int64) * present[1] + head.to(tl.int64) * present[2] + row.to(tl.int64) * present[3]
    tl.store(at + d * present[4], x, mask=written & (d < SIZE))


@triton.jit
def append_kernel(
    k_new, k_past, k_present, v_new, v_past, v_present, k_bias_ptr, v_bias_ptr, k_norm, rotary, positions_ptr, keys,
    n_heads, n_new, n_past, n_rows,
    K_SIZE: tl.constexpr, V_SIZE: tl.constexpr, FIRST: tl.constexpr, ROTARY: tl.constexpr, TYPE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    """Both caches: keys by programs 0 on axis 1, values by programs 1. Keys alone are normed and rotated."""
    blocks = tl.cdiv(n_rows, BLOCK_ROWS)
    block, stack = tl.program_id(0) % blocks, tl.program_id(0) // blocks
    batch, head = stack // n_heads, stack % n_heads
    if tl.program_id(1) == 0:
        append(k_new, k_past, k_present, k_bias_ptr, k_norm, rotary, positions_ptr, keys, block, head, batch, n_new,
               n_past, n_rows, K_SIZE, FIRST, ROTARY, TYPE, BLOCK_ROWS, BLOCK_K)  # fmt: skip
    else:
        append(v_new, v_past, v_present, v_bias_ptr, (None, 0.0), rotary, None, keys, block, head, batch, n_new,
               n_past, n_rows, V_SIZE, FIRST, "none", TYPE, BLOCK_ROWS, BLOCK_V)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cache:
    """What an attention's new keys and values are put behind, and where.

    past: keys and values that are there, of `past_rows` rows, or None; present: where all go, of `rows` rows. k_bias,
    v_bias: one number per head and column; k_norm: (weight, epsilon) of an RMS norm over new keys.
    """

    past: tuple[Heads, Heads] | None
    present: tuple[Heads, Heads]
    past_rows: int
    rows: int
    k_bias: Address | None = None
    v_bias: Address | None = None
    k_norm: tuple[Buffer, float] | None = None


def append_calls(attention: Attention, cache: Cache, target: Target) -> tuple[tuple[Call, ...], Attention]:
    """The launch that fills the cache with the attention's keys and values, and the attention to what is then there.

    Keys are rotated as queries are. The attention's lengths count what is there afterwards.
    """
    k_size, v_size = attention.head_size, attention.v_head_size
    block_k, block_v = block_of(k_size), block_of(v_size)
    rows = power_of_two(cache.rows, max(1, (2**18 if target.interpreted else 4096) // max(block_k, block_v)))
    no_heads = (None, 0, 0, 0, 0)
    k_past, v_past = (None, None) if cache.past is None else cache.past
    rotary = attention.rotary
    appended = launch(
        append_kernel,
        (cdiv(cache.rows, rows) * attention.batch * attention.kv_heads, 2),
        writes=dict.fromkeys(heads.buffer for heads in cache.present),
        inplace=_pairs(cache),
        k_new=attention.k.argument,
        k_past=no_heads if k_past is None else k_past.argument,
        k_present=cache.present[0].argument,
        v_new=attention.v.argument,
        v_past=no_heads if v_past is None else v_past.argument,
        v_present=cache.present[1].argument,
        k_bias_ptr=cache.k_bias,
        v_bias_ptr=cache.v_bias,
        k_norm=cache.k_norm or (None, 0.0),
        rotary=NO_ROTARY if rotary is None else rotary.arguments,
        positions_ptr=attention.positions,
        keys=key_arguments(attention.lengths, cache.rows, attention.first),
        n_heads=attention.kv_heads,
        n_new=attention.keys,
        n_past=cache.past_rows,
        n_rows=cache.rows,
        K_SIZE=k_size,
        V_SIZE=v_size,
        FIRST="given" if attention.lengths is None else attention.lengths.first,
        ROTARY="none" if rotary is None else rotary.kind,
        TYPE="float64" if attention.dtype == "float64" else "float32",
        BLOCK_ROWS=rows,
        BLOCK_K=block_k,
        BLOCK_V=block_v,
    )
    k, v = cache.present
    return (appended,), replace(attention, k=k, v=v, keys=cache.rows)


def _pairs(cache: Cache) -> tuple[tuple[Buffer, Buffer], ...]:
    """A present may take its past's memory where both have the same rows."""
    if cache.past is None or cache.past_rows != cache.rows:
        return ()
    pairs = zip(cache.present, cache.past, strict=True)
    return tuple(dict.fromkeys((present.buffer, past.buffer) for present, past in pairs))


def dense_heads(buffer: Buffer, offset: int = 0) -> Heads:
    """A buffer [.., batch, heads, rows, columns] as Heads."""
    strides: Any = buffer.strides[-4:]
    return Heads(buffer, strides, offset)
