"""A Gemm whose rows were flattened for it becomes the product of the rank that the model thinks in."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from gossamer.model.edit import Names, erase, new_constant, static_shape
from gossamer.model.fusion import hand_over, sole_reader


def flattened_gemm(model: ir.Model) -> bool:
    """Take away the Reshapes that flatten a Gemm's rows (ONNX -7 … -13) and restore them afterwards.

    ```
    %f = Reshape(%x, [256,768])                      # x: [2,128,768]
    %g = Gemm[transB=1](%f, %w, %b)           →      %t = Transpose(%w)
    %y = Reshape(%g, [2,128,3072])                   %p = MatMul(%x, %t)
                                                     %y = Add(%p, %b)
    ```

    PyTorch writes a linear layer so (`addmm`), and what follows, an activation or a residual, then reads a Reshape,
    which no epilogue passes. `matmul_epilogue` takes the transposition, the bias and the rest.

    Where x has more axes than that, one Reshape of it stays. Kept: transA, alpha or beta other than 1, a C that varies
    by row, a product that others read flat, columns that come back split; nodes of subgraphs.
    """
    names = None
    changed = False
    for node in tuple(model.graph):
        if node.op_type == "Gemm" and node.domain == "" and _is_plain(node):
            names = names or Names(model)
            changed |= _unflatten(node, names)
    return changed


def _unflatten(gemm: ir.Node, names: Names) -> bool:
    flat, w = gemm.inputs[:2]
    flatten, restore = flat.producer() if flat is not None else None, sole_reader(gemm.outputs[0])
    if flat is None or w is None or flatten is None or restore is None or not (_is_reshape(flatten, restore)):
        return False
    rows, result, product = static_shape(flat), static_shape(restore.outputs[0]), static_shape(gemm.outputs[0])
    if rows is None or not result or product is None or result[-1] != product[-1]:
        return False
    x = _reshaped(flatten, (*result[:-1], rows[-1]), names)
    _replace(gemm, x, w, restore, names)
    erase(gemm)
    if not flat.uses() and not flat.is_graph_output():
        erase(flatten)
    return True


def _is_reshape(*nodes: ir.Node) -> bool:
    return all(node.op_type == "Reshape" and node.domain == "" for node in nodes)


def _reshaped(flatten: ir.Node, shape: tuple[int, ...], names: Names) -> ir.Value:
    """What was flattened, in this shape: as it is, where it has that."""
    source = flatten.inputs[0]
    assert source is not None
    if static_shape(source) == shape:
        return source
    assert flatten.graph is not None
    dims = new_constant(flatten.graph, names.fresh(f"{source.name}_shape"), ir.tensor(np.array(shape, np.int64)))
    node = _node("Reshape", [source, dims], shape, names.fresh(f"{source.name}_rows"))
    node.name = flatten.name
    flatten.graph.insert_before(flatten, node)
    return node.outputs[0]


def _is_plain(gemm: ir.Node) -> bool:
    """Rows times columns, and at most one number per column added."""
    numbers = {name: attribute.value for name, attribute in gemm.attributes.items()}
    if numbers.get("transA", 0) or numbers.get("alpha", 1.0) != 1.0 or numbers.get("beta", 1.0) != 1.0:
        return False
    bias = gemm.inputs[2] if len(gemm.inputs) > 2 else None
    if bias is None:
        return True
    shape, product = static_shape(bias), static_shape(gemm.outputs[0])
    return bool(shape and product) and shape[-1] == product[-1] and set(shape[:-1]) <= {1}  # type: ignore[index]


def _replace(gemm: ir.Node, x: ir.Value, w: ir.Value, restore: ir.Node, names: Names) -> None:
    """The same with x as it is, in the place of `restore`."""
    old, bias = restore.outputs[0], gemm.inputs[2] if len(gemm.inputs) > 2 else None
    nodes = []
    if "transB" in gemm.attributes and gemm.attributes["transB"].as_int():
        dims = static_shape(w)
        assert dims is not None
        nodes.append(_node("Transpose", [w], dims[::-1], names.fresh(f"{w.name}_transposed")))
        w = nodes[-1].outputs[0]
    shape = static_shape(old)
    assert shape is not None
    nodes.append(_node("MatMul", [x, w], shape, names.fresh(f"{old.name}_product")))
    if bias is not None:
        nodes.append(_node("Add", [nodes[-1].outputs[0], bias], shape, names.fresh(f"{old.name}_sum")))
    nodes[-1].name = gemm.name
    assert restore.graph is not None
    restore.graph.insert_before(restore, nodes)
    hand_over(old, nodes[-1].outputs[0])
    erase(restore)


def _node(op_type: str, inputs: list[ir.Value], shape: tuple[int, ...], name: str) -> ir.Node:
    node = ir.Node("", op_type, inputs, num_outputs=1)
    value = node.outputs[0]
    value.name, value.shape = name, ir.Shape(shape)
    value.type = inputs[0].type
    return node
