"""Every native operator on a GPU: what it has to move or to multiply, against the ceilings that are measured with it.

    python bench/operators.py [--only REGEX] [--dtypes float16,float32,bfloat16] [--budget SECONDS] [--results FILE]
    python bench/operators.py --compile     compiles ahead into GOSSAMER_CACHE_DIR, for sm_90; needs no GPU
    python bench/operators.py --smoke       tiny sizes in Triton's interpreter: proves the benchmark, measures nothing

Every answer is checked before it is timed, against onnxruntime's CPU provider or NumPy. A time is the median over
replays of a CUDA graph in which inputs, weights and outputs rotate through more memory than L2 holds. The ceilings are
measured in the same run: device-to-device copies by the driver and by our own kernel, read plus written, and the
largest square product, by PyTorch where it is there and by our own kernel. Rows go to bench/results.csv.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import results
from gossamer.compiler import Choices, specialise_and_build
from gossamer.errors import CompilationError
from gossamer.model import passes
from gossamer.model.load import load
from gossamer.model.node import Constants
from gossamer.program import Kernel, Program, Target
from operator_case import Array, Arrays, Case, WrongAnswer, pattern
from operator_cases import all_cases, ceiling_cases
from replay import Bench, memcpy_us

LOW = 0.5
"""Cases below this part of their ceiling are listed at the end."""
COPIED = 1 << 29
"""Bytes of the device-to-device copies; twice as many are moved."""
SQUARE = 8192


NATIVE = Choices(nhwc=False)


@dataclass
class Job:
    """A case in one type. problem: why it has no time."""

    case: Case
    dtype: str
    program: Program | None = None
    constants: Mapping[str, Array] = field(default_factory=dict)
    problem: str = ""

    def build(self, target: Target, choices: Choices = NATIVE) -> None:
        """As a session would, on the GPU alone; layouts stay as the case has them."""
        try:
            model = load(self.case.model(self.dtype, self.case.shells(self.dtype)))
            passes.prepare(model)
            self.constants = constants = Constants()
            for name, value in model.graph.initializers.items():
                assert value.const_value is not None
                constants.register(name, value.const_value)
            shapes = {name: given.shape for name, given in self.case.inputs.items() if not given.constant}
            self.program = specialise_and_build(model, shapes, constants, target, choices).program
        except Exception as error:  # whatever is wrong with one case, the others have their turn
            self.problem = f"not built: {type(error).__name__}: {error}"

    def prepared(self) -> tuple[Arrays, list[Array]]:
        """The inputs, and the right answer."""
        arrays = self.case.arrays(self.dtype)
        return arrays, self.case.wanted(arrays)

    def __str__(self) -> str:
        return f"{self.case.name} {self.dtype}"


@dataclass
class Ceilings:
    """The highest rates that were measured. Bytes and operations per microsecond; launch_us: one after another."""

    bytes: float = 0.0
    products: dict[str, float] = field(default_factory=dict)
    launch_us: float = 0.0

    def learn(self, measured: Measured) -> None:
        """What a case says that is a ceiling; others say nothing."""
        match measured.job.case.name:
            case "ceiling/negate":
                self.bytes = max(self.bytes, measured.nbytes / measured.us)
            case "ceiling/launch":
                self.launch_us = measured.us
            case "ceiling/product" | "ceiling/product_int8":
                self._raise_products(measured.job.dtype, measured.flops / measured.us)

    def learn_from(self, peers: Mapping[str, float]) -> None:
        """What the driver's copy and PyTorch's products say."""
        self.bytes = max(self.bytes, 2 * COPIED / peers["memcpy"])
        for kind in peers.keys() - {"memcpy"}:
            self._raise_products(kind.removeprefix("torch_"), 2 * SQUARE**3 / peers[kind])

    def _raise_products(self, kind: str, rate: float) -> None:
        self.products[kind] = max(self.products.get(kind, 0.0), rate)

    def floor_us(self, measured: Measured) -> float:
        """No version is faster than what has to be moved, or multiplied, at the highest rates."""
        moving = measured.nbytes / self.bytes if self.bytes else 0.0
        rate = self.products.get(measured.job.case.products_in(measured.job.dtype))
        return max(moving, measured.flops / rate) if rate else moving


@dataclass(frozen=True)
class Measured:
    """A right answer and its time."""

    job: Job
    us: float
    error: float
    nbytes: int

    @property
    def flops(self) -> int:
        return self.job.case.flops

    @property
    def launches(self) -> int:
        assert self.job.program is not None
        return sum(1 for _ in self.job.program.launches)

    def line(self, ceilings: Ceilings) -> str:
        products = f"{self.flops / self.us / 1e6:7.1f} TFLOP/s" if self.flops else " " * 15
        part = f"{ceilings.floor_us(self) / self.us:5.0%}"
        return (
            f"{self.job!s:50} {self.us:9.2f} µs {self.nbytes / self.us / 1e3:7.0f} GB/s {products} {part}"
            f"  {self.launches} launch{'es' * (self.launches != 1):2}  error {self.error:.0e}"
        )

    def row(self, ceilings: Ceilings) -> dict[str, str]:
        return {
            "case": self.job.case.name,
            "dtype": self.job.dtype,
            "measure": "device",
            "us": f"{self.us:.2f}",
            "error": f"{self.error:.2e}",
            "peer": "ceilings",
            "peer_us": f"{ceilings.floor_us(self):.2f}",
            "gb_per_s": f"{self.nbytes / self.us / 1e3:.0f}",
            "tflop_per_s": f"{self.flops / self.us / 1e6:.1f}" if self.flops else "",
        }


def main() -> int:
    """The exit status: 1 where an answer was wrong, or a case could not be built or run."""
    arguments = _arguments()
    started = time.perf_counter()
    jobs = list(_jobs(arguments))
    if arguments.smoke:
        smoke(jobs)
    elif arguments.compile:
        build_all(jobs, Target.named("sm_90"))
        compile_all(jobs, Target.named("sm_90"))
    else:
        bench(jobs, started + arguments.budget, arguments.results)
    problems = [f"{job}: {job.problem}" for job in jobs if job.problem]
    print(
        *problems,
        f"{len(jobs)} cases, {len(problems)} without a result, {time.perf_counter() - started:.0f} s",
        sep="\n",
    )
    return bool(problems)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a regular expression that names of cases contain")
    parser.add_argument("--dtypes", default="float16,float32,bfloat16,int8")
    parser.add_argument("--budget", type=float, default=150.0, help="seconds after which no further case is begun")
    parser.add_argument("--results", type=Path, default=results.RESULTS)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--smoke", action="store_true")
    return parser.parse_args()


def _jobs(arguments: argparse.Namespace) -> Iterator[Job]:
    """The ceilings first, whatever else is asked for."""
    for case in ceiling_cases(tiny=arguments.smoke):
        yield from (Job(case, dtype) for dtype in case.dtypes)
    for case in all_cases(tiny=arguments.smoke):
        if re.search(arguments.only, case.name):
            yield from (Job(case, dtype) for dtype in case.dtypes if dtype in arguments.dtypes.split(","))


def build_all(jobs: Sequence[Job], target: Target) -> None:
    started = time.perf_counter()
    for job in jobs:
        job.build(target)
    print(f"{len(jobs)} Programs built in {time.perf_counter() - started:.1f} s", flush=True)


def compile_all(jobs: Sequence[Job], target: Target) -> dict[Kernel, Any]:
    """The machine code of all kernels, compiled in parallel. Jobs whose kernels do not compile get a problem."""
    from gossamer.build.compilation import compile_kernels

    started = time.perf_counter()
    kernels = dict.fromkeys(kernel for job in jobs if job.program for kernel in job.program.kernels)
    try:
        cubins = compile_kernels(kernels, target)
    except CompilationError:
        cubins = {}
        for job in jobs:
            if job.program:
                try:
                    cubins |= compile_kernels(job.program.kernels, target)
                except CompilationError as error:
                    job.problem = f"not compiled: {error}"
    print(f"{len(kernels)} kernels ready in {time.perf_counter() - started:.1f} s", flush=True)
    return cubins


def smoke(jobs: Sequence[Job]) -> None:
    """Builds, runs and checks every case in the interpreter."""
    from gossamer.run.interpreter import InterpreterExecutor, enter_interpreter_mode

    enter_interpreter_mode()
    for job in jobs:
        job.build(Target.named("interpreter"))
        if job.program is None:
            continue
        arrays, wanted = job.prepared()
        feeds = {name: arrays[name] for name in job.program.inputs}
        outputs = InterpreterExecutor(job.constants).run(job.program, feeds)
        try:
            error = job.case.error(job.dtype, outputs, wanted)
            print(f"{job!s:50} {job.case.nbytes(job.dtype, arrays, outputs)} bytes, error {error:.0e}")
        except WrongAnswer as wrong:
            job.problem = str(wrong)


def bench(jobs: list[Job], until: float, path: Path) -> None:
    """Measures what there is time for; a line and a row for each case, and those far from their ceilings again."""
    rig, ceilings, measured = Bench.on(0), Ceilings(), list[Measured]()
    target, workers, peers = rig.device.target(), os.cpu_count() or 1, dict[str, float]()
    shared = results.origin(rig.device.name, results.driver_version(), version("triton")) | {"benchmark": "operators"}
    build_all(jobs, target)
    try:
        with ThreadPoolExecutor(workers + 1) as pool:
            compiled = pool.submit(compile_all, jobs, target)  # first: the others wait for nothing
            coming = Coming(pool, [job for job in jobs if not job.problem], ahead=workers)
            peers |= dict(_peers())
            rig.load(compiled.result())
            peers["memcpy"] = memcpy_us(pattern("normal", "float32", 1.0, 0, 0, 0), COPIED)
            ceilings.learn_from(peers)
            rows = [{"case": f"ceiling/{name}", "measure": "device", "us": f"{us:.2f}"} for name, us in peers.items()]
            results.append(path, [shared | row for row in rows])
            for result in _measured(rig, coming, until):
                measured.append(result)
                ceilings.learn(result)
                print(result.line(ceilings), flush=True)
                results.append(path, [shared | result.row(ceilings)])  # one by one: what is measured stays
    finally:  # what was measured before an error or an interrupt counts, too
        _report(measured, ceilings, peers)
    rig.close()


def _measured(rig: Bench, coming: Coming, until: float) -> Iterator[Measured]:
    """What has a right answer and a time; the other jobs get a problem."""
    for job in coming.jobs:
        if not job.problem and time.perf_counter() > until:
            job.problem = "not begun: the time was over"
        if job.problem:
            coming.drop(job)
            continue
        prepared = coming.result(job)
        result = None if prepared is None else _measure(rig, job, *prepared)
        if result is not None:
            yield result
        else:
            print(f"{job!s:50} {job.problem}", flush=True)


@dataclass
class Coming:
    """Inputs and answers made ahead of their turn, on the other cores, but not so many that memory runs out."""

    pool: ThreadPoolExecutor
    jobs: list[Job]
    ahead: int
    futures: dict[int, Future[tuple[Arrays, list[Array]]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._left = iter(self.jobs)
        for _ in range(self.ahead):
            self._begin()

    def _begin(self) -> None:
        job = next((job for job in self._left if not job.problem), None)
        if job is not None:
            self.futures[id(job)] = self.pool.submit(job.prepared)

    def result(self, job: Job) -> tuple[Arrays, list[Array]] | None:
        """None where there is no right answer to compare with."""
        self._begin()
        while id(job) not in self.futures:
            self._begin()
        try:
            return self.futures.pop(id(job)).result()
        except Exception as error:  # onnxruntime's errors have no common base but Exception
            job.problem = f"no reference: {error}"
            return None

    def drop(self, job: Job) -> None:
        if id(job) in self.futures:
            self.futures.pop(id(job)).cancel()


def _measure(rig: Bench, job: Job, arrays: Arrays, wanted: list[Array]) -> Measured | None:
    assert job.program is not None
    feeds = {name: arrays[name] for name in job.program.inputs}
    try:
        with rig.placed(job.program, job.constants, feeds) as placed:
            outputs = placed.outputs()
            error = job.case.error(job.dtype, outputs, wanted)
            us = placed.microseconds()
            again = job.case.error(job.dtype, placed.outputs(), wanted)
    except Exception as problem:  # as above
        job.problem = f"{type(problem).__name__}: {problem}"
        return None
    return Measured(job, us, max(error, again), job.case.nbytes(job.dtype, arrays, outputs))


def _peers() -> Iterator[tuple[str, float]]:
    """Microseconds of PyTorch's product of two square matrices by type; float32 with TF32."""
    if find_spec("torch") is None:
        return
    import torch

    torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(0)
    a, b = (torch.randn(SQUARE, SQUARE, device="cuda") for _ in range(2))
    for kind in ("float16", "bfloat16", "float32"):
        x, y = a.to(getattr(torch, kind)), b.to(getattr(torch, kind))
        yield f"torch_{kind}", _torch_us(lambda x=x, y=y: x @ y)
    x, y = ((16 * m).clamp(-127, 127).to(torch.int8) for m in (a, b))
    yield "torch_int8", _torch_us(lambda: torch._int_mm(x, y.t()))


