"""Which tiles a matrix product uses: a model of its time in clock cycles, minimised over a list of candidates.

The figures are those of the device's data sheet, not measurements: what matters is their ratio. `bench/tiles.py`
compares the choice with the best of all candidates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf

from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.program import Target, dtype_of

LATENCY = 600
"""Cycles from asking for a tile in global memory (mostly L2) to having it in shared memory."""
PROLOGUE = 1500
"""Cycles a program spends outside its loop: index arithmetic, filling the pipeline, epilogue."""
L2_BYTES = 28
"""Bytes per cycle that one multiprocessor gets out of L2 when all of them ask."""
REDUCE = 4500
"""Cycles of the second launch that split-K needs, besides its traffic."""
REGISTERS = 65536
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


# block_k counts 16-bit elements: it is halved for fp32 operands, whose tiles would otherwise need twice the memory.
TENSOR_CORE_TILES = (
    Tiles(128, 256, 64, 8, 3),
    Tiles(256, 128, 64, 8, 3),
    Tiles(128, 128, 64, 8, 3),
    Tiles(128, 128, 64, 4, 3),
    Tiles(128, 64, 64, 4, 4),
    Tiles(64, 128, 64, 4, 4),
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
def choose_tiles(m: int, n: int, k: int, batch: int, dtype: str, target: Target) -> Tiles:
    """The tiles for Y[batch, m, n] = A[batch, m, k] · B[batch, k, n] on `target`."""
    if target.interpreted:
        return _interpreter_tiles(m, n, k, dtype)
    return min(
        candidates(m, n, k, batch, dtype, target), key=lambda tiles: _cycles(tiles, m, n, k, batch, dtype, target)
    )


def candidates(m: int, n: int, k: int, batch: int, dtype: str, target: Target) -> Iterator[Tiles]:
    """All tiles that fit `target`'s shared memory, each unsplit and with K split to fill the device once or twice."""
    itemsize = dtype_of(dtype).itemsize
    for tiles in _fitting(dtype, itemsize, target):
        yield tiles
        steps, unsplit = cdiv(k, tiles.block_k), tiles.programs(m, n, batch)
        if not unsplit or m * n * batch >= 2**28:
            continue
        wanted = {per_sm * target.sm_count // unsplit for per_sm in (1, 2, 4)}
        yield from (replace(tiles, splits=s) for s in sorted(wanted) if 1 < s <= min(MAX_SPLITS, steps // 2))


@lru_cache
def _fitting(dtype: str, itemsize: int, target: Target) -> tuple[Tiles, ...]:
    """The tiles for a type, as far as `target` has the shared memory."""
    if uses_tensor_cores(dtype, target):
        scaled = (replace(tiles, block_k=tiles.block_k * 2 // itemsize) for tiles in TENSOR_CORE_TILES)
        return tuple(tiles for tiles in scaled if tiles.shared_bytes(itemsize) <= target.shared_bytes)
    return FMA_TILES if "float" in dtype else INTEGER_TILES


def _cycles(tiles: Tiles, m: int, n: int, k: int, batch: int, dtype: str, target: Target) -> float:
    """Estimated time: waves of programs, each bound by the tensor cores, by L2 or by latency."""
    programs = tiles.programs(m, n, batch)
    if not programs:
        return inf
    itemsize = dtype_of(dtype).itemsize
    resident = min(_resident(tiles, itemsize, target), cdiv(programs, target.sm_count))
    waves = cdiv(programs, target.sm_count * resident)
    multiply = tiles.block_m * tiles.block_n * tiles.block_k / _rate(tiles, dtype, target)
    load = (tiles.block_m + tiles.block_n) * tiles.block_k * itemsize / L2_BYTES
    step = max(LATENCY / (tiles.num_stages - 1), resident * max(multiply, load))
    time = waves * (PROLOGUE + cdiv(k, tiles.block_k * tiles.splits) * step)
    if tiles.splits > 1:
        traffic = (2 * tiles.splits + 1) * m * n * batch * 4
        time += REDUCE + traffic / (L2_BYTES * target.sm_count)
    return time


def _resident(tiles: Tiles, itemsize: int, target: Target) -> int:
    """Programs that one multiprocessor holds at a time: bounded by shared memory, registers and warps."""
    threads = 32 * tiles.num_warps
    registers = threads * (64 + tiles.block_m * tiles.block_n // threads)
    return max(1, min(target.shared_bytes // tiles.shared_bytes(itemsize), REGISTERS // registers, 2048 // threads))


def _rate(tiles: Tiles, dtype: str, target: Target) -> float:
    """Multiply-adds per cycle and multiprocessor, of dense tensor-core instructions where they apply."""
    if not uses_tensor_cores(dtype, target):
        return 64 if dtype == "float64" else 100 if dtype == "float32" else 32
    peak = {8: 1024, 9: 2048, 10: 4096, 12: 1024}.get(target.arch // 10, 1024) / (2 if dtype == "float32" else 1)
    # A narrow tile leaves part of each instruction's operand bandwidth unused.
    width = min(tiles.block_m, tiles.block_n)
    wide = target.arch // 10 in (9, 10) and tiles.block_m >= 64
    return peak * width / (width + 32) * (1.0 if wide or target.arch < 90 else 0.6)


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
    """One program computes block_n elements of a matrix-vector product over a `splits`-th of K."""

    block_n: int
    block_k: int
    num_warps: int
    splits: int = 1

    def programs(self, n: int, batch: int) -> int:
        return cdiv(n, self.block_n) * self.splits * batch


@lru_cache(maxsize=4096)
def choose_strip(n: int, k: int, batch: int, itemsize: int, k_contiguous: bool, target: Target) -> Strip:
    """The strip for y[batch, n] = x[batch, k] · W[batch, k, n]: memory-bound, so as many loads in flight as possible.

    Where K is contiguous a program reads a few long rows; else 32 bytes of many short ones, the least that DRAM gives.
    """
    if target.interpreted:
        return Strip(power_of_two(n, 256, least=16), power_of_two(k, 512, least=16), 4)
    block_n = 4 if k_contiguous else 32 // min(itemsize, 4)
    block_k = min(power_of_two(k, 4096, least=16), (4096 if itemsize <= 4 else 2048) // block_n)
    while cdiv(n, 2 * block_n) * batch >= 4 * target.sm_count and block_n < 64 and not k_contiguous:
        block_n, block_k = block_n * 2, max(16, block_k // 2)
    strip = Strip(block_n, block_k, 4)
    # The second launch of a split costs what reading some 64 kB per program does.
    wanted = 2 * target.sm_count // max(1, strip.programs(n, batch))
    return replace(strip, splits=max(1, min(MAX_SPLITS, wanted, k * block_n * itemsize // 2**17)))
