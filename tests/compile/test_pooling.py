"""Pools compile for every architecture."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import harness
from cases.pooling import CASES, case
from cases.references import channels_last


def test_every_dtype_compiles_for_every_architecture() -> None:
    window = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 0, 0, 1]}
    kernels = []
    for dtype in ("float16", ml_dtypes.bfloat16, "float32", "float64", "int8"):
        kernels += harness.kernels_of(case("MaxPool", "dtype", np.zeros((2, 16, 9, 9), dtype), **window).model())
    half = np.zeros((2, 16, 9, 9), np.float16)
    for node in (
        channels_last(case("AveragePool", "last", half, count_include_pad=1, **window)),
        case("LpPool", "powers", half, p=3, **window),
        case("MaxPool", "indices", half, n_outputs=2, **window),
        case("MaxPool", "wide", half, kernel_shape=[7, 7], pads=[3] * 4),
        *(node for node in CASES if node.op_type == "MaxUnpool"),
    ):
        kernels += harness.kernels_of(node.model())
    harness.compile_all(tuple(dict.fromkeys(kernels)))
