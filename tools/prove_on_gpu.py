"""All that only a GPU can show, in one run: the legs of the tests, the sanitizer, the benchmarks.

    python tools/prove_on_gpu.py build/proof [--only REGEX] [--budget SECONDS] [--list]

Takes a Python that has PyTorch, torchvision, transformers, cuDNN and what `.[compile,cpu,dev]` installs; for the second
part compute-sanitizer, too. Every step leaves its log and the rows that it measured in the folder; `summary.csv` there
has exit status and seconds of each. A step that ended well is not done again, so that a run goes on where it was
interrupted, or where its time was over (`--budget`: nothing is begun that might not end in it).

Steps run in the order of `--list`, those of a phase side by side on all GPUs (CUDA_VISIBLE_DEVICES, where it is set):
one to a GPU, but sanitized tests share theirs, and the first leg has all. The sanitizer does not follow pytest-xdist's
workers (it hangs), so that each of its shards is a process of its own; their kernels come out of the cache, which the
first leg fills.
"""

from __future__ import annotations

import argparse
import csv
import os
import queue
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[1]
RACECHECK = ROOT / "tests" / "gpu" / "racecheck.txt"
"""Tests of every kernel that shares memory between threads, an id a line."""
NOT_SANITIZED = "tests/gpu/test_repeated.py"
"""Repeats for what the sanitizer does not see."""
PER_GPU = 8
"""Sanitized processes that share one GPU: most of their time is the host's."""
NOT_BEGUN = "not begun"


@dataclass(frozen=True)
class Step:
    """seconds: after which it is killed. phase: steps of one run side by side, per_gpu of them on each GPU; 0: one, on
    all."""

    name: str
    phase: str
    command: Sequence[str]
    seconds: int
    environment: Mapping[str, str] = field(default_factory=dict)
    per_gpu: int = 1


def steps(out: Path, start_up: Path | None) -> list[Step]:
    """In order of importance, but that the others need what the first compiles."""
    return [*legs(), *benchmarks(out, start_up), *sanitized(out)]


