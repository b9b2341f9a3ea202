"""Runs a model on the GPU by Gossamer alone, checks the answer, times it, prints JSON.

    python bench/run_model.py MODEL INPUTS.npz OUTPUTS.npz MEASURE:LIMIT [OPTION=VALUE …]

The outputs that OUTPUTS.npz names are compared with it. run_us: median of `run_with_iobinding` with inputs and outputs
on the device, waited for. device_us: time per run of many queued behind one another. No zeros, no PyTorch, no cuDNN
unless an option asks for it: the process's memory map says so.
"""

from __future__ import annotations

import cProfile
import json
import os
import pstats
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np

import gossamer
import results


def main() -> None:
    model, inputs, outputs, limit = sys.argv[1:5]
    options = {"enable_cudnn": "0"} | dict(option.split("=") for option in sys.argv[5:])
    feeds, want = dict(np.load(inputs)), dict(np.load(outputs))
    started = time.perf_counter()
    session = gossamer.InferenceSession(model, providers=[("CUDAExecutionProvider", options)])
    got = session.run(list(want), feeds)
    first_s = time.perf_counter() - started
    measure, _, allowed = limit.partition(":")
    errors = {name: distance(one, want[name], measure) for name, one in zip(want, got, strict=True)}
    error = max(errors.values())
    assert error < float(allowed), f"{measure} errors {errors}"
    binding = session.io_binding()
    for name, value in feeds.items():
        binding.bind_ortvalue_input(name, gossamer.OrtValue.ortvalue_from_numpy(value, "cuda", 0))
    for name in want:
        binding.bind_output(name, "cuda")
    session.run_with_iobinding(binding)
    results_there = binding.get_outputs()
    for name, value in zip(want, results_there, strict=True):
        binding.bind_ortvalue_output(name, value)
    run_us = results.median_us(lambda: session.run_with_iobinding(binding), 200)
    for one, other in zip(results_there, got, strict=True):
        assert distance(one.numpy(), other, "relative") <= 1e-6, "a replay gives another answer"
    queued = gossamer.RunOptions()
    queued.add_run_config_entry("disable_synchronize_execution_providers", "1")
    device_us = min(results.seconds_of(lambda: many(session, binding, queued), 5)) / 100 * 1e6
    maps = Path("/proc/self/maps").read_text()
    program = session.program(feeds)
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
                "driver": results.driver_version(),
                "triton": version("triton"),
            }
        )
    )


def distance(got: np.ndarray, want: np.ndarray, measure: str) -> float:
    """The largest difference, or the norm of all of them by the norm of what is wanted."""
    one, other = got.astype(np.float64), want.astype(np.float64)
    return float(
        np.abs(one - other).max() if measure == "largest" else np.linalg.norm(one - other) / np.linalg.norm(other)
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


if __name__ == "__main__":
    main()
