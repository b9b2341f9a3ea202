"""What passes that merge nodes into one have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from gossamer.model.activation_forms import Activation, Match, scalar_constant
from gossamer.model.edit import erase, replace, static_shape
from gossamer.model.node import FUSED

_FLOATS = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE)


def is_float(value: ir.Value) -> bool:
    """Whether the value has a type that products and convolutions have kernels for."""
    return value.dtype in _FLOATS


def is_exact(match: Match, value: ir.Value) -> bool:
    """Kernels take an activation's parameters in fp32: whether that is the value's precision, or loses nothing."""
    return value.dtype != ir.DataType.DOUBLE or all(float(np.float32(p)) == p for p in match.activation.parameters)


def sole_reader(value: ir.Value) -> ir.Node | None:
    """The node that alone reads the value, once and in the same graph; None where the value is returned too."""
    uses = value.uses()
    if len(uses) != 1 or value.is_graph_output():
        return None
    (use,) = uses
    return use.node if use.node.graph is value.graph else None


def is_closed(nodes: Sequence[ir.Node]) -> bool:
    """Whether the nodes are of one graph, and of what they make others read only what the last one makes."""
    inside, graph = set(nodes), nodes[-1].graph
    for node in nodes:
        if node.graph is not graph:
            return False
        for value in node.outputs if node is not nodes[-1] else ():
            if value.is_graph_output() or not all(use.node in inside for use in value.uses()):
                return False
    return True


def other_input(node: ir.Node, value: ir.Value) -> ir.Value | None:
    """Of a node with two inputs, the one that is not `value`."""
    if len(node.inputs) != 2:
        return None
    first, second = node.inputs
    return second if first is value else first


def scaled_by(node: ir.Node) -> tuple[ir.Value, float] | None:
    """What the node multiplies by a constant that does not broadcast it, and that constant."""
    if node.op_type not in ("Mul", "Div") or node.domain != "":
        return None
    for value, factor in ((node.inputs[0], node.inputs[1]), (node.inputs[1], node.inputs[0])):
        number = scalar_constant(factor)
        if value is None or number is None or value.shape != node.outputs[0].shape:
            continue
        if node.op_type == "Mul":
            return value, number
        return (value, 1.0 / number) if value is node.inputs[0] and number else None
    return None


def residual_after(value: ir.Value) -> tuple[ir.Node, ir.Value] | None:
    """The Add (or Sum of two) that alone reads `value`, and what it adds, of the same static shape and type."""
    add = sole_reader(value)
    if add is None or add.domain != "" or add.op_type not in ("Add", "Sum"):
        return None
    residual = other_input(add, value)
    shape = static_shape(value)
    if residual is None or shape is None or static_shape(residual) != shape or residual.dtype != value.dtype:
        return None
    return add, residual


def activation_attributes(activation: Activation) -> list[ir.Attr]:
    """The attributes of a fused operator that carry its activation; none stand for none."""
    if activation.kind == "none":
        return []
    attributes = [ir.AttrString("activation", activation.kind)]
    if activation.parameters:
        attributes.append(ir.AttrFloat32s("activation_params", activation.parameters))
    return attributes


def hand_over(old: ir.Value, new: ir.Value) -> None:
    """The readers, the name and what is known of `old` to `new`."""
    is_output = old.is_graph_output()
    replace(old, new)
    if not is_output:
        old.name, new.name = None, old.name


def fuse(
    model: ir.Model,
    op_type: str,
    inputs: Sequence[ir.Value | None],
    attributes: Iterable[ir.Attr],
    replaced: Sequence[ir.Node],
    *,
    domain: str = FUSED,
    version: int | None = None,
) -> ir.Node:
    """One operator, by default of our own domain, in the place of `replaced`: nodes in order, of which others read only
    the last. version: of the operator, where it is not the model's."""
    last = replaced[-1]
    old = last.outputs[0]
    kept = list(inputs)
    while kept and kept[-1] is None:
        kept.pop()
    # ir.node converts slowly
    fused = ir.Node(domain, op_type, kept, attributes, num_outputs=1, version=version, name=replaced[0].name)
    new = fused.outputs[0]
    assert last.graph is not None
    last.graph.insert_before(last, fused)
    hand_over(old, new)
    for node in reversed(replaced):
        erase(node)
    model.opset_imports.setdefault(domain, 1)
    return fused
