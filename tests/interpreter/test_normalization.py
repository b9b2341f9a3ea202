"""Norms in the interpreter, against NumPy in fp64 and onnxruntime."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cases import batch_normalization as batch
from cases.node_case import NodeCase
from cases.normalization import CASES, group_norm, instance_norm, skip_norm
from cases.references import channels_last, floats
from gossamer.errors import UnsupportedModel
from gossamer.kernels import normalization, normalization_parts, reduction_geometry
from gossamer.kernels.reduction_geometry import Geometry, Tile

IN_ONNXRUNTIME = ("LayerNormalization", "InstanceNormalization", "LpNormalization", "MeanVarianceNormalization")


@pytest.mark.parametrize("node", [*CASES, *batch.CASES], ids=str)
def test_norm(node: NodeCase) -> None:
    node.check("interpreter")


@pytest.mark.parametrize("node", [c for c in (*CASES, *batch.training_cases()) if c.inputs[0].size], ids=str)
def test_rows_in_parts_give_the_same(node: NodeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """No row is resident; parts of four steps, combined two at a time."""
    whole = reduction_geometry.part_tile

    def small(*arguments: Any) -> Tile:
        tile = whole(*arguments)
        return Tile(tile.rows, min(tile.steps, 4), tile.inner)

    monkeypatch.setattr(reduction_geometry, "RESIDENT", 0)
    monkeypatch.setattr(reduction_geometry, "CACHED_ROW", 0)
    monkeypatch.setattr(normalization_parts, "part_tile", small)
    monkeypatch.setattr(normalization_parts, "COMBINED", 64)
    node.check("interpreter")


GPU_CASES = [
    group_norm("unet", floats("gpu", (2, 48, 20, 20), "float16"), 4),
    group_norm("few_pixels", floats("gpu", (1, 17_000, 1)), 1),
    group_norm("opset_18", floats("gpu", (2, 24, 20, 20)), 2, 18),
    channels_last(group_norm("unet", floats("gpu", (2, 48, 20, 20), "float16"), 4)),
    channels_last(instance_norm("style", floats("gpu", (1, 6, 130, 130)))),
    instance_norm("rows_enough", floats("gpu", (2, 66, 130, 130), "float16")),
    instance_norm("few_rows", floats("gpu", (1, 6, 130, 130))),
]


@pytest.mark.parametrize("node", GPU_CASES, ids=str)
def test_launches_of_a_gpu(node: NodeCase) -> None:
    node.check("sm_90")


@pytest.mark.parametrize("node", [c for c in (*CASES, *batch.training_cases()) if c.inputs[0].size], ids=str)
def test_rows_read_twice_give_the_same(node: NodeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """No row is resident; two tiles of four steps at a time, the last ones with fewer."""

    def small(geometry: Geometry, *_: Any) -> tuple[Tile, int] | None:
        return (Tile(1, 4, 1, unroll=2), 4) if geometry.inner == geometry.reduced0 == 1 else None

    monkeypatch.setattr(reduction_geometry, "RESIDENT", 0)
    monkeypatch.setattr(normalization, "cached_rows", small)
    node.check("interpreter")


@pytest.mark.parametrize(
    "node",
    [
        c
        for c in CASES
        if c.op_type in IN_ONNXRUNTIME and c.domain == "" and c.inputs[0].dtype == np.float32 and c.inputs[0].size
    ],
    ids=str,
)
def test_onnxruntime_agrees(node: NodeCase) -> None:
    replace(node, want=None).check("interpreter")


def test_a_mean_of_the_norm_without_one_is_refused() -> None:
    node = skip_norm("mean", (2, 5, 24), rms=True)
    shape, rows = (2, 5, 24), (2, 5, 1)
    with pytest.raises(UnsupportedModel, match="the norm without a mean has no output of means"):
        replace(node, n_outputs=2, output_types=[(1, shape), (1, rows)]).check("interpreter")
