"""A model of one node, from the node and what it is fed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper

from gossamer.errors import InvalidArgument

OutputInfo: TypeAlias = tuple[Any, Sequence[int]]
"""The dtype and the shape of an output."""


def model_of_node(
    node: onnx.NodeProto,
    inputs: Sequence[np.ndarray[Any, np.dtype[Any]]],
    outputs: Sequence[OutputInfo] | None = None,
    opset: int | None = None,
) -> onnx.ModelProto:
    """The node as a model whose inputs and outputs have the node's names.

    inputs: arrays for those inputs that are not omitted. outputs: what those outputs are that are not omitted; None:
    shape inference finds out. opset: version of the node's domain; None: the newest that the onnx package has.
    Raises InvalidArgument where the numbers of inputs or outputs are not the node's.
    """
    fed = list(dict.fromkeys(filter(None, node.input)))
    made = list(filter(None, node.output))
    if len(inputs) != len(fed) or (outputs is not None and len(outputs) != len(made)):
        raise InvalidArgument(
            f"{node.op_type} has the inputs {fed} and the outputs {made}, got {len(inputs)} inputs"
            + ("" if outputs is None else f" and {len(outputs)} outputs")
        )
    infos = [_info(name, array.dtype, array.shape) for name, array in zip(fed, inputs, strict=True)]
    results = (
        [helper.make_empty_tensor_value_info(name) for name in made]
        if outputs is None
        else [_info(name, np.dtype(dtype), shape) for name, (dtype, shape) in zip(made, outputs, strict=True)]
    )
    version = _newest(node.domain) if opset is None else opset
    imports = [helper.make_opsetid(node.domain, version)]
    graph = helper.make_graph([node], node.op_type, infos, results)
    return helper.make_model(graph, opset_imports=imports)


def _info(name: str, dtype: np.dtype[Any], shape: Sequence[int]) -> onnx.ValueInfoProto:
    kind = onnx.TensorProto.STRING if dtype.kind in "OU" else helper.np_dtype_to_tensor_dtype(dtype)
    return helper.make_tensor_value_info(name, kind, shape)


def _newest(domain: str) -> int:
    """The newest version of a domain; 1 where the onnx package does not know it."""
    versions = onnx.defs.get_all_schemas_with_history()
    return max((schema.since_version for schema in versions if schema.domain == domain), default=1)
