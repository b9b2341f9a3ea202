"""What surrounds a matrix product is done while its operands are read and its result is written."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from gossamer.model.activation_forms import NONE, Activation, activation_after
from gossamer.model.edit import erase, static_shape
from gossamer.model.fusion import (
    activation_attributes,
    fuse,
    is_exact,
    is_float,
    other_input,
    scaled_by,
    sole_reader,
)


def matmul_epilogue(model: ir.Model) -> bool:
    """Merge transposition, scale, bias, residual and activation into MatMul (ONNX -1, -9, -13) or Gemm (-7 … -13).

    ```
    %t = Transpose[perm=[0,1,3,2]](%k)
    %p = MatMul(%q, %t)                    →   %s = gossamer::FusedMatMul[transB=1, alpha=0.125](%q, %k)
    %s = Mul(%p, 0.125)

    %p = MatMul(%x, %w)
    %h = Add(%p, %b)                       →   %y = gossamer::FusedMatMul[activation="silu"](%x, %w, %b)
    %g = Sigmoid(%h)
    %y = Mul(%h, %g)
    ```

    Operands: multiplication or division by a scalar constant, and any Transpose that keeps the innermost axis among the
    last two (`transA`, `transB`, else `permA`, `permB`: the operand is this permutation of its input). Results, in this
    order: scale; a bias of one value per column and an addition of the result's shape, in either order; an activation
    as `model.activation_forms` knows them. A Gemm becomes one only if it gains by it.

    Kept: vectors for operands; integers; a Gemm whose C varies by row or is scaled by beta; anything of which others
    read or return an intermediate value, save a Transpose, which stays for them; nodes of subgraphs (onnxruntime may
    run those, which knows no operator of ours).
    """
    changed = False
    for node in tuple(model.graph):
        if node.op_type in ("MatMul", "Gemm") and node.domain == "":
            changed |= _merge(model, node)
    return changed


@dataclass(slots=True)
class _Operand:
    """axes: the operand's axes are these of `value`. absorbed: nodes that are no longer needed for it."""

    value: ir.Value
    axes: list[int]
    scale: float = 1.0
    absorbed: list[ir.Node] = field(default_factory=list)


@dataclass(slots=True)
class _Fusion:
    """The product in the making. replaced: the product and what follows it, in order."""

    value: ir.Value
    replaced: list[ir.Node]
    alpha: float = 1.0
    bias: ir.Value | None = None
    residual: ir.Value | None = None
    activation: Activation = NONE

    def take(self, node: ir.Node) -> None:
        self.replaced.append(node)
        self.value = node.outputs[0]


def _merge(model: ir.Model, node: ir.Node) -> bool:
    operands = [_operand(value) for value in node.inputs[:2]]
    fusion = _start(node)
    a, b = operands
    if a is None or b is None or fusion is None:
        return False
    if node.op_type == "MatMul":
        _look_back(a, node)
        _look_back(b, node)
        _take_scale(fusion)
    elif not _take_gemm_attributes(node, fusion, a, b):
        return False
    gained = _take_additions(fusion)
    gained |= _take_activation(fusion)
    if (
        not gained
        and len(fusion.replaced) == 1
        and not (a.absorbed or b.absorbed or (node.op_type == "MatMul" and _moved(a, b)))
    ):
        return False
    attributes = [
        *_order_attributes("A", a),
        *_order_attributes("B", b),
        *_number_attributes(fusion.alpha * a.scale * b.scale),
    ]
    attributes += activation_attributes(fusion.activation)
    fuse(model, "FusedMatMul", (a.value, b.value, fusion.bias, fusion.residual), attributes, fusion.replaced)
    for absorbed in (*a.absorbed, *b.absorbed):
        if not absorbed.outputs[0].uses() and not absorbed.outputs[0].is_graph_output():
            erase(absorbed)
    return True


def _operand(value: ir.Value | None) -> _Operand | None:
    shape = static_shape(value)
    if value is None or shape is None or len(shape) < 2:
        return None
    return _Operand(value, list(range(len(shape))))


def _start(node: ir.Node) -> _Fusion | None:
    value = node.outputs[0]
    return _Fusion(value, [node]) if is_float(value) and static_shape(value) is not None else None


