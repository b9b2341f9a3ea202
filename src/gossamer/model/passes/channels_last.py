"""Activations are stored channels-last between the first and the last convolution."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from gossamer.model.edit import Names, constant_of, erase, is_constant, new_constant, replace_or_copy, static_shape
from gossamer.model.layout import CONVOLUTIONS, Adaptation, adaptation_of, last_order
from gossamer.model.node import CHANNELS_LAST

MOST_CHANNELS_READ_FIRST = 4
"""Up to so many channels a convolution reads N, C, spatial… as it is: images have three, and a copy costs a launch."""


def channels_last(model: ir.Model) -> bool:
    """Store activations N, spatial…, C wherever convolutions and what lies between them want them so.

    ```
    %c = gossamer::FusedConv[…](%x, %w, %b) : float32[1,64,56,56]         %c = gossamer.nhwc::FusedConv[…, x_channels_first=1](%x, %w, %b)
    %m = MaxPool[…](%c) : float32[1,64,28,28]                             %m = gossamer.nhwc::MaxPool[…](%c) : float32[1,28,28,64]
    %d = Concat[axis=1](%m, %m) : float32[1,128,28,28]               →    %d = Concat[axis=3](%m, %m) : float32[1,28,28,128]
    %e = Conv[…](%d, %v) : float32[1,32,28,28]                            %e_1 = gossamer.nhwc::Conv[…](%d, %v) : float32[1,28,28,32]
    return %e                                                             %e = Transpose[perm=[0,3,1,2]](%e_1) : float32[1,32,28,28]
    ```

    A region grows from the convolutions (Conv, ConvTranspose and their fused forms; weights stay as ONNX has them) through all nodes that
    `model.layout` can adapt: operators with kernels for both layouts move to the domain `gossamer.nhwc`, axes are renumbered, constants
    that broadcast are transposed once. Where the region ends a value is transposed, once for all who read it so. Then the
    region shrinks: a node leaves it if no more bytes are transposed without it, and a part with fewer convolutions than
    transpositions goes altogether.

    No Transpose is made of one that is there already (the two become one, or none), nor where only axes of extent 1 move
    (a Reshape, which costs nothing), nor for an input of few channels that convolutions read.

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

    def stores_last(self, value: ir.Value) -> bool:
        producer = value.producer()
        adaptation = None if producer is None else self.nodes.get(producer)
        return adaptation is not None and value.index() in adaptation.outputs

    def wants_last(self, reader: ir.Node, index: int) -> bool:
        adaptation = self.nodes.get(reader)
        return adaptation is not None and index in adaptation.inputs

    def bytes_transposed(self, value: ir.Value) -> int:
        """What the value's readers cost: its size, if some read it in another layout than it is stored in."""
        if _is_free(value):
            return 0
        if self.stores_last(value):
            others = value.is_graph_output() or any(
                not self.wants_last(*use) and not _absorbs(use.node) for use in value.uses()
            )
        else:
            others = any(self.wants_last(*use) and not _reads_first(*use) for use in value.uses())
        return _nbytes(value) if others else 0

    def neighbours(self, node: ir.Node) -> Iterator[ir.Node]:
        """The nodes of the region that exchange activations with a node of it."""
        adaptation = self.nodes[node]
        for index in adaptation.inputs:
            value = node.inputs[index]
            producer = value.producer() if value is not None else None
            if value is not None and producer is not None and self.stores_last(value):
                yield producer
        for index in adaptation.outputs:
            yield from (use.node for use in node.outputs[index].uses() if self.wants_last(*use))


def _grow(model: ir.Model) -> _Region:
    """All nodes that can be adapted and hang together with a convolution."""
    region, refused = _Region(), set[ir.Node]()
    opset = model.opset_imports.get("", 1)
    pending = [node for node in model.graph if _is_convolution(node)]
    while pending:
        node = pending.pop()
        if node in region.nodes or node in refused or node.graph is not model.graph:
            continue
        adaptation = adaptation_of(node, opset)
        if adaptation is None:
            refused.add(node)
            continue
        region.nodes[node] = adaptation
        for index in adaptation.inputs:
            value = node.inputs[index]
            producer = value.producer() if value is not None else None
            pending += [producer] if producer is not None else []
        for index in adaptation.outputs:
            pending += [use.node for use in node.outputs[index].uses()]
    return region


