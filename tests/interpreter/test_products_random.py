"""Matrix products with random shapes, transpositions, factors, types and constants, against NumPy in float64 or in
integers that wrap around, and against onnxruntime where it has a kernel for the type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cases.drawing import FLOATS, numpy_dtype, opsets, seeds, types, with_types
from cases.node_case import NodeCase
from examples import examples
from harness import assert_close, ort, run_model, tolerance

many = settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])

SIDES = (0, 1, 1, 2, 3, 5, 8, 17, 33, 70)
ORACLE = ("float32", "float64", "int32", "int64", "uint32", "uint64")
"""Types for which onnxruntime has MatMul; Gemm it has for floats."""


@dataclass(frozen=True)
class Product:
    """A node, its result in float64 or in its integer type, and how large what is added up is."""

    node: NodeCase
    want: np.ndarray
    scale: float
    reduction: int
    onnxruntime_too: bool = True

    def check(self) -> None:
        first = self.node.inputs[0]
        assert first is not None
        want = self.want.astype(self.node.want()[0].dtype if self.node.want else first.dtype)
        (got,) = run_model(with_types(self.node, [want]).model(), self.node.feeds())
        self._compare(got, want)
        if self.onnxruntime_too and first.dtype.name in ORACLE:
            self._compare(ort(self.node.model(), self.node.feeds())[0], want)

    def _compare(self, got: np.ndarray, want: np.ndarray) -> None:
        if got.dtype.name == "bfloat16":  # truncated by Triton's interpreter
            assert_close(got, want, rtol=2 * tolerance("bfloat16", self.reduction), scale=self.scale)
        else:
            assert_close(got, want, self.reduction, scale=self.scale)


def _operand(seed: int, shape: Sequence[int], dtype: str, special: bool) -> np.ndarray:
    """Integers from end to end: sums wrap around. special: NaN and infinities among floats."""
    rng = np.random.default_rng(seed)
    if dtype not in FLOATS:
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    x = rng.standard_normal(shape)
    if special:
        x = np.where(rng.random(shape) < 0.02, rng.choice((np.nan, np.inf, -np.inf, 0.0), shape), x)
    return np.asarray(x).astype(numpy_dtype(dtype))


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64) if x.dtype.name in FLOATS else x


def _scale(*factors: np.ndarray) -> float:
    """The largest |a| · |b| sum, without what is not finite."""
    a, b = (np.nan_to_num(np.abs(_wide(f).astype(np.float64)), nan=0, posinf=0) for f in factors)
    sums = a @ b
    return max(float(np.max(sums, initial=0.0)), 1.0)


def _constants(draw: st.DrawFn, count: int) -> tuple[int, ...]:
    chosen = tuple(i for i in range(count) if draw(st.integers(0, 2)) == 0)
    return chosen if len(chosen) < count else ()


def _stack(draw: st.DrawFn, batch: tuple[int, ...]) -> tuple[int, ...]:
    """Batch dimensions that broadcast with the others': some of them one, the first ones missing."""
    kept = tuple(1 if draw(st.integers(0, 3)) == 0 else n for n in batch)
    return kept[draw(st.integers(0, len(kept))) :]


@st.composite
def matmuls(draw: st.DrawFn) -> Product:
    opset = draw(st.sampled_from(opsets("MatMul")))
    dtype = draw(st.sampled_from(types("MatMul", opset)))
    m, n, k = (draw(st.sampled_from(SIDES)) for _ in range(3))
    batch = tuple(draw(st.lists(st.sampled_from((0, 1, 2, 3)), max_size=6)))
    a_shape, b_shape = (*_stack(draw, batch), m, k), (*_stack(draw, batch), k, n)
    if draw(st.integers(0, 4)) == 0:
        a_shape = (k,)
    if draw(st.integers(0, 4)) == 0:
        b_shape = (k,)
    seed, special = draw(seeds), draw(st.integers(0, 3)) == 0
    a, b = _operand(seed, a_shape, dtype, special), _operand(seed + 1, b_shape, dtype, special)
    with np.errstate(all="ignore"):
        want = np.asarray(np.matmul(_wide(a), _wide(b)))
    node = NodeCase("random", "MatMul", [a, b], {}, opset, _constants(draw, 2))
    return Product(node, want, _scale(a, b), k, k > 0)  # onnxruntime refuses some empty sums


@many
@given(matmuls())
def test_matmul(product: Product) -> None:
    product.check()


