"""A model as text, one node a line: what tests compare and `GOSSAMER_DEBUG=4` prints.

```
graph main(%x : float32[N,3,224,224]) {
  %w : float32[64,3,7,7]
  %axes : int64[1] = {1}
  %y = Conv[strides=[2,2]](%x, %w) : float32[N,64,112,112]
  return %y
}
```

`?` stands for a dimension of which nothing is known, `…` for an unknown rank, `_` for an omitted optional input or
output. Nodes of other domains than ONNX's own are written `domain::Operator`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx_ir as ir

_SHOWN_ELEMENTS = 8
"""Constants up to this size are printed with their values."""


def to_text(model: ir.Model) -> str:
    """The main graph with its subgraphs, and the model's functions where there are any left."""
    lines = list(_graph_lines(model.graph, "graph", ""))
    for function in model.functions.values():
        lines += _body_lines(f"function {function.domain}::{function.name}", function.graph, "")
    return "\n".join(lines) + "\n"


def _graph_lines(graph: ir.Graph, label: str, indent: str) -> Iterator[str]:
    title = f"{label} {graph.name}" if graph.name and label == "graph" else label
    yield from _body_lines(title, graph, indent)


def _body_lines(title: str, graph: ir.Graph, indent: str) -> Iterator[str]:
    parameters = ", ".join(f"{_reference(value)}{_type_suffix(value)}" for value in graph.inputs)
    yield f"{indent}{title}({parameters}) {{"
    for value in graph.initializers.values():
        yield f"{indent}  {_reference(value)}{_type_suffix(value)}{_contents(value)}"
    for node in graph:
        yield from _node_lines(node, indent + "  ")
    results = ", ".join(_reference(value) for value in graph.outputs)
    yield f"{indent}  return {results}".rstrip()
    yield f"{indent}}}"


def _node_lines(node: ir.Node, indent: str) -> Iterator[str]:
    outputs = ", ".join(_reference(value) for value in node.outputs)
    operator = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    plain = [
        f"{name}={_attribute(attribute)}" for name, attribute in node.attributes.items() if not _subgraphs(attribute)
    ]
    attributes = f"[{', '.join(plain)}]" if plain else ""
    inputs = ", ".join(_reference(value) for value in node.inputs)
    types = ", ".join(_type(value) for value in node.outputs if value.name)
    suffix = f" : {types}" if types.strip("?, ") else ""
    yield f"{indent}{outputs} = {operator}{attributes}({inputs}){suffix}"
    for name, attribute in node.attributes.items():
        for graph in _subgraphs(attribute):
            yield from _graph_lines(graph, name, indent + "  ")


def _reference(value: ir.Value | None) -> str:
    return f"%{value.name}" if value is not None and value.name else "_"


def _type_suffix(value: ir.Value) -> str:
    text = _type(value)
    return "" if text == "?" else f" : {text}"


def _type(value: ir.Value) -> str:
    if value.type is not None and not isinstance(value.type, ir.TensorType):
        return str(value.type)
    if value.dtype is None and value.shape is None:
        return "?"
    element = value.dtype.name.lower() if value.dtype is not None else "?"
    return f"{_ELEMENT_NAMES.get(element, element)}[{_dimensions(value.shape)}]"


_ELEMENT_NAMES = {"float": "float32", "double": "float64"}
"""ONNX's own names would read as Python's."""


def _dimensions(shape: ir.Shape | None) -> str:
    if shape is None:
        return "…"
    return ",".join(str(dim) if isinstance(dim, int) else (dim.value or "?") for dim in shape)


def _contents(value: ir.Value) -> str:
    tensor = value.const_value
    if tensor is None or tensor.size > _SHOWN_ELEMENTS:
        return ""
    return f" = {{{_list(tensor.numpy().reshape(-1).tolist())}}}"


def _attribute(attribute: ir.Attr) -> str:
    if attribute.is_ref():
        return f"@{attribute.ref_attr_name}"
    if attribute.type == ir.AttributeType.TENSOR:
        tensor = attribute.as_tensor()
        shown = tensor.size <= _SHOWN_ELEMENTS
        return f"{{{_list(tensor.numpy().reshape(-1).tolist())}}}" if shown else f"tensor{list(tensor.shape)}"
    if attribute.type in (ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS):
        return f"[{_list(attribute.value)}]"
    return _scalar(attribute.value)


def _list(values: Iterable[object]) -> str:
    return ",".join(_scalar(value) for value in values)


def _scalar(value: object) -> str:
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return f"{value:.6g}" if isinstance(value, float) else f'"{value}"' if isinstance(value, str) else str(value)


def _subgraphs(attribute: ir.Attr) -> tuple[ir.Graph, ...]:
    if attribute.type == ir.AttributeType.GRAPH:
        return (attribute.as_graph(),)
    if attribute.type == ir.AttributeType.GRAPHS:
        return tuple(attribute.as_graphs())
    return ()
