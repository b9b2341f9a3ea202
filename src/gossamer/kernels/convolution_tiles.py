"""Which tiles an implicit-GEMM convolution uses: a model of its time in clock cycles, minimised over candidates.

`bench/convolution.py` measures every candidate on a GPU, and `bench/fit_convolution.py` compares the model's choices
with the best of what was measured. The constants are fitted that way on an H200.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import hypot

from gossamer.kernels.convolution_geometry import Convolution
from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.kernels.gemm_tiles import Tiles, uses_tensor_cores
from gossamer.program import Target, dtype_of

FEW_CHANNELS = 16
"""Below this many channels per group blocks of K run across taps: a block per tap would be mostly padding."""
MAX_SPLITS = 16
LATENCY = 740
"""Cycles from asking for a tile (mostly from L2) to having it in shared memory."""
PROLOGUE = 300
"""Cycles a program spends outside its loop, besides writing its tile: coordinates, filling the pipeline."""
STEP = 140
"""Cycles of a step that neither the tensor cores nor memory account for: barriers, window arithmetic."""
SECOND_LAUNCH = 2700
"""Cycles of the launch that adds partial sums, besides its traffic."""
L2_BYTES = 37
"""Bytes per cycle that one multiprocessor gets out of L2 when all of them ask."""
BOX_STEP, BOX_LATENCY, BOX_L2_BYTES = 40, 1000, 64
"""STEP, LATENCY and L2_BYTES where the copy engine fetches the operands."""
BOX_PROLOGUE, BOX_STAGE = 900, 300
"""PROLOGUE there, for the copy engine has to read what the operands are like first, and what each stage of the pipeline
adds to it, since one thread asks for all boxes."""
WRITTEN_BYTES = 28
"""Bytes per cycle that one multiprocessor writes at the end of a tile."""
GATHER = 30
"""Instructions for one element of a window that is gathered for itself."""
ISSUE = 128
"""Instructions per cycle and multiprocessor, counted by lane."""
REGISTERS = 65536
GATHER_REGISTERS, BOX_REGISTERS = 64, 32
"""Registers of a thread besides its accumulators, where threads fetch the operands and where the copy engine does."""

# block_k counts 16-bit elements: it is halved for fp32 operands.
TENSOR_CORE_TILES = (
    Tiles(128, 256, 64, 8, 3),
    Tiles(256, 128, 64, 8, 3),
    Tiles(128, 128, 64, 8, 3),
    Tiles(128, 64, 64, 4, 4),
    Tiles(64, 128, 64, 4, 4),
    Tiles(64, 64, 64, 4, 4),
    Tiles(128, 32, 64, 4, 4),
    Tiles(64, 32, 64, 4, 5),
    Tiles(32, 64, 64, 4, 5),
    Tiles(32, 32, 64, 4, 5),
    Tiles(64, 16, 64, 4, 5),
    Tiles(16, 64, 64, 4, 5),
    Tiles(16, 32, 64, 2, 5),
)
SINGLY_GATHERED_TILES = (Tiles(128, 64, 32, 8, 3), Tiles(64, 64, 32, 4, 3))
"""Further ones where elements are gathered one by one."""
MOST_GATHERED = 32
"""Elements that a thread gathers one by one per block of K: each takes registers for its address and mask."""
FMA_TILES = (
    Tiles(128, 64, 16, 8, 3),
    Tiles(64, 64, 16, 4, 3),
    Tiles(64, 32, 16, 4, 3),
    Tiles(32, 32, 16, 4, 3),
    Tiles(16, 32, 16, 2, 3),
)


@dataclass(frozen=True, slots=True)
class Extents:
    """The size of a convolution as a matrix product, per group: pixels × outputs, reduced over taps of channels.

    apart: the input has channels first, so that neighbours along K are not neighbours in memory.
    """

    pixels: int
    outputs: int
    channels: int
    taps: int
    groups: int = 1
    apart: bool = False

    @property
    def flat(self) -> bool:
        """Whether blocks of K run across taps."""
        return self.taps > 1 and self.channels < FEW_CHANNELS

    @property
    def reduction(self) -> int:
        """What block_k divides: a tap's channels, or the whole row."""
        return self.channels * self.taps if self.flat else self.channels

    def steps(self, block_k: int) -> int:
        """How many blocks of K there are."""
        return cdiv(self.reduction, block_k) * (1 if self.flat else self.taps)


