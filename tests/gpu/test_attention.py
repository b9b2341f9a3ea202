"""Attention on the GPU: the interpreter's cases, and larger ones."""

from __future__ import annotations

import pytest

from cases.attention import CASES, LARGE, SPLIT, in_tf32
from cases.bias_softmax import CASES as BIAS_SOFTMAX
from cases.node_case import NodeCase
from cases.rotary import CASES as ROTARY


@pytest.mark.parametrize("case", [*CASES, *SPLIT, *LARGE], ids=str)
def test_attention(case: NodeCase) -> None:
    in_tf32(case).check("cuda")


@pytest.mark.parametrize("case", [*ROTARY, *BIAS_SOFTMAX], ids=str)
def test_rotary_and_bias_softmax(case: NodeCase) -> None:
    case.check("cuda")
