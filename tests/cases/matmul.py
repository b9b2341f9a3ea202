"""Matrix products: cases for the interpreter and the GPU, with what they should give."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx

import harness

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True)
class Case:
    """One node. shapes: of the inputs, None where one is omitted. want: of inputs in float64 (or ints)."""

    name: str
    op_type: str
    shapes: Sequence[tuple[int, ...] | None]
    want: Callable[..., np.ndarray]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    dtype: Any = np.float32
    domain: str = ""
    constants: Sequence[int] = ()

    def __str__(self) -> str:
        return f"{self.op_type}-{self.name}-{np.dtype(self.dtype).name}"

    def inputs(self) -> list[np.ndarray | None]:
        rng = np.random.default_rng(zlib.crc32(str(self).encode()))
        return [None if shape is None else _random(rng, shape, np.dtype(self.dtype)) for shape in self.shapes]

    def expected(self) -> np.ndarray:
        exact = [x if x is None or x.dtype.kind in "iu" else x.astype(np.float64) for x in self.inputs()]
        return np.asarray(self.want(*exact)).astype(self.dtype)

    def model(self) -> onnx.ModelProto:
        want = self.expected()
        return harness.node_model(
            self.op_type,
            self.inputs(),
            self.attributes,
            domain=self.domain,
            constants=self.constants,
            output_types=[(harness.tensor_type(want), want.shape)],
        )

    def check(self, device: str) -> None:
        inputs, want = self.inputs(), self.expected()
        feeds = {f"x{i}": a for i, a in enumerate(inputs) if a is not None and i not in self.constants}
        (got,) = harness.run_model(self.model(), feeds, device)
        reduction = int(inputs[0].shape[-1]) if inputs[0].ndim else 1
        tf32 = device == "cuda" and np.dtype(self.dtype) == np.float32
        harness.assert_close(got, want, reduction, tf32=tf32)


def _random(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)  # sums wrap around, as NumPy's do
    return rng.standard_normal(shape).astype(dtype)


def gemm(
    alpha: float = 1, beta: float = 1, *, trans_a: bool = False, trans_b: bool = False
) -> Callable[..., np.ndarray]:
    def want(a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None) -> np.ndarray:
        product = alpha * ((a.T if trans_a else a) @ (b.T if trans_b else b))
        return product if c is None else product + beta * c

    return want


def fused(activation: Callable[[np.ndarray], np.ndarray] = lambda x: x, alpha: float = 1) -> Callable[..., np.ndarray]:
    def want(
        a: np.ndarray, b: np.ndarray, bias: np.ndarray | None = None, residual: np.ndarray | None = None
    ) -> np.ndarray:
        return activation(alpha * (a @ b) + (0 if bias is None else bias) + (0 if residual is None else residual))

    return want


def _silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


MATMULS = {
    "square": ((64, 64), (64, 64)),
    "ragged": ((37, 45), (45, 53)),
    "several_tiles": ((300, 33), (33, 290)),
    "long_k": ((5, 1030), (1030, 7)),
    "vector_matrix": ((40,), (40, 24)),
    "matrix_vector": ((24, 40), (40,)),
    "vector_vector": ((40,), (40,)),
    "row": ((1, 700), (700, 300)),
    "column": ((300, 70), (70, 1)),
    "batch": ((3, 20, 18), (3, 18, 9)),
    "shared_b": ((3, 2, 20, 18), (18, 9)),
    "shared_a": ((20, 18), (3, 18, 9)),
    "broadcast_both": ((3, 1, 20, 18), (1, 4, 18, 9)),
    "broadcast_middle": ((2, 3, 5, 4, 18), (2, 1, 5, 18, 9)),
    "batched_vector": ((18,), (3, 18, 9)),
    "batched_matrix_vector": ((3, 20, 18), (18,)),
    "batch_of_rows": ((6, 1, 18), (6, 18, 9)),
    "batch_of_shared_rows": ((6, 1, 18), (18, 9)),
    "no_rows": ((0, 18), (18, 9)),
    "no_batch": ((0, 4, 18), (18, 9)),
    "empty_sum": ((4, 0), (0, 9)),
}
GEMMS = {
    "no_c": (gemm(), {}, ((20, 30), (30, 12))),
    "row_c": (gemm(), {}, ((20, 30), (30, 12), (12,))),
    "row_c_2d": (gemm(beta=0.5), {"beta": 0.5}, ((20, 30), (30, 12), (1, 12))),
    "column_c": (gemm(), {}, ((20, 30), (30, 12), (20, 1))),
    "scalar_c": (gemm(beta=2), {"beta": 2.0}, ((20, 30), (30, 12), ())),
    "full_c": (gemm(alpha=0.25), {"alpha": 0.25}, ((20, 30), (30, 12), (20, 12))),
    "trans_a": (gemm(trans_a=True), {"transA": 1}, ((30, 20), (30, 12), (12,))),
    "trans_b": (gemm(trans_b=True), {"transB": 1}, ((20, 30), (12, 30), (12,))),
    "trans_both": (gemm(trans_a=True, trans_b=True), {"transA": 1, "transB": 1}, ((30, 20), (12, 30))),
    "one_row": (gemm(trans_b=True), {"transB": 1}, ((1, 300), (100, 300), (100,))),
    "one_column": (gemm(), {}, ((20, 30), (30, 1), (20, 1))),
    "empty_sum": (gemm(), {}, ((4, 0), (0, 9), (9,))),
}
CONTRIB = {
    "alpha": (lambda a, b: 0.125 * (a @ b), {"alpha": 0.125}, ((2, 20, 30), (2, 30, 12))),
    "trans_a": (lambda a, b: a.swapaxes(1, 2) @ b, {"transA": 1}, ((2, 30, 20), (2, 30, 12))),
    "trans_b": (lambda a, b: a @ b.swapaxes(1, 2), {"transB": 1}, ((2, 20, 30), (2, 12, 30))),
    "trans_batch_a": (lambda a, b: a.transpose(1, 0, 2) @ b, {"transBatchA": 1}, ((20, 2, 30), (2, 30, 12))),
    "trans_batch_b": (
        lambda a, b: a @ b.transpose(1, 2, 0, 3).swapaxes(2, 3),
        {"transBatchB": 1, "transB": 1},
        ((3, 2, 20, 30), (12, 3, 2, 30)),
    ),
}
FUSED = {
    "bias": (fused(), {}, ((2, 20, 30), (30, 12), (12,))),
    "bias_relu": (fused(lambda x: np.maximum(x, 0)), {"activation": "relu"}, ((20, 30), (30, 12), (12,))),
    "residual": (fused(), {}, ((2, 20, 30), (30, 12), None, (2, 20, 12))),
    "bias_residual_silu": (
        fused(_silu),
        {"activation": "silu", "activation_params": [1.0]},
        ((2, 20, 30), (30, 12), (12,), (2, 20, 12)),
    ),
    "clip": (
        fused(lambda x: np.clip(x, -0.5, 6), alpha=0.5),
        {"alpha": 0.5, "activation": "clip", "activation_params": [-0.5, 6.0]},
        ((20, 30), (30, 12)),
    ),
    "heads": (
        lambda a, b: a.transpose(0, 2, 1, 3) @ b.transpose(0, 2, 3, 1),
        {"permA": [0, 2, 1, 3], "permB": [0, 2, 3, 1]},
        ((2, 20, 3, 30), (2, 12, 3, 30)),
    ),
    "transposed_permuted": (
        lambda a, b: a.transpose(1, 0, 2).swapaxes(1, 2) @ b,
        {"permA": [1, 0, 2], "transA": 1},
        ((30, 2, 20), (2, 30, 12)),
    ),
    "row_residual": (fused(), {}, ((1, 30), (30, 100), (100,), (1, 100))),
    "batched_b": (
        fused(lambda x: np.maximum(x, 0)),
        {"activation": "relu"},
        ((3, 20, 30), (3, 30, 12), (12,), (3, 20, 12)),
    ),
}
ACTIVATED = {
    "leaky_relu": (
        lambda x: np.where(x < 0, 0.25 * x, x),
        {"activation": "LeakyRelu", "activation_alpha": 0.25},
    ),
    "celu": (
        lambda x: np.where(x < 0, 2 * np.expm1(x / 2), x),
        {"activation": "Celu", "activation_alpha": 2.0},
    ),
    "selu": (
        lambda x: 0.5 * np.where(x <= 0, 2 * np.expm1(x), x),
        {"activation": "Selu", "activation_alpha": 2.0, "activation_gamma": 0.5},
    ),
}


def _cases() -> list[Case]:
    cases = [Case(name, "MatMul", shapes, np.matmul) for name, shapes in MATMULS.items()]
    cases += [
        Case(name, "MatMul", MATMULS[name], np.matmul, dtype=dtype)
        for dtype in (np.float16, BFLOAT16, np.float64, np.int32, np.int64, np.uint32, np.uint64)
        for name in ("ragged", "row", "broadcast_both")
    ]
    cases += [
        Case(f"{n}_constant", "MatMul", MATMULS[n], np.matmul, constants=(1,)) for n in ("ragged", "row", "shared_b")
    ]
    cases += [Case(name, "Gemm", shapes, want, attributes) for name, (want, attributes, shapes) in GEMMS.items()]
    cases += [
        Case(name, "Gemm", GEMMS[name][2], GEMMS[name][0], GEMMS[name][1], dtype=dtype)
        for dtype in (np.float16, BFLOAT16, np.float64, np.int32)
        for name in ("row_c", "column_c", "trans_both", "one_row")
    ]
    cases += [
        Case(name, "FusedMatMul", shapes, want, attributes, domain="com.microsoft")
        for name, (want, attributes, shapes) in CONTRIB.items()
    ]
    cases += [
        Case(name, "FusedMatMul", shapes, want, attributes, dtype, domain="gossamer")
        for name, (want, attributes, shapes) in FUSED.items()
        for dtype in (np.float32, np.float16)
    ]
    layer = ((20, 30), (30, 12), (12,))
    cases += [
        Case(name, "FusedGemm", layer, fused(function), attributes, domain="com.microsoft")
        for name, (function, attributes) in ACTIVATED.items()
    ]
    return cases


CASES = _cases()

LARGE = [
    # Too much for the interpreter.
    Case(name, "MatMul", shapes, np.matmul, dtype=dtype)
    for name, shapes in {
        "large_tiles": ((1024, 512), (512, 4096)),
        "ragged_tiles": ((1000, 515), (515, 1003)),
        "split_k": ((64, 8192), (8192, 64)),
        "few_rows": ((7, 2048), (2048, 1000)),
        "one_row": ((1, 2048), (2048, 1000)),
        "long_row": ((1, 200_000), (200_000, 10)),
        "attention": ((4, 12, 197, 64), (4, 12, 64, 197)),
    }.items()
    for dtype in (np.float16, BFLOAT16, np.float32, np.float64)
]

COMPILED = [
    # One specialisation of each kernel for each dtype: M, N, K, dtype, and what follows the product.
    *((128, 256, 512, dtype, {"activation": "gelu"}) for dtype in (np.float16, BFLOAT16, np.float32)),
    *((64, 48, 40, dtype, {}) for dtype in (np.float64, np.int32, np.int64)),
    *((1, 1000, 2048, dtype, {}) for dtype in (np.float16, BFLOAT16, np.float32, np.float64, np.int64)),
    # These split K.
    *((64, 64, 8192, dtype, {"activation": "relu"}) for dtype in (np.float16, BFLOAT16, np.float32, np.float64)),
]


def compiled_model(m: int, n: int, k: int, dtype: Any, attributes: Mapping[str, Any]) -> Any:
    shapes = ((m, k), (k, n), (n,), (m, n))
    inputs = [np.zeros(shape, dtype) for shape in shapes]
    types = [(harness.tensor_type(inputs[0]), (m, n))]
    return harness.node_model("FusedMatMul", inputs, attributes, domain="gossamer", output_types=types)
