"""Which Program of a compiled file a session runs, with and without cuDNN. cuDNN itself is not needed."""

from __future__ import annotations

import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from compiled_files import compiled, variant
from gossamer.cudnn import DeviceProperties, fitting, loader, plan_cache
from gossamer.cudnn.loader import Library, State
from gossamer.errors import ArtifactError, InvalidArgument, PlanError
from gossamer.program import CudnnCall, Program, Target
from gossamer.program.artifact import open_artifact
from gossamer.run.variants import Variants

HERE = Library(State.AVAILABLE, version=91900, lacking=frozenset())
SHAPES = {"x": (2, 4)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return compiled(tmp_path)


@pytest.fixture(autouse=True)
def cudnn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where a cuDNN is, it takes nothing as it is. The list is what else it does: errors by the plan's first word."""
    refused: list[str] = []

    def fitted(program: Program, properties: DeviceProperties) -> Program:
        if refused:
            raise PlanError("NOT_SUPPORTED", refused[0])
        calls = (replace(c, plan=b"made anew") if isinstance(c, CudnnCall) else c for c in program.calls)
        return replace(program, calls=tuple(calls))

    monkeypatch.setattr(fitting, "fitted", fitted)
    monkeypatch.setattr(plan_cache, "properties_of", lambda target: DeviceProperties.named("l4"))
    return refused


def variants(path: Path, *, cudnn: bool = True) -> Variants:
    artifact = open_artifact(path)
    (target,) = (target for target in artifact.targets if target.name == "sm_90")
    return Variants(artifact, replace(target, device=0), cudnn=cudnn)


def plan_in(program: Program) -> bytes | None:
    return next((call.plan for call in program.calls if isinstance(call, CudnnCall)), None)


def test_plans_are_made_to_fit_and_that_is_said_once(path: Path) -> None:
    held = variants(path)
    with loader.forced(HERE), warnings.catch_warnings(record=True) as said:
        assert plan_in(held.of(SHAPES).program) == b"made anew"
        assert plan_in(held.of({"x": (8, 4)}).program) == b"made anew"
    (one,) = said
    assert one.filename == __file__
    assert "they are made anew" in str(one.message)
    for part in (str(path), "by cuDNN 9.28.1 for NVIDIA H", "this is cuDNN 9.19.0 on NVIDIA L4", "enable_cudnn=0"):
        assert part in str(one.message)


def test_every_session_says_it(path: Path) -> None:
    with loader.forced(HERE):
        for _ in range(2):
            with pytest.warns(UserWarning, match="made anew"):
                variants(path).of(SHAPES)


def test_plans_that_fit_are_taken_silently(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "fitted", lambda program, properties: program)
    with loader.forced(HERE), warnings.catch_warnings(action="error"):
        assert plan_in(variants(path).of(SHAPES).program) == b"plan for sm_90"


def test_where_a_plan_cannot_be_made_it_is_the_native_program(path: Path, cudnn: list[str]) -> None:
    cudnn.append("no engine for this")
    held = variants(path)
    with loader.forced(HERE), warnings.catch_warnings(record=True) as said:
        assert plan_in(held.of(SHAPES).program) is None
        assert plan_in(held.of({"x": (8, 4)}).program) is None
    (one,) = said
    assert "the native kernels are used instead, because NOT_SUPPORTED: no engine for this" in str(one.message)
    assert "9.28.1" in str(one.message)
    assert "9.19.0" in str(one.message)


def test_a_description_that_is_none(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fitted(program: Program, properties: DeviceProperties) -> Program:
        raise KeyError("nodes")

    monkeypatch.setattr(fitting, "fitted", fitted)
    with loader.forced(HERE), pytest.raises(ArtifactError, match=f"MALFORMED: {path}: .*'nodes'"):
        variants(path).of(SHAPES)


def test_a_cudnn_that_knows_no_properties(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_old(target: Target) -> DeviceProperties:
        assert target.device == 0
        raise PlanError("NOT_SUPPORTED", "working without a handle needs cuDNN 9.8.0")

    monkeypatch.setattr(plan_cache, "properties_of", too_old)
    with loader.forced(replace(HERE, version=90100)), pytest.warns(UserWarning, match=r"cuDNN 9\.1\.0: the native"):
        assert plan_in(variants(path).of(SHAPES).program) is None


def test_without_a_cudnn_it_is_the_native_program_silently(path: Path) -> None:
    with loader.force_absent(), warnings.catch_warnings(action="error"):
        assert plan_in(variants(path).of(SHAPES).program) is None


def test_a_signature_that_is_not_in_the_file(path: Path) -> None:
    for cudnn in (False, True):
        with pytest.raises(InvalidArgument, match="has shape 3×4, and the file holds 2×4 and 8×4"):
            variants(path, cudnn=cudnn).of({"x": (3, 4)})


def test_cudnn_is_not_looked_for_unless_wanted_and_in_the_file(tmp_path: Path, path: Path) -> None:
    (tmp_path / "native").mkdir()
    native = compiled(tmp_path / "native", (variant(),))
    code = f"""
import sys
from gossamer.program.artifact import open_artifact
from gossamer.run.variants import Variants

for path, cudnn in (({str(native)!r}, True), ({str(path)!r}, False)):
    artifact = open_artifact(path)
    made = Variants(artifact, artifact.targets[-1], cudnn=cudnn).of({SHAPES!r})
    assert "cudnn" not in made.program.needs
print(sorted(name for name in sys.modules if name.startswith("gossamer.cudnn")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
