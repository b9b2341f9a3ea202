"""Stand-ins for com.microsoft's attention operators: what inference sees of them.

Types and shapes flow as in the operators themselves: products of queries and keys, caches in front of new rows.
Source: onnxruntime's ContribOperators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from gossamer.model.edit import constant_of, static_shape
from gossamer.model.stand_in import Operand, StandIn

MICROSOFT = "com.microsoft"


class _Steps:
    """Stand-ins in the making. Intermediate values are named after the node's first output."""

    def __init__(self, node: ir.Node) -> None:
        self.node = node
        self.made: list[StandIn] = []

    def op(self, op_type: str, *inputs: Operand, outputs: int = 1, **attributes: int | Sequence[int]) -> str:
        """The name of the first output of one more operator; those of further ones end in .1, .2 …"""
        name = f"{self.node.outputs[0].name}/{op_type}{len(self.made)}"
        names = [name, *(f"{name}.{index}" for index in range(1, outputs))]
        self.made.append(StandIn(op_type, inputs, names, [_attribute(*item) for item in attributes.items()]))
        return name

    def ints(self, *values: int) -> str:
        name = f"{self.node.outputs[0].name}/ints{len(self.made)}"
        self.made.append(StandIn("Constant", (), (name,), (ir.AttrTensor("value", ir.Tensor(np.array(values))),)))
        return name

    def result(self, index: int, value: Operand) -> None:
        """The output `index`, if the node has it, is like `value`."""
        if index < len(self.node.outputs) and self.node.outputs[index].name:
            self.made.append(StandIn("Identity", (value,), (self.node.outputs[index],)))

    def heads(self, rows: Operand, heads: int) -> str:
        """[batch, rows, heads · columns] as [batch, heads, rows, columns]."""
        return self.op("Transpose", self.op("Reshape", rows, self.ints(0, 0, heads, -1)), perm=(0, 2, 1, 3))

    def flat(self, heads: Operand) -> str:
        """[batch, heads, rows, columns] as [batch, rows, heads · columns]."""
        return self.op("Reshape", self.op("Transpose", heads, perm=(0, 2, 1, 3)), self.ints(0, 0, -1))

    def part(self, packed: Operand, index: int) -> str:
        """[batch, rows, heads, parts, columns] at one of the parts as [batch, heads, rows, columns]."""
        part = self.op("Slice", packed, self.ints(index), self.ints(index + 1), self.ints(3))
        return self.op("Transpose", self.op("Reshape", part, self.ints(0, 0, 0, -1)), perm=(0, 2, 1, 3))


def _attribute(name: str, value: int | Sequence[int]) -> ir.Attr:
    return ir.AttrInt64(name, value) if isinstance(value, int) else ir.AttrInt64s(name, value)


def _multi_head(node: ir.Node) -> Sequence[StandIn] | None:
    steps, heads = _Steps(node), _int(node, "num_heads", 1)
    query, key, value, past_k, past_v = (_input(node, index) for index in (0, 1, 2, 6, 7))
    if key is not None and key.shape is None:
        return None
    q, k, v = _heads_of(steps, heads, query, key, value)
    products = steps.op("MatMul", q, steps.op("Transpose", k, perm=(0, 1, 3, 2)))
    steps.result(0, steps.flat(steps.op("MatMul", products, v)))
    shared = _input(node, 8) is not None
    present = [
        new if past is None else past if shared else steps.op("Concat", past, new, axis=2)
        for past, new in ((past_k, k), (past_v, v))
    ]
    steps.result(1, present[0])
    steps.result(2, present[1])
    steps.result(3, steps.op("MatMul", q, steps.op("Transpose", present[0], perm=(0, 1, 3, 2))))
    return steps.made


def _heads_of(steps: _Steps, heads: int, query: Operand, key: ir.Value | None, value: Operand) -> tuple[Operand, ...]:
    if key is None:
        return tuple(steps.part(query, part) for part in range(3))
    rank = len(key.shape) if key.shape is not None else 3
    q = steps.heads(query, heads)
    if rank == 5:
        return q, steps.part(key, 0), steps.part(key, 1)
    return (q, key, value) if rank == 4 else (q, steps.heads(key, heads), steps.heads(value, heads))


