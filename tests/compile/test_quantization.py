"""The kernels of QuantizeLinear and its relatives compile for every architecture."""

from __future__ import annotations

import harness
from cases.quantization import CASES, LARGE

NAMES = (
    "QuantizeLinear-types-float16-int8",
    "QuantizeLinear-bfloat16-bfloat16-int8",
    "QuantizeLinear-integers-int32-int8",
    "QuantizeLinear-nibbles-float32-int4",
    "DequantizeLinear-nibbles_in_blocks-uint4-float32",
    "QuantizeLinear-tensor-float32-int2",
    "DequantizeLinear-every-uint2-float32",
    "QuantizeLinear-axis-float32-float8_e4m3fn",
    "QuantizeLinear-blocks-float32-float8_e5m2fnuz",
    "QuantizeLinear-half-float16-float8_e5m2",
    "DequantizeLinear-axis-float8_e4m3fnuz-float16",
    "DequantizeLinear-brain-float8_e5m2-float32",
    "QuantizeLinear-microscaling-float32-float4_e2m1fn",
    "DequantizeLinear-microscaling-float4_e2m1fn-float8_e8m0fnu",
)


def test_every_kernel_compiles_for_every_architecture() -> None:
    nodes = [*LARGE, *(node for node in CASES if node.name in NAMES)]
    assert len(nodes) == len(LARGE) + len(NAMES)
    kernels = tuple(dict.fromkeys(kernel for node in nodes for kernel in harness.kernels_of(node.model())))
    assert {kernel.function for kernel in kernels} == {
        "quantize_linear_kernel",
        "dequantize_linear_kernel",
        "extremes_kernel",
        "dynamic_quantize_kernel",
    }
    harness.compile_all(kernels)
