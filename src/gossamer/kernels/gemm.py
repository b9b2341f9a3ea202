"""Matrix products with an epilogue: y[b,m,n] = activation(alpha · Σₖ a[b,m,k] · b[b,k,n] + beta · bias + residual).

Every operand has its own strides, so transposition and broadcasting cost nothing. Products of few tiles split K:
partial sums go to a workspace, and a second kernel adds them and does the epilogue. A single row (or column) is
bound by reading the matrix once and has a kernel of its own. `multiply` is the way in for all that is a matrix product.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import triton
import triton.language as tl

from gossamer.kernels.activations import activate
from gossamer.kernels.extents import cdiv
from gossamer.kernels.gemm_tiles import GROUP_M, Strip, Tiles, choose_strip, choose_tiles, uses_tensor_cores
from gossamer.kernels.launch import launch
from gossamer.kernels.tf32 import multiplies_in_tf32, round_to_tf32, rounded_to_tf32
from gossamer.model.node import Node
from gossamer.program import Buffer, Call, Launch, Target

REDUCE_BLOCK = 1024
ALIGNED = 8
"""Elements: what `launch` tells the compiler about integers. Rows that begin at multiples are loaded as vectors."""


@triton.jit
def batch_offset(batch, shape, strides):
    """Σ_d index_d · strides_d, where index is `batch` unravelled over `shape`."""
    offset = batch.to(tl.int64) * 0
    rest = batch
    for d in tl.static_range(len(shape)):
        offset += (rest % shape[len(shape) - 1 - d]).to(tl.int64) * strides[len(shape) - 1 - d]
        rest = rest // shape[len(shape) - 1 - d]
    return offset


@triton.jit
def finish(
    acc, m, n, n_mask, at, mask, bias_ptr, residual_ptr, bias_m_stride, bias_n_stride, alpha, beta, act_alpha, act_beta,
    ACTIVATION: tl.constexpr, BIAS_ROWS: tl.constexpr,
):  # fmt: skip
    """activation(alpha · acc + beta · bias[m,n] + residual[at]); without BIAS_ROWS bias depends on n alone."""
    acc = acc * alpha
    if bias_ptr is not None:
        if BIAS_ROWS:
            bias = tl.load(bias_ptr + m.to(tl.int64) * bias_m_stride + n * bias_n_stride, mask=mask, other=0)
        else:
            bias = tl.load(bias_ptr + n * bias_n_stride, mask=n_mask, other=0)
        acc += bias.to(acc.dtype) * beta
    if residual_ptr is not None:
        acc += tl.load(residual_ptr + at, mask=mask, other=0).to(acc.dtype)
    return activate(acc, ACTIVATION, act_alpha, act_beta)


@triton.jit
def multiply_tiles(a, b, acc, MULTIPLY: tl.constexpr, UPCAST: tl.constexpr):
    """acc + a · b. UPCAST: Triton's interpreter multiplies the bits of bf16, not the numbers.

    MULTIPLY: `sum` without matrix instructions, `ieee` in the operands' precision, `tf32` where b is rounded to TF32
    already, `tf32_both` where neither is.
    """
    if MULTIPLY == "sum":
        acc += tl.sum(a.to(acc.dtype)[:, :, None] * b.to(acc.dtype)[None, :, :], axis=1)
    elif UPCAST:
        acc = tl.dot(a.to(tl.float32), b.to(tl.float32), acc)
    elif MULTIPLY == "tf32":
        acc = tl.dot(round_to_tf32(a), b, acc, input_precision="tf32")
    elif MULTIPLY == "tf32_both":
        acc = tl.dot(round_to_tf32(a), round_to_tf32(b), acc, input_precision="tf32")
    else:
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=acc.dtype)
    return acc


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, bias_ptr, residual_ptr, y_ptr, M, N, K, splits, k_per_split,
    batch_shape, a_batch_strides, b_batch_strides, a_m_stride, a_k_stride, b_k_stride, b_n_stride,
    bias_m_stride, bias_n_stride, alpha, beta, act_alpha, act_beta,
    ACTIVATION: tl.constexpr, BIAS_ROWS: tl.constexpr, MULTIPLY: tl.constexpr, UPCAST: tl.constexpr,
    WIDEN: tl.constexpr, EVEN_K: tl.constexpr, SPLIT: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """y[b,m,n] = activation(alpha · Σₖ a[b,m,k] · b[b,k,n] + beta · bias[m,n] + residual[b,m,n]).

    With SPLIT, y[b,s,m,n] is the plain sum over the s-th part of K. WIDEN: accumulate in fp32, else in a's type.
    """
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    slab, tile = tl.program_id(0) // (tiles_m * tiles_n), tl.program_id(0) % (tiles_m * tiles_n)
    first_m = tile // (GROUP * tiles_n) * GROUP
    rows = tl.minimum(tiles_m - first_m, GROUP)
    within = tile % (GROUP * tiles_n)
    m = (first_m + within % rows) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = (within // rows) * BLOCK_N + tl.arange(0, BLOCK_N)
    first_k = (slab % splits) * k_per_split
    last_k = tl.minimum(first_k + k_per_split, K)
    batch = slab // splits
    k = first_k + tl.arange(0, BLOCK_K)
    a_at = a_ptr + batch_offset(batch, batch_shape, a_batch_strides)
    a_at += m.to(tl.int64)[:, None] * a_m_stride + k.to(tl.int64)[None, :] * a_k_stride
    b_at = b_ptr + batch_offset(batch, batch_shape, b_batch_strides)
    b_at += k.to(tl.int64)[:, None] * b_k_stride + n.to(tl.int64)[None, :] * b_n_stride
    m_mask, n_mask = (m < M)[:, None], (n < N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32 if WIDEN else a_ptr.dtype.element_ty)
    for start in range(first_k, last_k, BLOCK_K):
        if EVEN_K:
            a = tl.load(a_at, mask=m_mask, other=0)
            b = tl.load(b_at, mask=n_mask, other=0)
        else:
            k_mask = start + tl.arange(0, BLOCK_K) < last_k
            a = tl.load(a_at, mask=m_mask & k_mask[None, :], other=0)
            b = tl.load(b_at, mask=n_mask & k_mask[:, None], other=0)
        acc = multiply_tiles(a, b, acc, MULTIPLY, UPCAST)
        a_at += BLOCK_K * a_k_stride
        b_at += BLOCK_K * b_k_stride
    mask = m_mask & n_mask
    at = slab.to(tl.int64) * M * N + m.to(tl.int64)[:, None] * N + n[None, :]
    if not SPLIT:
        acc = finish(acc, m[:, None], n[None, :], n_mask, at, mask, bias_ptr, residual_ptr,
                     bias_m_stride, bias_n_stride, alpha, beta, act_alpha, act_beta, ACTIVATION, BIAS_ROWS)  # fmt: skip
    tl.store(y_ptr + at, acc.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def matvec_kernel(
    x_ptr, w_ptr, bias_ptr, residual_ptr, y_ptr, N, K, splits, k_per_split,
    batch_shape, x_batch_strides, w_batch_strides, x_k_stride, w_k_stride, w_n_stride,
    bias_n_stride, alpha, beta, act_alpha, act_beta,
    ACTIVATION: tl.constexpr, WIDEN: tl.constexpr, SPLIT: tl.constexpr, STAGES: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """y[b,n] = activation(alpha · Σₖ x[b,k] · w[b,k,n] + beta · bias[n] + residual[b,n]).

    SPLIT and WIDEN as in `matmul_kernel`.
    """
    strips = tl.cdiv(N, BLOCK_N)
    slab = tl.program_id(0) // strips
    n = (tl.program_id(0) % strips) * BLOCK_N + tl.arange(0, BLOCK_N)
    first_k = (slab % splits) * k_per_split
    last_k = tl.minimum(first_k + k_per_split, K)
    batch = slab // splits
    k = first_k + tl.arange(0, BLOCK_K)
    x_at = x_ptr + batch_offset(batch, batch_shape, x_batch_strides) + k.to(tl.int64) * x_k_stride
    w_at = w_ptr + batch_offset(batch, batch_shape, w_batch_strides)
    w_at += n.to(tl.int64)[:, None] * w_n_stride + k.to(tl.int64)[None, :] * w_k_stride
    n_mask = n < N
    acc = tl.zeros((BLOCK_N, BLOCK_K), dtype=tl.float32 if WIDEN else x_ptr.dtype.element_ty)
    for start in tl.range(first_k, last_k, BLOCK_K, num_stages=STAGES):
        k_mask = start + tl.arange(0, BLOCK_K) < last_k
        x = tl.load(x_at, mask=k_mask, other=0)
        w = tl.load(w_at, mask=n_mask[:, None] & k_mask[None, :], other=0)
        acc += w.to(acc.dtype) * x.to(acc.dtype)[None, :]
        x_at += BLOCK_K * x_k_stride
        w_at += BLOCK_K * w_k_stride
    y = tl.sum(acc, axis=1).to(acc.dtype)
    at = slab.to(tl.int64) * N + n
    if not SPLIT:
        y = finish(y, n, n, n_mask, at, n_mask, bias_ptr, residual_ptr, 0, bias_n_stride,
                   alpha, beta, act_alpha, act_beta, ACTIVATION, False)  # fmt: skip
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=n_mask)


@triton.jit
def matmul_reduce_kernel(
    partial_ptr, bias_ptr, residual_ptr, y_ptr, M, N, bias_m_stride, bias_n_stride, alpha, beta, act_alpha, act_beta,
    ACTIVATION: tl.constexpr, BIAS_ROWS: tl.constexpr, SPLITS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """y[b,m,n] = activation(alpha · Σₛ partial[b,s,m,n] + beta · bias[m,n] + residual[b,m,n])."""
    chunks = tl.cdiv(M * N, BLOCK)
    batch = tl.program_id(0) // chunks
    i = (tl.program_id(0) % chunks) * BLOCK + tl.arange(0, BLOCK)
    mask = i < M * N
    at = batch.to(tl.int64) * M * N + i
    partial_at = partial_ptr + batch.to(tl.int64) * M * N * SPLITS + i
    acc = tl.zeros((BLOCK,), dtype=partial_ptr.dtype.element_ty)
    for split in tl.static_range(SPLITS):
        acc += tl.load(partial_at + split * M * N, mask=mask, other=0)
    acc = finish(acc, i // N, i % N, mask, at, mask, bias_ptr, residual_ptr, bias_m_stride, bias_n_stride,
                 alpha, beta, act_alpha, act_beta, ACTIVATION, BIAS_ROWS)  # fmt: skip
    tl.store(y_ptr + at, acc.to(y_ptr.dtype.element_ty), mask=mask)


@dataclass(frozen=True, slots=True)
class Matrix:
    """A stack of matrices in a buffer. Strides in elements; batch_strides run parallel to the product's batch."""

    buffer: Buffer
    batch_strides: tuple[int, ...]
    row_stride: int
    column_stride: int

    @property
    def transposed(self) -> Matrix:
        return replace(self, row_stride=self.column_stride, column_stride=self.row_stride)


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What becomes of the sums: activation(alpha · sum + beta · bias[m,n] + residual).

    bias_strides: of bias along m and n, 0 where it is broadcast; it is the same for the whole batch. residual has the
    shape of y. activation: a kind of `kernels.activations` with its two parameters.
    """

    bias: Buffer | None = None
    bias_strides: tuple[int, int] = (0, 1)
    residual: Buffer | None = None
    alpha: float = 1.0
    beta: float = 1.0
    activation: str = "none"
    parameters: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Product:
    """y[batch…, m, n] = epilogue(a[batch…, m, k] · b[batch…, k, n]); y is dense."""

    a: Matrix
    b: Matrix
    y: Buffer
    m: int
    n: int
    k: int
    batch: tuple[int, ...] = ()
    epilogue: Epilogue = Epilogue()

    @property
    def batches(self) -> int:
        return int(np.prod(self.batch, dtype=np.int64))

    @property
    def flops(self) -> int:
        return 2 * self.batches * self.m * self.n * self.k

    @property
    def transposed(self) -> Product:
        """The same product as yᵀ = bᵀ · aᵀ; only where y is a vector is yᵀ dense too."""
        m_stride, n_stride = self.epilogue.bias_strides
        epilogue = replace(self.epilogue, bias_strides=(n_stride, m_stride))
        return Product(self.b.transposed, self.a.transposed, self.y, self.n, self.m, self.k, self.batch, epilogue)


def multiply(node: Node, target: Target, product: Product) -> tuple[Call, ...]:
    """The launches that compute `product`. Operands and y share a dtype: any float, an integer of 32 or 64 bits."""
    product = _fold_batch(_collapse(product))
    if product.n == 1 and product.m > 1:
        product = product.transposed
    product = _k_contiguous(node, target, product)
    if product.m == 1:
        return _multiply_vector(node, target, product)
    return _multiply_matrix(node, target, product)


def _collapse(product: Product) -> Product:
    """Drops batch dimensions of one and merges neighbours that both operands step through evenly."""
    kept: list[tuple[int, int, int]] = []
    dims = zip(product.batch, product.a.batch_strides, product.b.batch_strides, strict=True)
    for extent, a_stride, b_stride in dims:
        if extent == 1:
            continue
        follows = bool(kept) and kept[-1][1:] == (a_stride * extent, b_stride * extent)
        outer = kept.pop()[0] if follows else 1
        kept.append((outer * extent, a_stride, b_stride))
    batch, a_strides, b_strides = zip(*kept, strict=True) if kept else ((), (), ())
    a, b = replace(product.a, batch_strides=a_strides), replace(product.b, batch_strides=b_strides)
    return replace(product, a=a, b=b, batch=batch)


def _fold_batch(product: Product) -> Product:
    """A batch that shares b is more rows of a: y[b,m,n] is y[b·m,n]."""
    a, b = product.a, product.b
    rows_follow = len(product.batch) == 1 and (product.m == 1 or a.batch_strides[0] == a.row_stride * product.m)
    if not rows_follow or b.batch_strides[0] != 0 or product.epilogue.bias_strides[0] != 0:
        return product
    row_stride = a.batch_strides[0] if product.m == 1 else a.row_stride
    a, b = Matrix(a.buffer, (), row_stride, a.column_stride), replace(b, batch_strides=())
    return replace(product, a=a, b=b, m=product.m * product.batch[0], batch=())


def _k_contiguous(node: Node, target: Target, product: Product) -> Product:
    """Transposes a constant fp32 matrix whose columns are contiguous, once, before running: from sm_90 on TF32
    instructions take operands from shared memory only with K innermost. Other types need no such copy."""
    b = product.b
    wants = b.buffer.dtype == "float32" and target.arch >= 90 and uses_tensor_cores("float32", target)
    if not wants or target.interpreted or product.batch or b.column_stride != 1 or not node.is_constant(b.buffer):
        return product
    if b.row_stride != product.n or b.buffer.size != product.k * product.n or 1 in (product.k, product.n):
        return product
    k, n = product.k, product.n

    def transpose(matrix: np.ndarray) -> np.ndarray:
        rows, packed = matrix.reshape(k, n), np.empty((n, k), matrix.dtype)
        for first in range(0, k, 16):  # a cache line at a time: half the time of NumPy's own way
            packed[:, first : first + 16] = rows[first : first + 16].T
        return packed

    packed = node.derived(b.buffer, f"transposed{k}x{n}", (n, k), "float32", transpose)
    return replace(product, b=Matrix(packed, (), 1, k))


def _rounded(node: Node, target: Target, product: Product) -> Product:
    """Rounds a constant matrix to TF32 once, before running, where products are made in it."""
    b = product.b.buffer
    if not multiplies_in_tf32(b.dtype, target) or not node.is_constant(b):
        return product
    rounded = node.derived(b, "tf32", b.shape, "float32", rounded_to_tf32)
    return replace(product, b=replace(product.b, buffer=rounded))


def _multiply_matrix(node: Node, target: Target, product: Product) -> tuple[Call, ...]:
    product = _rounded(node, target, product)
    a, b = product.a, product.b
    gathered = (_gathered(a, product.m, product.k), _gathered(b, product.k, product.n))
    tiles = choose_tiles(product.m, product.n, product.k, product.batches, a.buffer.dtype, target, gathered)
    k_per_split = cdiv(cdiv(product.k, tiles.splits), tiles.block_k) * tiles.block_k
    y = _target_of_sums(node, product, tiles.splits)
    first = launch(
        matmul_kernel,
        (tiles.programs(product.m, product.n, product.batches),),
        writes=y,
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
        inplace=_inplace(product) if tiles.splits == 1 else (),
        flops=product.flops,
        a_ptr=a.buffer,
        b_ptr=b.buffer,
        M=product.m,
        N=product.n,
        K=product.k,
        splits=tiles.splits,
        k_per_split=k_per_split,
        **_batch_arguments(product, "a", "b"),
        a_m_stride=a.row_stride,
        a_k_stride=a.column_stride,
        b_k_stride=b.row_stride,
        b_n_stride=b.column_stride,
        **_matrix_epilogue(product, y),
        **_arithmetic(a.buffer.dtype, node.is_constant(b.buffer), target),
        EVEN_K=product.k % tiles.block_k == 0,
        SPLIT=tiles.splits > 1,
        GROUP=GROUP_M,
        BLOCK_M=tiles.block_m,
        BLOCK_N=tiles.block_n,
        BLOCK_K=tiles.block_k,
    )
    return (first,) if tiles.splits == 1 else (first, _reduce(product, y, tiles))


def _multiply_vector(node: Node, target: Target, product: Product) -> tuple[Call, ...]:
    x, w = product.a, product.b
    gathered, itemsize = _gathered(w, product.k, product.n), w.buffer.itemsize
    strip = choose_strip(product.n, product.k, product.batches, itemsize, w.row_stride == 1, target, gathered)
    k_per_split = cdiv(cdiv(product.k, strip.splits), strip.block_k) * strip.block_k
    y = _target_of_sums(node, product, strip.splits)
    epilogue = _matrix_epilogue(product, y)
    del epilogue["bias_m_stride"], epilogue["BIAS_ROWS"]
    first = launch(
        matvec_kernel,
        (strip.programs(product.n, product.batches),),
        writes=y,
        num_warps=strip.num_warps,
        inplace=_inplace(product) if strip.splits == 1 else (),
        flops=product.flops,
        x_ptr=x.buffer,
        w_ptr=w.buffer,
        N=product.n,
        K=product.k,
        splits=strip.splits,
        k_per_split=k_per_split,
        **_batch_arguments(product, "x", "w"),
        x_k_stride=x.column_stride,
        w_k_stride=w.row_stride,
        w_n_stride=w.column_stride,
        **epilogue,
        WIDEN=_widened(x.buffer.dtype),
        SPLIT=strip.splits > 1,
        STAGES=strip.num_stages,
        BLOCK_N=strip.block_n,
        BLOCK_K=strip.block_k,
    )
    return (first,) if strip.splits == 1 else (first, _reduce(product, y, strip))


def _gathered(matrix: Matrix, rows: int, columns: int) -> bool:
    """Whether a [rows, columns] matrix is loaded element by element, for all that the compiler knows."""
    along, across, extent = matrix.column_stride, matrix.row_stride, columns
    if along != 1:
        along, across, extent = across, along, rows
    return along != 1 or any(step % ALIGNED for step in (across, extent, *matrix.batch_strides))


def _reduce(product: Product, partial: Buffer, plan: Tiles | Strip) -> Launch:
    return launch(
        matmul_reduce_kernel,
        (cdiv(product.m * product.n, REDUCE_BLOCK) * product.batches,),
        writes=product.y,
        inplace=_inplace(product, reads_operands=False),
        partial_ptr=partial,
        M=product.m,
        N=product.n,
        **_matrix_epilogue(product, product.y),
        SPLITS=plan.splits,
        BLOCK=REDUCE_BLOCK,
    )


def _target_of_sums(node: Node, product: Product, splits: int) -> Buffer:
    if splits == 1:
        return product.y
    dtype = "float32" if _widened(product.y.dtype) else product.y.dtype
    return node.temporary((product.batches, splits, product.m, product.n), dtype)


def _batch_arguments(product: Product, a: str, b: str) -> dict[str, Any]:
    """Triton takes no empty tuples: no batch is a batch of one."""
    return {
        "batch_shape": product.batch or (1,),
        f"{a}_batch_strides": product.a.batch_strides or (0,),
        f"{b}_batch_strides": product.b.batch_strides or (0,),
    }


def _matrix_epilogue(product: Product, y: Buffer) -> dict[str, Any]:
    """The kernel arguments of an epilogue that writes y; of none where y is a workspace."""
    epilogue = product.epilogue if y is product.y else Epilogue()
    exact = int if "int" in product.y.dtype else float
    return {
        "y_ptr": y,
        "bias_ptr": epilogue.bias,
        "residual_ptr": epilogue.residual,
        "bias_m_stride": epilogue.bias_strides[0],
        "bias_n_stride": epilogue.bias_strides[1],
        "alpha": exact(epilogue.alpha),
        "beta": exact(epilogue.beta),
        "act_alpha": float(epilogue.parameters[0]),
        "act_beta": float(epilogue.parameters[1]),
        "ACTIVATION": epilogue.activation,
        "BIAS_ROWS": epilogue.bias is not None and epilogue.bias_strides[0] != 0,
    }


def _arithmetic(dtype: str, b_is_rounded: bool, target: Target) -> dict[str, Any]:
    """How tiles are multiplied and in what type sums are kept."""
    tf32 = "tf32" if b_is_rounded else "tf32_both"
    precision = tf32 if multiplies_in_tf32(dtype, target) else "ieee"
    return {
        "MULTIPLY": "sum" if "int" in dtype else precision,
        "UPCAST": target.interpreted and dtype in ("float16", "bfloat16"),
        "WIDEN": _widened(dtype),
    }


def _widened(dtype: str) -> bool:
    return dtype in ("float16", "bfloat16", "float32")


def _inplace(product: Product, *, reads_operands: bool = True) -> tuple[tuple[Buffer, Buffer], ...]:
    """y may take residual's memory unless other programs still read that memory as an operand."""
    residual, bias = product.epilogue.residual, product.epilogue.bias
    others = {bias.name} if bias is not None else set()
    if reads_operands:
        others |= {product.a.buffer.name, product.b.buffer.name}
    return () if residual is None or residual.name in others else ((product.y, residual),)
