"""A placement becomes a Program: calls in order, CPU nodes in groups, memory planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import onnx_ir as ir

from gossamer.model.node import Node, Scope
from gossamer.place import CPU, PlacedNode, Placement
from gossamer.program import Buffer, Call, Launch, Program, Target, plan_memory
from gossamer.providers import cpu


def build(model: ir.Model, placement: Placement, target: Target, scope: Scope) -> Program:
    """The Program of a placed model. Launches over nothing (a grid with a zero) are dropped."""
    calls = tuple(_calls(model, placement, scope))
    inputs = tuple(scope.buffer_or_dynamic(value).name for value in model.graph.inputs)
    outputs = tuple(scope.buffer_or_dynamic(value).name for value in model.graph.outputs)
    used = dict.fromkeys((*inputs, *(name for call in calls for name in (*call.reads, *call.writes)), *outputs))
    buffers = {name: scope.buffers[name] for name in used}
    weights = {name: scope.weights[name] for name in used if name in scope.weights}
    return _program(model.graph.name or "model", target, (inputs, outputs), buffers, weights, calls)


def trial(node: Node, calls: tuple[Call, ...], target: Target, repeats: int = 1) -> Program:
    """A Program of one node's calls, one after another `repeats` times, for measuring them."""
    calls = _needed(calls)
    buffers, weights = node.memory_of(calls)
    written = {name for call in calls for name in call.writes}
    inputs = tuple(name for name in buffers if name not in written and name not in weights)
    outputs = tuple(y.name for y in node.outputs if y is not None and y.name in written)
    return _program(f"{node.op_type} {node.name}", target, (inputs, outputs), buffers, weights, calls * repeats)


def _program(
    name: str,
    target: Target,
    ends: tuple[tuple[str, ...], tuple[str, ...]],
    buffers: Mapping[str, Buffer],
    weights: Mapping[str, str],
    calls: tuple[Call, ...],
) -> Program:
    """With its memory planned. ends: names of inputs and of outputs."""
    inputs, outputs = ends
    plan = plan_memory(buffers, calls, inputs, outputs, weights)
    return Program(
        name, target, inputs, outputs, buffers, plan.locations, calls, plan.arena_bytes, plan.lower_bound_bytes
    )


def _calls(model: ir.Model, placement: Placement, scope: Scope) -> Iterator[Call]:
    group: list[PlacedNode] = []
    readers = _readers(model)
    for placed in placement:
        if placed.provider == CPU:
            group.append(placed)
            continue
        if group:
            yield _host_call(model, group, readers, scope)
            group = []
        yield from _needed(placed.calls)
    if group:
        yield _host_call(model, group, readers, scope)


def _needed(calls: Iterable[Call]) -> tuple[Call, ...]:
    return tuple(call for call in calls if not (isinstance(call, Launch) and 0 in call.grid))


def _host_call(model: ir.Model, group: list[PlacedNode], readers: dict[str, set[ir.Node | None]], scope: Scope) -> Call:
    """One call for neighbouring CPU nodes. What others read of their outputs gets buffers; the rest stays inside."""
    nodes = [placed.node for placed in group]
    inside = set(nodes)
    kept = set()
    for value in (value for node in nodes for value in node.outputs if value.name):
        if readers.get(value.name or "", set()) - inside:
            kept.add(value.name or "")
            scope.buffer_or_dynamic(value)
    call = cpu.pack(nodes, model, kept)
    for read in (value for node in nodes for value in cpu.values_read(node)):
        scope.buffer_or_dynamic(read)
    return call


def _readers(model: ir.Model) -> dict[str, set[ir.Node | None]]:
    """Value name → top-level nodes that read it; None stands for the caller, who reads outputs.

    A reader in a subgraph counts as the node that holds the subgraph.
    """
    readers: dict[str, set[ir.Node | None]] = {value.name or "": {None} for value in model.graph.outputs}
    for node in model.graph:
        for value in cpu.values_read(node):
            readers.setdefault(value.name or "", set()).add(node)
    return readers
