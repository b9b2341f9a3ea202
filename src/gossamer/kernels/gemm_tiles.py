"""Which tiles a matrix product uses: a model of its time in clock cycles, minimised over a list of candidates.

The model has the terms of the machine: what a step moves and multiplies, how long it waits, waves of programs, memory,
and the second launch of a split. What no data sheet says (LATENCY, PROLOGUE, WRITTEN_BYTES, GATHERED, SECOND_LAUNCH)
is fitted to the µs of 17 fp16 products that `bench/tiles.py` measured on an H200, candidates near the best weighing
most; some 10 % of error remain. The form of the model and the list of tiles were chosen on the same products.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import hypot, sqrt

from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.program import Target, dtype_of

LATENCY = 1090
"""Cycles from asking for a tile in global memory to having the first of it: DRAM's, as weights are seldom in L2."""
PROLOGUE = 860
"""Cycles a program spends outside its loop, besides writing its tile: index arithmetic, filling the pipeline. What was
measured hardly tells it from the floor of a launch: without some of the products the fit gives 130 to 1100."""
L2_BYTES = 64
"""Bytes per cycle that one multiprocessor gets out of L2."""
DRAM_BYTES = 20
"""Bytes per cycle and multiprocessor that DRAM gives (H200: 4.8 TB/s)."""
SHARED_BYTES = 128
"""Bytes per cycle that shared memory reads or writes."""
WRITTEN_BYTES = 15
"""Bytes per cycle that one multiprocessor writes at the end of a tile."""
GATHERED = 18
"""Instructions that an element takes which is loaded by itself."""
ISSUE = 128
"""Instructions per cycle and multiprocessor, counted by lane."""
SECOND_LAUNCH = 4100
"""Cycles of the launch that adds partial sums, besides its traffic."""
REGISTERS = 65536
"""Registers of a multiprocessor."""
MOST_REGISTERS = 255
"""Registers of a thread."""
MAX_SPLITS = 32
GROUP_M = 8
"""Rows of tiles that are finished before the next column of B is touched: keeps both operands in L2."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """One program computes a block_m × block_n tile of Y over a `splits`-th of K, block_k at a time."""

    block_m: int
    block_n: int
    block_k: int
    num_warps: int
    num_stages: int
    splits: int = 1

    def shared_bytes(self, itemsize: int) -> int:
        """Bytes of shared memory that the software pipeline holds at most: its tiles and its barriers."""
        return self.num_stages * (self.block_m + self.block_n) * self.block_k * itemsize + 256

    def programs(self, m: int, n: int, batch: int) -> int:
        return cdiv(m, self.block_m) * cdiv(n, self.block_n) * self.splits * batch


@dataclass(frozen=True, slots=True)
class Shape:
    """Tiles and what they cost on one target. Cycles of a step: how long a program waits for its loads when alone on a
    multiprocessor, and how long it keeps busy what programs share. resident: programs there at a time."""

    tiles: Tiles
    alone: float
    shared: float
    resident: int


# block_k counts 16-bit elements: it is halved for fp32 operands, whose tiles would otherwise need twice the memory.
TENSOR_CORE_TILES = (
    Tiles(128, 256, 64, 8, 3),
    Tiles(128, 128, 64, 8, 3),
    Tiles(64, 128, 64, 4, 4),
    Tiles(128, 64, 64, 4, 4),
    Tiles(64, 64, 64, 4, 4),
    Tiles(64, 32, 64, 4, 5),
    Tiles(32, 64, 64, 4, 5),
    Tiles(32, 32, 128, 4, 4),
    Tiles(16, 128, 64, 4, 5),
    Tiles(16, 64, 128, 4, 4),
    Tiles(16, 32, 128, 4, 4),
)
# Plain multiply-adds: every product of two registers costs an instruction, so tiles are bounded by registers.
FMA_TILES = (
    Tiles(128, 64, 16, 8, 3),
    Tiles(64, 128, 16, 8, 3),
    Tiles(64, 64, 16, 4, 3),
    Tiles(32, 64, 32, 4, 3),
    Tiles(64, 32, 32, 4, 3),
    Tiles(32, 32, 32, 4, 3),
    Tiles(16, 64, 32, 4, 3),
    Tiles(16, 32, 32, 2, 3),
)
INTEGER_TILES = (Tiles(16, 16, 16, 4, 2), Tiles(32, 32, 8, 4, 2))
"""Integers have no dot instruction that is exact for all of them: products are summed along a third axis."""


def uses_tensor_cores(dtype: str, target: Target) -> bool:
    """Whether products of this type are made of matrix instructions."""
    return target.arch >= 80 and (dtype in ("float16", "bfloat16") or (dtype == "float32" and target.use_tf32))


@lru_cache(maxsize=4096)
def choose_tiles(
    m: int, n: int, k: int, batch: int, dtype: str, target: Target, gathered: tuple[bool, bool] = (False, False)
) -> Tiles:
    """The tiles for Y[batch, m, n] = A[batch, m, k] · B[batch, k, n] on `target`.

    gathered: whether A, and B, are loaded element by element, because their rows begin anywhere.
    """
    if target.interpreted:
        return _interpreter_tiles(m, n, k, dtype)
    return min(priced(m, n, k, batch, dtype, target, gathered), key=lambda candidate: candidate[0])[1]


def priced(
    m: int, n: int, k: int, batch: int, dtype: str, target: Target, gathered: tuple[bool, bool] = (False, False)
) -> Iterator[tuple[float, Tiles]]:
    """Every candidate as (estimated cycles, tiles): all that fit `target`, each unsplit and with K split to fill the
    device once, twice or four times. This runs for every new shape of an input, so it does nothing twice."""
    itemsize, elements = dtype_of(dtype).itemsize, m * n * batch
    widened = max(4, itemsize)
    reading = (m * k + k * n + m * n) * batch * itemsize / (DRAM_BYTES * target.sm_count)
    for shape in _shapes(dtype, target, gathered):
        tiles = shape.tiles
        steps, unsplit = cdiv(k, tiles.block_k), tiles.programs(m, n, batch)
        yield hypot(_cycles(shape, unsplit, steps, itemsize, target), reading), tiles
        if not unsplit or elements >= 2**28:
            continue
        most = min(MAX_SPLITS, steps // 2)
        for splits in sorted({per_sm * target.sm_count // unsplit for per_sm in (1, 2, 4)}):
            if 1 < splits <= most:
                first = _cycles(shape, unsplit * splits, cdiv(steps, splits), widened, target)
                second = SECOND_LAUNCH + 2 * splits * elements * widened / (L2_BYTES * target.sm_count)
                split = Tiles(tiles.block_m, tiles.block_n, tiles.block_k, tiles.num_warps, tiles.num_stages, splits)
                yield hypot(first, reading) + second, split


def _cycles(shape: Shape, programs: int, steps: int, itemsize: int, target: Target) -> float:
    """Estimated time: a step takes as long as it takes a program alone, or as all programs there share its work."""
    here = cdiv(programs, target.sm_count)
    rounds = cdiv(here, shape.resident)
    together = here / max(1, rounds)
    writing = shape.tiles.block_m * shape.tiles.block_n * itemsize / WRITTEN_BYTES
    return rounds * (PROLOGUE + steps * max(shape.alone, together * shape.shared) + together * writing)


@lru_cache
def _shapes(dtype: str, target: Target, gathered: tuple[bool, bool]) -> tuple[Shape, ...]:
    """The tiles for a type, as far as `target` has the shared memory and a thread the registers."""
    itemsize = dtype_of(dtype).itemsize
    offered: tuple[Tiles, ...]
    if not uses_tensor_cores(dtype, target):
        offered = FMA_TILES if "float" in dtype else INTEGER_TILES
    else:
        scaled = (replace(tiles, block_k=tiles.block_k * 2 // itemsize) for tiles in TENSOR_CORE_TILES)
        offered = tuple(tiles for tiles in scaled if tiles.shared_bytes(itemsize) <= target.shared_bytes)
    fitting = [tiles for tiles in offered if _registers(tiles, gathered) <= MOST_REGISTERS] or offered[-1:]
    return tuple(_shape_of(tiles, dtype, target, gathered) for tiles in fitting)


def _shape_of(tiles: Tiles, dtype: str, target: Target, gathered: tuple[bool, bool]) -> Shape:
    itemsize, block_m, block_n = dtype_of(dtype).itemsize, tiles.block_m, tiles.block_n
    moved = (block_m + block_n) * tiles.block_k * itemsize
    if _wide(tiles, target):  # each 64 rows read their part of A and all of B
        read_per_k = block_m / 64 * (64 + block_n)
    else:  # each warp reads the rows and columns of its part, about a square
        read_per_k = 2 * sqrt(block_m * block_n * tiles.num_warps)
    multiplying = block_m * block_n * tiles.block_k / _rate(tiles, dtype, target)
    feeding = (moved + read_per_k * tiles.block_k * itemsize) / SHARED_BYTES
    gathering = (block_m * gathered[0] + block_n * gathered[1]) * tiles.block_k * GATHERED / ISSUE
    waiting = LATENCY + moved / L2_BYTES + gathering
    prefetched = itemsize >= 4 or not any(gathered)  # nothing narrower than four bytes is copied asynchronously
    return Shape(
        tiles,
        waiting / (tiles.num_stages - 1) if prefetched else waiting,
        max(multiplying, feeding, moved / L2_BYTES) + gathering,
        _resident(tiles, itemsize, gathered, target),
    )


def _resident(tiles: Tiles, itemsize: int, gathered: tuple[bool, bool], target: Target) -> int:
    """Programs that one multiprocessor holds at a time: bounded by shared memory, registers and warps."""
    threads = 32 * tiles.num_warps
    registers = threads * _registers(tiles, gathered)
    return max(1, min(target.shared_bytes // tiles.shared_bytes(itemsize), REGISTERS // registers, 2048 // threads))


def _registers(tiles: Tiles, gathered: tuple[bool, bool]) -> int:
    """Registers of a thread: accumulators, three for each element loaded by itself, and 64 for the rest."""
    elements = (tiles.block_m * gathered[0] + tiles.block_n * gathered[1]) * tiles.block_k
    return 64 + (tiles.block_m * tiles.block_n + 3 * elements) // (32 * tiles.num_warps)


def _wide(tiles: Tiles, target: Target) -> bool:
    """Whether the tile is one of Hopper's or Blackwell's own instructions, which read operands from shared memory."""
    return target.arch // 10 in (9, 10) and tiles.block_m >= 64


def _rate(tiles: Tiles, dtype: str, target: Target) -> float:
    """Multiply-adds per cycle and multiprocessor, of dense tensor-core instructions where they apply."""
    if not uses_tensor_cores(dtype, target):
        return 64 if dtype == "float64" else 100 if dtype == "float32" else 32
    peak = {8: 1024, 9: 2048, 10: 4096, 12: 1024}.get(target.arch // 10, 1024) / (2 if dtype == "float32" else 1)
    return peak * (0.62 if target.arch // 10 in (9, 10) and not _wide(tiles, target) else 1.0)


def _interpreter_tiles(m: int, n: int, k: int, dtype: str) -> Tiles:
    """An operation costs some 50 µs there however small its tile is, so tiles are large: up to 2¹⁸ elements."""
    if "int" in dtype:  # a product is a sum over a cube
        block_m, block_n = power_of_two(m, 256, least=16), power_of_two(n, 256, least=16)
        return Tiles(block_m, block_n, power_of_two(k, 32, least=16), 4, 1)
    block_n = power_of_two(n, 2048, least=16)
    block_k = power_of_two(k, min(1024, 2**18 // block_n), least=16)
    return Tiles(power_of_two(m, 2**18 // max(block_n, block_k), least=16), block_n, block_k, 4, 1)


@dataclass(frozen=True, slots=True)
class Strip:
    """One program computes block_n elements of a matrix-vector product over a `splits`-th of K.

    num_stages: 1 loads into registers; more prefetch that many tiles less one through shared memory.
    """

    block_n: int
    block_k: int
    num_warps: int
    splits: int = 1
    num_stages: int = 1

    def programs(self, n: int, batch: int) -> int:
        return cdiv(n, self.block_n) * self.splits * batch


STRIP_ELEMENTS = (16384, 8192, 4096, 2048)
"""Sizes of the matrix's tile that a step takes: all its loads are in flight at a time, in registers."""
FULL_SPEED = 64
"""Bytes side by side below which DRAM is slower: L2 asks it for two sectors at a time."""


