"""What users are shown of cuDNN's graphs, on a GPU: the sample's three steps, and the page's examples. (R10.12)"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from documents import CUDNN_GRAPHS, ON_GPU, SAMPLE, blocks
from gossamer.cudnn import DeviceProperties

pytestmark = pytest.mark.usefixtures("planning_cudnn")


def sample(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SAMPLE), *map(str, arguments)]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)


def test_the_sample(tmp_path: Path) -> None:
    """R10.11, R10.12: described here, planned by a process that sees no GPU, restored and run here: right numbers."""
    described, planned = tmp_path / "gpu.json", tmp_path / "conv.plan"
    steps = [
        sample("describe", described),
        sample("plan", described, planned, CUDA_VISIBLE_DEVICES=""),
        sample("run", planned),
    ]
    assert [step.returncode for step in steps] == [0, 0, 0], [step.stderr for step in steps]
    assert DeviceProperties.from_json(described.read_bytes()) == DeviceProperties.from_device(0)
    assert "graph.handle is None" in steps[2].stdout
    assert "the result is right" in steps[2].stdout


def test_a_plan_for_another_device(tmp_path: Path) -> None:
    """R10.12: handle-free is not device-free. The sample says which device the plan is for, and which one is here."""
    here = DeviceProperties.from_device(0)
    other = DeviceProperties.named("t4" if here.architecture != "sm_75" else "h200")
    planned = sample("plan", "t4" if here.architecture != "sm_75" else "h200", tmp_path / "conv.plan")
    assert planned.returncode == 0, planned.stderr
    done = sample("run", tmp_path / "conv.plan")
    assert done.returncode == 1
    assert "ARCH_MISMATCH" in done.stderr
    assert str(other) in done.stderr
    assert str(here) in done.stderr


def test_the_page_on_graphs() -> None:
    """Every example that needs a GPU, in order, in one process."""
    code = "\n".join(blocks(CUDNN_GRAPHS, ON_GPU))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
