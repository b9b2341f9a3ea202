"""Attention that a model spells out becomes one node."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from gossamer.model.attention_forms import FLOATS, Mask, Probabilities, first_of_causal, probabilities_around
from gossamer.model.edit import Names, erase, static_shape
from gossamer.model.fusion import fuse, scaled_by, sole_reader
from gossamer.model.strided_views import Factor, Trace, View, trace

MOST_COLUMNS, MOST_BYTES = 256, 1024
"""Of a head: beyond, few queries fit a tile, and two products with the scores in memory between them are faster."""


def attention_pattern(model: ir.Model) -> bool:
    """Recognise softmax(scale · Q · Kᵀ + mask) · V, and read Q, K and V from where their heads were split.

    ```
    %a = Reshape(%x, [2,128,12,64])
    %q = Transpose[perm=[0,2,1,3]](%a)
    … likewise %k, with perm [0,2,3,1], and %v           %y = gossamer::FusedAttention[scale=0.125, …,
    %s = MatMul(%q, %k)                                     shape=[2,12,12,128,128,64,64],
    %d = Div(%s, 8)                              →          layoutQ=[0,98304,64,768,1], …](%x, %key, %value, %mask)
    %m = Add(%d, %mask)
    %p = Softmax[axis=-1](%m)
    %o = MatMul(%p, %v)
    %y = Transpose[perm=[0,2,1,3]](%o)
    ```

    Scores of rank 3 or 4. Scales: multiplications and divisions by scalar constants, of the scores, of Q and of K, by
    roots, too; softcap · tanh(scores / softcap) as in Gemma. Masks, in this order: Where(mask, scores, fill) or
    Where(mask, fill, scores) as in GPT-2; an addition of whatever broadcasts to the scores. A constant mask that is
    causal becomes an attribute, one that hides nothing is dropped. Casts to and from fp32 around the softmax go; so
    does the Where(IsNaN(…)) that gives zeros to queries that see nothing.

    Operands are traced through every Transpose, Reshape, Split, Slice, Gather and Expand that strides can say, so
    packed projections and the repeated heads of grouped queries (Unsqueeze, Expand, Reshape) are not copied.

    Kept: heads wider than MOST_COLUMNS or MOST_BYTES; nodes of subgraphs; scores or probabilities that others read or
    that are returned; two masks of which one cannot be read as a Where inside an Add; scales that are applied after a
    mask; integers.
    """
    changed = False
    for node in tuple(model.graph):
        if node.op_type == "Softmax" and node.domain == "":
            found = probabilities_around(node, node.version or model.opset_imports.get("", 1))
            changed |= found is not None and _fuse(model, found)
    return changed


@dataclass(frozen=True, slots=True)
class _Grid:
    """The shape that all operands are seen in."""

    batch: int
    heads: int
    queries: int
    keys: int


def _fuse(model: ir.Model, found: Probabilities) -> bool:
    first, last = found.nodes[0], found.nodes[-1]
    v = _operand(last.inputs[1])
    if v is None:
        return False
    q, k = _operand(first.inputs[0], v.source.dtype), _operand(first.inputs[1], v.source.dtype, turned=True)
    grid = None if q is None else _grid(found, q.view)
    if q is None or k is None or grid is None or not (q.source.dtype == k.source.dtype == v.source.dtype):
        return False
    columns = max(q.view.shape[-1], v.view.shape[-1])
    if v.source.dtype is None or columns > MOST_COLUMNS or columns * v.source.dtype.itemsize > MOST_BYTES:
        return False
    layouts, masks = _layouts(found, grid, q.view, k.view, v.view), _masks(found, grid)
    if layouts is None or masks is None:
        return False
    shape, attributes = layouts
    output = _take_output(found, (grid.batch, grid.heads, grid.queries, shape[-1]))
    attributes += [] if output is None else [_layout("Y", output)]
    scale = found.scale * _factor(q) * _factor(k)
    start = [ir.AttrInt64s("shape", shape), *([ir.AttrFloat32("scale", scale)] if scale != 1.0 else [])]
    start += [ir.AttrFloat32("softcap", found.softcap)] if found.softcap else []
    end = [ir.AttrInt64("zero_empty", 1)] if found.zero_empty else []
    mask = _inverted(model, masks.mask, first) if masks.mask is not None and masks.invert else masks.mask
    inputs = (q.source, k.source, v.source, masks.bias, mask)
    fuse(model, "FusedAttention", inputs, [*start, *attributes, *masks.attributes, *end], found.nodes)
    for operand in (q, k, v, *masks.traces):
        _erase_unused(operand.nodes)
    return True


def _operand(value: ir.Value | None, narrow: ir.DataType | None = None, *, turned: bool = False) -> Trace | None:
    """Where an operand of a product comes from, as [batch…, row, column].

    narrow: a type that it may be widened from; then it may be scaled, too. turned: it is the transposed one, Kᵀ, of
    which keys may be contiguous instead of columns.
    """
    if value is None or value.dtype not in FLOATS or len(static_shape(value) or ()) not in (3, 4):
        return None

    def accept(view: View) -> bool:
        rows, columns = view.stride(-2), view.stride(-1)
        if rows is None or columns is None or not _has_heads(view):
            return False
        return columns in (0, 1) or (turned and rows in (0, 1))

    def through(node: ir.Node) -> ir.Value | None:
        if node.op_type == "Cast" and node.domain == "" and narrow is not None:
            return node.inputs[0] if node.inputs[0] is not None and node.inputs[0].dtype == narrow else None
        scaled = None if narrow is None else scaled_by(node)
        return None if scaled is None else scaled[0]

    return trace(value, accept, through)


def _has_heads(view: View) -> bool:
    """Whether the axes before the last two have strides: one each, or batch and heads in one, or heads that repeat."""
    if len(view.axes) == 3:
        return len(view.axes[0]) <= 2
    return view.stride(0) is not None and _repeats(view.axes[1]) is not None


def _repeats(factors: Sequence[Factor]) -> tuple[int, int, int] | None:
    """(heads, their stride, how often each repeats) of an axis of heads."""
    if len(factors) == 2 and factors[1][1] == 0:
        return factors[0][0], factors[0][1], factors[1][0]
    if len(factors) > 1:
        return None
    extent, stride = factors[0] if factors else (1, 0)
    return (extent, stride, 1) if stride else (1, 0, extent)


def _factor(operand: Trace) -> float:
    factor = 1.0
    for node in operand.nodes:
        scaled = scaled_by(node)
        factor *= 1.0 if scaled is None else scaled[1]
    return factor


def _grid(found: Probabilities, q: View) -> _Grid | None:
    """Batch and heads as the scores say them, else as Q's heads were split."""
    scores = static_shape(found.nodes[0].outputs[0])
    if scores is None:
        return None
    batch, heads = found.grid or (scores[0], 1)
    if found.grid is None and len(q.axes) == 3 and len(q.axes[0]) == 2:
        batch, heads = q.axes[0][0][0], q.axes[0][1][0]
    return _Grid(batch, heads, *scores[-2:])


