"""What the operators' texts say of the shapes of their inputs: what ONNX's shape inference knows, and keeps to itself
when it infers a whole model, and what it does not look at.

Kernels take it for granted: they would read beyond a tensor that is smaller than the others imply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import TypeAlias

import onnx
import onnx_ir as ir

from gossamer.errors import InvalidGraph
from gossamer.model.edit import may_have_subgraphs, name_of, static_shape

MICROSOFT = "com.microsoft"

Shape: TypeAlias = tuple[int, ...]


def check_operands(model: ir.Model) -> None:
    """Raises InvalidGraph for the first node of the main graph whose inputs contradict its text or one another.

    Shapes that are not known yet contradict nothing.
    """
    for node in model.graph:
        operands = _Operands(node, model.graph.opset_imports)
        rule = _RULES.get((node.domain, node.op_type))
        problem = _negative(node) or _padding(node) or (rule(operands) if rule else None) or _contradiction(operands)
        if problem:
            raise InvalidGraph(f"node '{name_of(node)}' ({node.op_type}): {problem}")


def _negative(node: ir.Node) -> str | None:
    for value in node.outputs:
        shape = static_shape(value)
        if shape is not None and min(shape, default=0) < 0:
            return f"its output '{value.name}' would have the shape {list(shape)}"
    return None


def _padding(node: ir.Node) -> str | None:
    attribute = None if node.domain else node.attributes.get("auto_pad")
    if attribute is None or attribute.as_string() in _AUTO_PADS:
        return None
    return f"its auto_pad is '{attribute.as_string()}', and there are {', '.join(_AUTO_PADS)}"


_AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


def _is_known(value: ir.Value | None) -> bool:
    return value is None or (isinstance(value.type, ir.TensorType) and static_shape(value) is not None)


def _contradiction(operands: _Operands) -> str | None:
    """What shape inference has against a node that has known inputs, and outputs of which it found nothing."""
    node, version = operands.node, operands.version
    if node.domain or may_have_subgraphs(node) or all(_is_known(value) for value in node.outputs if value.name):
        return None
    if not all(map(_is_known, node.inputs)) or not onnx.defs.has(node.op_type, version, ""):
        return None
    types = {value.name or "": ir.serde.serialize_value(value).type for value in node.inputs if value is not None}
    schema = onnx.defs.get_schema(node.op_type, version, "")
    try:
        onnx.shape_inference.infer_node_outputs(schema, ir.serde.serialize_node(node), types)
    except onnx.shape_inference.InferenceError as error:
        shapes = ", ".join(str(list(value.shape or ())) for value in node.inputs if value is not None)
        return f"its inputs have the shapes {shapes}: {error}"
    return None


@dataclass(frozen=True, slots=True)
class _Operands:
    """What a rule sees of a node."""

    node: ir.Node
    opset: Mapping[str, int]

    @property
    def version(self) -> int:
        return self.node.version or self.opset.get(self.node.domain, 1)

    def shape(self, index: int) -> Shape | None:
        """None where the input is omitted, or its shape not known."""
        value = self.node.inputs[index] if index < len(self.node.inputs) else None
        return None if value is None else static_shape(value)

    def shapes(self, *indices: int) -> tuple[Shape, ...] | None:
        """None where one of them is."""
        found = [shape for index in indices if (shape := self.shape(index)) is not None]
        return tuple(found) if len(found) == len(indices) else None

    def integer(self, name: str, default: int) -> int:
        attribute = self.node.attributes.get(name)
        return default if attribute is None else attribute.as_int()

    def unlike(self, wanted: Mapping[int, Sequence[int]]) -> str | None:
        """The first input, of those that are known, that has another shape than is wanted of it."""
        for index, shape in wanted.items():
            given = self.shape(index)
            if given is not None and given != tuple(shape):
                return f"its input {index} has the shape {list(given)}, not {list(shape)}"
        return None


_Rule: TypeAlias = Callable[[_Operands], "str | None"]


def _axis(operands: _Operands, *, default: int = 0) -> str | None:
    shapes, axis = operands.shapes(0), operands.integer("axis", default)
    if shapes is None or -len(shapes[0]) <= axis < len(shapes[0]):
        return None
    return f"its input has {len(shapes[0])} axes, none of them is axis {axis}"


def _split(operands: _Operands) -> str | None:
    count = len(operands.node.outputs)
    said = operands.integer("num_outputs", count)
    return _axis(operands) if said == count else f"it has {count} output(s), and its num_outputs is {said}"


def _transpose(operands: _Operands) -> str | None:
    shape, perm = operands.shape(0), operands.node.attributes.get("perm")
    if shape is None or perm is None or sorted(perm.as_ints()) == list(range(len(shape))):
        return None
    return f"its input has {len(shape)} axes, and its perm {list(perm.as_ints())} is no order of them"


def _reshape(operands: _Operands) -> str | None:
    shape, result = operands.shape(0), static_shape(operands.node.outputs[0])
    if shape is None or result is None or prod(shape) == prod(result):
        return None
    return f"an input of the shape {list(shape)} has not as many elements as {list(result)}"


def _rank(operands: _Operands, *, least: int) -> str | None:
    shapes = operands.shapes(0)
    if shapes is None or len(shapes[0]) >= least:
        return None
    return f"its input has {len(shapes[0])} axes, not {least} or more"


def _convolution(
    operands: _Operands, *, filters: int = 1, bias: int | None = 2, transposed: bool = False
) -> str | None:
    shapes, groups = operands.shapes(0, filters), operands.integer("group", 1)
    if shapes is None:
        return None
    x, w = shapes
    if len(x) != len(w) or len(x) < 2:
        return f"its input has {len(x)} axes, its filters {len(w)}"
    outputs, channels = (w[1] * groups, w[0]) if transposed else (w[0], w[1] * groups)
    if groups < 1 or channels % groups or outputs % groups or x[1] != channels:
        return f"its input has {x[1]} channels, filters of the shape {list(w)} in {groups} group(s) take {channels}"
    kernel = operands.node.attributes.get("kernel_shape")
    if kernel is not None and tuple(kernel.as_ints()) != w[2:]:
        return f"its kernel_shape is {list(kernel.as_ints())}, the shape of its filters {list(w)}"
    return None if bias is None else operands.unlike({bias: (outputs,)})


def _batch_normalization(operands: _Operands) -> str | None:
    shapes = operands.shapes(0)
    if shapes is None:
        return None
    (x,) = shapes
    per_element = operands.version < 9 and not operands.integer("spatial", 1)
    return operands.unlike(dict.fromkeys(range(1, 5), x[1:] if per_element else x[1:2] or (1,)))


def _per_channel(operands: _Operands) -> str | None:
    shapes = operands.shapes(0)
    if shapes is None:
        return None
    return _rank(operands, least=2) or operands.unlike(dict.fromkeys((1, 2), shapes[0][1:2]))


def _group_normalization(operands: _Operands) -> str | None:
    shapes, groups = operands.shapes(0), operands.integer("num_groups", 1)
    if shapes is None:
        return None
    if len(shapes[0]) < 2 or groups < 1 or shapes[0][1] % groups:
        return f"an input of the shape {list(shapes[0])} has no {groups} groups of channels"
    return operands.unlike(dict.fromkeys((1, 2), (shapes[0][1] if operands.version >= 21 else groups,)))


def _broadcasting(operands: _Operands, *inputs: int) -> str | None:
    """Whether inputs broadcast to the first."""
    wanted = operands.shape(0)
    if wanted is None:
        return None
    for index in inputs:
        given = operands.shape(index)
        if given is not None and not _fits(given, wanted):
            return f"its input {index} of the shape {list(given)} does not broadcast to {list(wanted)}"
    return None


def _fits(shape: Shape, wanted: Shape) -> bool:
    aligned = zip(reversed(shape), reversed(wanted), strict=False)
    return len(shape) <= len(wanted) and all(extent in (1, other) for extent, other in aligned)


def _layer_normalization(operands: _Operands) -> str | None:
    return _axis(operands, default=-1) or _broadcasting(operands, 1, 2)


def _last_axis(operands: _Operands, *inputs: int) -> str | None:
    """Whether inputs have one element for each of the first's last axis."""
    shapes = operands.shapes(0)
    if shapes is None:
        return None
    return _rank(operands, least=1) or operands.unlike(dict.fromkeys(inputs, shapes[0][-1:]))


