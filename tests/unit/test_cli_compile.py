"""`gossamer compile`: what it prints, which signatures and targets it takes, and that errors are one text. (R10)"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest

from cases.compiled_models import convolution, with_a_node_on_the_cpu, with_weights
from gossamer import ahead_of_time
from gossamer.cli import app
from gossamer.cli.arguments import parse_signature
from gossamer.cudnn import DeviceProperties, loader
from gossamer.cudnn.loader import Library, State
from gossamer.errors import InvalidArgument
from gossamer.program import Kernel, Target
from gossamer.program.artifact import open_artifact
from gossamer.program.cubin import Cubin
from gossamer.run import device_properties, driver

pytest.importorskip("triton")


@dataclass(frozen=True)
class Result:
    status: int
    out: str
    err: str


Gossamer = Callable[..., Result]


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a compiler, a GPU and cuDNN."""

    def compile_kernels(kernels: Iterable[Kernel], target: Target) -> dict[Kernel, Cubin]:
        return {kernel: Cubin("k", target.arch, 4, 0, 0, 1, (), "3.9.0", b"code", "12.9") for kernel in kernels}

    monkeypatch.setattr(ahead_of_time, "compile_kernels", compile_kernels)
    monkeypatch.setattr(driver, "why_unavailable", lambda: ("no driver",))
    monkeypatch.setattr(loader, "load", lambda: Library(State.MISSING, "cuDNN was not found at runtime."))


