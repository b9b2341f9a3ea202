"""Operators that only move data: views, and copies of strided regions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gossamer.kernels.copies import Strided, copy_segments, copy_strided, movable
from gossamer.kernels.extents import cdiv
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import Node
from gossamer.program import Buffer, Call, Refusal, Target, View


@lowers("BitCast", since=26)
@lowers("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze")
def lower_view(node: Node, target: Target) -> Lowered:
    """The same memory under another shape (ONNX Identity 1, Reshape 5, Flatten 1, Squeeze 1, Unsqueeze 1 and newer), or
    as another type of the same width (BitCast 26)."""
    return (View(node.x.name, node.y.name),)


@lowers("Expand")
def lower_expand(node: Node, target: Target) -> Lowered:
    """Broadcast to a shape (ONNX Expand 8)."""
    if refusal := movable(node.x):
        return refusal
    return copy_strided(node.y.shape, broadcast(node.x, node.y.shape), Strided(node.y, node.y.strides), target)


def broadcast(buffer: Buffer, shape: Sequence[int]) -> Strided:
    """`buffer` as a region of `shape`, to which it broadcasts by ONNX's rules."""
    lead = len(shape) - buffer.rank
    strides = (0 if extent == 1 else stride for extent, stride in zip(buffer.shape, buffer.strides, strict=True))
    return Strided(buffer, (*(0,) * lead, *strides))


@lowers("Tile")
def lower_tile(node: Node, target: Target) -> Lowered:
    """Repeat along every axis (ONNX Tile 6); the repeats are those of the output's shape."""
    x, y = node.x, node.y
    if refusal := movable(x):
        return refusal
    shape, x_strides, y_strides = [], [], []
    for extent, out, x_stride, y_stride in zip(x.shape, y.shape, x.strides, y.strides, strict=True):
        shape += [out // max(extent, 1), extent]
        x_strides += [0, x_stride]
        y_strides += [y_stride * extent, y_stride]
    return copy_strided(shape, Strided(x, tuple(x_strides)), Strided(y, tuple(y_strides)), target)


@lowers("Slice")
def lower_slice(node: Node, target: Target) -> Lowered:
    """Every step-th element from start on, per axis (ONNX Slice 1 with attributes, 10 with inputs)."""
    x, y = node.x, node.y
    if refusal := movable(x):
        return refusal
    bounds = _slice_bounds(node)
    if isinstance(bounds, Refusal):
        return bounds
    strides, offset = list(x.strides), 0
    for axis, start, step in bounds:
        extent = x.shape[axis]
        begin = start + extent if start < 0 else start
        offset += min(max(begin, 0), extent if step > 0 else extent - 1) * x.strides[axis]
        strides[axis] = x.strides[axis] * step
    return copy_strided(y.shape, Strided(x, tuple(strides), offset), Strided(y, y.strides), target)


def _slice_bounds(node: Node) -> list[tuple[int, int, int]] | Refusal:
    """(axis, start, step) of the axes that are sliced; where they end, the output's shape says."""
    if node.version < 10:
        starts: Sequence[int] = node.attribute("starts")
        axes: Sequence[int] = node.attribute("axes", tuple(range(len(starts))))
        steps: Sequence[int] = (1,) * len(starts)
    else:
        given = node.constant(1)
        if given is None or any(node.input(i) is not None and node.constant(i) is None for i in (3, 4)):
            return Refusal("where the slices start is known only when the model runs")
        axes_given, steps_given = node.constant(3), node.constant(4)
        starts = given.tolist()
        axes = range(len(starts)) if axes_given is None else axes_given.tolist()
        steps = (1,) * len(starts) if steps_given is None else steps_given.tolist()
    return [(axis % node.x.rank, start, step) for axis, start, step in zip(axes, starts, steps, strict=True)]


@lowers("Concat")
def lower_concat(node: Node, target: Target) -> Lowered:
    """Inputs one after the other along an axis (ONNX Concat 4), up to eight in one launch."""
    y = node.y
    if refusal := movable(y):
        return refusal
    axis = node.attribute("axis") % y.rank
    inner = math.prod(y.shape[axis + 1 :])
    segments, offset = [], 0
    for x in node.inputs:
        assert x is not None
        width = x.shape[axis] * inner
        if x.size:
            segments.append((Strided(x, (width,)), Strided(y, (y.shape[axis] * inner,), offset), width))
        offset += width
    return copy_segments(math.prod(y.shape[:axis]), segments, target)


@lowers("Split")
def lower_split(node: Node, target: Target) -> Lowered:
    """Parts along an axis (ONNX Split 2, 13, 18): views where contiguous and aligned, the others in one launch."""
    x = node.x
    if refusal := movable(x):
        return refusal
    axis = node.attribute("axis", 0) % x.rank
    inner, n_rows = math.prod(x.shape[axis + 1 :]), math.prod(x.shape[:axis])
    sizes = _split_sizes(node, x.shape[axis])
    if isinstance(sizes, Refusal):
        return sizes
    views: list[Call] = []
    segments, offset = [], 0
    for y, size in zip(node.outputs, sizes, strict=True):
        width = size * inner
        if y is not None and y.size and n_rows == 1 and offset * x.itemsize % 16 == 0:
            views.append(View(x.name, y.name, offset * x.itemsize))
        elif y is not None and y.size:
            segments.append((Strided(x, (x.shape[axis] * inner,), offset), Strided(y, (width,)), width))
        offset += width
    return (*views, *copy_segments(n_rows, segments, target))


def _split_sizes(node: Node, extent: int) -> Sequence[int] | Refusal:
    if node.version < 13:
        sizes: Sequence[int] | None = node.attribute("split", None)
    elif node.input(1) is not None:
        given = node.constant(1)
        if given is None:
            return Refusal("the sizes of the parts are known only when the model runs")
        sizes = given.tolist()
    else:
        sizes = None
    if sizes:
        return sizes
    parts = len(node.outputs)
    part = cdiv(extent, parts)
    return [max(0, min(part, extent - i * part)) for i in range(parts)]
