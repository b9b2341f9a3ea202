"""What sessions do about cuDNN: when it is opened, which one, and that nobody but the program has a say. (R1, R3)

A fake is installed, which logs whoever opens it; `tests/cudnn/test_sessions.py` repeats what matters with real cuDNN.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

import fake_cudnn
import gossamer
from conftest import no_triton
from cudnn_sessions import TWO_SESSIONS, run
from fake_cudnn import Fake, Python

HOSTILE = Fake(broken="umbrella")
"""Ends the process that opens it, or its examination, and is in the log."""

RUN = """
    made = session("y = LRN <size = 3> (x)", device="null", cudnn_only=["LRN"])
    try:
        made.run(None, {"x": X})
        outcome = "ran"
    except gossamer.CudnnUnavailable as error:
        outcome = str(error)
    print(json.dumps([outcome, opened_here(), mapped()]))
"""


@pytest.fixture(autouse=True)
def compiling() -> None:
    pytest.importorskip("onnx")
    if lack := no_triton():
        pytest.skip(lack)


def test_two_sessions_of_one_process_differ(python: Python, fakes: fake_cudnn.Library) -> None:
    """R3.3, R3.4: 0 opens nothing, 1 loads at first need, and the first stays without."""
    umbrella = fakes.installed(python)
    seen = run(python, TWO_SESSIONS)
    assert seen["created"] == seen["disabled ran"] == seen["enabled created"] == [[], []]
    assert seen["enabled ran"][0] == [str(umbrella)]
    assert str(umbrella) in seen["enabled ran"][1]
    assert seen["texts"] == ["disabled", "disabled"]
    assert seen["options"] == ["0", "1"]
    ours = {process for _, process in python.openings()}
    assert len(ours) == 2, "the process, and the one that examined for the second session"


def test_disabled_sessions_open_nothing_in_any_process(python: Python, fakes: fake_cudnn.Library) -> None:
    """R3.3: nor is anything examined."""
    fakes.installed(python)
    outcome, opened, mapped = run(python, RUN.replace('cudnn_only=["LRN"]', 'cudnn_only=["LRN"], enable_cudnn="0"'))
    assert "was disabled by the CUDA provider option 'enable_cudnn'." in outcome
    assert (opened, mapped, python.openings()) == ([], [], {})


def test_a_session_without_such_nodes_opens_nothing(python: Python, fakes: fake_cudnn.Library) -> None:
    """R1.1: enabled is no need."""
    fakes.installed(python)
    code = """
        made = session("y = Relu (x)", device="null")
        made.run(None, {"x": X})
        options = made.get_provider_options()["CUDAExecutionProvider"]
        print(json.dumps([opened_here(), mapped(), options["enable_cudnn"]]))
    """
    assert run(python, code) == [[], [], "1"]
    assert python.openings() == {}


@pytest.mark.parametrize("how", ["working directory", "folder of the model", "external data", "metadata"])
def test_no_model_and_no_folder_steers_the_load(
    python: Python, fakes: fake_cudnn.Library, tmp_path: Path, how: str
) -> None:
    """R1.2: the session looks for cuDNN, finds none, and what lies about under its name is not touched."""
    hostile = tmp_path / "hostile"
    for folder in (hostile, hostile / "nvidia" / "cudnn" / "lib", hostile / "lib"):
        fakes.at(folder, HOSTILE)
    prepare = {
        "working directory": "given = model('y = LRN <size = 3> (x)').SerializeToString()\n",
        "folder of the model": f"""
            given = {str(hostile / "model.onnx")!r}
            open(given, "wb").write(model("y = LRN <size = 3> (x)").SerializeToString())
        """,
        "external data": f"""
            made = model("a = Add (x, w) y = LRN <size = 3> (a)")
            w = made.graph.initializer.add(name="w", data_type=1, dims=[1], data_location=1)
            w.external_data.add(key="location", value="libcudnn.so.9")
            given = {str(hostile / "model.onnx")!r}
            open(given, "wb").write(made.SerializeToString())
        """,
        "metadata": f"""
            made = model("y = LRN <size = 3> (x)")
            for key in ("cudnn_path", "LD_LIBRARY_PATH", "ep.cuda.cudnn_path"):
                made.metadata_props.add(key=key, value={str(hostile)!r})
            given = made.SerializeToString()
        """,
    }
    code = """
        providers = [("CUDAExecutionProvider", {"device": "null", "target": "sm_90", "cudnn_only": "LRN"})]
        made = gossamer.InferenceSession(given, providers=providers)
        try:
            made.run(None, {"x": X})
        except gossamer.CudnnUnavailable as error:
            print(json.dumps([str(error), mapped()]))
    """
    text, mapped = run(python, textwrap.dedent(prepare[how]) + textwrap.dedent(code), cwd=hostile)
    assert "cuDNN was not found at runtime" in text
    assert (mapped, python.openings()) == ([], {})


def test_no_option_steers_the_load(python: Python, fakes: fake_cudnn.Library, tmp_path: Path) -> None:
    """R1.2, R3.1: refused by name; as an entry of a session's configuration it means nothing."""
    hostile = fakes.at(tmp_path / "hostile", HOSTILE)
    code = f"""
        names = ["cudnn_path", "cudnn_dir", "cudnn_library", "cudnn_home", "library_path", "ep.cuda.cudnn_path"]
        given, refused = gossamer.SessionOptions(), []
        for name in names:
            try:
                session("y = LRN <size = 3> (x)", device="null", **{{name: {str(hostile.parent)!r}}})
            except gossamer.InvalidArgument as error:
                refused.append(name in str(error))
            given.add_session_config_entry(name, {str(hostile)!r})
        made = gossamer.InferenceSession(
            model("y = LRN <size = 3> (x)").SerializeToString(), given,
            providers=[("CUDAExecutionProvider", {{"device": "null", "target": "sm_90", "cudnn_only": "LRN"}})])
        try:
            made.run(None, {{"x": X}})
        except gossamer.CudnnUnavailable as error:
            print(json.dumps([refused, str(error), mapped()]))
    """
    refused, text, mapped = run(python, code)
    assert refused == [True] * 6
    assert "cuDNN was not found at runtime" in text
    assert (mapped, python.openings()) == ([], {})