def _shrink(region: _Region) -> None:
    """Give back what is not worth it."""
    pending = [node for node in region.nodes if not _is_convolution(node)]
    while pending:
        node = pending.pop()
        if node not in region.nodes or not _leaves(region, node):
            continue
        pending += [other for other in _around(node) if other in region.nodes and not _is_convolution(other)]
    for part in _parts(region):
        convolutions = sum(map(_is_convolution, part))
        if convolutions < sum(1 for value in _values(part) if region.bytes_transposed(value)):
            for node in part:
                del region.nodes[node]


def _leaves(region: _Region, node: ir.Node) -> bool:
    """Take a node out of the region if that costs no byte."""
    values = _values([node])
    adaptation = region.nodes.pop(node)
    after = sum(map(region.bytes_transposed, values))
    region.nodes[node] = adaptation
    if after > sum(map(region.bytes_transposed, values)):
        return False
    if any(True for _ in region.neighbours(node)) and all(_is_free(value) for value in values):
        return False  # nothing is gained or lost, and Reshapes are saved
    del region.nodes[node]
    return True


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
            fresh = [other for other in region.neighbours(node) if other not in seen]
            seen.update(fresh)
            pending += fresh
        parts.append(part)
    return parts


def _around(node: ir.Node) -> Iterator[ir.Node]:
    for value in node.inputs:
        producer = value.producer() if value is not None else None
        if producer is not None:
            yield producer
    for value in node.outputs:
        yield from (use.node for use in value.uses())


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


def _absorbs(node: ir.Node) -> bool:
    return node.op_type == "Transpose" and node.domain == ""


def _is_free(value: ir.Value) -> bool:
    """Whether nothing has to move: at most one of the axes after the first is longer than 1, or a Transpose makes the value."""
    producer = value.producer()
    if producer is not None and _absorbs(producer):
        return True
    shape = static_shape(value)
    return shape is None or len(shape) < 3 or _keeps_order(shape, last_order(len(shape)))


def _keeps_order(shape: Sequence[int], axes: Sequence[int]) -> bool:
    moved = [axis for axis in axes if shape[axis] != 1]
    return moved == sorted(moved)


def _reads_first(node: ir.Node, index: int) -> bool:
    """Whether this is a convolution that reads its input's few channels as they are."""
    shape = static_shape(node.inputs[index])
    plain = _is_convolution(node) and "Transpose" not in node.op_type and index == 0
    return plain and shape is not None and shape[1] <= MOST_CHANNELS_READ_FIRST


def _nbytes(value: ir.Value) -> int:
    size = value.dtype.itemsize if value.dtype is not None else 1
    return int(np.prod(static_shape(value) or (1,), dtype=np.int64) * size)


