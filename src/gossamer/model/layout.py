"""What becomes of an operator when its activations are stored N, spatial…, C instead of N, C, spatial…."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from gossamer.model.edit import constant_of, is_constant, static_shape
from gossamer.model.elementwise import RULES as ELEMENTWISE
from gossamer.model.fusion import is_float
from gossamer.model.node import FUSED

CONVOLUTIONS = frozenset({("", "Conv"), ("", "ConvTranspose"), (FUSED, "FusedConv"), (FUSED, "FusedConvTranspose")})
RANKS = (3, 4, 5)


Order: TypeAlias = "tuple[int, ...]"
"""The axes of a value, as ONNX numbers them, in the order in which memory has them."""


@cache
def last_order(rank: int, channel_axes: int = 1) -> Order:
    """N, spatial…, C of N, C, spatial…, where C may be several axes."""
    return (0, *range(1 + channel_axes, rank), *range(1, 1 + channel_axes))


def place(axis: int, rank: int) -> int:
    """Where an axis of N, C, spatial… is in N, spatial…, C; negative axes count from the end, as in ONNX."""
    return last_order(rank).index(axis % rank)


@dataclass(frozen=True, slots=True)
class Adaptation:
    """A node that computes the same with activations stored channels-last.

    inputs, outputs: indices of the values stored so. constants: indices of inputs to be transposed likewise, once.
    attributes, parameters: those that change, parameters being inputs by index. other_domain: the operator is told.
    input_order, output_order: where channels have two axes, the order of all axes in memory; by default `last_order`.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    constants: tuple[int, ...] = ()
    attributes: tuple[ir.Attr, ...] = ()
    parameters: Mapping[int, np.ndarray] = field(default_factory=dict)
    other_domain: bool = False
    input_order: Order | None = None
    output_order: Order | None = None

    def order(self, value: ir.Value, *, read: bool) -> Order:
        """The order in memory of the axes of an activation that the node reads or makes."""
        return (self.input_order if read else self.output_order) or last_order(_rank(value))


def adaptation_of(node: ir.Node, opset: int) -> Adaptation | None:
    """How the node takes activations stored channels-last, None where it cannot. opset: of ONNX's domain."""
    if any(static_shape(value) is None for value in (*node.inputs, *node.outputs) if value is not None and value.name):
        return None
    rule = _RULES.get((node.domain, node.op_type))
    if rule is not None:
        return rule(node, opset) if _has_layout(node.inputs[0]) else None
    return _elementwise(node) if (node.domain, node.op_type) in ELEMENTWISE else None


def _has_layout(value: ir.Value | None) -> bool:
    shape = static_shape(value)
    return shape is not None and len(shape) in RANKS


def _rank(value: ir.Value | None) -> int:
    return len(static_shape(value) or ())


# Operators with kernels for both layouts.


def _convolution(node: ir.Node, _: int) -> Adaptation | None:
    residual = (3,) if len(node.inputs) > 3 and node.inputs[3] is not None else ()
    if not is_float(node.outputs[0]):
        return None
    if residual and is_constant(node.inputs[3]):
        return Adaptation((0,), (0,), constants=residual, other_domain=True)
    return Adaptation((0, *residual), (0,), other_domain=True)


def _windowed(node: ir.Node, _: int) -> Adaptation | None:
    """Pools, normalisations, Resize: one activation in, one out, parameters as they are."""
    more = any(value.name for value in node.outputs[1:])  # indices and statistics refer to N, C, spatial…
    return None if more or not is_float(node.outputs[0]) else Adaptation((0,), (0,), other_domain=True)


# Operators that are told which axes to work on.


def _one_axis(default: int) -> _Rule:
    def rule(node: ir.Node, _: int) -> Adaptation | None:
        rank = _rank(node.inputs[0])
        axis = place(_int(node, "axis", default), rank)
        outputs = tuple(i for i, value in enumerate(node.outputs) if value.name)
        activations = tuple(range(len(node.inputs))) if node.op_type == "Concat" else (0,)
        constants = tuple(i for i in activations if is_constant(node.inputs[i]))
        inputs = tuple(i for i in activations if i not in constants)
        return Adaptation(inputs, outputs, constants, (ir.AttrInt64("axis", axis),))

    return rule


def _softmax(node: ir.Node, opset: int) -> Adaptation | None:
    """Before opset 13 the operator flattens its input at `axis`, which takes the axes in their order."""
    return _one_axis(-1)(node, opset) if opset >= 13 else None


