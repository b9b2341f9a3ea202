"""Reductions in the interpreter, against onnxruntime or NumPy. (R6)"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cases.node_case import NodeCase
from cases.reduction import CASES, case
from cases.references import floats
from gossamer.errors import UnsupportedModel
from gossamer.kernels import reduction
from gossamer.kernels.reduction_geometry import Geometry, Tile, runs_of, splits_for, streaming_tile, tile_for
from gossamer.program import Target


@pytest.mark.parametrize("node", CASES, ids=str)
def test_reduction(node: NodeCase) -> None:
    node.check("interpreter")


@pytest.mark.parametrize("op", ["Sum", "Mean", "Max", "Prod", "L2", "LogSum", "LogSumExp"])
@pytest.mark.parametrize(("shape", "axes"), [((2, 500), (1,)), ((300, 3), (0,)), ((20, 3, 20), (0, 2))], ids=str)
def test_split_rows_give_the_same(
    op: str, shape: tuple[int, ...], axes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small tiles, and more parts than the last one has elements for."""
    monkeypatch.setattr(reduction, "streaming_tile", lambda *_: Tile(2, 8, 2, unroll=2))
    monkeypatch.setattr(reduction, "splits_for", lambda geometry, *_: 7 if geometry.steps > 100 else 1)
    case(op, "split", floats("split", shape, low=0.95, high=1.05), axes).check("interpreter")


@pytest.mark.parametrize("op", ["Sum", "Min", "LogSumExp"])
@pytest.mark.parametrize(
    ("shape", "axes", "dtype"),
    [
        ((70, 49), (1,), "float16"),  # rows that no vector divides
        ((3, 1000), (1,), "float32"),
        ((2, 3001), (1,), "float16"),
        ((300, 136), (0,), "float16"),  # fewer lanes than the last tile has
        ((5, 40, 24), (1,), "float32"),
        ((6, 9, 5, 8), (0, 2), "float32"),
    ],
    ids=str,
)
def test_tiles_of_a_gpu(op: str, shape: tuple[int, ...], axes: tuple[int, ...], dtype: str) -> None:
    case(op, f"gpu_{dtype}", floats("gpu", shape, dtype, low=0.5), axes).check("sm_90")


@pytest.mark.parametrize("op", ["Max", "Min"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_extremes_keep_the_signs_and_every_nan(op: str, dtype: str) -> None:
    """Maxima are those of integers in the order of floats: numbers of either sign, infinities, NaN of either sign."""
    special = np.array([0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, np.nan, -np.nan, 6e-8, -6e-8], dtype)
    x = np.stack(np.meshgrid(special, special)).reshape(2, -1).T
    want = (x.max if op == "Max" else x.min)(1, keepdims=True)
    case(op, f"special_{dtype}", x, (1,), want=want).check("sm_90")


def test_runs_merge_neighbouring_axes() -> None:
    assert runs_of((2, 3, 4), (1,)) == [2, 3, 4]
    assert runs_of((2, 3, 4), (0, 1)) == [1, 6, 4]
    assert runs_of((2, 3, 4), ()) == [24]
    assert runs_of((2, 1, 4), (0, 2)) == [1, 8, 1]
    assert runs_of((1, 1), (0, 1)) == [1]


def test_few_long_rows_are_split_and_many_are_not() -> None:
    target = Target.named("sm_90")
    for geometry, split in ((Geometry(1, 1, 1, 10**7, 1), True), (Geometry(10**5, 1, 1, 1000, 1), False)):
        tile = streaming_tile(geometry, 4, target)
        splits = splits_for(geometry, tile, target)
        assert (splits > 1) == split
        assert tile.programs(geometry) * splits >= target.sm_count


def test_tiles_are_bounded_powers_of_two() -> None:
    target = Target.named("sm_90")
    for extents in ((1, 1, 1), (7, 49, 2048), (2048 * 8, 49, 1), (3, 5, 7), (10**6, 2, 3), (0, 4, 4), (4, 0, 4)):
        outer, steps, inner = extents
        geometry = Geometry(outer, 1, 1, steps, inner)
        for tile in (tile_for(geometry, 2, target), streaming_tile(geometry, 2, target)):
            assert tile.elements * tile.unroll <= 4096
            blocks = (tile.rows, tile.steps, tile.inner, tile.unroll)
            assert all(block & (block - 1) == 0 and block > 0 for block in blocks)


def test_axes_known_only_at_run_time_are_refused() -> None:
    node = case("Sum", "dynamic", floats("dynamic", (2, 3)), (1,))
    with pytest.raises(UnsupportedModel, match="its axes are known only when the model runs"):
        replace(node, constants=(), output_types=[(1, (2, 1))]).check("interpreter")
