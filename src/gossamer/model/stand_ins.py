"""How a model is written for ONNX's shape inference: as of one opset, and without operators that it has no rule for.

As of opset 22 inference knows more than as of older ones: it follows integers, so that most computed shapes are found
in one go, and it drops windows of pools that would start in the padding at the end, as onnxruntime does in all opsets.

A stand-in is a few operators of ONNX whose outputs have the types and shapes of those they stand for, whatever they
compute: `Identity` for a softmax with a bias, `Conv` for a fused convolution.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache, partial
from typing import TypeAlias

import numpy as np
import onnx
import onnx_ir as ir

from gossamer.model import attention_shapes, quantized_shapes
from gossamer.model.node import FUSED
from gossamer.model.stand_in import Operand, StandIn

MICROSOFT = "com.microsoft"

OPSET = 22

# fmt: off
_SINCE = {
    **dict.fromkeys(("ArgMax", "ArgMin", "AveragePool", "Conv", "ConvTranspose", "DepthToSpace", "Flatten", "Gather",
                     "GlobalAveragePool", "GlobalMaxPool", "Identity", "If", "LRN", "LayerNormalization", "LogSoftmax",
                     "Loop", "MatMul", "MaxPool", "Not", "Shape", "Size", "Softmax", "Softplus", "Softsign",
                     "SpaceToDepth", "Transpose"), 1),
    "LpPool": 2, "Concat": 4, "Reshape": 5,
    **dict.fromkeys(("Abs", "Cast", "Ceil", "Clip", "Elu", "Exp", "Floor", "HardSigmoid", "InstanceNormalization",
                     "LeakyRelu", "Log", "Neg", "Reciprocal", "Relu", "Selu", "Sigmoid", "Sqrt", "Tanh", "Tile"), 6),
    **dict.fromkeys(("Add", "And", "Cos", "Div", "Equal", "Gemm", "Greater", "Less", "Mul", "Or", "PRelu", "Pow", "Sin",
                     "Sub", "Xor"), 7),
    **dict.fromkeys(("Expand", "Max", "Mean", "Min", "Sum"), 8),
    **dict.fromkeys(("ConstantOfShape", "Erf", "Scan", "Where"), 9),
    **dict.fromkeys(("Mod", "Slice", "ThresholdedRelu"), 10),
    **dict.fromkeys(("CumSum", "GatherElements", "GatherND", "Pad", "Range", "Round", "ScatterElements",
                     "ScatterND"), 11),
    "Celu": 12, "HardSwish": 14, "Mish": 18,
}
"""From which opset on an operator is written as in `OPSET`, for all that its outputs' types and shapes depend on."""
# fmt: on


@lru_cache(maxsize=1024)
def reads_as_newer(op_type: str, opset: int) -> bool:
    """Whether an operator of ONNX's domain means the same in `opset` and in `OPSET`, types and shapes concerned."""
    if opset >= _SINCE.get(op_type, OPSET):
        return True
    schemas = (onnx.defs.get_schema(op_type, version, "") for version in (opset, OPSET))
    return len({schema.since_version for schema in schemas}) == 1


def stand_ins(node: ir.Node) -> Sequence[StandIn] | None:
    """What to show inference for `node`; None where it is best shown itself.

    Sources: ONNX's operator definitions, and onnxruntime's ContribOperators for the domain com.microsoft.
    """
    rule = _RULES.get((node.domain, node.op_type))
    return None if rule is None else rule(node)


_Rule: TypeAlias = "Callable[[ir.Node], Sequence[StandIn] | None]"


def _like_first(node: ir.Node) -> Sequence[StandIn]:
    """The first output is like the first input."""
    return (StandIn("Identity", node.inputs[:1], node.outputs[:1]),)


def _without_activation(op_type: str) -> _Rule:
    """The operator without what is fused to it."""

    def rule(node: ir.Node) -> Sequence[StandIn]:
        kept = [value for name, value in node.attributes.items() if not name.startswith("activation")]
        return (StandIn(op_type, node.inputs[:3], node.outputs, kept),)

    return rule


def _with_axes(node: ir.Node) -> Sequence[StandIn]:
    """Axes as an input, which they became in opset 13: shapes are computed with these two."""
    axes = node.attributes.get("axes")
    if axes is None:
        return (StandIn(node.op_type, node.inputs, node.outputs),)
    name = f"{node.outputs[0].name}/axes"
    constant = StandIn("Constant", (), (name,), (ir.AttrInt64s("value_ints", axes.as_ints()),))
    return (constant, StandIn(node.op_type, (*node.inputs[:1], name), node.outputs))


