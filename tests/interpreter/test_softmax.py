"""Softmax and its kin in the interpreter, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from cases.node_case import NodeCase
from cases.references import floats
from cases.softmax import CASES, case
from gossamer.kernels import reduction_geometry, softmax
from gossamer.kernels.reduction_geometry import Geometry, Tile, resident_tile
from gossamer.program import Target


@pytest.mark.parametrize("node", CASES, ids=str)
def test_softmax(node: NodeCase) -> None:
    node.check("interpreter")


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_rows_in_parts_give_the_same(op: str, axis: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No row is resident, and parts have several blocks or none."""
    monkeypatch.setattr(reduction_geometry, "RESIDENT", 0)
    monkeypatch.setattr(softmax, "tile_for", lambda *_, **__: Tile(2, 4, 2))
    monkeypatch.setattr(softmax, "PARTIALS", 12)
    x = floats("parts", (9, 27, 10), low=-9, high=9)
    x[0, 3, :5] = -np.inf
    x[1, 0, 0] = np.inf
    x[2, 2, 2] = np.nan
    x[3] = -np.inf
    case(op, "parts", x, axis=axis).check("interpreter")


def test_rows_that_fit_registers_are_read_once() -> None:
    target = Target.named("sm_90")
    assert resident_tile(Geometry(4096, 1, 1, 768, 1), 2, target) is not None
    assert resident_tile(Geometry(4096, 1, 1, 16384, 1), 2, target) is not None
    assert resident_tile(Geometry(4096, 1, 1, 16385, 1), 2, target) is None
    assert resident_tile(Geometry(1, 1, 1, 16384, 1), 2, target) is None, "one program would do all the work"
    assert resident_tile(Geometry(8, 1, 1, 64, 3136), 2, target) is not None
