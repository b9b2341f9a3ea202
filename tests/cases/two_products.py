"""A small model with everything an executor has: weights, several kernels, a temporary, an open dimension."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import gossamer

RNG = np.random.default_rng(0)
WEIGHT = RNG.standard_normal((64, 64)).astype(np.float32) / 8


def model(batch: int | str = "n") -> bytes:
    """y = softmax(relu(x · w) · w)."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("MatMul", ["b", "w"], ["c"], name="second"),
        helper.make_node("Softmax", ["c"], ["y"], name="softmax", axis=-1),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 64])
    graph = helper.make_graph(nodes, "two_products", [x], [y], [numpy_helper.from_array(WEIGHT, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    made: bytes = model.SerializeToString()
    onnx.checker.check_model(made)
    return made


def expected(x: np.ndarray) -> np.ndarray:
    c = np.maximum(x.astype(np.float64) @ WEIGHT, 0) @ WEIGHT
    e = np.exp(c - c.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def session(**options: object) -> gossamer.InferenceSession:
    return gossamer.InferenceSession(
        model(), providers=[("CUDAExecutionProvider", {"device": "cuda", "use_tf32": "0", **options})]
    )
