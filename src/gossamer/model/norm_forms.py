"""Which normalisation an expression is, however a model writes it.

(x - mean(x)) / √(mean((x - mean(x))²) + ε) · scale + bias over the last axes, and the same without mean(x), which is
the normalisation by root mean square. The search starts at the root: back from it to x, and on to the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from gossamer.model.activation_forms import scalar_constant
from gossamer.model.edit import constant_of, static_shape
from gossamer.model.fusion import fuse, is_closed, is_float, sole_reader
from gossamer.model.node import FUSED

_NARROW = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.FLOAT)
"""Types that kernels compute in fp32: a Cast from one to another inside a norm only costs digits."""


@dataclass(slots=True)
class Norm:
    """result = norm(x) · scale + bias over the axes from `axis` on, with means subtracted where `centred`.

    nodes: what computes it, in order; others read only the last one's output.
    """

    x: ir.Value
    axis: int
    epsilon: float
    centred: bool
    result: ir.Value
    scale: ir.Value | None = None
    bias: ir.Value | None = None
    nodes: Sequence[ir.Node] = field(default=())

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the axes that are normalised over."""
        return (static_shape(self.x) or ())[self.axis :]

    def fits(self, parameter: ir.Value | None) -> bool:
        """Whether the value is one number for each place of a row, the same for all rows."""
        shape, rank = static_shape(parameter), len(static_shape(self.x) or ())
        if parameter is None or shape is None or not is_float(parameter):
            return False
        return len(shape) <= rank and _lead(shape) == _lead(self.shape)

    def is_uniform(self, *values: ir.Value | None) -> bool:
        """Whether the values have the result's type, and scale and bias the shape that the specification gives them."""
        parameters = [value for value in (self.scale, self.bias) if value is not None]
        return all(value is not None and value.dtype == self.result.dtype for value in values) and all(
            static_shape(value) == self.shape for value in parameters
        )


def norm_around(root: ir.Node, *, centred: bool) -> Norm | None:
    """The norm whose deviations `root`, a Sqrt or a Pow, makes: from the mean if `centred`, else from zero.

    Casts between 16-bit floats and fp32 are looked through. The largest one: with scale, bias and a last Cast.
    """
    if root.op_type not in ("Sqrt", "Pow") or root.domain != "":
        return None
    exponent = 0.5 if root.op_type == "Sqrt" else scalar_constant(root.inputs[1])
    norm = _from_x_to(root, centred) if exponent in (0.5, -0.5) else None
    if norm is None or not (_divide(norm, root, exponent == -0.5) and _is_exact(norm)):
        return None
    _take_parameters(norm)
    _take_cast(norm)
    norm.nodes = _nodes_of(norm)
    return norm if is_closed(norm.nodes) else None


def fuse_norm(model: ir.Model, norm: Norm, op_type: str, version: int, *, uniform: bool) -> None:
    """Put the norm's operator in its place: ONNX's of that version, or where not `uniform` our own of the same name."""
    rank = len(static_shape(norm.x) or ())
    attributes = (ir.AttrInt64("axis", norm.axis - rank), ir.AttrFloat32("epsilon", norm.epsilon))
    domain = "" if uniform else FUSED
    inputs = (norm.x, norm.scale, norm.bias)
    fuse(model, op_type, inputs, attributes, norm.nodes, domain=domain, version=version if uniform else 1)


# From the root back to x.


def _from_x_to(root: ir.Node, centred: bool) -> Norm | None:
    """The norm without its result: √(mean(d²) + ε), where d is x or x less its mean."""
    add = _made_by(root.inputs[0], "Add")
    if add is None:
        return None
    epsilon, mean_square = scalar_constant(add.inputs[1]), add.inputs[0]
    if epsilon is None:
        epsilon, mean_square = scalar_constant(add.inputs[0]), add.inputs[1]
    mean = _mean(mean_square)
    deviation = None if mean is None else _root_of_square(mean[0])
    if epsilon is None or epsilon < 0 or mean is None or deviation is None:
        return None
    axis = mean[1]
    if not centred:
        return Norm(deviation, axis, epsilon, False, deviation)
    less = _made_by(deviation, "Sub")
    source = None if less is None else _mean(less.inputs[1])
    if (
        less is None
        or less.inputs[0] is None
        or source is None
        or source[1] != axis
        or not _is(less.inputs[0], source[0])
    ):
        return None
    return Norm(_uncast(source[0]), axis, epsilon, True, deviation)