def _batch_normalization(node: ir.Node) -> Sequence[StandIn]:
    """Statistics are like the mean and variance that go in: before opset 14 inference knows nothing of them, and since
    then it wants all or none."""
    sources = (node.inputs[0], *node.inputs[3:5], *node.inputs[3:5])
    pairs = zip(sources, node.outputs, strict=False)
    return [StandIn("Identity", (source,), (value,)) for source, value in pairs if value.name]


def _pad(node: ir.Node) -> Sequence[StandIn] | None:
    """Axes as int64: inference reads no others."""
    axes = node.inputs[3].const_value if len(node.inputs) > 3 and node.inputs[3] is not None else None
    if axes is None or axes.dtype == ir.DataType.INT64:
        return None
    name = f"{node.outputs[0].name}/axes"
    constant = StandIn("Constant", (), (name,), (ir.AttrInt64s("value_ints", axes.numpy().tolist()),))
    return (constant, StandIn("Pad", (*node.inputs[:3], name), node.outputs, _except(node, ())))


def _max_unpool(node: ir.Node) -> Sequence[StandIn] | None:
    """The third input is the shape of the output."""
    dtype = None if node.inputs[0] is None else node.inputs[0].dtype
    if len(node.inputs) < 3 or node.inputs[2] is None or dtype is None:
        return None
    zero = ir.AttrTensor("value", ir.Tensor(np.zeros(1, dtype.numpy())))
    return (StandIn("ConstantOfShape", node.inputs[2:], node.outputs, (zero,)),)


def _pool(node: ir.Node) -> Sequence[StandIn] | None:
    """Without `ceil_mode` where `auto_pad` is VALID: by the text extents are the same with and without it, while
    inference rounds them up."""
    mode = node.attributes.get("auto_pad")
    if mode is None or mode.as_string() != "VALID":
        return None
    return (StandIn(node.op_type, node.inputs, node.outputs, _except(node, {"ceil_mode"})),)


def _skip_norm(node: ir.Node) -> Sequence[StandIn]:
    """Outputs: the norm, its mean and 1 / deviation, and the sum of the inputs, like the norm."""
    x, gamma = node.inputs[0], node.inputs[2]
    norm = StandIn("LayerNormalization", (x, gamma), node.outputs[:3])
    return (norm, StandIn("Identity", (x,), node.outputs[3:])) if len(node.outputs) > 3 else (norm,)


def _rms_norm(node: ir.Node) -> Sequence[StandIn]:
    """Outputs: the norm and 1 / rms."""
    axis = [attribute for name, attribute in node.attributes.items() if name == "axis"]
    y, scale = (*node.outputs, None)[:2]
    return (StandIn("LayerNormalization", node.inputs[:2], (y, None, scale), axis),)


def _matmul(node: ir.Node) -> Sequence[StandIn]:
    """The operands transposed as it says, whatever their ranks."""
    steps: list[StandIn] = []
    operands: list[Operand] = []
    for side, value in zip("AB", node.inputs, strict=False):
        # transBatchA moves the first axis before the last two, transA swaps these then.
        swapped, moved = _flag(node, f"trans{side}"), _flag(node, f"transBatch{side}")
        before, after = ("i...j" if moved else "...ij"), ("...ji" if swapped else "...ij")
        operands.append(f"{node.outputs[0].name}/{side}" if before != after else value)
        if before != after:
            equation = ir.AttrString("equation", f"{before}->{after}")
            steps.append(StandIn("Einsum", (value,), operands[-1:], (equation,)))
    return (*steps, StandIn("MatMul", operands, node.outputs))


def _skip_group_norm(node: ir.Node) -> Sequence[StandIn]:
    """Outputs: the norm, and the sum of the inputs, like the first of them."""
    return [StandIn("Identity", node.inputs[:1], (value,)) for value in node.outputs if value.name]


