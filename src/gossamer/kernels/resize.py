"""Resize and Upsample: y = Σ over taps of x, along any axes at once, by the tables of `interpolation`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import triton
import triton.language as tl

from gossamer.kernels.copies import as_words, choose_tile, is_wide, movable
from gossamer.kernels.extents import cdiv
from gossamer.kernels.interpolation import AxisResize
from gossamer.kernels.launch import TRITON_TYPES, launch
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import CHANNELS_LAST, Node
from gossamer.program import Buffer, Call, Launch, Refusal, Target, View

MAX_TAPS = 16
"""Taps of one launch; where the axes' product is larger, axes are resized one after the other."""


@triton.jit
def locate(index, axes, TAPS: tl.constexpr, tap, WEIGHTED: tl.constexpr):
    """Offset in x, weight, and whether it is inside, of one tap of the elements `index` of y.

    axes = (y shape, x strides, tables of indices, tables of weights). TAPS: taps per axis, 0 for an axis that is not
    resized. tap counts row-major over the taps of all axes.
    """
    offset = index * 0
    weight = offset.to(tl.float32) + 1
    inside = index >= 0
    rest = index
    for d in tl.static_range(len(TAPS)):
        if TAPS[len(TAPS) - 1 - d] > 0:
            at = (rest % axes[0][len(TAPS) - 1 - d]) * TAPS[len(TAPS) - 1 - d] + tap % TAPS[len(TAPS) - 1 - d]
            source = tl.load(axes[2][len(TAPS) - 1 - d] + at).to(index.dtype)
            inside = inside & (source >= 0)
            offset += tl.maximum(source, 0) * axes[1][len(TAPS) - 1 - d]
            if WEIGHTED:
                weight *= tl.load(axes[3][len(TAPS) - 1 - d] + at)
            tap = tap // TAPS[len(TAPS) - 1 - d]
        elif d < len(TAPS) - 1:
            offset += rest % axes[0][len(TAPS) - 1 - d] * axes[1][len(TAPS) - 1 - d]
        else:
            offset += rest * axes[1][len(TAPS) - 1 - d]
        if d < len(TAPS) - 1:
            rest = rest // axes[0][len(TAPS) - 1 - d]
    return offset, weight, inside


