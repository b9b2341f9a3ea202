"""`gossamer compile`: a model as one file that runs on GPUs which are not here."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from gossamer import settings
from gossamer.ahead_of_time import Compilation, CudnnUse, ProgramReport, Report
from gossamer.cli.arguments import CPU, CUDA, Request, parse_signature
from gossamer.cli.feeds import close_shapes
from gossamer.cli.output import console
from gossamer.cli.progress import progress_bars
from gossamer.engines import describe, loaded
from gossamer.errors import InvalidArgument
from gossamer.program import Target
from gossamer.program.manifest import CUDNN as CUDNN_NEED
from gossamer.program.manifest import Shapes, Slot, shapes_text
from gossamer.program.placement import CUDNN


def compile_model(
    request: Request,
    path: Path,
    targets: Sequence[str],
    shapes: Sequence[str],
    cudnn: CudnnUse,
    tuning: Path | None,
    *,
    as_json: bool,
) -> None:
    """Compile the model into `path` and say what is in it. targets: names, several joined by commas. shapes: whole
    signatures as the command line has them.

    Errors: those of `gossamer.compile_model`; DeviceNotFound is none of them: without a GPU, a target has to be named.
    """
    names = [name.strip() for text in targets for name in text.split(",") if name.strip()]
    compilation = Compilation.of(names or _default_target(), cudnn, tuning, None, request.options)
    with progress_bars():
        model = loaded(request.model)
        signatures = _signatures(request, shapes, describe(model).inputs)
        report = compilation.compile(model, path, signatures)
    if as_json:
        print(json.dumps(asdict(report) | {"needs": report.needs}))
    else:
        _show(report)


def _default_target() -> Target | str:
    """This machine's GPU, else what GOSSAMER_TARGET says. Errors: InvalidArgument where there is neither."""
    from gossamer.run import driver
    from gossamer.run.device_properties import device_properties

    if driver.why_unavailable():
        if named := settings.TARGET():
            return named
        known = "sm_80, sm_90, h200 (gossamer target list prints all)"
        raise InvalidArgument(f"--target: there is no GPU here to compile for by default; name one or more: {known}")
    properties = device_properties()
    return Target.of_properties(properties.architecture, properties.values)


def _signatures(request: Request, texts: Sequence[str], inputs: Sequence[Slot]) -> list[Shapes]:
    """Every signature with the shapes that are given for all, the declared ones, and 1 for an open first dimension."""
    tensors = [slot for slot in inputs if slot.is_tensor]
    names = [slot.name for slot in inputs]
    _, common = request.for_inputs(names)
    given = [common | parse_signature(text, names) for text in texts or [""]]
    return [shapes | close_shapes(tensors, shapes) for shapes in given]


def _show(report: Report) -> None:
    out = console()
    columns = ("target", "inputs", "native", "cuDNN", "CPU", "kernels", "launches", "plans", "arena bytes")
    table = Table(*columns, box=None, pad_edge=False)
    table.columns[1].overflow = "fold"
    for program in report.programs:
        table.add_row(*_row(program))
    out.print(table)
    out.print(
        f"\n{report.path}: {report.file_bytes:,} bytes: {report.weights_bytes:,} of weights, {report.code_bytes:,} of "
        f"machine code, {report.program_bytes:,} of Programs and plans"
    )
    for line in (*_tuned(report), *_needs(report)):
        out.print(line)
    for nodes in report.refused:
        out.print(f"  cuDNN does not take {nodes}")
    out.print("made by " + ", ".join(f"{name} {version}" for name, version in report.versions.items()))


def _row(program: ProgramReport) -> tuple[str, ...]:
    counts = (program.nodes.get(who, 0) for who in (CUDA, CUDNN, CPU))
    figures = (*counts, program.kernels, program.launches, program.plans, program.arena_bytes)
    return (program.target, shapes_text(program.shapes), *(f"{figure:,}" if figure else "" for figure in figures))


def _tuned(report: Report) -> Iterator[str]:
    """What the tuning table knew, where there was one."""
    for program in report.programs if report.tuning else ():
        if CUDNN_NEED in program.needs or program.tuned:
            yield (
                f"{report.tuning}: {program.tuned} of {program.convolutions} convolutions for {program.target}, "
                f"{shapes_text(program.shapes)}; the others went by heuristics"
            )


def _needs(report: Report) -> Iterator[str]:
    """What a machine has to have to run the file, and what it may have."""
    extras = {"onnxruntime": "gossamer[cpu]", "triton": "gossamer[compile] for Triton's interpreter"}
    needed = [extras.get(need, need.replace("python:", "the custom operator ")) for need in report.needs]
    driver = ["an NVIDIA driver"] * any("triton" not in program.needs for program in report.programs)
    yield "to run it: " + ", ".join(("the base install of gossamer", *driver, *needed))
    for node in report.cpu_nodes:
        yield f"  on the CPU, {node}"
    if any(CUDNN_NEED in program.needs for program in report.programs):
        yield f"  cuDNN {report.versions['cudnn']} is used where it is installed; without it, native kernels are"