class _Rewriter:
    """Makes the region's nodes what they are to be, and the Transposes at its borders."""

    def __init__(self, model: ir.Model, region: _Region) -> None:
        self._model = model
        self._graph = model.graph
        self._region = region
        self._names = Names(model)
        self._last = {
            value
            for node, adaptation in region.nodes.items()
            for i in adaptation.outputs
            for value in [node.outputs[i]]
        }
        self._shapes = {value: static_shape(value) or () for value in _values(self._graph)}
        self._made: dict[tuple[ir.Value, tuple[int, ...]], ir.Value] = {}

    def rewrite(self) -> None:
        self._model.opset_imports[CHANNELS_LAST] = self._model.opset_imports.get("", 1)
        others = [node for node in self._graph if node not in self._region.nodes]
        outputs = [value for value in self._graph.outputs if value in self._last]
        for node, adaptation in self._region.nodes.items():
            self._adapt(node, adaptation)
        for node in sorted(others, key=_absorbs):  # Transposes last: their readers then read what is stored
            self._restore(node)
        for value in outputs:
            self._return(value)
        for value in self._last:
            shape = self._shapes[value]
            value.shape = ir.Shape([shape[axis] for axis in last_order(len(shape))])
        for node in reversed(others):
            if _absorbs(node) and not node.outputs[0].uses() and not node.outputs[0].is_graph_output():
                erase(node)

    def _adapt(self, node: ir.Node, adaptation: Adaptation) -> None:
        for index in adaptation.inputs:
            value = node.inputs[index]
            assert value is not None
            if value not in self._last and _reads_first(node, index) and not self._can_have_last(value):
                node.attributes.add(ir.AttrInt64("x_channels_first", 1))
            else:
                node.replace_input_with(index, self._reordered(value, last_order(len(self._shapes[value]))))
        for index in adaptation.constants:
            node.replace_input_with(
                index, self._transposed_constant(node.inputs[index], len(self._shapes[node.outputs[0]]))
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
        if _absorbs(node):
            source = node.inputs[0]
            assert source is not None
            if source in self._last:
                replace_or_copy(node.outputs[0], self._reordered(source, _perm(node, len(self._shapes[source]))), node)
            return
        for index, value in enumerate(node.inputs):
            if value is not None and value in self._last:
                node.replace_input_with(index, self._reordered(value, range(len(self._shapes[value]))))

    def _return(self, value: ir.Value) -> None:
        """Return a value of the region in the layout that callers know, under its name."""
        name = value.name
        assert name is not None
        value.name = self._names.fresh(f"{name}_last")
        result = self._reordered(value, range(len(self._shapes[value])))
        result.name = name
        for index, output in enumerate(self._graph.outputs):
            if output is value:
                self._graph.outputs[index] = result

    def _can_have_last(self, value: ir.Value) -> bool:
        """Whether the value is there channels-last anyway, or by a Reshape."""
        axes = last_order(len(self._shapes[value]))
        source, source_axes = self._source(value, axes)
        return (source, source_axes) in self._made or self._is_view(source, source_axes)

    def _source(self, value: ir.Value, axes: Sequence[int]) -> tuple[ir.Value, tuple[int, ...]]:
        """Where to get `value`'s axes in the order `axes` from: before all Transposes, and from how that is stored."""
        producer = value.producer()
        while (
            producer is not None
            and _absorbs(producer)
            and (source := producer.inputs[0]) is not None
            and source in self._shapes
        ):
            perm = _perm(producer, len(axes))
            value, axes = source, [perm[axis] for axis in axes]
            producer = value.producer()
        if value in self._last:
            order = last_order(len(axes))
            axes = [order.index(axis) for axis in axes]
        return value, tuple(axes)

    def _stored_shape(self, value: ir.Value) -> tuple[int, ...]:
        shape = self._shapes[value]
        return tuple(shape[axis] for axis in last_order(len(shape))) if value in self._last else shape

    def _is_view(self, source: ir.Value, axes: Sequence[int]) -> bool:
        return _keeps_order(self._stored_shape(source), axes)

    def _reordered(self, value: ir.Value, axes: Sequence[int]) -> ir.Value:
        """A value with `value`'s axes, as N, C, spatial… numbers them, in the order `axes`."""
        source, source_axes = self._source(value, axes)
        if source_axes == tuple(range(len(source_axes))):
            return source
        key = source, source_axes
        if key not in self._made:
            self._made[key] = self._make(source, source_axes)
        return self._made[key]

    def _make(self, source: ir.Value, axes: tuple[int, ...]) -> ir.Value:
        stored = self._stored_shape(source)
        shape = [stored[axis] for axis in axes]
        name = self._names.fresh(f"{source.name}_{'first' if source in self._last else 'last'}")
        if self._is_view(source, axes):
            node = ir.Node(
                "",
                "Reshape",
                [source, self._parameter(f"{name}_shape", np.array(shape, np.int64))],
                num_outputs=1,
                name=name,
            )
        else:
            node = ir.Node("", "Transpose", [source], [ir.AttrInt64s("perm", axes)], num_outputs=1, name=name)
        made = node.outputs[0]
        made.name, made.type, made.shape = name, source.type, ir.Shape(shape)
        producer = source.producer()
        if producer is not None:
            self._graph.insert_after(producer, node)
        else:
            self._graph.insert_before(self._graph[0], node)
        return made

    def _transposed_constant(self, value: ir.Value | None, rank: int) -> ir.Value:
        """A constant that broadcasts to activations of `rank`, stored as they are."""
        array = constant_of(value)
        assert value is not None and array is not None
        key = value, last_order(rank)
        if key not in self._made:
            aligned = array.reshape((1,) * (rank - array.ndim) + array.shape).transpose(last_order(rank))
            tensor = ir.Tensor(np.ascontiguousarray(aligned), dtype=value.dtype)
            self._made[key] = new_constant(self._graph, self._names.fresh(f"{value.name}_last"), tensor)
        return self._made[key]

    def _parameter(self, wish: str, array: np.ndarray) -> ir.Value:
        return new_constant(self._graph, self._names.fresh(wish), ir.Tensor(array))


def _perm(transpose: ir.Node, rank: int) -> Sequence[int]:
    perm = transpose.attributes.get("perm")
    return range(rank)[::-1] if perm is None else perm.as_ints()
