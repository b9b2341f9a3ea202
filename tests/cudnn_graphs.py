"""Graphs that tests plan, each a function of a graph and a data type. The tests' child processes import it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gossamer.cudnn import Graph, Tensor

BY_HEADS = (12 * 128 * 64, 64, 12 * 64, 1)  # [N, 12 heads, 128, 64], stored as [N, 128, heads, 64]


def images(graph: Graph, dtype: str) -> tuple[Tensor, Tensor]:
    x = graph.tensor("x", (8, 64, 56, 56), dtype, layout="NHWC")
    return x, graph.tensor("w", (64, 64, 3, 3), dtype, layout="NHWC")


def convolution(graph: Graph, dtype: str) -> Tensor:
    return graph.convolution(*images(graph, dtype), padding=1)


def convolution_bias_relu(graph: Graph, dtype: str) -> Tensor:
    x, w = images(graph, dtype)
    b = graph.tensor("b", (1, 64, 1, 1), dtype)
    return graph.relu(graph.add(graph.convolution(x, w, padding=1), b))


def convolution_transpose(graph: Graph, dtype: str) -> Tensor:
    x = graph.tensor("x", (8, 64, 28, 28), dtype, layout="NHWC")
    w = graph.tensor("w", (64, 32, 4, 4), dtype, layout="NHWC")
    return graph.convolution_transpose(x, w, padding=1, stride=2)


def matmul_bias_gelu(graph: Graph, dtype: str) -> Tensor:
    a = graph.tensor("a", (1, 256, 768), dtype)
    b = graph.tensor("b", (1, 768, 512), dtype)
    bias = graph.tensor("bias", (1, 1, 512), dtype)
    return graph.gelu(graph.add(graph.matmul(a, b), bias))


def pool(graph: Graph, dtype: str) -> Tensor:
    x = graph.tensor("x", (8, 64, 56, 56), dtype, layout="NHWC")
    return graph.pool("max", x, 3, padding=1, stride=2)


def layer_normalization(graph: Graph, dtype: str) -> Tensor:
    x = graph.tensor("x", (512, 768, 1, 1), dtype)
    scale = graph.tensor("scale", (1, 768, 1, 1), "float32")
    bias = graph.tensor("bias", (1, 768, 1, 1), "float32")
    return graph.normalization("layer", x, scale, bias, epsilon=1e-6)


def rms_normalization(graph: Graph, dtype: str) -> Tensor:
    x = graph.tensor("x", (512, 768, 1, 1), dtype)
    return graph.normalization("rms", x, graph.tensor("scale", (1, 768, 1, 1), "float32"))


def instance_normalization(graph: Graph, dtype: str) -> Tensor:
    x = graph.tensor("x", (8, 64, 56, 56), dtype, layout="NHWC")
    scale, bias = (graph.tensor(name, (1, 64, 1, 1), "float32") for name in ("scale", "bias"))
    return graph.normalization("instance", x, scale, bias)


def batch_normalization(graph: Graph, dtype: str) -> Tensor:
    x = graph.tensor("x", (8, 64, 56, 56), dtype, layout="NHWC")
    channels = (graph.tensor(name, (1, 64, 1, 1), "float32") for name in ("scale", "bias", "mean", "deviation"))
    return graph.batch_normalization(x, *channels)


def reduction(graph: Graph, dtype: str) -> Tensor:
    return graph.reduction("add", graph.tensor("x", (512, 768), dtype), [1])


def attention(graph: Graph, dtype: str, **how: Any) -> Tensor:
    q, k, v = (graph.tensor(name, (2, 12, 128, 64), dtype, strides=BY_HEADS) for name in "qkv")
    return graph.attention(q, k, v, **how)


def causal_attention(graph: Graph, dtype: str) -> Tensor:
    return attention(graph, dtype, causal=True)


def masked_attention(graph: Graph, dtype: str) -> Tensor:
    return attention(graph, dtype, bias=graph.tensor("mask", (2, 1, 1, 128), dtype), scale=0.25)


ALL = ("float16", "bfloat16", "float32")

CASES: dict[str, tuple[Callable[[Graph, str], Tensor], tuple[str, ...]]] = {
    "convolution": (convolution, ALL),
    "convolution_bias_relu": (convolution_bias_relu, ALL),
    "convolution_transpose": (convolution_transpose, ALL),
    "matmul_bias_gelu": (matmul_bias_gelu, ALL),
    "pool": (pool, ALL),
    "layer_normalization": (layer_normalization, ALL),
    "rms_normalization": (rms_normalization, ("bfloat16",)),
    "instance_normalization": (instance_normalization, ("float16",)),
    "batch_normalization": (batch_normalization, ("float16",)),
    "reduction": (reduction, ("float32",)),
    "attention": (attention, ALL),
    "causal_attention": (causal_attention, ("float16",)),
    "masked_attention": (masked_attention, ("bfloat16",)),
}
"""Name → how it is built, and the data types that it is planned for."""


def build(graph: Graph, case: str, dtype: str = "float16") -> Graph:
    """The case in a graph, with its result as output `y`."""
    graph.output(CASES[case][0](graph, dtype), name="y")
    return graph
