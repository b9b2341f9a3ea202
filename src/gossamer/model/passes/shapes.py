"""The type and shape of every value, by ONNX's own shape inference."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping

import onnx
import onnx_ir as ir

from gossamer.errors import InvalidArgument, InvalidGraph
from gossamer.model.custom_nodes import infer_outputs, inputs_are_known, is_custom
from gossamer.model.edit import may_have_subgraphs, nodes_in, static_shape, subgraphs_of
from gossamer.model.stand_in import Operand
from gossamer.model.stand_ins import OPSET, reads_as_newer, stand_ins

_PROPAGATED = 64
"""Elements up to which integer constants are shown to shape inference: shapes, axes, pads, repeats."""
_READ_FLOATS = frozenset({"OneHot", "Range", "Resize", "Upsample"})
"""Operators whose output shape depends on float constants."""
_FUNCTIONS = "gossamer.stand_ins"
"""The domain of functions in what inference sees."""
_INTEGERS = frozenset({ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL})


def infer_shapes(model: ir.Model, input_shapes: Mapping[str, tuple[int, ...]] | None = None) -> bool:
    """Write the types and shapes that onnx.shape_inference finds to the model's values, in subgraphs too.

    ```
    %y = Conv(%x, %w)      →      %y = Conv(%x, %w) : float32[1,64,112,112]
    ```

    Inference sees the model as `model.stand_ins` writes it for it. What follows a custom operator is shown to it after
    the operator's shape function was asked: n such operators in a row take n + 1 goes, each over the nodes in between.

    input_shapes: static shapes of inputs of the main graph by name; without them, symbols in the declared shapes stay
    symbols; what is given for an input that is no tensor does not count. What inference does not find stays as it is:
    unknown, or (operators of other domains) as the file declares it. Weights are not given to it, only their types.
    Raises InvalidArgument for a name that is no input, or a shape that does not fit the declared one, and InvalidGraph
    where types contradict one another.
    """
    changed = False
    for name, shape in (input_shapes or {}).items():
        changed |= _set_input(model, name, shape)
    waiting = set(filter(is_custom, model.graph))
    while True:
        skeleton = _Skeleton(model, waiting)
        changed |= _infer(skeleton)
        asked = list(filter(inputs_are_known, skeleton.reached))
        for node in asked:
            changed |= infer_outputs(node)
        if not waiting:
            return changed
        # Where shapes are symbols no shape function is asked, so nothing is worth waiting for.
        waiting = waiting.difference(skeleton.reached) if asked else set()


def _infer(skeleton: _Skeleton) -> bool:
    try:
        inferred = onnx.shape_inference.infer_shapes(skeleton.proto, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        raise InvalidGraph(f"types and shapes cannot be inferred: {error}") from error
    changed = False
    for info in _inferred(inferred.graph):
        value = skeleton.open.get(info.name)
        if value is not None:
            changed |= _update(value, info.type)
    return changed


def _set_input(model: ir.Model, name: str, shape: tuple[int, ...]) -> bool:
    value = next((value for value in model.graph.inputs if value.name == name), None)
    if value is None:
        raise InvalidArgument(
            f"the model has no input '{name}'; its inputs are {[value.name for value in model.graph.inputs]}"
        )
    if value.type is not None and not isinstance(value.type, ir.TensorType):
        return False  # a sequence's shape is that of its elements
    if value.shape is not None and not _fits(shape, value.shape):
        raise InvalidArgument(
            f"input '{name}' has the shape {value.shape} in the model, which {list(shape)} does not fit"
        )
    if static_shape(value) == tuple(shape):
        return False
    value.shape = ir.Shape(shape)
    return True


def _fits(shape: tuple[int, ...], declared: ir.Shape) -> bool:
    return len(shape) == len(declared) and all(
        not isinstance(wanted, int) or wanted == dim for dim, wanted in zip(shape, declared, strict=True)
    )


class _Skeleton:
    """What shape inference needs of a model: no weights, and no node of which it has nothing to find.

    waiting: custom operators that wait for their inputs; neither they nor what depends on them is shown. Attributes:
    proto; open, the values by name that inference may find something about; reached, those of `waiting` that no other
    holds up.
    """

    def __init__(self, model: ir.Model, waiting: Collection[ir.Node]) -> None:
        self.open: dict[str, ir.Value] = {}
        self.reached: list[ir.Node] = []
        self._waiting = waiting
        self._held_up: set[ir.Value] = set()
        self.proto = onnx.ModelProto(ir_version=onnx.IR_VERSION)
        self._opset = model.graph.opset_imports.get("", 1)
        imports = {**model.graph.opset_imports, "": max(self._opset, OPSET), _FUNCTIONS: 1}
        for domain, version in imports.items():
            self.proto.opset_import.add(domain=domain, version=version)
        self._main = self.proto.graph
        self._main.name = "main"
        self._declared: set[ir.Value] = set()
        self._protos: dict[ir.Graph | None, onnx.GraphProto] = {}
        for value in model.graph.inputs:
            self._declare_input(value)
        self._add_body(model.graph, self._main)

    def _add_body(self, graph: ir.Graph, proto: onnx.GraphProto) -> None:
        self._protos[graph] = proto
        for node in graph:
            if self._holds_up(node) or _is_settled(node):
                continue
            for value in node.inputs:
                if value is not None and value not in self._declared:
                    self._add_known(value)
            self._declared.update(node.outputs)
            self.open.update((value.name, value) for value in node.outputs if value.name)
            self._add_node(node, proto)
        for value in graph.outputs:
            if value not in self._declared:
                self._add_known(value)
            proto.output.add(name=value.name)

    def _holds_up(self, node: ir.Node) -> bool:
        """Whether the node, or one that makes its inputs, waits."""
        if not self._waiting:
            return False
        held_up, waits = not self._held_up.isdisjoint(_reads(node)), node in self._waiting
        if held_up or waits:
            self._held_up.update(node.outputs)
        if waits and not held_up:
            self.reached.append(node)
        return held_up or waits

    def _add_known(self, value: ir.Value) -> None:
        """An initializer, or the output of a settled node: an input of the main graph, unless its content matters."""
        if not _is_propagated(value):
            self._declare_input(value)
            return
        assert value.const_value is not None
        self._declared.add(value)
        initializer = self._protos[value.graph].initializer.add()
        ir.serde.serialize_tensor_into(initializer, value.const_value)
        initializer.name = value.name or ""

    def _declare_input(self, value: ir.Value) -> None:
        self._declared.add(value)
        _declare(value, self._main.input.add())

    def _add_node(self, node: ir.Node, graph: onnx.GraphProto) -> None:
        shown = stand_ins(node)
        for stand_in in shown or ():
            proto = graph.node.add(op_type=stand_in.op_type)
            _connect(proto, stand_in.inputs, stand_in.outputs)
            self._add_attributes(proto, stand_in.attributes)
        if shown is not None:
            return
        proto = graph.node.add(op_type=node.op_type, domain=node.domain)
        if node.domain == "" and not reads_as_newer(node.op_type, self._opset):
            proto = self._in_function(node, proto)
        _connect(proto, node.inputs, node.outputs)
        self._add_attributes(proto, node.attributes.values())
        for value in node.outputs if node.domain else ():
            _declare(value, graph.value_info.add())

    def _in_function(self, node: ir.Node, call: onnx.NodeProto) -> onnx.NodeProto:
        """Make `call` the call of a function, which may have the opset of the model, and return the node inside."""
        call.domain, call.op_type = _FUNCTIONS, f"{node.op_type}_{len(self.proto.functions)}"
        function = self.proto.functions.add(domain=_FUNCTIONS, name=call.op_type)
        function.opset_import.add(domain="", version=self._opset)
        _connect(function, dict.fromkeys(filter(_name, node.inputs)), filter(_name, node.outputs))
        _connect(call, function.input, function.output)
        inner: onnx.NodeProto = function.node.add(op_type=node.op_type)
        return inner

    def _add_attributes(self, proto: onnx.NodeProto, attributes: Iterable[ir.Attr]) -> None:
        for attribute in attributes:
            if attribute.type != ir.AttributeType.GRAPH:
                ir.serde.serialize_attribute_into(proto.attribute.add(), attribute)
                continue
            graph = proto.attribute.add(name=attribute.name, type=onnx.AttributeProto.GRAPH).g
            graph.name = attribute.name
            for value in attribute.as_graph().inputs:
                self._declared.add(value)
                self.open[value.name or ""] = value
                _declare(value, graph.input.add())
            self._add_body(attribute.as_graph(), graph)


def _connect(proto: onnx.NodeProto | onnx.FunctionProto, inputs: Iterable[Operand], outputs: Iterable[Operand]) -> None:
    proto.input.extend([_name(value) for value in inputs])
    proto.output.extend([_name(value) for value in outputs])


def _name(value: Operand) -> str:
    return value if isinstance(value, str) else "" if value is None else value.name or ""


def _reads(node: ir.Node) -> Iterator[ir.Value | None]:
    """What a node reads, its subgraphs included, and what these read of their own."""
    yield from node.inputs
    for graph in subgraphs_of(node):
        yield from graph.outputs
        for inner in nodes_in(graph):
            yield from inner.inputs


def _is_settled(node: ir.Node) -> bool:
    """Whether inference has nothing to find about a node's outputs or from their contents, which may be shapes.

    Outputs of the model come with what the file claims of them, which may be stale.
    """
    for value in node.outputs:
        known = static_shape(value) is not None and value.dtype is not None and not value.is_graph_output()
        if value.name and (not known or _may_be_shape(value)):
            return False
    return not may_have_subgraphs(node) or (is_custom(node) and not subgraphs_of(node))


def _may_be_shape(value: ir.Value) -> bool:
    return value.dtype in _INTEGERS and value.shape is not None and len(value.shape) < 2


def _is_propagated(value: ir.Value) -> bool:
    shape = static_shape(value)
    if value.const_value is None or shape is None or math.prod(shape) > _PROPAGATED:
        return False
    return value.dtype in _INTEGERS or any(use.node.op_type in _READ_FLOATS for use in value.uses())


def _declare(value: ir.Value, proto: onnx.ValueInfoProto) -> None:
    proto.name = value.name or ""
    if not isinstance(value.type, ir.TensorType):
        if value.type is not None:
            ir.serde.serialize_type_into(proto.type, value.type)
        return
    tensor = proto.type.tensor_type
    tensor.elem_type = value.type.dtype
    if value.shape is None:
        return
    tensor.shape.SetInParent()
    for dim in value.shape.dims:
        entry = tensor.shape.dim.add()
        if isinstance(dim, int):
            entry.dim_value = dim
        elif dim.value:
            entry.dim_param = dim.value


def _inferred(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    yield from graph.value_info
    yield from graph.output
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from attribute.g.input
                yield from _inferred(attribute.g)


def _update(value: ir.Value, found: onnx.TypeProto) -> bool:
    """Take what was found; a dimension that was not keeps what was known of it."""
    if not found.HasField("tensor_type"):
        if not found.WhichOneof("value"):
            return False
        inferred = ir.serde.deserialize_type_proto_for_type(found)
        changed = value.type != inferred
        value.type = inferred
        return changed
    changed = False
    tensor = found.tensor_type
    if tensor.elem_type and (value.dtype is None or value.dtype != tensor.elem_type):
        value.dtype = ir.DataType(tensor.elem_type)
        changed = True
    if tensor.HasField("shape"):
        changed |= _update_shape(value, tensor.shape)
    return changed


def _update_shape(value: ir.Value, found: onnx.TensorShapeProto) -> bool:
    dims: list[int | str | None] = []
    for dim in found.dim:
        dims.append(dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None)
    known = value.shape
    if known is not None and len(known) == len(dims):
        before = [dim if isinstance(dim, int) else dim.value for dim in known]
        dims = [old if new is None else new for old, new in zip(before, dims, strict=True)]
        if dims == before:
            return False
    value.shape = ir.Shape(dims)
    return True
