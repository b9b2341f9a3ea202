"""Whether a model is well formed: protobufs before they become a model, and models after every pass.

Both checks answer with one sentence naming the first problem, so that their callers can say whose fault it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache

import onnx
import onnx_ir as ir

from gossamer.model.edit import may_have_subgraphs, subgraphs_of


def describe(node: ir.Node | onnx.NodeProto) -> str:
    """A node as error texts name it: `Conv 'conv1'`, or by its first output if it has no name."""
    outputs = node.output if isinstance(node, onnx.NodeProto) else [value.name for value in node.outputs]
    operator = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    name = node.name or next((output for output in outputs if output), "")
    return f"{operator} '{name}'"


def problem_in(model: ir.Model) -> str | None:
    """The first way in which the model is not well formed, or None. Takes about 1 µs a node, and runs after every pass.

    Checked: every value has a name, unique in the whole model; every value that a node reads or a graph returns is made
    before, by a node, an initializer or an input of that graph or of one around it.
    """
    return _problem_in_graph(model.graph, frozenset(), set())


def _problem_in_graph(graph: ir.Graph, outer: Set[ir.Value | None], names: set[str | None]) -> str | None:
    made = set[ir.Value | None]((None, *outer))  # None is an omitted input
    for value in (*graph.inputs, *graph.initializers.values()):
        if value in made:
            continue  # an initializer that is an input too
        if not value.name or value.name in names:
            return f"the name '{value.name}' of an input or initializer is empty or taken"
        names.add(value.name)
        made.add(value)
    for node in graph:
        problem = _problem_in_node(node, made, names)
        if problem is not None:
            return problem
    unmade = next((value for value in graph.outputs if value not in made), None)
    return None if unmade is None else f"nothing makes the output '{unmade.name}' of graph '{graph.name or ''}'"


def _problem_in_node(node: ir.Node, made: set[ir.Value | None], names: set[str | None]) -> str | None:
    inputs = node.inputs
    if not made.issuperset(inputs):
        early = next(value for value in inputs if value is not None and value not in made)
        return f"{describe(node)} reads '{early.name}', which nothing before it makes"
    for graph in subgraphs_of(node) if may_have_subgraphs(node) else ():
        problem = _problem_in_graph(graph, made, names)
        if problem is not None:
            return f"{problem} (inside {describe(node)})"
    for value in node.outputs:
        name = value.name
        if name is None or name in names:
            return f"the name '{name}' of an output of {describe(node)} is missing or taken"
        if name:  # an output without one is not computed
            names.add(name)
            made.add(value)
    return None


def problem_in_proto(proto: onnx.ModelProto) -> str | None:
    """The first way in which the protobuf's graphs are no graphs, or None.

    Checked: every name is defined once in its scope (branches may use the same names side by side), and every name that
    is read or returned is defined in its graph or in one around it. The order of nodes is not: onnxruntime takes any
    order too.
    """
    for function in proto.functions:
        defined = _definitions(function.input, (), function.node)
        problem = _problem_in_scope(function.node, function.output, defined, frozenset())
        if problem is not None:
            return f"function '{function.domain}::{function.name}': {problem}"
    return _problem_in_graph_proto(proto.graph, frozenset())


def _problem_in_graph_proto(graph: onnx.GraphProto, outer: frozenset[str]) -> str | None:
    if graph.sparse_initializer:
        name = graph.sparse_initializer[0].values.name
        return f"the initializer '{name}' is sparse, which is not supported; store it as a dense tensor"
    initializers = (tensor.name for tensor in graph.initializer)
    defined = _definitions((value.name for value in graph.input), initializers, graph.node)
    return _problem_in_scope(graph.node, (value.name for value in graph.output), defined, outer)


def _definitions(inputs: Iterable[str], initializers: Iterable[str], nodes: Iterable[onnx.NodeProto]) -> list[str]:
    """Every name a scope defines, twice if it is defined twice; an input with an initializer as default counts once."""
    given = list(inputs)
    known = set(given)
    given += [name for name in initializers if name not in known]
    return given + [name for node in nodes for name in node.output if name]


def _problem_in_scope(
    nodes: Iterable[onnx.NodeProto], outputs: Iterable[str], defined: list[str], outer: frozenset[str]
) -> str | None:
    known = frozenset(defined)
    if len(known) < len(defined):
        twice = next(name for name in defined if defined.count(name) > 1)
        return f"the name '{twice}' is defined twice; every value needs a name of its own"
    scope = known | outer
    for node in nodes:
        missing = next((name for name in node.input if name and name not in scope), None)
        if missing is not None:
            return f"{describe(node)} reads '{missing}', which nothing makes; the file is damaged or incomplete"
        if any(attribute.HasField("sparse_tensor") for attribute in node.attribute):
            return f"{describe(node)} holds a sparse tensor, which is not supported; store it as a dense one"
        for graph in _graphs_of(node):
            problem = _problem_in_graph_proto(graph, scope)
            if problem is not None:
                return f"{problem} (inside {describe(node)})"
    unmade = next((name for name in outputs if name not in scope), None)
    return None if unmade is None else f"nothing in the model makes the output '{unmade}'"


def _graphs_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


@dataclass(frozen=True, slots=True)
class _Form:
    """What a node of an operator may have. attributes: their types' names, such as INTS. needed: indices of inputs."""

    inputs: tuple[int, int]
    outputs: tuple[int, int]
    attributes: Mapping[str, str]
    required: frozenset[str]
    needed: tuple[int, ...]


