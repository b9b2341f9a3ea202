"""What running a compiled model imports: neither onnx, onnx_ir, Triton nor onnxruntime, be they there or not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from blocked_imports import ABSENT, child
from compiled_files import compiled, compiled_native, native, variant

UNWANTED = [*ABSENT, "cuda", "rich", "typer"]
"""What a session on the null device has no use for."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled_native(tmp_path_factory.mktemp("imports"), native(variant("sm_90")))


@pytest.mark.parametrize("without_them", [False, True])
def test_a_session_runs(path: Path, without_them: bool) -> None:
    code = """
        import json, sys
        import numpy
        import gossamer

        feeds = {"x": numpy.ones((2, 4), numpy.float32)}
        session = gossamer.InferenceSession(sys.argv[1], providers=[("CUDAExecutionProvider", {"device": "null"})])
        (y,) = session.run(None, feeds)
        session.get_modelmeta(), session.get_inputs(), session.program(feeds)
        session.set_providers([("CUDAExecutionProvider", {"device": "null", "target": "sm_90"})])
        modules = sorted({name.partition(".")[0] for name in sys.modules})
        print(json.dumps([list(y.shape), session.placement().summary(), modules]))
    """
    shape, placement, modules = json.loads(child(code, path, without_them=without_them))
    assert shape == [2, 4]
    assert placement == "CUDAExecutionProvider: 2 nodes"
    assert set(modules).isdisjoint(UNWANTED)


def test_a_gpu_without_cudnn_takes_none_of_its_modules() -> None:
    code = """
        import gossamer.run.cuda, gossamer.session, gossamer.compiled_model
        print([name for name in sys.modules if name.startswith("gossamer.cudnn")])
    """
    assert child(code).strip() == "[]"


def test_the_command_runs(path: Path) -> None:
    code = """
        from gossamer.cli.app import app
        app(["run", sys.argv[1], "--device", "null", "--json"], standalone_mode=False)
    """
    outcome = json.loads(child(code, path))
    assert outcome["outputs"]["b"]["shape"] == [2, 4]
    assert outcome["placement"] == "CUDAExecutionProvider: 2 nodes"


def test_the_file_is_checked_whole(tmp_path: Path) -> None:
    code = """
        from gossamer.program.artifact import open_artifact
        artifact = open_artifact(sys.argv[1])
        artifact.verify()
        print(*(target.name for target in artifact.targets))
    """
    assert child(code, compiled(tmp_path)).split() == ["sm_80", "sm_90"]


def test_a_file_that_is_not_there() -> None:
    """Not the compiler is missing then."""
    code = """
        import gossamer
        try:
            gossamer.InferenceSession("absent.gossamer", providers=[("CUDAExecutionProvider", {"device": "null"})])
        except gossamer.NoSuchFile as error:
            print(error)
    """
    assert child(code) == "absent.gossamer: there is no such file\n"


def test_an_onnx_file_says_what_it_takes() -> None:
    code = """
        import gossamer
        try:
            gossamer.InferenceSession(b"a model", providers=[("CUDAExecutionProvider", {"device": "null"})])
        except ModuleNotFoundError as error:
            print(error.name, *error.__notes__)
        try:
            gossamer.InferenceSession("absent.gossamer", providers=[("CUDAExecutionProvider", {"device": "null"})])
        except gossamer.NoSuchFile as error:
            print(error)
    """
    refused, absent = child(code).splitlines()
    assert refused.split()[0] in ABSENT
    assert "pip install 'gossamer[compile]'" in refused
    assert absent == "absent.gossamer: there is no such file"
