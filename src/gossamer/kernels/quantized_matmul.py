"""Matrix products of 8-bit integers: MatMulInteger, QLinearMatMul, and onnxruntime's that give floats."""

from __future__ import annotations

from math import prod

import triton
import triton.language as tl

from gossamer.kernels.gemm import batch_offset
from gossamer.kernels.launch import launch
from gossamer.kernels.quantization import dynamic_quantize
from gossamer.kernels.quantized_products import (
    BYTES,
    Outcome,
    Zeros,
    as_signed,
    choose_byte_tiles,
    load_zeros,
    settle,
    steps_of,
    zeros_of,
)
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import Node
from gossamer.program import Buffer, Refusal, Target


@triton.jit
def byte_matmul_kernel(
    a_ptr, b_ptr, a_zero_ptr, b_zero_ptr, a_scale_ptr, b_scale_ptr, y_scale_ptr, y_zero_ptr, bias_ptr, y_ptr, M, N, K,
    batch_shape, a_batch_strides, b_batch_strides, a_m_stride, a_k_stride, b_k_stride, b_n_stride,
    a_zero_steps, b_zero_steps, a_scale_steps, b_scale_steps, A_UNSIGNED: tl.constexpr, B_UNSIGNED: tl.constexpr,
    A_ZERO: tl.constexpr, B_ZERO: tl.constexpr, KIND: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """y[b,m,n] = settle(Σₖ (a[b,m,k] − a_zero) · (b[b,k,n] − b_zero)).

    Steps: of zero points and scales, from matrix to matrix and from row (column) to row. A_ZERO, B_ZERO: whether there
    is a zero point other than 0, once uint8 is moved.
    """
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    batch, tile = tl.program_id(0) // (tiles_m * tiles_n), tl.program_id(0) % (tiles_m * tiles_n)
    m = tile % tiles_m * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tile // tiles_m * BLOCK_N + tl.arange(0, BLOCK_N)
    m_mask, n_mask = m < M, n < N
    k = tl.arange(0, BLOCK_K)
    a_at = a_ptr + batch_offset(batch, batch_shape, a_batch_strides)
    a_at += m.to(tl.int64)[:, None] * a_m_stride + k.to(tl.int64)[None, :] * a_k_stride
    b_at = b_ptr + batch_offset(batch, batch_shape, b_batch_strides)
    b_at += k.to(tl.int64)[:, None] * b_k_stride + n.to(tl.int64)[None, :] * b_n_stride
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.int32)
    a_sums, b_sums = tl.zeros((BLOCK_M,), tl.int32), tl.zeros((BLOCK_N,), tl.int32)
    A_NEUTRAL: tl.constexpr = 128 if A_UNSIGNED else 0
    B_NEUTRAL: tl.constexpr = 128 if B_UNSIGNED else 0
    for start in range(0, K, BLOCK_K):
        k_mask = start + k < K
        a = as_signed(tl.load(a_at, mask=m_mask[:, None] & k_mask[None, :], other=A_NEUTRAL))
        b = as_signed(tl.load(b_at, mask=k_mask[:, None] & n_mask[None, :], other=B_NEUTRAL))
        acc = tl.dot(a, b, acc, out_dtype=tl.int32)
        if B_ZERO:
            a_sums += tl.sum(a.to(tl.int32), axis=1)
        if A_ZERO:
            b_sums += tl.sum(b.to(tl.int32), axis=0)
        a_at += BLOCK_K * a_k_stride
        b_at += BLOCK_K * b_k_stride
    if A_ZERO:
        a_zero = load_zeros(a_zero_ptr, batch * a_zero_steps[0] + m * a_zero_steps[1], m_mask, A_UNSIGNED)
        acc -= a_zero[:, None] * b_sums[None, :]
    if B_ZERO:
        b_zero = load_zeros(b_zero_ptr, batch * b_zero_steps[0] + n * b_zero_steps[1], n_mask, B_UNSIGNED)
        acc -= a_sums[:, None] * b_zero[None, :]
        if A_ZERO:
            acc += K * a_zero[:, None] * b_zero[None, :]
    m_scales = (batch * a_scale_steps[0] + m * a_scale_steps[1])[:, None]
    n_scales = (batch * b_scale_steps[0] + n * b_scale_steps[1])[None, :]
    y = settle(acc, m_scales, n_scales, n[None, :], m_mask[:, None], n_mask[None, :], a_scale_ptr, b_scale_ptr,
               y_scale_ptr, y_zero_ptr, bias_ptr, KIND, LOW, HIGH)  # fmt: skip
    at = (batch.to(tl.int64) * M + m[:, None]) * N + n[None, :]
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=m_mask[:, None] & n_mask[None, :])


@lowers("MatMulInteger", since=10)
def lower_matmul_integer(node: Node, target: Target) -> Lowered:
    """ONNX MatMulInteger (-10): int32 sums, wrapping around; zero points per tensor, row of A or column of B."""
    a, b = _operands(node, 0, 1)
    return multiply_bytes(node, target, a, b, zeros_of(node, a, 2), zeros_of(node, b, 3), Outcome())


