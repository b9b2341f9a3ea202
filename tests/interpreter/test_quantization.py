"""QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear in the interpreter, against NumPy and onnxruntime."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version

import ml_dtypes
import numpy as np
import pytest

from cases.narrow_types import NARROW
from cases.node_case import NodeCase
from cases.quantization import CASES, dequantize_case, quantize_case
from gossamer.errors import UnsupportedModel
from harness import run_model


@pytest.mark.parametrize("node", CASES, ids=str)
def test_quantization(node: NodeCase) -> None:
    node.check("interpreter")


@pytest.mark.parametrize("node", CASES, ids=str)
def test_quantization_with_the_launches_of_a_gpu(node: NodeCase) -> None:
    """A GPU's quotients are corrected by remainders, for which the interpreter before Triton 3.9 has no fma."""
    if "middles" in node.name and tuple(map(int, version("triton").split(".")[:2])) < (3, 9):
        pytest.skip("needs an interpreter whose fma rounds once: Triton 3.9")
    node.check("sm_90")


def _known_to_onnxruntime(node: NodeCase) -> bool:
    """Its bindings know NumPy's own types; it does not quantise integers."""
    types = [array.dtype for array in (*node.inputs, *node.expected()) if array is not None]
    known = all(dtype.name not in (*NARROW, "bfloat16") for dtype in types)
    return known and not (node.op_type == "QuantizeLinear" and types[0] == np.int32)


@pytest.mark.parametrize("node", [node for node in CASES if _known_to_onnxruntime(node)], ids=str)
def test_onnxruntime_agrees(node: NodeCase) -> None:
    replace(node, want=None).check("interpreter")


@pytest.mark.parametrize("opset", [10, 13, 19, 23])
def test_other_versions(opset: int) -> None:
    x, scale, zero = np.float32([[-7, 0.1, 3]]), np.array(0.1, np.float32), np.array(100, np.uint8)
    replace(quantize_case("version", x, scale, zero), opset=opset, want=None).check("interpreter")
    levels = np.uint8([[1, 100, 255]])
    replace(dequantize_case("version", levels, scale, zero), opset=opset, want=None).check("interpreter")


def test_what_has_no_kernel_is_refused_with_its_types() -> None:
    node = dequantize_case("input", np.ones((2, 2), np.int8), np.array(1, np.float32), None)
    powers = replace(node, inputs=[np.ones((2, 2), ml_dtypes.float8_e8m0fnu), np.array(1, np.float32)])
    with pytest.raises(UnsupportedModel, match="DequantizeLinear from float8_e8m0fnu"):
        run_model(powers.model(), powers.feeds())


def test_scales_that_fit_no_granularity_are_refused() -> None:
    node = quantize_case("misfit", np.ones((3, 4), np.float32), np.array(1, np.float32), None)
    misfit = replace(node, inputs=[np.ones((3, 4), np.float32), np.ones(3, np.float32)])
    with pytest.raises(UnsupportedModel, match="3 scales do not fit axis 1"):
        run_model(misfit.model(), misfit.feeds())
