"""Stand-ins for com.microsoft's operators over quantised tensors: what inference sees of them.

Source: onnxruntime's ContribOperators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

from gossamer.model.stand_in import StandIn

MICROSOFT = "com.microsoft"


def _as_in_onnx(node: ir.Node) -> Sequence[StandIn]:
    """ONNX's operator of the same name."""
    return (StandIn(node.op_type, node.inputs, node.outputs, tuple(node.attributes.values())),)


def _matmul_integer_to_float(node: ir.Node) -> Sequence[StandIn]:
    """A · B in the type of their scales."""
    a, b, scale = node.inputs[:3]
    sums = f"{node.outputs[0].name}/sums"
    return StandIn("MatMulInteger", (a, b), (sums,)), StandIn("CastLike", (sums, scale), node.outputs)


def _dynamic_quantize_matmul(node: ir.Node) -> Sequence[StandIn]:
    """A · B in the type of A."""
    a, b = node.inputs[:2]
    real = f"{node.outputs[0].name}/b"
    return StandIn("CastLike", (b, a), (real,)), StandIn("MatMul", (a, real), node.outputs)


def _dynamic_quantize_lstm(node: ir.Node) -> Sequence[StandIn]:
    """LSTM, whose outputs depend on X and attributes alone; W and R are the other way round here."""
    return (StandIn("LSTM", node.inputs[:3], node.outputs, tuple(node.attributes.values())),)


RULES: Mapping[tuple[str, str], Callable[[ir.Node], Sequence[StandIn] | None]] = {
    (MICROSOFT, "DequantizeLinear"): _as_in_onnx,
    (MICROSOFT, "DynamicQuantizeLSTM"): _dynamic_quantize_lstm,
    (MICROSOFT, "DynamicQuantizeMatMul"): _dynamic_quantize_matmul,
    (MICROSOFT, "MatMulIntegerToFloat"): _matmul_integer_to_float,
    (MICROSOFT, "QuantizeLinear"): _as_in_onnx,
}
