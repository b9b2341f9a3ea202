"""What the operators that passes make mean, in ONNX's own: so onnxruntime can say whether a pass kept the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
from onnx import helper, numpy_helper

from gossamer.model.edit import static_shape
from gossamer.model.load import load
from gossamer.model.passes import Pass, infer_shapes, run_passes
from gossamer.model.text import to_text
from harness import assert_close, ort

OURS = ("gossamer", "gossamer.nhwc")
NEW = (("", "LayerNormalization"), ("", "RMSNormalization"))
"""ONNX operators that passes make whatever the model's opset, which may not have them yet."""


def parse(source: str, opset: int = 20) -> onnx.ModelProto:
    """A graph in ONNX's own text syntax as a model."""
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}, "com.microsoft" : 1]>\n' + source)


def run_and_compare(source: onnx.ModelProto, *steps: Pass, reduction: int = 64) -> str:
    """The text after the passes, which must change the model but not its answers; a second run must change nothing."""
    model = load(source)
    infer_shapes(model)
    assert run_passes(model, steps), "the passes changed nothing"
    text = to_text(model)
    assert not run_passes(model, steps), "the passes are not idempotent"
    assert to_text(model) == text
    same_answers(source, model, reduction)
    return text


def unchanged(source: onnx.ModelProto, *steps: Pass) -> None:
    model = load(source)
    infer_shapes(model)
    text = to_text(model)
    assert not run_passes(model, steps)
    assert to_text(model) == text


def same_answers(source: onnx.ModelProto, model: ir.Model, reduction: int) -> None:
    """Both give the same for random inputs, and every value has the type and shape that the model says."""
    feeds = random_feeds(source)
    spelt_out = in_onnx(model)
    onnx.shape_inference.infer_shapes(spelt_out, check_type=True, strict_mode=True)
    for got, want in zip(ort(spelt_out, feeds), ort(source, feeds), strict=True):
        assert_close(got, want, reduction)


