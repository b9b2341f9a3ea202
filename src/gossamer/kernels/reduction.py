"""Reductions over any set of axes: ReduceSum, Mean, Max, Min, Prod, L1, L2, LogSum, LogSumExp, SumSquare.

One kernel serves every set of axes through a `Geometry`. Where rows are few and long their steps are split over
programs, which leave partial results to a second launch; more than two runs of reduced axes are reduced two by two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import triton
import triton.language as tl

from gossamer.kernels.elementwise_math import divide, square_root
from gossamer.kernels.extents import cdiv
from gossamer.kernels.launch import launch
from gossamer.kernels.reduction_geometry import (
    Geometry,
    Tile,
    accumulator_of,
    as_type,
    geometry_of,
    part_bounds,
    row_offsets,
    runs_of,
    splits_for,
    step_offsets,
    tile_for,
    warps_for,
)
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import Node
from gossamer.program import Buffer, Call, Launch, Refusal, Target, View, dtype_of


@triton.jit
def integer_power(x, P: tl.constexpr):
    """x to the power of P, exact for integers."""
    result = x
    for _ in tl.static_range(P - 1):
        result = result * x
    return result


@triton.jit
def root(x, P: tl.constexpr):
    """x to the power of 1/P, for x >= 0."""
    if P == 1:
        return x
    elif P == 2:
        return square_root(x)
    else:
        return tl.exp2(tl.log2(x) / P)


@triton.jit
def mapped(x, MAP: tl.constexpr, P: tl.constexpr):
    """What is combined of each element."""
    return integer_power(tl.abs(x), P) if MAP == "power" else x


@triton.jit
def combined(a, b, COMBINE: tl.constexpr):
    """a ∘ b element by element; a NaN wins over any number."""
    if COMBINE == "sum":
        return a + b
    elif COMBINE == "prod":
        return a * b
    elif COMBINE == "max":
        return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    else:
        tl.static_assert(COMBINE == "min")
        return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def combined_steps(tile, COMBINE: tl.constexpr):
    """The reduction of a tile along axis 1, which keeps extent 1."""
    if COMBINE == "sum":
        return tl.sum(tile, axis=1, keep_dims=True)
    elif COMBINE == "prod":
        last = tl.arange(0, tile.shape[1])[None, :, None] == tile.shape[1] - 1
        return tl.sum(tl.where(last, tl.cumprod(tile, axis=1), 0), axis=1, keep_dims=True)
    elif tile.dtype.is_floating():
        # The hardware's reduction drops NaN; whether there was one is found apart.
        number = tile == tile  # noqa: PLR0124
        if COMBINE == "max":
            extreme = tl.max(tl.where(number, tile, float("-inf")), axis=1, keep_dims=True)
        else:
            extreme = tl.min(tl.where(number, tile, float("inf")), axis=1, keep_dims=True)
        return tl.where(tl.min(number.to(tl.int32), axis=1, keep_dims=True) == 0, float("nan"), extreme)
    elif COMBINE == "max":
        return tl.max(tile, axis=1, keep_dims=True)
    else:
        return tl.min(tile, axis=1, keep_dims=True)


@triton.jit
def finished(x, count, FINISH: tl.constexpr, P: tl.constexpr):
    """The result of a combination of `count` elements."""
    if FINISH == "none":
        return x
    elif FINISH == "mean":
        n = (tl.zeros((1, 1, 1), tl.int64) + count).to(x.dtype)
        return divide(x, n) if x.dtype.is_floating() else x // n
    else:
        real = x if x.dtype.is_floating() else x.to(tl.float64)
        return root(real, P) if FINISH == "root" else tl.log(real)


@triton.jit
def online_logsumexp(most, total, x):
    """(max, sum of exp(x - max)) with x taken in: one exponential, and infinities never meet."""
    distance = tl.where(x == most, 0.0, x - most)
    decay = tl.exp(-tl.abs(distance))
    return tl.maximum(most, x), tl.where(distance > 0, total * decay + 1, total + decay)


@triton.jit
def reduce_kernel(
    x_ptr, y_ptr, n_rows, kept1, reduced1, n_inner, n_steps, count, chunk,
    MAP: tl.constexpr, COMBINE: tl.constexpr, FINISH: tl.constexpr, P: tl.constexpr,
    IDENTITY: tl.constexpr, TYPE: tl.constexpr, NESTED: tl.constexpr, WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_STEPS: tl.constexpr, BLOCK_INNER: tl.constexpr,
):  # fmt: skip
    """y[part, row, k] = finish(combine over the part's steps of map(x[row, step, k]))."""
    inner_blocks = tl.cdiv(n_inner, BLOCK_INNER)
    row = ((tl.program_id(0) // inner_blocks).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None, None]
    k = ((tl.program_id(0) % inner_blocks) * BLOCK_INNER + tl.arange(0, BLOCK_INNER))[None, None, :]
    part = tl.program_id(1)
    base_ptr = x_ptr + row_offsets(row, kept1, reduced1, n_inner, n_steps, NESTED) + k
    live = (row < n_rows) & (k < n_inner)
    origin = as_type(tl.zeros((BLOCK_ROWS, BLOCK_STEPS, BLOCK_INNER), tl.int32), TYPE)
    neutral = tl.full((BLOCK_ROWS, BLOCK_STEPS, BLOCK_INNER), IDENTITY, origin.dtype)
    result, total = neutral, origin
    begin, end = part_bounds(part, chunk, n_steps, WIDE)
    for start in range(begin, end, BLOCK_STEPS):
        step = (start + tl.arange(0, BLOCK_STEPS))[None, :, None]
        mask = live & (step < end)
        x = tl.load(base_ptr + step_offsets(step, kept1, reduced1, n_inner, NESTED, WIDE), mask, other=0)
        if COMBINE == "logsumexp":
            x = tl.where(mask, as_type(x, TYPE), float("-inf"))
            result, total = online_logsumexp(result, total, x)
        else:
            x = tl.where(mask, mapped(as_type(x, TYPE), MAP, P), neutral)
            result = combined(result, x, COMBINE)
    if COMBINE == "logsumexp":
        most = tl.max(result, axis=1, keep_dims=True)
        total *= tl.exp(tl.where(result == most, 0.0, result - most))
        y = most + tl.log(tl.sum(total, axis=1, keep_dims=True))
    else:
        y = finished(combined_steps(result, COMBINE), count, FINISH, P)
    y_ptr += part.to(tl.int64) * n_rows * n_inner
    tl.store(y_ptr + row * n_inner + k, y.to(y_ptr.dtype.element_ty), live)


@dataclass(frozen=True, slots=True)
class Recipe:
    """finish(combine(map(x))).

    combine: `sum`, `prod`, `max`, `min` or `logsumexp`. map: `none` or `power`, |x|^p. finish: `none`, `mean`, `log` or
    `root`, the p-th.
    """

    combine: str
    map: str = "none"
    finish: str = "none"
    p: int = 1

    @property
    def keeps_single(self) -> bool:
        """Whether the result for one element is that element."""
        return self.map == "none" and self.finish in ("none", "mean") and self.combine != "logsumexp"

    @property
    def rest(self) -> Recipe:
        """What a later pass does with partial results."""
        return Recipe(self.combine, "none", self.finish, self.p)

    @property
    def partial(self) -> Recipe:
        return Recipe(self.combine, self.map, "none", self.p)

    def accumulator(self, dtype: str) -> str:
        """The dtype to accumulate in: integers stay exact."""
        accumulator = accumulator_of(dtype)
        return "float64" if self.combine == "logsumexp" and "int" in accumulator else accumulator

    def identity(self, dtype: str) -> int | float:
        """What combining leaves unchanged; ONNX's result where nothing is reduced."""
        if self.combine == "logsumexp":  # finite, so that minus infinity less the maximum is no NaN
            return float(np.finfo(self.accumulator(dtype)).min)
        if self.combine in ("sum", "prod"):
            return int(self.combine == "prod")
        sign = 1 if self.combine == "min" else -1
        if dtype == "bool":
            return int(sign > 0)
        if dtype_of(dtype).kind not in "iu":
            return sign * math.inf
        limits = np.iinfo(dtype)
        return int(limits.max if sign > 0 else limits.min)


RECIPES = {
    "ReduceSum": Recipe("sum"),
    "ReduceMean": Recipe("sum", finish="mean"),
    "ReduceMax": Recipe("max"),
    "ReduceMin": Recipe("min"),
    "ReduceProd": Recipe("prod"),
    "ReduceL1": Recipe("sum", "power", p=1),
    "ReduceL2": Recipe("sum", "power", "root", p=2),
    "ReduceLogSum": Recipe("sum", finish="log"),
    "ReduceLogSumExp": Recipe("logsumexp"),
    "ReduceSumSquare": Recipe("sum", "power", p=2),
}


def reduce_calls(
    node: Node, x: Buffer, y: Buffer, axes: tuple[int, ...], recipe: Recipe, target: Target
) -> tuple[Call, ...]:
    """The calls that reduce `axes` (not negative) of `x` into `y`, which has the kept axes in order."""
    runs = runs_of(x.shape, axes)
    identity = recipe.identity(x.dtype)
    count = math.prod(runs[1::2])
    if len(runs) == 1 and recipe.keeps_single:
        return (View(x.name, y.name),)
    calls: list[Call] = []
    while len(runs) > 5:  # the last two runs first: what they leave is contiguous
        *left, kept0, reduced0, kept1, reduced1, inner = runs
        partial = node.temporary((math.prod(left) * kept0 * kept1 * inner,), recipe.accumulator(x.dtype))
        last = Geometry(math.prod(left) * kept0, reduced0, kept1, reduced1, inner)
        calls += _passes(node, x, partial, last, recipe.partial, count, identity, target)
        x, recipe, runs = partial, recipe.rest, [*left, kept0 * kept1 * inner]
    geometry = geometry_of(runs)
    assert geometry is not None, runs
    return (*calls, *_passes(node, x, y, geometry, recipe, count, identity, target))


def _passes(
    node: Node,
    x: Buffer,
    y: Buffer,
    geometry: Geometry,
    recipe: Recipe,
    count: int,
    identity: int | float,
    target: Target,
) -> tuple[Launch, ...]:
    """One launch, or two with a workspace between where the rows are few and long."""
    tile = tile_for(geometry, x.itemsize, target)
    splits = splits_for(geometry, tile, target)
    if splits == 1:
        return (_pass(x, y, geometry, tile, 1, recipe, count, identity, target),)
    partial = node.temporary((splits, geometry.outputs), recipe.accumulator(x.dtype))
    rest = Geometry(1, 1, 1, splits, geometry.outputs)
    return (
        _pass(x, partial, geometry, tile, splits, recipe.partial, count, identity, target),
        _pass(partial, y, rest, tile_for(rest, partial.itemsize, target), 1, recipe.rest, count, identity, target),
    )


def _pass(
    x: Buffer,
    y: Buffer,
    geometry: Geometry,
    tile: Tile,
    splits: int,
    recipe: Recipe,
    count: int,
    identity: int | float,
    target: Target,
) -> Launch:
    blocks = cdiv(geometry.steps, tile.steps)
    return launch(
        reduce_kernel,
        (tile.programs(geometry), splits),
        writes=y,
        num_warps=warps_for(tile.elements, tile.programs(geometry) * splits, target),
        x_ptr=x,
        y_ptr=y,
        count=count,
        chunk=cdiv(blocks, splits) * tile.steps,
        MAP=recipe.map,
        COMBINE=recipe.combine,
        FINISH=recipe.finish,
        P=recipe.p,
        IDENTITY=identity,
        TYPE=recipe.accumulator(x.dtype),
        **geometry.arguments(),
        **tile.constants(),
    )


def reduced_axes(node: Node) -> tuple[int, ...] | Refusal:
    """The axes of a Reduce* node, not negative: the attribute up to opset 17 (ReduceSum: 12), then input 1."""
    axes: Any = node.attribute("axes", None)
    if node.input(1) is not None:
        axes = node.constant(1)
        if axes is None:
            return Refusal("its axes are known only when the model runs")
        axes = tuple(int(axis) for axis in axes.reshape(-1))
    if not axes:
        axes = () if node.attribute("noop_with_empty_axes", 0) else range(node.x.rank)
    return tuple(sorted({axis % node.x.rank for axis in axes}))


@lowers(*RECIPES)
def lower_reduction(node: Node, target: Target) -> Lowered:
    """Reduce*, opset 1 to 20: floats accumulate in fp32 (fp64 in fp64), integers in 64 bits."""
    axes = reduced_axes(node)
    if isinstance(axes, Refusal):
        return axes
    return reduce_calls(node, node.x, node.y, axes, RECIPES[node.op_type], target)