def _torch_us(function: Any) -> float:
    import torch

    events = [torch.cuda.Event(enable_timing=True) for _ in range(15)]
    for event in events:  # all queued at once: the GPU never waits for this thread
        event.record()
        function()
    torch.cuda.synchronize()
    return median(1e3 * start.elapsed_time(end) for start, end in pairwise(events[3:]))


def _report(measured: Sequence[Measured], ceilings: Ceilings, peers: Mapping[str, float]) -> None:
    products = ", ".join(f"{kind} {rate / 1e6:.0f}" for kind, rate in ceilings.products.items())
    print(f"\nCeilings: {ceilings.bytes / 1e6:.2f} TB/s read and written; TFLOP/s of products: {products}")
    print("By others: " + ", ".join(f"{name} {us:.0f} µs" for name, us in peers.items()))
    print(f"Smallest launch: {ceilings.launch_us:.2f} µs")
    low = [m for m in measured if ceilings.floor_us(m) < LOW * m.us and m.job.case.name != "ceiling/launch"]
    low.sort(key=lambda m: m.us - ceilings.floor_us(m), reverse=True)
    print(f"\nBelow {LOW:.0%} of their ceiling, {len(low)} of {len(measured)}, those with the most to gain first:")
    for m in low:
        launches = m.launches * ceilings.launch_us
        print(
            f"{m.job!s:50} {m.us:9.2f} µs, ceiling {ceilings.floor_us(m):9.2f} µs, {ceilings.floor_us(m) / m.us:4.0%}"
            + (", mostly launches" if launches > LOW * m.us else "")
        )


if __name__ == "__main__":
    sys.exit(main())
