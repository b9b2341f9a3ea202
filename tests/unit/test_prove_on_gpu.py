"""What runs everything on a GPU, with steps of its own: none of this needs one."""

from __future__ import annotations

import csv
import sys
import time
from pathlib import Path

import pytest

import prove_on_gpu
from conftest import TESTS
from prove_on_gpu import Proof, Step

SAYS = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ.get('MORE'))"


def step(name: str, code: str, seconds: int = 30, phase: str = "one", **how: object) -> Step:
    return Step(name, phase, [sys.executable, "-c", code], seconds, **how)  # type: ignore[arg-type]


def proof(folder: Path, *devices: str, seconds: float = float("inf")) -> Proof:
    return Proof(folder, devices or ("0",), time.monotonic() + seconds)


def summary(folder: Path) -> dict[str, str]:
    with (folder / "summary.csv").open(newline="") as file:
        return {row["step"]: row["status"] for row in csv.DictReader(file)}


def test_only_what_ended_well_is_not_done_again(tmp_path: Path) -> None:
    every = [step("good", "print('fine')"), step("bad", "raise SystemExit(3)"), step("good-too", "")]
    proof(tmp_path).run(every)
    assert summary(tmp_path) == {"good": "0", "bad": "3", "good-too": "0"}
    assert (tmp_path / "good.log").read_text() == "fine\n"
    assert [one.name for one in proof(tmp_path).left(every)] == ["bad"]
    again = [step("bad", "")]
    proof(tmp_path).run(again)
    assert proof(tmp_path).left(again) == []


def test_what_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    child = "import time; time.sleep(60)"
    start = f"child = subprocess.Popen([sys.executable, '-c', {child!r}])"
    code = f"import subprocess, sys; {start}; print(child.pid, flush=True); child.wait()"
    proof(tmp_path).run([step("hangs", code, seconds=2)])
    assert summary(tmp_path) == {"hangs": "killed"}
    pid = int((tmp_path / "hangs.log").read_text())
    state = Path(f"/proc/{pid}/stat")
    deadline = time.monotonic() + 10
    while state.exists() and state.read_text().split()[2] != "Z":  # nobody may be there to wait for it
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_might_not_end_in_time_is_not_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    every = [step("long", "", seconds=100), step("short", "", seconds=10)]
    proof(tmp_path, seconds=50).run(every)
    assert summary(tmp_path) == {"short": "0"}
    assert "not begun" in capsys.readouterr().out


def test_a_phase_is_spread_over_all_gpus(tmp_path: Path) -> None:
    """Each waits until its like on the other GPU runs, too; `together` has both, and is over before."""
    meet = f"""
import os, pathlib, time
{SAYS}
here = pathlib.Path({str(tmp_path)!r})
(here / ("on " + os.environ["CUDA_VISIBLE_DEVICES"])).touch()
while len(list(here.glob("on *"))) < 2: time.sleep(0.02)
"""
    apart = [step(name, meet, phase="apart") for name in ("a", "b")]
    together = step("together", SAYS, phase="together", per_gpu=0, environment={"MORE": "yes"})
    proof(tmp_path, "2", "5").run([together, *apart])
    assert summary(tmp_path) == {"together": "0", "a": "0", "b": "0"}
    assert (tmp_path / "together.log").read_text() == "2,5 yes\n"
    assert {(tmp_path / f"{name}.log").read_text() for name in ("a", "b")} == {"2 None\n", "5 None\n"}


def test_every_test_is_sanitized_once(tmp_path: Path) -> None:
    """racecheck.txt names tests, which could be renamed: all of them are there."""
    commands = {one.name: one.command for one in prove_on_gpu.sanitized(tmp_path)}
    assert all(command[-1] == f"@{tmp_path / name}.txt" for name, command in commands.items())
    memcheck, racecheck = (
        [line for path in sorted(tmp_path.glob(f"{tool}-*.txt")) for line in path.read_text().splitlines()]
        for tool in ("memcheck", "racecheck")
    )
    assert len(memcheck) == len(set(memcheck)) > 1000
    assert {line.partition("::")[0] for line in memcheck} == {
        f"tests/gpu/{path.name}" for path in (TESTS / "gpu").glob("test_*.py")
    } - {prove_on_gpu.NOT_SANITIZED}
    assert sorted(racecheck) == prove_on_gpu.RACECHECK.read_text().splitlines()
    assert set(racecheck) <= set(memcheck)


def test_what_is_run_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scripts, and the options that they are given."""
    monkeypatch.setattr(prove_on_gpu, "gpu_tests", lambda: ["tests/gpu/test_x.py::test_x"])
    monkeypatch.setattr(sys, "argv", ["prove_on_gpu.py", str(tmp_path), "--list"])
    assert prove_on_gpu.main() == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed[:3]] == ["leg-installed", "leg-absent", "leg-disabled"]
    for one in prove_on_gpu.benchmarks(tmp_path, None):
        script = TESTS.parent / one.command[1]
        options = {argument for argument in one.command[2:] if argument.startswith("--")}
        assert all(f'"{option}"' in script.read_text(encoding="utf-8") for option in options), script
