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
from gossamer.kernels.logsumexp import logsumexp_kernel
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
    streaming_tile,
    streaming_warps,
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
def ordered(x, COMBINE: tl.constexpr):
    """Integers in the order of the floats x; NaN is the greatest, or the least where COMBINE is `min`."""
    SIGN: tl.constexpr = x.dtype.primitive_bitwidth - 1
    bits = x.to(tl.int64 if SIGN == 63 else tl.int32, bitcast=True)
    key = bits ^ ((bits >> SIGN) & (2**SIGN - 1))
    return tl.where(x == x, key, 2**SIGN - 1 if COMBINE == "max" else -(2**SIGN))  # noqa: PLR0124


@triton.jit
def from_ordered(key, FLOAT: tl.constexpr):
    """The float of a key of `ordered`."""
    SIGN: tl.constexpr = FLOAT.primitive_bitwidth - 1
    return (key ^ ((key >> SIGN) & (2**SIGN - 1))).to(FLOAT, bitcast=True)


@triton.jit
def combined_steps(tile, COMBINE: tl.constexpr):
    """The reduction of a tile along axis 1, which keeps extent 1."""
    if COMBINE == "sum":
        return tl.sum(tile, axis=1, keep_dims=True)
    elif COMBINE == "prod":
        last = tl.arange(0, tile.shape[1])[None, :, None] == tile.shape[1] - 1
        return tl.sum(tl.where(last, tl.cumprod(tile, axis=1), 0), axis=1, keep_dims=True)
    elif tile.dtype.is_floating():
        # The hardware's maximum of floats drops NaN; that of integers which are in the same order does not.
        key = ordered(tile, COMBINE)
        extreme = tl.max(key, axis=1, keep_dims=True) if COMBINE == "max" else tl.min(key, axis=1, keep_dims=True)
        return from_ordered(extreme, tile.dtype)
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
def reduce_kernel(
    x_ptr, y_ptr, n_rows, kept1, reduced1, n_inner, n_steps, count, chunk,
    MAP: tl.constexpr, COMBINE: tl.constexpr, FINISH: tl.constexpr, P: tl.constexpr,
    IDENTITY: tl.constexpr, TYPE: tl.constexpr, NESTED: tl.constexpr, WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_STEPS: tl.constexpr, BLOCK_INNER: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """y[part, row, k] = finish(combine over the part's steps of map(x[row, step, k]))."""
    inner_blocks = tl.cdiv(n_inner, BLOCK_INNER)
    row = ((tl.program_id(0) // inner_blocks).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None, None]
    k = ((tl.program_id(0) % inner_blocks) * BLOCK_INNER + tl.arange(0, BLOCK_INNER))[None, None, :]
    part = tl.program_id(1)
    base_ptr = x_ptr + row_offsets(row, kept1, reduced1, n_inner, n_steps, NESTED) + k
    live = (row < n_rows) & (k < n_inner)
    result = tl.full((BLOCK_ROWS, BLOCK_STEPS, BLOCK_INNER), IDENTITY, as_type(tl.zeros((1,), tl.int32), TYPE).dtype)
    begin, end = part_bounds(part, chunk, n_steps, WIDE)
    for start in range(begin, end, UNROLL * BLOCK_STEPS):
        for i in tl.static_range(UNROLL):
            step = (start + i * BLOCK_STEPS + tl.arange(0, BLOCK_STEPS))[None, :, None]
            x_ptrs = base_ptr + step_offsets(step, kept1, reduced1, n_inner, NESTED, WIDE)
            x = tl.load(x_ptrs, live & (step < end), other=IDENTITY)
            result = combined(result, mapped(as_type(x, TYPE), MAP, P), COMBINE)
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
        if self.combine == "logsumexp":
            return -math.inf
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
    tile = streaming_tile(geometry, x.itemsize, target)
    splits = splits_for(geometry, tile, target)
    if splits == 1:
        return (_pass(x, y, geometry, tile, 1, recipe, count, identity),)
    partial = node.temporary((splits, geometry.outputs), recipe.accumulator(x.dtype))
    rest = Geometry(1, 1, 1, splits, geometry.outputs)
    rest_tile = streaming_tile(rest, partial.itemsize, target)
    return (
        _pass(x, partial, geometry, tile, splits, recipe.partial, count, identity),
        _pass(partial, y, rest, rest_tile, 1, recipe.rest, count, identity),
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
) -> Launch:
    taken = tile.steps * tile.unroll
    grid = (tile.programs(geometry), splits)
    shared = {
        "x_ptr": x,
        "y_ptr": y,
        "chunk": cdiv(cdiv(geometry.steps, taken), splits) * taken,
        "TYPE": recipe.accumulator(x.dtype),
        "UNROLL": tile.unroll,
        **geometry.arguments(),
        **tile.constants(),
    }
    if recipe.combine == "logsumexp":
        lowest = float(np.finfo(recipe.accumulator(x.dtype)).min)
        return launch(logsumexp_kernel, grid, writes=y, num_warps=streaming_warps(tile), LOWEST=lowest, **shared)
    return launch(
        reduce_kernel,
        grid,
        writes=y,
        num_warps=streaming_warps(tile),
        count=count,
        MAP=recipe.map,
        COMBINE=recipe.combine,
        FINISH=recipe.finish,
        P=recipe.p,
        IDENTITY=identity,
        **shared,
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
