"""A BERT encoder as PyTorch's exporter writes one, with random weights: Devlin et al. 2019, arXiv:1810.04805.

Embeddings, then layers of self-attention and a feed-forward network, each followed by a skip connection and a layer
normalisation; norms and GELU are spelt out, since the operators for them are younger than most exported models.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 14
EPSILON = 1e-12
VOCABULARY = 1000
"""Words; BERT's 30,522 would only make the file larger."""


@dataclass
class _Graph:
    """Nodes and initialisers as they come. seed: of the weights."""

    seed: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)

    def __call__(self, op_type: str, *inputs: str, **attributes: object) -> str:
        """A node; the name of its output."""
        y = f"{op_type}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [y], name=y, **attributes))
        return y

    def constant(self, values: object, dtype: type = np.float32) -> str:
        name = f"constant_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def weight(self, *shape: int, around: float = 0.0) -> str:
        """Normal, with the deviation that BERT is initialised with."""
        return self.constant(around + 0.02 * self._random.standard_normal(shape, np.float32))

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        return self("Add", self.weight(outputs), self("MatMul", x, self.weight(inputs, outputs)))

    def norm(self, x: str, width: int) -> str:
        centred = self("Sub", x, self("ReduceMean", x, axes=[-1]))
        variance = self("ReduceMean", self("Pow", centred, self.constant(2)), axes=[-1])
        normal = self("Div", centred, self("Sqrt", self("Add", variance, self.constant(EPSILON))))
        return self("Add", self("Mul", normal, self.weight(width, around=1.0)), self.weight(width))

    def gelu(self, x: str) -> str:
        erf = self("Erf", self("Div", x, self.constant(np.sqrt(2))))
        return self("Mul", self("Mul", x, self("Add", erf, self.constant(1))), self.constant(0.5))


def bert_encoder(
    layers: int = 12, width: int = 768, heads: int = 12, tokens: int = 128, seed: int = 0
) -> onnx.ModelProto:
    """BERT-base unless told otherwise, for one batch size that is open: input_ids and attention_mask, int64[batch,
    tokens], to last_hidden_state, float[batch, tokens, width]."""
    graph = _Graph(seed)
    words = graph("Gather", graph.weight(VOCABULARY, width), "input_ids")
    x = graph.norm(graph("Add", words, graph.weight(tokens, width)), width)
    mask = graph("Cast", graph("Unsqueeze", "attention_mask", graph.constant([1, 2], np.int64)), to=TensorProto.FLOAT)
    mask = graph("Mul", graph("Sub", graph.constant(1), mask), graph.constant(np.finfo(np.float32).min))
    for _ in range(layers):
        x = graph.norm(graph("Add", _attention(graph, x, mask, width, heads), x), width)
        inner = graph.gelu(graph.linear(x, width, 4 * width))
        x = graph.norm(graph("Add", graph.linear(inner, 4 * width, width), x), width)
    graph.nodes[-1].output[0] = "last_hidden_state"
    return _model(graph, tokens, width)


def _attention(graph: _Graph, x: str, mask: str, width: int, heads: int) -> str:
    size = width // heads
    split = graph.constant([0, -1, heads, size], np.int64)
    query, key, value = (graph("Reshape", graph.linear(x, width, width), split) for _ in range(3))
    query, value = (graph("Transpose", part, perm=[0, 2, 1, 3]) for part in (query, value))
    scores = graph("MatMul", query, graph("Transpose", key, perm=[0, 2, 3, 1]))
    scores = graph("Add", graph("Div", scores, graph.constant(np.sqrt(size))), mask)
    mixed = graph("Transpose", graph("MatMul", graph("Softmax", scores, axis=-1), value), perm=[0, 2, 1, 3])
    return graph.linear(graph("Reshape", mixed, graph.constant([0, -1, width], np.int64)), width, width)


def _model(graph: _Graph, tokens: int, width: int) -> onnx.ModelProto:
    integers = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", tokens])
        for name in ("input_ids", "attention_mask")
    ]
    output = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch", tokens, width])
    body = helper.make_graph(graph.nodes, "bert_encoder", integers, [output], graph.weights)
    return helper.make_model(body, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def feeds(tokens: int = 128, batch: int = 1, seed: int = 0) -> dict[str, np.ndarray]:
    """Words at random; the last quarter of the tokens is padding."""
    ids = np.random.default_rng(seed).integers(0, VOCABULARY, (batch, tokens), dtype=np.int64)
    mask = np.ones((batch, tokens), np.int64)
    mask[:, tokens - tokens // 4 :] = 0
    return {"input_ids": ids, "attention_mask": mask}
