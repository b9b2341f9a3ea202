"""The few graph edits that every pass is made of.

Two invariants hold from `load` on, and these functions keep them: every value's name is unique in the whole model,
subgraphs included, and the main graph's inputs and outputs keep the names and the order that callers know.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import onnx_ir as ir

_CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})
_WITHOUT_GRAPHS = frozenset({"", "gossamer", "gossamer.nhwc"})
"""Domains of which no other operator has subgraphs: ONNX's and ours."""


class Names:
    """The value names of a model, to make new ones."""

    def __init__(self, model: ir.Model) -> None:
        self._used = {value.name for graph in model.graphs() for value in defined_in(graph) if value.name}

    def fresh(self, wish: str) -> str:
        """`wish`, or `wish_1`, `wish_2`, … if that is taken."""
        name, number = wish, 0
        while name in self._used:
            number += 1
            name = f"{wish}_{number}"
        self._used.add(name)
        return name


def defined_in(graph: ir.Graph) -> Iterator[ir.Value]:
    """The values that a graph itself defines: inputs, initializers that are no inputs, named node outputs."""
    yield from graph.inputs
    yield from (value for value in graph.initializers.values() if not value.is_graph_input())
    for node in graph:
        yield from (value for value in node.outputs if value.name)


def may_have_subgraphs(node: ir.Node) -> bool:
    """False for nearly all nodes, without looking at attributes; of ONNX's own operators four have graphs."""
    return node.op_type in _CONTROL_FLOW or node.domain not in _WITHOUT_GRAPHS


def subgraphs_of(node: ir.Node) -> list[ir.Graph]:
    """The graphs among a node's attributes."""
    if not may_have_subgraphs(node):
        return []
    graphs: list[ir.Graph] = []
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            graphs.append(attribute.as_graph())
        elif attribute.type == ir.AttributeType.GRAPHS:
            graphs.extend(attribute.as_graphs())
    return graphs


def nodes_in(graph: ir.Graph) -> Iterator[ir.Node]:
    """The nodes of a graph in order, each followed by those of its subgraphs."""
    for node in graph:
        yield node
        for subgraph in subgraphs_of(node):
            yield from nodes_in(subgraph)


def name_of(node: ir.Node) -> str:
    """A node's name, or that of its first output where it has none."""
    return node.name or next((value.name for value in node.outputs if value.name), "")


def is_constant(value: ir.Value | None) -> bool:
    """Whether the value is an initializer, whose content no caller can change."""
    return value is not None and value.is_initializer() and value.const_value is not None and not value.is_graph_input()


def constant_of(value: ir.Value | None) -> np.ndarray | None:
    """The content of an initializer, None for any other value and for no value."""
    if value is None or value.const_value is None or not is_constant(value):
        return None
    return value.const_value.numpy()


def static_shape(value: ir.Value | None) -> tuple[int, ...] | None:
    """The shape where all its dimensions are known, else None."""
    if value is None or value.shape is None:
        return None
    dims = value.shape.dims
    for dim in dims:
        if not isinstance(dim, int):
            return None
    return dims  # type: ignore[return-value]


@cache
def dtype_name(dtype: ir.DataType) -> str:
    """The element type by NumPy's name, or ml_dtypes' where NumPy has none."""
    return dtype.numpy().name


def new_constant(graph: ir.Graph, name: str, tensor: ir.TensorProtocol) -> ir.Value:
    """A new initializer of `graph`; the name must be free in the model."""
    value = ir.Value(
        name=name, shape=ir.Shape(tensor.shape.numpy()), type=ir.TensorType(tensor.dtype), const_value=tensor
    )
    tensor.name = name
    graph.register_initializer(value)
    return value


def replace(old: ir.Value, new: ir.Value) -> bool:
    """Let all readers of `old` read `new`; the node that makes `old` is then for the caller to erase.

    Where `old` is an output of its graph, `new` takes its place and name. That needs a `new` that a node of the same
    graph makes and that is no output yet; otherwise nothing is changed and the answer is False.
    """
    if not can_replace(old, new):
        return False
    if old.is_graph_output():
        old.name, new.name = None, old.name
    _keep_knowledge(old, new)
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    return True


def _keep_knowledge(old: ir.Value, new: ir.Value) -> None:
    """What is known of `old` and not of `new`, which is equal to it."""
    if new.type is None:
        new.type = old.type
    if new.shape is None and old.shape is not None:
        new.shape = old.shape.copy()


def can_replace(old: ir.Value, new: ir.Value) -> bool:
    """Whether `replace` would."""
    if not old.is_graph_output():
        return True
    producer = new.producer()
    return producer is not None and producer.graph is old.graph and not new.is_graph_output()


def replace_or_copy(old: ir.Value, new: ir.Value, node: ir.Node) -> None:
    """As `replace`, but where that answers False, an Identity before `node` (which makes `old`) copies `new`."""
    if replace(old, new):
        return
    copy = ir.node("Identity", [new])
    output = copy.outputs[0]
    output.type, output.shape = new.type, new.shape.copy() if new.shape is not None else None
    _keep_knowledge(old, output)
    old.name, output.name = None, old.name
    copy.name = output.name
    assert node.graph is not None
    node.graph.insert_before(node, copy)
    old.replace_all_uses_with(output, replace_graph_outputs=True)


def erase(node: ir.Node) -> None:
    """Take a node whose outputs nobody reads out of its graph, and its subgraphs' readings of outer values with it."""
    for graph in subgraphs_of(node):
        for inner in nodes_in(graph):
            for index in range(len(inner.inputs)):
                inner.replace_input_with(index, None)
    assert node.graph is not None
    node.graph.remove(node, safe=True)
