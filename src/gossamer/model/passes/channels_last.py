"""Activations are stored channels-last between the first and the last convolution."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, prod

import numpy as np
import onnx_ir as ir

from gossamer.model.edit import Names, constant_of, erase, is_constant, new_constant, replace_or_copy, static_shape
from gossamer.model.layout import CONVOLUTIONS, Adaptation, Order, adaptation_of
from gossamer.model.node import CHANNELS_LAST

MOST_CHANNELS_READ_FIRST = 4
"""Up to so many channels a convolution reads N, C, spatial… as it is: images have three, and a copy costs a launch."""


def channels_last(model: ir.Model) -> bool:
    """Store activations N, spatial…, C wherever convolutions and what lies between them want them so.

    ```
    %c = gossamer::FusedConv[…](%x, %w, %b) : float32[1,64,56,56]
    %m = MaxPool[…](%c) : float32[1,64,28,28]
    %d = Concat[axis=1](%m, %m) : float32[1,128,28,28]
    %e = Conv[…](%d, %v) : float32[1,32,28,28]
    return %e

      →

    %c = gossamer.nhwc::FusedConv[…, x_channels_first=1](%x, %w, %b) : float32[1,56,56,64]
    %m = gossamer.nhwc::MaxPool[…](%c) : float32[1,28,28,64]
    %d = Concat[axis=3](%m, %m) : float32[1,28,28,128]
    %e_last = gossamer.nhwc::Conv[…](%d, %v) : float32[1,28,28,32]
    %e = Transpose[perm=[0,3,1,2]](%e_last) : float32[1,32,28,28]
    return %e
    ```

    A region grows from the convolutions (Conv, ConvTranspose and their fused forms; weights stay as ONNX has them)
    through all nodes that `model.layout` can adapt: operators with kernels for both layouts move to the domain
    `gossamer.nhwc`, axes are renumbered, constants that broadcast are transposed once. Where the region ends a value is
    transposed, once for all who read it so. Then the region shrinks: a node leaves it if no more bytes are transposed
    without it, and a part with fewer convolutions than transpositions goes altogether.

    No Transpose is made next to one that is there already (the two become one, or none), nor where only axes of extent
    1 move (a Reshape, which costs nothing), nor for an input of few channels that convolutions read.

    Kept: ranks other than 3 to 5, shapes that are not static, integers; the model's inputs and outputs; subgraphs.
    """
    region = _grow(model)
    _shrink(region)
    if not region.nodes:
        return False
    _Rewriter(model, region).rewrite()
    return True


@dataclass(slots=True)
class _Region:
    """The nodes that work on activations stored channels-last, with what becomes of them."""

    nodes: dict[ir.Node, Adaptation] = field(default_factory=dict)

    def stored(self, value: ir.Value) -> Order:
        """The order of the value's axes in memory."""
        producer = value.producer()
        adaptation = None if producer is None else self.nodes.get(producer)
        if adaptation is None or value.index() not in adaptation.outputs:
            return tuple(range(len(static_shape(value) or ())))
        return adaptation.order(value, read=False)

    def wanted(self, reader: ir.Node, index: int) -> Order:
        """The order in which a node wants the axes of its input."""
        value, adaptation = reader.inputs[index], self.nodes.get(reader)
        if value is None or adaptation is None or index not in adaptation.inputs:
            return tuple(range(len(static_shape(value) or ())))
        return adaptation.order(value, read=True)

    def absorbs(self, node: ir.Node | None) -> bool:
        """Whether the node is a Transpose that can take its input in any order."""
        return node is not None and _is_transpose(node) and node not in self.nodes

    def bytes_transposed(self, value: ir.Value) -> int:
        """What the value's readers cost: its size for each order that they want and that has to be made."""
        shape, stored = static_shape(value), self.stored(value)
        if shape is None or self.absorbs(value.producer()):
            return 0
        wanted = {self.wanted(*use) for use in value.uses() if not self.absorbs(use.node) and not self._reads_any(*use)}
        if value.is_graph_output():
            wanted.add(tuple(range(len(shape))))
        return _nbytes(value) * sum(not _keeps_order(shape, stored, order) for order in wanted)

    def _reads_any(self, node: ir.Node, index: int) -> bool:
        value = node.inputs[index]
        return value is not None and node in self.nodes and _reads_first(node, index) and _is_plain(self.stored(value))

    def links(self, node: ir.Node) -> Iterator[tuple[ir.Node, ir.Value, Order]]:
        """The nodes that exchange activations with a node of the region, the activation, and its order in memory."""
        adaptation = self.nodes[node]
        for index in adaptation.inputs:
            value = node.inputs[index]
            producer = value.producer() if value is not None else None
            if value is not None and producer is not None:
                yield producer, value, adaptation.order(value, read=True)
        for index in adaptation.outputs:
            value = node.outputs[index]
            for reader in value.consumers():
                yield reader, value, adaptation.order(value, read=False)


