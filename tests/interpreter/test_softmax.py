"""Softmax and its kin in the interpreter, against onnxruntime. (R6)"""

from __future__ import annotations

import numpy as np
import pytest

from cases.node_case import NodeCase
from cases.references import floats
from cases.softmax import CASES, case
from gossamer.kernels import reduction_geometry, softmax
from gossamer.kernels.reduction_geometry import Geometry, Tile, resident_tile
from gossamer.program import Target


def special(shape: tuple[int, int, int]) -> np.ndarray:
    """Infinities, NaN, and rows of minus infinity."""
    x = floats("special", shape, low=-9, high=9)
    x[0, shape[1] - 1, :5] = -np.inf
    x[1, 0, 0] = np.inf
    x[2, 2, 2] = np.nan
    x[3] = -np.inf
    x[4, 1, -1] = np.inf
    x[5, 1, -1] = np.nan
    return x


@pytest.mark.parametrize("node", CASES, ids=str)
def test_softmax(node: NodeCase) -> None:
    node.check("interpreter")


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_rows_in_parts_give_the_same(op: str, axis: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No row is resident, and parts have several blocks or none."""
    monkeypatch.setattr(reduction_geometry, "RESIDENT", 0)
    monkeypatch.setattr(reduction_geometry, "CACHED_ROW", 0)
    monkeypatch.setattr(softmax, "streaming_tile", lambda *_: Tile(4, 2, 4, unroll=2))
    monkeypatch.setattr(softmax, "part_tile", lambda *_: Tile(4, 8, 4))
    monkeypatch.setattr(softmax, "PARTIALS", 100)
    case(op, "parts", special((9, 27, 10)), axis=axis).check("interpreter")


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("steps", [17, 32, 43, 100])
def test_rows_read_twice_give_the_same(op: str, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows at every distance from a whole vector."""
    monkeypatch.setattr(reduction_geometry, "RESIDENT", 0)
    monkeypatch.setattr(softmax, "cached_rows", lambda *_: (Tile(1, 16, 1, unroll=2), 4))
    x = special((9, 3, steps))
    case(op, "cached", x).check("interpreter")
    case(op, "cached_float16", x.astype(np.float16)).check("interpreter")


@pytest.mark.parametrize("shape", [(133, 16390), (2, 20001), (2, 9000, 7)], ids=str)
def test_launches_of_a_gpu(shape: tuple[int, ...]) -> None:
    case("Softmax", "gpu", floats("gpu", shape, "float16", low=-9, high=9), axis=1).check("sm_90")


def test_rows_that_fit_registers_are_read_once() -> None:
    target = Target.named("sm_90")
    assert resident_tile(Geometry(4096, 1, 1, 768, 1), 2, target) is not None
    assert resident_tile(Geometry(4096, 1, 1, 16384, 1), 2, target) is not None
    assert resident_tile(Geometry(4096, 1, 1, 16385, 1), 2, target) is None
    assert resident_tile(Geometry(1, 1, 1, 16384, 1), 2, target) is None, "one program would do all the work"
    assert resident_tile(Geometry(8, 1, 1, 64, 3136), 2, target) is not None
