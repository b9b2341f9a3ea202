"""com.microsoft's channels-last convolutions in the interpreter, against NumPy in fp64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cases.contrib_convolution import CASES
from cases.node_case import NodeCase
from gossamer.errors import UnsupportedModel


@pytest.mark.parametrize("node", CASES, ids=str)
def test_convolution(node: NodeCase) -> None:
    node.check("interpreter")


def test_filters_with_channels_first_are_refused() -> None:
    node = CASES[0]
    x, w, b = node.inputs
    assert w is not None
    with pytest.raises(UnsupportedModel, match=r"filters \(16, 8, 3, 3\) are not M, spatial…, 8"):
        replace(node, inputs=[x, np.moveaxis(w, -1, 1).copy(), b]).check("interpreter")
