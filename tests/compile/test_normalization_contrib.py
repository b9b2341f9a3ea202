"""GroupNorm and SkipGroupNorm compile for every architecture, resident and in parts."""

from __future__ import annotations

import harness
from cases.normalization_contrib import CASES, LARGE

SMALL = ("GroupNorm-silu", "GroupNorm-bfloat16", "SkipGroupNorm-whole", "SkipGroupNorm-a_group_per_channel")


def test_every_form_compiles_for_every_architecture() -> None:
    nodes = [node for node in CASES if node.name in SMALL] + LARGE
    kernels = [kernel for node in nodes for kernel in harness.kernels_of(node.model())]
    assert {kernel.function for kernel in kernels} == {
        "normalize_kernel",
        "moments_kernel",
        "combine_moments_kernel",
        "normalize_from_moments_kernel",
    }
    harness.compile_all(tuple(dict.fromkeys(kernels)))
