"""The demo, as a user runs it: the text of the picture, and without a GPU the Program in the interpreter."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from draw_picture import LINES, PICTURE, draw

DEMO = Path(__file__).parents[2] / "demo"
TEXT = [line.text for line in LINES]


@pytest.fixture(scope="module")
def pipeline(model_path: Any) -> Any:
    """The demo's pipeline on plain onnxruntime: what is wrong here is wrong with the picture, not with Gossamer."""
    for name in ("ppocr_v4_det", "ppocr_v2_cls", "ppocr_v4_rec"):
        model_path(name)
    import onnxruntime

    import read_text

    return read_text.make_pipeline(onnxruntime)


def run_demo(tmp_path: Path, *options: str) -> tuple[str, dict[str, Any]]:
    """What the program printed and what it reported. The child compiles, so it must not inherit TRITON_INTERPRET."""
    report = tmp_path / "report.json"
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, str(DEMO / "read_text.py"), "--json", str(report), *options]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout, json.loads(report.read_text())


@pytest.mark.slow
def test_make_demo_reads_the_picture(tmp_path: Path, pipeline: Any) -> None:
    printed, report = run_demo(tmp_path)
    assert report["lines"] == TEXT
    assert all(f"  {text}\n" in printed for text in TEXT)
    assert [stage["name"] for stage in report["stages"]] == ["detection", "direction", "recognition"]
    for stage in report["stages"]:
        assert stage["first_seconds"] > 0
        assert stage["seconds"] > 0
        assert sum(stage["placement"].values()) > 0
    if "No NVIDIA GPU here" in printed:
        assert {provider for stage in report["stages"] for provider in stage["placement"]} == {"CPUExecutionProvider"}
        interpreted, compiled = report["gpu_program"]["interpreted"], report["gpu_program"]["compiled"]
        # The outputs are two probabilities; float32 through some fifty layers.
        assert interpreted["largest_error"] < 1e-5
        assert 0 < compiled["kernels"] <= interpreted["launches"]
        assert compiled["bytes"] > 1000 * compiled["kernels"]
        assert compiled["target"] == "sm_90"


def test_picture_is_read_exactly_by_the_reference_runtime(pipeline: Any) -> None:
    import read_text

    reading = read_text.read(pipeline, PICTURE)
    assert list(reading.lines) == TEXT


def test_direction_model_matters(pipeline: Any) -> None:
    """Without it the upside-down line is not read: a direction model that always says 0 would be noticed."""
    results, _ = pipeline(PICTURE, use_cls=False)
    read = [text for _, text, _ in results]
    upside_down = {line.text for line in LINES if line.angle == 180}
    assert set(TEXT) - set(read) == upside_down


def test_direction_batch_is_what_the_pipeline_feeds(pipeline: Any) -> None:
    import read_text

    reading = read_text.read(pipeline, PICTURE)
    batch = read_text.direction_batch(pipeline, PICTURE, reading.boxes)
    assert batch.shape == (len(TEXT), 3, 48, 192)
    _, direction, _ = read_text.sessions(pipeline)
    (probabilities,) = direction.run(None, {direction.get_inputs()[0].name: batch})
    assert [bool(row[1] > 0.9) for row in probabilities] == [line.angle == 180 for line in LINES]


def test_every_name_that_the_package_takes_from_the_runtime_is_replaced() -> None:
    """rapidocr-onnxruntime's engine imports from onnxruntime exactly the names that the demo replaces."""
    import ast

    import read_text

    specification = importlib.util.find_spec("rapidocr_onnxruntime.utils.infer_engine")
    assert specification is not None
    assert specification.origin is not None
    tree = ast.parse(Path(specification.origin).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "onnxruntime"]
    assert {alias.name for node in imports for alias in node.names} == set(read_text.RUNTIME_NAMES)


def test_committed_picture_is_what_the_script_draws() -> None:
    """Up to the last bit of anti-aliasing, in which versions of FreeType differ."""
    import numpy as np
    from PIL import Image

    committed = np.asarray(Image.open(PICTURE).convert("RGB"), np.int16)
    drawn = np.asarray(draw(), np.int16)
    assert committed.shape == drawn.shape
    assert np.abs(committed - drawn).mean() < 0.5