def _arg_reduction(node: ir.Node, opset: int) -> Adaptation | None:
    rank = _rank(node.inputs[0])
    axis = _int(node, "axis", 0) % rank
    kept = _outputs_of_reduction(rank, (axis,), bool(_int(node, "keepdims", 1)))
    return None if kept is None else Adaptation((0,), kept, attributes=(ir.AttrInt64("axis", place(axis, rank)),))


def _reduction(node: ir.Node, _: int) -> Adaptation | None:
    rank = _rank(node.inputs[0])
    axes = _axes(node, 1)
    if axes is None:
        return None
    reduced = tuple(axis % rank for axis in axes) or (
        () if _int(node, "noop_with_empty_axes", 0) else tuple(range(rank))
    )
    kept = _outputs_of_reduction(rank, reduced, bool(_int(node, "keepdims", 1)))
    if kept is None:
        return None
    return _with_axes(node, 1, Adaptation((0,), kept), [place(axis, rank) for axis in axes])


def _outputs_of_reduction(rank: int, reduced: Sequence[int], keepdims: bool) -> tuple[int, ...] | None:
    """The output is an activation if it keeps its rank; if not, what is left must have kept its order."""
    if keepdims:
        return (0,)
    left = [axis for axis in last_order(rank) if axis not in reduced]
    return () if left == sorted(left) else None


def _squeeze(node: ir.Node, _: int) -> Adaptation | None:
    """Spatial axes go; N, C remain or N, C and other spatial axes do."""
    shape = static_shape(node.inputs[0]) or ()
    axes, rank = _axes(node, 1), len(shape)
    if axes is None:
        return None
    gone = sorted(axis % rank for axis in axes) or [axis for axis, extent in enumerate(shape) if extent == 1]
    if not gone or gone[0] < 2:
        return None
    outputs = (0,) if _has_layout(node.outputs[0]) else ()
    return _with_axes(node, 1, Adaptation((0,), outputs), sorted(place(axis, rank) for axis in gone))


def _unsqueeze(node: ir.Node, _: int) -> Adaptation | None:
    """Spatial axes come."""
    axes, rank = _axes(node, 1), _rank(node.outputs[0])
    if not axes or not _has_layout(node.outputs[0]) or min(axis % rank for axis in axes) < 2:
        return None
    return _with_axes(node, 1, Adaptation((0,), (0,)), sorted(place(axis, rank) for axis in axes))


def _reshape(node: ir.Node, _: int) -> Adaptation | None:
    """Spatial axes are split or merged and N and C stay, or C is split in two or merged (as channel shuffles do)."""
    before, after = static_shape(node.inputs[0]) or (), static_shape(node.outputs[0]) or ()
    if not _has_layout(node.outputs[0]) or 0 in after:
        return None
    input_order = output_order = None
    if before[:2] != after[:2]:
        if _merges_channels(after, before):
            output_order = last_order(len(after), 2)
        elif _merges_channels(before, after):
            input_order = last_order(len(before), 2)
        else:
            return None
    shape = np.array([after[axis] for axis in output_order or last_order(len(after))], np.int64)
    return Adaptation((0,), (0,), parameters={1: shape}, input_order=input_order, output_order=output_order)


