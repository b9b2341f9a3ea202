"""`gossamer inspect`: what a model becomes on a GPU, without running it and without having one."""

from __future__ import annotations

import json

from gossamer import settings
from gossamer.cli import program_report
from gossamer.cli.arguments import Request
from gossamer.cli.feeds import close_shapes
from gossamer.cli.progress import progress_bars
from gossamer.compiler import Compiled
from gossamer.engines import DeviceEngine, create_engine
from gossamer.errors import InvalidArgument, UnsupportedModel
from gossamer.options import CompileOptions, CpuOptions, CudaOptions

_DEFAULT_TARGET = "sm_90"


def inspect_model(request: Request, target: str, *, with_program: bool, as_json: bool) -> bool:
    """Build the model's Program for one signature of inputs and print it; False where a node has no provider.

    Errors: UnsupportedModel (unless `as_json`), InvalidArgument.
    """
    try:
        with progress_bars():
            compiled = _build(request, target)
    except UnsupportedModel as error:
        if not as_json:
            raise
        nodes = [{"node": one.node, "op": one.op, "reasons": list(one.reasons)} for one in error.nodes]
        print(json.dumps({"model": str(request.model), "unsupported": nodes}))
        return False
    if as_json:
        report = program_report.as_json(compiled.program, compiled.placement, with_program=with_program)
        print(json.dumps({"model": str(request.model)} | report))
    else:
        program_report.show(compiled.program, compiled.placement, with_program=with_program)
    return True


def _build(request: Request, target: str) -> Compiled:
    engine = create_engine(str(request.model), (_options(request, target), CpuOptions()), CompileOptions())
    assert isinstance(engine, DeviceEngine)
    try:
        _, shapes = request.for_inputs([slot.name for slot in engine.inputs])
        return engine.compiled(close_shapes(engine.inputs, shapes))
    finally:
        engine.close()


def _options(request: Request, target: str) -> CudaOptions:
    """The CUDA provider's options: without a device or target named, those of the GPU that is here, if any."""
    if request.device == "cpu":
        raise InvalidArgument("inspect shows what the CUDA provider does; --device is cuda, interpreter or null")
    device = request.device or _default_device(target)
    if target and device != "null":
        raise InvalidArgument(f"--target is for the device null; the device {device} says itself what to build for")
    named = {"target": target or settings.TARGET() or _DEFAULT_TARGET} if device == "null" else {}
    return CudaOptions.parse({"device": device} | named | dict(request.options))


def _default_device(target: str) -> str:
    from gossamer.run import driver

    if target:
        return "null"
    device = settings.DEVICE()
    return "null" if device == "cuda" and driver.why_unavailable() else device
