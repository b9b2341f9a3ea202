"""Which tiles a convolution by boxes uses (`convolution_boxes`), or that it had better gather its operands.

The cost model is that of `convolution_tiles`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from math import inf, prod

from gossamer.kernels.convolution_geometry import Convolution
from gossamer.kernels.convolution_tiles import (
    BOX_PROLOGUE,
    BOX_STAGE,
    Shape,
    best_convolution_tiles,
    box_bytes,
    cycles,
    extents_of,
    priced,
    second_launch,
    shape_of,
    split_counts,
)
from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.kernels.gemm_tiles import Tiles, uses_tensor_cores
from gossamer.program import Target, dtype_of
from gossamer.program.calls import MAX_BOX, MAX_GAP


@dataclass(frozen=True, slots=True)
class BoxTiles:
    """One program computes boxes of images × rows × columns output pixels, at rank 3 of depths × rows × columns of one
    image, by block_n channels, over a `splits`-th of K, block_k at a time. persistent: as many programs as the device
    holds share all tiles."""

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

    @property
    def filter_box(self) -> tuple[int, int]:
        return self.block_n, self.block_k

    def boxes(self, convolution: Convolution) -> tuple[int, int, int]:
        """How many boxes there are along each dimension, along depth in all images."""
        depth, rows, columns = convolution.y.extents
        if convolution.rank == 3:
            slices = convolution.batch * cdiv(depth, self.box[0])
        else:
            slices = cdiv(convolution.batch, self.box[0])
        return slices, cdiv(rows, self.box[1]), cdiv(columns, self.box[2])

    def count(self, convolution: Convolution) -> int:
        """How many tiles y has."""
        return prod(self.boxes(convolution)) * cdiv(convolution.outputs, self.block_n)


# block_k counts 16-bit elements: a row of it is the 128 bytes that shared memory's banks are swizzled over. A
# multiprocessor holds several programs with short pipelines; where there is but one for each, a long one has to do.
BOX_TILES = (
    Tiles(128, 256, 64, 8, 3),
    Tiles(128, 256, 64, 8, 4),
    Tiles(256, 128, 64, 8, 3),
    Tiles(256, 128, 64, 8, 4),
    Tiles(128, 128, 64, 4, 3),
    Tiles(128, 128, 64, 4, 6),
    Tiles(128, 64, 64, 4, 4),
    Tiles(128, 64, 64, 4, 8),
    Tiles(64, 128, 64, 4, 4),
    Tiles(64, 128, 64, 4, 8),
    Tiles(64, 64, 64, 4, 4),
    Tiles(64, 64, 64, 4, 8),
    Tiles(128, 32, 64, 4, 4),
    Tiles(64, 32, 64, 4, 6),
)


def takes_boxes(convolution: Convolution, dtype: str, target: Target) -> bool:
    """Whether the copy engine can fetch the operands of a convolution and write its result."""
    x, y, itemsize = convolution.x, convolution.y, dtype_of(dtype).itemsize
    strides = x.strides + y.strides * y.channels_last
    return (
        target.arch >= 90
        and uses_tensor_cores(dtype, target)
        and x.channels_last
        and all(stride * itemsize % 16 == 0 for stride in strides)
        and convolution.groups == 1
        and (y.channels_last or not convolution.wide)
        and not extents_of(convolution).flat
        and max(convolution.window.strides) <= MAX_GAP
        and min(convolution.pixels, x.pixels) > 0
    )


def choose_tiles(convolution: Convolution, dtype: str, target: Target) -> Tiles | BoxTiles:
    """How to compute a convolution on `target`."""
    return best_tiles(convolution, dtype, target)[1]


@lru_cache(maxsize=4096)
def best_tiles(convolution: Convolution, dtype: str, target: Target) -> tuple[float, Tiles | BoxTiles]:
    """The same with its estimated cycles."""
    extents = extents_of(convolution)
    if target.interpreted:
        return best_convolution_tiles(extents, dtype, target)
    candidates: Iterator[tuple[float, Tiles | BoxTiles]] = chain(
        priced(extents, dtype, target), priced_boxes(convolution, dtype, target)
    )
    return min(candidates, key=lambda candidate: candidate[0])


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
        if box is None:
            continue
        how = (box, plain.block_n, plain.block_k, plain.num_warps, plain.num_stages)
        tiles = BoxTiles(*how)
        steps, programs = extents.steps(plain.block_k), tiles.count(convolution)
        prologue = BOX_PROLOGUE + BOX_STAGE * (plain.num_stages - 1)
        yield cycles(shape, programs, steps, itemsize, target, prologue=prologue), tiles
        held = _held(shape, itemsize, target)
        if held and programs > held * target.sm_count and convolution.y.channels_last:
            lasting = Shape(plain, shape.shared, shape.latency, shape.writing, held)
            once = prologue + cycles(lasting, programs, steps, itemsize, target, prologue=0)
            yield once, BoxTiles(*how, persistent=True)
        if box_bytes(plain, itemsize) + 4 * plain.block_m * plain.block_n > target.shared_bytes:
            continue  # partial sums are in shared memory on their way out, while the pipeline still has its own
        for splits in split_counts(programs, steps, target):
            first = cycles(shape, programs * splits, cdiv(steps, splits), 4, target, prologue=prologue)
            yield first + second_launch(extents, splits, target), BoxTiles(*how, splits)


@lru_cache(maxsize=64)
def _shapes(dtype: str, target: Target, most_k: int) -> tuple[Shape, ...]:
    itemsize = dtype_of(dtype).itemsize
    fitting = (replace(tiles, block_k=min(tiles.block_k * 2 // itemsize, most_k)) for tiles in BOX_TILES)
    return tuple(
        shape_of(tiles, dtype, target, boxes=True)
        for tiles in fitting
        if box_bytes(tiles, itemsize) <= target.shared_bytes
    )


def _held(shape: Shape, itemsize: int, target: Target) -> int:
    """How many persistent programs a multiprocessor holds: beside the pipeline each has room for the tile that it is
    writing and for the residual that it adds."""
    shared = box_bytes(shape.tiles, itemsize) + 2 * shape.tiles.block_m * shape.tiles.block_n * itemsize
    return min(target.shared_bytes // shared, shape.resident)


def programs_at_a_time(tiles: BoxTiles, dtype: str, target: Target) -> int:
    """How many persistent programs the device holds."""
    shape = shape_of(tiles.plain, dtype, target, boxes=True)
    return target.sm_count * max(1, _held(shape, dtype_of(dtype).itemsize, target))


@lru_cache(maxsize=1024)
def _best_box(pixels: int, convolution: Convolution) -> tuple[int, int, int] | None:
    """The box of so many pixels that tiles the output with least waste; of equal ones, that of longest rows. None where
    gaps make each too long to copy."""
    if convolution.rank == 0:
        return pixels, 1, 1
    (depth, rows, columns), (depth_gap, row_gap, column_gap) = convolution.y.extents, convolution.window.strides
    images, most_deep = convolution.batch, MAX_BOX
    if convolution.rank == 3:
        images, most_deep = depth, MAX_BOX // depth_gap
    best: tuple[int, int, int] | None = None
    fewest: float = inf
    for high in _sides(min(pixels, MAX_BOX // row_gap), rows):
        for wide in _sides(min(pixels // high, MAX_BOX // column_gap), columns):
            deep = pixels // (high * wide)
            count = cdiv(images, deep) * cdiv(rows, high) * cdiv(columns, wide)
            if deep <= most_deep and (best is None or count < fewest or (count == fewest and wide > best[2])):
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
