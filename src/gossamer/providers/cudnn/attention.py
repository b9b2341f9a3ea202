"""Attention as cuDNN's flash attention: softmax(scale · q · kᵀ + bias) · v, causal or not, in half precision.

Only asked where a session's `sdpa_kernel` has cuDNN's bit, or the operator must run through cuDNN.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

import numpy as np

from gossamer.cudnn.builder import GraphBuilder
from gossamer.cudnn.loader import Library
from gossamer.cudnn.tensors import Tensor
from gossamer.kernels.attention import Attention, Heads
from gossamer.kernels.attention_operators import (
    default_scale,
    fused_attention_of,
    heads_of,
    packings_of,
    plane_of,
)
from gossamer.model.node import FUSED, Node
from gossamer.program import Buffer, Refusal, Target
from gossamer.providers.cudnn import Lowered, lowers
from gossamer.providers.cudnn.graphs import Form, Operand, first_found

HALVES = ("float16", "bfloat16")


@lowers("FusedAttention", domain=FUSED)
def lower_fused_attention(node: Node, target: Target, _: Library) -> Lowered:
    """gossamer::FusedAttention, whatever the layouts of its operands."""
    return _lower(node, target, fused_attention_of(node))


@lowers("Attention")
def lower_attention(node: Node, target: Target, _: Library) -> Lowered:
    """ONNX Attention (-23 to -25) of nothing but queries, keys, values and a float mask."""
    q, k, v, mask = node.inputs[0], node.inputs[1], node.inputs[2], node.input(3)
    assert q is not None
    assert k is not None
    assert v is not None
    reason = _beyond(node, outputs=1, inputs=4) or _windowed(node)
    if reason:
        return Refusal(reason)
    heads, kv_heads = (node.attribute("q_num_heads", 0), node.attribute("kv_num_heads", 0)) if q.rank == 3 else (0, 0)
    heads, kv_heads = heads or q.shape[1], kv_heads or k.shape[1]
    attention = _attention(
        node, [heads_of(q, heads), heads_of(k, kv_heads), heads_of(v, kv_heads)], heads_of(node.y, heads)[0],
        heads, kv_heads, mask, causal=bool(node.attribute("is_causal", 0)),
    )  # fmt: skip
    return _lower(node, target, attention)


@lowers("MultiHeadAttention", domain="com.microsoft")
def lower_multi_head_attention(node: Node, target: Target, _: Library) -> Lowered:
    """com.microsoft::MultiHeadAttention (-1) without biases of its projections, padding, or a past."""
    if any(node.input(index) is not None for index in (3, 4, 6, 7, 8, 9)):
        return Refusal("cuDNN has no biases of projections, padding, or past here")
    reason = _beyond(node, outputs=1, inputs=6)
    if reason:
        return Refusal(reason)
    heads = node.attribute("num_heads")
    packings = packings_of(node, heads)
    queries, v_size = packings[0][1], packings[2][2]
    y = Heads(node.y, (queries * heads * v_size, v_size, heads * v_size, 1))
    causal = bool(node.attribute("unidirectional", 0))
    return _lower(node, target, _attention(node, packings, y, heads, heads, node.input(5), causal=causal))


def _beyond(node: Node, *, outputs: int, inputs: int) -> str:
    """Why a node asks for more than attention, or nothing."""
    more = [buffer for buffer in (*node.inputs[inputs:], *node.outputs[outputs:]) if buffer is not None]
    return f"cuDNN's attention has no '{more[0].name}' here" if more else ""


def _windowed(node: Node) -> str:
    windows = [node.attribute(f"{side}_window_size", -1) for side in ("left", "right")]
    return "cuDNN's attention is not asked for windows" if max(windows) >= 0 else ""


def _attention(
    node: Node,
    packings: Sequence[tuple[Heads, int, int]],
    y: Heads,
    heads: int,
    kv_heads: int,
    bias: Buffer | None,
    *,
    causal: bool,
) -> Attention:
    (q, queries, size), (k, keys, _), (v, _, v_size) = packings
    return Attention(
        q, k, v, y, q.buffer.shape[0], heads, kv_heads, queries, keys, size, v_size, default_scale(node, size),
        causal=causal, softcap=node.attribute("softcap", 0.0), bias=None if bias is None else plane_of(bias),
    )  # fmt: skip


def _lower(node: Node, target: Target, attention: Attention) -> Lowered:
    reason = _unsupported(node, attention)
    return Refusal(reason) if reason else first_found(target, [_form(attention)])


def _unsupported(node: Node, attention: Attention) -> str:
    """Why cuDNN does not compute an attention as it is wanted, or nothing."""
    buffers = [attention.q.buffer, attention.k.buffer, attention.v.buffer]
    buffers += [] if attention.bias is None else [attention.bias.buffer]
    if attention.q.buffer.dtype not in HALVES or len({buffer.dtype for buffer in buffers}) > 1:
        return f"cuDNN's attention is one of halves, not of {', '.join(buffer.dtype for buffer in buffers)}"
    if not (attention.batch * attention.queries * attention.keys):
        return "cuDNN has no tensors without elements"
    if attention.softcap or attention.mask is not None:
        return "cuDNN's attention is not asked for capped scores and masks that are not added"
    if attention.causal and attention.first:
        return "cuDNN's causal attention begins at the first key"
    if attention.bias is not None and attention.bias.buffer.shape[-1] not in (1, attention.keys):
        return "the mask has not one column for each key"
    if attention.bias is not None and attention.zero_empty and not _is_finite(node, attention.bias.buffer):
        return "queries that see nothing have to give zeros, which cuDNN's do not"
    return ""


def _is_finite(node: Node, bias: Buffer) -> bool:
    """Whether a bias is a constant that hides no key entirely."""
    index = next(i for i, buffer in enumerate(node.inputs) if buffer is not None and buffer.name == bias.name)
    value = node.constant(index)
    return value is not None and bool(np.isfinite(value.astype(np.float32)).all())


def _form(attention: Attention) -> Form:
    graph = GraphBuilder()
    batch, heads, kv_heads = attention.batch, attention.heads, attention.kv_heads
    q = _tensor(graph, "q", attention.q, (batch, heads, attention.queries, attention.head_size))
    k = _tensor(graph, "k", attention.k, (batch, kv_heads, attention.keys, attention.head_size))
    v = _tensor(graph, "v", attention.v, (batch, kv_heads, attention.keys, attention.v_head_size))
    operands = {name: _operand(one) for name, one in (("q", attention.q), ("k", attention.k), ("v", attention.v))}
    bias = None
    if attention.bias is not None:
        bias = _tensor(graph, "bias", attention.bias, (batch, heads, attention.queries, attention.keys))
        operands["bias"] = _operand(attention.bias)
    y = graph.attention(q, k, v, scale=attention.scale, bias=bias, causal=attention.causal)
    graph.output(y, name="y", strides=attention.y.strides, alignment=_alignment(attention.y))
    return Form("attention", graph, {**operands, "y": _operand(attention.y)}, flops=attention.flops)


def _operand(heads: Heads) -> Operand:
    return Operand(heads.buffer, heads.offset)


def _tensor(graph: GraphBuilder, name: str, heads: Heads, shape: tuple[int, int, int, int]) -> Tensor:
    """Dimensions that repeat have one element."""
    dims = [1 if stride == 0 else extent for extent, stride in zip(shape, heads.strides, strict=True)]
    strides, step = list(heads.strides), 1
    for axis in reversed(range(4)):  # a stride of nothing is none to cuDNN
        strides[axis] = strides[axis] or step
        step = max(step, strides[axis] * dims[axis])
    return graph.tensor(name, dims, heads.buffer.dtype, strides=strides, alignment=_alignment(heads))


def _alignment(heads: Heads) -> int:
    """Bytes: buffers are aligned to 16."""
    return gcd(16, heads.offset * heads.buffer.itemsize)
