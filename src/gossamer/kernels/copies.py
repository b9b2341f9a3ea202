"""Copies between strided regions: what Transpose, Slice, Expand, Tile, Concat, Split … come down to.

Data movement does not look at values, so kernels move machine words (`as_words`): one kernel serves all dtypes of one
size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

import triton
import triton.language as tl

from gossamer.kernels.division import Divisor, divide_by, divisor_of
from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.kernels.launch import Address, launch
from gossamer.program import Buffer, Call, Copy, Launch, Refusal, Target, View

WORDS = {1: "int8", 2: "int16", 4: "int32", 8: "int64"}
WIDE_EXTENT = 2**31 - 2**20
"""From this many elements on indices are 64-bit. The slack is for the last tile, which may reach past the end."""


@triton.jit
def offset_along(index, walk):
    """Σ_d coordinate_d · strides[d] for the coordinates of row-major `index` in shape; walk = (shape, strides)."""
    offset = index * 0
    rest = index
    for d in tl.static_range(len(walk[0]) - 1):
        offset += rest % walk[0][len(walk[0]) - 1 - d] * walk[1][len(walk[0]) - 1 - d]
        rest = rest // walk[0][len(walk[0]) - 1 - d]
    return offset + rest * walk[1][0]


@triton.jit
def offset_of_rows(index, walk, WIDE: tl.constexpr):
    """`offset_along`, quicker where nothing need be known to be contiguous; the shape consists of divisors."""
    offset = index * 0
    rest = index
    for d in tl.static_range(len(walk[0]) - 1, 0, -1):
        quotient = divide_by(rest, walk[0][d], WIDE)
        offset += (rest - quotient * walk[0][d][0]) * walk[1][d]
        rest = quotient
    return offset + rest * walk[1][0]


@triton.jit
def tile_of(program, n_cols, LINES: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, WIDE: tl.constexpr):
    """The first of LINES times ROWS rows [ROWS, 1], and the columns [1, COLS], of a program."""
    if WIDE:
        program = program.to(tl.int64)
    tiles = tl.cdiv(n_cols, COLS)
    row = (program // tiles * (ROWS * LINES) + tl.arange(0, ROWS))[:, None]
    return row, (program % tiles * COLS + tl.arange(0, COLS))[None, :]


@triton.jit
def copy_strided_kernel(
    x_ptr,
    y_ptr,
    x_rows,
    x_cols,
    y_rows,
    y_cols,
    n_rows,
    n_cols,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    TURN: tl.constexpr,
    WIDE: tl.constexpr,
):
    """y[r along y_rows + c along y_cols] = x[r along x_rows + c along x_cols] for r < n_rows, c < n_cols.

    TURN: x is contiguous along rows, y along columns: the tile is loaded with rows as its fastest axis and turned in
    shared memory.
    """
    pid = tl.program_id(0)
    if WIDE:
        pid = pid.to(tl.int64)
    col_tiles = tl.cdiv(n_cols, COLS)
    rows = pid // col_tiles * ROWS + tl.arange(0, ROWS)
    cols = pid % col_tiles * COLS + tl.arange(0, COLS)
    x_row, x_col = offset_of_rows(rows, x_rows, WIDE or TURN), offset_along(cols, x_cols)
    mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    if TURN:
        turned_mask = (cols < n_cols)[:, None] & (rows < n_rows)[None, :]
        values = tl.trans(tl.load(x_ptr + x_col[:, None] + x_row[None, :], mask=turned_mask))
    else:
        values = tl.load(x_ptr + x_row[:, None] + x_col[None, :], mask=mask)
    y_row, y_col = offset_of_rows(rows, y_rows, WIDE), offset_along(cols, y_cols)
    tl.store(y_ptr + y_row[:, None] + y_col[None, :], values, mask=mask)


@triton.jit
def interleave_kernel(
    x_ptr, y_ptr, x_rows, y_rows, stride, n_rows, n_pixels,
    PLANES: tl.constexpr, APART: tl.constexpr, ROWS: tl.constexpr, PIXELS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """y[r, i · PLANES + p] = x[r, p, i], or (APART) y[r, p, i] = x[r, i · PLANES + p]. stride: of p where it is apart.

    Both sides are moved in the order of their memory; between, the tile is turned in shared memory.
    """
    pid = tl.program_id(0)
    if WIDE:
        pid = pid.to(tl.int64)
    tiles = tl.cdiv(n_pixels, PIXELS)
    rows = pid // tiles * ROWS + tl.arange(0, ROWS)
    first = pid % tiles * PIXELS
    pixels = first + tl.arange(0, PIXELS)
    places = first * PLANES + tl.arange(0, PIXELS * PLANES)
    x_row, y_row = offset_of_rows(rows, x_rows, WIDE), offset_of_rows(rows, y_rows, WIDE)
    planes = tl.arange(0, PLANES) * stride
    apart = planes[None, :, None] + pixels[None, None, :]
    apart_mask = (rows < n_rows)[:, None, None] & (pixels < n_pixels)[None, None, :]
    joined_mask = (rows < n_rows)[:, None] & (places < n_pixels * PLANES)[None, :]
    if APART:
        values = tl.load(x_ptr + x_row[:, None] + places[None, :], mask=joined_mask)
        values = tl.permute(tl.reshape(values, (ROWS, PIXELS, PLANES)), (0, 2, 1))
        tl.store(y_ptr + y_row[:, None, None] + apart, values, mask=apart_mask)
    else:
        values = tl.load(x_ptr + x_row[:, None, None] + apart, mask=apart_mask)
        values = tl.reshape(tl.permute(values, (0, 2, 1)), (ROWS, PIXELS * PLANES))
        tl.store(y_ptr + y_row[:, None] + places[None, :], values, mask=joined_mask)


@triton.jit
def copy_segments_kernel(
    x_ptrs,
    y_ptrs,
    x_row_strides,
    y_row_strides,
    widths,
    n_rows,
    n_col_tiles,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    WIDE: tl.constexpr,
):
    """y_k[r, c] = x_k[r, c] for every segment k, r < n_rows and c < widths[k]: Concat and Split in one launch."""
    pid = tl.program_id(0)
    if WIDE:
        pid = pid.to(tl.int64)
    rows = pid // n_col_tiles * ROWS + tl.arange(0, ROWS)
    tile = pid % n_col_tiles  # counted over the columns of all segments
    for k in tl.static_range(len(widths)):
        tiles = tl.cdiv(widths[k], COLS)
        if (tile >= 0) & (tile < tiles):
            cols = tile * COLS + tl.arange(0, COLS)
            mask = (rows < n_rows)[:, None] & (cols < widths[k])[None, :]
            values = tl.load(x_ptrs[k] + (rows * x_row_strides[k])[:, None] + cols[None, :], mask=mask)
            tl.store(y_ptrs[k] + (rows * y_row_strides[k])[:, None] + cols[None, :], values, mask=mask)
        tile -= tiles


@dataclass(frozen=True, slots=True)
class Strided:
    """A region of a buffer: its first element and, for each axis of a shape given elsewhere, a stride in elements."""

    buffer: Buffer
    strides: tuple[int, ...]
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a copy, with the strides in elements of source (x) and destination (y)."""

    extent: int
    x: int
    y: int