def _grow(model: ir.Model) -> _Region:
    """All nodes that can be adapted and hang together with a convolution by activations of the same order."""
    region = _Region()
    opset = model.opset_imports.get("", 1)
    known: dict[ir.Node, Adaptation | None] = {}
    pending: list[tuple[ir.Node, ir.Value | None, Order]] = [
        (node, None, ()) for node in model.graph if _is_convolution(node)
    ]
    while pending:
        node, value, order = pending.pop()
        if node in region.nodes or node.graph is not model.graph:
            continue
        if node not in known:
            known[node] = adaptation_of(node, opset)
        adaptation = known[node]
        if adaptation is None or (value is not None and not _agrees(node, adaptation, value, order)):
            continue
        region.nodes[node] = adaptation
        pending += region.links(node)
    return region


def _agrees(node: ir.Node, adaptation: Adaptation, value: ir.Value, order: Order) -> bool:
    """Whether the adapted node has the activation in this order."""
    made = any(node.outputs[index] is value for index in adaptation.outputs)
    read = any(node.inputs[index] is value for index in adaptation.inputs)
    return (made or read) and adaptation.order(value, read=read) == order


def _shrink(region: _Region) -> None:
    """Give back what is not worth it."""
    pending = [node for node in region.nodes if not _is_convolution(node)]
    while pending:
        node = pending.pop()
        if node in region.nodes and _leaves(region, node):
            pending += [other for other in _around(node) if other in region.nodes and not _is_convolution(other)]
    for part in _parts(region):
        convolutions = sum(map(_is_convolution, part))
        if convolutions < sum(1 for value in _values(part) if region.bytes_transposed(value)):
            for node in part:
                del region.nodes[node]


def _leaves(region: _Region, node: ir.Node) -> bool:
    """Take a node out of the region if no more bytes are transposed without it; where none are either way it stays."""
    values = _values([node])
    before = sum(map(region.bytes_transposed, values))
    adaptation = region.nodes.pop(node)
    after = sum(map(region.bytes_transposed, values))
    if after < before or 0 < after == before:
        return True
    region.nodes[node] = adaptation
    return False


def _parts(region: _Region) -> list[list[ir.Node]]:
    """The region's nodes by connected parts."""
    parts, seen = [], set[ir.Node]()
    for start in region.nodes:
        if start in seen:
            continue
        part, pending = [], [start]
        seen.add(start)
        while pending:
            node = pending.pop()
            part.append(node)
            fresh = {other for other, _, _ in region.links(node) if other in region.nodes} - seen
            seen |= fresh
            pending += fresh
        parts.append(part)
    return parts


def _around(node: ir.Node) -> Iterator[ir.Node]:
    for value in node.inputs:
        producer = value.producer() if value is not None else None
        if producer is not None:
            yield producer
    for value in node.outputs:
        yield from value.consumers()


