"""Types that contradict each other: what the operators' texts say of their inputs, which of them are of one type, and
what the file says of the model's outputs.

Kernels take it for granted: they would read an operand of another type beyond its end. ONNX's shape inference does not
look at it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import onnx
import onnx_ir as ir

from gossamer.errors import InvalidGraph
from gossamer.model.edit import dtype_name, name_of


def check_types(model: ir.Model) -> None:
    """Raises InvalidGraph for the first node of the main graph whose inputs differ in type where its text has one.

    Types that are not known yet contradict nothing.
    """
    for node in model.graph:
        if node.domain or len(node.inputs) < 2:
            continue
        version = node.version or model.graph.opset_imports.get("", 1)
        problem = _contradiction(node, _parameters(node.op_type, version, len(node.inputs)))
        if problem:
            raise InvalidGraph(f"node '{name_of(node)}' ({node.op_type}): {problem}")


def check_outputs(model: ir.Model, declared: Sequence[ir.DataType | None]) -> None:
    """Raises InvalidGraph where an output is not of the type that the file declares, and sessions tell."""
    for value, dtype in zip(model.graph.outputs, declared, strict=True):
        if dtype is not None and value.dtype is not None and value.dtype is not dtype:
            kinds = f"{dtype_name(dtype)}, and what makes it gives {dtype_name(value.dtype)}"
            raise InvalidGraph(f"the output '{value.name}' is declared as {kinds}; export the model again")


def _contradiction(node: ir.Node, parameters: tuple[str, ...]) -> str | None:
    bound: dict[str, ir.Value] = {}
    for value, parameter in zip(node.inputs, parameters, strict=False):
        if value is None or value.dtype is None or not parameter:
            continue
        first = bound.setdefault(parameter, value)
        if first.dtype is not value.dtype:
            return f"its inputs {_typed(first)} and {_typed(value)} have to be of one type; insert a Cast"
    return None


def _typed(value: ir.Value) -> str:
    assert value.dtype is not None
    return f"'{value.name}' ({dtype_name(value.dtype)})"


@cache
def _parameters(op_type: str, version: int, n_inputs: int) -> tuple[str, ...]:
    """The type parameter of each input, such as `T`; nothing where each input may be of another type."""
    if not onnx.defs.has(op_type, version, ""):
        return ()
    formals = list(onnx.defs.get_schema(op_type, version, "").inputs)
    if formals:  # a variadic input, which is the last one, stands for all that follow
        formals += formals[-1:] * (n_inputs - len(formals))
    return tuple(formal.type_str if formal.is_homogeneous else "" for formal in formals)
