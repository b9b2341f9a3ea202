"""Pools in the interpreter, against onnxruntime or NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from cases.node_case import NodeCase
from cases.pooling import CASES, LAST, case
from gossamer.errors import UnsupportedModel
from harness import SMALL_GPU


@pytest.mark.parametrize("node", CASES, ids=str)
def test_pool(node: NodeCase) -> None:
    node.check("interpreter")


@pytest.mark.parametrize("node", LAST, ids=str)
def test_pool_with_channels_last(node: NodeCase) -> None:
    node.check("interpreter")


@pytest.mark.parametrize("node", [node for node in (*CASES, *LAST) if "-many" in node.name], ids=str)
def test_pool_with_the_launches_of_a_gpu(node: NodeCase) -> None:
    node.check(SMALL_GPU)


def test_four_spatial_dimensions_are_refused() -> None:
    node = case("MaxPool", "4d", np.zeros((1, 1, 3, 3, 3, 3), np.float32), kernel_shape=[2] * 4, want=np.zeros(16))
    with pytest.raises(UnsupportedModel, match="4 spatial dimensions; windows have one to three"):
        node.check("interpreter")