@lru_cache(maxsize=4096)
def choose_strip(
    n: int, k: int, batch: int, itemsize: int, k_contiguous: bool, target: Target, gathered: bool = False
) -> Strip:
    """The strip for y[batch, n] = x[batch, k] · W[batch, k, n]. gathered: W is loaded element by element.

    The same model as of `choose_tiles`, where nothing but memory is shared.
    """
    if target.interpreted:
        return Strip(power_of_two(n, 256, least=16), power_of_two(k, 512, least=16), 4)
    offered = _strips(power_of_two(k, least=16), itemsize, k_contiguous, gathered)
    return min(_priced(offered, n, k, batch, max(4, itemsize), target), key=lambda candidate: candidate[0])[1]


def _priced(
    offered: tuple[tuple[Strip, int, float], ...], n: int, k: int, batch: int, itemsize: int, target: Target
) -> Iterator[tuple[float, Strip]]:
    """Every candidate as (estimated cycles, strip), unsplit and with K split. itemsize: of a partial sum."""
    adding = 2 * n * batch * itemsize / (L2_BYTES * target.sm_count)
    for strip, resident, reading in offered:
        programs, steps = strip.programs(n, batch), cdiv(k, strip.block_k)
        for splits in (1, 2, 4, 8):
            if splits > max(1, steps):
                break
            here = cdiv(programs * splits, target.sm_count)
            rounds = max(1, cdiv(here, resident))
            time = rounds * (PROLOGUE + cdiv(steps, splits) * hypot(LATENCY, here / rounds * reading))
            if splits == 1:
                yield time, strip
            else:
                second = SECOND_LAUNCH + splits * adding
                yield time + second, Strip(strip.block_n, strip.block_k, strip.num_warps, splits)


@lru_cache(maxsize=256)
def _strips(most_k: int, itemsize: int, k_contiguous: bool, gathered: bool) -> tuple[tuple[Strip, int, float], ...]:
    """Strips with block_k of at most `most_k`, how many programs fit a multiprocessor, and how many cycles a step of
    one program keeps its part of DRAM busy."""
    strips = []
    for block_n, elements in product((4, 8, 16, 32, 64), STRIP_ELEMENTS):
        strip = Strip(block_n, min(elements // block_n, most_k), 4)
        each = block_n * strip.block_k / (32 * strip.num_warps)
        # An element takes registers for its sum and itself, and where it is loaded by itself for its address.
        registers = int(28 + each * (max(1, itemsize / 4) + itemsize / 4 + 0.25 + 3 * gathered))
        if registers <= MOST_REGISTERS:
            width = (strip.block_k if k_contiguous else block_n) * itemsize
            speed = DRAM_BYTES * min(1.0, sqrt(width / FULL_SPEED))
            resident = REGISTERS // (registers * 32 * strip.num_warps)
            strips.append((strip, resident, block_n * strip.block_k * itemsize / speed))
    return tuple(strips)