def _mean(value: ir.Value | None) -> tuple[ir.Value, int] | None:
    """What the value is the mean of, and its first axis that is averaged: that and all behind it are."""
    node = _made_by(value, "ReduceMean")
    source = None if node is None else node.inputs[0]
    shape = static_shape(source)
    if node is None or source is None or not shape or not is_float(source):
        return None
    keepdims = node.attributes.get("keepdims")
    axes = _axes(node, len(shape))
    if not axes or (keepdims is not None and not keepdims.as_int()):
        return None
    first = min(axes)
    return (source, first) if all(axis in axes or shape[axis] == 1 for axis in range(first, len(shape))) else None


def _axes(node: ir.Node, rank: int) -> set[int] | None:
    """The axes of a ReduceMean: an attribute, since version 18 an input; None where they are not known."""
    if "axes" in node.attributes:
        axes = [int(axis) for axis in node.attributes["axes"].as_ints()]
    elif len(node.inputs) > 1 and node.inputs[1] is not None:
        constant = constant_of(node.inputs[1])
        if constant is None:
            return None
        axes = [int(axis) for axis in constant]
    else:
        axes = []
    if not axes and "noop_with_empty_axes" in node.attributes and node.attributes["noop_with_empty_axes"].as_int():
        return None
    return {axis % rank for axis in axes or range(rank)}


def _root_of_square(value: ir.Value) -> ir.Value | None:
    """What the value is the square of."""
    node = _made_by(value, "Mul", "Pow")
    if node is None or node.inputs[0] is None or node.inputs[1] is None:
        return None
    first = _uncast(node.inputs[0])
    if node.op_type == "Pow":
        return first if scalar_constant(node.inputs[1]) == 2.0 else None
    return first if _uncast(node.inputs[1]) is first else None


# From the root on to the result.


def _divide(norm: Norm, root: ir.Node, inverse: bool) -> bool:
    """Find d / root, however it is written; with the scale, where the reciprocal takes that first."""
    value = root.outputs[0]
    if not inverse:
        quotient = _reader(value)
        if quotient is None or not _divides_by(quotient, value):
            return False
        if _is(quotient.inputs[0], norm.result):
            norm.result = quotient.outputs[0]
            return True
        if quotient.op_type == "Div" and scalar_constant(quotient.inputs[0]) != 1:
            return False
        value = quotient.outputs[0]
    value = _scale_first(norm, value)
    product = _reader(value)
    if product is not None and product.op_type == "Mul" and _is(_other(product, value), norm.result):
        norm.result = product.outputs[0]
        return True
    return norm.centred and _distributed(norm, value)


def _divides_by(node: ir.Node, value: ir.Value) -> bool:
    return node.op_type == "Reciprocal" or (node.op_type == "Div" and _is(node.inputs[1], value))


def _scale_first(norm: Norm, factor: ir.Value) -> ir.Value:
    """factor · scale, if that is what it is read for; where a row is all of x, x could pass for a scale."""
    product = _reader(factor)
    other = None if product is None or product.op_type != "Mul" else _other(product, factor)
    if product is None or not norm.fits(other) or _is(other, norm.result):
        return factor
    norm.scale = other
    return product.outputs[0]