def random_feeds(source: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Normally distributed inputs of the declared shapes, which are static."""
    rng = np.random.default_rng(0)
    feeds = {}
    for value in source.graph.input:
        tensor = value.type.tensor_type
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        feeds[value.name] = (rng.standard_normal([dim.dim_value for dim in tensor.shape.dim]) * 2).astype(dtype)
    return feeds


def in_onnx(model: ir.Model) -> onnx.ModelProto:
    """The model without operators of our domains."""
    values = {v.name: v for node in model.graph for v in (*node.inputs, *node.outputs) if v is not None}
    shapes = {name: static_shape(value) for name, value in values.items()}
    proto = ir.to_proto(model)
    nodes = list(proto.graph.node)
    del proto.graph.node[:]
    for node in nodes:
        if node.domain in OURS or (node.domain, node.op_type) in NEW:
            types = {name: int(value.dtype) for name, value in values.items() if value.dtype is not None}
            opset = model.opset_imports.get("", 1)
            proto.graph.node.extend(_Spelling(proto.graph, node, shapes, types, opset).nodes())
        else:
            proto.graph.node.append(node)
    read = {name for node in proto.graph.node for name in node.input}
    for tensor in [tensor for tensor in proto.graph.initializer if tensor.name not in read]:
        proto.graph.initializer.remove(tensor)  # onnxruntime trips over them
    return proto


class _Spelling:
    """One of our nodes as nodes of ONNX."""

    def __init__(
        self, graph: onnx.GraphProto, node: onnx.NodeProto, shapes: dict[str, Any], types: dict[str, int], opset: int
    ) -> None:
        self.graph, self.node, self.shapes, self.types, self.opset = graph, node, shapes, types, opset
        self.attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        self.made: list[onnx.NodeProto] = []

    def nodes(self) -> Iterator[onnx.NodeProto]:
        name = self.node.op_type
        is_norm = name.endswith(("LayerNormalization", "RMSNormalization"))
        results = self._norm() if is_norm else [self._result(name)]
        yield from self.made
        for result, output in zip(results, (self.node.output[0], *self.node.output[3:]), strict=False):
            yield helper.make_node("Identity", [result], [output])

    def _result(self, name: str) -> str:
        if name == "RotaryEmbedding":
            return self._rotary()
        if name == "FusedAttention":
            return self._attention()
        return self._matmul() if name == "FusedMatMul" else self._windowed()

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        name = f"{self.node.output[0]}.{len(self.made)}"
        self.made.append(helper.make_node(op_type, inputs, [name], **attributes))
        return name

    def constant(self, value: float | Sequence[int]) -> str:
        """A number of the output's type, or a list of axes."""
        name = f"{self.node.output[0]}.constant{len(self.graph.initializer)}"
        self.graph.initializer.append(
            numpy_helper.from_array(np.array(value, np.float32 if isinstance(value, float) else np.int64), name)
        )
        return name

    def _windowed(self) -> str:
        """A convolution, pool … in either layout."""
        node, last = self.node, self.node.domain == "gossamer.nhwc"
        kept = {
            k: v for k, v in self.attributes.items() if k not in ("activation", "activation_params", "x_channels_first")
        }
        inputs = list(node.input)
        if last and not self.attributes.get("x_channels_first"):
            inputs[0] = self._first(inputs[0])
        value = self.op(node.op_type.removeprefix("Fused"), *inputs[:3] if "Conv" in node.op_type else inputs, **kept)
        if "Conv" in node.op_type and len(inputs) > 3:
            value = self.op("Add", value, self._first(inputs[3]) if last else inputs[3])
        value = self._activated(value)
        rank = len(self.shapes[node.output[0]])
        return self.op("Transpose", value, perm=[0, *range(2, rank), 1]) if last else value

    def _first(self, name: str) -> str:
        rank = len(self.shapes[name])
        return self.op("Transpose", name, perm=[0, rank - 1, *range(1, rank - 1)])

    def _norm(self) -> list[str]:
        """The norm, and the sum that it is of where there is a skip input; in fp32, or fp64."""
        exact = 11 if self.types[self.node.input[0]] == 11 else 1
        inputs = [self.op("Cast", name, to=exact) if name else "" for name in self.node.input]
        inputs += [""] * (5 - len(inputs))
        x, centred = inputs[0], "RMS" not in self.node.op_type and "Simplified" not in self.node.op_type
        if self.node.op_type.startswith("Skip"):
            added = [inputs[1], inputs[4 if centred else 3]]
            for name in filter(None, added):
                x = self.op("Add", x, name)
            inputs = [x, inputs[2], inputs[3] if centred else ""]
        d = self.op("Sub", x, self._mean(x)) if centred else x
        epsilon = self.op("Cast", self.constant(self.attributes.get("epsilon", 1e-5)), to=exact)
        root = self.op("Sqrt", self.op("Add", self._mean(self.op("Mul", d, d)), epsilon))
        y = self.op("Div", d, root)
        y = self.op("Mul", y, inputs[1]) if inputs[1] else y
        y = self.op("Add", y, inputs[2]) if inputs[2] else y
        outputs = (self.node.output[0], *self.node.output[3:])
        return [self.op("Cast", r, to=self.types[name]) for r, name in zip((y, x), outputs, strict=False)]

    def _mean(self, x: str) -> str:
        """Over the axes from `axis` on."""
        rank = len(self.shapes[self.node.input[0]])
        axes = list(range(self.attributes.get("axis", -1) % rank, rank))
        return self.op("ReduceMean", x, axes=axes) if self.opset < 18 else self.op("ReduceMean", x, self.constant(axes))

    def _rotary(self) -> str:
        x, cos, sin = (self.op("Cast", name, to=1) for name in self.node.input)
        columns, size = (self.shapes[self.node.input[i]][-1] for i in (1, 0))
        parts = [columns // 2, columns // 2, size - columns]
        left, right, rest = (f"{self.node.output[0]}.part{i}" for i in range(3))
        self.made.append(helper.make_node("Split", [x, self.constant(parts)], [left, right, rest], axis=-1))
        turning = self.op("Concat", left, right, axis=-1)
        turned = self.op("Concat", self.op("Neg", right), left, axis=-1)
        y = self.op("Add", self.op("Mul", turning, cos), self.op("Mul", turned, sin))
        return self.op("Cast", self.op("Concat", y, rest, axis=-1), to=self.types[self.node.output[0]])

    def _attention(self) -> str:
        batch, heads, kv_heads, queries, keys, size, v_size = self.attributes["shape"]
        q, k, v, bias, mask = (*self.node.input, "", "")[:5]
        turned = self.op("Transpose", self._laid_out("K", k, (batch, heads, keys, size), kv_heads), perm=[0, 1, 3, 2])
        scores = self.op("MatMul", self._laid_out("Q", q, (batch, heads, queries, size)), turned)
        scores = self.op("Mul", scores, self._number(self.attributes.get("scale", 1.0)))
        if cap := float(self.attributes.get("softcap", 0.0)):
            scores = self.op("Mul", self.op("Tanh", self.op("Div", scores, self._number(cap))), self._number(cap))
        plane = (batch, heads, queries, keys)
        if mask:
            kept = self.op("Cast", self._laid_out("Mask", mask, plane), to=onnx.TensorProto.BOOL)
            scores = self.op("Where", kept, scores, self._number(self.attributes.get("fill", -np.inf)))
        if self.attributes.get("causal"):
            seen = self.constant(np.tri(queries, keys, self.attributes.get("first", 0)))
            scores = self.op("Where", self.op("Cast", seen, to=onnx.TensorProto.BOOL), scores, self._number(-np.inf))
        if bias:
            scores = self.op("Add", scores, self._laid_out("Bias", bias, plane))
        weights = self.op("Softmax", scores, axis=-1)
        if self.attributes.get("zero_empty"):
            weights = self.op("Where", self.op("IsNaN", weights), self._number(0.0), weights)
        y = self.op("MatMul", weights, self._laid_out("V", v, (batch, heads, keys, v_size), kv_heads))
        if "layoutY" in self.attributes:
            places = strided(self.attributes["layoutY"], (batch, heads, queries, v_size), heads)
            y = self.op("Gather", self.op("Reshape", y, self.constant([-1])), self.constant(np.argsort(places.ravel())))
        y = self.op("Reshape", y, self.constant(self.shapes[self.node.output[0]]))
        return self.op("Cast", y, to=self.types[self.node.output[0]])

    def _laid_out(self, name: str, value: str, shape: Sequence[int], kv_heads: int | None = None) -> str:
        """An operand of an attention as a dense tensor, heads that serve several queries repeated."""
        heads = kv_heads or shape[1]
        dense = (0, heads * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1)
        places = strided(self.attributes.get(f"layout{name}", dense), shape, heads)
        flat = self.op("Reshape", value, self.constant([-1]))
        return self.op("Cast", self.op("Gather", flat, self.constant(places)), to=self._wide)

    def _number(self, value: float) -> str:
        return self.op("Cast", self.constant(float(value)), to=self._wide)

    @property
    def _wide(self) -> int:
        """What an attention is computed in."""
        is_double = self.types[self.node.output[0]] == onnx.TensorProto.DOUBLE
        return onnx.TensorProto.DOUBLE if is_double else onnx.TensorProto.FLOAT

    def _matmul(self) -> str:
        operands = [self._operand(name, side) for name, side in zip(self.node.input[:2], "AB", strict=True)]
        value = self.op("MatMul", *operands)
        if "alpha" in self.attributes:
            value = self.op("Mul", value, self.constant(self.attributes["alpha"]))
        for addend in self.node.input[2:]:
            value = self.op("Add", value, addend) if addend else value
        return self._activated(value)

    def _operand(self, name: str, side: str) -> str:
        axes = list(range(len(self.shapes[name])))
        if f"perm{side}" in self.attributes:
            name = self.op("Transpose", name, perm=self.attributes[f"perm{side}"])
        if self.attributes.get(f"trans{side}"):
            name = self.op("Transpose", name, perm=[*axes[:-2], axes[-1], axes[-2]])
        return name

    def _activated(self, x: str) -> str:
        kind = self.attributes.get("activation", b"none").decode()
        return ACTIVATIONS[kind](self, x, *map(float, self.attributes.get("activation_params", ())))


def strided(layout: Sequence[int], shape: Sequence[int], heads: int) -> np.ndarray:
    """Where in memory the elements of a [batch, heads, rows, columns] operand are; `heads` of them are there."""
    offset, *strides = layout
    b, h, row, column = np.ogrid[tuple(slice(extent) for extent in shape)]
    return offset + b * strides[0] + h // (shape[1] // heads) * strides[1] + row * strides[2] + column * strides[3]


def _plain(op_type: str, *names: str) -> Callable[..., str]:
    return lambda s, x, *values: s.op(op_type, x, **dict(zip(names, values, strict=True)))


def _silu(s: _Spelling, x: str, alpha: float = 1.0) -> str:
    return s.op("Mul", x, s.op("Sigmoid", s.op("Mul", x, s.constant(alpha))))


def _affine(s: _Spelling, x: str, alpha: float, beta: float) -> str:
    return s.op("Add", s.op("Mul", x, s.constant(alpha)), s.constant(beta))


def _hard_swish(s: _Spelling, x: str) -> str:
    return s.op("Mul", x, s.op("HardSigmoid", x, alpha=1 / 6, beta=0.5))


def _gelu(s: _Spelling, x: str) -> str:
    gate = s.op("Erf", s.op("Mul", x, s.constant(0.5**0.5)))
    return s.op("Mul", s.op("Mul", x, s.constant(0.5)), s.op("Add", gate, s.constant(1.0)))


def _gelu_tanh(s: _Spelling, x: str) -> str:
    cube = s.op("Mul", s.op("Pow", x, s.constant(3.0)), s.constant(0.044715))
    gate = s.op("Tanh", s.op("Mul", s.op("Add", x, cube), s.constant((2 / np.pi) ** 0.5 * 1.0)))
    return s.op("Mul", s.op("Mul", x, s.constant(0.5)), s.op("Add", gate, s.constant(1.0)))


ACTIVATIONS: dict[str, Callable[..., str]] = {
    "none": lambda s, x: x,
    "relu": _plain("Relu"),
    "affine_relu": lambda s, x, *p: _affine(s, s.op("Relu", x), *p),
    "clip": lambda s, x, low, high: s.op("Clip", x, s.constant(low), s.constant(high)),
    "leaky_relu": _plain("LeakyRelu", "alpha"),
    "thresholded_relu": _plain("ThresholdedRelu", "alpha"),
    "elu": _plain("Elu", "alpha"),
    "celu": _plain("Celu", "alpha"),
    "selu": _plain("Selu", "alpha", "gamma"),
    "sigmoid": _plain("Sigmoid"),
    "hard_sigmoid": _plain("HardSigmoid", "alpha", "beta"),
    "hard_swish": _hard_swish,
    "affine_hard_swish": lambda s, x, *p: _affine(s, _hard_swish(s, x), *p),
    "silu": _silu,
    "mish": lambda s, x: s.op("Mul", x, s.op("Tanh", s.op("Softplus", x))),
    "softplus": _plain("Softplus"),
    "softsign": _plain("Softsign"),
    "tanh": _plain("Tanh"),
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
}
