"""`gossamer run` and `gossamer bench` with compiled models: what they feed, and that nothing is there to check with."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiled_files import compiled_native, native, variant
from gossamer.cli import app, bench

Gossamer = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With two rows, for two targets."""
    return compiled_native(tmp_path_factory.mktemp("one"), *(native(variant(name)) for name in ("sm_80", "sm_90")))


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With two rows, and with eight."""
    return compiled_native(tmp_path_factory.mktemp("several"), *(native(variant("sm_90", rows)) for rows in (2, 8)))


@pytest.fixture
def gossamer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Gossamer:
    """Runs a command in this process: status, standard output, standard error."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["gossamer", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            app.main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return run


def test_run_feeds_the_only_signature(gossamer: Gossamer, one: Path) -> None:
    status, out, err = gossamer("run", one, "--device", "null", "--json")
    assert (status, err) == (0, "")
    outcome = json.loads(out)
    assert outcome["outputs"]["b"]["shape"] == [2, 4]
    assert outcome["placement"] == "CUDAExecutionProvider: 2 nodes"


@pytest.mark.parametrize("rows", [2, 8])
def test_run_feeds_the_signature_that_is_named(gossamer: Gossamer, several: Path, rows: int) -> None:
    status, out, _ = gossamer("run", several, "--device", "null", "--json", "-s", f"x={rows}x4")
    assert status == 0
    assert json.loads(out)["outputs"]["b"]["shape"] == [rows, 4]


def test_run_takes_the_shapes_of_files(gossamer: Gossamer, several: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((8, 4), np.float32))
    status, out, _ = gossamer("run", several, "--device", "null", "--json", "-i", f"x={tmp_path / 'x.npy'}")
    assert status == 0
    assert json.loads(out)["outputs"]["b"]["shape"] == [8, 4]


@pytest.mark.parametrize("shapes", [[], ["-s", "3x4"]])
def test_run_names_the_signatures_there_are(gossamer: Gossamer, several: Path, shapes: list[str]) -> None:
    status, _, err = gossamer("run", several, "--device", "null", *shapes)
    assert status == 2
    assert "the file holds 2×4 and 8×4" in err


@pytest.mark.parametrize(
    ("command", "option"),
    [("run", ["--compare", "onnxruntime"]), ("bench", ["--check"])],
)
def test_there_is_nothing_to_compare_with(gossamer: Gossamer, one: Path, command: str, option: list[str]) -> None:
    status, _, err = gossamer(command, one, *option)
    assert status == 2
    assert f"{option[0]} runs the ONNX file on the CPU, and {one} is a compiled model" in err


def test_bench_does_not_check(gossamer: Gossamer, one: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(session: Any, binding: Any, repeat: int, warmup: int) -> np.ndarray:
        assert [slot.name for slot in session.get_inputs()] == ["x"]
        return np.full(repeat, 1e-3)

    monkeypatch.setattr(bench, "_measure", measured)
    monkeypatch.setattr(bench.Request, "runs_nothing", False)  # the null device stands in for one that does
    status, out, err = gossamer("bench", one, "--device", "null", "--repeat", 3, "--json")
    assert (status, err) == (0, "")
    figures = json.loads(out)
    assert figures["checked"] is False
    assert figures["median_us"] == pytest.approx(1000)


def test_a_file_without_a_gpu(gossamer: Gossamer, one: Path) -> None:
    status, _, err = gossamer("run", one, "--device", "cpu")
    assert status == 2
    assert "give the ONNX file that it was compiled from" in err
