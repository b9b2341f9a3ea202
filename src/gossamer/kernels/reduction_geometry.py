"""How kernels see a dense tensor of which some axes are reduced: `[kept0, reduced0, kept1, reduced1, inner]`.

With this view neither a reduction over the last axis nor one over leading or middle axes needs a transpose: threads
always run along the contiguous dimension. Reductions, arg reductions, softmax, norms and cumulative sums use it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl

from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.program import Target, dtype_of


@dataclass(frozen=True, slots=True)
class Geometry:
    """A dense tensor as `[kept0, reduced0, kept1, reduced1, inner]`.

    Where one run of axes is reduced, reduced0 and kept1 are 1.
    A row is an index into kept0 × kept1, a step one into reduced0 × reduced1.
    """

    kept0: int
    reduced0: int
    kept1: int
    reduced1: int
    inner: int

    @property
    def rows(self) -> int:
        return self.kept0 * self.kept1

    @property
    def steps(self) -> int:
        return self.reduced0 * self.reduced1

    @property
    def outputs(self) -> int:
        return self.rows * self.inner

    @property
    def wide(self) -> bool:
        """Whether offsets within a row need 64 bits."""
        return self.reduced0 * self.kept1 * self.reduced1 * self.inner >= 2**31

    def arguments(self) -> dict[str, Any]:
        """The kernel parameters that every kernel over a Geometry has."""
        return {
            "n_rows": self.rows,
            "kept1": self.kept1,
            "reduced1": self.reduced1,
            "n_inner": self.inner,
            "n_steps": self.steps,
            "NESTED": self.reduced0 > 1,
            "WIDE": self.wide,
        }


def runs_of(shape: tuple[int, ...], axes: Iterable[int]) -> list[int]:
    """Extents of the alternating runs `[kept, reduced, kept, …, kept]` of axes; axes of extent 1 belong to any run."""
    reduced = set(axes)
    runs = [1]
    for axis, extent in enumerate(shape):
        if extent == 1:
            continue
        if (axis in reduced) == (len(runs) % 2 == 0):
            runs[-1] *= extent
        else:
            runs.append(extent)
    return runs if len(runs) % 2 else [*runs, 1]


def geometry_of(runs: list[int]) -> Geometry | None:
    """The view that reduces the given runs in one pass, or None where more than two are reduced."""
    match runs:
        case [kept]:
            return Geometry(kept, 1, 1, 1, 1)
        case [kept, reduced, inner]:
            return Geometry(kept, 1, 1, reduced, inner)
        case [kept0, reduced0, kept1, reduced1, inner]:
            return Geometry(kept0, reduced0, kept1, reduced1, inner)
    return None


@dataclass(frozen=True, slots=True)
class Tile:
    """What one program takes at a time: BLOCK_ROWS × BLOCK_STEPS × BLOCK_INNER elements, powers of two.

    unroll: how many tiles, one after another along the steps, are loaded before the first is used.
    """

    rows: int
    steps: int
    inner: int
    unroll: int = 1

    @property
    def elements(self) -> int:
        return self.rows * self.steps * self.inner

    def programs(self, geometry: Geometry) -> int:
        return cdiv(geometry.rows, self.rows) * cdiv(geometry.inner, self.inner)

    def constants(self) -> dict[str, Any]:
        return {"BLOCK_ROWS": self.rows, "BLOCK_STEPS": self.steps, "BLOCK_INNER": self.inner}


def tile_for(
    geometry: Geometry, itemsize: int, target: Target, *, elements: int = 4096, whole_row: bool = False
) -> Tile:
    """The tile for a geometry: 128 bytes along the contiguous dimension, then steps, then rows; at most `elements`.

    whole_row: a tile spans every step, however many. Tiles shrink while there are fewer than two per multiprocessor.
    """
    if target.interpreted:
        elements = max(elements, 2**16)
    inner = min(power_of_two(geometry.inner), 1024 if target.interpreted else 128 // itemsize)
    all_steps = power_of_two(geometry.steps)
    if whole_row:
        inner = max(min(inner, elements // all_steps), 1)
    steps = all_steps if whole_row else min(all_steps, max(elements // inner, 1))
    tile = Tile(min(power_of_two(geometry.rows), max(elements // (steps * inner), 1)), steps, inner)
    least_inner = min(inner, max(32 // itemsize, 1))  # one sector of DRAM
    while not target.interpreted and tile.programs(geometry) < 2 * target.sm_count:
        if tile.rows > 1 and tile.elements > 128:
            tile = Tile(tile.rows // 2, tile.steps, tile.inner)
        elif tile.inner > least_inner and tile.elements > 128:
            tile = Tile(tile.rows, tile.steps, tile.inner // 2)
        else:
            break
    return tile


THREADS = 128
"""Threads of a program that streams. With 16 bytes each, four tiles at a time, eight programs fill a multiprocessor."""
STREAMS = 8
"""Such programs per multiprocessor."""


def streaming_tile(geometry: Geometry, itemsize: int, target: Target) -> Tile:
    """The tile of a program that reads its rows once and keeps one result per lane.

    A thread loads 16 bytes at a time, or single elements where rows have no such alignment. Lanes run along at least
    256 contiguous bytes, farther where programs are enough. What threads are left go to steps as far as there are
    `unroll` tiles of them, then to rows: results are then combined in few rounds between lanes. Without steps to split,
    programs narrow to fill the machine.
    """
    if target.interpreted:
        return tile_for(geometry, itemsize, target)
    contiguous = geometry.steps if geometry.inner == 1 else geometry.inner
    vector = 16 // itemsize if contiguous * itemsize % 16 == 0 else 1
    lanes, unroll = THREADS * (vector if vector > 1 else 4), 4 if vector > 1 else 8
    all_rows, all_steps = power_of_two(geometry.rows), power_of_two(geometry.steps)

    def of_width(inner: int) -> Tile:
        most = lanes // inner
        steps = min(all_steps, most) if inner > 1 else min(max(all_steps // unroll, 8), all_steps, most)
        in_flight = min(unroll, cdiv(all_steps, steps))
        rows = max(1, min(all_rows, lanes // (steps * inner) * (unroll // in_flight)))
        return Tile(rows, steps, inner, in_flight)

    tile = of_width(min(power_of_two(geometry.inner), lanes))
    while tile.inner * itemsize > 256 and tile.programs(geometry) < STREAMS * target.sm_count:
        tile = of_width(tile.inner // 2)
    while tile.programs(geometry) < STREAMS // 2 * target.sm_count and geometry.steps < 8 * tile.steps * tile.unroll:
        if tile.rows > 1 and tile.elements > 32:
            tile = Tile(tile.rows // 2, tile.steps, tile.inner, tile.unroll)
        elif tile.inner * itemsize > 32:
            tile = of_width(tile.inner // 2)
        else:
            break
    return tile


def streaming_warps(tile: Tile) -> int:
    """Warps for a `streaming_tile`, no more than have four elements for each thread."""
    return max(1, min(THREADS // 32, tile.elements // 128))


def part_tile(geometry: Geometry, itemsize: int, target: Target) -> Tile:
    """The tile that is one part of the steps: 128 bytes along the contiguous dimension, then steps, then rows.

    8192 elements, or fewer where there would be too few parts for the machine.
    """
    inner = min(power_of_two(geometry.inner), 1024 if target.interpreted else 128 // itemsize)

    def of_size(elements: int) -> Tile:
        steps = min(power_of_two(geometry.steps), elements // inner)
        return Tile(min(power_of_two(geometry.rows), elements // (steps * inner)), steps, inner)

    if target.interpreted:
        return of_size(2**16)
    sizes = (of_size(elements) for elements in (8192, 4096, 2048))
    enough = STREAMS // 2 * target.sm_count
    return next((t for t in sizes if t.programs(geometry) * cdiv(geometry.steps, t.steps) >= enough), of_size(2048))


RESIDENT = 16384
"""Elements a program keeps in registers: 32 fp32 values for each of 512 threads."""


def resident_tile(geometry: Geometry, itemsize: int, target: Target, *, tensors: int = 1) -> Tile | None:
    """A tile that holds every step of its rows in registers. tensors: how many of x's shape are read.

    None where they do not fit, or where too few programs would do all the work.
    """
    steps = power_of_two(geometry.steps)
    least = steps * min(power_of_two(geometry.inner), max(32 // itemsize, 1))
    if least > RESIDENT or (steps > 4096 and geometry.outputs < target.sm_count // 4):
        return None
    # No warp waits for another where one has enough to load.
    one_warp = geometry.inner == 1 and least <= 1024 and least * itemsize * tensors >= 4096
    return tile_for(geometry, itemsize, target, elements=least if one_warp else max(2048, least), whole_row=True)


CACHED_ROW = 2**18
"""Bytes of a row that its program may read twice: one for each multiprocessor stay in a cache of 40 MB."""


def cached_rows(geometry: Geometry, itemsize: int, target: Target) -> tuple[Tile, int] | None:
    """The tile and warps of a program that reads its one row twice, the second time from cache.

    None where rows are not contiguous, too long, or too few for the machine. Longer rows get more warps, so that fewer
    are in the cache at a time.
    """
    nbytes = geometry.steps * itemsize
    contiguous = geometry.inner == 1 and geometry.reduced0 == 1
    if not contiguous or nbytes > CACHED_ROW or geometry.rows < target.sm_count:
        return None
    num_warps = 8 if nbytes <= 2**16 else 16 if nbytes <= 2**17 else 32
    steps = 2**16 if target.interpreted else num_warps * 32 * 16 // itemsize
    return Tile(1, min(power_of_two(geometry.steps), steps), 1, 1 if target.interpreted else 4), num_warps


def vector_of(n_steps: int, itemsize: int) -> int:
    """VECTOR of `edge_steps` for rows of n_steps contiguous elements: 1 where each is made of whole vectors."""
    return 1 if n_steps * itemsize % 16 == 0 else 16 // itemsize


def warps_for(elements: int, programs: int, target: Target, *, most: int = 8) -> int:
    """Warps for a tile: 32 elements, four 16-byte loads of a half type, per thread.

    Only 8 where programs are too few to hide each other's latency.
    """
    per_warp = 1024 if programs >= 4 * target.sm_count else 256
    return max(1, min(most, power_of_two(elements) // per_warp))


def splits_for(geometry: Geometry, tile: Tile, target: Target) -> int:
    """Into how many parts to cut the steps so that few rows fill the machine; 1 where a second pass costs more."""
    blocks = cdiv(geometry.steps, tile.steps * tile.unroll)
    programs = tile.programs(geometry)
    if blocks < 8 or programs == 0 or programs >= 3 * target.sm_count:
        return 1
    return max(1, min(blocks // 2, STREAMS * target.sm_count // programs, 1024))


def float_accumulator(dtype: str) -> str:
    """What sums of a float dtype are kept in."""
    return "float64" if dtype == "float64" else "float32"


def accumulator_of(dtype: str) -> str:
    """What sums of a dtype are kept in: integers stay exact (modulo 2^64)."""
    if dtype_of(dtype).kind not in "biu":
        return float_accumulator(dtype)
    return "uint64" if dtype == "uint64" else "int64"


@triton.jit
def row_offsets(row, kept1, reduced1, n_inner, n_steps, NESTED: tl.constexpr):
    """Offset of a row's first element; `row` is int64, and every product starts from it."""
    if NESTED:
        return (row // kept1) * n_steps * kept1 * n_inner + (row % kept1) * reduced1 * n_inner
    else:
        return row * n_steps * n_inner


@triton.jit
def step_offsets(step, kept1, reduced1, n_inner, NESTED: tl.constexpr, WIDE: tl.constexpr):
    """Offset of a step from its row's first element."""
    if WIDE:
        step = step.to(tl.int64)
    if NESTED:
        return (step // reduced1) * kept1 * reduced1 * n_inner + (step % reduced1) * n_inner
    else:
        return step * n_inner


@triton.jit
def edge_steps(row_start, n_steps, VECTOR: tl.constexpr):
    """What vectors of 16 bytes leave of a contiguous row that begins at offset row_start: the steps before and behind
    them, in 2 · VECTOR lanes; which lanes have one; where the vectors begin, and how many steps they have."""
    lane = tl.arange(0, 2 * VECTOR)[None, :, None]
    head = ((VECTOR - row_start % VECTOR) % VECTOR).to(tl.int32)
    body = (n_steps - head) // VECTOR * VECTOR
    step = tl.where(lane < VECTOR, lane, head + body + lane - VECTOR)
    return step, tl.where(lane < VECTOR, lane < head, step < n_steps), head, body


@triton.jit
def part_bounds(part, chunk, n_steps, WIDE: tl.constexpr):
    """The first step of a part of `chunk` steps, and where it ends."""
    begin = part.to(tl.int64) * chunk if WIDE else part * chunk
    return begin, tl.minimum(begin + chunk, n_steps)


@triton.jit
def as_type(x, TYPE: tl.constexpr):
    """x as the type of that name."""
    if TYPE == "float32":
        return x.to(tl.float32)
    elif TYPE == "float64":
        return x.to(tl.float64)
    elif TYPE == "int32":
        return x.to(tl.int32)
    elif TYPE == "int64":
        return x.to(tl.int64)
    else:
        tl.static_assert(TYPE == "uint64")
        return x.to(tl.uint64)
