"""Files that earlier versions wrote: they open, are whole, say what they said, and run as far as that needs no GPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import golden_model
from gossamer import InferenceSession
from gossamer.cli import app
from gossamer.program.archive import FORMAT
from gossamer.program.artifact import open_artifact, write_artifact

VERSIONS = range(1, FORMAT + 1)


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> int:
    return request.param


def test_it_is_whole(version: int) -> None:
    artifact = open_artifact(golden_model.golden_file(version))
    artifact.verify()
    assert [target.name for target in artifact.targets] == list(golden_model.TARGETS)
    for target in golden_model.TARGETS:
        assert artifact.signatures(target) == tuple(map(golden_model.signature, golden_model.BATCHES))
    assert {entry.needs for entry in artifact.programs} == {("onnxruntime",), ("cudnn", "onnxruntime")}


def test_it_says_what_it_said(
    version: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Programs, placement, needs, targets, sizes: what was written is read with the meaning that it had."""
    path = golden_model.golden_file(version)
    monkeypatch.setattr(sys, "argv", ["gossamer", "inspect", str(path), "--json", "--program"])
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert not ended.value.code
    said = json.loads(capsys.readouterr().out)
    assert said == golden_model.report(version) | {"file": str(path)}


def test_its_weights_are_those_of_the_model(version: int) -> None:
    artifact = open_artifact(golden_model.golden_file(version))
    np.testing.assert_array_equal(artifact.weights["b"], golden_model.weights()["b"])


@pytest.mark.parametrize("target", golden_model.TARGETS)
@pytest.mark.parametrize("batch", golden_model.BATCHES)
def test_it_runs_on_the_null_device(version: int, target: str, batch: int) -> None:
    pytest.importorskip("onnxruntime")
    cuda = ("CUDAExecutionProvider", {"device": "null", "target": target})
    with InferenceSession(golden_model.golden_file(version), providers=[cuda, "CPUExecutionProvider"]) as session:
        feeds = golden_model.feeds(batch)
        y, d = session.run(["y", "d"], feeds)
        want = golden_model.results(feeds)
        assert (y.shape, d.shape) == (want["y"].shape, want["d"].shape)
        assert (y.dtype, d.dtype) == (np.float16, np.float32)
        assert session.get_modelmeta().producer_name == "golden_model.py"


def test_the_present_format_is_the_golden_files(tmp_path: Path) -> None:
    """What was read is written as it was. Where this fails, files of this version are not those of released ones: then
    the format needs a new number, and tools/write_golden_file.py writes the file that goes with it.
    """
    path = golden_model.golden_file(FORMAT)
    artifact = open_artifact(path)
    variants = [artifact.variant(e.target, e.shapes, cudnn=e.uses_cudnn) for e in artifact.programs]
    write_artifact(tmp_path / "again", artifact.description, variants, artifact.weights)
    assert (tmp_path / "again").read_bytes() == path.read_bytes()