@triton.jit
def resize_nearest_kernel(
    x_ptr, y_ptr, rows, cols, n_rows, n_cols, outside,
    ROW_TAPS: tl.constexpr, COL_TAPS: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """y[r, c] = x[nearest(r), nearest(c)], or `outside` (if not None) where that lies outside of x."""
    pid = tl.program_id(0)
    if WIDE:
        pid = pid.to(tl.int64)
    col_tiles = tl.cdiv(n_cols, COLS)
    row = pid // col_tiles * ROWS + tl.arange(0, ROWS)
    col = pid % col_tiles * COLS + tl.arange(0, COLS)
    mask = (row < n_rows)[:, None] & (col < n_cols)[None, :]
    row_offset, _, row_inside = locate(row, rows, ROW_TAPS, 0, False)
    col_offset, _, col_inside = locate(col, cols, COL_TAPS, 0, False)
    y = tl.load(x_ptr + row_offset[:, None] + col_offset[None, :], mask=mask)
    if outside is not None:
        y = tl.where(row_inside[:, None] & col_inside[None, :], y, tl.full((ROWS, COLS), outside, y.dtype))
    tl.store(y_ptr + row[:, None] * n_cols + col[None, :], y, mask=mask)


@triton.jit
def resize_weighted_kernel(
    x_ptr, y_ptr, rows, cols, n_rows, n_cols, outside, limits,
    ROW_TAPS: tl.constexpr, COL_TAPS: tl.constexpr, N_ROW_TAPS: tl.constexpr, N_COL_TAPS: tl.constexpr,
    ROUND: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """y[r, c] = Σ_s Σ_t w[r, s] · w[c, t] · x[source(r, s), source(c, t)], or `outside` (if not None) outside of x.

    Integers are rounded (ROUND) or cut towards zero, and held within limits (if not None).
    """
    pid = tl.program_id(0)
    if WIDE:
        pid = pid.to(tl.int64)
    col_tiles = tl.cdiv(n_cols, COLS)
    row = pid // col_tiles * ROWS + tl.arange(0, ROWS)
    col = pid % col_tiles * COLS + tl.arange(0, COLS)
    mask = (row < n_rows)[:, None] & (col < n_cols)[None, :]
    y = tl.zeros((ROWS, COLS), tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32)
    inside = mask
    FEW: tl.constexpr = N_ROW_TAPS * N_COL_TAPS <= 8
    for s in tl.range(N_ROW_TAPS, loop_unroll_factor=N_ROW_TAPS if FEW else 4 if N_COL_TAPS == 1 else 1):
        row_offset, row_weight, row_inside = locate(row, rows, ROW_TAPS, s, True)
        for t in tl.range(N_COL_TAPS, loop_unroll_factor=N_COL_TAPS if FEW else 4):
            col_offset, col_weight, col_inside = locate(col, cols, COL_TAPS, t, True)
            x = tl.load(x_ptr + row_offset[:, None] + col_offset[None, :], mask=mask, other=0)
            y += x.to(y.dtype) * (row_weight[:, None] * col_weight[None, :]).to(y.dtype)
            inside = inside & row_inside[:, None] & col_inside[None, :]
    if outside is not None:
        y = tl.where(inside, y, tl.full((ROWS, COLS), outside, y.dtype))
    if ROUND:
        y = tl.floor(y + 0.5)
    if limits is not None:
        y = tl.minimum(tl.maximum(y, limits[0]), limits[1])
    tl.store(y_ptr + row[:, None] * n_cols + col[None, :], y.to(y_ptr.dtype.element_ty), mask=mask)


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
    arguments: dict[str, Any] = {
        "rows": _axes(node, rows),
        "cols": _axes(node, cols),
        "n_rows": n_rows,
        "n_cols": n_cols,
        "outside": outside,
        "ROW_TAPS": tuple(step.taps for step in rows),
        "COL_TAPS": tuple(step.taps for step in cols),
        "WIDE": is_wide(x.size, y.size),
    }
    tile = choose_tile(n_rows, n_cols, x.itemsize, False, target)
    if first.mode == "nearest":
        moved = (x, y) if outside else (as_words(x), as_words(y))  # zero has the same bits in every type
        return _tiled(resize_nearest_kernel, *moved, tile, arguments)
    arguments["N_ROW_TAPS"] = math.prod(step.taps or 1 for step in rows)
    arguments["N_COL_TAPS"] = math.prod(step.taps or 1 for step in cols)
    arguments["limits"] = _limits(y.dtype)
    arguments["ROUND"] = first.antialias and "int" in y.dtype
    return _tiled(resize_weighted_kernel, x, y, tile, arguments)


def _tiled(kernel: Any, x: Buffer, y: Buffer, tile: tuple[int, int], arguments: dict[str, Any]) -> Launch:
    rows, cols = tile
    grid = cdiv(arguments["n_rows"], rows) * cdiv(arguments["n_cols"], cols)
    return launch(kernel, (grid,), writes=y, x_ptr=x, y_ptr=y, ROWS=rows, COLS=cols, **arguments)


def _limits(dtype: str) -> tuple[float, float] | None:
    """The range of an integer type, in which cubic filters do not stay: the numbers of fp32 that are inside of it."""
    if "int" not in dtype:
        return None
    info = np.iinfo(dtype)
    most = np.float32(info.max)
    return float(info.min), float(most if int(most) <= info.max else np.nextafter(most, np.float32(0)))


def _axes(node: Node, steps: Sequence[Step]) -> tuple[Any, ...]:
    return (
        tuple(step.out for step in steps),
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
