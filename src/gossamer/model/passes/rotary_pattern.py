"""A rotary position embedding that a model spells out becomes one node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from gossamer.model.edit import constant_of, static_shape
from gossamer.model.fusion import fuse, is_closed, other_input, sole_reader

_NARROW = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.FLOAT)


def rotary_pattern(model: ir.Model) -> bool:
    """Recognise x · cos + rotate_half(x) · sin, as Llama and GPT-NeoX have it.

    ```
    %a = Mul(%x, %cos)
    %l, %r = Split[axis=-1](%x)
    %n = Neg(%r)
    %h = Concat[axis=-1](%n, %l)       →   %y = gossamer::RotaryEmbedding(%x, %cos, %sin)
    %b = Mul(%h, %sin)
    %y = Add(%a, %b)
    ```

    The halves may come from two Slices. cos and sin have as many columns as are rotated, so that nobody has to know
    that their halves are equal. They broadcast to x, which is [batch, heads, steps, columns], from [batch or 1, 1,
    steps, columns], leading ones left out or not.

    ```
    %t = Slice(%x, 0, 16, -1)
    %p = Slice(%x, 16, 64, -1)
    %y = gossamer::RotaryEmbedding(%t, %cos, %sin)     →   %z = gossamer::RotaryEmbedding(%x, %cos, %sin)
    %z = Concat[axis=-1](%y, %p)
    ```

    Left to `elementwise_chains` this takes four kernels, and six with columns that stay.

    Kept: other broadcasting or ranks; float64; anything of which others read or return an intermediate value;
    subgraphs.
    """
    changed = False
    for node in tuple(model.graph):
        if node.op_type == "Add" and node.domain == "" and (found := _rotation(node)) is not None:
            found = _of_more_columns(found)
            fuse(model, "RotaryEmbedding", (found.x, found.cos, found.sin), (), found.nodes)
            changed = True
    return changed


@dataclass(frozen=True, slots=True)
class _Rotation:
    """x · cos + rotate_half(x) · sin, computed by `nodes`, in order."""

    x: ir.Value
    cos: ir.Value
    sin: ir.Value
    nodes: tuple[ir.Node, ...]


@dataclass(frozen=True, slots=True)
class _Columns:
    """Columns start … end of x, which `node` takes out of it."""

    x: ir.Value
    start: int
    end: int
    node: ir.Node


def _rotation(add: ir.Node) -> _Rotation | None:
    for straight, turned in (add.inputs, add.inputs[::-1]):
        a, b = _made_by(straight, "Mul"), _made_by(turned, "Mul")
        for half, sin in (b.inputs, b.inputs[::-1]) if a is not None and b is not None else ():
            found = _half_turned(half)
            if found is None or sin is None or a is None or b is None:
                continue
            x, nodes = found
            cos = other_input(a, x) if x in a.inputs else None
            nodes = (a, *nodes, b, add)
            if cos is not None and _is_table(cos, x) and _is_table(sin, x) and is_closed(nodes):
                return _Rotation(x, cos, sin, nodes)
    return None


def _made_by(value: ir.Value | None, op_type: str) -> ir.Node | None:
    node = None if value is None else value.producer()
    return node if node is not None and node.op_type == op_type and node.domain == "" else None


def _half_turned(value: ir.Value | None) -> tuple[ir.Value, tuple[ir.Node, ...]] | None:
    """x, where the value is Concat(-right half of x, left half of x), and the nodes that make it of x."""
    concat = _made_by(value, "Concat")
    if concat is None or len(concat.inputs) != 2 or not _is_along_columns(concat, concat.outputs[0]):
        return None
    neg, left = _made_by(concat.inputs[0], "Neg"), _columns(concat.inputs[1])
    right = None if neg is None else _columns(neg.inputs[0])
    if neg is None or left is None or right is None or not _are_all(left, right) or left.end != right.end - left.end:
        return None
    return left.x, (*dict.fromkeys((left.node, right.node)), neg, concat)


def _are_all(left: _Columns, right: _Columns) -> bool:
    """Whether the two are all columns of one value."""
    whole = (static_shape(left.x) or (0,))[-1]
    return left.x is right.x and left.start == 0 and left.end == right.start and right.end == whole


def _columns(value: ir.Value | None) -> _Columns | None:
    """Which columns of what the value is, if a Slice or a Split in two takes them."""
    node = None if value is None else value.producer()
    x = None if node is None or node.domain != "" or node.op_type not in ("Slice", "Split") else node.inputs[0]
    shape, whole = static_shape(value), static_shape(x)
    if node is None or x is None or value is None or not shape or not whole or shape[:-1] != whole[:-1]:
        return None
    if node.op_type == "Slice":
        start = _start_of_slice(node, len(whole), whole[-1])
    elif len(node.outputs) == 2 and _is_along_columns(node, x):
        start = whole[-1] - shape[-1] if value.index() else 0
    else:
        return None
    return None if start is None else _Columns(x, start, start + shape[-1], node)


def _start_of_slice(node: ir.Node, rank: int, extent: int) -> int | None:
    """The first column that a Slice leaves, where it leaves all of every other axis. Slice-1 has attributes."""
    starts = _numbers(node, 1, "starts")
    axes = _numbers(node, 3, "axes") or range(len(starts or ()))
    steps = _numbers(node, 4, "steps") or (1,)
    if starts is None or len(starts) != 1 or axes[0] % rank != rank - 1 or steps[0] != 1:
        return None
    return max(starts[0] + extent, 0) if starts[0] < 0 else min(starts[0], extent)


def _numbers(node: ir.Node, index: int, name: str) -> Sequence[int] | None:
    """A list of integers that is an input or an attribute."""
    if name in node.attributes:
        return [int(number) for number in node.attributes[name].as_ints()]
    constant = constant_of(node.inputs[index]) if index < len(node.inputs) else None
    return None if constant is None else [int(number) for number in constant]


def _is_along_columns(node: ir.Node, value: ir.Value) -> bool:
    """Whether the `axis` of a Concat or Split is the value's last."""
    rank = len(static_shape(value) or ())
    return "axis" in node.attributes and rank > 0 and node.attributes["axis"].as_int() % rank == rank - 1


def _is_table(table: ir.Value, x: ir.Value) -> bool:
    """Whether cos or sin has a row for each step, the same for all heads."""
    shape, whole = static_shape(table), static_shape(x)
    if shape is None or whole is None or len(whole) != 4 or not 2 <= len(shape) <= 4:
        return False
    if x.dtype not in _NARROW or table.dtype not in _NARROW:
        return False
    batch, heads, *rest = (1,) * (4 - len(shape)) + shape
    return tuple(rest) == whole[2:] and heads == 1 and batch in (1, whole[0])


def _of_more_columns(rotation: _Rotation) -> _Rotation:
    """The same, but of the value whose first columns x is, where its others are put behind the result."""
    result = rotation.nodes[-1].outputs[0]
    concat = sole_reader(result)
    if concat is None or (concat.domain, concat.op_type) != ("", "Concat") or len(concat.inputs) != 2:
        return rotation
    turned, rest = _columns(rotation.x), _columns(concat.inputs[1])
    if turned is None or rest is None or not _are_all(turned, rest) or not _is_along_columns(concat, result):
        return rotation
    nodes = (*dict.fromkeys((turned.node, rest.node)), *rotation.nodes, concat)
    return replace(rotation, x=turned.x, nodes=nodes) if is_closed(nodes) else rotation
