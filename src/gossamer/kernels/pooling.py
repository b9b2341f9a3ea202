"""MaxPool, AveragePool, LpPool with windows of one to three dimensions, their global forms, and MaxUnpool.

One kernel serves both layouts: channels-last activations are pixels × channels; channels-first ones are planes, which
count as images of one channel. Global pools, and windows that are the whole image, are reductions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl

from gossamer.kernels.convolution_geometry import Activations, Triple, Window, triple
from gossamer.kernels.elementwise_math import divide, maximum
from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.kernels.launch import launch
from gossamer.kernels.reduction import Recipe, integer_power, reduce_calls, root
from gossamer.kernels.reduction_geometry import as_type, float_accumulator
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import CHANNELS_LAST, Node
from gossamer.program import Fill, Launch, Refusal, Target, dtype_of


@triton.jit
def pool_kernel(
    x_ptr, y_ptr, index_ptr, n_pixels, n_channels, x_strides, x_extents, y_extents,
    steps, pads, gaps, ends, index_strides,
    KIND: tl.constexpr, P: tl.constexpr, LOWEST: tl.constexpr, COUNT_PADS: tl.constexpr, COLUMN_MAJOR: tl.constexpr,
    TAPS: tl.constexpr, TAP_ROWS: tl.constexpr, TAP_COLUMNS: tl.constexpr, UNROLL: tl.constexpr,
    TYPE: tl.constexpr, WIDE: tl.constexpr, BLOCK_PIXELS: tl.constexpr, BLOCK_CHANNELS: tl.constexpr,
):  # fmt: skip
    """y[p, c] = pool over taps t of x[p · steps - pads + t · gaps, c].

    x_strides: image, depth, row, column. ends: where the declared padding ends; taps beyond are never counted. Where
    index_ptr is given, index is the place of the (first) maximum in the tensor of x in channels-first order, -1 where a
    window holds nothing but padding.
    """
    channel_blocks = tl.cdiv(n_channels, BLOCK_CHANNELS)
    first = tl.program_id(0) // channel_blocks
    first = first.to(tl.int64) * BLOCK_PIXELS if WIDE else first * BLOCK_PIXELS
    pixel = (first + tl.arange(0, BLOCK_PIXELS))[:, None]
    c = ((tl.program_id(0) % channel_blocks) * BLOCK_CHANNELS + tl.arange(0, BLOCK_CHANNELS))[None, :]
    live = (pixel < n_pixels) & (c < n_channels)
    d0 = (pixel // (y_extents[2] * y_extents[1])) % y_extents[0] * steps[0] - pads[0]
    h0 = (pixel // y_extents[2]) % y_extents[1] * steps[1] - pads[1]
    w0 = pixel % y_extents[2] * steps[2] - pads[2]
    image = (pixel // (y_extents[2] * y_extents[1] * y_extents[0])).to(tl.int64)
    image_ptr = x_ptr + image * x_strides[0] + c
    result = as_type(tl.zeros((BLOCK_PIXELS, BLOCK_CHANNELS), tl.int32), TYPE)
    if KIND == "max":
        result = tl.full((BLOCK_PIXELS, BLOCK_CHANNELS), LOWEST, result.dtype)
    count = tl.zeros((BLOCK_PIXELS, 1), tl.int32)
    index = tl.full((BLOCK_PIXELS, BLOCK_CHANNELS), -1, tl.int64)
    for tap in tl.range(0, TAPS, loop_unroll_factor=UNROLL):
        d = d0 + tap // (TAP_ROWS * TAP_COLUMNS) * gaps[0]
        h = h0 + tap // TAP_COLUMNS % TAP_ROWS * gaps[1]
        w = w0 + tap % TAP_COLUMNS * gaps[2]
        inside = (d >= 0) & (d < x_extents[0]) & (h >= 0) & (h < x_extents[1]) & (w >= 0) & (w < x_extents[2])
        offsets = d * x_strides[1] + h * x_strides[2] + w * x_strides[3]
        x = as_type(tl.load(image_ptr + offsets, live & inside, other=0), TYPE)
        if KIND == "average":
            result += x
            count += ((d < ends[0]) & (h < ends[1]) & (w < ends[2]) if COUNT_PADS else inside).to(tl.int32)
        elif KIND == "lp":
            result += integer_power(tl.abs(x), P)
        elif index_ptr is None:
            result = maximum(result, tl.where(inside, x, LOWEST))
        else:
            taken = inside & ((x > result) | (index < 0) | ((x != x) & (result == result)))  # noqa: PLR0124
            row_major = (d * x_extents[1] + h) * x_extents[2] + w
            here = d + x_extents[0] * (h + x_extents[1] * w) if COLUMN_MAJOR else row_major
            result = tl.where(taken, x, result)
            index = tl.where(taken, here.to(tl.int64), index)
    if KIND == "average":
        result = divide(result, tl.maximum(count, 1).to(result.dtype))
    elif KIND == "lp":
        result = root(result, P)
    out = pixel.to(tl.int64) * n_channels + c
    tl.store(y_ptr + out, result.to(y_ptr.dtype.element_ty), live)
    if index_ptr is not None:
        place = tl.where(index < 0, -1, image * index_strides[0] + c * index_strides[1] + index)
        tl.store(index_ptr + out, place, live)


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


def _blocks(pool: Pool, itemsize: int, target: Target) -> tuple[int, int]:
    """Pixels and channels per program. Planes get two pixels per thread: more would spread a warp's loads."""
    if target.interpreted:
        channels = min(power_of_two(pool.x.channels), 1024)
        return min(power_of_two(pool.pixels), max(1, 2**16 // channels)), channels
    channels = min(power_of_two(pool.x.channels), 128 // itemsize)
    pixels = max(1, (256 if pool.x.channels == 1 else 2048) // channels)
    while pixels > 4 and pool.pixels * cdiv(pool.x.channels, channels) < 2 * target.sm_count * pixels:
        pixels //= 2
    return pixels, channels


def _accumulator(dtype: str) -> str:
    return "int32" if dtype_of(dtype).kind in "iu" else float_accumulator(dtype)


def _lowest(dtype: str) -> int | float:
    return {"int8": -128, "uint8": 0}.get(dtype, -math.inf)


def pool_launch(node: Node, pool: Pool, kind: str, target: Target, *, p: int = 1, count_pads: bool = False) -> Launch:
    """The launch of a pool of kind `max`, `average` or `lp`; the node's second output, if any, takes the indices."""
    x, y, index = node.x, node.y, node.output(1)
    pixels, channels = _blocks(pool, x.itemsize, target)
    image = pool.x.pixels * (pool.x.channels if node.channels_last else 1)
    taps = pool.window.taps
    return launch(
        pool_kernel,
        (cdiv(pool.pixels, pixels) * cdiv(pool.x.channels, channels),),
        writes=y if index is None else (y, index),
        num_warps=min(4, max(1, pixels * channels // (256 if channels > 1 else 64))),
        x_ptr=x,
        y_ptr=y,
        index_ptr=index,
        n_pixels=pool.pixels,
        n_channels=pool.x.channels,
        x_strides=pool.x.strides,
        x_extents=pool.x.extents,
        y_extents=pool.y.extents,
        steps=pool.window.strides,
        pads=pool.window.pads,
        gaps=pool.window.dilations,
        ends=pool.ends,
        index_strides=(image, pool.x.pixels),
        KIND=kind,
        P=p,
        LOWEST=_lowest(x.dtype),
        COUNT_PADS=count_pads,
        COLUMN_MAJOR=bool(node.attribute("storage_order", 0)),
        TAPS=taps,
        TAP_ROWS=pool.window.kernel[1],
        TAP_COLUMNS=pool.window.kernel[2],
        UNROLL=taps if taps <= 16 else 4,
        TYPE=_accumulator(x.dtype),
        WIDE=pool.x.wide or pool.pixels >= 2**30,
        BLOCK_PIXELS=pixels,
        BLOCK_CHANNELS=channels,
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
