"""Which tiles attention uses: rows of queries per program, keys per step, and over how many programs keys are split."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.kernels.gemm_tiles import uses_tensor_cores
from gossamer.program import Target, dtype_of

MAX_HEAD_SIZE = 512
"""Beyond, not even a tile of 16 queries and 16 keys fits registers."""
PACKED_QUERIES = 32
"""Below this many queries the heads that share keys are one tile's rows: each key is read once for all of them."""
MAX_SPLITS = 32
STEPS_OF_SPLIT = 4
"""Steps over the keys that a program at least takes: fewer do not pay for filling its pipeline and for its parts."""
ROWS_OF_KEYS = 32
"""Rows of queries whose arithmetic takes as long as what a program does once per key, whatever its rows."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """One program attends with block_m rows of queries, block_n keys at a time, to a `splits`-th of the keys.

    packed: rows are those of all query heads that share a head of keys, else of one query head.
    """

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int
    packed: bool = False
    splits: int = 1

    def shared_bytes(self, block_d: int, block_v: int, itemsize: int) -> int:
        """Bytes of shared memory: the queries, and the tiles of keys and values in flight."""
        return (self.block_m * block_d + self.num_stages * self.block_n * (block_d + block_v)) * itemsize + 1024


@dataclass(frozen=True, slots=True)
class Extents:
    """The sizes that tiles depend on. block_d, block_v: head sizes rounded up to powers of two."""

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    block_d: int
    block_v: int
    causal: bool = False


def block_of(head_size: int) -> int:
    """Columns of the tile that holds a head; matrix instructions want at least 16."""
    return max(16, power_of_two(head_size, 2**16))


@lru_cache(maxsize=4096)
def choose_tiles(extents: Extents, dtype: str, target: Target) -> Tiles | None:
    """The tiles for `extents` on `target`; None where no tile of such heads fits its shared memory."""
    packed = extents.heads > extents.kv_heads and extents.queries < PACKED_QUERIES
    rows = extents.queries * (extents.heads // extents.kv_heads if packed else 1)
    stacks = extents.batch * (extents.kv_heads if packed else extents.heads)
    if target.interpreted:
        return Tiles(_block(rows, 256), _block(extents.keys, 512), 4, 1, packed)
    fitting = list(_fitting(extents, dtype, target))
    if not fitting:
        return None
    wanted = [tiles for tiles in fitting if tiles.block_m <= _block(rows, 128)] or fitting[-1:]

    def programs(tiles: Tiles) -> int:
        return max(1, cdiv(rows, tiles.block_m) * stacks)

    def time(tiles: Tiles) -> int:
        """Proportional to how long the multiprocessor takes that gets the most programs."""
        return cdiv(programs(tiles), target.sm_count) * (tiles.block_m + ROWS_OF_KEYS)

    filling = [tiles for tiles in wanted if programs(tiles) >= target.sm_count]
    tiles = replace(min(filling, key=time) if filling else wanted[-1], packed=packed)
    steps = cdiv(extents.keys, tiles.block_n)
    most = min(MAX_SPLITS, steps // STEPS_OF_SPLIT, target.sm_count // programs(tiles))
    if most > 1:
        tiles = replace(tiles, splits=cdiv(steps, cdiv(steps, most)))  # a split takes whole steps: none is left empty
    return tiles


def _fitting(extents: Extents, dtype: str, target: Target) -> Iterator[Tiles]:
    """Tiles by falling number of rows, each with as many keys and stages as shared memory and the keys allow."""
    itemsize = dtype_of(dtype).itemsize
    for tiles in _plans(extents, dtype, target):
        keys = _block(extents.keys, tiles.block_n)
        most = min(tiles.num_stages, max(1, cdiv(extents.keys, keys)))
        for block_n, stages in product((keys, max(16, keys // 2), max(16, keys // 4)), range(most, 0, -1)):
            choice = replace(tiles, block_n=block_n, num_stages=stages)
            if choice.shared_bytes(extents.block_d, extents.block_v, itemsize) <= target.shared_bytes:
                yield choice
                break


def _plans(extents: Extents, dtype: str, target: Target) -> tuple[Tiles, ...]:
    """Tiles by falling number of rows. Hopper's are those that `bench/tiles.py` found best on an H200."""
    widest, hopper = max(extents.block_d, extents.block_v), target.arch // 10 == 9
    if not uses_tensor_cores(dtype, target):  # plain multiply-adds: bounded by registers
        warps = 4 if widest <= 128 else 8
        return (Tiles(32, 32, warps, 1), Tiles(16, 32, warps, 1)) if widest <= 256 else (Tiles(16, 32, 8, 1),)
    if dtype == "float32":
        if widest <= 128:
            return Tiles(64, 64, 4, 2), Tiles(32, 64, 4, 2), Tiles(16, 64, 4, 2)
        return Tiles(32, 32, 8, 2), Tiles(16, 32, 8, 2)
    if widest <= 64:
        block_n = 32 if hopper else 64
        return Tiles(128, block_n, 4, 3), Tiles(64, block_n, 4, 3), Tiles(32, 128, 4, 2), Tiles(16, 128, 4, 3)
    if widest <= 128:
        fewer = Tiles(64, 64, 4, 3), Tiles(32, 64, 4, 3), Tiles(16, 128, 4, 3)
        if not hopper:
            return Tiles(128, 64, 8, 3), *fewer
        # 2048 queries and keys: 107 against 119 µs where causal, 82 against 73 µs where not.
        return fewer if extents.causal else (Tiles(128, 128, 8, 3), *fewer)
    if widest <= 256:
        return Tiles(64, 64, 8, 2), Tiles(32, 64, 8, 2), Tiles(16, 64, 4, 2)
    return Tiles(32, 32, 8, 2), Tiles(16, 32, 8, 2)


def _block(extent: int, most: int) -> int:
    return max(16, power_of_two(extent, most))
