"""Calls of the model's own functions become the functions' nodes."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from gossamer import custom_ops
from gossamer.errors import InvalidGraph
from gossamer.model.edit import defined_in


def inline_functions(model: ir.Model) -> bool:
    """Inline every function, and give every value of the model a name of its own.

    ```
    %y = local::Scale[by=2.0](%x)         →   %two = Constant[value_float=2](); %y = Mul(%x, %two)
    ```

    Calls inside functions and subgraphs too; attributes are put in place of their references; functions that nobody
    calls are dropped, and so are those in whose place there is a custom operator: calls of it stay, as its nodes.
    Branches of an `If` may use the same names side by side in ONNX; here they may not, so that passes can move nodes
    out of subgraphs.

    Raises InvalidGraph where functions call one another in a circle or need another opset than the model's.
    """
    changed = bool(model.functions)
    for key in [key for key in model.functions if custom_ops.find(*key[:2])]:
        del model.functions[key]
    if model.functions:
        try:
            InlinePass()(model)
        except (ValueError, ir.passes.PassError, ir.passes.InvariantError) as error:
            raise InvalidGraph(f"the model's functions cannot be inlined: {error.__cause__ or error}") from error
        model.functions.clear()
    return _make_names_unique(model) or changed


def _make_names_unique(model: ir.Model) -> bool:
    """Rename values whose name is missing or taken; the main graph's inputs and outputs keep theirs."""
    fixed = {id(value) for value in (*model.graph.inputs, *model.graph.outputs)}
    taken = {value.name for value in (*model.graph.inputs, *model.graph.outputs)}
    changed = False
    for graph in model.graphs():
        for value in tuple(defined_in(graph)):
            if id(value) in fixed:
                continue
            if value.name in taken:
                value.name = _free_name(value.name or "value", taken)
                changed = True
            taken.add(value.name)
    return changed


def _free_name(wish: str, taken: set[str | None]) -> str:
    number = 1
    while f"{wish}_{number}" in taken:
        number += 1
    return f"{wish}_{number}"