def _lrn(operands: _Operands) -> str | None:
    size = operands.integer("size", 1)
    return _rank(operands, least=2) or (f"its size is {size}" if size < 1 else None)


def _gemm(operands: _Operands) -> str | None:
    shapes, c = operands.shapes(0, 1), operands.shape(2)
    if shapes is None or c is None or any(len(shape) != 2 for shape in shapes):
        return None
    m, n = shapes[0][operands.integer("transA", 0)], shapes[1][1 - operands.integer("transB", 0)]
    return None if _fits(c, (m, n)) else f"its input C of the shape {list(c)} does not broadcast to {[m, n]}"


def _recurrent(operands: _Operands, *, gates: int) -> str | None:
    shapes = operands.shapes(0, 1, 2)
    if shapes is None:
        return None
    x, w, r = shapes
    if len(x) != 3 or len(w) != 3 or len(r) != 3:
        return f"X, W and R have {len(x)}, {len(w)} and {len(r)} axes, not 3"
    direction, batch_first = operands.node.attributes.get("direction"), bool(operands.integer("layout", 0))
    directions = 1 + (direction is not None and direction.as_string() == "bidirectional")
    batch, hidden = x[0] if batch_first else x[1], operands.integer("hidden_size", r[2])
    state = (batch, directions, hidden) if batch_first else (directions, batch, hidden)
    rows = gates * hidden
    wanted = {1: (directions, rows, x[2]), 2: (directions, rows, hidden), 3: (directions, 2 * rows), 4: (batch,)}
    return operands.unlike(wanted | {5: state, 6: state, 7: (directions, 3 * hidden)})