def _layouts(found: Probabilities, grid: _Grid, q: View, k: View, v: View) -> tuple[list[int], list[ir.Attr]] | None:
    """The attribute `shape`, and the layouts of operands that are not dense; None where there are none such."""
    turned = (*range(len(k.axes) - 2), len(k.axes) - 1, len(k.axes) - 2)
    head_size, v_size = q.shape[-1], v.shape[-1]
    q_view = _on_grid(q, grid, found.nodes[0], grid.queries, head_size)
    k_view = _on_grid(k.transposed(turned), grid, found.nodes[0], grid.keys, head_size)
    v_view = _on_grid(v, grid, found.nodes[-1], grid.keys, v_size)
    if q_view is None or k_view is None or v_view is None:
        return None
    k_heads, v_heads = _repeats(k_view.axes[1]), _repeats(v_view.axes[1])
    if q_view.stride(1) is None or k_heads is None or v_heads is None or k_heads[0] != v_heads[0]:
        return None
    kv_heads = k_heads[0]
    sizes = [grid.batch, grid.heads, kv_heads, grid.queries, grid.keys, head_size, v_size]
    attributes = []
    for name, view, heads in (("Q", q_view, grid.heads), ("K", k_view, kv_heads), ("V", v_view, kv_heads)):
        if view.stride(0) is None:
            return None
        if view != View.dense((grid.batch, heads, *view.shape[-2:])):
            attributes.append(_layout(name, view))
    return sizes, attributes


def _on_grid(view: View, grid: _Grid, product: ir.Node, rows: int, columns: int) -> View | None:
    """An operand of a product of rank 3 or 4 as [batch, heads, rows, columns]."""
    rank = len(static_shape(product.outputs[0]) or ())
    lead = (grid.batch * grid.heads,) if rank == 3 else (grid.batch, grid.heads)
    return view.expanded((*lead, rows, columns)).reshaped((grid.batch, grid.heads, rows, columns))


