"""The operators that are attention over given queries, keys and values.

`gossamer::FusedAttention(Q, K, V, bias?, mask?) {shape, layoutQ, layoutK, layoutV, layoutY, layoutBias, layoutMask,
scale, softcap, causal, first, fill, zero_empty}` is softmax(s) · V for s = scale · Q · Kᵀ, then capped as
softcap · tanh(s / softcap) unless that is 0, then `fill` where mask is false, then + bias.

shape: batch, heads, heads of keys, queries, keys, columns of Q and K, columns of V. layout…: offset and strides of
batch, head, row and column in the input's (for Y, the output's) memory; without it, that is dense in this order.
causal: query i sees keys up to first + i. zero_empty: queries that see nothing give zeros, not NaN.
"""

from __future__ import annotations

from dataclasses import replace

from gossamer.kernels.attention import Attention, Heads, Lengths, attention_calls, scores_calls
from gossamer.kernels.attention_cache import Cache, append_calls, dense_heads
from gossamer.kernels.launch import Address
from gossamer.kernels.reduction_geometry import float_accumulator
from gossamer.kernels.registry import Lowered, lowers
from gossamer.kernels.rotary import Rotary
from gossamer.model.node import FUSED, Node
from gossamer.program import Buffer, Call, Refusal, Target

MICROSOFT = "com.microsoft"
FILTER = -10000.0
"""onnxruntime's default for `mask_filter_value`."""


def heads_of(buffer: Buffer, heads: int) -> tuple[Heads, int, int]:
    """[batch, heads, rows, columns] or [batch, rows, heads · columns] as Heads, and its rows and columns."""
    if buffer.rank == 4:
        return dense_heads(buffer), buffer.shape[2], buffer.shape[3]
    _, rows, width = buffer.shape
    size = width // heads
    return Heads(buffer, (rows * width, size, width, 1)), rows, size


def plane_of(buffer: Buffer) -> Heads:
    """A bias or mask that broadcasts to [batch, heads, queries, keys]."""
    shape, strides = (1,) * (4 - buffer.rank) + buffer.shape, (0,) * (4 - buffer.rank) + buffer.strides
    batch, head, row, column = (0 if extent == 1 else stride for extent, stride in zip(shape, strides, strict=True))
    return Heads(buffer, (batch, head, row, column))


def default_scale(node: Node, head_size: int) -> float:
    """The attribute `scale`, 1 / √head_size where it is not set (com.microsoft: or is zero)."""
    given: float | None = node.attribute("scale", None)
    unset = given is None or (given == 0 and node.domain == MICROSOFT)
    return head_size**-0.5 if unset or given is None else given


@lowers("FusedAttention", domain=FUSED)
def lower_fused_attention(node: Node, target: Target) -> Lowered:
    """gossamer::FusedAttention: see above."""
    return attention_calls(node, target, fused_attention_of(node))


def fused_attention_of(node: Node) -> Attention:
    """What a gossamer::FusedAttention node asks for."""
    batch, heads, kv_heads, queries, keys, head_size, v_head_size = node.attribute("shape")
    q, k, v = node.inputs[:3]
    assert q is not None
    assert k is not None
    assert v is not None
    bias, mask = node.input(3), node.input(4)
    return Attention(
        _laid_out(node, "Q", q, (batch, heads, queries, head_size)),
        _laid_out(node, "K", k, (batch, kv_heads, keys, head_size)),
        _laid_out(node, "V", v, (batch, kv_heads, keys, v_head_size)),
        _laid_out(node, "Y", node.y, (batch, heads, queries, v_head_size)),
        batch,
        heads,
        kv_heads,
        queries,
        keys,
        head_size,
        v_head_size,
        node.attribute("scale", 1.0),
        causal=bool(node.attribute("causal", 0)),
        first=node.attribute("first", 0),
        softcap=node.attribute("softcap", 0.0),
        bias=None if bias is None else _laid_out(node, "Bias", bias, (batch, heads, queries, keys)),
        mask=None if mask is None else _laid_out(node, "Mask", mask, (batch, heads, queries, keys)),
        fill=node.attribute("fill", float("-inf")),
        zero_empty=bool(node.attribute("zero_empty", 0)),
    )


def _laid_out(node: Node, operand: str, buffer: Buffer, shape: tuple[int, int, int, int]) -> Heads:
    layout: tuple[int, ...] | None = node.attribute(f"layout{operand}", None)
    if layout is None:
        return dense_heads(Buffer(buffer.name, buffer.dtype, shape))
    offset, batch, head, row, column = layout
    return Heads(buffer, (batch, head, row, column), offset)