def _moved(*operands: _Operand) -> bool:
    return any(operand.axes != sorted(operand.axes) for operand in operands)


def _look_back(operand: _Operand, reader: ir.Node) -> None:
    """Take what scales or transposes the operand; `reader` is who reads it now."""
    while (producer := operand.value.producer()) is not None and producer.domain == "":
        taken = _take_transpose(operand, producer) or _take_factor(operand, producer, reader)
        if not taken:
            return
        operand.absorbed.append(producer)
        reader = producer


def _take_transpose(operand: _Operand, producer: ir.Node) -> bool:
    source = producer.inputs[0] if producer.op_type == "Transpose" else None
    if source is None:
        return False
    rank = len(operand.axes)
    perm = producer.attributes["perm"].as_ints() if "perm" in producer.attributes else range(rank)[::-1]
    axes = [perm[axis] for axis in operand.axes]
    if rank - 1 not in axes[-2:]:
        return False  # neither rows nor columns would be contiguous
    operand.value, operand.axes = source, axes
    return True


def _take_factor(operand: _Operand, producer: ir.Node, reader: ir.Node) -> bool:
    """x · c or x / c, where the product alone reads it."""
    scaled = scaled_by(producer)
    if scaled is None or sole_reader(operand.value) is not reader:
        return False
    operand.value, factor = scaled
    operand.scale *= factor
    return True


def _take_scale(fusion: _Fusion) -> None:
    node = sole_reader(fusion.value)
    scaled = None if node is None else scaled_by(node)
    if node is not None and scaled is not None and scaled[0] is fusion.value:
        fusion.alpha *= scaled[1]
        fusion.take(node)


def _take_gemm_attributes(node: ir.Node, fusion: _Fusion, a: _Operand, b: _Operand) -> bool:
    """transA, transB, alpha and C; False where C is more than a bias or a residual."""
    numbers = {name: attribute.value for name, attribute in node.attributes.items()}
    fusion.alpha = numbers.get("alpha", 1.0)
    for operand, name in ((a, "transA"), (b, "transB")):
        if numbers.get(name, 0):
            operand.axes.reverse()
    addend = node.inputs[2] if len(node.inputs) > 2 else None
    if addend is None:
        return True
    if numbers.get("beta", 1.0) != 1.0:
        return False
    return _take_addend(fusion, addend)


def _take_addend(fusion: _Fusion, addend: ir.Value) -> bool:
    """As bias, where it has one value per column, or as residual, where it has the result's shape."""
    shape, result = static_shape(addend), static_shape(fusion.value)
    if shape is None or result is None or addend.dtype != fusion.value.dtype:
        return False
    per_column = shape[-1:] == result[-1:] and len(shape) <= len(result) and set(shape[:-1]) <= {1}
    if per_column and fusion.bias is None:
        fusion.bias = addend
    elif shape == result and fusion.residual is None:
        fusion.residual = addend
    else:
        return False
    return True


def _take_additions(fusion: _Fusion) -> bool:
    taken = False
    for _ in range(2):
        add = sole_reader(fusion.value)
        if add is None or add.domain != "" or add.op_type != "Add":
            break
        addend = other_input(add, fusion.value)
        if addend is None or not _take_addend(fusion, addend):
            break
        fusion.take(add)
        taken = True
    return taken


def _take_activation(fusion: _Fusion) -> bool:
    match = activation_after(fusion.value)
    if match is None or not is_exact(match, fusion.value):
        return False
    fusion.activation, fusion.value = match.activation, match.value
    fusion.replaced += match.nodes
    return True


def _order_attributes(name: str, operand: _Operand) -> list[ir.Attr]:
    identity = list(range(len(operand.axes)))
    if operand.axes == identity:
        return []
    swapped = [*identity[:-2], identity[-1], identity[-2]]
    if operand.axes == swapped:
        return [ir.AttrInt64(f"trans{name}", 1)]
    return [ir.AttrInt64s(f"perm{name}", operand.axes)]


def _number_attributes(alpha: float) -> list[ir.Attr]:
    return [] if alpha == 1.0 else [ir.AttrFloat32("alpha", alpha)]
