"""Neighbouring elementwise nodes become one kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import onnx_ir as ir

from gossamer.model.edit import constant_of, dtype_name, erase, nodes_in, static_shape, subgraphs_of
from gossamer.model.elementwise import RULES, Expansion, Operator, expand, number_of
from gossamer.model.fusion import hand_over
from gossamer.model.node import FUSED
from gossamer.model.steps import ExpressionBuilder, Number
from gossamer.program import Refusal

MOST_INPUTS = 8
MOST_OUTPUTS = 4
MOST_STEPS = 24
"""Registers bound what one program can hold: with eight elements a thread, 24 live values are 192 of 255."""


def elementwise_chains(model: ir.Model) -> bool:
    """Join connected elementwise nodes whose results have one static shape into one gossamer::Elementwise.

    ```
    %s = Add(%x, %bias)
    %g = Sigmoid(%s)             %m, %y = gossamer::Elementwise[results=[4,5],
    %m = Mul(%s, %g)        →        steps=["add 0 1","sigmoid 2","mul 2 3","relu 4"]](%x, %bias)
    %y = Relu(%m)                %c = Conv(%m, …)
    %c = Conv(%m, …)
    ```

    Chains and diamonds of every operator of `model.elementwise`, casts between types included. Operands may be
    broadcast; constants of one element become part of the program. What others read besides stays an output.

    Kept: nodes of subgraphs (onnxruntime may run those, which knows no operator of ours); a node without a static
    shape; joins over MOST_INPUTS, MOST_OUTPUTS or MOST_STEPS, and those that would make a node depend on itself by way
    of a node that stays.
    """
    groups = _Partition(model.graph).groups
    for unit in groups:
        _emit(unit)
    if groups:
        model.graph.sort()  # a reader of an inner value may stand before the last member
        model.opset_imports.setdefault(FUSED, 1)
    return bool(groups)


@dataclass(frozen=True, slots=True, eq=False)
class _Member:
    """An elementwise node. number: its place in the graph."""

    number: int
    node: ir.Node
    expansion: Expansion

    @property
    def operands(self) -> list[ir.Value]:
        """The inputs that its program reads, in the program's order; others once an earlier unit was put in place."""
        inputs = self.node.inputs
        return [value for index in self.expansion.sources if (value := inputs[index]) is not None]

    @property
    def result(self) -> ir.Value:
        return self.node.outputs[0]


@dataclass(slots=True, eq=False)
class _Unit:
    """A node that stays, without members, or elementwise nodes that are to be joined.

    bits: one for each node in it. before: the bits of all nodes that it depends on. shape: of its results. made: the
    results of its members. sources: what they read from elsewhere. steps: how many they have together.
    """

    bits: int
    before: int = 0
    shape: tuple[int, ...] | None = None
    members: list[_Member] = field(default_factory=list)
    made: frozenset[ir.Value] = frozenset()
    sources: tuple[ir.Value, ...] = ()
    steps: int = 0

    @property
    def results(self) -> list[ir.Value]:
        """What others read of it."""
        own = {member.node for member in self.members}
        values = (member.result for member in self.members)
        return [v for v in values if v.is_graph_output() or any(use.node not in own for use in v.uses())]

    @property
    def fits(self) -> bool:
        """Whether one program may be made of it."""
        if self.steps > MOST_STEPS or len(self.sources) > MOST_INPUTS:
            return False
        return len(self.members) <= MOST_OUTPUTS or len(self.results) <= MOST_OUTPUTS


