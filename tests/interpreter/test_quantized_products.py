"""Products and convolutions of 8-bit integers in the interpreter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cases.node_case import NodeCase
from cases.quantized_products import CASES, conv_integer, integer, values
from gossamer.errors import UnsupportedModel
from harness import run_model


@pytest.mark.parametrize("node", CASES, ids=str)
def test_product(node: NodeCase) -> None:
    node.check("interpreter")


def _known_to_onnxruntime(node: NodeCase) -> bool:
    """It saturates sums of uint8 times int8, and has per-row, and ConvInteger's per-channel, zero points not at all."""
    types = {array.dtype.name for array in node.inputs if array is not None}
    types |= {"uint8"} if node.op_type == "DynamicQuantizeMatMul" else set()
    unknown = ("row", "rows", "channel_zeros", "halves", "nothing_to_take_off")
    return not ({"uint8", "int8"} <= types or any(word in node.name for word in unknown))


@pytest.mark.parametrize("node", [node for node in CASES if _known_to_onnxruntime(node)], ids=str)
def test_onnxruntime_agrees(node: NodeCase) -> None:
    replace(node, want=None).check("interpreter")


def test_padding_is_worth_nothing_whatever_the_zero_point() -> None:
    """Zero points at the ends of their ranges, where moving them overflows first."""
    x, w = np.full((1, 1, 2, 2), 255, np.uint8), np.full((1, 1, 3, 3), -128, np.int8)
    pads = {"pads": [2, 2, 2, 2]}
    for zero in (0, 255):
        conv_integer("ends", x, w, np.array(zero, np.uint8), np.array(127, np.int8), pads).check("interpreter")


def test_sums_wrap_around() -> None:
    """ONNX says int32; 2¹⁷ products of 255 · 255 pass 2³¹."""
    a, b = np.full((1, 2**17), 255, np.uint8), np.full((2**17, 1), 255, np.uint8)
    integer("wrap", a, b).check("interpreter")


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (integer("misfit", values("a", "int8", 3, 4), values("b", "int8", 4, 5)), r"shape \[7\] do not fit operand A"),
        (conv_integer("misfit", values("x", "int8", 1, 2, 5), values("w", "int8", 3, 2, 3), None, None, {}), "scalars"),
    ],
    ids=str,
)
def test_zero_points_that_fit_nothing_are_refused(node: NodeCase, reason: str) -> None:
    misfit = replace(node, inputs=[*node.inputs, np.zeros(7, np.int8)])
    with pytest.raises(UnsupportedModel, match=reason):
        run_model(misfit.model(), misfit.feeds())