def _distributed(norm: Norm, factor: ir.Value) -> bool:
    """x · factor + (bias - mean(x) · factor), as TensorFlow writes it."""
    products = {}
    for use in factor.uses():
        if use.node.op_type == "Mul" and use.node.domain == "" and (other := _other(use.node, factor)) is not None:
            products["x" if _is(other, norm.x) else "mean"] = use.node
    if len(factor.uses()) != 2 or len(products) != 2:
        return False
    mean = _mean(_other(products["mean"], factor))
    less = _reader(products["mean"].outputs[0])
    if mean is None or not _is(mean[0], norm.x) or mean[1] != norm.axis or less is None or less.op_type != "Sub":
        return False
    add = _reader(less.outputs[0])
    if add is None or add.op_type != "Add" or not _is(_other(add, less.outputs[0]), products["x"].outputs[0]):
        return False
    if not norm.fits(less.inputs[0]) or not _is(less.inputs[1], products["mean"].outputs[0]):
        return False
    norm.bias, norm.result = less.inputs[0], add.outputs[0]
    return True


def _take_parameters(norm: Norm) -> None:
    """Multiplication by a scale and addition of a bias, as far as neither was found before."""
    reader = _reader(norm.result)
    if norm.scale is None and norm.bias is None and reader is not None and reader.op_type == "Mul":
        other = _other(reader, norm.result)
        if norm.fits(other):
            norm.scale, norm.result = other, reader.outputs[0]
            reader = _reader(norm.result)
    if norm.centred and norm.bias is None and reader is not None and reader.op_type == "Add":
        other = _other(reader, norm.result)
        if norm.fits(other):
            norm.bias, norm.result = other, reader.outputs[0]


def _take_cast(norm: Norm) -> None:
    cast = sole_reader(norm.result)
    if cast is not None and _is_cast(cast):
        norm.result = cast.outputs[0]


# What both ways need.


def _is_cast(node: ir.Node) -> bool:
    value = node.inputs[0] if node.op_type == "Cast" and node.domain == "" else None
    return value is not None and value.dtype in _NARROW and node.outputs[0].dtype in _NARROW


def _uncast(value: ir.Value) -> ir.Value:
    while (producer := value.producer()) is not None and _is_cast(producer) and producer.inputs[0] is not None:
        value = producer.inputs[0]
    return value


def _is(value: ir.Value | None, other: ir.Value) -> bool:
    """Whether both are the same but for Casts."""
    return value is not None and _uncast(value) is _uncast(other)


def _made_by(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """The node that makes the value, if it is one of these operators of ONNX."""
    node = None if value is None else _uncast(value).producer()
    return node if node is not None and node.domain == "" and node.op_type in op_types else None


def _reader(value: ir.Value) -> ir.Node | None:
    """The node of ONNX that alone reads the value or what it is cast to."""
    node = sole_reader(value)
    while node is not None and _is_cast(node):
        node = sole_reader(node.outputs[0])
    return node if node is not None and node.domain == "" else None


def _other(node: ir.Node, value: ir.Value) -> ir.Value | None:
    """Of a node's two inputs the one that is not the value, or a Cast of it."""
    first, second = node.inputs
    return second if _is(first, value) else first if _is(second, value) else None


def _is_exact(norm: Norm) -> bool:
    """Epsilon is an attribute, which is fp32."""
    return norm.x.dtype != ir.DataType.DOUBLE or float(np.float32(norm.epsilon)) == norm.epsilon


def _nodes_of(norm: Norm) -> list[ir.Node]:
    """Everything between x, scale and bias and the result, producers first."""
    outside = {norm.x, norm.scale, norm.bias}
    found: dict[ir.Node, None] = {}

    def visit(value: ir.Value | None) -> None:
        node = None if value is None or value in outside else value.producer()
        if node is None or node in found:
            return
        for source in node.inputs:
            visit(source)
        found[node] = None

    visit(norm.result)
    return [node for node in found if not _is_shared_cast(node, norm, found)]


def _is_shared_cast(node: ir.Node, norm: Norm, inside: dict[ir.Node, None]) -> bool:
    """Whether the node is a Cast of x that others need too."""
    value = node.outputs[0]
    return _uncast(value) is norm.x and (value.is_graph_output() or not all(use.node in inside for use in value.uses()))


def _lead(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape without leading ones."""
    first = next((place for place, extent in enumerate(shape) if extent != 1), len(shape))
    return shape[first:]
