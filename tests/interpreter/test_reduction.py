"""Reductions in the interpreter, against onnxruntime or NumPy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cases.node_case import NodeCase
from cases.reduction import CASES, case
from cases.references import floats
from gossamer.errors import UnsupportedModel
from gossamer.kernels import reduction
from gossamer.kernels.reduction_geometry import Geometry, Tile, runs_of, splits_for, tile_for
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
    monkeypatch.setattr(reduction, "tile_for", lambda *_, **__: Tile(2, 16, 2))
    monkeypatch.setattr(reduction, "splits_for", lambda geometry, *_: 7 if geometry.steps > 100 else 1)
    case(op, "split", floats("split", shape, low=0.95, high=1.05), axes).check("interpreter")


def test_runs_merge_neighbouring_axes() -> None:
    assert runs_of((2, 3, 4), (1,)) == [2, 3, 4]
    assert runs_of((2, 3, 4), (0, 1)) == [1, 6, 4]
    assert runs_of((2, 3, 4), ()) == [24]
    assert runs_of((2, 1, 4), (0, 2)) == [1, 8, 1]
    assert runs_of((1, 1), (0, 1)) == [1]


def test_few_long_rows_are_split_and_many_are_not() -> None:
    target = Target.named("sm_90")
    for geometry, split in ((Geometry(1, 1, 1, 10**7, 1), True), (Geometry(10**5, 1, 1, 1000, 1), False)):
        tile = tile_for(geometry, 4, target)
        splits = splits_for(geometry, tile, target)
        assert (splits > 1) == split
        assert tile.programs(geometry) * splits >= target.sm_count


def test_tiles_are_bounded_powers_of_two() -> None:
    target = Target.named("sm_90")
    for extents in ((1, 1, 1), (7, 49, 2048), (2048 * 8, 49, 1), (3, 5, 7), (10**6, 2, 3), (0, 4, 4), (4, 0, 4)):
        outer, steps, inner = extents
        tile = tile_for(Geometry(outer, 1, 1, steps, inner), 2, target)
        assert tile.elements <= 4096
        assert all(extent & (extent - 1) == 0 and extent > 0 for extent in (tile.rows, tile.steps, tile.inner))


def test_axes_known_only_at_run_time_are_refused() -> None:
    node = case("Sum", "dynamic", floats("dynamic", (2, 3)), (1,))
    with pytest.raises(UnsupportedModel, match="its axes are known only when the model runs"):
        replace(node, constants=(), output_types=[(1, (2, 1))]).check("interpreter")
