"""Norms in the interpreter, against NumPy in fp64 and onnxruntime."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cases import batch_normalization as batch
from cases.node_case import NodeCase
from cases.normalization import CASES, layer_norm, mean_variance_norm
from cases.references import floats
from gossamer.errors import UnsupportedModel
from gossamer.kernels import normalization, reduction_geometry
from gossamer.kernels.reduction_geometry import Tile

IN_ONNXRUNTIME = ("LayerNormalization", "InstanceNormalization", "LpNormalization", "MeanVarianceNormalization")


@pytest.mark.parametrize("node", [*CASES, *batch.CASES], ids=str)
def test_norm(node: NodeCase) -> None:
    node.check("interpreter")


@pytest.mark.parametrize("node", [*CASES, *batch.training_cases()], ids=str)
def test_rows_in_parts_give_the_same(node: NodeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """No row is resident; parts of four steps, combined two at a time."""
    whole = reduction_geometry.tile_for

    def small(*arguments: Any, **options: Any) -> Tile:
        tile = whole(*arguments, **options)
        return Tile(tile.rows, min(tile.steps, 4), tile.inner)

    monkeypatch.setattr(reduction_geometry, "RESIDENT", 0)
    monkeypatch.setattr(normalization, "tile_for", small)
    monkeypatch.setattr(normalization, "COMBINED", 64)
    node.check("interpreter")


@pytest.mark.parametrize(
    "node",
    [c for c in CASES if c.op_type in IN_ONNXRUNTIME and c.domain == "" and c.inputs[0].dtype == np.float32],
    ids=str,
)
def test_onnxruntime_agrees(node: NodeCase) -> None:
    replace(node, want=None).check("interpreter")


def test_three_runs_of_axes_are_refused() -> None:
    node = mean_variance_norm("runs", floats("runs", (2, 3, 2, 3, 2)), (0, 2, 4))
    with pytest.raises(UnsupportedModel, match="more than two runs"):
        node.check("interpreter")


def test_scale_along_other_axes_is_refused() -> None:
    node = layer_norm("shapes", (2, 3, 4), 1)
    x, _, beta = node.inputs
    with pytest.raises(UnsupportedModel, match=r"scale and bias have shapes \(3, 1\), \(3, 4\)"):
        replace(node, inputs=[x, np.ones((3, 1), np.float32), beta]).check("interpreter")
