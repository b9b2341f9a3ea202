"""Plans in compiled files, with the releases that made them and with others. No driver, no GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cudnn_releases import Release

BEGIN = """
import warnings
from dataclasses import replace
from compiled_files import DESCRIPTION, WEIGHTS, variant
from gossamer.cudnn import loader
from gossamer.cudnn.builder import GraphBuilder
from gossamer.cudnn.plan_cache import Task, planned
from gossamer.program import CudnnCall
from gossamer.program.artifact import open_artifact, write_artifact
from gossamer.run.variants import Variants

def task(channels, require=()):
    graph = GraphBuilder()
    x = graph.tensor("X", (1, channels, 14, 14), "float16", layout="NHWC")
    graph.output(graph.convolution(x, graph.tensor("W", (64, channels, 3, 3), "float16", layout="NHWC")), name="Y")
    return Task.of(graph, ("A", "fallback"), ("RUNTIME_COMPILATION",), require)

def with_plan(rows, task, plan):
    made = variant("h200", rows, cudnn=True)
    calls = (replace(call, description=task.description, plan=plan) if isinstance(call, CudnnCall) else call
             for call in made.program.calls)
    return replace(made, program=replace(made.program, calls=tuple(calls)))

def plan_in(program):
    return next((call.plan for call in program.calls if isinstance(call, CudnnCall)), None)

def write(path, impossible=False):
    first, second = task(64), task(32)
    plans = [planned(one, DeviceProperties.named("h200"))[0].plan for one in (first, second)]
    if impossible:  # for any release: what is asked of the engine cannot be had
        first = second = task(64, ["FFT", "TENSOR_CORE"])
    variants = [with_plan(2, first, plans[0]), with_plan(8, second, plans[1]), variant("h200"), variant("h200", 8)]
    versions = DESCRIPTION.versions | {"cudnn": loader.load().version_text}
    write_artifact(path, replace(DESCRIPTION, versions=versions), variants, WEIGHTS)

def read(path, device="h200", signatures=(2, 8)):
    artifact = open_artifact(path)
    target = replace(artifact.targets[0], properties=DeviceProperties.named(device).serialize().decode())
    session = Variants(artifact, target, cudnn=True)
    with warnings.catch_warnings(record=True) as said:
        programs = [session.of({"x": (rows, 4)}).program for rows in signatures]
    kept = [plan_in(artifact.variant("h200", {"x": (rows, 4)}, cudnn=True).program) for rows in signatures]
    plans = [plan_in(program) for program in programs]
    properties = DeviceProperties.named(device)
    restored = [None if plan is None else Graph(properties=properties).deserialize(plan) for plan in plans]
    return {
        "said": [str(one.message) for one in said],
        "kept": [plan == before for plan, before in zip(plans, kept)],
        "made by": [plan and plan.cudnn_version for plan in restored],
        "multiprocessors": [plan and plan.multiprocessors for plan in restored],
    }
"""


@pytest.fixture(scope="module")
def files(
    release_named: Callable[[str], Release], tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, bool], Path]:
    """Release, and whether its plans cannot be made anew → a file for an H200 with its plans."""
    folder = tmp_path_factory.mktemp("files")
    made = {}
    for name in ("9.28", "9.19"):
        for impossible in (False, True):
            path = made[name, impossible] = folder / f"{name}-{impossible}.gossamer"
            release_named(name).run(f"{BEGIN}\nwrite({str(path)!r}, {impossible})\nprint('null')")
    return made


def read(release: Release, path: Path, **given: Any) -> Any:
    options = "".join(f", {name}={value!r}" for name, value in given.items())
    return release.run(f"{BEGIN}\nprint(json.dumps(read({str(path)!r}{options})))")


def test_the_cudnn_that_made_them_takes_them(release: Release, files: dict[tuple[str, bool], Path]) -> None:
    for impossible in (False, True):
        found = read(release, files[release.name, impossible])
        assert found["said"] == []
        assert found["kept"] == [True, True]


@pytest.mark.parametrize(("by", "here"), [("9.19", "9.28"), ("9.28", "9.19")])
def test_another_cudnn_makes_them_anew(
    by: str, here: str, release_named: Callable[[str], Release], files: dict[tuple[str, bool], Path]
) -> None:
    found = read(release_named(here), files[by, False])
    (text,) = found["said"]
    versions = {"9.19": "9.19.0", "9.28": "9.28.1"}
    assert f"made by cuDNN {versions[by]} for NVIDIA H200" in text
    assert f"this is cuDNN {versions[here]} on NVIDIA H200" in text
    assert "made anew" in text
    assert found["kept"] == [False, False]
    assert found["made by"] == [{"9.19": 91900, "9.28": 92801}[here]] * 2


@pytest.mark.parametrize(("by", "here"), [("9.19", "9.28"), ("9.28", "9.19")])
def test_where_another_cudnn_cannot_the_native_program_is_used(
    by: str, here: str, release_named: Callable[[str], Release], files: dict[tuple[str, bool], Path]
) -> None:
    found = read(release_named(here), files[by, True])
    (text,) = found["said"]
    assert "the native kernels are used instead, because NOT_SUPPORTED: no engine for graph" in text
    assert found["made by"] == [None, None]


def test_another_device_gets_plans_of_its_own(release: Release, files: dict[tuple[str, bool], Path]) -> None:
    """Code for an H200 runs on every GPU of its architecture, plans only on those that are as large."""
    found = read(release, files[release.name, False], device="h100-pcie")
    (text,) = found["said"]
    assert "for NVIDIA H200" in text
    assert "on NVIDIA H100 PCIe (sm_90, 114 multiprocessors): they are made anew" in text
    assert found["multiprocessors"] == [114, 114]
