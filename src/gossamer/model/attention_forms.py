"""The ways in which models write what is between two products in an attention: scales, masks, the softmax, casts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from gossamer.model.activation_forms import scalar_constant
from gossamer.model.edit import constant_of, static_shape
from gossamer.model.fusion import other_input, scaled_by, sole_reader

FLOATS = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE)
HIDDEN = -1e4
"""Masks of at most this are what exporters write for minus infinity: exp of it is zero in every type."""

_BETWEEN = frozenset({"Add", "Cast", "Div", "Identity", "Mul", "Reshape", "Tanh", "Where"})


@dataclass(slots=True)
class Mask:
    """What hides scores, or is added to them: `value` broadcasts to scores of `shape`.

    fill: what a hidden score becomes. inverted: whether scores are hidden where the value is true, not where false.
    """

    value: ir.Value
    shape: tuple[int, ...]
    fill: float = -math.inf
    inverted: bool = False


@dataclass(slots=True)
class Probabilities:
    """softmax(scale · A · B, masked, + bias) between two products. nodes: in order, both products included.

    softcap: scores s become softcap · tanh(s / softcap) before they are masked, unless it is 0. grid: batch and heads,
    where scores have the rank for them. zero_empty: rows that see nothing give zeros, not NaN.
    """

    nodes: list[ir.Node]
    scale: float = 1.0
    softcap: float = 0.0
    bias: Mask | None = None
    mask: Mask | None = None
    grid: tuple[int, int] | None = None
    zero_empty: bool = False


def probabilities_around(softmax: ir.Node, opset: int) -> Probabilities | None:
    """What is around a Softmax, where that is all between two products, and nobody else reads any of it."""
    shape = static_shape(softmax.inputs[0])
    if shape is None or 0 in shape or len(shape) not in (3, 4):
        return None
    axis = softmax.attributes["axis"].as_int() if "axis" in softmax.attributes else 1 if opset < 13 else -1
    if axis % len(shape) != len(shape) - 1:
        return None
    found = Probabilities([softmax])
    _see(found, shape)
    return found if _walk_back(found) and _walk_on(found) else None


def _see(found: Probabilities, shape: tuple[int, ...]) -> None:
    if len(shape) == 4:
        found.grid = shape[0], shape[1]


def _walk_back(found: Probabilities) -> bool:
    """From the softmax to the product whose scores it takes."""
    reader = found.nodes[0]
    value = reader.inputs[0]
    while value is not None:
        node, shape = value.producer(), static_shape(value)
        if node is None or shape is None or node.domain != "" or sole_reader(value) is not reader:
            return False
        found.nodes.insert(0, node)
        _see(found, shape)
        if node.op_type == "MatMul":
            return True
        value, reader = _before(found, node, shape), node
    return False


def _before(found: Probabilities, node: ir.Node, shape: tuple[int, ...]) -> ir.Value | None:
    """The scores that a node takes, once what it does to them is entered; None where that cannot be said."""
    if _keeps(node, static_shape(node.inputs[0]) or ()):
        return node.inputs[0]
    scaled = scaled_by(node)
    if scaled is not None:
        found.scale *= scaled[1]
        return scaled[0]
    if node.op_type == "Tanh" and not found.softcap:
        found.softcap = found.scale  # what comes before is divided by it
        return node.inputs[0]
    if found.scale != 1.0 or found.softcap:
        return None  # the mask would be scaled, too
    if node.op_type == "Add":
        return _take_bias(found, node, shape)
    return _take_where(found, node, shape) if node.op_type == "Where" else None


def _take_bias(found: Probabilities, node: ir.Node, shape: tuple[int, ...]) -> ir.Value | None:
    if found.bias is not None or (found.mask is not None and found.mask.fill != -math.inf):
        return None
    scores = next((value for value in node.inputs if value is not None and _are_scores(value, node)), None)
    bias = None if scores is None else other_input(node, scores)
    if scores is None or bias is None or static_shape(scores) != shape:
        return None
    found.bias = Mask(bias, shape)
    return scores


def _take_where(found: Probabilities, node: ir.Node, shape: tuple[int, ...]) -> ir.Value | None:
    condition, *choices = node.inputs
    if found.mask is not None or condition is None:
        return None
    for scores, other, inverted in ((choices[0], choices[1], False), (choices[1], choices[0], True)):
        fill = scalar_constant(other)
        if scores is None or fill is None or static_shape(scores) != shape:
            continue
        found.mask = Mask(condition, shape, fill, inverted)
        return scores
    return None


def _are_scores(value: ir.Value, reader: ir.Node, most: int = 8) -> bool:
    """Whether a product is at the end of what is only scaled, masked or cast, and only `reader` reads it."""
    node, shape = value.producer(), static_shape(value)
    if not most or node is None or shape is None or node.domain != "" or sole_reader(value) is not reader:
        return False
    if node.op_type == "MatMul":
        return True
    if node.op_type not in _BETWEEN:
        return False
    inner = ((one, static_shape(one)) for one in node.inputs if one is not None)
    return any(extents and extents[-2:] == shape[-2:] and _are_scores(one, node, most - 1) for one, extents in inner)


def _walk_on(found: Probabilities) -> bool:
    """From the softmax to the product of its probabilities with values."""
    value = found.nodes[-1].outputs[0]
    while True:
        shape = static_shape(value)
        guard = _guard_after(value)
        if guard is not None:
            found.nodes += guard
            found.zero_empty = True
            value = guard[-1].outputs[0]
            continue
        node = sole_reader(value)
        if node is None or shape is None or node.domain != "":
            return False
        found.nodes.append(node)
        _see(found, shape)
        if node.op_type == "MatMul":
            return node.inputs[0] is value
        if not _keeps(node, shape):
            return False
        value = node.outputs[0]


def _keeps(node: ir.Node, shape: tuple[int, ...]) -> bool:
    """Whether a node leaves a matrix of `shape`, the last two axes, as it is but for its type."""
    output = static_shape(node.outputs[0])
    if node.op_type in ("Cast", "Identity"):
        return node.outputs[0].dtype in FLOATS
    return node.op_type in ("Reshape", "Squeeze", "Unsqueeze") and output is not None and output[-2:] == shape[-2:]


def _guard_after(value: ir.Value) -> list[ir.Node] | None:
    """Where(IsNaN(p), 0, p), as exporters of scaled_dot_product_attention write it."""
    readers = [use.node for use in value.uses()]
    if len(readers) != 2 or value.is_graph_output():
        return None
    test = next((node for node in readers if node.op_type == "IsNaN" and node.domain == ""), None)
    choice = None if test is None else sole_reader(test.outputs[0])
    if test is None or choice is None or choice.op_type != "Where" or choice not in readers:
        return None
    return [test, choice] if scalar_constant(choice.inputs[1]) == 0 and choice.inputs[2] is value else None


def first_of_causal(mask: Mask, *, adds: bool) -> int | None:
    """For a constant mask by which query i sees keys 0 … i + first and no other: first. None for any other mask."""
    array = constant_of(mask.value)
    queries, keys = mask.shape[-2:]
    if array is None or array.ndim < 1 or array.size != math.prod(array.shape[-2:]):
        return None
    seen = _seen(array.reshape(array.shape[-2:] if array.ndim > 1 else (1, -1)), mask, adds)
    if seen is None:
        return None
    if seen.all():
        return keys
    first = int(seen[0].sum()) - 1
    if seen.shape != (queries, keys) or first < 0 or not (adds or mask.fill <= HIDDEN):
        return None
    return first if np.array_equal(seen, np.tri(queries, keys, first, dtype=bool)) else None


def _seen(array: np.ndarray, mask: Mask, adds: bool) -> np.ndarray | None:
    """Where scores stay as they are; None where some are neither that nor hidden."""
    seen: np.ndarray = np.equal(array, 0)
    if not adds:
        return seen if mask.inverted else ~seen
    return seen if bool((seen | (array <= HIDDEN)).all()) else None
