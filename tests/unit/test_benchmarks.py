"""The benchmarks themselves: the operators' cases in the interpreter, their checks, and the file of results."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import against_cudnn
import gossamer
import operator_case
import operators
import replay
import results
import start_up
from cases.compiled_models import convolution
from gossamer.program import Arena, Program, Target
from operator_cases import all_cases, ceiling_cases

pytest.importorskip("onnxruntime")

BENCH = Path(results.__file__).parent
RELU = operator_case.Case("relu", "y = Relu(x)", {"x": operator_case.rand(40, 50)}, part={"x": 0, "y": 0})


def smoke(*arguments: str, script: str = "operators.py") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH / script), "--smoke", *arguments]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_cases_of_each_family_are_right_in_the_interpreter() -> None:
    some = "3x3_512|max_2x2|skip_rms|ReduceSum_|softmax_bert|CumSum_inner|decode_app|silu|backwards|rows|RNN|QLinearM"
    done = smoke("--only", some)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1].split(",")[1] == " 0 without a result"
    assert sum("error" in line for line in lines) == int(lines[-1].split()[0]) > 20


def test_names_are_unique_and_say_their_family() -> None:
    for tiny in (False, True):
        names = [case.name for make in (ceiling_cases, all_cases) for case in make(tiny=tiny)]
        assert len(names) == len(set(names))
        assert all("/" in name for name in names)


def test_a_wrong_answer_is_found() -> None:
    arrays = RELU.arrays("float16")
    wanted = RELU.wanted(arrays)
    right = np.maximum(arrays["x"], 0)
    assert RELU.error("float16", {"y": right}, wanted) == 0
    for wrong in (right * np.float16(1.01), np.roll(right, 1), np.full_like(right, np.nan)):
        with pytest.raises(operator_case.WrongAnswer, match="relative error"):
            RELU.error("float16", {"y": wrong}, wanted)


def test_an_element_that_nobody_wrote_is_found_outside_of_the_parts_that_are_compared() -> None:
    arrays = RELU.arrays("float16")
    y = np.maximum(arrays["x"], 0)
    y.view(np.uint16)[1, 7] = 0xFFFF
    with pytest.raises(operator_case.WrongAnswer, match="not written"):
        RELU.error("float16", {"y": y}, RELU.wanted(arrays))


def span(program: Program, name: str) -> range:
    place = program.locations[name]
    assert isinstance(place, Arena)
    return range(place.offset, place.offset + program.buffers[name].nbytes)


def test_a_program_that_runs_again_finds_its_inputs_as_they_were() -> None:
    job = operators.Job(RELU, "float16")
    job.build(Target.named("sm_90"))
    assert job.program is not None, job.problem
    assert span(job.program, "y") == span(job.program, "x")  # one launch, in place: what a session wants
    kept = replay.keeping_inputs(job.program)
    x, y = span(kept, "x"), span(kept, "y")
    assert x.stop <= y.start or y.stop <= x.start
    assert max(x.stop, y.stop) <= kept.arena_bytes


def test_copies_outgrow_the_cache() -> None:
    for nbytes in (1 << 20, 50 << 20, 1 << 30):
        assert replay.copies(nbytes) * nbytes >= 2 * replay.L2_BYTES
    assert replay.copies(1) == replay.MOST_COPIES


def test_rows_of_before_a_column_existed_stay(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    path.write_text("date,commit,case,us\n2026-01-01,abc,old,12.5\n")
    results.append(path, [{"case": "new", "us": "3", "gb_per_s": "4000"}])
    results.append(path, [{"case": "newer"}])
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        rows = list(reader)
    assert tuple(reader.fieldnames or ()) == results.COLUMNS
    assert [row["case"] for row in rows] == ["old", "new", "newer"]
    assert (rows[0]["us"], rows[0]["gb_per_s"], rows[1]["gb_per_s"]) == ("12.5", "", "4000")


# From starting a process to the first answer


def test_start_up_is_measured_where_nothing_but_the_base_install_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By compiled byte code, of packages as they are installed, whatever this process's own environment shows."""
    compiled = tmp_path / "convolution.gossamer"
    gossamer.compile_model(convolution(), compiled, targets="sm_90", cudnn="no")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTHONPATH", str(BENCH.parent / "src"))
    python = start_up.base_environment(tmp_path / "base")
    (site,) = (tmp_path / "base").glob("lib/python*/site-packages")
    for package in ("gossamer", "numpy", "cuda/bindings"):
        assert list((site / package).glob("__pycache__/*.pyc")), package
    with gossamer.InferenceSession(compiled, providers=[("CUDAExecutionProvider", {"device": "null"})]) as null:
        (x,), (y,) = null.get_inputs(), null.get_outputs()
    np.save(tmp_path / f"{x.name}.npy", np.ones(x.shape, np.float32))
    where = [python, "-c", "import gossamer; print(gossamer.__file__)"]
    found = subprocess.run(where, env=start_up.bare(), capture_output=True, text=True, check=True).stdout
    assert Path(found.strip()).is_relative_to(site)
    command = [python, "-c", start_up.OURS, compiled, tmp_path, tmp_path / "answer.npz"]
    seconds = start_up._once(command, start_up.bare() | {"GOSSAMER_DEVICE": "null"})
    assert 0 < seconds < 60
    with np.load(tmp_path / "answer.npz") as answer:
        assert answer[y.name].shape == tuple(y.shape)