@lowers("QLinearMatMul", since=10)
def lower_qlinear_matmul(node: Node, target: Target) -> Lowered:
    """ONNX QLinearMatMul (-10, -21); scales per tensor, row of A or column of B, one for Y."""
    a, b = _operands(node, 0, 3)
    y_scale = node.inputs[6]
    assert y_scale is not None
    if y_scale.size != 1 or node.y.dtype not in BYTES:
        return Refusal("a product with more than one output scale has no kernel")
    outcome = Outcome("quantized", node.inputs[1], node.inputs[4], y_scale, node.input(7))
    return multiply_bytes(node, target, a, b, zeros_of(node, a, 2), zeros_of(node, b, 5), outcome)


@lowers("MatMulIntegerToFloat", domain="com.microsoft")
def lower_matmul_integer_to_float(node: Node, target: Target) -> Lowered:
    """com.microsoft::MatMulIntegerToFloat (-1): A, B, their scales, their zero points, a bias."""
    a, b = _operands(node, 0, 1)
    outcome = Outcome("float", node.inputs[2], node.inputs[3], bias=node.input(6))
    return multiply_bytes(node, target, a, b, zeros_of(node, a, 4), zeros_of(node, b, 5), outcome)


@lowers("DynamicQuantizeMatMul", domain="com.microsoft")
def lower_dynamic_quantize_matmul(node: Node, target: Target) -> Lowered:
    """com.microsoft::DynamicQuantizeMatMul (-1): A, quantised on the way; B, its scale, zero point, a bias."""
    x, b = _operands(node, 0, 1)
    if x.dtype != "float32":
        return Refusal(f"DynamicQuantizeMatMul of {x.dtype} has no kernel")
    a = node.temporary(x.shape, "uint8")
    scale, zero = node.temporary((), "float32"), node.temporary((), "uint8")
    first = dynamic_quantize(node, target, x, a, scale, zero)
    outcome = Outcome("float", scale, node.inputs[2], bias=node.input(4))
    product = multiply_bytes(node, target, a, b, Zeros(zero, True, True), zeros_of(node, b, 3), outcome)
    return product if isinstance(product, Refusal) else (*first, *product)


def _operands(node: Node, first: int, second: int) -> tuple[Buffer, Buffer]:
    a, b = node.inputs[first], node.inputs[second]
    assert a is not None
    assert b is not None
    return a, b


def multiply_bytes(
    node: Node, target: Target, a: Buffer, b: Buffer, a_zeros: Zeros, b_zeros: Zeros, outcome: Outcome
) -> Lowered:
    """NumPy's matmul of integer operands less their zero points, settled into the node's output."""
    if a.dtype not in BYTES or b.dtype not in BYTES:
        return Refusal(f"no matrix product of {a.dtype} and {b.dtype}")
    a_shape = (1, *a.shape) if a.rank == 1 else a.shape
    b_shape = (*b.shape, 1) if b.rank == 1 else b.shape
    (m, k), n = a_shape[-2:], b_shape[-1]
    rank = max(len(a_shape), len(b_shape)) - 2
    a_batch, b_batch = _padded(a_shape[:-2], rank), _padded(b_shape[:-2], rank)
    batch = tuple(y if x == 1 else x for x, y in zip(a_batch, b_batch, strict=True))
    batches = prod(batch)
    a_steps = [steps_of(buffer, batches, m, "A") for buffer in (a_zeros.buffer, outcome.a_scale)]
    b_steps = [steps_of(buffer, batches, n, "B") for buffer in (b_zeros.buffer, outcome.b_scale)]
    for steps in (*a_steps, *b_steps):
        if isinstance(steps, Refusal):
            return steps
    tiles = choose_byte_tiles(m, n, k, batches, target)
    return (
        launch(
            byte_matmul_kernel,
            (tiles.programs(m, n, batches),),
            writes=node.y,
            num_warps=tiles.num_warps,
            num_stages=tiles.num_stages,
            flops=2 * batches * m * n * k,
            a_ptr=a,
            b_ptr=b,
            a_zero_ptr=a_zeros.buffer,
            b_zero_ptr=b_zeros.buffer,
            y_ptr=node.y,
            M=m,
            N=n,
            K=k,
            batch_shape=batch or (1,),
            a_batch_strides=_batch_strides(a_batch, m * k) or (0,),
            b_batch_strides=_batch_strides(b_batch, k * n) or (0,),
            a_m_stride=k,
            a_k_stride=1,
            b_k_stride=n,
            b_n_stride=1,
            a_zero_steps=a_steps[0],
            b_zero_steps=b_steps[0],
            a_scale_steps=a_steps[1],
            b_scale_steps=b_steps[1],
            A_UNSIGNED=a_zeros.unsigned,
            B_UNSIGNED=b_zeros.unsigned,
            A_ZERO=a_zeros.needed,
            B_ZERO=b_zeros.needed,
            **outcome.arguments(node.y),
            BLOCK_M=tiles.block_m,
            BLOCK_N=tiles.block_n,
            BLOCK_K=tiles.block_k,
        ),
    )


def _padded(batch: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return (1,) * (rank - len(batch)) + batch


def _batch_strides(batch: tuple[int, ...], matrix: int) -> tuple[int, ...]:
    """Of matrices of so many elements; 0 where the operand is broadcast."""
    strides = Buffer("", "int8", batch).strides
    return tuple(0 if extent == 1 else stride * matrix for extent, stride in zip(batch, strides, strict=True))
