"""Small models to compile ahead of time: the interpreter's and the GPU's tests compile the same ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from our_operators import parse, random_feeds


@dataclass(frozen=True)
class CompiledCase:
    """on_cpu: how many nodes the CPU provider gets. reduction: of the longest sum, for tolerances."""

    name: str
    model: Callable[[], ModelProto]
    on_cpu: int = 0
    reduction: int = 64

    def __str__(self) -> str:
        return self.name

    def feeds(self) -> dict[str, np.ndarray]:
        return {name: np.asarray(array) for name, array in random_feeds(self.model()).items()}  # scalars, too


def with_weights(text: str, *weights: str, opset: int = 20) -> ModelProto:
    """A graph in ONNX's text syntax, some of whose inputs become initialisers."""
    model = parse(text, opset)
    arrays: Mapping[str, np.ndarray] = random_feeds(model)
    kept = [value for value in model.graph.input if value.name not in weights]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.extend(numpy_helper.from_array(arrays[name] / 2, name) for name in weights)
    return model


def convolution() -> ModelProto:
    return with_weights(
        """g (float[2,3,12,12] x, float[16,3,3,3] w, float[16] b, float[16,16,1,1] v) => (float[2,16,6,6] y) {
            c = Conv <pads = [1,1,1,1]> (x, w, b) r = Relu (c) d = Conv (r, v)
            y = MaxPool <kernel_shape = [2,2], strides = [2,2]> (d) }""",
        *("w", "b", "v"),
    )


def product_and_norm() -> ModelProto:
    return with_weights(
        """g (float[2,8,32] x, float[32,64] w, float[64] b, float[64] s) => (float[2,8,64] y) {
            m = MatMul (x, w) a = Add (m, b) g = Gelu (a) y = LayerNormalization (g, s, b) }""",
        *("w", "b", "s"),
    )


def attention() -> ModelProto:
    return with_weights(
        """g (float16[1,4,32,16] q, float16[1,4,16,32] k, float16[1,4,32,16] v) => (float16[1,4,32,16] y) {
            s = MatMul (q, k) p = Softmax <axis = -1> (s) y = MatMul (p, v) }"""
    )


def with_a_node_on_the_cpu() -> ModelProto:
    """How many elements NonZero finds is known to nobody before."""
    return with_weights(
        """g (float[4,16] x, float[16,8] w) => (int64[2,n] found, float[4,8] y) {
            m = MatMul (x, w) r = Relu (m) found = NonZero (r) y = Neg (r) }""",
        "w",
    )


def narrow_weights() -> ModelProto:
    """Products with weights as language models have them: 4-bit integers in blocks of 32 with a scale and a zero point
    each, and 8-bit floats with a scale for each column."""
    rng = np.random.default_rng(0)
    block = {"axis": 0, "block_size": 32}
    nodes = [
        helper.make_node("DequantizeLinear", ["v", "v_scale", "v_zero"], ["v_real"], name="v_real", **block),
        helper.make_node("MatMul", ["x", "v_real"], ["m"]),
        helper.make_node("DequantizeLinear", ["w", "w_scale"], ["w_real"], name="w_real"),
        helper.make_node("MatMul", ["m", "w_real"], ["y"]),
    ]
    arrays = {
        "v": rng.integers(0, 16, (96, 64)).astype(ml_dtypes.uint4),
        "v_scale": rng.uniform(0.01, 0.02, (3, 64)).astype(np.float32),
        "v_zero": rng.integers(6, 10, (3, 64)).astype(ml_dtypes.uint4),
        "w": rng.standard_normal((64, 40)).astype(ml_dtypes.float8_e4m3fn),
        "w_scale": rng.uniform(0.05, 0.1, (40,)).astype(np.float32),
    }
    graph = helper.make_graph(
        nodes,
        "narrow_weights",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (5, 96))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (5, 40))],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def one_name_for_two_weights() -> ModelProto:
    """Nodes with a `w` of their own: two run on the CPU, since their condition is fed, and two do not. Between them a
    product keeps them apart."""

    def branch(factor: float) -> object:
        output = helper.make_tensor_value_info("out", TensorProto.FLOAT, [4, 4])
        weight = numpy_helper.from_array(np.full((4, 4), factor, np.float32), "w")
        node = helper.make_node("Mul", [inside, "w"], ["out"])
        return helper.make_graph([node], "branch", [], [output], [weight])

    nodes, inside = [], "x"
    for index, (condition, factor) in enumerate([("fed", 2.0), ("true", 3.0), ("fed", 5.0), ("true", 7.0)]):
        branches = {"then_branch": branch(factor), "else_branch": branch(-factor)}
        nodes.append(helper.make_node("If", [condition], [f"i{index}"], name=f"if{index}", **branches))
        nodes.append(helper.make_node("MatMul", [f"i{index}", "m"], [f"p{index}"], name=f"matmul{index}"))
        inside = f"p{index}"
    rng = np.random.default_rng(0)
    graph = helper.make_graph(
        nodes,
        "one_name",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 4]),
            helper.make_tensor_value_info("fed", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info(inside, TensorProto.FLOAT, [4, 4])],
        [
            numpy_helper.from_array(rng.standard_normal((4, 4)).astype(np.float32), "m"),
            numpy_helper.from_array(np.array(True), "true"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


CASES = [
    CompiledCase("convolution", convolution),
    CompiledCase("product and norm", product_and_norm),
    CompiledCase("attention", attention),
    CompiledCase("a node on the CPU", with_a_node_on_the_cpu, on_cpu=1),
    CompiledCase("one name for two weights", one_name_for_two_weights, on_cpu=2),
    CompiledCase("narrow weights", narrow_weights, reduction=160),
]