@lowers("Attention", since=23)
def lower_attention(node: Node, target: Target) -> Lowered:
    """ONNX Attention-23 to -25 with all outputs. Statistics are fp32 (fp64 in fp64) whatever `softmax_precision`."""
    q, k, v, mask = node.inputs[0], node.inputs[1], node.inputs[2], node.input(3)
    assert q is not None
    assert k is not None
    assert v is not None
    heads, kv_heads = (node.attribute("q_num_heads", 0), node.attribute("kv_num_heads", 0)) if q.rank == 3 else (0, 0)
    heads, kv_heads = heads or q.shape[1], kv_heads or k.shape[1]
    (q_heads, queries, head_size), (k_heads, keys, _), (v_heads, _, v_size) = (
        heads_of(q, heads),
        heads_of(k, kv_heads),
        heads_of(v, kv_heads),
    )
    lengths, past = node.input(6), node.input(4)
    first = 0 if past is None else past.shape[2]
    attention = Attention(
        q_heads,
        k_heads,
        v_heads,
        heads_of(node.y, heads)[0],
        q.shape[0],
        heads,
        kv_heads,
        queries,
        keys,
        head_size,
        v_size,
        default_scale(node, head_size),
        causal=bool(node.attribute("is_causal", 0)),
        first=first,
        lengths=None if lengths is None else Lengths(lengths, 1, 0, "end"),
        softcap=node.attribute("softcap", 0.0),
    )
    calls, attention = cached(node, target, attention, (4, 5), (1, 2), first + keys)
    windowed = _with_windows(node, attention)
    masked = windowed if isinstance(windowed, Refusal) else _with_mask(windowed, mask)
    if isinstance(masked, Refusal):
        return masked
    stage = ("scaled", "capped", "masked", "softmax")[node.attribute("qk_matmul_output_mode", 0)]
    return _attended(node, target, calls, masked, node.output(3), stage)


def _with_windows(node: Node, attention: Attention) -> Attention | Refusal:
    """ONNX's left_window_size and right_window_size: keys before and behind a query that it sees; -1 is all of them."""
    left, right = node.attribute("left_window_size", -1), node.attribute("right_window_size", -1)
    ahead = 0 if attention.causal or right < 0 else right
    if ahead and attention.lengths is not None:
        return Refusal("a window ahead of queries whose positions are known only on the device has no kernel")
    # A query that sees `ahead` keys behind it sees what one that stands there sees of the keys before it.
    return replace(
        attention,
        causal=attention.causal or right >= 0,
        first=attention.first + ahead,
        window=left + 1 + ahead if left >= 0 else 0,
    )


def _with_mask(attention: Attention, mask: Buffer | None) -> Attention | Refusal:
    """ONNX's attn_mask: of bool, where attention goes; of floats, what is added. Keys behind its end are not seen."""
    if mask is None:
        return attention
    if mask.dtype != "bool" and "float" not in mask.dtype:
        return Refusal(f"no attention mask of {mask.dtype}")
    plane, columns = plane_of(mask), mask.shape[-1]
    keys = attention.keys if columns == 1 else min(attention.keys, columns)
    return (
        replace(attention, keys=keys, mask=plane) if mask.dtype == "bool" else replace(attention, keys=keys, bias=plane)
    )


def cached(
    node: Node,
    target: Target,
    attention: Attention,
    past: tuple[int, int],
    present: tuple[int, int],
    rows: int,
    *,
    k_bias: Address | None = None,
    v_bias: Address | None = None,
    k_norm: tuple[Buffer, float] | None = None,
) -> tuple[tuple[Call, ...], Attention]:
    """The launch that appends new keys and values to the past (inputs by index) to make the present (outputs by index)
    of `rows` rows, and the attention to that; none where keys and values can stay where they are."""
    past_k, past_v = node.input(past[0]), node.input(past[1])
    present_k, present_v = node.output(present[0]), node.output(present[1])
    changed = k_bias is not None or v_bias is not None or k_norm is not None or attention.rotary is not None
    if past_k is None and present_k is None and present_v is None and not changed:
        return (), attention
    shape = (attention.batch, attention.kv_heads, rows)
    present_k = present_k or node.temporary((*shape, attention.head_size), attention.dtype)
    present_v = present_v or node.temporary((*shape, attention.v_head_size), attention.dtype)
    cache = Cache(
        None if past_k is None or past_v is None else (dense_heads(past_k), dense_heads(past_v)),
        (dense_heads(present_k), dense_heads(present_v)),
        0 if past_k is None else past_k.shape[2],
        rows,
        k_bias,
        v_bias,
        k_norm,
    )
    return append_calls(attention, cache, target)


