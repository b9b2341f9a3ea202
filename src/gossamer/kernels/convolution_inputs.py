"""Copies of a convolution's input that cost less than they save.

Tensor cores want operands in which neighbours along K are neighbours in memory, 16 bytes at least. Two inputs are not
like that: one with channels first, which is copied channels last; and one of few channels, like an image. Of the
latter's copy, with channels and columns padded to whole 16 bytes, the columns that a window sees are one stretch of
memory: they count as channels, and the window is one column wide. Windows overlap in memory as they do in the image.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

import numpy as np
import triton
import triton.language as tl

from gossamer.kernels.convolution_box_tiles import best_tiles
from gossamer.kernels.convolution_geometry import LIMIT, Activations, Convolution, Window
from gossamer.kernels.convolution_pixels import pixel_coordinates, pixel_offset
from gossamer.kernels.convolution_tiles import FEW_CHANNELS, SECOND_LAUNCH, best_convolution_tiles, extents_of
from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.kernels.gemm_tiles import uses_tensor_cores
from gossamer.kernels.launch import launch
from gossamer.kernels.transpose import permute
from gossamer.model.node import Node
from gossamer.program import Buffer, Call, Launch, Target, dtype_of

MOVED_BYTES = 18
"""Bytes per cycle that one multiprocessor reads and writes when all of them copy."""


@triton.jit
def widen_kernel(
    x_ptr, y_ptr, n_pixels, n_channels, x_strides, x_channel_stride, y_extents, x_columns, before, RANK: tl.constexpr,
    PIXELS_INNER: tl.constexpr, WIDE: tl.constexpr, BLOCK_P: tl.constexpr, CHANNELS: tl.constexpr,
    BLOCK_C: tl.constexpr,
):  # fmt: skip
    """y[n, row, column, c] = x[n, c, row, column − before], zero where x has no such column or channel.

    y is dense and has CHANNELS channels. PIXELS_INNER: x has channels first.
    """
    line = tl.program_id(0)
    pixel = (line.to(tl.int64) if WIDE else line) * BLOCK_P + tl.arange(0, BLOCK_P)
    image, depth, row, column = pixel_coordinates(pixel, y_extents, RANK)
    column -= before
    channel = tl.arange(0, BLOCK_C).to(tl.int64) if WIDE else tl.arange(0, BLOCK_C)
    at = pixel_offset(image, depth, row, column, x_strides, 1)
    found = (pixel < n_pixels) & (column >= 0) & (column < x_columns)
    if PIXELS_INNER:
        mask = (channel < n_channels)[:, None] & found[None, :]
        values = tl.load(x_ptr + channel[:, None] * x_channel_stride + at[None, :], mask=mask, other=0.0)
        values = tl.trans(values)
    else:
        mask = found[:, None] & (channel < n_channels)[None, :]
        values = tl.load(x_ptr + at[:, None] + channel[None, :], mask=mask, other=0.0)
    mask = (pixel < n_pixels)[:, None] & (channel < CHANNELS)[None, :]
    tl.store(y_ptr + pixel.to(tl.int64)[:, None] * CHANNELS + channel[None, :], values, mask=mask)


@dataclass(frozen=True, slots=True)
class Operands:
    """What is convolved: x and filters, of the shapes that `convolution` says, once `calls` have run."""

    convolution: Convolution
    x: Buffer
    filters: Buffer
    calls: tuple[Call, ...] = ()


def arranged(node: Node, target: Target, convolution: Convolution, filters: Buffer) -> Operands:
    """The operands of a Conv, as they are or copied, whichever takes less time by the tiles' cost model."""
    match cheapest_copy(convolution, node.x.dtype, node.is_constant(filters), target):
        case Widened() as how:
            return _widened(node, target, convolution, filters, how)
        case Convolution():
            return _turned(node, target, convolution, filters)
    return Operands(convolution, node.x, filters)


def arranged_phases(node: Node, target: Target, convolution: Convolution, filters: Buffer) -> Operands:
    """The operands of a ConvTranspose. Where channels come first, its input is copied channels last if that pays."""
    if not _turning_pays(convolution, node.x.dtype, target):
        return Operands(convolution, node.x, filters)
    return _turned(node, target, convolution, filters)


def turned_back(node: Node, convolution: Convolution, target: Target) -> tuple[Convolution, Buffer, tuple[Call, ...]]:
    """To compute y with channels last and then copy it: the convolution that does the first, into which buffer, and the
    calls that do the second. Phases of a ConvTranspose would write every other element of y."""
    y = convolution.y
    turned = node.temporary((convolution.batch, y.pixels, y.channels), node.y.dtype)
    pixels_last = node.y.reshaped(convolution.batch, y.channels, y.pixels)
    return replace(convolution, y=_last(y)), turned, permute(turned, pixels_last, (0, 2, 1), target)


