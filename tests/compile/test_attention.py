"""Attention kernels compile for every architecture."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import harness
from cases.attention import CASES, fused, grouped, packed_weights
from cases.bias_softmax import CASES as BIAS_SOFTMAX
from cases.node_case import NodeCase
from cases.references import floats
from cases.rotary import CASES as ROTARY

BERT = fused("bert", (8, 12, 12, 128, 128, 64, 64), "float16", bias=floats("8", (8, 1, 1, 128), "float16"))
DECODING = fused("decode", (2, 32, 8, 1, 5000, 128, 128), "bfloat16", scale=0.09)
SINGLE = fused("float32", (2, 12, 12, 256, 256, 80, 96), scale=0.125, causal=1)
DOUBLE = fused("float64", (1, 4, 4, 40, 40, 32, 32), "float64", causal=1)


def functions(case: NodeCase) -> dict[str, harness.Kernel]:
    return {kernel.function: kernel for kernel in harness.kernels_of(case.model())}


def test_attention_compiles_for_every_architecture() -> None:
    kernels = [kernel for case in (BERT, DECODING, SINGLE, DOUBLE) for kernel in functions(case).values()]
    assert {"attention_kernel", "combine_splits_kernel"} == {kernel.function for kernel in kernels}
    harness.compile_all(tuple(dict.fromkeys(kernels)))


def test_what_surrounds_attention_compiles() -> None:
    """Caches, scores and masks."""
    every = grouped(
        "all", 2, 12, [8], do_rotary=1, local_window_size=3, softcap=2.0, smooth_softmax=1, n_outputs=4, qk_output=2
    )
    bounds = packed_weights("bounds", np.int32([3, 5, 1, 2]))
    quantised = next(case for case in CASES if case.op_type == "QAttention")
    cases = (every, bounds, ROTARY[-1], BIAS_SOFTMAX[-1], quantised)
    kernels = {name: kernel for case in cases for name, kernel in functions(case).items()}
    expected = {"append_kernel", "scores_kernel", "between_kernel", "rotate_kernel", "dequantize_kernel"}
    assert {"attention_kernel"} | expected <= set(kernels)
    harness.compile_all(tuple(kernels.values()))


def test_wide_heads_compile_where_shared_memory_is_small() -> None:
    wide = fused("wide", (4, 8, 8, 300, 300, 256, 256), "float16", causal=1)
    kernels = harness.lower_model(wide.model(), harness.Target.named("sm_89"))[0].kernels
    harness.compile_all(tuple(replace(kernel) for kernel in kernels), (89,))
