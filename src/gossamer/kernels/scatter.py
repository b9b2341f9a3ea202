"""Scatter in all its forms: x with some elements replaced by, or combined with, updates.

An index outside of its axis is an error in ONNX that a GPU cannot raise: here it does nothing.

Reductions are atomic operations, one per update, so time grows with the updates alone. Integers, and max and min of any
type, come out the same in whatever order the hardware takes them. Sums and products of floating-point numbers may
differ in rounding from run to run; where SessionOptions ask for deterministic results, `scatter_in_order` makes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import triton
import triton.language as tl

from gossamer.kernels.copies import as_words, choose_tile, is_wide, movable, offset_of_rows
from gossamer.kernels.extents import cdiv
from gossamer.kernels.indexing import FLAT_BLOCK, other_axes, place_of, place_of_tuple
from gossamer.kernels.launch import launch
from gossamer.kernels.registry import Lowered, lowers
from gossamer.kernels.scatter_in_order import Columns, scatter_in_order
from gossamer.model.node import Node
from gossamer.program import Buffer, Call, Copy, Launch, Refusal, Target

FLOATS = ("float16", "bfloat16", "float32", "float64")
REDUCTIONS = ("none", "add", "mul", "max", "min")
ACCUMULATORS = {
    **dict.fromkeys(("float16", "bfloat16"), "float32"),
    **dict.fromkeys(("bool", "int8", "uint8", "int16", "uint16"), "int32"),
}
"""dtype → the wider one in which it is reduced: floats for precision, integers because atomics start at 32 bits."""


@triton.jit
def winning(values, REDUCTION: tl.constexpr):
    """values, NaN in the form that atomic max and min keep: they compare bits as integers, where a NaN without sign is
    above everything and one with sign below everything."""
    if values.dtype.is_floating() and (REDUCTION == "max" or REDUCTION == "min"):
        if values.dtype.primitive_bitwidth == 64:
            bits = tl.full(values.shape, 2**63 - 1 if REDUCTION == "max" else -1, tl.int64)
        else:
            bits = tl.full(values.shape, 2**31 - 1 if REDUCTION == "max" else -1, tl.int32)
        values = tl.where(values != values, bits.to(values.dtype, bitcast=True), values)  # noqa: PLR0124  # where it is NaN
    return values


@triton.jit
def multiply_atomically(base_ptr, offsets, factors, mask):
    """base[offset] = base[offset] · factor where mask: compare and swap until nobody came between, since PTX has no
    atomic product. Who has nothing to do swaps a word for itself."""
    words = tl.int64 if factors.dtype.primitive_bitwidth == 64 else tl.int32
    targets = base_ptr.to(tl.pointer_type(words)) + tl.where(mask, offsets, 0)
    old = tl.load(targets)
    pending = mask
    while tl.max(pending.to(tl.int32), axis=None) > 0:
        product = (old.to(factors.dtype, bitcast=True) * factors).to(words, bitcast=True)
        seen = tl.atomic_cas(targets, old, tl.where(pending, product, old), sem="relaxed")
        pending = pending & (seen != old)
        old = seen


@triton.jit
def put(base_ptr, offsets, values, mask, REDUCTION: tl.constexpr):
    """base[offset] = value, or base[offset] ∘ value, where mask. Offsets may repeat."""
    if REDUCTION == "none":
        tl.store(base_ptr + offsets, values, mask=mask)
    else:
        values = values.to(base_ptr.dtype.element_ty)
        if REDUCTION == "add":
            tl.atomic_add(base_ptr + offsets, values, mask=mask, sem="relaxed")
        elif REDUCTION == "mul":
            multiply_atomically(base_ptr, offsets, values, mask)
        elif REDUCTION == "max":
            tl.atomic_max(base_ptr + offsets, winning(values, "max"), mask=mask, sem="relaxed")
        else:
            tl.static_assert(REDUCTION == "min")
            tl.atomic_min(base_ptr + offsets, winning(values, "min"), mask=mask, sem="relaxed")


@triton.jit
def scatter_elements_kernel(
    update_ptr,
    index_ptr,
    y_ptr,
    others,
    axis_stride,
    extent,
    size,
    BLOCK: tl.constexpr,
    WIDE: tl.constexpr,
    REDUCTION: tl.constexpr,
):
    """y[i with index[i] as its coordinate on the axis] ∘= update[i]; others: how y steps along index's other axes."""
    pid = tl.program_id(0)
    if WIDE:
        pid = pid.to(tl.int64)
    at = pid * BLOCK + tl.arange(0, BLOCK)
    mask = at < size
    place, inside = place_of(tl.load(index_ptr + at, mask=mask, other=0), extent)
    values = tl.load(update_ptr + at, mask=mask)
    put(y_ptr, offset_of_rows(at, others, WIDE) + place * axis_stride, values, mask & inside, REDUCTION)