def _elements(operands: _Operands, *, default: int = 0) -> str | None:
    """GatherElements, ScatterElements: indices within the data along all axes but their own, an update for each."""
    shapes, axis = operands.shapes(0, 1), operands.integer("axis", default)
    if shapes is None:
        return None
    data, indices = shapes
    inside = len(data) == len(indices) and all(
        count <= extent or i == axis % len(data) for i, (count, extent) in enumerate(zip(indices, data, strict=True))
    )
    if not inside:
        return f"indices of the shape {list(indices)} do not fit data of the shape {list(data)}"
    return _axis(operands, default=default) or operands.unlike({2: indices})


def _scatter_nd(operands: _Operands) -> str | None:
    shapes = operands.shapes(0, 1)
    if shapes is None:
        return None
    data, indices = shapes
    if not indices or indices[-1] > len(data):
        return f"indices of the shape {list(indices)} do not fit data of the shape {list(data)}"
    return operands.unlike({2: (*indices[:-1], *data[indices[-1] :])})


def _tensor_scatter(operands: _Operands) -> str | None:
    """The update is like the cache but for its steps, of which the cache has a slot for each."""
    shapes, axis = operands.shapes(0, 1), operands.integer("axis", -2)
    if shapes is None:
        return None
    cache, update = shapes
    if not cache or not -len(cache) < axis < len(cache) or axis == 0:
        return f"its cache has {len(cache)} axes, none of them behind the batch is axis {axis}"
    inside = len(update) == len(cache) and all(
        steps == slots or (i == axis % len(cache) and steps < slots)
        for i, (steps, slots) in enumerate(zip(update, cache, strict=True))
    )
    if not inside:
        return f"an update of the shape {list(update)} does not fit axis {axis} of a cache of the shape {list(cache)}"
    return operands.unlike({2: cache[:1]})


def _alike(operands: _Operands) -> str | None:
    """Whether the second input has the shape of the first."""
    shapes = operands.shapes(0)
    return None if shapes is None else operands.unlike({1: shapes[0]})


def _blocks(operands: _Operands, *, of_channels: bool) -> str | None:
    shapes, block = operands.shapes(0), operands.integer("blocksize", 1)
    if shapes is None or len(shapes[0]) < 2:
        return None
    (x,) = shapes
    whole = block > 0 and (x[1] % block**2 == 0 if of_channels else all(n % block == 0 for n in x[2:]))
    return None if whole else f"an input of the shape {list(x)} has no blocks of {block}"


_RULES: Mapping[tuple[str, str], _Rule] = {
    **{("", name): _axis for name in ("ArgMax", "ArgMin", "Concat", "Gather")},
    ("", "LpNormalization"): partial(_axis, default=-1),
    ("", "Reshape"): _reshape,
    ("", "Split"): _split,
    ("", "Transpose"): _transpose,
    ("", "Trilu"): partial(_rank, least=2),
    ("", "Conv"): _convolution,
    ("", "ConvInteger"): partial(_convolution, bias=None),
    ("", "ConvTranspose"): partial(_convolution, transposed=True),
    ("", "QLinearConv"): partial(_convolution, filters=3, bias=8),
    ("", "BatchNormalization"): _batch_normalization,
    ("", "InstanceNormalization"): _per_channel,
    ("", "GroupNormalization"): _group_normalization,
    ("", "LayerNormalization"): _layer_normalization,
    ("", "RMSNormalization"): _layer_normalization,
    ("", "SimplifiedLayerNormalization"): _layer_normalization,
    ("", "LRN"): _lrn,
    ("", "PRelu"): lambda operands: _broadcasting(operands, 1),
    ("", "Gemm"): _gemm,
    **{("", name): partial(_recurrent, gates=gates) for name, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4))},
    **{("", name): _elements for name in ("GatherElements", "Scatter", "ScatterElements")},
    ("", "ScatterND"): _scatter_nd,
    ("", "TensorScatter"): _tensor_scatter,
    ("", "MaxUnpool"): _alike,
    ("", "SwiGLU"): _alike,
    ("", "OneHot"): lambda operands: operands.unlike({2: (2,)}),
    ("", "DepthToSpace"): partial(_blocks, of_channels=True),
    ("", "SpaceToDepth"): partial(_blocks, of_channels=False),
    (MICROSOFT, "FusedConv"): _convolution,
    (MICROSOFT, "FusedGemm"): _gemm,
    **{(MICROSOFT, name): lambda operands: _last_axis(operands, 1) for name in ("BiasGelu", "FastGelu")},
    (MICROSOFT, "SkipLayerNormalization"): lambda operands: _last_axis(operands, 2, 3, 4),
    (MICROSOFT, "SkipSimplifiedLayerNormalization"): lambda operands: _last_axis(operands, 2, 3),
}
