"""LRN compiles for every architecture."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import harness
from cases.lrn import case


def test_every_dtype_compiles_for_every_architecture() -> None:
    dtypes = ("float16", ml_dtypes.bfloat16, "float32", "float64")
    kernels = [k for dtype in dtypes for k in harness.kernels_of(case("", np.zeros((2, 32, 9, 9), dtype), 5).model())]
    harness.compile_all(tuple(dict.fromkeys(kernels)))