def test_a_wrong_first_answer_is_no_row(tmp_path: Path) -> None:
    expected = tmp_path / "model.npz"
    np.savez(expected, x=np.ones(3, np.float32), y=np.ones(3, np.float32))
    code = "import sys, time, numpy; numpy.savez(sys.argv[3], y=numpy.array([1, {}, 1])); print(time.time())"
    command = [sys.executable, "-c", code.format(1.01)]
    _, error = start_up.measure(command, tmp_path / "model", expected, 2, os.environ)
    assert error == pytest.approx(0.01)
    for wrong in ("1.1", "numpy.nan"):
        with pytest.raises(AssertionError, match="relative error"):
            start_up.measure([sys.executable, "-c", code.format(wrong)], tmp_path / "model", expected, 1, os.environ)


# Beside cuDNN


class FakeRig:
    """Runs the case `relu` by NumPy. answers: for each run what it multiplies the right answer by, or an error."""

    def __init__(self, *answers: float | Exception) -> None:
        self.answers = list(answers)

    @contextmanager
    def placed(self, program: Program, constants: Any, feeds: Any) -> Iterator[Any]:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        y = np.maximum(feeds["x"], 0) * np.float16(answer)
        yield SimpleNamespace(outputs=lambda: {"y": y}, microseconds=lambda: 10.0 + len(self.answers))


def pair() -> tuple[operators.Job, operators.Job]:
    both = operators.Job(RELU, "float16"), operators.Job(RELU, "float16")
    for job in both:
        job.build(Target.named("sm_90"))
    return both


def test_what_is_wrong_beside_cudnn_is_a_line_and_the_others_have_rows(capsys: pytest.CaptureFixture[str]) -> None:
    pairs = [pair() for _ in range(5)]
    pairs[3][1].problem = "no plan"
    rig: Any = FakeRig(1, 1, RuntimeError("the launch failed"), 1, 1.01, 1, 1)
    rows = list(against_cudnn.measured(rig, pairs, until=float("inf")))
    assert [(row["us"], row["peer_us"], row["error"]) for row in rows] == [
        ("16.00", "15.00", "0.0e+00"),
        ("11.00", "10.00", "0.0e+00"),
    ]
    lines = [line for line in capsys.readouterr().out.splitlines() if "ratio" not in line]
    assert [re.sub(r"relative error of .*", "relative error", line) for line in lines] == [
        "relu: RuntimeError: the launch failed",
        "relu: WrongAnswer: y has a relative error",
        "relu: cuDNN: no plan",
    ]


def test_nothing_is_begun_beside_cudnn_when_the_time_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    rig: Any = FakeRig()
    assert list(against_cudnn.measured(rig, [pair()], until=0.0)) == []
    assert "not begun" in capsys.readouterr().out


def test_cases_beside_cudnn_have_names_of_their_own_and_right_references() -> None:
    """ResNet-50's convolutions, alone and as they are in it, at two batch sizes; one small case of each in full."""
    names = [case.name for case in against_cudnn.chosen("", "1,32")]
    assert len(names) == len(set(names))
    assert sum(name.startswith("conv/") and "dw" not in name and name.endswith("batch 1") for name in names) == 23
    some = r"(512→512 7² 3x3|960→960|512→2048 7² 1x1|256→128 32² 4x4).* batch 1$|BERT batch 1|GlobalMaxPool"
    done = smoke("--only", some, script="against_cudnn.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("error") == sum(bool(re.search(some, name)) for name in names) == 8
