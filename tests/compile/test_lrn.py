"""LRN compiles for every architecture."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import harness
from cases.lrn import case
from cases.references import channels_last


def test_every_dtype_compiles_for_every_architecture() -> None:
    dtypes = ("float16", ml_dtypes.bfloat16, "float32", "float64")
    nodes = [case("", np.zeros((2, 32, 9, 9), dtype), 5) for dtype in dtypes]
    kernels = [
        k for node in nodes for layout in (node, channels_last(node)) for k in harness.kernels_of(layout.model())
    ]
    assert {kernel.function for kernel in kernels} == {"lrn_planes_kernel", "lrn_kernel"}
    harness.compile_all(tuple(dict.fromkeys(kernels)))