def _packed(node: ir.Node) -> Sequence[StandIn]:
    """com.microsoft::Attention."""
    steps = _Steps(node)
    _project(steps, node.inputs[0], node.inputs[1], _input(node, 4), shared=_input(node, 6) is not None)
    return steps.made


def _quantized(node: ir.Node) -> Sequence[StandIn] | None:
    """QAttention, whose results have the type of the bias."""
    steps, bias = _Steps(node), _input(node, 2)
    if bias is None or bias.dtype is None:
        return None
    x, weights = (steps.op("Cast", node.inputs[index], to=int(bias.dtype)) for index in range(2))
    _project(steps, x, weights, _input(node, 8), shared=False)
    return steps.made


def _project(steps: _Steps, x: Operand, weights: Operand, past: Operand, *, shared: bool) -> None:
    node = steps.node
    packed = steps.op("MatMul", x, weights)
    if "qkv_hidden_sizes" in node.attributes:
        sizes = steps.ints(*node.attributes["qkv_hidden_sizes"].as_ints())
        parts = steps.op("Split", packed, sizes, outputs=3, axis=2)
    else:
        parts = steps.op("Split", packed, outputs=3, axis=2, num_outputs=3)
    steps.result(0, f"{parts}.2")
    if past is not None and shared:
        steps.result(1, past)
    elif len(node.outputs) > 1:
        heads = _int(node, "num_heads", 1)
        new = [steps.op("Unsqueeze", steps.heads(f"{parts}.{i}", heads), steps.ints(0)) for i in (1, 2)]
        both = steps.op("Concat", *new, axis=0)
        steps.result(1, both if past is None else steps.op("Concat", past, both, axis=3))


def _grouped(node: ir.Node) -> Sequence[StandIn]:
    """GroupQueryAttention. How long the cache becomes is known where total_sequence_length is a constant."""
    steps, heads, kv_heads = _Steps(node), _int(node, "num_heads", 1), _int(node, "kv_num_heads", 1)
    query, key, value = (_input(node, index) for index in range(3))
    if key is None:
        rows = steps.op("Reshape", query, steps.ints(0, 0, heads + 2 * kv_heads, -1))
        parts = steps.op("Split", rows, steps.ints(heads, kv_heads, kv_heads), outputs=3, axis=2)
        q, k, v = (steps.op("Transpose", f"{parts}{end}", perm=(0, 2, 1, 3)) for end in ("", ".1", ".2"))
        steps.result(0, steps.flat(q))
    else:
        q, k, v = steps.heads(query, heads), steps.heads(key, kv_heads), steps.heads(value, kv_heads)
        steps.result(0, query)
    total = constant_of(_input(node, 6))
    for index, past, new in ((1, _input(node, 3), k), (2, _input(node, 4), v)):
        present = new if past is None else None if total is None else _present(steps, past, new, int(total.item()))
        if present is not None:
            steps.result(index, present)
        if present is not None and total is not None and index == 1:
            ends = steps.ints(1, int(total.item()))
            keys = steps.op("Slice", present, steps.ints(0, 0), ends, steps.ints(1, 2))
            steps.result(3, steps.op("MatMul", q, steps.op("Transpose", keys, perm=(0, 1, 3, 2))))
    return steps.made


def _present(steps: _Steps, past: ir.Value, new: Operand, total: int) -> Operand:
    """As long as the past, where that has room for all keys; else as long as these."""
    shape = static_shape(past)
    if shape is not None and total <= shape[2]:
        return past
    return steps.op("Slice", steps.op("Concat", past, new, axis=2), steps.ints(0), steps.ints(total), steps.ints(2))


def _input(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def _int(node: ir.Node, name: str, default: int) -> int:
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_int()


RULES: Mapping[tuple[str, str], Callable[[ir.Node], Sequence[StandIn] | None]] = {
    (MICROSOFT, "Attention"): _packed,
    (MICROSOFT, "GroupQueryAttention"): _grouped,
    (MICROSOFT, "MultiHeadAttention"): _multi_head,
    (MICROSOFT, "QAttention"): _quantized,
}