@dataclass(frozen=True, slots=True)
class Shape:
    """Tiles and what they cost on one target. Cycles: of a step, for arithmetic, traffic from L2 and issuing loads,
    which programs on one multiprocessor share, and for latency, which they hide from each other; of writing the tile,
    per byte of an element."""

    tiles: Tiles
    shared: float
    latency: float
    writing: float
    resident: int


def extents_of(convolution: Convolution) -> Extents:
    """What the choice of tiles depends on."""
    window = convolution.window
    apart = not convolution.x.channels_last
    return Extents(
        convolution.pixels, convolution.outputs, convolution.channels, window.taps, convolution.groups, apart
    )


def choose_convolution_tiles(extents: Extents, dtype: str, target: Target) -> Tiles:
    """The tiles for a convolution of `extents` on `target`."""
    return best_convolution_tiles(extents, dtype, target)[1]


@lru_cache(maxsize=4096)
def best_convolution_tiles(extents: Extents, dtype: str, target: Target) -> tuple[float, Tiles]:
    """The same with their estimated cycles."""
    if target.interpreted:
        return 0.0, _interpreter_tiles(extents)
    return min(priced(extents, dtype, target), key=lambda candidate: candidate[0])


def priced(extents: Extents, dtype: str, target: Target) -> Iterator[tuple[float, Tiles]]:
    """Every candidate as (estimated cycles, tiles): all that fit `target`'s shared memory, each unsplit and with K
    split until the device is full. This runs for every new shape of an input, so it does nothing twice."""
    itemsize = dtype_of(dtype).itemsize
    most_rows, most_columns = power_of_two(extents.pixels, least=16), power_of_two(extents.outputs, least=32)
    for shape in _shapes(dtype, target, power_of_two(extents.reduction, least=16), extents.flat or extents.apart):
        tiles = shape.tiles
        if tiles.block_m > most_rows or tiles.block_n > most_columns:
            continue  # one of half the size does
        steps, programs = extents.steps(tiles.block_k), tiles.programs(extents.pixels, extents.outputs, extents.groups)
        yield cycles(shape, programs, steps, itemsize, target), tiles
        for splits in split_counts(programs, steps, target):
            first = cycles(shape, programs * splits, cdiv(steps, splits), 4, target)
            # `dataclasses.replace` would be slow: hundreds of these are made for one new shape of an input.
            split = Tiles(tiles.block_m, tiles.block_n, tiles.block_k, tiles.num_warps, tiles.num_stages, splits)
            yield first + second_launch(extents, splits, target), split