def test_the_program_has_a_say(python: Python, fakes: fake_cudnn.Library, tmp_path: Path) -> None:
    """R1.7, R8.1: a session that found none uses what the program preloads then."""
    mine = fakes.at(tmp_path / "mine")
    code = f"""
        made = session("y = LRN <size = 3> (x)", device="null", cudnn_only=["LRN"])
        try:
            made.run(None, {{"x": X}})
        except gossamer.CudnnUnavailable as error:
            missing = str(error)
        gossamer.preload_dlls(directory={str(mine.parent)!r})
        made.run(None, {{"x": X}})
        print(json.dumps([missing, opened_here(), made.placement().nodes[0].would_raise]))
    """
    missing, opened, would_raise = run(python, code)
    assert "cuDNN was not found at runtime" in missing
    assert opened == [str(mine)]
    assert would_raise == ""


def session_with(**options: object) -> gossamer.InferenceSession:
    """A session of this process, which places nothing that could need cuDNN."""
    from onnx import parser

    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[2] x) => (float[2] y) { y = Relu (x) }'
    )
    providers = [("CUDAExecutionProvider", {"device": "null", "target": "sm_90", **options})]
    return gossamer.InferenceSession(model.SerializeToString(), providers=providers)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, "1"),
        *(({"enable_cudnn": value}, "1") for value in ("1", "true", True, 1)),
        *(({"enable_cudnn": value}, "0") for value in ("0", "false", False, 0)),
    ],
)
def test_what_a_session_says_of_its_option(given: dict[str, object], kept: str) -> None:
    """R3.1, R3.2: and a session made from that is the same."""
    options = session_with(**given).get_provider_options()["CUDAExecutionProvider"]
    assert options["enable_cudnn"] == kept
    assert session_with(**options).get_provider_options()["CUDAExecutionProvider"] == options


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"enable_cudnn": "yes"}, r"enable_cudnn='yes': accepted are 1, 0, true, false"),
        ({"enable_cudnn": "libcudnn.so.9"}, r"enable_cudnn='libcudnn.so.9': accepted are 1, 0, true, false"),
        ({"enable_cudn": "1"}, r"'enable_cudn'; did you mean 'enable_cudnn'"),
        ({"cudnn_path": "/opt/cudnn/lib"}, r"'cudnn_path' is refused: .*loading code.*preload_dlls"),
    ],
)
def test_what_a_session_refuses(given: dict[str, object], words: str) -> None:
    """R3.1."""
    with pytest.raises(gossamer.InvalidArgument, match=words):
        session_with(**given)
