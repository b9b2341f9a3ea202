"""The rotary embedding and the mixed types of norms that passes make compile for every architecture."""

from __future__ import annotations

import harness
from cases.fused_norms import CASES

CHOSEN = (
    "LayerNormalization-bias_alone",
    "LayerNormalization-fp32_parameters",
    "RMSNormalization-fp32_scale",
    "SkipLayerNormalization-rank_4",
    "RotaryEmbedding-a_table_for_all",
    "RotaryEmbedding-fp32_tables",
)


def test_every_form_compiles_for_every_architecture() -> None:
    kernels = [kernel for node in CASES if node.name in CHOSEN for kernel in harness.kernels_of(node.model())]
    assert {kernel.function for kernel in kernels} == {"normalize_kernel", "rotate_kernel"}
    harness.compile_all(tuple(dict.fromkeys(kernels)))
