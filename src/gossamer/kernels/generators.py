"""Operators that make tensors out of little: ConstantOfShape, Range, EyeLike, Shape, Size, OneHot, Trilu.

Most are folded before they come here, being constants; what is left depends on values known only at run time.
"""

from __future__ import annotations

import math

import numpy as np
import triton
import triton.language as tl

from gossamer.kernels.copies import Strided, as_words, choose_tile, copy_strided, is_wide, movable, tile_of
from gossamer.kernels.division import divide_by, divisor_of
from gossamer.kernels.extents import cdiv
from gossamer.kernels.launch import launch
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import Node
from gossamer.program import Fill, Target, View, dtype_of


@triton.jit
def range_kernel(start_ptr, delta_ptr, y_ptr, size, BLOCK: tl.constexpr):
    """y[i] = start + i · delta, in the type of y."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    start, delta = tl.load(start_ptr), tl.load(delta_ptr)
    wide = tl.float64 if y_ptr.dtype.element_ty == tl.float64 else tl.float32 if start.dtype.is_floating() else tl.int64
    y = start.to(wide) + i.to(wide) * delta.to(wide)
    tl.store(y_ptr + i, y.to(y_ptr.dtype.element_ty), mask=i < size)


@triton.jit
def one_hot_kernel(
    index_ptr, values_ptr, y_ptr, depth, inner, n_rows, n_cols,
    FROM_END: tl.constexpr, LAST: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """y[o, d, i] = values[1] where d = index[o, i], else values[0], for rows o and columns (d, i).

    inner: the extent of i, as a divisor; LAST: it is one. FROM_END: negative indices count from the end.
    """
    row, col = tile_of(tl.program_id(0), n_cols, 1, ROWS, COLS, WIDE)
    mask = (row < n_rows) & (col < n_cols)
    if LAST:
        d = col
        index = tl.load(index_ptr + row, mask=row < n_rows, other=0)
    else:
        d = divide_by(col, inner, WIDE)
        index = tl.load(index_ptr + row * inner[0] + (col - d * inner[0]), mask=mask, other=0)
    index = index.to(tl.int64)
    if FROM_END:
        index = tl.where(index < 0, index + depth, index)
    place = tl.where((index >= 0) & (index < depth), index, -1).to(d.dtype)
    off, on = tl.load(values_ptr), tl.load(values_ptr + 1)
    tl.store(y_ptr + row * n_cols + col, tl.where(d == place, on, off), mask=mask)


@triton.jit
def triangle_kernel(
    x_ptr, k_ptr, y_ptr, height, width, n_rows,
    ROWS: tl.constexpr, COLS: tl.constexpr, UPPER: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """y[b, i, j] = x[b, i, j] where j - i ≥ k (UPPER) or j - i ≤ k, else 0; k is 0 where k_ptr is None."""
    pid = tl.program_id(0)
    if WIDE:
        pid = pid.to(tl.int64)
    col_tiles = tl.cdiv(width, COLS)
    rows = pid // col_tiles * ROWS + tl.arange(0, ROWS)
    cols = pid % col_tiles * COLS + tl.arange(0, COLS)
    k = 0
    if k_ptr is not None:
        k = tl.load(k_ptr)
    above = cols[None, :] - (rows % height)[:, None]
    kept = above >= k if UPPER else above <= k
    mask = (rows < n_rows)[:, None] & (cols < width)[None, :]
    at = rows[:, None] * width + cols[None, :]
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=mask & kept, other=0), mask=mask)


@lowers("ConstantOfShape")
def lower_constant_of_shape(node: Node, target: Target) -> Lowered:
    """y = value everywhere (ONNX ConstantOfShape 9)."""
    y, value = node.y, node.attribute("value", np.zeros(1, np.float32))
    if refusal := movable(y):
        return refusal
    bits = value.tobytes()
    if bits == bits[:1] * len(bits):
        return (Fill(y.name, bits[0]),)
    one = node.constant_buffer(f"value {bits.hex()} {y.dtype}", (1,), y.dtype, lambda: value.reshape(1))
    return copy_strided((y.size,), Strided(one, (0,)), Strided(y, (1,)), target)


@lowers("Shape", "Size")
def lower_shape(node: Node, target: Target) -> Lowered:
    """The extents of x from axis `start` to `end`, or their product (ONNX Shape 1, attributes since 15; Size 1)."""
    shape = node.x.shape
    if node.op_type == "Size":
        return _constant(node, f"size {math.prod(shape)}", np.array(math.prod(shape), np.int64))
    part = shape[node.attribute("start", 0) : node.attribute("end", len(shape))]
    return _constant(node, f"shape {part}", np.array(part, np.int64))


@lowers("EyeLike")
def lower_eye_like(node: Node, target: Target) -> Lowered:
    """Ones on the k-th diagonal of a matrix (ONNX EyeLike 9)."""
    y, k = node.y, int(node.attribute("k", 0))
    n, m = y.shape
    key = f"eye {n} {m} {k} {y.dtype}"
    view = node.constant_buffer(key, y.shape, y.dtype, lambda: np.eye(n, m, k, dtype_of(y.dtype)))
    return (View(view.name, y.name),)


def _constant(node: Node, key: str, array: np.ndarray) -> Lowered:
    source = node.constant_buffer(key, array.shape, "int64", lambda: array)
    return (View(source.name, node.y.name),)


@lowers("Range")
def lower_range(node: Node, target: Target) -> Lowered:
    """start, start + delta, … (ONNX Range 11). How many is the output's shape, so it must be known before running."""
    start, delta, y = node.input(0), node.input(2), node.y
    block = 1024
    return (
        launch(
            range_kernel,
            (cdiv(y.size, block),),
            writes=y,
            start_ptr=start,
            delta_ptr=delta,
            y_ptr=y,
            size=y.size,
            BLOCK=block,
        ),
    )


