"""Cases of LRN. onnxruntime has odd sizes on four dimensions only; the operator's text in NumPy has them all."""

from __future__ import annotations

import numpy as np

from cases.node_case import NodeCase
from cases.references import FLOAT_DTYPES, channels_last, floats


def _lrn(x: np.ndarray, size: int, alpha: float, beta: float, bias: float) -> np.ndarray:
    before, behind = (size - 1) // 2, size // 2
    squares = x.astype(np.float64) ** 2
    sums = [squares[:, max(0, c - before) : c + behind + 1].sum(1) for c in range(x.shape[1])]
    return (x / (bias + alpha / size * np.stack(sums, 1)) ** beta).astype(x.dtype)


def case(detail: str, x: np.ndarray, size: int, alpha: float = 0.5, beta: float = 0.75, bias: float = 1.5) -> NodeCase:
    attributes = {"size": size, "alpha": alpha, "beta": beta, "bias": bias}
    # beta and alpha are fp32 in ONNX; those here are exact in it.
    return NodeCase(f"LRN-{detail}", "LRN", [x], attributes, 13, want=lambda: [_lrn(x, size, alpha, beta, bias)])


def _cases() -> list[NodeCase]:
    x = floats("lrn", (2, 6, 3, 4), low=-3, high=3)
    cases = [case(f"size_{size}", x, size) for size in (1, 2, 3, 4, 5, 7, 20)]
    cases += [case(dtype, floats("lrn", (1, 5, 4), dtype), 3) for dtype in FLOAT_DTYPES]
    cases += [channels_last(case("size_4", x, 4)), channels_last(case("half", floats("lrn", (2, 8, 5), "float16"), 5))]
    zeros = floats("zeros", (2, 5, 3))
    zeros[:, 2:] = 0
    cases += [case(f"zero_base-beta_{beta}", zeros, 3, 1.0, beta, 0.0) for beta in (0.0, -1.0)]
    cases.append(case("large_bias", x, 3, 1.0, 3.25, 2.0**30))
    return [*cases, case("beta_half", floats("lrn", (3, 7)), 3, 1.0, 0.5, 1.0)]


CASES = _cases()
LARGE = [case("alexnet-float16", floats("large", (8, 96, 55, 55), "float16"), 5)]
