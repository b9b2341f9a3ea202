"""GroupNorm and SkipGroupNorm in the interpreter, against NumPy in fp64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cases.node_case import NodeCase
from cases.normalization_contrib import CASES, LAST, group_norm
from cases.references import floats
from gossamer.errors import UnsupportedModel
from gossamer.kernels import normalization_parts, reduction_geometry
from gossamer.kernels.reduction_geometry import Tile


@pytest.mark.parametrize("node", CASES, ids=str)
def test_norm(node: NodeCase) -> None:
    node.check("interpreter")


@pytest.mark.parametrize("node", CASES, ids=str)
def test_rows_in_parts_give_the_same(node: NodeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """No row is resident; parts of eight steps."""
    whole = reduction_geometry.part_tile

    def small(*arguments: Any) -> Tile:
        tile = whole(*arguments)
        return Tile(tile.rows, min(tile.steps, 8), tile.inner)

    monkeypatch.setattr(reduction_geometry, "RESIDENT", 0)
    monkeypatch.setattr(reduction_geometry, "CACHED_ROW", 0)
    monkeypatch.setattr(normalization_parts, "part_tile", small)
    node.check("interpreter")


def test_other_skips_are_refused() -> None:
    node = group_norm("whole", LAST, 4, skip=LAST)
    inputs = [*node.inputs[:3], floats("skip", (1, 3, 5, 12))]
    with pytest.raises(UnsupportedModel, match=r"its skip input has shape \(1, 3, 5, 12\), X \(2, 3, 5, 12\)"):
        replace(node, inputs=inputs).check("interpreter")


def test_groups_that_do_not_divide_the_channels_are_refused() -> None:
    node = group_norm("plain", LAST, 4)
    with pytest.raises(UnsupportedModel, match="12 channels in 5 groups"):
        replace(node, attributes={**node.attributes, "groups": 5}).check("interpreter")