@lowers("OneHot")
def lower_one_hot(node: Node, target: Target) -> Lowered:
    """values[1] at the indices along a new axis, values[0] elsewhere (ONNX OneHot 9; since 11 negative indices count
    from the end, before they were out of range)."""
    indices, values, y = node.input(0), node.input(2), node.y
    assert indices is not None
    assert values is not None
    if refusal := movable(y):
        return refusal
    axis = node.attribute("axis", -1) % y.rank
    depth, inner = y.shape[axis], math.prod(y.shape[axis + 1 :])
    n_rows, n_cols = math.prod(y.shape[:axis]), depth * inner
    rows, cols = choose_tile(n_rows, n_cols, y.itemsize, False, target)
    wide = is_wide(y.size)
    return (
        launch(
            one_hot_kernel,
            (cdiv(n_rows, rows) * cdiv(n_cols, cols),),
            writes=y,
            index_ptr=indices,
            values_ptr=as_words(values),
            y_ptr=as_words(y),
            depth=depth,
            inner=divisor_of(inner, wide),
            n_rows=n_rows,
            n_cols=n_cols,
            FROM_END=node.version >= 11 and not indices.dtype.startswith("uint"),  # uint64 is read as int64
            LAST=inner == 1,
            ROWS=rows,
            COLS=cols,
            WIDE=wide,
        ),
    )


@lowers("Trilu")
def lower_trilu(node: Node, target: Target) -> Lowered:
    """The upper or lower triangle of matrices, zero elsewhere (ONNX Trilu 14)."""
    x, y = node.x, node.y
    if refusal := movable(x):
        return refusal
    height, width = x.shape[-2:]
    n_rows = math.prod(x.shape[:-1])
    rows, cols = choose_tile(n_rows, width, x.itemsize, False, target)
    return (
        launch(
            triangle_kernel,
            (cdiv(n_rows, rows) * cdiv(width, cols),),
            writes=y,
            inplace=((y, x),),
            x_ptr=as_words(x),
            k_ptr=node.input(1),
            y_ptr=as_words(y),
            height=height,
            width=width,
            n_rows=n_rows,
            ROWS=rows,
            COLS=cols,
            UPPER=bool(node.attribute("upper", 1)),
            WIDE=is_wide(x.size),
        ),
    )