def movable(*buffers: Buffer) -> Refusal | None:
    """Why kernels cannot move these buffers' elements, or None where they can."""
    for buffer in buffers:
        if buffer.itemsize not in WORDS:
            return Refusal(f"elements of {buffer.itemsize} bytes ({buffer.dtype}) have no kernels")
    return None


def as_words(buffer: Buffer) -> Buffer:
    """The same memory as signed integers of the elements' size."""
    return replace(buffer, dtype=WORDS[buffer.itemsize])


def copy_strided(shape: Sequence[int], x: Strided, y: Strided, target: Target) -> tuple[Call, ...]:
    """y[i] = x[i] for every index i of `shape`: a View where y is all of its buffer and lies in x as it is, a Copy
    where both are contiguous, else a launch. x and y have equal element sizes, not necessarily equal dtypes."""
    axes = collapse(shape, x.strides, y.strides)
    if not axes or (len(axes) == 1 and axes[0].x == axes[0].y == 1 and axes[0].extent):
        return (_contiguous(math.prod(shape), x, y),)
    wide = is_wide(x.buffer.size, y.buffer.size, math.prod(shape))
    if (interleaved := _interleaved(axes)) is not None:
        return (_launch_interleaved(interleaved, x, y, wide, target),)
    rows, cols = split_axes(axes)
    n_rows, n_cols = _size(rows), _size(cols)
    turn = _fastest(axes) is rows[-1] and rows[-1].extent >= SHORT
    block_rows, block_cols = choose_tile(n_rows, n_cols, x.buffer.itemsize, turn, target)
    return (
        launch(
            copy_strided_kernel,
            (cdiv(n_rows, block_rows) * cdiv(n_cols, block_cols),),
            writes=y.buffer,
            x_ptr=Address(as_words(x.buffer), x.offset),
            y_ptr=Address(as_words(y.buffer), y.offset),
            x_rows=with_divisors(walk([(axis.extent, axis.x) for axis in rows]), wide),
            x_cols=walk([(axis.extent, axis.x) for axis in cols]),
            y_rows=with_divisors(walk([(axis.extent, axis.y) for axis in rows]), wide),
            y_cols=walk([(axis.extent, axis.y) for axis in cols]),
            n_rows=n_rows,
            n_cols=n_cols,
            ROWS=block_rows,
            COLS=block_cols,
            TURN=turn,
            WIDE=wide,
        ),
    )


