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
class _Scores:
    """What becomes of Q · Kᵀ before the softmax. nodes: in order, the product first."""

    scale: float = 1.0
    bias: ir.Value | None = None
    mask: ir.Value | None = None
    inverted: bool = False
    fill: float = -math.inf
    nodes: list[ir.Node] = field(default_factory=list)


@dataclass(slots=True)
class _Operand:
    trace: Trace
    factor: float = 1.0


def _fuse_around(model: ir.Model, softmax: ir.Node) -> bool:
    shape = static_shape(softmax.inputs[0])
    if shape is None or len(shape) not in (3, 4) or 0 in shape or _softmax_axis(model, softmax, len(shape)) != len(shape) - 1:
        return False
    scores = _scores_before(softmax)
    after = _after(softmax)
    if scores is None or after is None:
        return False
    nodes, values, zero_empty = after
    product = scores.nodes[0]
    if product.inputs[0].dtype not in _TYPES or product.inputs[0].dtype != values.dtype:
        return False
    q, k, v = _query(product.inputs[0]), _query(product.inputs[1], keys=True), _query(values)
    if q is None or k is None or v is None:
        return False
    return _replace(model, shape, scores, [*scores.nodes, softmax, *nodes], (q, k, v), zero_empty)