def _attended(
    node: Node, target: Target, before: tuple[Call, ...], attention: Attention, scores: Buffer | None, stage: str
) -> Lowered:
    """The calls before, the attention, and its scores at a stage if somebody wants them."""
    lse = None
    if scores is not None and stage == "softmax":
        lse = node.temporary((attention.batch, attention.heads, attention.queries), float_accumulator(attention.dtype))
    calls = attention_calls(node, target, attention, lse=lse)
    if isinstance(calls, Refusal) or scores is None:
        return calls if isinstance(calls, Refusal) else (*before, *calls)
    return (*before, *calls, *scores_calls(node, target, attention, scores, stage, lse))


@lowers("MultiHeadAttention", domain=MICROSOFT)
def lower_multi_head_attention(node: Node, target: Target) -> Lowered:
    """com.microsoft::MultiHeadAttention (-1): every packing of query, key and value, bias, both kinds of masks, and
    past; only beams' cache_indirection has no kernel."""
    if node.input(9) is not None:
        return Refusal("MultiHeadAttention with cache_indirection has no kernel")
    heads, query, bias = node.attribute("num_heads"), node.x, node.input(3)
    (q, queries, size), (k, keys, _), (v, _, v_size) = packings_of(node, heads)
    batch, v_hidden = query.shape[0], heads * v_size
    past, past_length = node.input(6), node.input(8)
    first = 0 if past is None or past_length is not None else past.shape[2]
    rows = past.shape[2] if past is not None and past_length is not None else first + keys
    attention = Attention(
        q,
        k,
        v,
        Heads(node.y, (queries * v_hidden, v_size, v_hidden, 1)),
        batch,
        heads,
        heads,
        queries,
        keys,
        size,
        v_size,
        default_scale(node, size),
        causal=bool(node.attribute("unidirectional", 0)),
        first=first,
        lengths=None if past_length is None else Lengths(past_length, 0, keys, "past"),
        q_bias=bias,
    )
    k_bias, v_bias = (None, None) if bias is None else (Address(bias, heads * size), Address(bias, 2 * heads * size))
    calls, attention = cached(node, target, attention, (6, 7), (1, 2), rows, k_bias=k_bias, v_bias=v_bias)
    masked = with_padding(node, attention, node.input(4), node.input(5))
    if isinstance(masked, Refusal):
        return masked
    return _attended(node, target, calls, masked, node.output(3), "masked")


def packings_of(node: Node, heads: int) -> tuple[tuple[Heads, int, int], ...]:
    """Query, key and value, each with its rows and columns, from whichever inputs hold them."""
    query, key, value = node.x, node.input(1), node.input(2)
    if key is None:  # [batch, rows, heads, 3, size]
        return tuple(_packed(query, part) for part in range(3))
    if key.rank == 5:  # [batch, rows, heads, 2, size]
        return heads_of(query, heads), _packed(key, 0), _packed(key, 1)
    assert value is not None
    return heads_of(query, heads), heads_of(key, heads), heads_of(value, heads)


def _packed(buffer: Buffer, part: int) -> tuple[Heads, int, int]:
    _, rows, _, _, size = buffer.shape
    batch_stride, row_stride, head_stride, part_stride, _ = buffer.strides
    return Heads(buffer, (batch_stride, head_stride, row_stride, 1), part * part_stride), rows, size


def with_padding(node: Node, attention: Attention, padding: Buffer | None, bias: Buffer | None) -> Attention | Refusal:
    """onnxruntime's masks. [batch] counts keys, and so does [3 · batch + 2], which starts with it; [batch, keys],
    [batch, queries, keys] and [batch, 1, most, most] are zero where `mask_filter_value` is added."""
    if bias is not None:
        attention = replace(attention, bias=plane_of(bias), keys=min(attention.keys, bias.shape[-1]))
    if padding is None:
        return attention
    batch, columns = attention.batch, padding.shape[-1]
    if padding.rank == 1:
        if attention.lengths is not None or padding.size not in (batch, 3 * batch + 2):
            return Refusal(f"a mask of shape {padding.shape} has no kernel here")
        return replace(attention, lengths=Lengths(padding, 1, 0, "given"))
    if padding.rank == 2 and columns == 1 != attention.keys:  # onnxruntime's GPT-2 passes a stand-in
        return attention
    if columns < attention.keys and attention.lengths is None:
        return Refusal(f"a mask of {columns} columns does not cover {attention.keys} keys")
    if padding.rank == 4:
        most = padding.shape[-1]
        mask = Heads(padding, (most * most, 0, most, 1), attention.first * most)
    else:
        mask = Heads(padding, (padding.strides[0], 0, columns if padding.rank == 3 else 0, 1))
    fill = node.attribute("mask_filter_value", FILTER)
    return replace(attention, mask=mask, fill=fill, fill_adds=True, keys=min(attention.keys, columns))


