"""Norms compile for every architecture."""

from __future__ import annotations

import numpy as np

import harness
from cases import batch_normalization as batch
from cases.normalization import CASES, LARGE, instance_norm, layer_norm
from cases.references import FLOAT_DTYPES, floats

SHAPES = ("GroupNormalization-unet", "InstanceNormalization-style-channels_last")
OUTPUTS = (
    "SkipLayerNormalization-outputs",
    "LpNormalization-axis_0-p_1",
    "SimplifiedLayerNormalization-inverse",
    "LayerNormalization-scale_of_rows",
)


def test_every_dtype_compiles_for_every_architecture() -> None:
    nodes = [layer_norm(dtype, (8, 16, 100), -1, dtype) for dtype in FLOAT_DTYPES]
    nodes += [layer_norm(f"long-{dtype}", (3, 100_001), -1, dtype) for dtype in FLOAT_DTYPES]
    nodes += [batch.case(dtype, floats("batch", (2, 16, 5, 5), dtype)) for dtype in FLOAT_DTYPES]
    nodes += [node for node in [*CASES, *LARGE, *batch.CASES] if node.name in SHAPES or node.name in OUTPUTS]
    nodes.append(batch.training("training", np.zeros((4, 8, 9, 9), np.float32)))
    nodes.append(batch.old_training("training_before_14", np.zeros((4, 8, 9, 9), np.float32)))
    nodes += [instance_norm(dtype, np.zeros((4, 64, 150, 150), dtype)) for dtype in FLOAT_DTYPES]
    kernels = [kernel for node in nodes for kernel in harness.kernels_of(node.model())]
    assert {kernel.function for kernel in kernels} == {
        "normalize_kernel", "moments_kernel", "normalize_from_moments_kernel", "batch_normalization_kernel",
        "running_average_kernel", "normalize_cached_rows_kernel", "copy_strided_kernel",
    }  # fmt: skip
    harness.compile_all(tuple(dict.fromkeys(kernels)))
