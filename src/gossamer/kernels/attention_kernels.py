"""The kernels of attention: softmax over scores that exist only in registers, or are what is asked for.

Operands are tuples: (pointer, strides of batch, head, row, column). What `keys` holds, `key_range` says.
"""

from __future__ import annotations

import triton
import triton.language as tl

from gossamer.kernels.elementwise_math import tanh
from gossamer.kernels.gemm import multiply_tiles
from gossamer.kernels.reduction_geometry import as_type
from gossamer.kernels.rotary import prepared_rows

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


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
    seen = n < (tl.minimum(length, first + query + 1) if CAUSAL else length)
    if WINDOW:
        seen = seen & (n > first + query - window)
    return seen


@triton.jit
def power(x, BINARY: tl.constexpr, UPCAST: tl.constexpr):
    """2ˣ where BINARY, else eˣ, for x ≤ 0. UPCAST: in the interpreter, which runs no PTX.

    On a GPU less than 2⁻¹²⁶ becomes zero: to keep it, the compiler adds three instructions to each of these.
    """
    if x.dtype == tl.float64:
        return tl.exp(x)
    else:
        exponent = x if BINARY else x * LOG2E
        if UPCAST:
            return tl.exp2(exponent)
        else:
            return tl.inline_asm_elementwise(
                "ex2.approx.ftz.f32 $0, $1;", "=f,f", [exponent], dtype=tl.float32, is_pure=True, pack=1
            )


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
    d, e, factor = tl.arange(0, BLOCK_D)[:, None], tl.arange(0, BLOCK_V)[None, :], scale * LOG2E
    row = tl.arange(0, BLOCK_N).to(tl.int64) + begin
    k_at = k[0] + batch.to(tl.int64) * k[1] + kv_head.to(tl.int64) * k[2] + row[None, :] * k[3] + d.to(tl.int64) * k[4]
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
        if not PLAIN:
            s = adjusted(s, batch, head, query, n[None, :], in_rows & (n[None, :] < length), bias, mask, scale, softcap,
                         fill, BIAS, MASK, MASK_ADDS, SOFTCAP)  # fmt: skip
        if CHECKED:
            s = tl.where(visible(query, n[None, :], length, first, window, CAUSAL, WINDOW), s, float("-inf"))
        highest = tl.max(s, axis=1, keep_dims=True)
        higher = tl.maximum(most, highest * factor if PLAIN else highest)
        base = tl.where(higher == float("-inf"), 0.0, higher)  # what sees nothing yet must not give -inf less -inf
        decay = power(most - base, PLAIN, UPCAST)
        p = power(s * factor - base if PLAIN else s - base, PLAIN, UPCAST)  # the former is one instruction
        total = total * decay + tl.sum(p, axis=1, keep_dims=True)
        acc = multiply_tiles(p.to(v_tile.dtype), v_tile, acc * decay, MULTIPLY, UPCAST)
        most = higher
        k_at += BLOCK_N * k[3]
        v_at += BLOCK_N * v[3]
    return acc, most, total