SHORT = 16
"""Where x is contiguous for less than this, it is read in whatever order suits y: the L1 cache joins the reads."""


@dataclass(frozen=True, slots=True)
class Interleaved:
    """A copy between PLANES that lie `stride` elements apart and the same with their elements taking turns.

    apart: y has the planes. rows: the other axes.
    """

    planes: int
    pixels: int
    stride: int
    apart: bool
    rows: list[Axis]


def _interleaved(axes: Sequence[Axis]) -> Interleaved | None:
    """The copy as one that interleaves two to eight planes, or sets them apart again, if it is one."""
    by_stride = {"x": {axis.x: axis for axis in axes}, "y": {axis.y: axis for axis in axes}}
    for joined, apart in (("y", "x"), ("x", "y")):
        plane, pixel = by_stride[joined].get(1), by_stride[apart].get(1)
        if plane is None or pixel is None or plane is pixel or plane.extent not in (2, 4, 8) or pixel.extent < SHORT:
            continue
        if getattr(pixel, joined) == plane.extent and getattr(plane, apart) > 0:
            rows = [axis for axis in axes if axis is not plane and axis is not pixel] or [Axis(1, 0, 0)]
            return Interleaved(plane.extent, pixel.extent, getattr(plane, apart), joined == "x", rows)
    return None


