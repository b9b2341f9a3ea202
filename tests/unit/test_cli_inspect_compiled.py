"""`gossamer inspect` of a compiled model: what it prints, and that it needs neither ONNX nor a compiler."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import blocked_imports
from compiled_files import compiled, program, variant
from gossamer.cli import app
from gossamer.program.artifact import open_artifact

Inspect = Callable[..., str]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("compiled"))


@pytest.fixture
def inspect(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Inspect:
    """What the command prints: on standard output, or where it fails as status and standard error."""

    def run(*arguments: str, file: Path = path) -> str:
        monkeypatch.setattr(sys, "argv", ["gossamer", "inspect", str(file), *arguments])
        with pytest.raises(SystemExit) as ended:
            app.main()
        printed = capsys.readouterr()
        return printed.out if not ended.value.code else f"{ended.value.code}: {printed.err}"

    return run


def test_all_that_is_in_it(inspect: Inspect, path: Path) -> None:
    printed = inspect()
    for text in (
        f"{path}: format 1, {path.stat().st_size:,} bytes, every checksum is right",
        "made by cudnn 9.28.1, gossamer 0.1.0, triton 3.9.0",
        "model small (producer_name a test)",
        "inputs: x: float32[N,4]",
        "outputs: y: float32[N,4]",
        "target sm_80: 108 multiprocessors, 166,912 bytes of shared memory a block, TF32 for fp32 products, as of",
        "NonZero not on CUDAExecutionProvider: its shape depends on data (count)",
        "weights.safetensors: 192 bytes, 1 tensor",
        "cubins: 44 bytes in 2 members",
        "programs: ",
    ):
        assert text in printed
    rows = [line.split() for line in printed.splitlines() if line.startswith("x=2×4")]
    assert (
        rows
        == [
            ["x=2×4", "2", "1", "1", "2", "1", "1,024", "onnxruntime"],
            ["x=2×4", "1", "1", "1", "1", "1", "1", "1", "1,024", "cudnn,", "onnxruntime"],
        ]
        * 2
    )
    assert "operator after fusion" not in printed


def test_one_target_and_signature_in_detail(inspect: Inspect) -> None:
    printed = inspect("--target", "sm_80", "--input-shape", "8x4")
    assert "sm_80, x=8×4, native\n\noperator after fusion" in printed
    assert "sm_80, x=8×4, with cuDNN\n" in printed
    assert "nodes: CUDAExecutionProvider: 2 nodes, CPUExecutionProvider: 1 node (NonZero)" in printed
    assert "sm_90" not in printed
    assert "x=2×4" not in printed


def test_programs(inspect: Inspect) -> None:
    printed = inspect("--program")
    for target in ("sm_80", "sm_90"):
        for rows in (2, 8):
            for cudnn in (False, True):
                assert f"\n{program(target, rows, cudnn=cudnn)}\n" in printed


def test_as_json(inspect: Inspect, path: Path) -> None:
    found = json.loads(inspect("--json"))
    whole = open_artifact(path)
    assert {name: found[name] for name in ("format", "bytes", "checksums", "model")} == {
        "format": 1,
        "bytes": path.stat().st_size,
        "checksums": "right",
        "model": "small",
    }
    assert found["versions"] == whole.description.versions
    assert found["members"] == whole.members
    assert found["weights"] == {"tensors": 1, "bytes": 192}
    assert [(one["name"], one["arch"], one["sm_count"]) for one in found["targets"]] == [
        ("sm_80", 80, 108),
        ("sm_90", 90, 132),
    ]
    assert found["targets"][0]["properties"]["deviceName"] == "NVIDIA A100-SXM4-80GB"
    assert len(found["programs"]) == 8
    second = found["programs"][1]
    want = {
        "target": "sm_80",
        "shapes": {"x": [2, 4]},
        "uses_cudnn": True,
        "needs": ["cudnn", "onnxruntime"],
        "kernels": 1,
        "launches": 1,
        "cudnn_calls": 1,
        "host_calls": 1,
        "python_calls": 0,
        "arena_bytes": 1024,
        "constants_bytes": 64,
    }
    assert second | want == second
    assert second["placement"][1]["through_cudnn"] is True
    assert "program" not in second


def test_selected_as_json(inspect: Inspect) -> None:
    found = json.loads(inspect("--json", "--program", "--target", "sm_90", "-s", "x=2x4"))
    assert [one["name"] for one in found["targets"]] == ["sm_90"]
    assert [one["program"] for one in found["programs"]] == [
        str(program("sm_90", 2, cudnn=cudnn)) for cudnn in (False, True)
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--target", "sm_100"], "it holds no target 'sm_100'; it was compiled for sm_80, sm_90"),
        (["-s", "3x4"], "input 'x' has shape 3×4, and the file holds 2×4 and 8×4"),
        (["-s", "z=3x4"], "the model has no such input; it has x"),
        (["--device", "null"], "--device and --option change nothing about it"),
        (["-o", "use_tf32=0"], "--device and --option change nothing about it"),
    ],
)
def test_what_it_does_not_hold(inspect: Inspect, arguments: list[str], text: str) -> None:
    printed = inspect(*arguments)
    assert printed.startswith("2: gossamer: ")
    assert text in printed


def test_it_is_known_by_its_content(inspect: Inspect, path: Path, tmp_path: Path) -> None:
    renamed = tmp_path / "model.onnx"
    renamed.write_bytes(path.read_bytes())
    assert "every checksum is right" in inspect(file=renamed)


def test_damage_is_found_wherever_it_is(inspect: Inspect, path: Path, tmp_path: Path) -> None:
    changed = bytearray(path.read_bytes())
    changed[changed.index(b"machine code for sm_90")] ^= 1
    (tmp_path / "damaged").write_bytes(changed)
    printed = inspect("--target", "sm_80", file=tmp_path / "damaged")
    assert printed.startswith("1: gossamer: DAMAGED")
    assert "member cubins/" in printed


def test_nothing_to_say(inspect: Inspect, tmp_path: Path) -> None:
    """One native Program, and nothing refused."""
    alone = compiled(tmp_path, (variant(),))
    assert inspect(file=alone).count("x=2×4") == 1


@pytest.mark.parametrize("arguments", [[], ["--program"], ["--json"]], ids=str)
def test_it_needs_only_the_base_install(path: Path, arguments: list[str]) -> None:
    assert "NonZero" in blocked_imports.child("from gossamer.cli import main; main()", "inspect", path, *arguments)
