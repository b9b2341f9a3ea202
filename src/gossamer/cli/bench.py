"""`gossamer bench`: the latency of one model, after its answer was checked."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
from rich.console import Console

from gossamer.cli.arguments import Request
from gossamer.cli.feeds import Array, make_feeds
from gossamer.cli.output import console
from gossamer.cli.progress import progress_bars
from gossamer.cli.run_model import differences_from_cpu, inputs_of
from gossamer.diagnostics import advance, stage
from gossamer.errors import InvalidArgument
from gossamer.session import InferenceSession, IOBinding, OrtValue


def bench_model(
    request: Request, repeat: int, warmup: int, *, check: bool | None, tolerance: float | None, as_json: bool
) -> bool:
    """Measure and print; False, without measuring, where the answer is wrong. check: None for where there is an ONNX
    file to check against."""
    if check and request.is_compiled:
        raise InvalidArgument(f"--check runs the ONNX file on the CPU, and {request.model} is a compiled model")
    check = not request.is_compiled if check is None else check
    if request.runs_nothing:
        raise InvalidArgument("bench has nothing to measure on the device null, which runs nothing")
    with progress_bars(), InferenceSession(request.model, providers=request.providers()) as session:
        feeds = make_feeds(request, inputs_of(session))
        wrong = _wrong(request, session, feeds, tolerance) if check else []
        if wrong:
            Console(stderr=True).print("\n".join(wrong), highlight=False, markup=False)
            return False
        seconds = _measure(session, _bind(session, feeds), repeat, warmup)
        placement = session.placement().summary()
    figures = _figures(seconds) | {"checked": check}
    if as_json:
        print(json.dumps({"model": str(request.model), "placement": placement, **figures}))
    else:
        _show(placement, figures, repeat)
    return True


def _wrong(request: Request, session: InferenceSession, feeds: dict[str, Array], tolerance: float | None) -> list[str]:
    names = [output.name for output in session.get_outputs()]
    outputs = dict(zip(names, session.run(None, feeds), strict=True))
    return [str(one) for one in differences_from_cpu(request, session, feeds, outputs, tolerance) if not one.acceptable]


def _bind(session: InferenceSession, feeds: dict[str, Array]) -> IOBinding:
    """Inputs and outputs in the memory of the device that runs the model, so that no copy is measured."""
    device = "cpu" if session.gpu is None else "cuda"
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, OrtValue.ortvalue_from_numpy(array, device, session.gpu or 0))
    for output in session.get_outputs():
        binding.bind_output(output.name, device, session.gpu or 0)
    session.run_with_iobinding(binding)
    # From here on every run writes the same memory, as a caller who cares for latency has it.
    for output, value in zip(session.get_outputs(), binding.get_outputs(), strict=True):
        binding.bind_ortvalue_output(output.name, value)
    return binding


def _measure(session: InferenceSession, binding: IOBinding, repeat: int, warmup: int) -> Array:
    with stage("warm up"):
        for done in range(warmup):
            session.run_with_iobinding(binding)
            advance(done + 1, warmup)
    seconds = np.empty(repeat)
    with stage("measure"):
        for index in range(repeat):
            started = time.perf_counter()
            session.run_with_iobinding(binding)
            seconds[index] = time.perf_counter() - started
            advance(index + 1, repeat)
    return seconds


def _figures(seconds: Array) -> dict[str, Any]:
    low, median, high = np.quantile(seconds, (0.1, 0.5, 0.9))
    return {"median_us": median * 1e6, "p10_us": low * 1e6, "p90_us": high * 1e6, "min_us": float(seconds.min()) * 1e6}


def _show(placement: str, figures: dict[str, Any], repeat: int) -> None:
    out = console()
    checked = "checked against onnxruntime" if figures["checked"] else "not checked"
    out.print(f"nodes: {placement}")
    out.print(
        f"median {figures['median_us']:.1f} µs, 80 % within {figures['p10_us']:.1f} … {figures['p90_us']:.1f} µs, "
        f"least {figures['min_us']:.1f} µs ({repeat} runs, one at a time, warm caches; answer {checked})"
    )
