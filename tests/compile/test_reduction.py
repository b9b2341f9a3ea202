"""Reductions compile for every architecture."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import harness
from cases.reduction import case


def test_every_dtype_compiles_for_every_architecture() -> None:
    kernels = []
    for dtype in ("float16", ml_dtypes.bfloat16, "float32", "float64", "int32", "uint64"):
        kernels += harness.kernels_of(case("Mean", "rows", np.zeros((8, 300), dtype), (1,)).model())
        kernels += harness.kernels_of(case("LogSumExp", "long", np.zeros((2, 10**6), dtype), (1,)).model())
    for op, x, axes in (
        ("Max", np.zeros((9, 40), bool), (0,)),
        ("Prod", np.zeros((9, 40), np.float32), (0,)),
        ("Min", np.zeros((4, 7, 7, 64), np.float16), (1, 2)),
        ("L2", np.zeros((4, 16, 8, 8), np.float16), (0, 2, 3)),
    ):
        kernels += harness.kernels_of(case(op, "shapes", x, axes).model())
    harness.compile_all(tuple(dict.fromkeys(kernels)))
