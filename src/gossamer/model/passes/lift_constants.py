"""Constant nodes become initializers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from gossamer.errors import InvalidGraph
from gossamer.model.checks import describe
from gossamer.model.edit import Names, new_constant, nodes_in, replace_or_copy


def lift_constants(model: ir.Model) -> bool:
    """Turn every Constant node (ONNX Constant-1, -9, -11, -12, -13) into an initializer of its graph, in subgraphs too.

    ```
    %w = Constant[value=tensor[64, 3, 7, 7]]()      →      %w : float32[64,3,7,7]      (an initializer)
    ```

    All forms: value, value_float(s), value_int(s), value_string(s). Raises InvalidGraph for a Constant without exactly
    one of them (`load` has refused sparse_value). A Constant that is an output of its graph leaves an Identity there.
    """
    names: Names | None = None
    nodes = [node for node in nodes_in(model.graph) if node.op_type == "Constant" and node.domain == ""]
    for node in nodes:
        output, graph = node.outputs[0], node.graph
        assert graph is not None
        tensor = _tensor_of(node)
        if output.is_graph_output():
            names = names or Names(model)
            replace_or_copy(output, new_constant(graph, names.fresh(f"{output.name}_value"), tensor), node)
            graph.remove(node, safe=True)
        else:
            name, output.name = output.name, None
            assert name is not None
            output.replace_all_uses_with(new_constant(graph, name, tensor))
            graph.remove(node, safe=True)
    return bool(nodes)


def _tensor_of(node: ir.Node) -> ir.TensorProtocol:
    attributes = list(node.attributes.values())
    if len(attributes) != 1:
        raise InvalidGraph(
            f"{describe(node)} has {len(attributes)} attributes, and needs exactly one, its value; the file is damaged"
        )
    attribute = attributes[0]
    match attribute.name:
        case "value":
            return attribute.as_tensor()
        case "value_float" | "value_floats":
            return ir.Tensor(np.asarray(attribute.value, np.float32))
        case "value_int" | "value_ints":
            return ir.Tensor(np.asarray(attribute.value, np.int64))
        case "value_string":
            return ir.StringTensor([attribute.as_string().encode()], shape=ir.Shape([]))
        case "value_strings":
            return ir.StringTensor(
                [text.encode() for text in attribute.as_strings()], shape=ir.Shape([len(attribute.value)])
            )
    raise InvalidGraph(f"{describe(node)} holds its value as '{attribute.name}', which no Constant of ONNX does")
