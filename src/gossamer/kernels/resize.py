"""Resize and Upsample: y = Σ over taps of x, along any axes at once, by the tables of `interpolation`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import triton
import triton.language as tl

from gossamer.kernels.copies import Lines, as_words, choose_lines, is_wide, movable, tile_of
from gossamer.kernels.division import divide_by, divisor_of
from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.kernels.interpolation import AxisResize
from gossamer.kernels.launch import launch
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import CHANNELS_LAST, Node
from gossamer.program import Buffer, Call, Launch, Refusal, Target, View
from gossamer.program.calls import TRITON_TYPES

MAX_TAPS = 16
"""Taps of one launch; where the axes' product is larger, axes are resized one after the other."""


@triton.jit
def locate(index, axes, TAPS: tl.constexpr, tap, WEIGHTED: tl.constexpr, HOLES: tl.constexpr, WIDE: tl.constexpr):
    """Offset in x, weight, and whether it is inside (HOLES: some are not), of one tap of the elements `index` of y.

    axes = (y shape as divisors, x strides, tables of indices, tables of weights). TAPS: taps per axis, 0 for an axis
    that is not resized. tap counts row-major over the taps of all axes.
    """
    offset = index * 0
    weight = tl.full(index.shape, 1.0, tl.float32)
    inside = index >= 0
    rest = index
    for d in tl.static_range(len(TAPS) - 1, -1, -1):
        coordinate = rest
        if d > 0:
            rest = divide_by(rest, axes[0][d], WIDE)
            coordinate = coordinate - rest * axes[0][d][0]
        if TAPS[d] > 0:
            at = coordinate * TAPS[d] + tap % TAPS[d]
            source = tl.load(axes[2][d] + at).to(index.dtype)
            if HOLES:
                inside = inside & (source >= 0)
                source = tl.maximum(source, 0)
            offset += source * axes[1][d]
            if WEIGHTED:
                weight *= tl.load(axes[3][d] + at)
            tap = tap // TAPS[d]
        else:
            offset += coordinate * axes[1][d]
    return offset, weight, inside