def pytest(*arguments: str) -> list[str]:
    """What follows the interpreter."""
    return ["-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]


def legs() -> Iterator[Step]:
    """tests/cudnn_legs.py says what they are. The first compiles, and sees all GPUs: some tests want two."""
    workers = ["-n", str(min(os.cpu_count() or 1, 16)), "--dist", "worksteal"] if find_spec("xdist") else []
    tests = pytest(*workers, "--durations=20", "-m", "gpu", "tests/gpu")
    without = ["tests/without_cudnn.py", *tests]
    yield Step("leg-installed", "first leg", [sys.executable, *tests], 420, {"CUDNN_LEG": "installed"}, per_gpu=0)
    yield Step("leg-absent", "legs", [sys.executable, *without], 420, {"CUDNN_LEG": "absent"})
    yield Step("leg-disabled", "legs", [sys.executable, *tests], 420, {"CUDNN_LEG": "disabled"})


def benchmarks(out: Path, start_up: Path | None) -> Iterator[Step]:
    """Each with a file of rows of its own, since they may run side by side."""

    def step(script: str, seconds: int, *arguments: str | Path) -> Step:
        command = [f"bench/{script}.py", *arguments, "--results", out / f"{script}.csv"]
        return Step(f"bench-{script}", "benchmarks", [sys.executable, *map(str, command)], seconds)

    if start_up is None:
        start_up = out / "start_up"
        yield Step("start-up-files", "files", [sys.executable, "bench/start_up_files.py", str(start_up)], 300)
    yield step("against_cudnn", 330, "--budget", "240")
    yield step("models", 300)
    yield step("transformer_models", 400)
    yield step("start_up", 300, start_up)
    yield step("operators", 400, "--budget", "300")


def sanitized(out: Path) -> Iterator[Step]:
    """Steps of as many tests each, taken in turn: those of one file take about as long."""
    report = ("--racecheck-report", "analysis")
    for tool, shards, tests, options in (
        ("racecheck", 8, RACECHECK.read_text().splitlines(), report),
        ("memcheck", 48, gpu_tests(), ()),
    ):
        for shard in range(shards):
            name = f"{tool}-{shard:02}"
            (out / f"{name}.txt").write_text("\n".join(tests[shard::shards]))
            sanitizer = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", "--print-limit", "20", *options]
            command = [*sanitizer, sys.executable, *pytest("--durations=5", f"@{out / name}.txt")]
            yield Step(name, tool, command, 240, {"CUDNN_LEG": "disabled"}, PER_GPU)


def gpu_tests() -> list[str]:
    """The ids of all tests for memcheck."""
    command = [sys.executable, *pytest("--collect-only")]
    command += ["-m", "gpu", "tests/gpu", f"--ignore={NOT_SANITIZED}"]
    done = subprocess.run(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True, check=True)
    return [line for line in done.stdout.splitlines() if line.startswith("tests/gpu/")]


def environment() -> dict[str, str]:
    """Every step's: what the machine lacks is a failure."""
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    return os.environ | {"PYTHONPATH": path, "GOSSAMER_STRICT": "1"}


def gpus() -> list[str]:
    """As CUDA_VISIBLE_DEVICES names them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible:
        return visible.split(",")
    listed = subprocess.run(["nvidia-smi", "--list-gpus"], stdout=subprocess.PIPE, text=True, check=True)
    return [str(number) for number, _ in enumerate(listed.stdout.splitlines())]


class Proof:
    """One run over the steps."""

    def __init__(self, out: Path, devices: Sequence[str], until: float) -> None:
        self.out, self.devices, self.until = out, devices, until
        self.running: set[int] = set()
        self.summary = out / "summary.csv"
        if not self.summary.exists():
            self._write("step", "status", "seconds")

    def left(self, every: Sequence[Step]) -> list[Step]:
        """What has not ended well yet."""
        with self.summary.open(newline="") as file:
            done = {row["step"] for row in csv.DictReader(file) if row["status"] == "0"}
        return [step for step in every if step.name not in done]

    def run(self, todo: Sequence[Step]) -> None:
        for _, phase in groupby(todo, key=lambda step: step.phase):
            together = list(phase)
            free: queue.Queue[str] = queue.Queue()
            for devices in [*self.devices] * together[0].per_gpu or [",".join(self.devices)]:
                free.put(devices)
            with ThreadPoolExecutor(free.qsize()) as pool:
                try:
                    for row in pool.map(lambda step, free=free: self._take(step, free), together):
                        self._record(*row)
                except BaseException:  # Ctrl-C, which reaches no other process group
                    for group in list(self.running):
                        os.killpg(group, signal.SIGKILL)
                    raise

    def _take(self, step: Step, free: queue.Queue[str]) -> tuple[str, str, str]:
        devices = free.get()
        try:
            started = time.monotonic()
            status = self._status(step, devices) if started + step.seconds <= self.until else NOT_BEGUN
            return step.name, status, f"{time.monotonic() - started:.0f}"
        finally:
            free.put(devices)

    def _status(self, step: Step, devices: str) -> str:
        """The exit status. What the step says goes to its log."""
        with (self.out / f"{step.name}.log").open("w") as log:
            process = subprocess.Popen(
                step.command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, process_group=0,
                env={**environment(), **step.environment, "CUDA_VISIBLE_DEVICES": devices},
            )  # fmt: skip
            self.running.add(process.pid)
            try:
                return str(process.wait(step.seconds))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # pytest-xdist's workers, too
                process.wait()
                return "killed"
            finally:
                self.running.remove(process.pid)

    def _record(self, name: str, status: str, seconds: str) -> None:
        if status != NOT_BEGUN:
            self._write(name, status, seconds)
        print(f"{name:24} {status:>10} {seconds:>6} s", flush=True)

    def _write(self, *row: str) -> None:
        with self.summary.open("a", newline="") as file:
            csv.writer(file).writerow(row)


def main() -> int:
    """The exit status: 0 where all that was asked for has ended well, now or before."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="", help="a regular expression that names of steps contain")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds")
    parser.add_argument("--start-up", type=Path, help="what bench/start_up_files.py made elsewhere")
    parser.add_argument("--list", action="store_true", help="say what is left, and the command of each")
    arguments = parser.parse_args()
    until = time.monotonic() + arguments.budget
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    every = steps(out, arguments.start_up and arguments.start_up.resolve())
    asked = [step for step in every if re.search(arguments.only, step.name)]
    proof = Proof(out, [] if arguments.list else gpus(), until)
    left = proof.left(asked)
    if arguments.list:
        for step in left:
            print(f"{step.name:24} {step.seconds:4} s  {shlex.join(step.command)}")
        return 0
    proof.run(left)
    return int(bool(proof.left(asked)))


if __name__ == "__main__":
    sys.exit(main())
