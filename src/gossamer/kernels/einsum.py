"""Einsum: contractions two by two, as matrix products, sums, elementwise products and copies of other families.

Operands are strided views, so diagonals, permutations and broadcasting cost nothing until a kernel needs its axes in
another form. Labels that one operand alone has are summed at once; the pair whose result is smallest goes next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import prod

from gossamer.kernels.copies import Strided, copy_strided
from gossamer.kernels.einsum_equation import Equation, parse_equation
from gossamer.kernels.elementwise import evaluate_elementwise, strided_copy
from gossamer.kernels.gemm import Matrix, Product, multiply
from gossamer.kernels.reduction import RECIPES, reduce_calls
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import Node
from gossamer.model.steps import Expression, Step
from gossamer.program import Buffer, Call, Refusal, Target

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int32", "int64", "uint32", "uint64")
NARROW = {"int8": "int32", "int16": "int32", "uint8": "uint32", "uint16": "uint32"}
"""What narrow integers are computed in: sums that wrap around in more bits have the same lower ones."""
MOST_FACTORS = 8
"""Operands of one elementwise product."""


@lowers("Einsum", since=12)
def lower_einsum(node: Node, target: Target) -> Lowered:
    """ONNX Einsum (-12): any number of operands, repeated labels, ellipsis, implicit output."""
    operands = [buffer for buffer in node.inputs if buffer is not None]
    dtype = node.x.dtype
    if dtype not in FLOATS + INTEGERS + tuple(NARROW):
        return Refusal(f"Einsum of {dtype} has no kernel")
    equation = parse_equation(node.attribute("equation"), [buffer.shape for buffer in operands])
    if isinstance(equation, Refusal):
        return equation
    return Contraction(node, target, equation).calls_for(operands)


@dataclass(frozen=True, slots=True)
class Strides:
    """An operand: a buffer whose element at given label indices is at Σ index · stride. Broadcast labels have stride
    0; where an operand had a label twice, its stride is the sum."""

    buffer: Buffer
    steps: dict[str, int]


@dataclass(slots=True)
class Contraction:
    """One Einsum on its way to calls."""

    node: Node
    target: Target
    equation: Equation
    calls: list[Call] = field(default_factory=list)

    def calls_for(self, operands: Sequence[Buffer]) -> tuple[Call, ...]:
        """The calls that leave the result in the node's output."""
        y, narrow = self.node.y, NARROW.get(self.node.y.dtype)
        if narrow is not None:
            y = self.node.temporary(y.shape, narrow)
        labels = self.equation.operands
        views = [self._view(buffer, terms) for buffer, terms in zip(operands, labels, strict=True)]
        while len(views) > 1:
            views = self._sum_lonely(views)
            if not self._contracted(views) and len(views) <= MOST_FACTORS:
                views = [self._multiply_elements(views, self.equation.output, y)]
                break
            a, b = self._next_pair(views)
            rest = [view for view in views if view is not a and view is not b]
            views = [*rest, self._contract(a, b, self._needed(rest), None if rest else y)]
        (last,) = views
        self._deliver(last, y)
        if narrow is not None:
            self.calls.append(strided_copy(y, 0, y.strides, self.node.y, self.target))
        return tuple(self.calls)

    def _view(self, buffer: Buffer, labels: Sequence[str]) -> Strides:
        """An operand as it is; integers too narrow to sum are widened first."""
        if buffer.dtype in NARROW:
            wide = self.node.temporary(buffer.shape, NARROW[buffer.dtype])
            self.calls.append(strided_copy(buffer, 0, buffer.strides, wide, self.target))
            buffer = wide
        steps: dict[str, int] = {}
        for label, extent, stride in zip(labels, buffer.shape, buffer.strides, strict=True):
            steps[label] = steps.get(label, 0) + (stride if extent != 1 else 0)
        return Strides(buffer, steps)

    # What is next

    def _needed(self, views: Iterable[Strides]) -> set[str]:
        """The labels of the output and of these operands."""
        return set(self.equation.output).union(*(view.steps for view in views))

    def _contracted(self, views: Sequence[Strides]) -> bool:
        return any(label not in self.equation.output for view in views for label in view.steps)

    def _size(self, labels: Iterable[str]) -> int:
        return prod(self.equation.extents[label] for label in labels)

    def _next_pair(self, views: Sequence[Strides]) -> tuple[Strides, Strides]:
        """The pair that shrinks most, or grows least, when it becomes one; of equals the one that takes least work."""

        def cost(pair: tuple[Strides, Strides]) -> tuple[int, int]:
            needed = self._needed(view for view in views if all(view is not operand for operand in pair))
            union = pair[0].steps.keys() | pair[1].steps.keys()
            grown = self._size(union & needed) - self._size(pair[0].steps) - self._size(pair[1].steps)
            return grown, self._size(union)

        return min(combinations(views, 2), key=cost)

    # Sums

    def _sum_lonely(self, views: Sequence[Strides]) -> list[Strides]:
        """Every operand summed over the labels that nothing else has."""
        summed = []
        for index, view in enumerate(views):
            needed = self._needed([*views[:index], *views[index + 1 :]])
            kept = [label for label in view.steps if label in needed]
            summed.append(view if len(kept) == len(view.steps) else self._sum(view, kept))
        return summed

    def _sum(self, view: Strides, kept: Sequence[str]) -> Strides:
        """A dense tensor of the kept labels, in the order they lie in memory."""
        order = self._dense_order(view)
        if order is None:
            order = sorted(view.steps, key=lambda label: label in kept, reverse=True)
            view = self._copied(view, order)
        left = [label for label in order if label in kept]
        y = self.node.temporary(self._shape(left), view.buffer.dtype)
        axes = tuple(axis for axis, label in enumerate(order) if label not in kept)
        x = view.buffer.reshaped(*self._shape(order))
        self.calls += reduce_calls(self.node, x, y, axes, RECIPES["ReduceSum"], self.target)
        return self._dense(y, left)

    def _dense_order(self, view: Strides) -> list[str] | None:
        """The labels in an order in which the view is the whole buffer, row-major; None where it is not dense."""
        order = sorted(view.steps, key=lambda label: (-view.steps[label], self.equation.extents[label] != 1))
        dense = Buffer("", view.buffer.dtype, self._shape(order))
        steps = zip(order, dense.shape, dense.strides, strict=True)
        matches = all(extent == 1 or view.steps[label] == stride for label, extent, stride in steps)
        return order if matches and dense.size == view.buffer.size else None

    # Products

    def _multiply_elements(self, views: Sequence[Strides], labels: Sequence[str], y: Buffer | None) -> Strides:
        """The product without any sum, into y or a new buffer; every label is one of `labels`."""
        out = y or self.node.temporary(self._shape(labels), views[0].buffer.dtype)
        n = len(views)
        steps = [Step("mul", (0, 1))] + [Step("mul", (n + i, i + 2)) for i in range(n - 2)]
        expression = Expression(n, tuple(steps), (2 * n - 2,))
        strides = [[view.steps.get(label, 0) for label in labels] for view in views]
        buffers = [view.buffer for view in views]
        self.calls.append(evaluate_elementwise(expression, buffers, strides, [out], self.target))
        return self._dense(out, labels)

    def _contract(self, a: Strides, b: Strides, needed: set[str], y: Buffer | None) -> Strides:
        """The product of two operands, summed over what is not needed any more; into y if its axes come in order."""
        summed = [label for label in a.steps if label in b.steps and label not in needed]
        if not summed:
            return self._multiply_elements([a, b], list(dict.fromkeys((*a.steps, *b.steps))), None)
        batch = [label for label in a.steps if label in b.steps and label in needed]
        rows, columns = _only(a, b), _only(b, a)
        if y is not None:
            batch, rows, columns = (self._as_in_output(labels) for labels in (batch, rows, columns))
            if tuple(batch + columns + rows) == self.equation.output:
                a, b, rows, columns = b, a, columns, rows
        summed.sort(key=lambda label: -a.steps[label])
        a, b = self._with_merged(a, batch, rows, summed), self._with_merged(b, batch, columns, summed)
        labels = batch + rows + columns
        fits = y is not None and tuple(labels) == self.equation.output
        out = y if y is not None and fits else self.node.temporary(self._shape(labels), a.buffer.dtype)
        product = Product(
            Matrix(a.buffer, _steps(a, batch), self._merged(a, rows) or 0, self._merged(a, summed) or 0),
            Matrix(b.buffer, _steps(b, batch), self._merged(b, summed) or 0, self._merged(b, columns) or 0),
            out,
            self._size(rows),
            self._size(columns),
            self._size(summed),
            self._shape(batch),
        )
        self.calls += multiply(self.node, self.target, product)
        return self._dense(out, labels)

    def _as_in_output(self, labels: Sequence[str]) -> list[str]:
        return sorted(labels, key=self.equation.output.index)

    def _with_merged(self, view: Strides, batch: Sequence[str], own: Sequence[str], summed: Sequence[str]) -> Strides:
        """The view, copied where `own` or `summed` are not one axis each."""
        if self._merged(view, own) is not None and self._merged(view, summed) is not None:
            return view
        return self._copied(view, [*(label for label in batch if view.steps[label]), *own, *summed])

    def _merged(self, view: Strides, labels: Sequence[str]) -> int | None:
        """The stride of the labels taken as one axis, None where they are not evenly spaced."""
        stride = extent = 0
        for label in reversed(labels):
            size = self.equation.extents[label]
            if size == 1:
                continue
            if extent and view.steps[label] != stride * extent:
                return None
            stride, extent = (stride, extent * size) if extent else (view.steps[label], size)
        return stride

    # Memory

    def _copied(self, view: Strides, labels: Sequence[str]) -> Strides:
        """The view as a dense tensor of these labels; those that it only broadcasts stay as they are."""
        y = self.node.temporary(self._shape(labels), view.buffer.dtype)
        steps = tuple(view.steps[label] for label in labels)
        self.calls += copy_strided(y.shape, Strided(view.buffer, steps), Strided(y, y.strides), self.target)
        return Strides(y, dict.fromkeys(view.steps, 0) | self._dense(y, labels).steps)

    def _deliver(self, view: Strides, y: Buffer) -> None:
        """Puts the one operand that is left into y: summed and in the output's order."""
        if view.buffer is y:
            return
        (view,) = self._sum_lonely([view])
        steps = tuple(view.steps[label] for label in self.equation.output)
        self.calls += copy_strided(y.shape, Strided(view.buffer, steps), Strided(y, y.strides), self.target)

    def _shape(self, labels: Iterable[str]) -> tuple[int, ...]:
        return tuple(self.equation.extents[label] for label in labels)

    def _dense(self, buffer: Buffer, labels: Sequence[str]) -> Strides:
        """A dense tensor of these labels."""
        strides = Buffer("", buffer.dtype, self._shape(labels)).strides
        return Strides(buffer, dict(zip(labels, strides, strict=True)))


def _only(a: Strides, b: Strides) -> list[str]:
    """The labels that a has and b has not."""
    return [label for label in a.steps if label not in b.steps]


def _steps(view: Strides, labels: Sequence[str]) -> tuple[int, ...]:
    return tuple(view.steps[label] for label in labels)