ACTIVATIONS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "Relu": lambda x: np.maximum(x, 0),
    "LeakyRelu": lambda x: np.where(x < 0, np.float32(0.01) * x, x),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Tanh": np.tanh,
    "Elu": lambda x: np.where(x < 0, np.expm1(x), x),
    "Celu": lambda x: np.where(x < 0, np.expm1(x), x),
    "Selu": lambda x: np.float32(1.0507) * np.where(x < 0, np.float32(1.6733) * np.expm1(x), x),
    "HardSigmoid": lambda x: np.clip(np.float32(0.2) * x + 0.5, 0, 1),
    "Softplus": lambda x: np.logaddexp(x, 0),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "ThresholdedRelu": lambda x: np.where(x > 1, x, 0),
}


PARAMETERS: Mapping[str, Mapping[str, float]] = {
    "LeakyRelu": {"activation_alpha": 0.01},
    "Elu": {"activation_alpha": 1.0},
    "Celu": {"activation_alpha": 1.0},
    "Selu": {"activation_alpha": 1.6733, "activation_gamma": 1.0507},
    "HardSigmoid": {"activation_alpha": 0.2, "activation_beta": 0.5},
    "ThresholdedRelu": {"activation_alpha": 1.0},
}
"""Written out: onnxruntime has no defaults here."""


@st.composite
def gemms(draw: st.DrawFn) -> Product:
    """Gemm, and com.microsoft::FusedGemm. Integers are multiplied by whole numbers."""
    fused = draw(st.integers(0, 3)) == 0
    opset = draw(st.sampled_from(opsets("Gemm")))
    dtype = draw(st.sampled_from(FLOATS if fused else types("Gemm", opset)))
    m, n, k = (draw(st.sampled_from(SIDES)) for _ in range(3))
    flags = {name: draw(st.integers(0, 1)) for name in ("transA", "transB")}
    seed, special = draw(seeds), draw(st.integers(0, 3)) == 0
    a = _operand(seed, (k, m) if flags["transA"] else (m, k), dtype, special)
    b = _operand(seed + 1, (n, k) if flags["transB"] else (k, n), dtype, special)
    factors = (1.0, 0.5, -1.25, 0.0, 2.0) if dtype in FLOATS else (1.0, 2.0, 0.0, 7.0)
    given = {name: draw(st.sampled_from(factors)) for name in ("alpha", "beta") if draw(st.booleans())}
    alpha, beta = given.get("alpha", 1.0), given.get("beta", 1.0)
    inputs: list[np.ndarray | None] = [a, b]
    with np.errstate(all="ignore"):
        product = (a.T if flags["transA"] else a), (b.T if flags["transB"] else b)
        want = _times(alpha, _wide(product[0]) @ _wide(product[1]))
        if opset < 11 or draw(st.integers(0, 3)):
            shape = draw(st.sampled_from(((m, n), (n,), (1, n), (m, 1), (1, 1), (1,), ())))
            c = _operand(seed + 2, shape, dtype, special)
            inputs.append(c)
            if beta:  # as BLAS has it: with beta = 0 nothing of C remains, not even NaN
                want = want + _times(beta, _wide(c))
    attributes: dict[str, Any] = {name: flag for name, flag in flags.items() if flag or draw(st.booleans())} | given
    scale = _scale(*product) * max(1.0, abs(alpha)) + 4 * abs(beta)
    constants = _constants(draw, len(inputs))
    if not fused:
        finite = all(np.isfinite(x.astype(np.float64)).all() for x in inputs if x is not None)
        node = NodeCase("random", "Gemm", inputs, attributes, opset, constants)
        return Product(node, want, scale, k, dtype in ("float32", "float64") and (finite or alpha != 0) and k > 0)
    kind = draw(st.sampled_from(tuple(ACTIVATIONS)))
    with np.errstate(all="ignore"):
        want = ACTIVATIONS[kind](want)
    attributes["activation"] = kind
    attributes |= PARAMETERS.get(kind, {})
    node = NodeCase("random", "FusedGemm", inputs, attributes, opset, constants, domain="com.microsoft")
    known = dtype == "float32" and not special and k > 0 and kind in ("Relu", "Tanh", "Sigmoid", "LeakyRelu")
    return Product(node, want, scale, k, known)


def _times(factor: float, x: np.ndarray) -> np.ndarray:
    return x * factor if x.dtype.kind == "f" else x * x.dtype.type(int(factor))


@many
@given(gemms())
def test_gemm(product: Product) -> None:
    product.check()