@lowers("GroupQueryAttention", domain=MICROSOFT)
def lower_group_query_attention(node: Node, target: Target) -> Lowered:
    """com.microsoft::GroupQueryAttention (-1) with caches in the type of the queries: past in a buffer of its own or
    shared with present, packed or not, rotary tables, norms, local window, softcap, sinks, scores."""
    reason = _unsupported_group(node)
    if reason is not None:
        return Refusal(reason)
    query, lengths = node.x, node.inputs[5]
    assert lengths is not None
    heads, kv_heads = node.attribute("num_heads"), node.attribute("kv_num_heads")
    (q, queries, size), (k, keys, _), (v, _, v_size) = _group_packings(node, heads, kv_heads)
    past, present, bias, norm = node.input(3), node.output(1), node.input(10), node.input(14)
    rows = present.shape[2] if present is not None else keys if past is None else max(past.shape[2], keys)
    epsilon = node.attribute("qk_norm_epsilon", 1e-6)
    attention = Attention(
        q,
        k,
        v,
        Heads(node.y, (queries * heads * v_size, v_size, heads * v_size, 1)),
        query.shape[0],
        heads,
        kv_heads,
        queries,
        keys,
        size,
        v_size,
        default_scale(node, size),
        causal=bool(node.attribute("causal", 1)),
        window=max(0, node.attribute("local_window_size", -1)),
        lengths=Lengths(lengths, 1, 1, "past", node.input(16)),
        softcap=node.attribute("softcap", 0.0),
        sink=node.input(11),
        smooth=bool(node.attribute("smooth_softmax", 0)),
        norm=None if norm is None else (norm, node.attribute("q_norm_epsilon", epsilon)),
        rotary=_group_rotary(node),
        positions=node.input(9),
    )
    k_weight = node.input(15)
    k_norm = None if k_weight is None else (k_weight, node.attribute("k_norm_epsilon", epsilon))
    calls, attention = cached(node, target, attention, (3, 4), (1, 2), rows, k_norm=k_norm)
    if bias is not None:
        attention = replace(attention, bias=plane_of(bias), keys=min(attention.keys, bias.shape[-1]))
    stage = "softmax" if node.attribute("qk_output", 0) == 2 else "seen"
    return _attended(node, target, calls, attention, node.output(3), stage)


def _unsupported_group(node: Node) -> str | None:
    if node.attribute("sliding_window_cache", 0):
        return "a key cache of the size of its window has no kernel"
    if node.input(12) is not None or any(node.attribute(f"{x}_quant_type", "NONE") != "NONE" for x in "kv"):
        return "a quantised key cache has no kernel"
    if node.attribute("do_rotary", 0) and (node.input(7) is None or node.input(8) is None):
        return "do_rotary needs cos_cache and sin_cache"
    if node.input(1) is None and node.input(2) is not None:
        return "value is given without key"
    return None


def _group_rotary(node: Node) -> Rotary | None:
    cos, sin = node.input(7), node.input(8)
    if not node.attribute("do_rotary", 0) or cos is None or sin is None:
        return None
    return Rotary(cos, sin, bool(node.attribute("rotary_interleaved", 0)))


def _group_packings(node: Node, heads: int, kv_heads: int) -> tuple[tuple[Heads, int, int], ...]:
    """Query, key and value; without key, all are in query: [batch, rows, (heads + 2 · kv_heads) · size]."""
    query, key, value = node.x, node.input(1), node.input(2)
    if key is not None and value is not None:
        return heads_of(query, heads), heads_of(key, kv_heads), heads_of(value, kv_heads)
    _, rows, width = query.shape
    size = width // (heads + 2 * kv_heads)
    strides = (rows * width, size, width, 1)
    return tuple((Heads(query, strides, head * size), rows, size) for head in (0, heads, heads + kv_heads))
