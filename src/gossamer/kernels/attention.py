"""Attention in one pass over the keys: y = softmax(scale · q · kᵀ, capped, masked and biased) · v.

A program holds a tile of queries and what it needs of the softmax so far: the largest score of each row and the sum of
exponentials below it. Few queries over many keys leave most of a GPU idle: then the keys are split, and a second
kernel weighs the parts. Scores themselves exist only in registers; `scores_calls` writes them for operators that return
them. Every operand has its own strides: layouts and packings cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import triton
import triton.language as tl

from gossamer.kernels.attention_tiles import MAX_HEAD_SIZE, Extents, Tiles, block_of, choose_tiles
from gossamer.kernels.elementwise_math import tanh
from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.kernels.gemm import multiply_tiles
from gossamer.kernels.tf32 import multiplies_in_tf32
from gossamer.kernels.launch import Address, launch
from gossamer.kernels.reduction_geometry import as_type
from gossamer.kernels.rotary import NO_ROTARY, Rotary, prepared_rows
from gossamer.model.node import Node
from gossamer.program import Buffer, Call, Launch, Refusal, Target

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
FLOATS = ("float16", "bfloat16", "float32", "float64")


@triton.jit
def key_range(batch, n_queries, keys, FIRST: tl.constexpr):
    """(keys that count, position of the first query among all keys, queries that count) of a batch entry.

    keys: (lengths pointer or None, its stride, what to add to a length, query counts pointer or None, keys that there
    are, the first query's position). FIRST: `given`, there; `end`, so that the last query stands at the last key;
    `past`, likewise but not before the first key. A length of zero means all keys where FIRST is `given`.
    """
    length, first, count = keys[4], keys[5], n_queries
    if keys[0] is not None:
        given = tl.load(keys[0] + batch * keys[1]).to(tl.int32) + keys[2]
        if keys[3] is not None:
            count = tl.minimum(tl.load(keys[3] + batch).to(tl.int32), n_queries)
        if FIRST == "end":
            first = given - count
        elif FIRST == "past":
            first = tl.maximum(given - count, 0)
        else:
            given = tl.where(given > 0, given, length)
        length = tl.minimum(given, length)
    return length, first, count


@triton.jit
def query_rows(
    q, batch, head, query, live, first, n_queries, q_bias_ptr, norm, rotary, positions_ptr,
    HEAD_SIZE: tl.constexpr, ROTARY: tl.constexpr, TYPE: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """The queries of a tile as operands of products: bias, norm and rotation done."""
    at = q[0] + batch.to(tl.int64) * q[1] + (head * q[2] + query.to(tl.int64) * q[3])
    bias_at = None
    if q_bias_ptr is not None:
        bias_at = q_bias_ptr + head * HEAD_SIZE
    position = first + query
    if positions_ptr is not None:
        position = tl.load(positions_ptr + batch * n_queries + query, mask=live, other=0)
    d = tl.arange(0, BLOCK_D)[None, :]
    rows = prepared_rows(at, q[4], d, HEAD_SIZE, live, bias_at, norm, rotary, position, ROTARY, TYPE)
    return rows.to(q[0].dtype.element_ty)


@triton.jit
def load_plane(x, batch, head, query, n, live, FORM: tl.constexpr):
    """x[batch, head, query, n]: a tile, or for FORM `row` the one row that all queries share."""
    at = x[0] + batch.to(tl.int64) * x[1] + head * x[2]
    if FORM == "row":
        return tl.load(at + n.to(tl.int64) * x[4], mask=live, other=0)
    else:
        return tl.load(at + query.to(tl.int64) * x[3] + n.to(tl.int64) * x[4], mask=live, other=0)


@triton.jit
def adjusted(
    s, batch, head, query, n, live, bias, mask, scale, softcap, fill,
    BIAS: tl.constexpr, MASK: tl.constexpr, MASK_ADDS: tl.constexpr, SOFTCAP: tl.constexpr,
):  # fmt: skip
    """softcap · tanh(scale · s / softcap), `fill` (or with MASK_ADDS plus `fill`) where mask is zero, + bias."""
    s = s * scale
    if SOFTCAP:
        s = tanh(s / softcap) * softcap
    if MASK != "none":
        kept = load_plane(mask, batch, head, query, n, live, MASK) != 0
        s = tl.where(kept, s, s + fill if MASK_ADDS else fill)
    if BIAS != "none":
        s += load_plane(bias, batch, head, query, n, live, BIAS).to(s.dtype)
    return s


@triton.jit
def visible(query, n, length, first, window, CAUSAL: tl.constexpr, WINDOW: tl.constexpr):
    """Whether a query sees a key: one that counts, not after it, and among the `window` last ones."""
    seen = n < length
    if CAUSAL:
        seen = seen & (n <= first + query)
    if WINDOW:
        seen = seen & (n > first + query - window)
    return seen


@triton.jit
def attend(
    q_rows, acc, most, total, k, v, batch, kv_head, head, query, in_rows, begin, end, length, first, window,
    bias, mask, scale, softcap, fill,
    HEAD_SIZE: tl.constexpr, V_SIZE: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, BIAS: tl.constexpr,
    MASK: tl.constexpr, MASK_ADDS: tl.constexpr, SOFTCAP: tl.constexpr, PLAIN: tl.constexpr, MULTIPLY: tl.constexpr,
    UPCAST: tl.constexpr, TYPE: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_V: tl.constexpr,
    CHECKED: tl.constexpr,
):  # fmt: skip
    """Takes keys begin … end into (acc, most, total). Without CHECKED all of them are visible to all rows.

    PLAIN: scores are only scaled, by a positive number; then `most` and they count powers of two, else powers of e.
    """
    d, e = tl.arange(0, BLOCK_D)[:, None], tl.arange(0, BLOCK_V)[None, :]
    row = tl.arange(0, BLOCK_N).to(tl.int64) + begin
    k_at = k[0] + batch.to(tl.int64) * k[1] + kv_head.to(tl.int64) * k[2] + row[None, :] * k[3] + d * k[4]
    v_at = v[0] + batch.to(tl.int64) * v[1] + kv_head.to(tl.int64) * v[2] + row[:, None] * v[3] + e * v[4]
    for start in range(begin, end, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        if CHECKED:
            k_tile = tl.load(k_at, mask=(n[None, :] < length) & (d < HEAD_SIZE), other=0.0)
            v_tile = tl.load(v_at, mask=(n[:, None] < length) & (e < V_SIZE), other=0.0)
        else:
            k_tile = tl.load(k_at) if HEAD_SIZE == BLOCK_D else tl.load(k_at, mask=d < HEAD_SIZE, other=0.0)
            v_tile = tl.load(v_at) if V_SIZE == BLOCK_V else tl.load(v_at, mask=e < V_SIZE, other=0.0)
        s = as_type(tl.zeros((acc.shape[0], BLOCK_N), tl.int32), TYPE)
        s = multiply_tiles(q_rows, k_tile, s, MULTIPLY, UPCAST)
        if PLAIN:
            s *= scale * LOG2E
        else:
            s = adjusted(s, batch, head, query, n[None, :], in_rows & (n[None, :] < length), bias, mask, scale, softcap,
                         fill, BIAS, MASK, MASK_ADDS, SOFTCAP)  # fmt: skip
        if CHECKED:
            s = tl.where(visible(query, n[None, :], length, first, window, CAUSAL, WINDOW), s, float("-inf"))
        higher = tl.maximum(most, tl.max(s, axis=1, keep_dims=True))
        base = tl.where(higher == float("-inf"), 0.0, higher)  # a row that sees nothing yet must not give -inf less -inf
        decay = tl.exp2(most - base) if PLAIN else tl.exp(most - base)
        p = tl.exp2(s - base) if PLAIN else tl.exp(s - base)
        total = total * decay + tl.sum(p, axis=1, keep_dims=True)
        acc = multiply_tiles(p.to(v_tile.dtype), v_tile, acc * decay, MULTIPLY, UPCAST)
        most = higher
        k_at += BLOCK_N * k[3]
        v_at += BLOCK_N * v[3]
    return acc, most, total


@triton.jit
def attention_kernel(
    q, k, v, y, bias, mask, keys, lse_ptr, sink_ptr, q_bias_ptr, norm, rotary, positions_ptr,
    n_heads, group, n_queries, splits, window, scale, softcap, fill,
    HEAD_SIZE: tl.constexpr, V_SIZE: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, FIRST: tl.constexpr,
    BIAS: tl.constexpr, MASK: tl.constexpr, MASK_ADDS: tl.constexpr, SOFTCAP: tl.constexpr, SINK: tl.constexpr,
    ROTARY: tl.constexpr, ZERO_EMPTY: tl.constexpr, PLAIN: tl.constexpr, PACKED: tl.constexpr, UNCHECKED: tl.constexpr,
    CHECKED: tl.constexpr, MULTIPLY: tl.constexpr, UPCAST: tl.constexpr, TYPE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    """y[b,h,i] = softmaxⱼ(scores[b,h,i,j]) · v[b, h / group, j]; of the split's keys alone, where they are split.

    Operands: (pointer, strides of batch, head, row, column); y: (pointer, strides of batch, head, row, split). lse: the
    logarithm of Σⱼ exp(score). SINK: `zero` or one number per `heads` that takes part in the sum as a score without a
    value. UNCHECKED, CHECKED: whether there may be steps all of whose keys are visible to all rows, and other steps.
    """
    n_rows = n_queries * group if PACKED else n_queries
    tiles = tl.cdiv(n_rows, BLOCK_M)
    tile = tiles - 1 - tl.program_id(0) % tiles  # the last rows of a causal mask see most: they start first
    split, rest = tl.program_id(0) // tiles % splits, tl.program_id(0) // (tiles * splits)
    batch, stack = rest // n_heads, rest % n_heads
    row = tile * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    in_rows = row < n_rows
    if PACKED:
        kv_head, head, query = stack, stack * group + row // n_queries, row % n_queries
        first_query, last_query = 0, n_queries - 1
    else:
        kv_head, head, query = stack // group, stack, row
        first_query, last_query = tile * BLOCK_M, tl.minimum(tile * BLOCK_M + BLOCK_M, n_queries) - 1
    length, first, count = key_range(batch, n_queries, keys, FIRST)
    q_rows = query_rows(q, batch, head, query, in_rows, first, n_queries, q_bias_ptr, norm, rotary, positions_ptr,
                        HEAD_SIZE, ROTARY, TYPE, BLOCK_D)  # fmt: skip
    begin, end, unchecked = 0, length, length
    if CAUSAL:
        end = tl.minimum(length, first + last_query + 1)
        unchecked = tl.minimum(length, first + first_query + 1)
    if WINDOW:
        begin = tl.maximum(first + first_query - window + 1, 0) // BLOCK_N * BLOCK_N
        unchecked = begin
    per_split = tl.cdiv(tl.cdiv(tl.maximum(end - begin, 0), splits), BLOCK_N) * BLOCK_N
    begin += split * per_split
    end = tl.minimum(end, begin + per_split)
    middle = begin + tl.maximum(tl.minimum(unchecked, end) - begin, 0) // BLOCK_N * BLOCK_N
    acc = as_type(tl.zeros((BLOCK_M, BLOCK_V), tl.int32), TYPE)
    total = as_type(tl.zeros((BLOCK_M, 1), tl.int32), TYPE)
    most = total + float("-inf")
    if SINK != "none":
        sink = total
        if SINK == "heads":
            sink += tl.load(sink_ptr + head + row * 0, mask=in_rows, other=0.0).to(sink.dtype) * (LOG2E if PLAIN else 1.0)
        most = tl.where(split == 0, sink, most)
        total = tl.where(split == 0, total + 1, total)
    if UNCHECKED:
        acc, most, total = attend(
            q_rows, acc, most, total, k, v, batch, kv_head, head, query, in_rows, begin, middle, length, first, window, bias,
            mask, scale, softcap, fill, HEAD_SIZE, V_SIZE, CAUSAL, WINDOW, BIAS, MASK, MASK_ADDS, SOFTCAP, PLAIN, MULTIPLY,
            UPCAST, TYPE, BLOCK_N, BLOCK_D, BLOCK_V, False)  # fmt: skip
    if CHECKED:
        acc, most, total = attend(
            q_rows, acc, most, total, k, v, batch, kv_head, head, query, in_rows, middle, end, length, first, window, bias,
            mask, scale, softcap, fill, HEAD_SIZE, V_SIZE, CAUSAL, WINDOW, BIAS, MASK, MASK_ADDS, SOFTCAP, PLAIN, MULTIPLY,
            UPCAST, TYPE, BLOCK_N, BLOCK_D, BLOCK_V, True)  # fmt: skip
    acc = acc / (tl.where(total == 0.0, 1.0, total) if ZERO_EMPTY else total)
    e = tl.arange(0, BLOCK_V)[None, :]
    y_at = y[0] + batch.to(tl.int64) * y[1] + (head * y[2] + query.to(tl.int64) * y[3]) + split.to(tl.int64) * y[4]
    tl.store(y_at + e, acc.to(y[0].dtype.element_ty), mask=in_rows & (e < V_SIZE))
    if lse_ptr is not None:
        n_all = tl.num_programs(0) // (tiles * splits) * n_rows
        at = split.to(tl.int64) * n_all + rest.to(tl.int64) * n_rows + row
        lse = (most + tl.log2(total)) * LN2 if PLAIN else most + tl.log(total)
        tl.store(lse_ptr + at, lse, mask=in_rows)


@triton.jit
def combine_splits_kernel(
    parts_ptr, lse_ptr, y, n_rows, n_heads, n_queries, v_size,
    ZERO_EMPTY: tl.constexpr, SPLITS: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    """y = Σₛ parts[s] · exp(lse[s]) / Σₛ exp(lse[s])."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    e = tl.arange(0, BLOCK_V)[None, :]
    mask = (row < n_rows) & (e < v_size)
    most = tl.load(lse_ptr + row, mask=row < n_rows, other=float("-inf"))
    for split in tl.static_range(1, SPLITS):
        most = tl.maximum(most, tl.load(lse_ptr + split * n_rows + row, mask=row < n_rows, other=float("-inf")))
    most = tl.where(most == float("-inf"), 0.0, most)
    acc = tl.zeros((BLOCK_ROWS, BLOCK_V), parts_ptr.dtype.element_ty)
    total = tl.zeros((BLOCK_ROWS, 1), parts_ptr.dtype.element_ty)
    for split in tl.static_range(SPLITS):
        weight = tl.exp(tl.load(lse_ptr + split * n_rows + row, mask=row < n_rows, other=float("-inf")) - most)
        total += weight
        acc += tl.load(parts_ptr + (split * n_rows + row) * v_size + e, mask=mask, other=0.0) * weight
    acc = acc / (tl.where(total == 0.0, 1.0, total) if ZERO_EMPTY else total)
    stack, query = row // n_queries, row % n_queries
    y_at = y[0] + stack // n_heads * y[1] + stack % n_heads * y[2] + query * y[3]
    tl.store(y_at + e, acc.to(y[0].dtype.element_ty), mask=mask)


@triton.jit
def scores_kernel(
    q, k, scores_ptr, bias, mask, keys, lse_ptr, q_bias_ptr, norm, rotary, positions_ptr,
    n_heads, group, n_queries, n_columns, window, scale, softcap, fill,
    HEAD_SIZE: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, FIRST: tl.constexpr, BIAS: tl.constexpr,
    MASK: tl.constexpr, MASK_ADDS: tl.constexpr, SOFTCAP: tl.constexpr, ROTARY: tl.constexpr, STAGE: tl.constexpr,
    MULTIPLY: tl.constexpr, UPCAST: tl.constexpr, TYPE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """scores[b,h,i,j] at a STAGE: `scaled` products, `capped`, `masked` (and biased), `seen` (masked, but zero where a query
    does not see a key), or `softmax` = exp(score - lse)."""
    tiles_m, tiles_n = tl.cdiv(n_queries, BLOCK_M), tl.cdiv(n_columns, BLOCK_N)
    tile, stack = tl.program_id(0) % (tiles_m * tiles_n), tl.program_id(0) // (tiles_m * tiles_n)
    batch, head = stack // n_heads, stack % n_heads
    query = tile // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n = tile % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    d = tl.arange(0, BLOCK_D)[:, None]
    live = (query < n_queries) & (n < n_columns)
    length, first, count = key_range(batch, n_queries, keys, FIRST)
    q_rows = query_rows(q, batch, head, query, query < n_queries, first, n_queries, q_bias_ptr, norm, rotary,
                        positions_ptr, HEAD_SIZE, ROTARY, TYPE, BLOCK_D)  # fmt: skip
    k_at = k[0] + batch.to(tl.int64) * k[1] + (head // group).to(tl.int64) * k[2] + n.to(tl.int64) * k[3] + d * k[4]
    k_tile = tl.load(k_at, mask=(n < n_columns) & (d < HEAD_SIZE), other=0.0)
    s = as_type(tl.zeros((BLOCK_M, BLOCK_N), tl.int32), TYPE)
    s = multiply_tiles(q_rows, k_tile, s, MULTIPLY, UPCAST)
    if STAGE == "scaled":
        s *= scale
    elif STAGE == "capped":
        s = adjusted(s, batch, head, query, n, live, bias, mask, scale, softcap, fill, "none", "none", False, SOFTCAP)
    else:
        s = adjusted(s, batch, head, query, n, live & (n < length), bias, mask, scale, softcap, fill, BIAS, MASK, MASK_ADDS,
                     SOFTCAP)  # fmt: skip
        s = tl.where(visible(query, n, length, first, window, CAUSAL, WINDOW), s, 0.0 if STAGE == "seen" else float("-inf"))
    row = stack.to(tl.int64) * n_queries + query
    if STAGE == "softmax":
        lse = tl.load(lse_ptr + row, mask=query < n_queries, other=0.0)
        s = tl.exp(s - tl.where(lse == float("-inf"), 0.0, lse))
    tl.store(scores_ptr + row * n_columns + n, s.to(scores_ptr.dtype.element_ty), mask=live)


@dataclass(frozen=True, slots=True)
class Heads:
    """A buffer as [batch, head, row, column]. strides and offset in elements; a stride of 0 repeats."""

    buffer: Buffer
    strides: tuple[int, int, int, int]
    offset: int = 0

    @property
    def argument(self) -> tuple[Any, ...]:
        return (Address(self.buffer, self.offset) if self.offset else self.buffer, *self.strides)


NO_PLANE = (None, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many keys count, known only on the device: buffer[batch · stride] + add, of any integer type.

    first: where the first query stands (see `key_range`). counts: int32 [batch], queries that count, None for all.
    """

    buffer: Buffer
    stride: int
    add: int
    first: str
    counts: Buffer | None = None


@dataclass(frozen=True, slots=True)
class Attention:
    """One attention. Shapes: q [batch, heads, queries, head_size], k [batch, kv_heads, keys, head_size], v with
    v_head_size columns, y like q with v_head_size columns, of stride 1.

    first: position of the first query among the keys, where lengths do not say. window: keys that a query sees, itself
    and those before, 0 for all. bias: what is added to scores; mask: zero where a score becomes `fill` (or with
    fill_adds, has it added). sink: one score per head without a value; smooth: such a score of zero. q_bias: one number per
    head and column; norm: (weight, epsilon) of an RMS norm over queries. positions: [batch, queries], rows of the
    rotary tables, None for those among the keys. zero_empty: a query that sees nothing gets zeros, else NaN.
    """

    q: Heads
    k: Heads
    v: Heads
    y: Heads
    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    head_size: int
    v_head_size: int
    scale: float
    causal: bool = False
    first: int = 0
    window: int = 0
    lengths: Lengths | None = None
    softcap: float = 0.0
    bias: Heads | None = None
    mask: Heads | None = None
    fill: float = float("-inf")
    fill_adds: bool = False
    sink: Buffer | None = None
    smooth: bool = False
    q_bias: Buffer | None = None
    norm: tuple[Buffer, float] | None = None
    rotary: Rotary | None = None
    positions: Buffer | None = None
    zero_empty: bool = True

    @property
    def dtype(self) -> str:
        return self.q.buffer.dtype

    @property
    def flops(self) -> int:
        pairs = self.batch * self.heads * self.queries * self.keys
        return 2 * pairs * (self.head_size + self.v_head_size) // (2 if self.causal and self.queries == self.keys else 1)


def attention_calls(
    node: Node, target: Target, attention: Attention, *, lse: Buffer | None = None
) -> tuple[Call, ...] | Refusal:
    """The launches of an attention. lse: where the logarithms of the sums go, [batch, heads, queries] of fp32 (fp64)."""
    reason = unsupported(attention)
    if reason is not None:
        return Refusal(reason)
    if not (attention.batch * attention.heads * attention.queries * attention.v_head_size):
        return ()
    extents = _extents(attention)
    tiles = choose_tiles(extents, attention.dtype, target)
    if tiles is None:
        return Refusal(f"heads of {attention.head_size} columns of {attention.dtype} need more shared memory than {target.name} has")
    if lse is not None:
        tiles = replace(tiles, splits=1, packed=False)
    if tiles.splits == 1:
        return (_attend(attention, extents, tiles, attention.y, 0, lse, target),)
    rows, accumulator = attention.batch * attention.heads * attention.queries, _accumulator(attention)
    parts = node.temporary((tiles.splits, rows, attention.v_head_size), accumulator)
    lse = node.temporary((tiles.splits, rows), accumulator)
    size = attention.v_head_size
    y = Heads(parts, (attention.heads * attention.queries * size, attention.queries * size, size, 1))
    first = _attend(attention, extents, tiles, y, rows * size, lse, target)
    return first, _combine(attention, parts, lse, tiles.splits)


def unsupported(attention: Attention) -> str | None:
    """Why there is no kernel for an attention, or None where there is one."""
    q, k, v = attention.q.buffer.dtype, attention.k.buffer.dtype, attention.v.buffer.dtype
    if q not in FLOATS or k != q or v != q:
        return f"no attention of {q}, {k} and {v}"
    if max(attention.head_size, attention.v_head_size) > MAX_HEAD_SIZE:
        return f"heads of more than {MAX_HEAD_SIZE} columns have no kernel"
    if attention.heads % attention.kv_heads:
        return f"{attention.heads} query heads do not divide among {attention.kv_heads} key heads"
    return None


def scores_calls(
    node: Node, target: Target, attention: Attention, scores: Buffer, stage: str, lse: Buffer | None = None
) -> tuple[Call, ...]:
    """The launch that writes scores [batch, heads, queries, columns] at a stage of `scores_kernel`; `softmax` needs the
    lse of `attention_calls`. There may be more columns than keys: they count as not visible."""
    columns = scores.shape[-1]
    if not scores.size:
        return ()
    block = 256 if target.interpreted else 32
    block_m, block_n = max(16, power_of_two(attention.queries, block)), max(16, power_of_two(columns, block))
    return (
        launch(
            scores_kernel,
            (cdiv(attention.queries, block_m) * cdiv(columns, block_n) * attention.batch * attention.heads,),
            writes=scores,
            scores_ptr=scores,
            k=attention.k.argument,
            lse_ptr=lse,
            n_heads=attention.heads,
            group=attention.heads // attention.kv_heads,
            n_columns=columns,
            STAGE=stage,
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            **_queries(attention),
            **_scoring(attention, target, packed=False),
        ),
    )


def _extents(attention: Attention) -> Extents:
    return Extents(
        attention.batch,
        attention.heads,
        attention.kv_heads,
        attention.queries,
        attention.keys,
        block_of(attention.head_size),
        block_of(attention.v_head_size),
    )


def _accumulator(attention: Attention) -> str:
    return "float64" if attention.dtype == "float64" else "float32"


def _attend(
    attention: Attention, extents: Extents, tiles: Tiles, y: Heads, split_stride: int, lse: Buffer | None, target: Target
) -> Launch:
    group = attention.heads // attention.kv_heads
    rows, heads = attention.queries * group, attention.kv_heads
    if not tiles.packed:
        rows, heads = attention.queries, attention.heads
    plain = attention.bias is None and attention.mask is None and not attention.softcap and attention.scale > 0
    return launch(
        attention_kernel,
        (cdiv(rows, tiles.block_m) * tiles.splits * heads * attention.batch,),
        writes=[y.buffer, lse] if lse is not None else y.buffer,
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
        flops=attention.flops,
        k=attention.k.argument,
        v=attention.v.argument,
        y=(*y.argument[:4], split_stride),
        lse_ptr=lse,
        sink_ptr=attention.sink,
        n_heads=heads,
        group=group,
        splits=tiles.splits,
        V_SIZE=attention.v_head_size,
        SINK="heads" if attention.sink is not None else "zero" if attention.smooth else "none",
        ZERO_EMPTY=attention.zero_empty,
        PLAIN=plain and attention.dtype != "float64",
        PACKED=tiles.packed,
        UNCHECKED=attention.keys >= tiles.block_n and not attention.window,
        CHECKED=_needs_checks(attention) or attention.keys % tiles.block_n > 0,
        BLOCK_M=tiles.block_m,
        BLOCK_N=tiles.block_n,
        BLOCK_V=extents.block_v,
        **_queries(attention),
        **_scoring(attention, target, packed=tiles.packed),
    )


def _needs_checks(attention: Attention) -> bool:
    """Whether there may be keys that some of the queries do not see."""
    return attention.causal or attention.window > 0 or attention.lengths is not None


def _queries(attention: Attention) -> dict[str, Any]:
    rotary, norm = attention.rotary, attention.norm
    return {
        "q": attention.q.argument,
        "q_bias_ptr": attention.q_bias,
        "norm": norm or (None, 0.0),
        "rotary": rotary.arguments if rotary is not None else NO_ROTARY,
        "positions_ptr": attention.positions,
        "n_queries": attention.queries,
        "HEAD_SIZE": attention.head_size,
        "ROTARY": rotary.kind if rotary is not None else "none",
        "BLOCK_D": block_of(attention.head_size),
    }


def _scoring(attention: Attention, target: Target, *, packed: bool) -> dict[str, Any]:
    bias, mask, dtype = attention.bias, attention.mask, attention.dtype
    lengths = attention.lengths
    return {
        "bias": bias.argument if bias is not None else NO_PLANE,
        "mask": mask.argument if mask is not None else NO_PLANE,
        "keys": key_arguments(lengths, attention.keys, attention.first),
        "window": attention.window,
        "scale": float(attention.scale),
        "softcap": float(attention.softcap),
        "fill": float(attention.fill),
        "CAUSAL": attention.causal,
        "WINDOW": attention.window > 0,
        "FIRST": lengths.first if lengths is not None else "given",
        "BIAS": _form(bias, packed),
        "MASK": _form(mask, packed),
        "MASK_ADDS": attention.fill_adds,
        "SOFTCAP": attention.softcap != 0,
        "MULTIPLY": "tf32_both" if multiplies_in_tf32(dtype, target) else "ieee",
        "UPCAST": target.interpreted and dtype in ("float16", "bfloat16"),
        "TYPE": _accumulator(attention),
    }


def key_arguments(lengths: Lengths | None, keys: int, first: int) -> tuple[Any, ...]:
    """The `keys` of `key_range`."""
    if lengths is None:
        return (None, 0, 0, None, keys, first)
    return (lengths.buffer, lengths.stride, lengths.add, lengths.counts, keys, first)


def _form(plane: Heads | None, packed: bool) -> str:
    """How a tile of a bias or mask is read: `row` where all rows of the tile have the same."""
    if plane is None:
        return "none"
    same_row = plane.strides[2] == 0 and (not packed or plane.strides[1] == 0)
    return "row" if same_row else "tile"


def _combine(attention: Attention, parts: Buffer, lse: Buffer, splits: int) -> Launch:
    rows, block_v = parts.shape[1], block_of(attention.v_head_size)
    block_rows = power_of_two(rows, max(1, 512 // block_v))
    return launch(
        combine_splits_kernel,
        (cdiv(rows, block_rows),),
        writes=attention.y.buffer,
        parts_ptr=parts,
        lse_ptr=lse,
        y=attention.y.argument[:4],
        n_rows=rows,
        n_heads=attention.heads,
        n_queries=attention.queries,
        v_size=attention.v_head_size,
        ZERO_EMPTY=attention.zero_empty,
        SPLITS=splits,
        BLOCK_ROWS=block_rows,
        BLOCK_V=block_v,
    )
