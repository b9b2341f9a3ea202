"""com.microsoft::DynamicQuantizeLSTM: an LSTM whose weights are 8-bit integers.

onnxruntime quantises inputs and states at every step to multiply integers; here the weights become fp32 once, before
running, which is more exact: results differ by what that quantisation loses.
"""

from __future__ import annotations

import hashlib

import numpy as np

from gossamer.kernels.recurrent import recurrent_calls
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import Node
from gossamer.program import Buffer, Refusal, Target


@lowers("DynamicQuantizeLSTM", domain="com.microsoft")
def lower_dynamic_quantize_lstm(node: Node, target: Target) -> Lowered:
    """com.microsoft::DynamicQuantizeLSTM (-1): W [D, I, 4 H], R [D, H, 4 H]; LSTM's inputs, then W's scale and zero
    point and R's, of each direction or of each of its columns."""
    w, r = _weights(node, 1, 8), _weights(node, 2, 10)
    if w is None or r is None:
        return Refusal("DynamicQuantizeLSTM's weights, scales and zero points must be constants")
    return recurrent_calls(node, target, "LSTM", w, r)


def _weights(node: Node, index: int, scale_index: int) -> Buffer | None:
    """Weights as ONNX's LSTM has them, [D, 4 H, …] in fp32; None where they are no constant."""
    weights, scale, zero = node.inputs[index], node.constant(scale_index), node.constant(scale_index + 1)
    assert weights is not None
    if scale is None or zero is None or not node.is_constant(weights):
        return None
    directions, inputs, rows = weights.shape

    def dequantised(array: np.ndarray) -> np.ndarray:
        s, z = (values.reshape(directions, 1, -1).astype(np.float32) for values in (scale, zero))
        return np.ascontiguousarray(((array.astype(np.float32) - z) * s).swapaxes(1, 2))

    scales = hashlib.sha256(scale.tobytes() + zero.tobytes()).hexdigest()[:16]
    return node.derived(weights, f"by {scales}", (directions, rows, inputs), "float32", dequantised)
