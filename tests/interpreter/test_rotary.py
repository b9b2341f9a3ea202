"""RotaryEmbedding and BiasSoftmax in the interpreter."""

from __future__ import annotations

import pytest

from cases.bias_softmax import CASES as BIAS_SOFTMAX
from cases.node_case import NodeCase
from cases.rotary import CASES as ROTARY


@pytest.mark.parametrize("case", [*ROTARY, *BIAS_SOFTMAX], ids=str)
def test_rotary_and_bias_softmax(case: NodeCase) -> None:
    case.check("interpreter")
