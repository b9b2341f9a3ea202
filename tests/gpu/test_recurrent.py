"""RNN, LSTM and GRU on the GPU: the interpreter's cases, and sizes for every plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cases.node_case import NodeCase
from cases.recurrent import CASES, LARGE


@pytest.mark.parametrize("node", CASES, ids=str)
def test_recurrent(node: NodeCase) -> None:
    _check(node)


@pytest.mark.parametrize("name", LARGE)
def test_every_plan(name: str) -> None:
    _check(LARGE[name].case(name))


def _check(node: NodeCase) -> None:
    x = node.inputs[0]
    assert x is not None
    assert node.rtol is not None
    tf32 = 2.0**-9 if x.dtype == "float32" else 0.0  # operands of products lose bits
    replace(node, rtol=node.rtol + tf32).check("cuda")
