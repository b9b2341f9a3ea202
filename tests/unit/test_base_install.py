"""Compiled models where nothing but the base install is: they load, are checked whole, and run on the null device.

The environment has neither onnx nor Triton (asserted, and its packages are in the log); the files were compiled where
both are.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import base_install
import gossamer
from blocked_imports import ABSENT
from cases.compiled_models import convolution, with_a_node_on_the_cpu
from conftest import missing

pytestmark = [
    pytest.mark.compile,
    pytest.mark.skipif(sys.platform != "linux", reason="compiles, which Triton does on Linux"),
]


PRESENT = {"cuda-bindings", "gossamer", "ml_dtypes", "numpy", "rich", "typer"}
FOREIGN = {"onnx", "onnx-ir", "onnxruntime", "onnxruntime-gpu", "torch", "triton", "nvidia-cudnn-cu13"}


@pytest.fixture(scope="module")
def python() -> Path:
    try:
        return base_install.base_python()
    except base_install.BaseUnavailable as error:
        missing(f"the packages of the base install: {error}")


@pytest.fixture(scope="module")
def path(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("compiled") / "convolution.gossamer"
    gossamer.compile_model(convolution(), path, targets=["sm_80", "sm_90"], cudnn="no")
    return path


def output(*arguments: str | Path) -> str:
    done = base_install.run(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_else_is_installed(python: Path, record_property: Callable[[str, object], None]) -> None:
    packages = output("-m", "pip", "--disable-pip-version-check", "list")
    record_property("log", f"packages of the base install\n{packages}")
    names = {line.split()[0] for line in packages.splitlines()[2:]}
    assert names >= PRESENT
    assert names.isdisjoint(FOREIGN)


@pytest.mark.parametrize("name", ABSENT)
def test_what_cannot_be_imported(python: Path, name: str) -> None:
    done = base_install.run("-c", f"import {name}")
    assert done.returncode != 0
    assert f"No module named '{name}'" in done.stderr


def test_it_loads_is_checked_whole_and_runs(path: Path) -> None:
    code = """if True:
        import json, sys
        import numpy
        import gossamer
        from gossamer.program.artifact import open_artifact

        open_artifact(sys.argv[1]).verify()
        found = []
        for target in ("sm_80", "sm_90"):
            options = {"device": "null", "target": target}
            with gossamer.InferenceSession(sys.argv[1], providers=[("CUDAExecutionProvider", options)]) as session:
                x = numpy.ones((2, 3, 12, 12), numpy.float32)
                (y,) = session.run(None, {"x": x})
                found.append([session.program({"x": x}).target.name, list(y.shape), session.placement().summary()])
        print(json.dumps(found))
    """
    with gossamer.InferenceSession(path, providers=[("CUDAExecutionProvider", {"device": "null"})]) as here:
        where = here.placement().summary()
    assert json.loads(output("-c", code, path)) == [["sm_80", [2, 16, 6, 6], where], ["sm_90", [2, 16, 6, 6], where]]


def test_the_commands(path: Path) -> None:
    inspected = output("-m", "gossamer", "inspect", path)
    assert "sm_80" in inspected
    assert "sm_90" in inspected
    outcome = json.loads(output("-m", "gossamer", "run", path, "--device", "null", "--json"))
    assert outcome["outputs"]["y"]["shape"] == [2, 16, 6, 6]


def test_nodes_on_the_cpu_are_named_with_what_they_take(python: Path, tmp_path: Path) -> None:
    path = tmp_path / "found.gossamer"
    report = gossamer.compile_model(with_a_node_on_the_cpu(), path, targets="sm_90", cudnn="no")
    assert report.needs == ("onnxruntime",)
    done = base_install.run("-m", "gossamer", "run", path, "--device", "null")
    assert done.returncode == 1
    assert "NonZero" in done.stderr
    assert "pip install 'gossamer[cpu]'" in done.stderr


def test_an_onnx_file_needs_more(python: Path, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(convolution().SerializeToString())
    done = base_install.run("-m", "gossamer", "run", tmp_path / "model.onnx", "--device", "null")
    assert done.returncode == 1
    assert "gossamer[compile]" in done.stderr
