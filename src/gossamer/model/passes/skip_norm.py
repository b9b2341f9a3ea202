"""A residual addition before a normalisation is done by its kernel."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import onnx_ir as ir

from gossamer.model.edit import erase, static_shape
from gossamer.model.elementwise import RULES
from gossamer.model.fusion import hand_over, is_float, other_input, sole_reader
from gossamer.model.node import FUSED

_MICROSOFT = "com.microsoft"
_SKIPPING = {
    "LayerNormalization": "SkipLayerNormalization",
    "RMSNormalization": "SkipSimplifiedLayerNormalization",
    "SimplifiedLayerNormalization": "SkipSimplifiedLayerNormalization",
}


def skip_norm(model: ir.Model) -> bool:
    """Merge an Add into the LayerNormalization or RMSNormalization (ONNX -17, -23, and ours) that reads its sum.

    ```
    %b = Add(%x, %bias)
    %s = Add(%b, %z)                            %y, _, _, %s =
    %y = LayerNormalization(%s, %g, %h)   →         com.microsoft::SkipLayerNormalization(%x, %z, %g, %h, %bias)
    %u = MatMul(%s, …)                          %u = MatMul(%s, …)
    ```

    The sum is an output where others read it. Either summand may repeat along leading axes, as position embeddings do;
    the bias, one value per column, is optional. gossamer::SkipLayerNormalization and …Simplified… stand where
    onnxruntime's schemas end: mixed types, ranks but 2 and 3, no scale. After `matmul_epilogue`, on purpose: a product
    that does the addition itself saves more.

    Kept: norms over more than the last axis, or asked for their statistics, or with a scale or bias that nodes compute,
    perhaps from the sum; summands that broadcast otherwise; an addition that `elementwise_chains` will join with what
    makes a summand, which saves more; subgraphs.
    """
    changed = False
    for node in tuple(model.graph):
        if node.op_type in _SKIPPING and node.domain in ("", FUSED):
            changed |= _merge(model, node)
    return changed


@dataclass(frozen=True, slots=True)
class _Sum:
    """total = x + skip + bias, by the nodes `adds`, of which others read only the last."""

    total: ir.Value
    x: ir.Value
    skip: ir.Value
    bias: ir.Value | None
    adds: tuple[ir.Node, ...]


def _merge(model: ir.Model, norm: ir.Node) -> bool:
    found = None if norm.inputs[0] is None or not _is_over_columns(norm) else _sum_of(norm.inputs[0])
    if found is None:
        return False
    scale, shift = (*norm.inputs[1:], None, None)[:2]
    op_type = _SKIPPING[norm.op_type]
    parameters = (scale, shift) if op_type == "SkipLayerNormalization" else (scale,)
    inputs = [found.x, found.skip, *parameters, found.bias]
    while inputs[-1] is None:
        inputs.pop()
    returns_sum = found.total.is_graph_output() or len(found.total.uses()) > 1
    merged = ir.Node(
        _MICROSOFT if _is_in_schema(inputs, norm) else FUSED,
        op_type,
        inputs,
        (ir.AttrFloat32("epsilon", _epsilon(norm)),),
        num_outputs=4 if returns_sum else 1,
        version=1,
        name=norm.name,
    )
    _put_in_place(model, merged, norm, found)
    return True


def _is_over_columns(norm: ir.Node) -> bool:
    """Whether it normalises over the last axis alone, with a given number as scale and bias for each column."""
    shape = static_shape(norm.inputs[0])
    if shape is None or len(shape) < 2 or any(value.name for value in norm.outputs[1:]):
        return False
    axis = norm.attributes["axis"].as_int() if "axis" in norm.attributes else -1
    parameters = [value for value in norm.inputs[1:] if value is not None]
    given = all(value.producer() is None and prod(static_shape(value) or ()) == shape[-1] for value in parameters)
    return given and axis % len(shape) == len(shape) - 1


def _epsilon(norm: ir.Node) -> float:
    return norm.attributes["epsilon"].as_float() if "epsilon" in norm.attributes else 1e-5


def _sum_of(total: ir.Value) -> _Sum | None:
    add = total.producer()
    if add is None or not _is_add(add) or not is_float(total):
        return None
    first, second = add.inputs
    if first is None or second is None or first is second or _is_joined(first, add) or _is_joined(second, add):
        return None
    found = None
    for x, skip in ((first, second), (second, first)):
        inner, bias, adds = _without_bias(x, add)
        if static_shape(inner) == static_shape(total) and _repeats(skip, total) and (found is None or adds):
            found = _Sum(total, inner, skip, bias, (*adds, add))
    return found


def _is_add(node: ir.Node) -> bool:
    return node.op_type == "Add" and node.domain == ""


def _is_joined(summand: ir.Value, add: ir.Node) -> bool:
    """Whether an elementwise kernel makes the summand, which may then add as well; an Add of a bias need not stay."""
    producer = summand.producer()
    if producer is None or (producer.domain, producer.op_type) not in RULES or sole_reader(summand) is not add:
        return False
    return static_shape(summand) == static_shape(add.outputs[0]) and not _without_bias(summand, add)[2]


def _without_bias(value: ir.Value, add: ir.Node) -> tuple[ir.Value, ir.Value | None, tuple[ir.Node, ...]]:
    """The value less a bias that an Add for this addition alone gave it, the bias, and that Add."""
    node = value.producer()
    shape = static_shape(value)
    if node is None or not shape or not _is_add(node) or sole_reader(value) is not add:
        return value, None, ()
    for bias in node.inputs:
        rest = None if bias is None else other_input(node, bias)
        if bias is None or rest is None or static_shape(rest) != shape or static_shape(bias) != shape[-1:]:
            continue
        producer = rest.producer()
        if producer is None or (producer.domain, producer.op_type) not in RULES:
            return rest, bias, (node,)
    return value, None, ()


def _repeats(skip: ir.Value, total: ir.Value) -> bool:
    """Whether the summand has the sum's shape, or its last two axes and repeats along the others."""
    shape, whole = static_shape(skip), static_shape(total)
    if shape is None or whole is None:
        return False
    return shape == whole or (shape[-2:] == whole[-2:] and prod(shape) == prod(whole[-2:]))


def _is_in_schema(inputs: list[ir.Value | None], norm: ir.Node) -> bool:
    result = norm.outputs[0]
    types = {value.dtype for value in inputs if value is not None} | {result.dtype}
    vectors = (value for value in inputs[2:] if value is not None)
    return (
        len(types) == 1
        and inputs[2:3] not in ([], [None])
        and all(len(static_shape(value) or ()) == 1 for value in vectors)
        and len(static_shape(result) or ()) in (2, 3)
    )


def _put_in_place(model: ir.Model, merged: ir.Node, norm: ir.Node, found: _Sum) -> None:
    """Where the addition is, so that all readers of the sum come later."""
    graph = norm.graph
    assert graph is not None
    graph.insert_before(found.adds[-1], merged)
    hand_over(norm.outputs[0], merged.outputs[0])
    erase(norm)
    if len(merged.outputs) == 4:
        for value in merged.outputs[1:3]:
            value.name = ""
        hand_over(found.total, merged.outputs[3])
    for add in reversed(found.adds):
        erase(add)
    model.opset_imports.setdefault(merged.domain, 1)
