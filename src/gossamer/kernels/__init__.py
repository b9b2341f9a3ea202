"""Triton kernels by family. In each file kernel, launch choice and lowering stand together.

A lowering is a function `(node, target) -> tuple[Call, ...] | Refusal`, registered with `@lowers`; `launch` turns a
kernel and its arguments into a Launch. Annotations are strings here as everywhere in the package: Triton recognises a
constexpr by the text `tl.constexpr`, so it must be written so.
"""

from __future__ import annotations

from gossamer.kernels.launch import Address, NoSuchElements, launch
from gossamer.kernels.registry import Lowered, find, lowers, registered

FAMILIES = (
    "arg_reduction",
    "attention_operators",
    "attention_packed",
    "batch_normalization",
    "bias_softmax",
    "convolution",
    "convolution_transpose",
    "cumulative",
    "einsum",
    "elementwise",
    "generators",
    "hardmax",
    "indexing",
    "lrn",
    "matmul",
    "movement",
    "normalization_contrib",
    "normalization_operators",
    "padding",
    "pooling",
    "quantization",
    "quantized_convolution",
    "quantized_matmul",
    "recurrent",
    "recurrent_quantized",
    "reduction",
    "resize",
    "rotary",
    "scatter",
    "softmax",
    "tensor_scatter",
    "transpose",
)
"""The modules that register lowerings; `find` and `registered` import them when first asked."""

__all__ = ["FAMILIES", "Address", "Lowered", "NoSuchElements", "find", "launch", "lowers", "registered"]