@pytest.fixture
def gossamer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Gossamer:
    """Runs `gossamer compile` in this process."""

    def run(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["gossamer", "compile", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            app.main()
        printed = capsys.readouterr()
        return Result(int(ended.value.code or 0), printed.out, printed.err)

    return run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "model.gossamer"


def saved(model: Any, folder: Path) -> Path:
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path


@pytest.fixture
def varying(tmp_path: Path) -> Path:
    """A model of two inputs, whose dimensions but for one are open."""
    text = "g (float[N,8] x, float[M,K] y) => (float[N,4] z, float[M,K] r) { z = MatMul (x, w) r = Relu (y) }"
    return saved(with_weights(text.replace("] y)", "] y, float[8,4] w)"), "w"), tmp_path)


def signatures(file: Path) -> list[dict[str, tuple[int, ...]]]:
    artifact = open_artifact(file)
    return [dict(shapes) for shapes in artifact.signatures(artifact.targets[0].name)]


def test_what_it_prints(gossamer: Gossamer, tmp_path: Path, file: Path) -> None:
    result = gossamer(saved(convolution(), tmp_path), "-o", file, "--target", "sm_80,h200")
    assert (result.status, result.err) == (0, "")
    head, *rows = result.out.splitlines()
    assert head.split() == [
        *("target", "inputs", "native", "cuDNN", "CPU", "kernels", "launches", "plans", "arena", "bytes")
    ]
    assert [row.split()[:2] for row in rows[:2]] == [["sm_80", "x=2×3×12×12"], ["h200", "x=2×3×12×12"]]
    assert f"{file}: {file.stat().st_size:,} bytes: " in result.out
    assert "to run it: the base install of gossamer, an NVIDIA driver\n" in result.out
    assert "made by gossamer 0.1.0, ptxas 12.9, triton 3.9.0" in result.out
    assert {target.name for target in open_artifact(file).targets} == {"sm_80", "h200"}


def test_as_json(gossamer: Gossamer, tmp_path: Path, file: Path) -> None:
    result = gossamer(saved(with_a_node_on_the_cpu(), tmp_path), "-o", file, "--target", "sm_90", "--json")
    report = json.loads(result.out)
    assert report["file_bytes"] == file.stat().st_size
    assert report["needs"] == ["onnxruntime"]
    (program,) = report["programs"]
    assert program["shapes"] == {"x": [4, 16]}
    assert program["nodes"]["CPUExecutionProvider"] == 1


def test_nodes_on_the_cpu_are_said(gossamer: Gossamer, tmp_path: Path, file: Path) -> None:
    out = gossamer(saved(with_a_node_on_the_cpu(), tmp_path), "-o", file, "--target", "sm_90").out
    assert "to run it: the base install of gossamer, an NVIDIA driver, gossamer[cpu]\n  on the CPU, NonZero: " in out


def test_signatures(gossamer: Gossamer, varying: Path, file: Path) -> None:
    """Each is made of its own shapes, those for all, and 1 where only the first dimension is open."""
    given = ("--shapes", "y=2x3,x=5x8", "--shapes", "y=4x5", "--input-shape", "y=7x7")
    assert gossamer(varying, "-o", file, "--target", "sm_90", *given).status == 0
    wanted = [{"x": (5, 8), "y": (2, 3)}, {"x": (1, 8), "y": (4, 5)}]
    assert sorted(signatures(file), key=str) == sorted(wanted, key=str)
    assert gossamer(varying, "-o", file, "--target", "sm_90", "-s", "y=7x7").status == 0
    assert signatures(file) == [{"x": (1, 8), "y": (7, 7)}]


def test_options_of_the_provider(gossamer: Gossamer, varying: Path, file: Path) -> None:
    common = (varying, "-o", file, "--target", "sm_90", "-s", "y=7x7")
    assert gossamer(*common, "--option", "use_tf32=0").status == 0
    assert not open_artifact(file).targets[0].use_tf32
    result = gossamer(*common, "--option", "enable_cudnn=0")
    assert (result.status, result.out) == (2, "")
    assert "the argument `cudnn`" in result.err


def test_the_gpu_that_is_here_is_the_default(
    gossamer: Gossamer, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = saved(convolution(), tmp_path)
    result = gossamer(model, "-o", file)
    assert result.status == 2
    assert "--target: there is no GPU here to compile for by default; name one or more: sm_80, " in result.err
    monkeypatch.setenv("GOSSAMER_TARGET", "l4")
    assert gossamer(model, "-o", file).status == 0
    assert [target.name for target in open_artifact(file).targets] == ["l4"]
    monkeypatch.setattr(driver, "why_unavailable", lambda: ())
    monkeypatch.setattr(device_properties, "device_properties", lambda: DeviceProperties.named("h200"))
    assert gossamer(model, "-o", file).status == 0
    (target,) = open_artifact(file).targets
    assert (target.name, target.device) == ("sm_90", None)
    assert DeviceProperties.from_json(target.properties).device_name == "NVIDIA H200"


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (("--target", "sm_91"), 2, "unknown target"),
        (("--target", "sm_90"), 2, "give --input-shape y=MxK"),
        (("--target", "sm_90", "--shapes", "y=2x3,q=1"), 2, "--shapes q=...: the model has no such input"),
        (("--target", "sm_90", "--shapes", "y=2xM"), 2, "--shapes '2xM': whole numbers"),
        (("--target", "sm_90", "--shapes", "2x3"), 2, "--shapes: say for which input"),
        (("--target", "sm_90", "-s", "y=2x3", "--shapes", "x=1x9"), 2, "dimension 1 is 9 instead of 8"),
        (("--target", "sm_90", "-s", "y=2x3", "--cudnn", "yes"), 1, "pip install 'gossamer[cudnn]'"),
        (("--target", "sm_90", "-s", "y=2x3", "--cudnn", "no", "--tune", "t.json"), 2, "there is no such file"),
    ],
)
def test_errors(
    gossamer: Gossamer, varying: Path, file: Path, arguments: tuple[str, ...], status: int, text: str
) -> None:
    result = gossamer(varying, "-o", file, *arguments)
    assert (result.status, result.out) == (status, "")
    assert text in result.err
    assert "Traceback" not in result.err
    assert not file.exists()


def test_a_model_that_is_not_there(gossamer: Gossamer, tmp_path: Path, file: Path) -> None:
    result = gossamer(tmp_path / "no.onnx", "-o", file, "--target", "sm_90")
    assert result.status == 2
    assert "no.onnx: there is no such file" in result.err


def test_signatures_as_text() -> None:
    assert parse_signature("x=1x3,y=", ["x", "y"]) == {"x": (1, 3), "y": ()}
    assert parse_signature("1,3", ["x"]) == {"x": (1, 3)}
    assert parse_signature("", ["x", "y"]) == {}
    with pytest.raises(InvalidArgument, match="'x' was given before"):
        parse_signature("x=1,x=2", ["x"])
    with pytest.raises(InvalidArgument, match="no such input; it has x, y"):
        parse_signature("x=1,z=2", ["x", "y"])
    for text in ("x=1=2", "1,2=3", "x=1,,y=2", "x=1,", ","):
        with pytest.raises(InvalidArgument):
            parse_signature(text, ["x", "y"])


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("a,b=1x3,c=2", {"a,b": (1, 3), "c": (2,)}),
        ("c=1,3,a,b=2,4", {"c": (1, 3), "a,b": (2, 4)}),
        ("a=b=,c=2,d=e,f=1x1", {"a=b": (), "c": (2,), "d=e,f": (1, 1)}),
        ("a,b=c=5,b=6", {"a,b=c": (5,), "b": (6,)}),
        ("c=1,3,3=2,3", {"c": (1, 3), "3": (2, 3)}),
    ],
)
def test_signatures_of_inputs_with_commas_and_equals_signs(text: str, shapes: dict[str, tuple[int, ...]]) -> None:
    assert parse_signature(text, ["c", "b", "a,b", "a=b", "a,b=c", "d=e,f", "3"]) == shapes


