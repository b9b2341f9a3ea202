"""Nodes, optional outputs and initializers that nobody reads go away."""

from __future__ import annotations

from functools import lru_cache

import onnx
import onnx_ir as ir

from gossamer.model.custom_nodes import is_custom
from gossamer.model.edit import erase, subgraphs_of


def remove_unused(model: ir.Model) -> bool:
    """Remove what contributes to no output of the model.

    ```
    %a = Relu(%x)                                        %a = Relu(%x)
    %b = Neg(%x)                                  →
    %p, %indices = MaxPool[kernel_shape=[2,2]](%a)       %p = MaxPool[kernel_shape=[2,2]](%a)
    return %p                                            return %p
    ```

    In subgraphs too. Optional outputs (ONNX's own operators only) that nobody reads are dropped, so that lowerings see
    what is wanted; BatchNormalization's are kept, because before opset 14 their number chooses training. Omitted
    trailing inputs are dropped, except those of custom operators. Inputs of the model are never removed.
    """
    changed = _sweep(model.graph, model.graph.opset_imports.get("", 1))
    for graph in model.graphs():
        for name, value in tuple(graph.initializers.items()):
            if not value.uses() and not value.is_graph_output():
                del graph.initializers[name]
                changed = True
    return changed


def _sweep(graph: ir.Graph, opset: int) -> bool:
    changed = False
    for node in reversed(graph):
        if not any(_is_read(value) for value in node.outputs):
            erase(node)
            changed = True
            continue
        changed |= not is_custom(node) and _trim(node, opset)
        for subgraph in subgraphs_of(node):
            changed |= _sweep(subgraph, opset)
    return changed


def _is_read(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()


def _trim(node: ir.Node, opset: int) -> bool:
    """Drop omitted trailing inputs, and optional outputs that nobody reads."""
    changed = False
    inputs = len(node.inputs)
    while inputs and node.inputs[inputs - 1] is None:
        inputs -= 1
    if inputs < len(node.inputs):
        node.resize_inputs(inputs)
        changed = True
    if len(node.outputs) > 1 and node.domain == "" and node.op_type != "BatchNormalization":
        changed |= _trim_outputs(node, _optional_outputs(node.op_type, opset))
    return changed


def _trim_outputs(node: ir.Node, optional: frozenset[int]) -> bool:
    changed = False
    for index, value in enumerate(node.outputs):
        if index in optional and value.name and not _is_read(value):
            value.name = ""
            changed = True
    outputs = len(node.outputs)
    while not node.outputs[outputs - 1].name:
        outputs -= 1
    if outputs < len(node.outputs):
        node.resize_outputs(outputs)
        changed = True
    return changed


@lru_cache(maxsize=256)
def _optional_outputs(op_type: str, opset: int) -> frozenset[int]:
    if not onnx.defs.has(op_type, opset, ""):
        return frozenset()  # onnxruntime's
    schema = onnx.defs.get_schema(op_type, opset, "")
    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    return frozenset(index for index, output in enumerate(schema.outputs) if output.option == optional)
