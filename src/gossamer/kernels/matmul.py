"""The operators that are matrix products: MatMul, Gemm, and the fused forms that models and passes carry.

`gossamer::FusedMatMul(A, B, bias?, residual?) {transA, transB, permA, permB, alpha, activation, activation_params}` is
activation(alpha · op(A) · op(B) + bias + residual): bias [N] (or [1, …, N]) along the last axis, residual of the
output's shape. permA, permB: a permutation of the operand's axes, which comes before the transposition of its last two.
"""

from __future__ import annotations

from dataclasses import replace

from gossamer.kernels.activations import KINDS
from gossamer.kernels.gemm import Epilogue, Matrix, Product, multiply
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import FUSED, Node
from gossamer.program import Buffer, Refusal, Target

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int32", "int64", "uint32", "uint64")
# com.microsoft::FusedGemm names activations in ONNX's spelling.
ACTIVATIONS = {
    "": "none",
    "Relu": "relu",
    "LeakyRelu": "leaky_relu",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "Elu": "elu",
    "Celu": "celu",
    "Selu": "selu",
    "HardSigmoid": "hard_sigmoid",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "ThresholdedRelu": "thresholded_relu",
}
ACTIVATION_DEFAULTS = {
    "leaky_relu": (0.01, 0.0),
    "elu": (1.0, 0.0),
    "celu": (1.0, 0.0),
    "selu": (1.6732632423543772, 1.0507009873554805),
    "hard_sigmoid": (0.2, 0.5),
    "thresholded_relu": (1.0, 0.0),
}


@lowers("MatMul")
def lower_matmul(node: Node, target: Target) -> Lowered:
    """ONNX MatMul (-1, -9, -13): NumPy's matmul, 1-D operands and broadcast batch dimensions included."""
    return _lower(node, target, Epilogue())


@lowers("FusedMatMul", domain="com.microsoft")
def lower_contrib_matmul(node: Node, target: Target) -> Lowered:
    """com.microsoft::FusedMatMul (-1): alpha · op(A) · op(B); transBatchA moves A's first axis before its last two."""
    return _lower(node, target, Epilogue(alpha=node.attribute("alpha", 1.0)))


@lowers("FusedMatMul", domain=FUSED)
def lower_fused_matmul(node: Node, target: Target) -> Lowered:
    """gossamer::FusedMatMul: see above."""
    epilogue = Epilogue(
        bias=node.input(2),
        residual=node.input(3),
        alpha=node.attribute("alpha", 1.0),
        activation=node.attribute("activation", "none"),
        parameters=_pair(node.attribute("activation_params", ())),
    )
    return _lower(node, target, epilogue)


@lowers("Gemm")
def lower_gemm(node: Node, target: Target) -> Lowered:
    """ONNX Gemm (-7, -9, -11, -13): alpha · op(A) · op(B) + beta · C, C broadcast to the output."""
    return _lower(node, target, _gemm_epilogue(node))


@lowers("FusedGemm", domain="com.microsoft")
def lower_fused_gemm(node: Node, target: Target) -> Lowered:
    """com.microsoft::FusedGemm (-1): Gemm with an activation."""
    kind = ACTIVATIONS.get(node.attribute("activation", ""))
    if kind is None:
        return Refusal(f"FusedGemm has no activation '{node.attribute('activation')}'")
    alpha, beta = ACTIVATION_DEFAULTS.get(kind, (0.0, 0.0))
    second = "activation_gamma" if kind == "selu" else "activation_beta"
    parameters = (node.attribute("activation_alpha", alpha), node.attribute(second, beta))
    return _lower(node, target, replace(_gemm_epilogue(node), activation=kind, parameters=parameters))


def _gemm_epilogue(node: Node) -> Epilogue:
    alpha, beta, bias = node.attribute("alpha", 1.0), node.attribute("beta", 1.0), node.input(2)
    if bias is None or beta == 0:  # BLAS's rule: with beta = 0, C may hold NaN
        return Epilogue(alpha=alpha)
    return Epilogue(bias, _broadcast_strides(bias), None, alpha, beta)


def _broadcast_strides(bias: Buffer) -> tuple[int, int]:
    """Strides along rows and columns of C, of shape (), (N), (1, N), (M, 1) or (M, N)."""
    rows, columns = (1, 1, *bias.shape)[-2:]
    return (0 if rows == 1 else columns, 0 if columns == 1 else 1)


def _lower(node: Node, target: Target, epilogue: Epilogue) -> Lowered:
    a, b = node.inputs[0], node.inputs[1]
    assert a is not None
    assert b is not None
    reason = _unsupported(a, b, epilogue)
    if reason is not None:
        return Refusal(reason)
    return multiply(node, target, _product(node, a, b, epilogue))


def _unsupported(a: Buffer, b: Buffer, epilogue: Epilogue) -> str | None:
    if a.dtype != b.dtype or a.dtype not in FLOATS + INTEGERS:
        return f"no matrix product of {a.dtype} and {b.dtype}"
    if epilogue.activation not in KINDS:
        return f"no activation '{epilogue.activation}'"
    if a.dtype in INTEGERS and not (float(epilogue.alpha).is_integer() and float(epilogue.beta).is_integer()):
        return f"alpha and beta of an {a.dtype} product must be whole numbers"
    return None


def _product(node: Node, a: Buffer, b: Buffer, epilogue: Epilogue) -> Product:
    """Both operands as stacks of matrices: a 1-D A is a row, a 1-D B a column, batch dimensions align at the right."""
    a_shape, a_strides = _axes(a, node, "A")
    b_shape, b_strides = _axes(b, node, "B")
    if b.rank == 1:
        b_shape, b_strides = b_shape[::-1], b_strides[::-1]
    rank = max(len(a_shape), len(b_shape)) - 2
    a_batch, b_batch = (1,) * (rank + 2 - len(a_shape)) + a_shape[:-2], (1,) * (rank + 2 - len(b_shape)) + b_shape[:-2]
    batch = tuple(y if x == 1 else x for x, y in zip(a_batch, b_batch, strict=True))
    return Product(
        Matrix(a, _batch_strides(a_batch, a_strides), *a_strides[-2:]),
        Matrix(b, _batch_strides(b_batch, b_strides), *b_strides[-2:]),
        node.y,
        a_shape[-2],
        b_shape[-1],
        a_shape[-1],
        batch,
        epilogue,
    )


def _axes(buffer: Buffer, node: Node, operand: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides of an operand as the product sees it: batch…, rows, columns, transpositions applied."""
    if buffer.rank < 2:
        return (1, buffer.size), (buffer.size, 1)
    order = list(node.attribute(f"perm{operand}", range(buffer.rank)))
    if node.attribute(f"transBatch{operand}", 0):
        order.insert(len(order) - 2, order.pop(0))
    if node.attribute(f"trans{operand}", 0):
        order[-2:] = order[-1], order[-2]
    return tuple(buffer.shape[i] for i in order), tuple(buffer.strides[i] for i in order)


def _batch_strides(batch: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of the batch dimensions, 0 where the operand is broadcast; `strides` may lack leading dimensions."""
    padded = (0,) * (len(batch) + 2 - len(strides)) + strides[:-2]
    return tuple(0 if extent == 1 else stride for extent, stride in zip(batch, padded, strict=True))


def _pair(parameters: tuple[float, ...]) -> tuple[float, float]:
    first, second = (*parameters, 0.0, 0.0)[:2]
    return first, second
