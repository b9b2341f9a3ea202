"""`gossamer run`: one model, once or several times, and what came out."""

from __future__ import annotations

import json
import re
import statistics
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from gossamer.cli.arguments import CPU, Request
from gossamer.cli.comparison import Difference, allowed_error, compare
from gossamer.cli.feeds import Array, describe, make_feeds
from gossamer.cli.output import console
from gossamer.cli.progress import progress_bars
from gossamer.errors import InvalidArgument
from gossamer.session import InferenceSession, SessionOptions
from gossamer.session.element_types import ELEMENT_TYPES


@dataclass(frozen=True)
class Input:
    """An input as `make_feeds` wants it."""

    name: str
    dtype: str
    shape: tuple[int | str | None, ...]


def inputs_of(session: InferenceSession) -> list[Input]:
    """The inputs of a session with NumPy's names for their types; onnxruntime's text for what is no tensor."""
    names = {row.tensor: row.name for row in ELEMENT_TYPES}
    return [Input(slot.name, names.get(slot.type, slot.type), tuple(slot.shape)) for slot in session.get_inputs()]


@dataclass(frozen=True)
class Outcome:
    """What running gave. seconds: of opening the session, of the first run, and the median of the later ones."""

    outputs: Mapping[str, Any]
    placement: str
    seconds: Mapping[str, float]
    differences: tuple[Difference, ...]

    @property
    def acceptable(self) -> bool:
        return all(difference.acceptable for difference in self.differences)


def run_model(
    request: Request, compared: bool, tolerance: float | None, repeat: int, folder: Path | None, as_json: bool
) -> bool:
    """Run, print, and say whether the outputs are acceptable. compared: against onnxruntime on the CPU."""
    if compared and request.is_compiled:
        raise InvalidArgument(f"--compare runs the ONNX file on the CPU, and {request.model} is a compiled model")
    if compared and request.runs_nothing:
        raise InvalidArgument("--compare has nothing to compare on the device null, which runs nothing")
    with progress_bars():
        outcome = _run(request, compared, tolerance, repeat)
    if folder is not None:
        _save(outcome.outputs, folder)
    if as_json:
        print(json.dumps(_as_json(request, outcome)))
    else:
        _show(request, outcome)
    return outcome.acceptable


def _run(request: Request, compared: bool, tolerance: float | None, repeat: int) -> Outcome:
    started = time.perf_counter()
    with InferenceSession(request.model, providers=request.providers()) as session:
        seconds = {"open": time.perf_counter() - started}
        feeds = make_feeds(request, inputs_of(session))
        names = [output.name for output in session.get_outputs()]
        results, times = [], []
        for _ in range(repeat):
            started = time.perf_counter()
            results = session.run(None, feeds)
            times.append(time.perf_counter() - started)
        seconds |= {"first": times[0]} | ({"median": statistics.median(times[1:])} if times[1:] else {})
        outputs = dict(zip(names, results, strict=True))
        differences = tuple(differences_from_cpu(request, session, feeds, outputs, tolerance)) if compared else ()
        return Outcome(outputs, session.placement().summary(), seconds, differences)


def differences_from_cpu(
    request: Request,
    session: InferenceSession,
    feeds: Mapping[str, Array],
    outputs: Mapping[str, Any],
    tolerance: float | None,
) -> list[Difference]:
    """A session's outputs against onnxruntime on the CPU. tolerance: None for what the model's types make likely."""
    if tolerance is None:
        cuda = session.get_provider_options().get("CUDAExecutionProvider", {})
        tf32 = cuda.get("device") == "cuda" and cuda.get("use_tf32") == "1"
        tolerance = allowed_error(_types_in(session), tf32=tf32)
    exact = SessionOptions()
    # Else onnxruntime rounds what is multiplied by 4-bit weights to 8 bits.
    exact.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    with InferenceSession(request.model, exact, providers=[CPU]) as reference:
        want = reference.run(list(outputs), feeds)
    return compare(outputs, dict(zip(outputs, want, strict=True)), tolerance)


def _types_in(session: InferenceSession) -> set[str]:
    """The element types of all values that nodes of the model make."""
    placement: Any = session.placement()
    values = (value for placed in placement for value in placed.node.outputs)
    return {value.dtype.numpy().name for value in values if value.dtype is not None and value.dtype.name != "STRING"}


def _save(outputs: Mapping[str, Any], folder: Path) -> None:
    """One .npy file for each output, named after it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in outputs.items():
        if not isinstance(value, np.ndarray) or value.dtype.hasobject:
            raise InvalidArgument(f"output {name!r} is a {describe(value)}: only numbers can be written as .npy")
        np.save(folder / (re.sub(r"[^\w.-]", "_", name) + ".npy"), value)


def _as_json(request: Request, outcome: Outcome) -> dict[str, Any]:
    return {
        "model": str(request.model),
        "placement": outcome.placement,
        "seconds": dict(outcome.seconds),
        "outputs": {name: describe(value) for name, value in outcome.outputs.items()},
        "differences": [asdict(one) | {"acceptable": one.acceptable} for one in outcome.differences],
    }


def _show(request: Request, outcome: Outcome) -> None:
    out = console()
    table = Table("output", "type", "min", "max", "mean", "std", box=None, pad_edge=False)
    for name, value in outcome.outputs.items():
        table.add_row(name, *_row(describe(value)))
    out.print(table)
    out.print(f"\nnodes: {outcome.placement}")
    out.print("time: " + ", ".join(f"{what} {_time(seconds)}" for what, seconds in outcome.seconds.items()))
    if request.runs_nothing:
        out.print("the device null runs nothing: outputs are zeros")
    for difference in outcome.differences:
        out.print(f"{'ok  ' if difference.acceptable else 'FAIL'}  {difference}")


def _row(facts: Mapping[str, Any]) -> list[str]:
    if "dtype" not in facts:
        return [str(facts["type"])]
    bad = f" ({facts['not_finite']} not finite)" if facts.get("not_finite") else ""
    numbers = [f"{facts[name]:.6g}" for name in ("min", "max", "mean", "std") if name in facts]
    return [f"{facts['dtype']}{facts['shape']}{bad}", *numbers]


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.2f} ms"