def test_names_with_commas_and_equals_signs(gossamer: Gossamer, tmp_path: Path, file: Path) -> None:
    model = with_weights("g (float[N,8] x, float[M] y) => (float[N,8] z, float[M] r) { z = Relu (x) r = Relu (y) }")
    for value, node, name in zip(model.graph.input, model.graph.node, ("x,1", "y=2"), strict=True):
        value.name = node.input[0] = name
    path = saved(model, tmp_path)
    for shapes in (["--shapes", "x,1=2x8,y=2=5"], ["-s", "x,1=2x8", "-s", "y=2=5"]):
        assert gossamer(path, "-o", file, "--target", "sm_90", *shapes).status == 0
        assert signatures(file) == [{"x,1": (2, 8), "y=2": (5,)}]


def test_the_interpreter_needs_no_driver(gossamer: Gossamer, varying: Path, file: Path) -> None:
    needs = "to run it: the base install of gossamer, "
    shapes = ("-s", "y=2x3")
    interpreted = "gossamer[compile] for Triton's interpreter"
    assert f"{needs}{interpreted}\n" in gossamer(varying, "-o", file, "--target", "interpreter", *shapes).out
    both = gossamer(varying, "-o", file, "--target", "sm_90,interpreter", *shapes).out
    assert f"{needs}an NVIDIA driver, {interpreted}\n" in both


def test_what_tuning_and_cudnn_add(
    gossamer: Gossamer, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines of a report with both."""
    program = ahead_of_time.ProgramReport(
        "h200", {"x": (1,)}, {}, (), ("3 nodes: no",), 53, 12, 9, 20, 40, 0, ("cudnn",)
    )
    report = ahead_of_time.Report("f", (program,), 1, 2, 3, 4, {"cudnn": "9.28.1"}, tuning="t.json")
    compilation = SimpleNamespace(compile=lambda *_: report)
    monkeypatch.setattr(ahead_of_time.Compilation, "of", lambda *_: compilation)
    out = gossamer(saved(convolution(), tmp_path), "-o", file, "--target", "h200").out
    assert "t.json: 12 of 53 convolutions for h200, x=1; the others went by heuristics\n" in out
    assert "  cuDNN 9.28.1 is used where it is installed; without it, native kernels are\n" in out
    assert "  cuDNN does not take 3 nodes: no\n" in out
