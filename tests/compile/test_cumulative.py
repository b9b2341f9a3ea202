"""Scans compile for every architecture."""

from __future__ import annotations

import numpy as np

import harness
from cases.cumulative import axis_as_feed, case


def test_every_dtype_compiles_for_every_architecture() -> None:
    kernels = []
    for dtype in ("float16", "float32", "float64", "int32"):
        kernels += harness.kernels_of(case("CumSum", "rows", np.zeros((8, 300), dtype), 1, 1).model())
    kernels += harness.kernels_of(case("CumSum", "parts", np.zeros((1, 10**6), np.float32), 1).model())
    kernels += harness.kernels_of(case("CumProd", "columns", np.zeros((300, 64), np.float32), 0, 0, 1).model())
    kernels += harness.kernels_of(axis_as_feed(case("CumSum", "feed", np.zeros((9, 300), np.float32), 1)).model())
    harness.compile_all(tuple(dict.fromkeys(kernels)))
