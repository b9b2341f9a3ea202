"""The CPU provider: nodes run by onnxruntime. Here they are only packed into models; `run/host` runs them."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import cache

import onnx_ir as ir

from gossamer.model.custom_nodes import custom_nodes_of
from gossamer.model.edit import dtype_name, subgraphs_of
from gossamer.model.node import FUSED
from gossamer.model.steps import NARROW
from gossamer.program import Call, HostCall, Origin, Refusal

DOMAINS = frozenset(
    ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training", "com.microsoft", "com.microsoft.experimental")
)
"""Whose operators onnxruntime has."""


def accepts(node: ir.Node) -> tuple[Call, ...] | Refusal:
    """No calls yet, since nodes are packed in groups by `pack`, or why onnxruntime will not run the node."""
    if node.domain.startswith(FUSED):  # the channels-last domain, too
        return Refusal(f"{node.domain}.{node.op_type} is Gossamer's own operator")
    custom = refuse_custom(node)
    if custom is not None:
        return custom
    if node.domain not in DOMAINS:
        return Refusal(f"onnxruntime has no operators of domain {node.domain}")
    if not _has_onnxruntime():
        return Refusal("onnxruntime is not installed (pip install 'gossamer[cpu]')")
    return refuse_narrow(node) or ()


def refuse_narrow(node: ir.Node) -> Refusal | None:
    """Why what a node reads or makes cannot be handed over, if it cannot: onnxruntime's bindings have no arrays of
    these types. Constants become part of the model that it gets."""
    for value in (*values_read(node), *node.outputs):
        if value.const_value is None and value.dtype is not None and dtype_name(value.dtype) in NARROW:
            return Refusal(f"onnxruntime takes and gives no arrays of {dtype_name(value.dtype)} ('{value.name}')")
    return None


def refuse_custom(node: ir.Node) -> Refusal | None:
    """Why onnxruntime cannot run a node that is of a custom operator, or has one inside; None for others."""
    custom = next(custom_nodes_of(node), None)
    if custom is None:
        return None
    name = f"{custom.domain}.{custom.op_type}"
    if custom is node:
        return Refusal(f"the custom operator {name} runs on the CUDA provider only")
    return Refusal(f"the custom operator {name} runs on the CUDA provider only, and is inside this {node.op_type}")


@cache
def _has_onnxruntime() -> bool:
    return importlib.util.find_spec("onnxruntime") is not None


def pack(nodes: Sequence[ir.Node], model: ir.Model, kept: set[str]) -> HostCall:
    """One HostCall for neighbouring nodes. kept: names of values that others read; only these become outputs.

    Constants that the nodes read are embedded; every other value they read, in subgraphs too, becomes an input.
    """
    made = {value.name for node in nodes for value in node.outputs}
    outer = {value.name: value for node in nodes for value in values_read(node) if value.name not in made}
    constants = {name: value for name, value in outer.items() if value.const_value is not None}
    inputs = [value for name, value in outer.items() if name not in constants]
    outputs = [value for node in nodes for value in node.outputs if value.name in kept]
    graph = _subgraph(nodes, inputs, outputs, list(constants.values()), model)
    packed = ir.Model(graph, ir_version=max(8, model.ir_version))
    first = nodes[0]
    origin = Origin(first.name or "", "+".join(dict.fromkeys(node.op_type for node in nodes)), first.domain)
    return HostCall(
        ir.serde.serialize_model(packed).SerializeToString(),
        tuple(value.name or "" for value in inputs),
        tuple(value.name or "" for value in outputs),
        origin,
    )


def values_read(node: ir.Node) -> list[ir.Value]:
    """What a node reads from outside itself, its subgraphs included."""
    read = [value for value in node.inputs if value is not None]
    for graph in subgraphs_of(node):
        inner = {value.name for value in graph.inputs} | set(graph.initializers)
        for child in graph:
            read += [value for value in values_read(child) if value.name not in inner]
            inner |= {value.name for value in child.outputs}
        read += [value for value in graph.outputs if value.name not in inner]
    return read


def _subgraph(
    nodes: Sequence[ir.Node],
    inputs: Sequence[ir.Value],
    outputs: Sequence[ir.Value],
    constants: Sequence[ir.Value],
    model: ir.Model,
) -> ir.Graph:
    """Copies of `nodes` in a graph of their own; values keep their names and types, but only constants their shapes:
    onnxruntime refuses an `If` whose untaken branch does not fit the shapes that were inferred for this signature."""
    fresh: dict[str, ir.Value] = {value.name or "": ir.Value(name=value.name, type=value.type) for value in inputs}
    fresh.update(
        (value.name or "", ir.Value(name=value.name, shape=value.shape, type=value.type, const_value=value.const_value))
        for value in constants
    )
    copies = []
    for node in nodes:
        cloned_outputs = [ir.Value(name=value.name, type=value.type) for value in node.outputs]
        fresh.update((value.name or "", value) for value in cloned_outputs)
        operands = [None if value is None else fresh[value.name or ""] for value in node.inputs]
        attributes = list(node.attributes.values())
        copies.append(
            ir.Node(
                node.domain,
                node.op_type,
                operands,
                attributes,
                outputs=cloned_outputs,
                name=node.name,
                version=node.version,
            )
        )
    return ir.Graph(
        [fresh[value.name or ""] for value in inputs],
        [fresh[value.name or ""] for value in outputs],
        nodes=copies,
        initializers=[fresh[value.name or ""] for value in constants],
        opset_imports=dict(model.opset_imports),
        name="host",
    )
