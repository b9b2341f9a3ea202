"""CumSum and CumProd in the interpreter, against NumPy and, for CumSum, onnxruntime."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cases.cumulative import CASES, case
from cases.node_case import NodeCase
from cases.references import factors, floats
from gossamer.kernels import cumulative
from gossamer.kernels.reduction_geometry import Tile


@pytest.mark.parametrize("node", CASES, ids=str)
def test_scan(node: NodeCase) -> None:
    node.check("interpreter")


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_onnxruntime_agrees(exclusive: int, reverse: int) -> None:
    node = case("CumSum", "onnxruntime", floats("onnxruntime", (3, 20)), 1, exclusive, reverse)
    replace(node, want=None).check("interpreter")


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("op", ["CumSum", "CumProd"])
@pytest.mark.parametrize("axis", [0, 1])
def test_rows_in_parts_give_the_same(
    op: str, axis: int, exclusive: int, reverse: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of several blocks, and a last one with fewer or none."""
    monkeypatch.setattr(cumulative, "tile_for", lambda *_, **__: Tile(2, 4, 2))
    monkeypatch.setattr(cumulative, "splits_for", lambda *_: 5)
    case(op, "parts", floats("parts", (29, 27), low=0.9, high=1.1), axis, exclusive, reverse).check("interpreter")


@pytest.mark.parametrize(("shape", "axis"), [((1500, 540), 0), ((3, 70, 1040), 1), ((1, 40_020), 1)], ids=str)
@pytest.mark.parametrize(("op", "exclusive", "reverse"), [("CumSum", 0, 0), ("CumSum", 1, 1), ("CumProd", 1, 0)])
def test_tiles_of_a_gpu(op: str, shape: tuple[int, ...], axis: int, exclusive: int, reverse: int) -> None:
    x = floats("gpu", shape, "float16", low=0, high=0.5) if op == "CumSum" else factors("gpu", shape)
    case(op, "gpu", x, axis, exclusive, reverse).check("sm_90")
