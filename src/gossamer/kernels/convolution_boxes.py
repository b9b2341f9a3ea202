"""Convolution whose operands the copy engine (TMA) fetches: for every tap a box of pixels × channels, no im2col.

What lies outside of the image arrives as zeros, a strided window is a box with gaps, and no thread computes an address:
that leaves registers for larger tiles and issue slots for matrix instructions. It takes an sm_90 at least, channels
last, and rows of whole 16 bytes; `convolution_gemm` does the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from math import prod

import triton
import triton.language as tl

from gossamer.kernels.activations import activate
from gossamer.kernels.convolution_epilogue import Epilogue, add_partial_sums
from gossamer.kernels.convolution_geometry import Activations, Convolution
from gossamer.kernels.convolution_tiles import (
    Shape,
    choose_convolution_tiles,
    cycles,
    extents_of,
    priced,
    second_launch,
    shape_of,
    split_counts,
)
from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.kernels.gemm import multiply_tiles
from gossamer.kernels.gemm_tiles import Tiles, uses_tensor_cores
from gossamer.kernels.launch import Boxes, launch
from gossamer.kernels.tf32 import multiplies_in_tf32
from gossamer.model.node import Node
from gossamer.program import Buffer, Call, Target, dtype_of

LONGEST_SIDE = 256
"""Elements that one copy may span along a dimension, those it skips included."""
LARGEST_GAP = 8
"""From one element that a copy takes to the next."""


@triton.jit
def load_box(boxes, image, row, column, channel, ROWS: tl.constexpr):
    """The box of activations at a place; ROWS: they are plain rows of channels."""
    return boxes.load([image, channel]) if ROWS else boxes.load([image, row, column, channel])


@triton.jit
def convolve_tile(
    tile, x_boxes, w_boxes, bias_ptr, z_boxes, y_boxes, n_outputs, columns, box_rows, box_columns, steps, chunks,
    split_images, strides, pads, dilations, alpha, beta, KERNEL: tl.constexpr, ROWS: tl.constexpr, KIND: tl.constexpr,
    MULTIPLY: tl.constexpr, UPCAST: tl.constexpr, SPLIT: tl.constexpr, BOX: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Tile number `tile` of y, as `convolution_boxes_kernel` says."""
    PIXELS: tl.constexpr = BOX[0] * BOX[1] * BOX[2]
    output, box = tile % columns * BLOCK_N, tile // columns
    image = box // box_columns // box_rows * BOX[0]
    p, q = box // box_columns % box_rows * BOX[1], box % box_columns * BOX[2]
    h, w = p * strides[0] - pads[0], q * strides[1] - pads[1]
    first, last = 0, steps
    if SPLIT:
        share = tl.cdiv(steps, tl.num_programs(1))
        first = tl.program_id(1) * share
        last = tl.minimum(first + share, steps)
    acc = tl.zeros((PIXELS, BLOCK_N), tl.float32)
    for step in range(first, last):
        tap = step // chunks
        row, column = h + tap // KERNEL[1] * dilations[0], w + tap % KERNEL[1] * dilations[1]
        x = load_box(x_boxes, image, row, column, step % chunks * BLOCK_K, ROWS).reshape(PIXELS, BLOCK_K)
        filters = w_boxes.load([output, step * BLOCK_K])
        acc = multiply_tiles(x, filters.T, acc, MULTIPLY, UPCAST)
    if SPLIT:
        image += tl.program_id(1) * split_images
    else:
        if bias_ptr is not None:
            channel = output + tl.arange(0, BLOCK_N)
            acc += tl.load(bias_ptr + channel, mask=channel < n_outputs, other=0.0).to(tl.float32)[None, :]
        if z_boxes is not None:
            acc += load_box(z_boxes, image, p, q, output, ROWS).reshape(PIXELS, BLOCK_N).to(tl.float32)
        acc = activate(acc, KIND, alpha, beta)
    y = acc.to(y_boxes.dtype)
    if ROWS:
        y_boxes.store([image, output], y)
    else:
        y_boxes.store([image, p, q, output], y.reshape(BOX[0], BOX[1], BOX[2], BLOCK_N))