@triton.jit
def resize_nearest_kernel(
    x_ptr, y_ptr, rows, cols, n_rows, n_cols, outside,
    ROW_TAPS: tl.constexpr, COL_TAPS: tl.constexpr, WHOLE: tl.constexpr,
    LINES: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """y[r, c] = x[nearest(r), nearest(c)], or `outside` (if not None) where that lies outside of x.

    WHOLE: columns are not resized, and are read in vectors, whose mask costs nothing; else those beyond the last one
    read what that reads.
    """
    row, col = tile_of(tl.program_id(0), n_cols, LINES, ROWS, COLS, WIDE)
    HOLES: tl.constexpr = outside is not None
    shown = col if WHOLE else tl.minimum(col, n_cols - 1)
    mask = col < n_cols if WHOLE else None
    col_offset, _, col_inside = locate(shown, cols, COL_TAPS, 0, False, HOLES, WIDE)
    lines = ()  # all loads come before the first store: the compiler cannot know that x and y are not one
    for j in tl.static_range(LINES):
        at = tl.minimum(row + j * ROWS, n_rows - 1)
        row_offset, _, row_inside = locate(at, rows, ROW_TAPS, 0, False, HOLES, WIDE)
        y = tl.load(x_ptr + row_offset + col_offset, mask=mask)
        if HOLES:
            y = tl.where(row_inside & col_inside, y, tl.full((ROWS, COLS), outside, y.dtype))
        lines = lines + (y,)  # type: ignore[assignment]  # noqa: RUF005
    for j in tl.static_range(LINES):
        at = row + j * ROWS
        tl.store(y_ptr + at * n_cols + col, lines[j], mask=(at < n_rows) & (col < n_cols))


@triton.jit
def few_taps(
    x_ptr, row, rows, cols_at, inside, mask, ROW_TAPS: tl.constexpr, N_ROW_TAPS: tl.constexpr,
    N_COL_TAPS: tl.constexpr, TYPE: tl.constexpr, HOLES: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The sum over all taps of rows `row`, in fp32 or fp64, and whether none of them is outside; cols_at: `locate`d
    columns by tap.

    Integers are summed as onnxruntime does, since they are cut where the sum falls short of one.
    """
    total = None
    for s in tl.static_range(N_ROW_TAPS):
        row_offset, row_weight, row_inside = locate(row, rows, ROW_TAPS, s, True, HOLES, WIDE)
        line = None
        for t in tl.static_range(N_COL_TAPS):
            x = tl.load(x_ptr + row_offset + cols_at[t][0], mask=mask)
            if x.dtype.is_floating():
                product = x.to(TYPE) * cols_at[t][1].to(TYPE)
            else:
                product = x.to(TYPE) * (row_weight * cols_at[t][1]).to(TYPE)
            inside = inside & row_inside & cols_at[t][2]
            if x_ptr.dtype.element_ty.is_floating():
                line = product if t == 0 else line + product
            else:
                total = product if s == 0 and t == 0 else total + product
        if x_ptr.dtype.element_ty.is_floating():
            line = line * row_weight.to(TYPE)
            total = line if s == 0 else total + line
    return total, inside


@triton.jit
def many_taps(
    x_ptr, row, col, rows, cols, inside, mask,
    ROW_TAPS: tl.constexpr, COL_TAPS: tl.constexpr, N_ROW_TAPS: tl.constexpr, N_COL_TAPS: tl.constexpr,
    TYPE: tl.constexpr, HOLES: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """As `few_taps`, in loops; rows or columns have one tap."""
    total = tl.zeros(inside.shape, TYPE)
    for tap in tl.range(N_ROW_TAPS * N_COL_TAPS, loop_unroll_factor=4):
        row_tap, col_tap = (tap, 0) if N_COL_TAPS == 1 else (0, tap)
        row_offset, row_weight, row_inside = locate(row, rows, ROW_TAPS, row_tap, True, HOLES, WIDE)
        col_offset, col_weight, col_inside = locate(col, cols, COL_TAPS, col_tap, True, HOLES, WIDE)
        x = tl.load(x_ptr + row_offset + col_offset, mask=mask)
        total += x.to(TYPE) * (row_weight * col_weight).to(TYPE)
        inside = inside & row_inside & col_inside
    return total, inside


@triton.jit
def resize_weighted_kernel(
    x_ptr, y_ptr, rows, cols, n_rows, n_cols, outside, limits,
    ROW_TAPS: tl.constexpr, COL_TAPS: tl.constexpr, N_ROW_TAPS: tl.constexpr, N_COL_TAPS: tl.constexpr,
    FEW: tl.constexpr, ROUND: tl.constexpr, WHOLE: tl.constexpr,
    LINES: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """y[r, c] = Σ_s Σ_t w[r, s] · w[c, t] · x[source(r, s), source(c, t)], or `outside` (if not None) outside of x.

    Integers are rounded (ROUND) or cut towards zero, and held within limits (if not None). FEW: taps are unrolled.
    WHOLE: as in `resize_nearest_kernel`.
    """
    TYPE: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    row, col = tile_of(tl.program_id(0), n_cols, LINES, ROWS, COLS, WIDE)
    HOLES: tl.constexpr = outside is not None
    shown = col if WHOLE else tl.minimum(col, n_cols - 1)
    mask = col < n_cols if WHOLE else None
    cols_at = ()
    if FEW:
        for t in tl.static_range(N_COL_TAPS):
            cols_at = cols_at + (locate(shown, cols, COL_TAPS, t, True, HOLES, WIDE),)  # type: ignore[assignment]  # noqa: RUF005
    every = tl.full((ROWS, COLS), 1, tl.int1)
    lines = ()  # all loads come before the first store: the compiler cannot know that x and y are not one
    for j in tl.static_range(LINES):
        at = tl.minimum(row + j * ROWS, n_rows - 1)
        if FEW:
            y, inside = few_taps(
                x_ptr, at, rows, cols_at, every, mask, ROW_TAPS, N_ROW_TAPS, N_COL_TAPS, TYPE, HOLES, WIDE
            )
        else:
            y, inside = many_taps(
                x_ptr, at, shown, rows, cols, every, mask,
                ROW_TAPS, COL_TAPS, N_ROW_TAPS, N_COL_TAPS, TYPE, HOLES, WIDE,
            )  # fmt: skip
        if HOLES:
            y = tl.where(inside, y, tl.full((ROWS, COLS), outside, y.dtype))
        if ROUND:
            y = tl.floor(y + 0.5)
        if limits is not None:
            y = tl.minimum(tl.maximum(y, limits[0]), limits[1])
        lines = lines + (y.to(y_ptr.dtype.element_ty),)  # type: ignore[assignment]  # noqa: RUF005
    for j in tl.static_range(LINES):
        at = row + j * ROWS
        tl.store(y_ptr + at * n_cols + col, lines[j], mask=(at < n_rows) & (col < n_cols))


@dataclass(frozen=True, slots=True)
class Step:
    """One axis of y, or several joined, none of which is resized: its extent, x's stride, and how it is resized."""

    out: int
    stride: int
    resize: AxisResize | None = None

    @property
    def taps(self) -> int:
        return self.resize.taps if self.resize else 0


@lowers("Resize")
@lowers("Resize", domain=CHANNELS_LAST)
def lower_resize(node: Node, target: Target) -> Lowered:
    """y(i) = x interpolated at the coordinate that i means (ONNX Resize 10, 11, 13, 18, 19; every mode and attribute).

    Integers: linear and cubic cut towards zero, with antialias they round, as onnxruntime does.
    """
    roi_index, scales_index, sizes_index = (None, 1, None) if node.version < 11 else (1, 2, 3)
    scales, sizes = _vector(node, scales_index), _vector(node, sizes_index)
    if scales is None and sizes is None:
        return Refusal("scales and sizes are known only when the model runs")
    coordinates: str = node.attribute("coordinate_transformation_mode", "half_pixel")
    roi = _vector(node, roi_index) if coordinates == "tf_crop_and_resize" else None
    if coordinates == "tf_crop_and_resize" and roi is None:
        return Refusal("the region of interest is known only when the model runs")
    rank = node.x.rank
    axes = [axis % rank for axis in node.attribute("axes", tuple(range(rank)))]
    common: dict[str, Any] = {
        "mode": node.attribute("mode", "nearest"),
        "coordinates": coordinates if node.version >= 11 else "asymmetric",
        "nearest": node.attribute("nearest_mode", "round_prefer_floor") if node.version >= 11 else "simple",
        "cubic_a": node.attribute("cubic_coeff_a", -0.75),
        "exclude_outside": bool(node.attribute("exclude_outside", 0)),
        "antialias": bool(node.attribute("antialias", 0)),
    }
    resizes = {}
    for i, (axis, scale) in enumerate(zip(axes, _scales(node, axes, scales, sizes), strict=True)):
        crop = (float(roi[i]), float(roi[i + len(axes)])) if roi is not None else (0.0, 1.0)
        at = _memory_axis(node, axis)
        resizes[at] = AxisResize(node.x.shape[at], node.y.shape[at], scale, roi=crop, **common)
    return _lower(node, target, resizes)


@lowers("Upsample", since=7)
@lowers("Upsample", domain=CHANNELS_LAST, since=7)
def lower_upsample(node: Node, target: Target) -> Lowered:
    """Resize with asymmetric coordinates (ONNX Upsample 7 with scales as attribute, 9 as input)."""
    scales = node.attribute("scales") if node.version < 9 else node.constant(1)
    if scales is None:
        return Refusal("scales are known only when the model runs")
    resizes = {}
    for axis, scale in enumerate(scales):
        at = _memory_axis(node, axis)
        mode = node.attribute("mode", "nearest")
        resizes[at] = AxisResize(node.x.shape[at], node.y.shape[at], float(scale), mode, "asymmetric", "simple")
    return _lower(node, target, resizes)


def _memory_axis(node: Node, axis: int) -> int:
    """Where the ONNX operator's axis lies in memory: channels may be last."""
    return (0, node.x.rank - 1, *range(1, node.x.rank - 1))[axis] if node.channels_last else axis


def _vector(node: Node, index: int | None) -> np.ndarray | None:
    """An input that is given and not empty."""
    value = None if index is None else node.constant(index)
    return value if value is not None and value.size else None


def _scales(node: Node, axes: Sequence[int], scales: np.ndarray | None, sizes: np.ndarray | None) -> list[float]:
    if scales is not None:
        return [float(scale) for scale in scales]
    assert sizes is not None
    extents = [node.x.shape[_memory_axis(node, axis)] for axis in axes]
    stretches = [
        float(np.float32(size) / np.float32(n)) if n else 1.0 for size, n in zip(sizes.tolist(), extents, strict=True)
    ]
    policy: str = node.attribute("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return stretches
    return [(min if policy == "not_larger" else max)(stretches)] * len(axes)


def _lower(node: Node, target: Target, resizes: Mapping[int, AxisResize]) -> Lowered:
    x, y = node.x, node.y
    if refusal := movable(x):
        return refusal
    if not y.size:
        return ()
    active = {axis: resize for axis, resize in resizes.items() if not resize.is_identity}
    if not active:
        return (View(x.name, y.name),)
    if 0 in x.shape:
        return Refusal("an empty axis cannot be enlarged")
    computed = any(resize.mode != "nearest" for resize in active.values()) or node.attribute("extrapolation_value", 0.0)
    if computed and x.dtype not in TRITON_TYPES:
        return Refusal(f"elements of type {x.dtype} cannot be interpolated or extrapolated")
    if math.prod(resize.taps for resize in active.values()) <= MAX_TAPS:
        return (_launch(node, x, y, active, target),)
    calls: list[Call] = []
    order = sorted(active, key=lambda axis: active[axis].out / active[axis].extent)  # what shrinks most comes first
    for axis in order:
        shape = (*x.shape[:axis], active[axis].out, *x.shape[axis + 1 :])
        wide = "float64" if y.dtype == "float64" else "float32"
        out = y if axis == order[-1] else node.temporary(shape, wide)
        calls.append(_launch(node, x, out.reshaped(*shape), {axis: active[axis]}, target))
        x = out
    return tuple(calls)


def _steps(x: Buffer, y: Buffer, resizes: Mapping[int, AxisResize]) -> list[Step]:
    steps: list[Step] = []
    for axis, (out, stride) in enumerate(zip(y.shape, x.strides, strict=True)):
        resize = resizes.get(axis)
        if steps and not resize and not steps[-1].resize:
            steps[-1] = Step(steps[-1].out * out, stride)
        else:
            steps.append(Step(out, stride, resize))
    return [step for step in steps if step.resize or step.out != 1]


def _launch(node: Node, x: Buffer, y: Buffer, resizes: Mapping[int, AxisResize], target: Target) -> Launch:
    steps = _steps(x, y, resizes)
    rows, cols = steps[:-1], steps[-1:]
    while rows and math.prod(step.out for step in cols) < 32:
        cols.insert(0, rows.pop())
    rows = rows or [Step(1, 0)]
    n_rows, n_cols = (math.prod(step.out for step in part) for part in (rows, cols))
    first = next(iter(resizes.values()))
    outside = None
    if first.coordinates == "tf_crop_and_resize":
        outside = float(node.attribute("extrapolation_value", 0.0))
    wide = is_wide(x.size, y.size)
    arguments: dict[str, Any] = {
        "rows": _axes(node, rows, wide),
        "cols": _axes(node, cols, wide),
        "n_rows": n_rows,
        "n_cols": n_cols,
        "outside": outside,
        "ROW_TAPS": tuple(step.taps for step in rows),
        "COL_TAPS": tuple(step.taps for step in cols),
        "WHOLE": not any(step.resize for step in cols),
        "WIDE": wide,
    }
    row_taps, col_taps = (math.prod(step.taps or 1 for step in part) for part in (rows, cols))
    tile = _tile(n_rows, n_cols, max(x.itemsize, y.itemsize), row_taps * col_taps, arguments["WHOLE"], target)
    if first.mode == "nearest":
        moved = (x, y) if outside else (as_words(x), as_words(y))  # zero has the same bits in every type
        return _tiled(resize_nearest_kernel, *moved, tile, arguments)
    arguments["N_ROW_TAPS"], arguments["N_COL_TAPS"] = row_taps, col_taps
    arguments["FEW"] = row_taps * col_taps <= MAX_TAPS
    arguments["limits"] = _limits(y.dtype)
    arguments["ROUND"] = first.antialias and "int" in y.dtype
    return _tiled(resize_weighted_kernel, x, y, tile, arguments)


def _tile(n_rows: int, n_cols: int, itemsize: int, taps: int, whole: bool, target: Target) -> Lines:
    """Some sixty loads a thread. whole: columns are not resized, and are read in vectors."""
    lines = 1 if taps > MAX_TAPS else power_of_two(max(2, 16 // taps))
    if whole:
        return choose_lines(n_rows, n_cols, target, lines=lines, per_thread=max(1, 16 // itemsize), warps=4)
    return choose_lines(n_rows, n_cols, target, lines=lines)


def _tiled(kernel: Any, x: Buffer, y: Buffer, tile: Lines, arguments: dict[str, Any]) -> Launch:
    n_rows, n_cols = arguments["n_rows"], arguments["n_cols"]
    grid = cdiv(n_rows, tile.rows * tile.lines) * cdiv(n_cols, tile.cols)
    shape: dict[str, Any] = {"LINES": tile.lines, "ROWS": tile.rows, "COLS": tile.cols}
    return launch(kernel, (grid,), writes=y, num_warps=tile.num_warps, x_ptr=x, y_ptr=y, **shape, **arguments)


def _limits(dtype: str) -> tuple[float, float] | None:
    """The range of an integer type, in which cubic filters do not stay: the numbers of fp32 that are inside of it."""
    if "int" not in dtype:
        return None
    info = np.iinfo(dtype)
    most = np.float32(info.max)
    return float(info.min), float(most if int(most) <= info.max else np.nextafter(most, np.float32(0)))


def _axes(node: Node, steps: Sequence[Step], wide: bool) -> tuple[Any, ...]:
    """As `locate` takes them."""
    return (
        tuple(divisor_of(step.out, wide) for step in steps),
        tuple(step.stride for step in steps),
        tuple(step.resize and _indices(node, step.resize) for step in steps),
        tuple(step.resize and _weights(node, step.resize) for step in steps),
    )


def _indices(node: Node, resize: AxisResize) -> Buffer:
    return node.constant_buffer(f"indices of {resize}", (resize.out, resize.taps), "int32", resize.indices)


def _weights(node: Node, resize: AxisResize) -> Buffer | None:
    if resize.mode == "nearest":
        return None
    return node.constant_buffer(f"weights of {resize}", (resize.out, resize.taps), "float32", resize.weights)