def _launch_interleaved(copy: Interleaved, x: Strided, y: Strided, wide: bool, target: Target) -> Launch:
    n_rows = _size(copy.rows)
    rows, places = choose_tile(n_rows, copy.pixels * copy.planes, x.buffer.itemsize, False, target)
    pixels = max(1, places // copy.planes)
    return launch(
        interleave_kernel,
        (cdiv(n_rows, rows) * cdiv(copy.pixels, pixels),),
        writes=y.buffer,
        x_ptr=Address(as_words(x.buffer), x.offset),
        y_ptr=Address(as_words(y.buffer), y.offset),
        x_rows=with_divisors(walk([(axis.extent, axis.x) for axis in copy.rows]), wide),
        y_rows=with_divisors(walk([(axis.extent, axis.y) for axis in copy.rows]), wide),
        stride=copy.stride,
        n_rows=n_rows,
        n_pixels=copy.pixels,
        PLANES=copy.planes,
        APART=copy.apart,
        ROWS=rows,
        PIXELS=pixels,
        WIDE=wide,
    )


Walk: TypeAlias = "tuple[tuple[int, ...], tuple[int, ...]]"


def with_divisors(walk: Walk, wide: bool) -> tuple[tuple[Divisor, ...], tuple[int, ...]]:
    """As `offset_of_rows` takes it."""
    return tuple(divisor_of(extent, wide) for extent in walk[0]), walk[1]


def walk(axes: Sequence[tuple[int, int]]) -> Walk:
    """(extent, stride) pairs as the shape and strides of `offset_along`, neighbours that step alike joined: each axis
    beyond the first costs two divisions, and hides from the compiler that addresses are contiguous."""
    joined: list[tuple[int, int]] = []
    for extent, stride in axes:
        if joined and joined[-1][1] == extent * stride:
            joined[-1] = (joined[-1][0] * extent, stride)
        else:
            joined.append((extent, stride))
    return tuple(extent for extent, _ in joined), tuple(stride for _, stride in joined)


def copy_segments(n_rows: int, segments: Sequence[tuple[Strided, Strided, int]], target: Target) -> tuple[Call, ...]:
    """For every (x, y, width): `n_rows` rows of `width` contiguous elements from x to y, whose stride is the rows'."""
    calls: list[Call] = []
    for first in range(0, len(segments), MAX_SEGMENTS):
        part = segments[first : first + MAX_SEGMENTS]
        if len(part) == 1:
            ((x, y, width),) = part
            calls += copy_strided((n_rows, width), _with_columns(x), _with_columns(y), target)
        else:
            calls.append(_launch_segments(n_rows, part, target))
    return tuple(calls)


def _with_columns(rows: Strided) -> Strided:
    return replace(rows, strides=(*rows.strides, 1))


MAX_SEGMENTS = 8
"""Segments per launch: each adds a branch and four arguments to the kernel."""


def _launch_segments(n_rows: int, segments: Sequence[tuple[Strided, Strided, int]], target: Target) -> Launch:
    widths = tuple(width for _, _, width in segments)
    itemsize = segments[0][0].buffer.itemsize
    block_rows, block_cols = choose_tile(n_rows, max(widths), itemsize, False, target)
    n_col_tiles = sum(cdiv(width, block_cols) for width in widths)
    buffers = [strided.buffer for x, y, _ in segments for strided in (x, y)]
    return launch(
        copy_segments_kernel,
        (cdiv(n_rows, block_rows) * n_col_tiles,),
        writes=dict.fromkeys(y.buffer for _, y, _ in segments),
        x_ptrs=tuple(Address(as_words(x.buffer), x.offset) for x, _, _ in segments),
        y_ptrs=tuple(Address(as_words(y.buffer), y.offset) for _, y, _ in segments),
        x_row_strides=tuple(x.strides[0] for x, _, _ in segments),
        y_row_strides=tuple(y.strides[0] for _, y, _ in segments),
        widths=widths,
        n_rows=n_rows,
        n_col_tiles=n_col_tiles,
        ROWS=block_rows,
        COLS=block_cols,
        WIDE=is_wide(*(buffer.size for buffer in buffers)),
    )


def _contiguous(size: int, x: Strided, y: Strided) -> Call:
    itemsize = x.buffer.itemsize
    if size == y.buffer.size and x.offset * itemsize % 16 == 0:
        return View(x.buffer.name, y.buffer.name, x.offset * itemsize)
    return Copy(x.buffer.name, y.buffer.name, size * itemsize, x.offset * itemsize, y.offset * itemsize)


def collapse(shape: Sequence[int], x_strides: Sequence[int], y_strides: Sequence[int]) -> list[Axis]:
    """The fewest axes that visit the same pairs of elements, the one along which y is most contiguous last."""
    axes: list[Axis] = []
    present = (Axis(*axis) for axis in zip(shape, x_strides, y_strides, strict=True) if axis[0] != 1)
    for axis in sorted(present, key=lambda axis: -abs(axis.y)):
        outer = axes[-1] if axes else None
        if outer and (outer.x, outer.y) == (axis.x * axis.extent, axis.y * axis.extent):
            axes[-1] = Axis(outer.extent * axis.extent, axis.x, axis.y)
        else:
            axes.append(axis)
    return axes


def split_axes(axes: Sequence[Axis]) -> tuple[list[Axis], list[Axis]]:
    """Rows and columns of the tiles: y is contiguous along columns; x along them too or, in a transpose, along rows.

    Short inner axes are joined into longer columns, so that tiles are not mostly mask. In a transpose that happens only
    where the inner axis is of 1 to 3 elements: turning the tile pays from four on.
    """
    rows, cols = list(axes[:-1]), [axes[-1]]
    fastest = _fastest(axes)
    while rows and _size(cols) < (4 if rows[-1] is fastest else 32):
        cols.insert(0, rows.pop())
    if fastest in rows:
        rows.remove(fastest)
        rows.append(fastest)
    return rows or [Axis(1, 0, 0)], cols


def _fastest(axes: Sequence[Axis]) -> Axis:
    """The axis along which x is most contiguous."""
    return min((axis for axis in axes if axis.x), key=lambda axis: abs(axis.x), default=axes[-1])


@lru_cache(maxsize=4096)
def choose_tile(n_rows: int, n_cols: int, itemsize: int, turn: bool, target: Target) -> tuple[int, int]:
    """Rows and columns of one program's tile: 32 to 64 bytes per thread of four warps, less where that leaves
    multiprocessors without work. turn: the tile is transposed in shared memory, and wants to be square."""
    if target.interpreted:
        cols = power_of_two(n_cols, 2**16)
        return power_of_two(n_rows, 2**18 // cols), cols
    elements = min(4096, 8192 // itemsize)
    while elements > 512 and cdiv(n_rows * n_cols, elements) < 2 * target.sm_count:
        elements //= 2
    if turn:
        side = 64 if elements >= 2048 else 32
        rows = power_of_two(n_rows, side)
        cols = power_of_two(n_cols, elements // rows)
        return power_of_two(n_rows, elements // cols), cols
    cols = filled_block(n_cols, min(elements, 1024))
    return power_of_two(n_rows, elements // cols), cols


@dataclass(frozen=True, slots=True)
class Lines:
    """A tile of rows × cols, and how many of those a program makes, one below the other: see `tile_of`."""

    lines: int
    rows: int
    cols: int
    num_warps: int


def choose_lines(
    n_rows: int, n_cols: int, target: Target, *, lines: int = 8, per_thread: int = 4, warps: int = 2
) -> Lines:
    """Tiles of `per_thread` elements of each thread, so that what is computed for a row serves several elements, and up
    to `lines` of them, so that what is computed for a column does."""
    if target.interpreted:
        return Lines(1, *choose_tile(n_rows, n_cols, 8, False, target), 4)
    cols = filled_block(n_cols, 32 * warps * per_thread)
    rows = power_of_two(n_rows, 32 * warps * per_thread // cols)
    while lines > 1 and cdiv(n_rows, rows * lines) * cdiv(n_cols, cols) < 4 * target.sm_count:
        lines //= 2
    return Lines(lines, rows, cols, min(warps, max(1, rows * cols // (32 * per_thread))))


def filled_block(extent: int, most: int) -> int:
    """The largest power of two up to `most` whose blocks `extent` fills to three quarters, else the best filled one."""
    largest = power_of_two(extent, most)
    blocks = [largest >> k for k in range(largest.bit_length()) if largest >> k >= min(32, largest)]
    filled = {block: extent / max(1, cdiv(extent, block) * block) for block in blocks}
    return max(filled, key=lambda block: (min(filled[block], 0.75), block))


def is_wide(*sizes: int) -> bool:
    """Whether indices into that many elements need 64 bits."""
    return max(sizes) >= WIDE_EXTENT


def _size(axes: Iterable[Axis]) -> int:
    return math.prod(axis.extent for axis in axes)
