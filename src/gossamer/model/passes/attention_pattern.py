"""Attention that a model spells out becomes one node."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from gossamer.model.activation_forms import scalar_constant
from gossamer.model.edit import constant_of, erase, static_shape
from gossamer.model.fusion import fuse, other_input, sole_reader
from gossamer.model.strided_views import Trace, View, trace

_TYPES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE)
_NOTHING = -1e4
"""Masks of at most this are what exporters write for minus infinity: exp of it is zero in every type."""


def attention_pattern(model: ir.Model) -> bool:
    """Recognise softmax(scale · Q · Kᵀ + mask) · V, and read Q, K and V from where their heads were split.

    ```
    %a = Reshape(%x, [2,128,12,64])
    %q = Transpose[perm=[0,2,1,3]](%a)
    … likewise %k, with perm [0,2,3,1], and %v           %y = gossamer::FusedAttention[scale=0.125, …,
    %s = MatMul(%q, %k)                                     shape=[2,12,12,128,128,64,64],
    %d = Div(%s, 8)                              →          layoutQ=[0,98304,64,768,1], …](%x, %key, %value, %mask)
    %m = Add(%d, %mask)
    %p = Softmax[axis=-1](%m)
    %o = MatMul(%p, %v)
    %y = Transpose[perm=[0,2,1,3]](%o)
    ```

    Scores of rank 3 or 4. Scales: multiplications and divisions by scalar constants, of the scores, of Q and of K, by
    roots, too. Masks, in this order: Where(mask, scores, fill) or Where(mask, fill, scores) as in GPT-2; an addition
    of whatever broadcasts to the scores. A constant mask that is causal becomes an attribute, one that hides nothing is
    dropped. Casts to and from fp32 around the softmax go; so does the Where(IsNaN(…)) that gives zeros to queries that
    see nothing. Operands are traced through every Transpose, Reshape, Split, Slice, Gather and Expand that strides can
    say, so packed projections and the repeated heads of grouped queries (Unsqueeze, Expand, Reshape) are not copied.

    Kept: nodes of subgraphs; scores or probabilities that others read or that are returned; two masks of which one
    cannot be read as a Where inside an Add; scales that are applied after a mask; integers.
    """
    changed = False
    for node in tuple(model.graph):
        if node.op_type == "Softmax" and node.domain == "":
            changed |= _fuse_around(model, node)
    return changed


@dataclass(slots=True)
class _Mask:
    """What hides or biases scores: a value that broadcasts to scores of `shape`. inverted: true where they are hidden."""

    value: ir.Value
    shape: tuple[int, ...]
    fill: float = -math.inf
    inverted: bool = False


@dataclass(slots=True)
class _Scores:
    """What becomes of Q · Kᵀ up to the second product. nodes: in order, from the first product on."""

    nodes: list[ir.Node]
    scale: float = 1.0
    bias: _Mask | None = None
    mask: _Mask | None = None
    heads: tuple[int, int] | None = None
    zero_empty: bool = False

    @property
    def masked(self) -> bool:
        return self.bias is not None or self.mask is not None


@dataclass(frozen=True, slots=True)
class _Shape:
    """batch … as in gossamer::FusedAttention's attribute `shape`, without kv_heads."""

    batch: int
    heads: int
    queries: int
    keys: int


def _fuse_around(model: ir.Model, softmax: ir.Node) -> bool:
    scores = _scores_before(model, softmax)
    if scores is None or not _follow(scores):
        return False
    first, last = scores.nodes[0], scores.nodes[-1]
    q, k, v = _traced(first.inputs[0]), _traced(first.inputs[1], turned=True), _traced(last.inputs[1])
    if q is None or k is None or v is None:
        return False
    shape = _common_shape(scores, q.view)
    layouts = None if shape is None else _Layouts.of(shape, q.view, k.view, v.view)
    if shape is None or layouts is None:
        return False
    attributes, planes = _mask_attributes(model, scores, shape)
    if planes is None:
        return False
    for operand in (q, k):
        scores.scale *= _factor(operand)
    dims = (shape.batch, shape.heads, shape.queries, layouts.v_size)
    y_view = _take_output(scores, dims)
    v_factor = _factor(v)
    ...
