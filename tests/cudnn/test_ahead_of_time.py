"""Compiling ahead of time with real releases of cuDNN: plans for each target, and the same bytes again. No driver, no
GPU; machine code is made up. (R10)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cudnn_releases import Release

BEGIN = """
import hashlib
import gossamer
from gossamer import ahead_of_time
from gossamer.program import CudnnCall
from gossamer.program.artifact import open_artifact
from gossamer.program.cubin import Cubin
from cases.compiled_models import with_weights

ahead_of_time.compile_kernels = lambda kernels, target: {
    kernel: Cubin("kernel", target.arch, 4, 0, 0, 1, (), "none", b"code") for kernel in kernels
}

def model():
    text = '''g (float16[2,64,28,28] x, float16[128,64,3,3] w, float16[128] b, float16[64,128,1,1] v,
              float16[64,32,2,2] u)
        => (float16[2,32,26,26] y) {
        c = Conv <pads = [1,1,1,1], strides = [2,2]> (x, w, b) r = Relu (c) d = Conv (r, v)
        t = ConvTranspose <strides = [2,2]> (d, u) y = MaxPool <kernel_shape = [3,3]> (t) }'''
    return with_weights(text, *"wbvu")

def compiled(path, targets, **how):
    return gossamer.compile_model(model(), path, targets=targets, **{"cudnn": "auto"} | how)

def plans(artifact, target):
    (shapes,) = artifact.signatures(target)
    calls = artifact.variant(target, shapes, cudnn=True).program.calls
    return [call.plan for call in calls if isinstance(call, CudnnCall) and call.plan]
"""


DEVICES = ["a100-80gb", "h200"]


def run(release: Release, code: str) -> Any:
    """The compiler itself sees to the stand-in for the driver."""
    return release.run(BEGIN + code, stand_in=False)


def test_the_same_bytes(release: Release, tmp_path: Path) -> None:
    """In another process, which compiles for the targets in another order, and so has asked cuDNN for other plans
    before."""
    sums = [
        run(
            release,
            f"""
path = {str(tmp_path / f"{targets[0]}.gossamer")!r}
report = compiled(path, {targets})
assert [program.plans > 0 for program in report.programs] == [True, False] * 3
print(json.dumps(hashlib.sha256(open(path, "rb").read()).hexdigest()))
""",
        )
        for targets in (["sm_80", "h200", "sm_100"], ["sm_100", "sm_80", "h200"])
    ]
    assert sums[0] == sums[1]


def test_plans_are_restored_for_their_target_and_no_other(newest: Release, tmp_path: Path) -> None:
    """Properties of each target reach cuDNN, in one process."""
    found = run(
        newest,
        f"""
path = {str(tmp_path / "model.gossamer")!r}
compiled(path, {DEVICES})
artifact = open_artifact(path)
seen = {{}}
for made_for in {DEVICES}:
    for restored_for in {DEVICES}:
        taken = 0
        for plan in plans(artifact, made_for):
            try:
                Graph(properties=DeviceProperties.named(restored_for)).deserialize(plan)
                taken += 1
            except PlanError:
                pass
        seen[f"{{made_for}} {{restored_for}}"] = [taken, len(plans(artifact, made_for))]
print(json.dumps(seen))
""",
    )
    assert found.keys() == {f"{made} {restored}" for made in DEVICES for restored in DEVICES}
    for devices, (taken, of) in found.items():
        made, restored = devices.split()
        assert of >= 2
        assert taken == (of if made == restored else 0)


def test_cudnn_for_everything(newest: Release, tmp_path: Path) -> None:
    found = run(
        newest,
        f"""
report = compiled({str(tmp_path / "model.gossamer")!r}, "h200", cudnn="yes")
print(json.dumps([program.nodes for program in report.programs]))
""",
    )
    assert [nodes.get("cuDNN", 0) for nodes in found] == [4, 0]


def test_a_table_decides(newest: Release, tmp_path: Path) -> None:
    """Measurements of one process, on what it says is an H200, hold in another that has none."""
    run(
        newest,
        f"""
from gossamer import settings
from gossamer.providers.cudnn import NEVER, Policy, tuning

def seconds_of(node, calls):  # the third plan of each convolution; the native kernels of what is transposed
    seen.append(node.name)
    native = not any(isinstance(call, CudnnCall) for call in calls)
    return (1e-6 if native else 2e-6) if "Transpose" in node.op_type else abs(seen.count(node.name) - 4) * 1e-6 + 1e-6

seen = []
policy = Policy(True, search="EXHAUSTIVE", tuner=tuning.Tuner("NVIDIA H200", seconds_of))
ahead_of_time._policies = lambda *_: (policy, NEVER)
with settings.override(CACHE_DIR={str(tmp_path)!r}):
    compiled({str(tmp_path / "measured")!r}, "h200")
print("null")
""",
    )
    program, choices = run(
        newest,
        f"""
from gossamer.providers.cudnn import tuning
tuning.fastest = None
path = {str(tmp_path / "model.gossamer")!r}
report = compiled(path, "h200", tuning={str(tmp_path / "tuning.json")!r})
placement = open_artifact(path).variant("h200", report.programs[0].shapes, cudnn=True).placement
print(json.dumps([report.programs[0].__getstate__(), [node.choice for node in placement if node.choice]]))
""",
    )
    assert program
    assert len(choices) == 3
    assert all(choice.startswith("measured before: ") for choice in choices)


@pytest.mark.parametrize("use", ["yes", "auto"])
def test_without_a_device_no_handle_is_made(newest: Release, tmp_path: Path, use: str) -> None:
    found = run(
        newest,
        f"""
from gossamer.cudnn import handles
made = []
handles.Handle.__init__ = lambda *_: made.append(1)
compiled({str(tmp_path / "model.gossamer")!r}, ["sm_90", "sm_100"], cudnn={use!r})
print(json.dumps(made))
""",
    )
    assert found == []