def split_counts(programs: int, steps: int, target: Target) -> set[int]:
    """Into how many parts K may be cut: until the device is full one to three times, and a few for certain."""
    most, fill = min(MAX_SPLITS, steps // 2), target.sm_count // max(1, programs)
    return {splits for splits in (min(most, wanted) for wanted in (fill, 2 * fill, 3 * fill, 4)) if splits > 1}


def second_launch(extents: Extents, splits: int, target: Target) -> float:
    """Cycles of adding up partial sums, which are written and read."""
    traffic = 8 * extents.pixels * extents.outputs * extents.groups * splits
    return SECOND_LAUNCH + traffic / (L2_BYTES * target.sm_count)


def cycles(
    shape: Shape, programs: int, steps: int, itemsize: int, target: Target, *, prologue: float = PROLOGUE
) -> float:
    """Estimated time. A multiprocessor's programs take as long as each would alone, as many at a time as it holds, or
    as long as what they share is busy; near where the two meet they hinder each other, as in a sum of squares."""
    here = cdiv(programs, target.sm_count)
    rounds = cdiv(here, min(shape.resident, max(1, here)))
    writing = itemsize * shape.writing
    alone = rounds * (prologue + steps * max(shape.latency, shape.shared) + writing)
    return hypot(alone, here * (steps * shape.shared + writing))


@lru_cache(maxsize=256)
def _shapes(dtype: str, target: Target, most_k: int, singly: bool) -> tuple[Shape, ...]:
    """The tiles that fit `target`, with block_k of at most `most_k`."""
    itemsize, on_tensor_cores = dtype_of(dtype).itemsize, uses_tensor_cores(dtype, target)
    shapes = []
    offered = (TENSOR_CORE_TILES + SINGLY_GATHERED_TILES * singly) if on_tensor_cores else FMA_TILES
    for tiles in offered:
        block_k = tiles.block_k * 2 // itemsize if on_tensor_cores else tiles.block_k
        tiles = replace(tiles, block_k=min(block_k, most_k))  # noqa: PLW2901
        gathered = tiles.block_m * tiles.block_k // (32 * tiles.num_warps) if singly else 0
        if tiles.shared_bytes(itemsize) <= target.shared_bytes and gathered <= MOST_GATHERED:
            shapes.append(shape_of(tiles, dtype, target, singly=singly))
    return tuple(shapes)


def shape_of(tiles: Tiles, dtype: str, target: Target, *, singly: bool = False, boxes: bool = False) -> Shape:
    """What tiles cost. singly: each element of a window is fetched for itself. boxes: the copy engine fetches operands,
    not threads."""
    itemsize = dtype_of(dtype).itemsize
    multiply = tiles.block_m * tiles.block_n * tiles.block_k / _rate(tiles, dtype, target)
    moved = (tiles.block_m + tiles.block_n) * tiles.block_k * itemsize
    # Sixteen bytes take about eight instructions.
    issue = 0 if boxes else (tiles.block_m * tiles.block_k * GATHER if singly else moved / 2) / ISSUE
    step = BOX_STEP if boxes else STEP
    # Loads narrower than four bytes are not prefetched; a box is once its place has been multiplied.
    latency = LATENCY if singly else (BOX_LATENCY + multiply if boxes else LATENCY) / max(1, tiles.num_stages - 1)
    shared = max(multiply, moved / (BOX_L2_BYTES if boxes else L2_BYTES), issue) + step / 2
    writing = tiles.block_m * tiles.block_n / WRITTEN_BYTES
    nbytes = box_bytes(tiles, itemsize) if boxes else tiles.shared_bytes(itemsize)
    resident = _resident(tiles, nbytes, BOX_REGISTERS if boxes else GATHER_REGISTERS, target)
    return Shape(tiles, shared, latency + step, writing, resident)


def box_bytes(tiles: Tiles, itemsize: int) -> int:
    """Bytes of shared memory that a program takes where the copy engine fetches operands: the last stage is the one
    being multiplied, and half of a tile is on its way out."""
    stage = (tiles.block_m + tiles.block_n) * tiles.block_k * itemsize
    return (tiles.num_stages - 1) * stage + tiles.block_m * tiles.block_n * itemsize // 2 + 256


def _resident(tiles: Tiles, nbytes: int, registers_besides: int, target: Target) -> int:
    """Programs that one multiprocessor holds at a time: bounded by shared memory, registers and warps."""
    threads = 32 * tiles.num_warps
    registers = threads * (registers_besides + tiles.block_m * tiles.block_n // threads)
    return max(1, min(target.shared_bytes // nbytes, REGISTERS // registers, 1536 // threads))


def _rate(tiles: Tiles, dtype: str, target: Target) -> float:
    """Multiply-adds per cycle and multiprocessor."""
    if not uses_tensor_cores(dtype, target):
        return 64 if dtype == "float64" else 100
    generation = target.arch // 10
    peak = {8: 1024, 9: 2048, 10: 4096, 12: 1024}.get(generation, 1024) / (2 if dtype == "float32" else 1)
    native = generation not in (9, 10) or tiles.block_m >= 64  # rows of Hopper's and Blackwell's own instructions
    return peak * (0.92 if native else 0.77)


def _interpreter_tiles(extents: Extents) -> Tiles:
    """An operation costs some 50 µs there however small its tile is, so tiles are large: up to 2¹⁸ elements."""
    block_n, block_k = power_of_two(extents.outputs, 512, least=16), power_of_two(extents.reduction, 512, least=16)
    return Tiles(power_of_two(extents.pixels, 2**18 // max(block_n, block_k), least=16), block_n, block_k, 4, 1)
