"""Which values are only other values seen differently: transposed, reshaped, sliced, repeated.

Kernels that take strides read such a value from where it came from, and the nodes that make it need not run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import onnx_ir as ir

from gossamer.model.edit import constant_of, static_shape

Factor: TypeAlias = "tuple[int, int]"
"""(extent, stride)."""
MOST_STEPS = 12


@dataclass(frozen=True, slots=True)
class View:
    """Elements of a dense row-major tensor under another shape.

    axes: for each axis its factors, outermost first: an index is split among them, as row-major indices are. An axis of
    extent 1 has none. A stride of 0 repeats. offset and strides in elements.
    """

    axes: tuple[tuple[Factor, ...], ...]
    offset: int = 0

    @staticmethod
    def dense(shape: Sequence[int]) -> View:
        steps = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        return View(tuple(((n, step),) if n != 1 else () for n, step in zip(shape, steps, strict=True)))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(math.prod(extent for extent, _ in axis) for axis in self.axes)

    def stride(self, axis: int) -> int | None:
        """The stride of an axis; 0 for an extent of 1, None where one number does not say it."""
        factors = self.axes[axis]
        return 0 if not factors else factors[0][1] if len(factors) == 1 else None

    def transposed(self, perm: Sequence[int]) -> View:
        return replace(self, axes=tuple(self.axes[axis] for axis in perm))

    def reshaped(self, shape: Sequence[int]) -> View | None:
        """The same elements in the same order under a shape; None where that has no strides."""
        if math.prod(shape) != math.prod(self.shape) or 0 in shape:
            return None
        rest = _joined([factor for axis in self.axes for factor in axis])
        axes = []
        for extent in shape:
            axis: list[Factor] = []
            missing = extent
            while missing > 1:
                there, stride = rest.pop(0)
                taken = math.gcd(missing, there)
                if taken < min(missing, there):
                    return None
                axis.append((taken, stride * (there // taken)))
                if taken < there:
                    rest.insert(0, (there // taken, stride))
                missing //= taken
            axes.append(tuple(axis))
        return replace(self, axes=tuple(axes))

    def expanded(self, shape: Sequence[int]) -> View:
        """Broadcast to a shape, aligned at the right."""
        axes = ((),) * (len(shape) - len(self.axes)) + self.axes
        return replace(self, axes=tuple(axis or _repeated(n) for axis, n in zip(axes, shape, strict=True)))

    def sliced(self, axis: int, start: int, step: int, extent: int) -> View | None:
        """Indices start, start + step, … of an axis, `extent` of them."""
        stride = self.stride(axis)
        if stride is None or extent < 1:
            return None
        part = ((extent, stride * step),) if extent > 1 else ()
        axes = (*self.axes[:axis], part, *self.axes[axis + 1 :])
        return View(axes, self.offset + start * stride)


def _repeated(extent: int) -> tuple[Factor, ...]:
    return ((extent, 0),) if extent != 1 else ()


def _joined(factors: Sequence[Factor]) -> list[Factor]:
    """Neighbouring factors as one where they step through memory evenly."""
    joined: list[Factor] = []
    for extent, stride in factors:
        if joined and joined[-1][1] == stride * extent:
            joined[-1] = (joined[-1][0] * extent, stride)
        else:
            joined.append((extent, stride))
    return joined


def trace(
    value: ir.Value, accept: Callable[[View], bool], through: Callable[[ir.Node], ir.Value | None] = lambda _: None
) -> Trace | None:
    """The furthest value that `value` is an acceptable view of; None where not even `value` as it stands is acceptable.

    through: the input of a node that changes values but not where they are, for the caller to account for; None where
    it is no such node.
    """
    path: list[ir.Value] = []
    best, source = None, value
    while True:
        view = _view_along(source, path)
        if view is not None and accept(view):
            best = Trace(source, view, tuple(node for node in (made.producer() for made in path) if node is not None))
        node = source.producer()
        before = None if node is None or len(path) == MOST_STEPS else _input_of(node) or through(node)
        if before is None:
            return best
        path.insert(0, source)
        source = before


@dataclass(frozen=True, slots=True)
class Trace:
    """A value is `view` of `source`; `nodes` make it from that, in order."""

    source: ir.Value
    view: View
    nodes: tuple[ir.Node, ...]


def _input_of(node: ir.Node) -> ir.Value | None:
    return node.inputs[0] if node.domain == "" and node.op_type in _STEPS else None


def _view_along(source: ir.Value, path: Sequence[ir.Value]) -> View | None:
    """The view that the last value of the path is of `source`, from which the path's values are made one by one."""
    shape = static_shape(source)
    view = None if shape is None or 0 in shape else View.dense(shape)
    for value in path:
        node, shape = value.producer(), static_shape(value)
        if view is None or node is None or shape is None:
            return None
        step = _STEPS.get(node.op_type) if node.domain == "" else None
        view = view if step is None else step(node, value, shape, view)
    return view


def _transpose(node: ir.Node, _: ir.Value, shape: Sequence[int], view: View) -> View:
    perm = node.attributes["perm"].as_ints() if "perm" in node.attributes else range(len(shape))[::-1]
    return view.transposed(perm)


def _reshape(_: ir.Node, __: ir.Value, shape: Sequence[int], view: View) -> View | None:
    return view.reshaped(shape)


def _expand(_: ir.Node, __: ir.Value, shape: Sequence[int], view: View) -> View:
    return view.expanded(shape)


def _split(node: ir.Node, value: ir.Value, shape: Sequence[int], view: View) -> View | None:
    axis = _axis(node, "axis", 0, len(shape))
    before = node.outputs[: node.outputs.index(value)]
    start = 0
    for earlier in before:
        extents = static_shape(earlier)
        if extents is None:
            return None
        start += extents[axis]
    return view.sliced(axis, start, 1, shape[axis])


def _slice(node: ir.Node, _: ir.Value, shape: Sequence[int], view: View) -> View | None:
    """Slice-10 and later, with constants; before, starts and axes are attributes and this is not a view."""
    given = [constant_of(node.inputs[i]) if i < len(node.inputs) else None for i in range(1, 5)]
    starts, ends, axes, steps = (None if array is None else array.tolist() for array in given)
    if starts is None or ends is None:
        return None
    result: View | None = view
    for position, begin in enumerate(starts):
        axis = (axes[position] if axes else position) % len(shape)
        step = steps[position] if steps else 1
        first = slice(begin, ends[position], step).indices(view.shape[axis])[0]
        result = None if result is None else result.sliced(axis, first, step, shape[axis])
    return result


def _gather(node: ir.Node, _: ir.Value, shape: Sequence[int], view: View) -> View | None:
    """One index of an axis, which remains as an extent of 1 or, where the index is a scalar, does not."""
    index = constant_of(node.inputs[1])
    if index is None or index.size != 1 or index.ndim > 1:
        return None
    axis = _axis(node, "axis", 0, len(view.axes))
    part = view.sliced(axis, int(index.item()) % view.shape[axis], 1, 1)
    return None if part is None else part.reshaped(shape)


def _axis(node: ir.Node, name: str, default: int, rank: int) -> int:
    attribute = node.attributes.get(name)
    return (default if attribute is None else attribute.as_int()) % rank


_STEPS: Mapping[str, Callable[[ir.Node, ir.Value, Sequence[int], View], View | None]] = {
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Flatten": _reshape,
    "Squeeze": _reshape,
    "Unsqueeze": _reshape,
    "Expand": _expand,
    "Split": _split,
    "Slice": _slice,
    "Gather": _gather,
}