class _Partition:
    """The nodes of a graph in units, joined as far as they go."""

    def __init__(self, graph: ir.Graph) -> None:
        self._units: dict[_Unit, None] = {}
        self._scalars: dict[ir.Value, Number | None] = {}
        self._unit_of: dict[ir.Node | None, _Unit] = {}
        for number, node in enumerate(graph):
            self._add(number, node)

    @property
    def groups(self) -> list[_Unit]:
        """The units of several nodes."""
        return [unit for unit in self._units if len(unit.members) > 1]

    def _add(self, number: int, node: ir.Node) -> None:
        unit = _Unit(1 << number)
        for value in _read_by(node):
            producer = self._unit_of.get(value.producer())
            if producer is not None:
                unit.before |= producer.bits | producer.before
        self._units[unit] = None
        self._unit_of[node] = unit
        expansion = self._expansion(node)
        if expansion is not None:
            member = _Member(number, node, expansion)
            unit.shape, unit.members = static_shape(node.outputs[0]), [member]
            unit.made, unit.sources = frozenset(node.outputs), tuple(dict.fromkeys(member.operands))
            unit.steps = len(expansion.expression.steps)
            self._join(unit)

    def _expansion(self, node: ir.Node) -> Expansion | None:
        """The program of a node that may be joined: one output, and nothing about its values that depends on data."""
        if (node.domain, node.op_type) not in RULES or [bool(value.name) for value in node.outputs] != [True]:
            return None
        values = [value for value in (*node.inputs, node.outputs[0]) if value is not None]
        if any(value.dtype is None or static_shape(value) is None for value in values):
            return None
        assert node.graph is not None
        operator = Operator(
            node.op_type,
            node.domain,
            node.version or node.graph.opset_imports.get(node.domain, 1),
            tuple(map(_dtype, node.inputs)),
            tuple(map(_dtype, node.outputs)),
            lambda name, default: node.attributes[name].value if name in node.attributes else default,
            lambda index: self._scalar(node.inputs[index]) if index < len(node.inputs) else None,
        )
        expansion = expand(operator)
        return None if isinstance(expansion, Refusal) else expansion

    def _scalar(self, value: ir.Value | None) -> Number | None:
        """The only element of a constant."""
        if value is None or value.const_value is None or value.const_value.size != 1:
            return None
        if value not in self._scalars:
            array = constant_of(value)
            self._scalars[value] = None if array is None else number_of(array)
        return self._scalars[value]

    def _join(self, unit: _Unit) -> None:
        """Joins a new node with the units that its operands come from, where that is allowed."""
        producers = dict.fromkeys(self._unit_of.get(value.producer()) for value in unit.sources)
        for producer in producers:
            if producer is None or not producer.members or producer.shape != unit.shape:
                continue
            joined = _union(producer, unit)
            if joined.fits and self._is_convex(joined):
                self._replace(producer, unit, joined)
                unit = joined

    def _is_convex(self, unit: _Unit) -> bool:
        """Whether nothing that the unit reads depends on the unit."""
        producers = (self._unit_of.get(value.producer()) for value in unit.sources)
        return not any(producer is not None and producer.before & unit.bits for producer in producers)

    def _replace(self, first: _Unit, second: _Unit, joined: _Unit) -> None:
        del self._units[first], self._units[second]
        for member in joined.members:
            self._unit_of[member.node] = joined
        for other in self._units:  # what depends on a part depends, from now on, on all that the whole depends on
            if other.before & joined.bits:
                other.before |= joined.bits | joined.before
        self._units[joined] = None


def _union(a: _Unit, b: _Unit) -> _Unit:
    bits, made = a.bits | b.bits, a.made | b.made
    members = sorted((*a.members, *b.members), key=lambda member: member.number)
    sources = tuple(dict.fromkeys(value for value in (*a.sources, *b.sources) if value not in made))
    return _Unit(bits, (a.before | b.before) & ~bits, a.shape, members, made, sources, a.steps + b.steps)


def _read_by(node: ir.Node) -> Iterator[ir.Value]:
    """The values that a node or its subgraphs read."""
    for reader in (node, *(inner for graph in subgraphs_of(node) for inner in nodes_in(graph))):
        yield from (value for value in reader.inputs if value is not None)


def _dtype(value: ir.Value | None) -> str | None:
    return None if value is None or value.dtype is None else dtype_name(value.dtype)


def _emit(unit: _Unit) -> None:
    """Puts one node in the place of a unit's last member."""
    builder = ExpressionBuilder()
    references: dict[ir.Value, int] = {}
    for member in unit.members:
        inputs = [references[value] if value in references else builder.input(value) for value in member.operands]
        (references[member.result],) = builder.append(member.expansion.expression, inputs)
    results = unit.results
    expression = builder.finish(references[value] for value in results)
    attributes = (
        ir.AttrStrings("steps", [str(step) for step in expression.steps]),
        ir.AttrInt64s("results", expression.results),
    )
    first, last = unit.members[0].node, unit.members[-1].node
    sources = [value for value in builder.keys if isinstance(value, ir.Value)]
    joined = ir.Node(FUSED, "Elementwise", sources, attributes, num_outputs=len(results), name=first.name)
    assert last.graph is not None
    last.graph.insert_before(last, joined)
    for old, new in zip(results, joined.outputs, strict=True):
        hand_over(old, new)
    for member in reversed(unit.members):
        erase(member.node)
