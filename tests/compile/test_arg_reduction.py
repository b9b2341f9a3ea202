"""ArgMax and ArgMin compile for every architecture."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import harness
from cases.arg_reduction import case


def test_every_dtype_compiles_for_every_architecture() -> None:
    kernels = []
    for dtype in ("float16", ml_dtypes.bfloat16, "float32", "float64", "int32", "uint64"):
        kernels += harness.kernels_of(case("ArgMax", "rows", np.zeros((8, 300), dtype), axis=1).model())
    split = case("ArgMin", "split", np.zeros((2, 300_000), np.float16), axis=1, select_last_index=1)
    both = harness.kernels_of(split.model())
    assert len(both) == 2
    harness.compile_all(tuple(dict.fromkeys([*kernels, *both])))
