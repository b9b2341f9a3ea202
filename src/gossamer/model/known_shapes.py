"""Which shapes are known as soon as those of the model's inputs are, before any signature is."""

from __future__ import annotations

import onnx_ir as ir

from gossamer.model.edit import is_constant
from gossamer.model.elementwise import RULES as ELEMENTWISE
from gossamer.model.layout import CONVOLUTIONS

# fmt: off
_OF_ALL_INPUTS = frozenset({"Concat", "Gemm", "MatMul"})
_OF_THE_FIRST = frozenset({
    "AveragePool", "BatchNormalization", "DepthToSpace", "Flatten", "GlobalAveragePool", "GlobalLpPool",
    "GlobalMaxPool", "GroupNormalization", "InstanceNormalization", "LRN", "LayerNormalization", "LogSoftmax",
    "LpPool", "MaxPool", "Pad", "ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "Reshape",
    "Resize", "Slice", "Softmax", "SpaceToDepth", "Split", "Squeeze", "Transpose", "Unsqueeze", "Upsample",
})
# fmt: on


def shapes_by_inputs(graph: ir.Graph) -> set[ir.Value]:
    """The values whose shapes follow from those of the graph's inputs, whatever is in them.

    Convolutional networks, mostly: elementwise operators, convolutions, pools, and what has constants for parameters.
    Anything else may have a shape that depends on data, and all that is made of it.
    """
    known = set(graph.inputs)
    for node in graph:
        activations = _activations(node)
        if activations and all(
            value is None or is_constant(value) or (index < activations and value in known)
            for index, value in enumerate(node.inputs)
        ):
            known.update(node.outputs)
    return known


def _activations(node: ir.Node) -> int:
    """How many inputs decide by their shapes alone; the others count for their contents. 0 where that is not known."""
    operator = (node.domain, node.op_type)
    if operator in ELEMENTWISE or operator in CONVOLUTIONS or (node.domain == "" and node.op_type in _OF_ALL_INPUTS):
        return len(node.inputs)
    return 1 if node.domain == "" and node.op_type in _OF_THE_FIRST else 0