def _values(nodes: Iterable[ir.Node]) -> list[ir.Value]:
    """What the nodes read and make, constants aside, each once."""
    found: dict[ir.Value, None] = {}
    for node in nodes:
        found.update(
            (value, None) for value in (*node.inputs, *node.outputs) if value is not None and not is_constant(value)
        )
    return list(found)


def _is_convolution(node: ir.Node) -> bool:
    return (node.domain, node.op_type) in CONVOLUTIONS


def _is_transpose(node: ir.Node) -> bool:
    return node.op_type == "Transpose" and node.domain == ""


def _keeps_order(shape: Sequence[int], stored: Order, wanted: Order) -> bool:
    """Whether only axes of extent 1 move from one order to the other."""
    return [axis for axis in stored if shape[axis] != 1] == [axis for axis in wanted if shape[axis] != 1]


def _reads_first(node: ir.Node, index: int) -> bool:
    """Whether this is a convolution that reads its input's few channels as they are."""
    shape = static_shape(node.inputs[index])
    plain = _is_convolution(node) and "Transpose" not in node.op_type and index == 0
    return plain and shape is not None and shape[1] <= MOST_CHANNELS_READ_FIRST


def _is_plain(order: Order) -> bool:
    return order == tuple(range(len(order)))


def _nbytes(value: ir.Value) -> int:
    return prod(static_shape(value) or ()) * ceil(value.dtype.itemsize if value.dtype is not None else 1)


