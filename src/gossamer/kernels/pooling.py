"""MaxPool, AveragePool, LpPool with windows of one to three dimensions, their global forms, and MaxUnpool.

Kernels (`pooling_kernels`) serve both layouts: channels-last activations are pixels × channels; channels-first ones are
planes, which count as images of one channel. Global pools, and windows that are the whole image, are reductions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl

from gossamer.kernels.convolution_geometry import Activations, Triple, Window, triple
from gossamer.kernels.copies import filled_block
from gossamer.kernels.division import divisor_of
from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.kernels.launch import launch
from gossamer.kernels.pooling_kernels import pool_kernel, pool_taps_kernel
from gossamer.kernels.reduction import Recipe, reduce_calls
from gossamer.kernels.reduction_geometry import float_accumulator
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import CHANNELS_LAST, Node
from gossamer.program import Fill, Launch, Refusal, Target, dtype_of


@dataclass(frozen=True, slots=True)
class Pool:
    """A pooling node over activations as the kernel sees them.

    images: N, or N × C where channels come first. ends: per axis the extent plus the padding declared behind it.
    """

    images: int
    x: Activations
    y: Activations
    window: Window
    ends: Triple

    @property
    def pixels(self) -> int:
        """Outputs per channel, of all images."""
        return self.images * self.y.pixels

    @property
    def inside(self) -> bool:
        """Whether no window reaches beyond the image."""
        window = self.window
        axes = zip(self.x.extents, self.y.extents, window.kernel, window.strides, window.dilations, strict=True)
        return not any(window.pads) and all((out - 1) * s + (k - 1) * g < size for size, out, k, s, g in axes)

    @property
    def whole_image(self) -> bool:
        """Whether there is one window, which is the image."""
        window, one = self.window, self.y.pixels == 1
        dilated = any(taps > 1 and gap > 1 for taps, gap in zip(window.kernel, window.dilations, strict=True))
        return one and not dilated and window.kernel == self.x.extents == self.ends and not any(window.pads)


def pool_of(node: Node) -> Pool:
    """The pool of a node with the attributes of MaxPool-1 to 22, AveragePool-1 to 22, LpPool-2 to 22."""
    x = Activations.of(node.x.shape, node.channels_last)
    y = Activations.of(node.y.shape, node.channels_last)
    kernel = triple(node.attribute("kernel_shape"), 1)
    spatial = node.x.rank - 2
    strides = triple(node.attribute("strides", (1,) * spatial), 1)
    gaps = triple(node.attribute("dilations", (1,) * spatial), 1)
    reach = triple([(taps - 1) * gap + 1 for taps, gap in zip(kernel, gaps, strict=True)], 1)
    begins, behind = _pads(node, reach, strides, x.extents)
    ends = triple([size + pad for size, pad in zip(x.extents, behind, strict=True)], 1)
    images = node.x.shape[0] * (1 if node.channels_last else x.channels)
    if not node.channels_last:
        x, y = _planes(x), _planes(y)
    return Pool(images, x, y, Window(kernel, strides, begins, gaps), ends)


def _planes(activations: Activations) -> Activations:
    """Each channel of an image as an image of its own."""
    _, rows, columns = activations.extents
    return Activations(1, activations.extents, (activations.pixels, rows * columns, columns, 1), 1)


def _pads(node: Node, reach: Triple, strides: Triple, extents: Triple) -> tuple[Triple, Triple]:
    """The padding before and behind each axis; reach is how far a window spans."""
    mode = node.attribute("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        axes = zip(reach, strides, extents, strict=True)
        totals = [max(0, (cdiv(size, step) - 1) * step + span - size) for span, step, size in axes]
        smaller = triple([total // 2 for total in totals], 0)
        larger = triple([total - total // 2 for total in totals], 0)
        return (smaller, larger) if mode == "SAME_UPPER" else (larger, smaller)
    pads = () if mode == "VALID" else node.attribute("pads", ())
    return triple(pads[: len(pads) // 2], 0), triple(pads[len(pads) // 2 :], 0)


@dataclass(frozen=True, slots=True)
class Tile:
    """Lines of windows per row, rows × cols of a program, and its warps: see `pooling_kernels`."""

    lines: int
    rows: int
    cols: int
    num_warps: int


MAX_LOADS = 64
"""Of one row's windows in `pool_kernel`, which is unrolled."""


