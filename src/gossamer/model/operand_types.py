"""What the operators' texts say of the types of their inputs: which of them are of one type.

Kernels take it for granted: they would read an operand of another type beyond its end. ONNX's shape inference does not
look at it.
"""

from __future__ import annotations

from functools import cache

import onnx
import onnx_ir as ir

from gossamer.errors import InvalidGraph
from gossamer.model.edit import dtype_name


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
            name = node.name or next((value.name for value in node.outputs if value.name), "")
            raise InvalidGraph(f"node '{name}' ({node.op_type}): {problem}")


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