@triton.jit
def scatter_nd_kernel(
    update_ptr,
    index_ptr,
    y_ptr,
    extents,
    strides,
    n_rows,
    inner,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    REDUCTION: tl.constexpr,
):
    """y[index[r, 0], index[r, 1], …, c] ∘= update[r, c]."""
    pid = tl.program_id(0).to(tl.int64)
    col_tiles = tl.cdiv(inner, COLS)
    rows = pid // col_tiles * ROWS + tl.arange(0, ROWS)
    cols = pid % col_tiles * COLS + tl.arange(0, COLS)
    row_mask, col_mask = rows < n_rows, cols < inner
    place, inside = place_of_tuple(index_ptr + rows * len(extents), extents, strides, row_mask)
    mask = inside[:, None] & col_mask[None, :]
    values = tl.load(update_ptr + (rows * inner)[:, None] + cols[None, :], mask=mask)
    put(y_ptr, place[:, None] + cols[None, :], values, mask, REDUCTION)


@triton.jit
def convert_kernel(
    x_ptr, y_ptr, size, BLOCK: tl.constexpr, WIDE: tl.constexpr, REDUCTION: tl.constexpr
):  # fmt: skip
    """y[i] = x[i] in y's type, with NaN as REDUCTION needs it."""
    pid = tl.program_id(0)
    if WIDE:
        pid = pid.to(tl.int64)
    at = pid * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x_ptr + at, mask=at < size).to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + at, winning(values, REDUCTION), mask=at < size)


@lowers("Scatter", "ScatterElements")
def lower_scatter_elements(node: Node, target: Target) -> Lowered:
    """x with updates[i] at (or reduced into) i with indices[i] as its coordinate on the axis.

    ONNX Scatter 9, ScatterElements 11, reductions since 16 (add, mul) and 18 (max, min). Without reduction ONNX forbids
    that two updates meet; where they do, which one stays is not defined.
    """
    x, y, indices, updates = node.x, node.y, node.inputs[1], node.inputs[2]
    assert indices is not None
    assert updates is not None
    reduction: str = node.attribute("reduction", "none")
    if refusal := _unsupported(x, reduction):
        return refusal
    axis = node.attribute("axis", 0) % x.rank
    if _order_matters(x, reduction, target):
        columns = _columns_of_axis(x, indices, updates, axis)
        return (scatter_in_order(x, indices, updates, y, columns, reduction, target),)
    block, wide = 2**18 if target.interpreted else FLAT_BLOCK, is_wide(x.size, updates.size)

    def scatter(source: Buffer, destination: Buffer, how: str) -> Launch:
        return launch(
            scatter_elements_kernel,
            (cdiv(updates.size, block),),
            writes=destination,
            update_ptr=source,
            index_ptr=indices,
            y_ptr=destination,
            others=other_axes(x, indices, axis, wide),
            axis_stride=x.strides[axis],
            extent=x.shape[axis],
            size=updates.size,
            BLOCK=block,
            WIDE=wide,
            REDUCTION=how,
        )

    return _scatter_into_copy(node, x, updates, y, reduction, scatter, target)


@lowers("ScatterND")
def lower_scatter_nd(node: Node, target: Target) -> Lowered:
    """x with slices of the updates at (or reduced into) the index tuples, the last axis of the indices.

    ONNX ScatterND 11, reductions since 16 (add, mul) and 18 (max, min). As to repeated indices: see ScatterElements.
    """
    x, y, indices, updates = node.x, node.y, node.inputs[1], node.inputs[2]
    assert indices is not None
    assert updates is not None
    reduction: str = node.attribute("reduction", "none")
    if refusal := _unsupported(x, reduction):
        return refusal
    length = indices.shape[-1]
    inner, n_rows = math.prod(x.shape[length:]), math.prod(indices.shape[:-1])
    if _order_matters(x, reduction, target):
        columns = _columns_of_rows(x, indices)
        return (scatter_in_order(x, indices, updates, y, columns, reduction, target),)
    rows, cols = choose_tile(n_rows, inner, x.itemsize, False, target)

    def scatter(source: Buffer, destination: Buffer, how: str) -> Launch:
        return launch(
            scatter_nd_kernel,
            (cdiv(n_rows, rows) * cdiv(inner, cols),),
            writes=destination,
            update_ptr=source,
            index_ptr=indices,
            y_ptr=destination,
            extents=x.shape[:length],
            strides=x.strides[:length],
            n_rows=n_rows,
            inner=inner,
            ROWS=rows,
            COLS=cols,
            REDUCTION=how,
        )

    return _scatter_into_copy(node, x, updates, y, reduction, scatter, target)


