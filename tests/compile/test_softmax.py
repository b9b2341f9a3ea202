"""Softmax kernels compile for every architecture."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import harness
from cases.softmax import case


def test_every_dtype_compiles_for_every_architecture() -> None:
    kernels = []
    for dtype in ("float16", ml_dtypes.bfloat16, "float32", "float64"):
        kernels += harness.kernels_of(case("Softmax", "rows", np.zeros((8, 300), dtype)).model())
        kernels += harness.kernels_of(case("LogSoftmax", "vocabulary", np.zeros((2, 50_000), dtype)).model())
        kernels += harness.kernels_of(case("Softmax", "odd", np.zeros((200, 30_257), dtype)).model())
    kernels += harness.kernels_of(case("Softmax", "channels", np.zeros((4, 64, 1000), np.float64), axis=0).model())
    kernels += harness.kernels_of(case("Hardmax", "rows", np.zeros((8, 300), np.float16)).model())
    names = {kernel.function for kernel in kernels}
    assert {"softmax_kernel", "softmax_partials_kernel", "softmax_from_partials_kernel"} <= names
    assert {"softmax_cached_rows_kernel", "one_hot_rows_kernel"} <= names
    harness.compile_all(tuple(dict.fromkeys(kernels)))
