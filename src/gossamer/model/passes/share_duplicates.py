"""Nodes that compute the same from the same become one node."""

from __future__ import annotations

import logging
from collections.abc import Hashable

import onnx_ir as ir
from onnx_ir.passes.common import DeduplicateInitializersPass

from gossamer.model.edit import can_replace, erase, replace

# It warns of each initializer that is an output of the model: nothing is wrong with those.
logging.getLogger(DeduplicateInitializersPass.__module__).setLevel(logging.ERROR)

_SMALL = 1024
"""Elements up to which initializers are compared; larger equal ones are rare, and comparing reads them."""
_RANDOM = frozenset(
    {"Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)


def share_duplicates(model: ir.Model) -> bool:
    """Keep one of several equal initializers and one of several equal nodes.

    ```
    %a = Sigmoid(%x)
    %b = Sigmoid(%x)      →      %a = Sigmoid(%x)
    %y = Add(%a, %b)             %y = Add(%a, %a)
    ```

    Nodes are equal if operator, inputs, attributes and the outputs they name are. Nodes of the main graph, initializers
    of every graph for itself. Kept apart: random operators, nodes with subgraphs, operators of other domains (which may
    have state), initializers of over 1024 elements, and two outputs of the model.
    """
    changed = DeduplicateInitializersPass(size_limit=_SMALL)(model).modified
    return _share_nodes(model.graph) or changed


def _share_nodes(graph: ir.Graph) -> bool:
    first: dict[Hashable, ir.Node] = {}
    changed = False
    for node in graph:
        key = _key(node)
        if key is None:
            continue
        kept = first.setdefault(key, node)
        pairs = list(zip(node.outputs, kept.outputs, strict=True))
        if kept is node or not all(can_replace(old, new) for old, new in pairs):
            continue
        for old, new in pairs:
            replace(old, new)
        erase(node)
        changed = True
    return changed


def _key(node: ir.Node) -> Hashable | None:
    if node.domain or node.op_type in _RANDOM:
        return None
    attributes = []
    for name, attribute in sorted(node.attributes.items()):
        if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
            return None
        attributes.append((name, attribute.type, _frozen(attribute)))
    inputs = tuple(id(value) for value in node.inputs)
    return node.op_type, inputs, tuple(attributes), tuple(bool(value.name) for value in node.outputs)


def _frozen(attribute: ir.Attr) -> Hashable:
    """The attribute's value as something equal exactly where the value is."""
    if attribute.type == ir.AttributeType.TENSOR:
        tensor = attribute.as_tensor()
        if tensor.size > _SMALL or tensor.dtype == ir.DataType.STRING:
            return id(tensor)
        return tensor.dtype, tuple(tensor.shape), tensor.tobytes()
    if isinstance(attribute.value, (int, float, str, bytes)):
        return attribute.value
    return tuple(attribute.value) if isinstance(attribute.value, (list, tuple)) else id(attribute.value)