def _unsupported(x: Buffer, reduction: str) -> Refusal | None:
    return movable(x) if reduction in REDUCTIONS else Refusal(f"there is no reduction '{reduction}'")


def _order_matters(x: Buffer, reduction: str, target: Target) -> bool:
    """Whether results must not depend on the order of atomic operations, and would."""
    return target.deterministic and reduction in ("add", "mul") and x.dtype in FLOATS


def _columns_of_axis(x: Buffer, indices: Buffer, updates: Buffer, axis: int) -> Columns:
    def others(of: tuple[int, ...], single: int) -> tuple[int, ...]:
        return (*of[:axis], *of[axis + 1 :]) or (single,)

    return Columns(
        extents=(x.shape[axis],),
        weights=(1,),
        depth=x.shape[axis],
        depth_stride=x.strides[axis],
        shape=others(x.shape, 1),
        x=others(x.strides, 0),
        index=others(indices.strides, 0),
        update=others(updates.strides, 0),
        updated=others(indices.shape, 1),
        n_lines=math.prod(others(x.shape, 1)),
        n_updates=indices.shape[axis],
        index_stride=indices.strides[axis],
        update_stride=updates.strides[axis],
    )


def _columns_of_rows(x: Buffer, indices: Buffer) -> Columns:
    length = indices.shape[-1]
    extents, inner = x.shape[:length], math.prod(x.shape[length:])
    return Columns(
        extents=extents,
        weights=tuple(stride // max(inner, 1) for stride in x.strides[:length]),
        depth=math.prod(extents),
        depth_stride=inner,
        shape=(inner,),
        x=(1,),
        index=(0,),
        update=(1,),
        updated=(inner,),
        n_lines=inner,
        n_updates=math.prod(indices.shape[:-1]),
        index_stride=length,
        update_stride=inner,
    )


def _scatter_into_copy(
    node: Node,
    x: Buffer,
    updates: Buffer,
    y: Buffer,
    reduction: str,
    scatter: Callable[[Buffer, Buffer, str], Launch],
    target: Target,
) -> tuple[Call, ...]:
    """A copy of x that `scatter(updates, copy, reduction)` writes to. The copy is y, or where y's type has no atomic
    operations a wider one that becomes y at the end."""
    copy = (Copy(x.name, y.name, x.nbytes),) if x.nbytes else ()
    if reduction == "none":
        return (*copy, scatter(as_words(updates), as_words(y), reduction))
    accumulator = ACCUMULATORS.get(x.dtype, x.dtype)
    if x.dtype == "bool":  # one byte, 0 or 1: or is max, and is min
        x, updates, y = as_words(x), as_words(updates), as_words(y)
        reduction = {"add": "max", "mul": "min"}.get(reduction, reduction)
    if accumulator != x.dtype:
        wide = node.temporary(x.shape, accumulator)
        return (
            _convert(x, wide, reduction, target),
            scatter(updates, wide, reduction),
            _convert(wide, y, "none", target),
        )
    if x.dtype in FLOATS and reduction in ("max", "min"):
        return _convert(x, y, reduction, target), scatter(updates, y, reduction)
    return (*copy, scatter(updates, y, reduction))


def _convert(x: Buffer, y: Buffer, reduction: str, target: Target) -> Launch:
    block = 2**18 if target.interpreted else 1024
    return launch(
        convert_kernel,
        (cdiv(x.size, block),),
        writes=y,
        inplace=((y, x),) if x.itemsize == y.itemsize else (),
        x_ptr=x,
        y_ptr=y,
        size=x.size,
        BLOCK=block,
        WIDE=is_wide(x.size),
        REDUCTION=reduction,
    )
