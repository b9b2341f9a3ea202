"""Runs a model on the GPU by Gossamer alone, checks the answer, times it, prints JSON.

    python bench/run_model.py MODEL INPUT X.npy Y.npy MEASURE:LIMIT [OPTION=VALUE …]

run_us: median of `run_with_iobinding` with input and output on the device, waited for. device_us: time per run of many
queued behind one another. No zeros, no PyTorch, no cuDNN: the process's memory map says so.
"""

from __future__ import annotations

import cProfile
import json
import os
import pstats
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np

import gossamer


def main() -> None:
    model, name, x_path, y_path, limit = sys.argv[1:6]
    options = dict(option.split("=") for option in sys.argv[6:])
    x, want = np.load(x_path), np.load(y_path).astype(np.float64)
    started = time.perf_counter()
    session = gossamer.InferenceSession(model, providers=[("CUDAExecutionProvider", options)])
    output = session.get_outputs()[0].name
    got = session.run([output], {name: x})[0].astype(np.float64)
    first_s = time.perf_counter() - started
    measure, _, allowed = limit.partition(":")
    error = float(
        np.abs(got - want).max() if measure == "largest" else np.linalg.norm(got - want) / np.linalg.norm(want)
    )
    assert error < float(allowed), f"{measure} error {error}"
    binding = session.io_binding()
    binding.bind_ortvalue_input(name, gossamer.OrtValue.ortvalue_from_numpy(x, "cuda", 0))
    binding.bind_output(output, "cuda")
    session.run_with_iobinding(binding)
    result = binding.get_outputs()[0]
    binding.bind_ortvalue_output(output, result)
    run_us = statistics.median(timed(lambda: session.run_with_iobinding(binding), 200)) * 1e6
    again = result.numpy().astype(np.float64)
    assert np.linalg.norm(again - got) <= 1e-6 * np.linalg.norm(got), "a replay gives another answer"
    queued = gossamer.RunOptions()
    queued.add_run_config_entry("disable_synchronize_execution_providers", "1")
    device_us = min(timed(lambda: many(session, binding, queued), 5)) / 100 * 1e6
    maps = Path("/proc/self/maps").read_text()
    program = session.program({name: x})
    arena, bound = program.arena_bytes, max(1, program.lower_bound_bytes)
    if "--profile" in os.environ.get("BENCH", ""):
        profile(lambda: many(session, binding, gossamer.RunOptions()))
    print(
        json.dumps(
            {
                "run_us": run_us,
                "device_us": device_us,
                "first_s": first_s,
                "error": error,
                "launches": len(list(program.launches)),
                "arena": f"{arena} ({arena / bound:.3f} of the bound)",
                "placement": session.placement().summary(),
                "cudnn": "cudnn" in maps,
                "driver": driver_version(),
                "triton": version("triton"),
            }
        )
    )


def profile(once: Callable[[], None]) -> None:
    """Where the host's time goes, to standard error."""
    profiler = cProfile.Profile()
    profiler.runcall(once)
    pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(18)


def many(session: gossamer.InferenceSession, binding: gossamer.IOBinding, queued: gossamer.RunOptions) -> None:
    for _ in range(99):
        session.run_with_iobinding(binding, queued)
    session.run_with_iobinding(binding)


def timed(once: Callable[[], None], repeats: int) -> list[float]:
    times = []
    for _ in range(repeats + 10):
        started = time.perf_counter()
        once()
        times.append(time.perf_counter() - started)
    return times[10:]


def driver_version() -> str:
    from gossamer.run import driver

    return str(driver.call("cuDriverGetVersion"))


if __name__ == "__main__":
    main()