@triton.jit
def attention_kernel(
    q, k, v, y, bias, mask, keys, lse_ptr, sink_ptr, q_bias_ptr, norm, rotary, positions_ptr,
    n_heads, group, n_queries, splits, together, window, scale, softcap, fill,
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
    together: heads (splits of a head count each) whose last tiles start before the first other tile of any of them.
    """
    n_rows = n_queries * group if PACKED else n_queries
    tiles = tl.cdiv(n_rows, BLOCK_M)
    # The last rows of a causal mask see most: they start first, or multiprocessors would wait for them at the end.
    section, within = tl.program_id(0) // (together * tiles), tl.program_id(0) % (together * tiles)
    heads_here = tl.minimum(together, tl.num_programs(0) // tiles - section * together)
    tile, rest = tiles - 1 - within // heads_here, section * together + within % heads_here
    split, rest = rest % splits, rest // splits
    batch, stack = rest // n_heads, rest % n_heads
    row = tile * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    in_rows = row < n_rows
    if PACKED:
        kv_head, head, query = stack, stack * group + row // n_queries, row % n_queries
        first_query, last_query = 0, n_queries - 1
    else:
        kv_head, head, query = stack // group, stack, row
        first_query, last_query = tile * BLOCK_M, tl.minimum(tile * BLOCK_M + BLOCK_M, n_queries) - 1
    length, first, _ = key_range(batch, n_queries, keys, FIRST)
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
            sink += tl.load(sink_ptr + head + row * 0, mask=in_rows, other=0.0).to(sink.dtype)
            sink *= LOG2E if PLAIN else 1.0
        most = tl.where(split == 0, sink, most)
        total = tl.where(split == 0, total + 1, total)
    if UNCHECKED:
        acc, most, total = attend(
            q_rows, acc, most, total, k, v, batch, kv_head, head, query, in_rows, begin, middle, length, first, window,
            bias, mask, scale, softcap, fill, HEAD_SIZE, V_SIZE, CAUSAL, WINDOW, BIAS, MASK, MASK_ADDS, SOFTCAP, PLAIN,
            MULTIPLY, UPCAST, TYPE, BLOCK_N, BLOCK_D, BLOCK_V, False)  # fmt: skip
    if CHECKED:
        acc, most, total = attend(
            q_rows, acc, most, total, k, v, batch, kv_head, head, query, in_rows, middle, end, length, first, window,
            bias, mask, scale, softcap, fill, HEAD_SIZE, V_SIZE, CAUSAL, WINDOW, BIAS, MASK, MASK_ADDS, SOFTCAP, PLAIN,
            MULTIPLY, UPCAST, TYPE, BLOCK_N, BLOCK_D, BLOCK_V, True)  # fmt: skip
    acc = acc * (1.0 / (tl.where(total == 0.0, 1.0, total) if ZERO_EMPTY else total))
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
    """scores[b,h,i,j] at a STAGE: `scaled` products, `capped`, `masked` (and biased), `seen`, or exp(score - lse).

    `seen`: masked and biased, but zero where a query does not see a key. `softmax`: the last.
    """
    tiles_m, tiles_n = tl.cdiv(n_queries, BLOCK_M), tl.cdiv(n_columns, BLOCK_N)
    tile, stack = tl.program_id(0) % (tiles_m * tiles_n), tl.program_id(0) // (tiles_m * tiles_n)
    batch, head = stack // n_heads, stack % n_heads
    query = tile // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n = tile % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    d = tl.arange(0, BLOCK_D)[:, None]
    live = (query < n_queries) & (n < n_columns)
    length, first, _ = key_range(batch, n_queries, keys, FIRST)
    q_rows = query_rows(q, batch, head, query, query < n_queries, first, n_queries, q_bias_ptr, norm, rotary,
                        positions_ptr, HEAD_SIZE, ROTARY, TYPE, BLOCK_D)  # fmt: skip
    k_at = k[0] + batch.to(tl.int64) * k[1] + (head // group).to(tl.int64) * k[2] + n.to(tl.int64) * k[3] + d * k[4]
    k_tile = tl.load(k_at, mask=(n < tl.minimum(n_columns, keys[4])) & (d < HEAD_SIZE), other=0.0)
    s = as_type(tl.zeros((BLOCK_M, BLOCK_N), tl.int32), TYPE)
    s = multiply_tiles(q_rows, k_tile, s, MULTIPLY, UPCAST)
    if STAGE == "scaled":
        s *= scale
    elif STAGE == "capped":
        s = adjusted(s, batch, head, query, n, live, bias, mask, scale, softcap, fill, "none", "none", False, SOFTCAP)
    else:
        s = adjusted(s, batch, head, query, n, live & (n < length), bias, mask, scale, softcap, fill, BIAS, MASK,
                     MASK_ADDS, SOFTCAP)  # fmt: skip
        hidden = 0.0 if STAGE == "seen" else float("-inf")
        s = tl.where(visible(query, n, length, first, window, CAUSAL, WINDOW), s, hidden)
    row = stack.to(tl.int64) * n_queries + query
    if STAGE == "softmax":
        lse = tl.load(lse_ptr + row, mask=query < n_queries, other=0.0)
        s = tl.exp(s - tl.where(lse == float("-inf"), 0.0, lse))
    tl.store(scores_ptr + row * n_columns + n, s.to(scores_ptr.dtype.element_ty), mask=live)
