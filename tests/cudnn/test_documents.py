"""What users are shown: the sample's half that needs no GPU, and the page on graphs, with real cuDNN. (R10.12)"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cudnn_releases import Release
from documents import CUDNN_GRAPHS, SAMPLE, WITHOUT_GPU, blocks
from gossamer.cudnn import DeviceProperties, driver_stand_in


def sample(release: Release, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [SAMPLE.name, *map(str, arguments)]
    return release.python.process(f"""
        import runpy, sys
        sys.argv = {command!r}
        runpy.run_path({str(SAMPLE)!r}, run_name="__main__")
    """)


@pytest.mark.parametrize("given", ["name", "file"])
def test_the_sample_plans(release: Release, tmp_path: Path, given: str) -> None:
    """R10.12: for a device by its name, and for one that a file describes; the plan can be restored for it alone."""
    properties = DeviceProperties.named("b200")
    described = tmp_path / "gpu.json"
    described.write_bytes(properties.serialize())
    done = sample(release, "plan", "b200" if given == "name" else described, tmp_path / "conv.plan")
    assert done.returncode == 0, done.stderr
    assert properties.architecture in done.stdout
    restored, other = release.run(f"""
        blob = open({str(tmp_path / "conv.plan")!r}, "rb").read()
        properties = DeviceProperties.from_json({properties.serialize()!r})
        plan = Graph(properties=properties).deserialize(blob, enforce_precompiled=True)
        print(json.dumps([sorted(tensor.name for tensor in plan.tensors.values()),
                          refusal(lambda: graph("t4").deserialize(blob))]))
    """)
    assert restored == ["b", "w", "x", "y"]
    assert other[0] == "ARCH_MISMATCH"


def test_the_sample_says_what_is_wrong(newest: Release, tmp_path: Path) -> None:
    """One line each, and exit status 1."""
    (tmp_path / "wrong.json").write_text("{}")
    (tmp_path / "wrong.plan").write_text("{}")
    wrong = {
        ("plan", "h300", tmp_path / "made"): "no device 'h300'",
        ("plan", tmp_path / "none.json", tmp_path / "made"): "No such file",
        ("plan", tmp_path / "wrong.json", tmp_path / "made"): "deviceVer",
        ("run", tmp_path / "none.plan"): "No such file",
    }
    if not driver_stand_in.driver_available():
        wrong["run", tmp_path / "wrong.plan"] = "there is no CUDA driver here"
        wrong["describe", tmp_path / "made"] = "there is no CUDA driver here"
    for arguments, text in wrong.items():
        done = sample(newest, *arguments)
        assert done.returncode == 1, done.stdout
        assert text in done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr
    assert not (tmp_path / "made").exists()


def test_the_page_on_graphs(release: Release) -> None:
    """Every example that needs no GPU, in order, in one process."""
    code = "\n".join(blocks(CUDNN_GRAPHS, WITHOUT_GPU))
    done = release.python.process(code)
    assert done.returncode == 0, done.stderr
