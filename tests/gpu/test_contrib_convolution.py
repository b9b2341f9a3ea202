"""com.microsoft's channels-last convolutions on the GPU: the interpreter's cases."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cases.contrib_convolution import CASES
from cases.node_case import NodeCase


@pytest.mark.parametrize("node", CASES, ids=str)
def test_convolution(node: NodeCase) -> None:
    tf32 = node.inputs[0] is not None and node.inputs[0].dtype == np.float32
    replace(node, rtol=5e-3 if tf32 else node.rtol).check("cuda")