class _Rewriter:
    """Makes the region's nodes what they are to be, and the Transposes at its borders."""

    def __init__(self, model: ir.Model, region: _Region) -> None:
        self._model = model
        self._graph = model.graph
        self._region = region
        self._names = Names(model)
        self._shapes = {value: static_shape(value) or () for value in _values(self._graph)}
        self._orders = {
            node.outputs[index]: adaptation.order(node.outputs[index], read=False)
            for node, adaptation in region.nodes.items()
            for index in adaptation.outputs
        }
        self._made: dict[tuple[ir.Value, Order], ir.Value] = {}

    def rewrite(self) -> None:
        self._model.opset_imports[CHANNELS_LAST] = self._model.opset_imports.get("", 1)
        others = [node for node in self._graph if node not in self._region.nodes]
        transposes = [node for node in others if _is_transpose(node)]
        returned = [value for value in self._graph.outputs if value in self._orders]
        for node, adaptation in self._region.nodes.items():
            self._adapt(node, adaptation)
        for node in others:
            if not _is_transpose(node):
                self._restore(node)
        for node in transposes:  # only now: their readers may read what is stored
            self._merge(node)
        for value in returned:
            self._return(value)
        for value, order in self._orders.items():
            value.shape = ir.Shape([self._shapes[value][axis] for axis in order])
        for node in reversed(transposes):
            if not node.outputs[0].uses() and not node.outputs[0].is_graph_output():
                erase(node)

    def _adapt(self, node: ir.Node, adaptation: Adaptation) -> None:
        for index in adaptation.inputs:
            value = node.inputs[index]
            assert value is not None
            order = adaptation.order(value, read=True)
            if value not in self._orders and _reads_first(node, index) and not self._is_at_hand(value, order):
                node.attributes.add(ir.AttrInt64("x_channels_first", 1))
            else:
                node.replace_input_with(index, self._reordered(value, order))
        for index in adaptation.constants:
            node.replace_input_with(
                index, self._transposed_constant(node.inputs[index], adaptation.order(node.outputs[0], read=False))
            )
        for index, array in adaptation.parameters.items():
            if len(node.inputs) <= index:
                node.resize_inputs(index + 1)
            node.replace_input_with(index, self._parameter(f"{node.outputs[0].name}_parameter", array))
        for attribute in adaptation.attributes:
            node.attributes.add(attribute)
        if adaptation.other_domain:
            node.domain = CHANNELS_LAST

    def _restore(self, node: ir.Node) -> None:
        """Let a node outside the region read its inputs as before."""
        for index, value in enumerate(node.inputs):
            if value is not None and value in self._orders:
                node.replace_input_with(index, self._reordered(value, self._plain_order(value)))

    def _merge(self, transpose: ir.Node) -> None:
        """Let a Transpose outside the region, and what there is to do before it, be one."""
        source = transpose.inputs[0]
        if source is not None and source in self._orders:
            replace_or_copy(transpose.outputs[0], self._reordered(source, _perm(transpose)), transpose)

    def _return(self, value: ir.Value) -> None:
        """Return a value of the region in the layout that callers know, under its name."""
        name = value.name
        assert name is not None
        value.name = self._names.fresh(f"{name}_last")
        result = self._reordered(value, self._plain_order(value))
        result.name = name
        for index, output in enumerate(self._graph.outputs):
            if output is value:
                self._graph.outputs[index] = result

    def _plain_order(self, value: ir.Value) -> Order:
        return tuple(range(len(self._shapes[value])))

    def _stored(self, value: ir.Value) -> Order:
        return self._orders.get(value) or self._plain_order(value)

    def _source(self, value: ir.Value, order: Order) -> tuple[ir.Value, Order]:
        """Where to get `value` with its axes in this order from: before all Transposes, in which order of its axes."""
        producer = value.producer()
        while (
            self._region.absorbs(producer) and producer is not None and (source := producer.inputs[0]) in self._shapes
        ):
            perm = _perm(producer)
            value, order = source, tuple(perm[axis] for axis in order)
            producer = value.producer()
        return value, order

    def _is_at_hand(self, value: ir.Value, order: Order) -> bool:
        """Whether the value is there in this order anyway, or by a Reshape."""
        source, order = self._source(value, order)
        return (source, order) in self._made or _keeps_order(self._shapes[source], self._stored(source), order)

    def _reordered(self, value: ir.Value, order: Order) -> ir.Value:
        """The value with its axes in this order in memory."""
        source, order = self._source(value, order)
        if order == self._stored(source):
            return source
        if (source, order) not in self._made:
            self._made[source, order] = self._make(source, order)
        return self._made[source, order]

    def _make(self, source: ir.Value, order: Order) -> ir.Value:
        stored, shape = self._stored(source), [self._shapes[source][axis] for axis in order]
        name = self._names.fresh(f"{source.name}_{'first' if source in self._orders else 'last'}")
        if _keeps_order(self._shapes[source], stored, order):
            parameter = self._parameter(f"{name}_shape", np.array(shape, np.int64))
            node = ir.Node("", "Reshape", [source, parameter], num_outputs=1, name=name)
        else:
            perm = ir.AttrInt64s("perm", [stored.index(axis) for axis in order])
            node = ir.Node("", "Transpose", [source], [perm], num_outputs=1, name=name)
        made = node.outputs[0]
        made.name, made.type, made.shape = name, source.type, ir.Shape(shape)
        producer = source.producer()
        if producer is not None:
            self._graph.insert_after(producer, node)
        else:
            self._graph.insert_before(self._graph[0], node)
        return made

    def _transposed_constant(self, value: ir.Value | None, order: Order) -> ir.Value:
        """A constant that broadcasts to activations, stored as they are."""
        array = constant_of(value)
        assert value is not None
        assert array is not None
        if (value, order) not in self._made:
            aligned = array.reshape((1,) * (len(order) - array.ndim) + array.shape).transpose(order)
            tensor = ir.Tensor(np.ascontiguousarray(aligned), dtype=value.dtype)
            self._made[value, order] = new_constant(self._graph, self._names.fresh(f"{value.name}_last"), tensor)
        return self._made[value, order]

    def _parameter(self, wish: str, array: np.ndarray) -> ir.Value:
        return new_constant(self._graph, self._names.fresh(wish), ir.Tensor(array))


def _perm(transpose: ir.Node) -> Order:
    perm = transpose.attributes.get("perm")
    if perm is not None:
        return tuple(perm.as_ints())
    return tuple(range(len(static_shape(transpose.inputs[0]) or ())))[::-1]
