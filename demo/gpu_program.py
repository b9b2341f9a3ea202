"""What a GPU would run for a model, shown on a machine that has none.

The GPU Program of the model is run kernel by kernel in Triton's interpreter and compared with the CPU, and its kernels
are compiled for a GPU that is not there.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import gossamer
from gossamer import settings
from gossamer.build.compilation import compile_kernels
from gossamer.program import Program

TARGET = "sm_90"


@dataclass(frozen=True)
class Interpreted:
    """A Program run in the interpreter: kernel launches, seconds, and the largest absolute error against the CPU."""

    launches: int
    seconds: float
    largest_error: float


@dataclass(frozen=True)
class Compiled:
    """Distinct kernels compiled for `target` with an empty cache: how many, bytes of machine code, seconds."""

    target: str
    kernels: int
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Shown:
    """Both results."""

    interpreted: Interpreted
    compiled: Compiled


def show_program(model: Path, batch: np.ndarray, console: Console) -> Shown:
    """Run, compare and compile the Program of a model with one input and one output; print it all."""
    console.print(f"\nThe GPU Program of {model.stem} for {list(batch.shape)}, kernel by kernel, in the interpreter:")
    interpreted = interpret(model, batch, console)
    console.print(
        f"{interpreted.launches} launches in {interpreted.seconds:.1f} s, "
        f"largest error against the CPU {interpreted.largest_error:.1e}"
    )
    compiled = compile_for(TARGET, model, batch)
    console.print(
        f"compiled for {compiled.target}: {compiled.kernels} kernels, "
        f"{compiled.bytes:,} bytes, {compiled.seconds:.1f} s"
    )
    return Shown(interpreted, compiled)


def interpret(model: Path, batch: np.ndarray, console: Console) -> Interpreted:
    """Run the Program in the interpreter, the model on the CPU, and compare."""
    cpu = gossamer.InferenceSession(model, providers=["CPUExecutionProvider"])
    feeds = {cpu.get_inputs()[0].name: batch}
    (expected,) = cpu.run(None, feeds)
    session = gossamer.InferenceSession(model, providers=[("CUDAExecutionProvider", {"device": "interpreter"})])
    program = session.program(feeds)
    console.print(launches_table(program))
    started = time.perf_counter()
    (result,) = session.run(None, feeds)
    seconds = time.perf_counter() - started
    return Interpreted(len(list(program.launches)), seconds, float(np.abs(result - expected).max()))


def launches_table(program: Program) -> Table:
    """One row for each launch, in order."""
    table = Table("kernel", "grid", "writes", "for", box=None)
    for launch in program.launches:
        written = ", ".join(str(program.buffers[name]) for name in launch.writes)
        table.add_row(launch.kernel.function, "×".join(map(str, launch.grid)), written, launch.origin.op_type)
    return table


def compile_for(target: str, model: Path, batch: np.ndarray) -> Compiled:
    """Compile every kernel of the model's Program for `target`, from nothing: the cache of earlier runs is not used."""
    options = {"device": "null", "target": target}
    session = gossamer.InferenceSession(model, providers=[("CUDAExecutionProvider", options)])
    program = session.program({session.get_inputs()[0].name: batch})
    with tempfile.TemporaryDirectory() as folder, settings.override(CACHE_DIR=folder):
        started = time.perf_counter()
        cubins = compile_kernels(program.kernels, program.target)
        seconds = time.perf_counter() - started
    return Compiled(target, len(cubins), sum(len(cubin.code) for cubin in cubins.values()), seconds)