@st.composite
def contrib_matmuls(draw: st.DrawFn) -> Product:
    """com.microsoft::FusedMatMul: transBatch moves the first axis in front of the last two, trans swaps these."""
    dtype = draw(st.sampled_from(FLOATS))
    m, n, k = (draw(st.sampled_from(SIDES)) for _ in range(3))
    batch = tuple(draw(st.lists(st.sampled_from((1, 2, 3)), max_size=3)))
    alpha = draw(st.sampled_from((1.0, 0.125, -2.5)))
    flags = {name: draw(st.integers(0, 1)) for name in ("transA", "transB")}
    if batch:
        flags |= {name: draw(st.integers(0, 1)) for name in ("transBatchA", "transBatchB")}
    seed = draw(seeds)
    a = _laid_out(seed, (*batch, m, k), dtype, flags.get("transBatchA", 0), flags["transA"])
    b = _laid_out(seed + 1, (*batch, k, n), dtype, flags.get("transBatchB", 0), flags["transB"])
    seen = [_seen(x, flags.get(f"transBatch{name}", 0), flags[f"trans{name}"]) for x, name in ((a, "A"), (b, "B"))]
    want = alpha * (_wide(seen[0]) @ _wide(seen[1]))
    attributes = {name: flag for name, flag in flags.items() if flag or draw(st.booleans())} | {"alpha": alpha}
    node = NodeCase("random", "FusedMatMul", [a, b], attributes, 21, _constants(draw, 2), domain="com.microsoft")
    return Product(node, want, _scale(*seen) * max(1.0, abs(alpha)), k, dtype == "float32" and k > 0)


def _seen(x: np.ndarray, batch_moved: int, swapped: int) -> np.ndarray:
    """The stack of matrices that an operand is."""
    x = np.moveaxis(x, 0, -2) if batch_moved else x
    return x.swapaxes(-1, -2) if swapped else x


def _laid_out(seed: int, shape: tuple[int, ...], dtype: str, batch_moved: int, swapped: int) -> np.ndarray:
    """An operand that is seen as a stack of `shape`."""
    if swapped:
        shape = (*shape[:-2], shape[-1], shape[-2])
    if batch_moved:
        shape = (shape[-2], *shape[:-2], shape[-1])
    return _operand(seed, shape, dtype, False)


@many
@given(contrib_matmuls())
def test_contrib_matmul(product: Product) -> None:
    product.check()


@st.composite
def integer_matmuls(draw: st.DrawFn) -> Product:
    """MatMulInteger, 1-D operands among them, with zero points for the tensor, per row of A, per column of B."""
    a_type, b_type = (draw(st.sampled_from(("int8", "uint8"))) for _ in range(2))
    m, n, k = (draw(st.sampled_from(SIDES)) for _ in range(3))
    batch = tuple(draw(st.lists(st.sampled_from((0, 1, 2, 3)), max_size=4)))
    a_shape, b_shape = (*_stack(draw, batch), m, k), (*_stack(draw, batch), k, n)
    if draw(st.integers(0, 4)) == 0:
        a_shape = (k,)
    if draw(st.integers(0, 4)) == 0:
        b_shape = (k,)
    seed = draw(seeds)
    a, b = _operand(seed, a_shape, a_type, False), _operand(seed + 1, b_shape, b_type, False)
    a_zero, b_zero = (draw(_zero_points(x, dtype, axis)) for x, dtype, axis in ((a, a_type, -2), (b, b_type, -1)))
    left = a.astype(np.int32) - _spread(a_zero, (-1, 1))
    right = b.astype(np.int32) - _spread(b_zero, (-1,))
    want = np.asarray(np.matmul(left, right), np.int32)
    inputs: list[np.ndarray | None] = [a, b, a_zero, b_zero]
    while inputs[-1] is None:
        inputs.pop()
    constants = _constants(draw, len(inputs))
    node = NodeCase("random", "MatMulInteger", inputs, {}, 10, constants, want=lambda: [want])
    return Product(node, want, 1.0, k, False)


@st.composite
def _zero_points(draw: st.DrawFn, x: np.ndarray, dtype: str, axis: int) -> np.ndarray | None:
    kinds: list[tuple[int, ...] | None] = [None, (), (1,)]
    if x.ndim >= 2 and x.shape[axis] > 1:
        kinds.append((x.shape[axis],))
    shape = draw(st.sampled_from(kinds))
    return None if shape is None else _operand(draw(seeds), shape, dtype, False)


def _spread(zero: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray:
    """A zero point as it is taken from a whole operand, or from its rows or columns."""
    if zero is None:
        return np.zeros((), np.int32)
    return zero.astype(np.int32).reshape(shape if zero.size > 1 else ())


@many
@given(integer_matmuls())
def test_matmul_integer(product: Product) -> None:
    product.check()