@dataclass(frozen=True, slots=True)
class Widened:
    """A copy of a convolution's input in which the columns of windows count as channels. channels, columns: what a
    pixel and a row have in the copy. convolution: the same on the copy."""

    channels: int
    columns: int
    convolution: Convolution

    @staticmethod
    def of(convolution: Convolution, itemsize: int) -> Widened | None:
        """None where blocks of K would still run across taps."""
        x, window, columns = convolution.x, convolution.window, convolution.y.extents[2]
        kernel, step = window.kernel[2], window.strides[2]
        if convolution.groups > 1 or window.dilations[2] > 1:
            return None
        whole = max(1, 16 // itemsize)
        channels = x.channels
        while channels * step % whole:
            channels += 1
        needed = (columns - 1) * step + kernel
        while needed * channels % whole:
            needed += 1
        if kernel * channels < FEW_CHANNELS:
            return None
        depth, rows, _ = x.extents
        row = needed * channels
        strides = (depth * rows * row, rows * row, row, step * channels)
        seen = Activations(kernel * channels, (depth, rows, columns), strides, 1)
        narrow = Window((*window.kernel[:2], 1), (*window.strides[:2], 1), (*window.pads[:2], 0), window.dilations)
        return Widened(channels, needed, replace(convolution, x=seen, window=narrow))

    @property
    def shape(self) -> tuple[int, int, int]:
        """The copy's: rows of all depths and images, columns, channels."""
        depth, rows, _ = self.convolution.x.extents
        return self.convolution.batch * depth * rows, self.columns, self.channels


@lru_cache(maxsize=4096)
def cheapest_copy(convolution: Convolution, dtype: str, constant: bool, target: Target) -> Widened | Convolution | None:
    """None: the input as it is. Convolution: channels last. constant: whether the filters are."""
    if target.interpreted or not convolution.pixels:
        return None
    itemsize = dtype_of(dtype).itemsize
    ways: list[tuple[float, Widened | Convolution | None]] = [(best_tiles(convolution, dtype, target)[0], None)]
    given = convolution.batch * convolution.x.pixels * convolution.x.channels
    flat = extents_of(convolution).flat
    if not convolution.x.channels_last and not flat:
        turned = _with_channels_last(convolution)
        cost = best_tiles(turned, dtype, target)[0] + _copying(2 * given * itemsize, target)
        ways.append((cost, turned))
    if flat and constant and uses_tensor_cores(dtype, target):
        widened = Widened.of(convolution, itemsize)
        if widened is not None:
            cost = best_tiles(widened.convolution, dtype, target)[0]
            ways.append((cost + _copying((given + prod(widened.shape)) * itemsize, target), widened))
    return min(ways, key=lambda way: way[0])[1]


@lru_cache(maxsize=1024)
def _turning_pays(convolution: Convolution, dtype: str, target: Target) -> bool:
    """Whether a transposed convolution is faster with channels last, copies of its input and output included."""
    if target.interpreted or convolution.x.channels_last or not convolution.pixels:
        return False
    turned, moved = _with_channels_last(convolution), 2 * convolution.batch * dtype_of(dtype).itemsize
    copying = sum(_copying(moved * side.pixels * side.channels, target) for side in (convolution.x, convolution.y))
    before, after = (best_convolution_tiles(extents_of(c), dtype, target)[0] for c in (convolution, turned))
    return after + copying < before


def _copying(nbytes: int, target: Target) -> float:
    """Estimated cycles of a launch that reads and writes so much."""
    return SECOND_LAUNCH + nbytes / (MOVED_BYTES * target.sm_count)


def _with_channels_last(convolution: Convolution) -> Convolution:
    return replace(convolution, x=_last(convolution.x))


def _last(x: Activations) -> Activations:
    """The same activations, dense, with channels last."""
    _, rows, columns = x.extents
    strides = (x.pixels * x.channels, rows * columns * x.channels, columns * x.channels, x.channels)
    return Activations(x.channels, x.extents, strides, 1)


def _turned(node: Node, target: Target, convolution: Convolution, filters: Buffer) -> Operands:
    """On a copy of the input with channels last."""
    given, x = node.x, convolution.x
    pixels = given.reshaped(convolution.batch, x.channels, x.pixels)
    turned = node.temporary((convolution.batch, x.pixels, x.channels), given.dtype)
    return Operands(_with_channels_last(convolution), turned, filters, permute(pixels, turned, (0, 2, 1), target))


def _widened(node: Node, target: Target, convolution: Convolution, filters: Buffer, how: Widened) -> Operands:
    """On a copy of the input in which the columns of windows count as channels, as they do in the filters' copy."""
    x, window = convolution.x, convolution.window
    copy = node.temporary(how.shape, node.x.dtype)
    outputs, _, *rest = filters.shape[:-1]
    shape = (outputs, window.kernel[2], how.channels, *rest)

    def columns_as_channels(array: np.ndarray) -> np.ndarray:
        wide = np.zeros(shape, array.dtype)
        wide[:, :, : x.channels] = np.moveaxis(array, -1, 1)
        return wide.reshape(outputs, -1, *rest)

    return Operands(
        how.convolution,
        copy,
        node.derived(
            filters,
            f"columns of {how.channels}",
            (outputs, shape[1] * shape[2], *rest),
            filters.dtype,
            columns_as_channels,
        ),
        (_widen(node.x, copy, convolution, how, target),),
    )


def _widen(x: Buffer, copy: Buffer, convolution: Convolution, how: Widened, target: Target) -> Launch:
    given, (depth, rows, columns), pixels = convolution.x, convolution.x.extents, how.shape[0] * how.columns
    block_c = power_of_two(how.channels)
    block = max(1, 2048 // block_c)
    return launch(
        widen_kernel,
        (cdiv(pixels, block),),
        writes=copy,
        x_ptr=x,
        y_ptr=copy,
        n_pixels=pixels,
        n_channels=given.channels,
        x_strides=given.strides,
        x_channel_stride=given.channel_stride,
        y_extents=(depth, rows, how.columns),
        x_columns=columns,
        before=convolution.window.pads[2],
        RANK=convolution.rank,
        PIXELS_INNER=not given.channels_last,
        WIDE=given.wide or pixels >= LIMIT - block,
        BLOCK_P=block,
        CHANNELS=how.channels,
        BLOCK_C=block_c,
    )