@cache
def _form(op_type: str, opset: int) -> _Form | None:
    if not onnx.defs.has(op_type, opset, ""):
        return None
    schema = onnx.defs.get_schema(op_type, opset, "")
    single = onnx.defs.OpSchema.FormalParameterOption.Single
    return _Form(
        (schema.min_input, schema.max_input),
        (schema.min_output, schema.max_output),
        {name: str(attribute.type).rpartition(".")[2] for name, attribute in schema.attributes.items()},
        frozenset(name for name, attribute in schema.attributes.items() if attribute.required),
        tuple(index for index, formal in enumerate(schema.inputs) if formal.option == single),
    )


def problem_in_form(node: ir.Node, opset: int) -> str | None:
    """How a node of ONNX's own domain is not of its operator's form, or None: how many inputs and outputs it has, and
    which attributes, of which types. Operators that ONNX does not have at that opset are of any form.
    """
    form = _form(node.op_type, opset)
    if form is None:
        return None
    return (
        _miscounted("input", node.inputs, form.inputs)
        or _miscounted("output", node.outputs, form.outputs)
        or _omitted(node, form)
        or _wrong_attribute(node, form)
    )


def _miscounted(what: str, values: Sequence[ir.Value | None], limits: tuple[int, int]) -> str | None:
    least, most = limits
    count = len(values)
    while count > most and ((last := values[count - 1]) is None or not last.name):
        count -= 1  # any number may be omitted at the end
    if least <= count <= most:
        return None
    wanted = str(least) if least == most else f"{least} or more" if most == _ANY_NUMBER else f"{least} to {most}"
    return f"has {count} {what}(s), and not {wanted}"


_ANY_NUMBER = 2**31 - 1


def _omitted(node: ir.Node, form: _Form) -> str | None:
    for index in form.needed:
        if index < len(node.inputs) and node.inputs[index] is None:
            return f"has no input {index}, which is not optional"
    return None


def _wrong_attribute(node: ir.Node, form: _Form) -> str | None:
    for name, attribute in node.attributes.items():
        wanted = form.attributes.get(name)
        if wanted is None:
            return f"has an attribute '{name}', which its operator does not have at this opset"
        if attribute.type.name != wanted:
            return f"has the attribute '{name}' of the type {attribute.type.name}, and not {wanted}"
    missing = min(form.required - node.attributes.keys(), default=None)
    return None if missing is None else f"has no attribute '{missing}', which is not optional"
