"""Attention, composed as cuDNN's flash attention engines want it.

They recognise one pattern of matmul, pointwise and reduction operations and nothing near it: the logarithm of the sums
belongs to it although nothing reads it, keys come with their last two dimensions exchanged, and the probabilities have
the data type of the inputs. cuDNN 9.20 brought a softmax operation of its own; the pattern works with every version.

Source: cuDNN documentation, "Fused flash attention fprop"; cudnn_frontend, CompositeSoftmaxNode.
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING

from gossamer.cudnn.tensors import Tensor, strides_like
from gossamer.errors import InvalidArgument

if TYPE_CHECKING:
    from gossamer.cudnn.builder import GraphBuilder

_LOWEST = -3.3895313892515355e38  # bfloat16's lowest finite number: exp of it is 0, and it fits every float type


def attention(
    graph: GraphBuilder,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | None,
    bias: Tensor | None,
    causal: bool,
) -> Tensor:
    """See GraphBuilder.attention."""
    q, k, v = graph.current(q), graph.current(k), graph.current(v)
    if not len(q.dims) == len(k.dims) == len(v.dims) == 4 or k.dims[-1] != q.dims[-1]:
        raise InvalidArgument(f"attention of {q}, {k}, {v}: four dimensions each are wanted, and q's size in k")
    scores = graph.matmul(q, _transposed(graph, k))
    scores = graph.mul(scores, graph.scalar(1 / sqrt(q.dims[-1]) if scale is None else scale))
    if bias is not None:
        scores = graph.add(scores, bias)
    if causal:
        scores = _causal(graph, scores)
    result = graph.matmul(_softmax(graph, scores, q.dtype), v)
    return graph.declare(replace(result, strides=strides_like(result.dims, q)))


def _softmax(graph: GraphBuilder, x: Tensor, dtype: str) -> Tensor:
    """Over the last dimension."""
    highest = graph.reduction("max", x, [-1])
    raised = graph.pointwise("exp", graph.sub(x, highest))
    total = graph.reduction("add", raised, [-1])
    graph.add(highest, graph.pointwise("log", total))
    return graph.pointwise("div", raised, total, dtype=dtype)


def _causal(graph: GraphBuilder, scores: Tensor) -> Tensor:
    """Scores, but the lowest number where the key comes after the query."""
    query, key = (graph.pointwise("index", scores, axis=axis, dtype="int32") for axis in (2, 3))
    return graph.pointwise("select", scores, graph.scalar(_LOWEST), graph.pointwise("cmp_ge", query, key))


def _transposed(graph: GraphBuilder, k: Tensor) -> Tensor:
    """The tensor declared anew with its last two dimensions exchanged."""
    if k.virtual or any(k.uid in operation.reads for operation in graph.operations):
        raise InvalidArgument(f"attention with {k}: keys must be in memory, and nothing else may read them")
    dims, strides = ((*one[:2], one[3], one[2]) for one in (k.dims, k.strides))
    return graph.declare(replace(k, dims=dims, strides=strides))