def _merges_channels(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Whether N, C₁, C₂, spatial… becomes N, C₁ · C₂, spatial…."""
    return len(before) == len(after) + 1 >= 4 and (before[0], before[1] * before[2], *before[3:]) == after


def _transpose(node: ir.Node, _: int) -> Adaptation | None:
    """Two axes of channels change places."""
    rank = _rank(node.inputs[0])
    if _ints(node, "perm") != [0, 2, 1, *range(3, rank)] or rank < 4:
        return None
    order = last_order(rank, 2)
    perm = ir.AttrInt64s("perm", [*range(rank - 2), rank - 1, rank - 2])
    return Adaptation((0,), (0,), attributes=(perm,), input_order=order, output_order=order)


def _slice(node: ir.Node, opset: int) -> Adaptation | None:
    rank = _rank(node.inputs[0])
    if opset < 10:
        axes = _ints(node, "axes") or list(range(len(_ints(node, "starts"))))
        return Adaptation((0,), (0,), attributes=(ir.AttrInt64s("axes", [place(axis, rank) for axis in axes]),))
    given = node.inputs[3] if len(node.inputs) > 3 else None
    starts = static_shape(node.inputs[1])
    listed = constant_of(given) if given is not None else np.arange(starts[0]) if starts is not None else None
    if listed is None:
        return None
    return Adaptation((0,), (0,), parameters={3: np.array([place(int(axis), rank) for axis in listed], np.int64)})


def _pad(node: ir.Node, opset: int) -> Adaptation | None:
    rank = _rank(node.inputs[0])
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        axes = constant_of(node.inputs[3])
        moved = None if axes is None else np.array([place(int(axis), rank) for axis in axes], np.int64)
        return None if moved is None else Adaptation((0,), (0,), parameters={3: moved})
    pads = _ints(node, "pads") if opset < 11 else constant_of(node.inputs[1])
    if pads is None:
        return None
    swapped = np.asarray(pads, np.int64).reshape(2, rank)[:, last_order(rank)].reshape(-1)
    if opset < 11:
        return Adaptation((0,), (0,), attributes=(ir.AttrInt64s("pads", swapped.tolist()),))
    return Adaptation((0,), (0,), parameters={1: swapped})


# Operators that do not care.


def _elementwise(node: ir.Node) -> Adaptation | None:
    """Inputs of the output's rank are activations; constants that broadcast are laid out like them; scalars are not."""
    rank = _rank(node.outputs[0])
    if rank not in RANKS or (node.domain and len(node.inputs) > 1):
        return None
    inputs, constants = [], []
    for index, value in enumerate(node.inputs):
        if value is None or not set(static_shape(value) or ()) - {1}:
            continue  # omitted, or one element
        if is_constant(value):
            constants.append(index)
        elif _rank(value) == rank:
            inputs.append(index)
        else:
            return None
    outputs = tuple(i for i, value in enumerate(node.outputs) if value.name)
    return Adaptation(tuple(inputs), outputs, tuple(constants)) if inputs else None


# Attributes and constant parameters.


def _int(node: ir.Node, name: str, default: int) -> int:
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_int()


def _ints(node: ir.Node, name: str) -> list[int]:
    attribute = node.attributes.get(name)
    return [] if attribute is None else list(attribute.as_ints())


def _axes(node: ir.Node, index: int) -> list[int] | None:
    """Axes given as attribute or as input `index`; [] where neither is; None where they are not constant."""
    value = node.inputs[index] if len(node.inputs) > index else None
    if value is None:
        return _ints(node, "axes")
    axes = constant_of(value)
    return None if axes is None else [int(axis) for axis in axes.reshape(-1)]


def _with_axes(node: ir.Node, index: int, adaptation: Adaptation, axes: Sequence[int]) -> Adaptation:
    """The adaptation with these axes, given as they were before."""
    if "axes" in node.attributes:
        return replace(adaptation, attributes=(ir.AttrInt64s("axes", list(axes)),))
    if len(node.inputs) > index and node.inputs[index] is not None:
        return replace(adaptation, parameters={index: np.array(axes, np.int64)})
    return adaptation


_Rule: TypeAlias = Callable[[ir.Node, int], Adaptation | None]

_WINDOWED = (
    "MaxPool",
    "AveragePool",
    "LpPool",
    "GlobalMaxPool",
    "GlobalAveragePool",
    "GlobalLpPool",
    "BatchNormalization",
    "InstanceNormalization",
    "GroupNormalization",
    "LRN",
    "Resize",
    "Upsample",
    "DepthToSpace",
    "SpaceToDepth",
)
_REDUCTIONS = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")

_RULES: Mapping[tuple[str, str], _Rule] = {
    **dict.fromkeys(CONVOLUTIONS, _convolution),
    **{("", name): _windowed for name in _WINDOWED},
    **{("", f"Reduce{name}"): _reduction for name in _REDUCTIONS},
    **{("", name): _softmax for name in ("Softmax", "LogSoftmax", "Hardmax")},
    ("", "ArgMax"): _arg_reduction,
    ("", "ArgMin"): _arg_reduction,
    ("", "Concat"): _one_axis(1),
    ("", "Split"): _one_axis(0),
    ("", "Reshape"): _reshape,
    ("", "Slice"): _slice,
    ("", "Pad"): _pad,
    ("", "Squeeze"): _squeeze,
    ("", "Transpose"): _transpose,
    ("", "Unsqueeze"): _unsqueeze,
}
