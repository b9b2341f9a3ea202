"""Custom operators' door: nodes of operators that users registered, as PythonCalls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gossamer.model.node import Node
from gossamer.program import AttributeValue, Buffer, Call, PythonCall, Refusal, TensorValue


def lower(node: Node, *, cudnn: bool) -> tuple[Call, ...] | Refusal:
    """The call of the function that is registered for the node. cudnn: whether the session lets it use cuDNN.

    Refused: attributes that are no data (graphs, types) or hold what a Program does not (sparse tensors, texts in
    tensors).
    """
    try:
        attributes = _as_data(node.attributes)
    except TypeError as error:
        return Refusal(str(error))
    inputs, outputs = (tuple(map(_name, buffers)) for buffers in (node.inputs, node.outputs))
    return (PythonCall(node.domain, node.op_type, attributes, inputs, outputs, cudnn),)


def _name(buffer: Buffer | None) -> str | None:
    return None if buffer is None else buffer.name


def _as_data(attributes: Mapping[str, Any]) -> tuple[tuple[str, AttributeValue], ...]:
    data = []
    for name, value in attributes.items():
        try:
            data.append((name, _value(value)))
        except TypeError as error:
            raise TypeError(
                f"a custom operator's attributes are numbers, texts and tensors; '{name}' is {error}"
            ) from None
    return tuple(data)


def _value(value: Any) -> AttributeValue:
    """Raises TypeError with what it is that a Program does not hold."""
    match value:
        case int() | float() | str():
            return value
        case tuple():
            return tuple(map(_value, value))
        case np.ndarray() if value.dtype.kind in "OSU":
            raise TypeError("a tensor of texts")
        case np.ndarray():
            return TensorValue(value.dtype.name, value.shape, value.tobytes())
    raise TypeError(f"a {type(value).__name__}")
