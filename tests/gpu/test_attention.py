"""Attention on the GPU: the interpreter's cases, and larger ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cases.attention import CASES, LARGE
from cases.bias_softmax import CASES as BIAS_SOFTMAX
from cases.node_case import NodeCase
from cases.rotary import CASES as ROTARY


def in_tf32(case: NodeCase) -> NodeCase:
    """Products of fp32 round their operands to ten bits of mantissa, twice in a row."""
    single = all(x is None or x.dtype.kind != "f" or x.dtype == np.float32 for x in case.inputs)
    return replace(case, rtol=4e-3) if single else case


@pytest.mark.parametrize("case", [*CASES, *LARGE], ids=str)
def test_attention(case: NodeCase) -> None:
    in_tf32(case).check("cuda")


@pytest.mark.parametrize("case", [*ROTARY, *BIAS_SOFTMAX], ids=str)
def test_rotary_and_bias_softmax(case: NodeCase) -> None:
    case.check("cuda")