@triton.jit
def convolution_boxes_kernel(
    x_boxes, w_boxes, bias_ptr, z_boxes, y_boxes, n_tiles, n_outputs, columns, box_rows, box_columns, steps, chunks,
    split_images, strides, pads, dilations, alpha, beta, KERNEL: tl.constexpr, ROWS: tl.constexpr, KIND: tl.constexpr,
    MULTIPLY: tl.constexpr, UPCAST: tl.constexpr, SPLIT: tl.constexpr, PERSISTENT: tl.constexpr, BOX: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """y[n,p,q,k] = KIND(Σ over r, s, c of x[n, window(p,r), window(q,s), c] · w[k, (r,s,c)] + bias[k] + z[n,p,q,k])

    window(o, tap) = o · strides − pads + tap · dilations. Filters are packed (`convolution_weights`). BOX: images, rows
    and columns of a tile of y. PERSISTENT: a program does every tile whose number is its own modulo the count of
    programs, and fetches the next one's operands while it writes one. With SPLIT, image s · split_images + n of y is
    the plain sum over the s-th part of K.
    """
    if PERSISTENT:
        for tile in tl.range(tl.program_id(0), n_tiles, tl.num_programs(0), flatten=True):
            convolve_tile(tile, x_boxes, w_boxes, bias_ptr, z_boxes, y_boxes, n_outputs, columns, box_rows, box_columns,
                          steps, chunks, split_images, strides, pads, dilations, alpha, beta, KERNEL, ROWS, KIND,
                          MULTIPLY, UPCAST, SPLIT, BOX, BLOCK_N, BLOCK_K)  # fmt: skip
    else:
        convolve_tile(tl.program_id(0), x_boxes, w_boxes, bias_ptr, z_boxes, y_boxes, n_outputs, columns, box_rows,
                      box_columns, steps, chunks, split_images, strides, pads, dilations, alpha, beta, KERNEL, ROWS,
                      KIND, MULTIPLY, UPCAST, SPLIT, BOX, BLOCK_N, BLOCK_K)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BoxTiles:
    """One program computes boxes of images × rows × columns output pixels by block_n channels, over a `splits`-th of K,
    block_k at a time. persistent: as many programs as the device holds share all tiles."""

    box: tuple[int, int, int]
    block_n: int
    block_k: int
    num_warps: int
    num_stages: int
    splits: int = 1
    persistent: bool = False

    @property
    def block_m(self) -> int:
        return prod(self.box)

    @property
    def plain(self) -> Tiles:
        """The tiles of the matrix product that this is."""
        return Tiles(self.block_m, self.block_n, self.block_k, self.num_warps, self.num_stages, self.splits)

    def boxes(self, convolution: Convolution) -> tuple[int, int, int]:
        """How many boxes there are along each dimension."""
        _, rows, columns = convolution.y.extents
        return cdiv(convolution.batch, self.box[0]), cdiv(rows, self.box[1]), cdiv(columns, self.box[2])

    def count(self, convolution: Convolution) -> int:
        """How many tiles y has."""
        return prod(self.boxes(convolution)) * cdiv(convolution.outputs, self.block_n)


# block_k counts 16-bit elements: a row of it is the 128 bytes that shared memory's banks are swizzled over.
BOX_TILES = (
    Tiles(128, 256, 64, 8, 3),
    Tiles(256, 128, 64, 8, 3),
    Tiles(128, 128, 64, 8, 3),
    Tiles(128, 128, 64, 4, 3),
    Tiles(128, 64, 64, 4, 4),
    Tiles(64, 128, 64, 4, 4),
    Tiles(64, 64, 64, 4, 4),
    Tiles(128, 32, 64, 4, 4),
    Tiles(64, 32, 64, 4, 6),
)


def takes_boxes(convolution: Convolution, dtype: str, target: Target) -> bool:
    """Whether the copy engine can fetch the operands of a convolution and write its result."""
    x, y, itemsize = convolution.x, convolution.y, dtype_of(dtype).itemsize
    whole = x.channels * itemsize % 16 == 0 and y.channels * itemsize % 16 == 0
    return (
        target.arch >= 90
        and uses_tensor_cores(dtype, target)
        and x.channels_last
        and y.channels_last
        and whole
        and convolution.groups == 1
        and convolution.rank <= 2
        and not extents_of(convolution).flat
        and max(convolution.window.strides) <= LARGEST_GAP
        and min(convolution.pixels, x.pixels) > 0
    )


@lru_cache(maxsize=4096)
def choose_tiles(convolution: Convolution, dtype: str, target: Target) -> Tiles | BoxTiles:
    """How to compute a convolution on `target`."""
    extents = extents_of(convolution)
    if target.interpreted:
        return choose_convolution_tiles(extents, dtype, target)
    candidates: Iterator[tuple[float, Tiles | BoxTiles]] = chain(
        priced(extents, dtype, target), priced_boxes(convolution, dtype, target)
    )
    return min(candidates, key=lambda candidate: candidate[0])[1]


def priced_boxes(convolution: Convolution, dtype: str, target: Target) -> Iterator[tuple[float, BoxTiles]]:
    """Every candidate as (estimated cycles, tiles), as `convolution_tiles.priced` gives those without boxes."""
    if not takes_boxes(convolution, dtype, target):
        return
    extents, itemsize = extents_of(convolution), dtype_of(dtype).itemsize
    most_rows, most_columns = (power_of_two(n, least=64) for n in (extents.pixels, extents.outputs))
    for shape in _shapes(dtype, target, power_of_two(extents.channels, least=16)):
        plain = shape.tiles
        if plain.block_m > most_rows or plain.block_n > most_columns:
            continue  # one of half the size does
        box = _best_box(plain.block_m, convolution)
        how = (box, plain.block_n, plain.block_k, plain.num_warps, plain.num_stages)
        tiles = BoxTiles(*how)
        steps, programs = extents.steps(plain.block_k), tiles.count(convolution)
        yield cycles(shape, programs, steps, itemsize, target), tiles
        held = _held(shape, itemsize, target)
        if held and programs > held * target.sm_count:
            lasting = Shape(plain, shape.shared, shape.latency, shape.writing, held)
            yield cycles(lasting, programs, steps, itemsize, target, prologue=0), BoxTiles(*how, persistent=True)
        if plain.shared_bytes(itemsize) + 4 * plain.block_m * plain.block_n > target.shared_bytes:
            continue  # partial sums are in shared memory on their way out, while the pipeline still has its own
        for splits in split_counts(programs, steps, target):
            first = cycles(shape, programs * splits, cdiv(steps, splits), 4, target)
            yield first + second_launch(extents, splits, target), BoxTiles(*how, splits)


@lru_cache(maxsize=64)
def _shapes(dtype: str, target: Target, most_k: int) -> tuple[Shape, ...]:
    itemsize = dtype_of(dtype).itemsize
    fitting = (replace(tiles, block_k=min(tiles.block_k * 2 // itemsize, most_k)) for tiles in BOX_TILES)
    return tuple(
        shape_of(tiles, dtype, target, boxes=True)
        for tiles in fitting
        if tiles.shared_bytes(itemsize) <= target.shared_bytes
    )


def _held(shape: Shape, itemsize: int, target: Target) -> int:
    """How many persistent programs a multiprocessor holds: beside the pipeline each has room for the tile that it is
    writing and for the residual that it adds."""
    shared = shape.tiles.shared_bytes(itemsize) + 2 * shape.tiles.block_m * shape.tiles.block_n * itemsize
    return min(target.shared_bytes // shared, shape.resident)


def programs_at_a_time(tiles: BoxTiles, dtype: str, target: Target) -> int:
    """How many persistent programs the device holds."""
    shape = shape_of(tiles.plain, dtype, target, boxes=True)
    return target.sm_count * max(1, _held(shape, dtype_of(dtype).itemsize, target))


@lru_cache(maxsize=1024)
def _best_box(pixels: int, convolution: Convolution) -> tuple[int, int, int]:
    """The box of so many pixels that tiles the output with least waste; of equal ones, that of longest rows."""
    if convolution.rank == 0:
        return pixels, 1, 1
    images, (_, rows, columns) = convolution.batch, convolution.y.extents
    _, row_gap, column_gap = convolution.window.strides
    best, fewest = (pixels, 1, 1), cdiv(images, pixels) * rows * columns
    for high in _sides(min(pixels, LONGEST_SIDE // row_gap), rows):
        for wide in _sides(min(pixels // high, LONGEST_SIDE // column_gap), columns):
            deep = pixels // (high * wide)
            count = cdiv(images, deep) * cdiv(rows, high) * cdiv(columns, wide)
            if count < fewest or (count == fewest and wide > best[2]):
                best, fewest = (deep, high, wide), count
    return best


def _sides(most: int, extent: int) -> Iterator[int]:
    """Powers of two up to `most`, and to the first that covers the extent."""
    side = 1
    while side <= most:
        yield side
        if side >= extent:
            return
        side *= 2


def convolve_boxes(
    node: Node, target: Target, convolution: Convolution, epilogue: Epilogue, tiles: BoxTiles, filters: Buffer
) -> tuple[Call, ...]:
    """The launches of a convolution with packed `filters`, for which `takes_boxes` holds."""
    x, y, window = node.x, node.y, convolution.window
    extents, images = extents_of(convolution), tiles.boxes(convolution)[0] * tiles.box[0]
    size = images * (y.size // convolution.batch)
    sums = node.temporary((tiles.splits, size), "float32") if tiles.splits > 1 else y
    here = epilogue if tiles.splits == 1 else Epilogue()
    n_tiles, (_, box_rows, box_columns) = tiles.count(convolution), tiles.boxes(convolution)
    count = min(n_tiles, programs_at_a_time(tiles, x.dtype, target)) if tiles.persistent else n_tiles
    arguments = here.arguments()
    residual = arguments.pop("z_ptr")
    row = filters.shape[-1]
    out = (images * tiles.splits if tiles.splits > 1 else convolution.batch, tiles.box, tiles.block_n)
    first = launch(
        convolution_boxes_kernel,
        (count, tiles.splits),
        writes=sums,
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
        inplace=here.inplace(y, x, filters),
        flops=convolution.flops,
        x_boxes=_boxes(x, convolution, convolution.x, convolution.batch, tiles.box, tiles.block_k, window.strides[1:]),
        w_boxes=Boxes(filters, (extents.outputs, row), (row, 1), (tiles.block_n, tiles.block_k)),
        z_boxes=residual and _boxes(residual, convolution, convolution.y, *out),
        y_boxes=_boxes(sums, convolution, convolution.y, *out),
        n_tiles=n_tiles,
        n_outputs=extents.outputs,
        columns=cdiv(extents.outputs, tiles.block_n),
        box_rows=box_rows,
        box_columns=box_columns,
        steps=extents.steps(tiles.block_k),
        chunks=cdiv(extents.channels, tiles.block_k),
        split_images=images,
        strides=window.strides[1:],
        pads=window.pads[1:],
        dilations=window.dilations[1:],
        KERNEL=window.kernel[1:],
        ROWS=convolution.rank == 0,
        MULTIPLY="tf32" if multiplies_in_tf32(x.dtype, target) else "ieee",
        UPCAST=target.interpreted and x.dtype != "float32",
        SPLIT=tiles.splits > 1,
        PERSISTENT=tiles.persistent,
        BOX=tiles.box,
        BLOCK_N=tiles.block_n,
        BLOCK_K=tiles.block_k,
        **arguments,
    )
    if tiles.splits == 1:
        return (first,)
    return first, add_partial_sums(sums, tiles.splits, epilogue, y, convolution.y, target)


def _boxes(
    buffer: Buffer,
    convolution: Convolution,
    layout: Activations,
    images: int,
    box: tuple[int, int, int],
    channels: int,
    gaps: tuple[int, int] = (1, 1),
) -> Boxes:
    """Activations in boxes of pixels × channels. gaps: from one row or column of a box to the next."""
    image, _, row, column = layout.strides
    if convolution.rank == 0:
        return Boxes(buffer, (images, layout.channels), (image, 1), (box[0], channels))
    _, rows, columns = layout.extents
    extents, strides = (images, rows, columns, layout.channels), (image, row, column, 1)
    return Boxes(buffer, extents, strides, (*box, channels), (1, *gaps, 1))