def _fills_rows(pool: Pool) -> bool:
    """Whether lines of windows fill rows of tiles, so that what belongs to a line is computed once for many windows."""
    width = pool.y.extents[2]
    return 4 * width >= 3 * cdiv(width, 32) * 32


def _tile(pool: Pool, itemsize: int, planes: bool, by_taps: bool, target: Target) -> Tile:
    """Per thread and line a window, whose neighbours are a warp's, or vectors of channels; smaller tiles where
    multiprocessors would idle."""
    lines = 1 if by_taps else _lines(pool, target)
    extent = pool.y.extents[2] if planes else pool.x.channels
    n_rows = pool.images * pool.y.extents[0] * cdiv(pool.y.extents[1], lines) * (1 if planes else pool.y.extents[2])
    if target.interpreted:
        cols = power_of_two(extent, 1024)
        return Tile(lines, min(power_of_two(n_rows), max(1, 2**16 // cols)), cols, 4)
    cols = filled_block(extent, 128 if planes else 128 // itemsize)
    windows = 512 if by_taps and planes else 128  # of a program; taps alone would not pay for finding their window
    rows = max(1, (windows if pool.x.channels == 1 else 2048 // lines) // cols)
    rows = min(rows, power_of_two(n_rows))
    while rows > 1 and rows * cols > 64 and cdiv(n_rows, rows) * cdiv(extent, cols) < 2 * target.sm_count:
        rows //= 2
    return Tile(lines, rows, cols, min(4, max(1, rows * cols // (32 if pool.x.channels == 1 else 256))))


def _lines(pool: Pool, target: Target) -> int:
    """As many lines of windows at a time as fill blocks, keep the kernel short and leave work for everybody."""
    (depth, height, width), (_, step, _) = pool.window.kernel, pool.window.strides
    if pool.window.dilations[1] > 1:
        return 1
    share = pool.pixels * pool.x.channels // (1 if target.interpreted else 512 * target.sm_count)
    candidates = [n for n in ((8, 4, 2) if pool.x.channels == 1 else (4, 2)) if n <= share]
    short = [n for n in candidates if depth * ((n - 1) * step + height) * width <= MAX_LOADS]
    return max((n for n in short if 4 * pool.y.extents[1] >= 3 * n * cdiv(pool.y.extents[1], n)), default=1)


def _accumulator(dtype: str, kind: str) -> str:
    """The type that is computed in; maxima of halves are halves."""
    if dtype_of(dtype).kind in "iu":
        return "int32"
    return dtype if kind == "max" and dtype == "float16" else float_accumulator(dtype)


def _lowest(dtype: str) -> int | float:
    return {"int8": -128, "uint8": 0}.get(dtype, -math.inf)


def pool_launch(node: Node, pool: Pool, kind: str, target: Target, *, p: int = 1, count_pads: bool = False) -> Launch:
    """The launch of a pool of kind `max`, `average` or `lp`; the node's second output, if any, takes the indices."""
    x, y, index = node.x, node.y, node.output(1)
    window, planes = pool.window, not node.channels_last and _fills_rows(pool)
    by_taps = index is not None or window.taps > MAX_LOADS
    tile = _tile(pool, x.itemsize, planes, by_taps, target)
    depth, height, width = pool.y.extents
    line_blocks = cdiv(height, tile.lines)
    n_rows = pool.images * depth * line_blocks * (1 if planes else width)
    n_cols = width if planes else pool.x.channels
    wide = pool.x.wide or pool.pixels >= 2**30
    arguments: dict[str, Any] = {
        "x_ptr": x,
        "y_ptr": y,
        "n_rows": n_rows,
        "n_cols": n_cols,
        "n_channels": pool.x.channels,
        "y_lines": height,
        "x_strides": pool.x.strides,
        "x_extents": pool.x.extents,
        "y_extents": tuple(divisor_of(extent, wide) for extent in (depth, line_blocks, width)),
        "ends": pool.ends,
        "KIND": kind,
        "P": p,
        "LOWEST": _lowest(x.dtype),
        "COUNT_PADS": count_pads,
        "KERNEL": window.kernel,
        "STEPS": window.strides,
        "PADS": window.pads,
        "GAPS": window.dilations,
        "TYPE": _accumulator(x.dtype, kind),
        "PLANES": planes,
        "DEEP": depth > 1,
        "ROWS": tile.rows,
        "COLS": tile.cols,
        "WIDE": wide,
    }
    grid = (cdiv(n_rows, tile.rows) * cdiv(n_cols, tile.cols),)
    if not by_taps:
        return launch(
            pool_kernel,
            grid,
            writes=y,
            num_warps=tile.num_warps,
            INSIDE=pool.inside,
            LINES=tile.lines,
            **arguments,
        )
    image = pool.x.pixels * (pool.x.channels if node.channels_last else 1)
    return launch(
        pool_taps_kernel,
        grid,
        writes=y if index is None else (y, index),
        num_warps=tile.num_warps,
        index_ptr=index,
        index_strides=(image, pool.x.pixels),
        COLUMN_MAJOR=bool(node.attribute("storage_order", 0)),
        UNROLL=window.taps if window.taps <= 16 else 4,
        **arguments,
    )


RECIPES = {"max": Recipe("max"), "average": Recipe("sum", finish="mean")}


def _lower_windows(node: Node, kind: str, target: Target, **rest: Any) -> Lowered:
    if not 3 <= node.x.rank <= 5:
        return Refusal(f"its input has {node.x.rank - 2} spatial dimensions; windows have one to three")
    pool = pool_of(node)
    if pool.whole_image and node.output(1) is None:
        recipe = RECIPES.get(kind) or Recipe("sum", "power", "root", rest["p"])
        return reduce_calls(node, node.x, node.y, _spatial_axes(node), recipe, target)
    return (pool_launch(node, pool, kind, target, **rest),)


def _spatial_axes(node: Node) -> tuple[int, ...]:
    return tuple(range(1, node.x.rank - 1) if node.channels_last else range(2, node.x.rank))


@lowers("MaxPool")
@lowers("MaxPool", domain=CHANNELS_LAST)
def lower_max_pool(node: Node, target: Target) -> Lowered:
    """MaxPool, opset 1 to 22; NaN wins over any number. Indices count in channels-first order in either layout."""
    return _lower_windows(node, "max", target)


@lowers("AveragePool")
@lowers("AveragePool", domain=CHANNELS_LAST)
def lower_average_pool(node: Node, target: Target) -> Lowered:
    """AveragePool, opset 1 to 22: with `count_include_pad` declared padding counts, cells beyond it never do."""
    return _lower_windows(node, "average", target, count_pads=bool(node.attribute("count_include_pad", 0)))


@lowers("LpPool")
@lowers("LpPool", domain=CHANNELS_LAST)
def lower_lp_pool(node: Node, target: Target) -> Lowered:
    """LpPool, opset 2 to 22: the p-th root of the sum of |x|^p, not averaged."""
    return _lower_windows(node, "lp", target, p=node.attribute("p", 2))


@lowers("GlobalMaxPool", "GlobalAveragePool")
@lowers("GlobalMaxPool", "GlobalAveragePool", domain=CHANNELS_LAST)
def lower_global_pool(node: Node, target: Target) -> Lowered:
    """GlobalMaxPool, GlobalAveragePool, opset 1 to 22, any number of spatial dimensions."""
    recipe = RECIPES["max" if node.op_type == "GlobalMaxPool" else "average"]
    return reduce_calls(node, node.x, node.y, _spatial_axes(node), recipe, target)


@lowers("GlobalLpPool")
@lowers("GlobalLpPool", domain=CHANNELS_LAST)
def lower_global_lp_pool(node: Node, target: Target) -> Lowered:
    """GlobalLpPool, opset 2 to 22."""
    recipe = Recipe("sum", "power", "root", node.attribute("p", 2))
    return reduce_calls(node, node.x, node.y, _spatial_axes(node), recipe, target)


@triton.jit
def scatter_kernel(x_ptr, index_ptr, y_ptr, n_elements, n_out, BLOCK: tl.constexpr):
    """y[index[i]] = x[i]; indices outside of y are passed over."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(index_ptr + i, i < n_elements, other=-1)
    x = tl.load(x_ptr + i, i < n_elements)
    tl.store(y_ptr + index, x, (index >= 0) & (index < n_out))


@lowers("MaxUnpool", since=9)
def lower_max_unpool(node: Node, target: Target) -> Lowered:
    """MaxUnpool, opset 9 to 22: indices, as MaxPool gives them, count through the whole output."""
    block = 2**14 if target.interpreted else 1024
    scatter = launch(
        scatter_kernel,
        (cdiv(node.x.size, block),),
        writes=node.y,
        x_ptr=node.x,
        index_ptr=node.inputs[1],
        y_ptr=node.y,
        n_elements=node.x.size,
        n_out=node.y.size,
        BLOCK=block,
    )
    return Fill(node.y.name), scatter
