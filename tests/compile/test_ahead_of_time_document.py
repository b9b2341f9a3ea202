"""docs/ahead-of-time.md does what it says: its commands and its Python run, in order, on a small model."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from documents import WITHOUT_GPU, blocks
from gossamer.cli import app
from gossamer.cudnn import DeviceProperties
from gossamer.run import device_properties

DOCUMENT = Path(__file__).parents[2] / "docs" / "ahead-of-time.md"
COMMANDS = re.findall(r"^(?: *- run: )?(gossamer .*)", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
"""Of its examples and of the job in it. Those in the text stand between backquotes."""

MODEL = """
<ir_version: 10, opset_import: ["": 21]>
small (float[batch,3,64,64] x) => (float[batch,16,32,32] y) <float[16,3,3,3] w> {
    a = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, w)
    y = Relu(a)
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a model.onnx."""
    model = onnx.parser.parse_model(MODEL)
    weights = np.random.default_rng(0).standard_normal((16, 3, 3, 3), np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    onnx.save(model, tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_its_commands(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that ask the GPU get an L4's answer. The last one reads the file that the job in it uploads."""
    monkeypatch.setattr(device_properties, "device_properties", lambda _: DeviceProperties.named("l4"))
    assert len(COMMANDS) == 9
    for command in COMMANDS:
        monkeypatch.setattr(sys, "argv", shlex.split(command, comments=True))
        with pytest.raises(SystemExit) as ended:
            app.main()
        printed = capsys.readouterr()
        assert (ended.value.code or 0, printed.err) == (0, ""), command
    assert DeviceProperties.from_json((folder / "mine.json").read_text()) == DeviceProperties.named("l4")
    for name in ("sm_80", "sm_89", "sm_90"):
        assert f"\ntarget {name}" in printed.out


@pytest.mark.slow
def test_its_python(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSAMER_DEVICE", "null")
    names: dict[str, Any] = {}
    exec("".join(blocks(DOCUMENT, WITHOUT_GPU)), names)
    assert {program.target for program in names["report"].programs} == {"sm_80", "sm_90"}
    (y,) = names["session"].run(None, {"x": np.zeros((1, 3, 64, 64), np.float32)})
    assert y.shape == (1, 16, 32, 32)
