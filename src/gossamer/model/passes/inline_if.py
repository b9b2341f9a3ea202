"""An If whose condition is a constant becomes its branch."""

from __future__ import annotations

import onnx_ir as ir

from gossamer.model.edit import constant_of, erase, new_constant, replace_or_copy


def inline_if(model: ir.Model) -> bool:
    """Put the nodes of the taken branch in place of an If (ONNX If-1, -11, -13, …) whose condition is an initializer.

    ```
    %c : bool[] = {True}
    %y = If(%c)                                   →      %t = Relu(%x)
      then_branch() { %t = Relu(%x); return %t }         … %y is read as %t
      else_branch() { %e = Neg(%x);  return %e }
    ```

    Then the Ifs of that branch. An If whose condition is computed from inputs stays, and what is in it: it decides when
    the model runs.
    """
    changed = False
    while (found := _next(model)) is not None:
        _inline(*found)
        changed = True
    return changed


def _next(model: ir.Model) -> tuple[ir.Node, bool] | None:
    for node in model.graph:
        if node.op_type == "If" and node.domain == "":
            condition = constant_of(node.inputs[0])
            if condition is not None:
                return node, bool(condition.reshape(-1)[0])
    return None


def _inline(node: ir.Node, condition: bool) -> None:
    graph = node.graph
    assert graph is not None
    branch = node.attributes["then_branch" if condition else "else_branch"].as_graph()
    results = list(branch.outputs)
    branch.outputs.clear()
    moved: dict[ir.Value, ir.Value] = {}
    for value in tuple(branch.initializers.values()):
        assert value.name is not None
        assert value.const_value is not None
        del branch.initializers[value.name]
        moved[value] = new_constant(graph, value.name, value.const_value)
        value.replace_all_uses_with(moved[value])
    nodes = list(branch)
    branch.remove(nodes)
    graph.insert_before(node, nodes)
    for output, result in zip(node.outputs, results, strict=True):
        replace_or_copy(output, moved.get(result, result), node)
    erase(node)
