"""ONNX's own node tests, on the GPU."""

from __future__ import annotations

import pytest

from cases.onnx_node_tests import NodeTest, cases


@pytest.mark.parametrize("test", cases("cuda"))
def test_onnx_node_test(test: NodeTest) -> None:
    test.check("cuda")
