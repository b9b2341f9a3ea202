"""Nodes of operators that users registered: which they are, and what their shape functions say of their outputs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import MappingProxyType

import onnx_ir as ir

from gossamer import custom_ops
from gossamer.custom_ops import CustomNode, TensorInfo
from gossamer.errors import InvalidArgument
from gossamer.model.edit import constant_of, is_constant, name_of, nodes_in, static_shape, subgraphs_of
from gossamer.model.node import attributes_of


def is_custom(node: ir.Node) -> bool:
    """Whether the node is of a registered operator."""
    return custom_ops.find(node.domain, node.op_type) is not None


def custom_nodes_of(node: ir.Node) -> Iterator[ir.Node]:
    """The node itself and those in its subgraphs, as far as they are of registered operators."""
    nodes = [node, *(inner for graph in subgraphs_of(node) for inner in nodes_in(graph))]
    return filter(is_custom, nodes)


def inputs_are_known(node: ir.Node) -> bool:
    """Whether the node's shape function can be asked: it sees numbers only."""
    inputs = [value for value in node.inputs if value is not None]
    return all(value.dtype not in (None, ir.DataType.STRING) and static_shape(value) is not None for value in inputs)


def infer_outputs(node: ir.Node) -> bool:
    """Write what the node's shape function says to its outputs; whether that was news. `inputs_are_known` has to hold.

    Raises InvalidArgument for an answer that cannot be used; what the function raises passes, with the node named in a
    note.
    """
    registered = custom_ops.find(node.domain, node.op_type)
    if registered is None:  # somebody took it away meanwhile
        return False
    inputs = [None if value is None else _info_of(value) for value in node.inputs]
    attributes = MappingProxyType(attributes_of(node))
    described = CustomNode(name_of(node), node.op_type, node.domain, attributes, len(node.outputs))
    types = registered.output_types(described, inputs)
    changed = False
    for value, info in zip(node.outputs, types, strict=True):
        changed |= bool(value.name) and _set(value, info, described)
    return changed


def _info_of(value: ir.Value) -> TensorInfo:
    shape = static_shape(value)
    assert value.dtype is not None
    assert shape is not None
    read = partial(constant_of, value) if is_constant(value) else None
    return TensorInfo(tuple(shape), value.dtype.numpy(), read)


def _set(value: ir.Value, info: TensorInfo, node: CustomNode) -> bool:
    try:
        dtype = ir.DataType.from_numpy(info.dtype)
    except TypeError as error:
        raise InvalidArgument(f"the shape function of {node} gave the dtype {info.dtype}, which ONNX lacks") from error
    if value.dtype == dtype and static_shape(value) == info.shape:
        return False
    value.dtype, value.shape = dtype, ir.Shape(info.shape)
    return True