def _layout(name: str, view: View) -> ir.Attr:
    """offset, batch, head, row, column; of heads that repeat, the stride of those that do not."""
    repeats = _repeats(view.axes[1])
    strides = [view.stride(0), 0 if repeats is None else repeats[1], view.stride(2), view.stride(3)]
    return ir.AttrInt64s(f"layout{name}", [view.offset, *(stride or 0 for stride in strides)])


@dataclass(slots=True)
class _Masks:
    """The last inputs and what is said of them."""

    attributes: list[ir.Attr]
    traces: list[Trace]
    bias: ir.Value | None = None
    mask: ir.Value | None = None
    invert: bool = False


def _masks(found: Probabilities, grid: _Grid) -> _Masks | None:
    """Causal masks as attributes, others as inputs; None where strides cannot say how one broadcasts."""
    masks = _Masks([], [])
    firsts = []
    for mask, adds in ((found.bias, True), (found.mask, False)):
        first = None if mask is None else first_of_causal(mask, adds=adds)
        if mask is None or first is not None:
            firsts += [] if first is None or first >= grid.keys - 1 else [first]
            continue
        plane = _plane(mask, grid)
        if plane is None:
            return None
        masks.traces.append(plane)
        masks.attributes.append(_layout("Bias" if adds else "Mask", plane.view))
        if adds:
            masks.bias = plane.source
            continue
        masks.mask, masks.invert = plane.source, mask.inverted
        masks.attributes += [ir.AttrFloat32("fill", mask.fill)] if mask.fill != -math.inf else []
    if firsts:
        masks.attributes.append(ir.AttrInt64("causal", 1))
        masks.attributes += [ir.AttrInt64("first", min(firsts))] if min(firsts) else []
    return masks


def _plane(mask: Mask, grid: _Grid) -> Trace | None:
    """A bias or mask as [batch, heads, queries, keys]."""
    shape = (grid.batch, grid.heads, grid.queries, grid.keys)

    def on_grid(view: View) -> View | None:
        return view.expanded(mask.shape).reshaped(shape)

    def accept(view: View) -> bool:
        plane = on_grid(view)
        strides = [None] if plane is None else [plane.stride(axis) for axis in range(4)]
        return None not in strides and strides[-1] in (0, 1)

    found = trace(mask.value, accept)
    view = None if found is None else on_grid(found.view)
    return None if found is None or view is None else Trace(found.source, view, found.nodes)


def _take_output(found: Probabilities, shape: tuple[int, int, int, int]) -> View | None:
    """Take the Transpose (behind a Reshape to the grid) that alone reads the result, where it leaves columns innermost:
    how the grid lies in its output. None where there is none, and nothing is taken."""
    taken = []
    node = sole_reader(found.nodes[-1].outputs[0])
    if node is not None and node.domain == "" and node.op_type == "Reshape" and static_shape(node.outputs[0]) == shape:
        taken.append(node)
        node = sole_reader(node.outputs[0])
    if node is None or node.domain != "" or node.op_type != "Transpose" or "perm" not in node.attributes:
        return None
    perm, output = node.attributes["perm"].as_ints(), static_shape(node.outputs[0])
    if output is None or perm[-1] != len(perm) - 1:
        return None
    inverse = sorted(range(len(perm)), key=lambda axis: perm[axis])
    view = View.dense(output).transposed(inverse).reshaped(shape)
    if view is None or any(view.stride(axis) is None for axis in range(4)):
        return None
    found.nodes += [*taken, node]
    return view


def _inverted(model: ir.Model, mask: ir.Value, before: ir.Node) -> ir.Value:
    """A new Not of a mask."""
    node = ir.node("Not", [mask])
    output = node.outputs[0]
    output.dtype, output.shape = ir.DataType.BOOL, mask.shape
    output.name = node.name = Names(model).fresh(f"{mask.name}_not")
    assert before.graph is not None
    before.graph.insert_before(before, node)
    return output


def _erase_unused(nodes: Sequence[ir.Node]) -> None:
    """Take out what only the operands needed."""
    for node in reversed(nodes):
        if node.graph is not None and not any(value.uses() or value.is_graph_output() for value in node.outputs):
            erase(node)