def _nhwc_conv(node: ir.Node, *, filters_last: bool) -> Sequence[StandIn]:
    """Conv over N, spatial…, C. filters_last: filters have their channels last too."""
    name, x = node.outputs[0].name, node.inputs[0]
    rank = 4 if x is None or x.shape is None else x.shape.rank()
    first = ir.AttrInt64s("perm", (0, rank - 1, *range(1, rank - 1)))
    last = ir.AttrInt64s("perm", (0, *range(2, rank), 1))
    filters: Operand = f"{name}/filters" if filters_last else node.inputs[1]
    kept = [value for attribute, value in node.attributes.items() if not attribute.startswith("activation")]
    steps = [StandIn("Transpose", node.inputs[1:2], (filters,), (first,))] if filters_last else []
    return (
        *steps,
        StandIn("Transpose", (x,), (f"{name}/x",), (first,)),
        StandIn("Conv", (f"{name}/x", filters), (f"{name}/y",), kept),
        StandIn("Transpose", (f"{name}/y",), node.outputs, (last,)),
    )


def _conv_transpose(node: ir.Node) -> Sequence[StandIn] | None:
    """The extents that its text says, which inference forgets in two cases.

    `output_shape`: it stops halfway where that is less than what went in, so it sees a single pixel go in. `auto_pad`
    SAME_…: extents are those of the input times the strides, as with a filter of the strides' size and no padding.
    """
    ignored = {"activation", "activation_params"}
    if "output_shape" in node.attributes:
        pixel: Operand = f"{node.outputs[0].name}/pixel"
        first = [StandIn("GlobalAveragePool", node.inputs[:1], (pixel,))]
        return (*first, StandIn("ConvTranspose", (pixel, *node.inputs[1:3]), node.outputs, _except(node, ignored)))
    mode = node.attributes.get("auto_pad")
    if mode is None or not mode.as_string().startswith("SAME"):
        return (StandIn("ConvTranspose", node.inputs[:3], node.outputs, _except(node, ignored)),)
    strides, weight = node.attributes.get("strides"), node.inputs[1]
    if strides is not None:
        taps = strides.as_ints()
    elif weight is not None and weight.shape is not None:
        taps = (1,) * (weight.shape.rank() - 2)
    else:
        return None
    kept = _except(node, ignored | {"kernel_shape", "dilations", "output_padding", "auto_pad"})
    kept.append(ir.AttrInt64s("kernel_shape", taps))
    return (StandIn("ConvTranspose", node.inputs[:3], node.outputs, kept),)


def _except(node: ir.Node, ignored: Collection[str]) -> list[ir.Attr]:
    """The node's attributes but for some."""
    return [value for name, value in node.attributes.items() if name not in ignored]


def _flag(node: ir.Node, name: str) -> bool:
    attribute = node.attributes.get(name)
    return attribute is not None and attribute.as_int() != 0


_RULES: Mapping[tuple[str, str], _Rule] = {
    (FUSED, "FusedConv"): _without_activation("Conv"),
    (FUSED, "FusedConvTranspose"): _conv_transpose,
    ("", "SimplifiedLayerNormalization"): _rms_norm,
    ("", "Squeeze"): _with_axes,
    ("", "Unsqueeze"): _with_axes,
    ("", "AveragePool"): _pool,
    ("", "BatchNormalization"): _batch_normalization,
    ("", "ConvTranspose"): _conv_transpose,
    ("", "LpPool"): _pool,
    ("", "MaxPool"): _pool,
    ("", "MaxUnpool"): _max_unpool,
    ("", "Pad"): _pad,
    ("", "GroupNormalization"): _like_first,
    ("", "MeanVarianceNormalization"): _like_first,
    (MICROSOFT, "FusedConv"): _without_activation("Conv"),
    (MICROSOFT, "NhwcConv"): partial(_nhwc_conv, filters_last=True),
    (MICROSOFT, "NhwcFusedConv"): partial(_nhwc_conv, filters_last=False),
    (MICROSOFT, "FusedGemm"): _without_activation("Gemm"),
    (MICROSOFT, "FusedMatMul"): _matmul,
    (MICROSOFT, "BiasGelu"): _like_first,
    (MICROSOFT, "FastGelu"): _like_first,
    (MICROSOFT, "Gelu"): _like_first,
    (MICROSOFT, "QuickGelu"): _like_first,
    (MICROSOFT, "BiasSoftmax"): _like_first,
    (MICROSOFT, "GroupNorm"): _like_first,
    (MICROSOFT, "SkipGroupNorm"): _skip_group_norm,
    (MICROSOFT, "RotaryEmbedding"): _like_first,
    (MICROSOFT, "SimplifiedLayerNormalization"): _rms_norm,
    (MICROSOFT, "SkipLayerNormalization"): _skip_norm,
    (MICROSOFT, "SkipSimplifiedLayerNormalization"): _skip_norm,
    **attention_shapes.RULES,
    **quantized_shapes.RULES,
}
