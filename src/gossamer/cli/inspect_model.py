"""`gossamer inspect`: what a model becomes on a GPU, without running it and without having one."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from gossamer.cli.arguments import CPU, CUDA, Request
from gossamer.cli.feeds import close_shapes
from gossamer.cli.output import console
from gossamer.cli.progress import progress_bars
from gossamer.compiler import Compiled
from gossamer.engines import DeviceEngine, create_engine
from gossamer.errors import InvalidArgument, UnsupportedModel
from gossamer.options import CompileOptions, CpuOptions, CudaOptions
from gossamer.place import Placement
from gossamer.program import HostCall, Program, Weight

_DEFAULT_TARGET = "sm_90"


@dataclass(frozen=True)
class Memory:
    """Bytes on the device. constants: weights, packed as kernels want them. least_arena: no plan can do with less."""

    constants: int
    arena: int
    least_arena: int

    @classmethod
    def of(cls, program: Program) -> Memory:
        constants: dict[str, int] = {}
        for name, place in program.locations.items():
            if isinstance(place, Weight):
                end = place.offset + program.buffers[name].nbytes
                constants[place.key] = max(end, constants.get(place.key, 0))
        return cls(sum(constants.values()), program.arena_bytes, program.lower_bound_bytes)


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
        print(json.dumps(_as_json(request, compiled, with_program)))
    else:
        _show(compiled, with_program)
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
    named = {"target": target or _DEFAULT_TARGET} if device == "null" else {}
    return CudaOptions.parse({"device": device} | named | dict(request.options))


def _default_device(target: str) -> str:
    from gossamer.run import driver

    return "null" if target or driver.why_unavailable() else "cuda"


def _as_json(request: Request, compiled: Compiled, with_program: bool) -> dict[str, Any]:
    program, placement, memory = compiled.program, compiled.placement, Memory.of(compiled.program)
    return {
        "model": str(request.model),
        "target": program.target.name,
        "inputs": {name: str(program.buffers[name]) for name in program.inputs},
        "outputs": {name: str(program.buffers[name]) for name in program.outputs},
        "nodes": _counts(placement),
        "placement": [
            {"node": node.name, "op": _operator(node), "provider": node.provider, "refusals": dict(node.refusals)}
            for node in placement
        ],
        "kernels": len(program.kernels),
        "launches": sum(1 for _ in program.launches),
        "host_calls": sum(isinstance(call, HostCall) for call in program.calls),
        "constants_bytes": memory.constants,
        "arena_bytes": memory.arena,
        "arena_lower_bound_bytes": memory.least_arena,
    } | ({"program": str(program)} if with_program else {})


def _operator(node: Any) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain else str(node.op_type)


def _counts(placement: Placement) -> dict[str, dict[str, int]]:
    """Operator → provider → nodes, the most frequent operators first."""
    totals = Counter(_operator(node) for node in placement)
    pairs = Counter((_operator(node), node.provider) for node in placement)
    return {op: {who: pairs[op, who] for who in (CUDA, CPU) if pairs[op, who]} for op, _ in totals.most_common()}


def _show(compiled: Compiled, with_program: bool) -> None:
    out = console()
    program, memory = compiled.program, Memory.of(compiled.program)
    if with_program:
        out.print(str(program), end="\n\n")
    table = Table("operator after fusion", "GPU", "CPU", box=None, pad_edge=False)
    for op, providers in _counts(compiled.placement).items():
        table.add_row(op, *(str(providers.get(who, "")) for who in (CUDA, CPU)))
    out.print(table)
    out.print(f"\nnodes: {compiled.placement.summary()}")
    for line in _refusals(compiled.placement):
        out.print(line)
    launches = sum(1 for _ in program.launches)
    out.print(f"for {program.target.name}: {launches} launches of {len(program.kernels)} kernels")
    out.print(f"memory: {memory.constants:,} bytes of constants, an arena of {memory.arena:,} bytes", end="")
    out.print(f" ({memory.least_arena:,} are alive at once)")


def _refusals(placement: Placement) -> list[str]:
    """Every refusal, those for the same reason together."""
    nodes: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for node in placement:
        for provider, reason in node.refusals:
            nodes[_operator(node), provider, reason].append(node.name)
    return [
        f"  {op} not on {provider}: {reason} ({', '.join(names)})" for (op, provider, reason), names in nodes.items()
    ]
