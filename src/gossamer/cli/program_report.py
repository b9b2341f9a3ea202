"""What `gossamer inspect` says of a Program and of where its nodes run, be it just built or read from a file."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from gossamer.cli.arguments import CPU, CUDA
from gossamer.cli.output import console
from gossamer.program import CudnnCall, HostCall, Program, PythonCall, Weight
from gossamer.program.placement import Placed, Placement


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


def show(program: Program, placement: Placement[Placed], *, with_program: bool) -> None:
    """Print it. with_program: its text, too."""
    out, memory = console(), Memory.of(program)
    if with_program:
        out.print(str(program), end="\n\n")
    table = Table("operator after fusion", "GPU", "CPU", box=None, pad_edge=False)
    for op, providers in operators(placement).items():
        table.add_row(op, *(str(providers.get(who, "")) for who in (CUDA, CPU)))
    out.print(table)
    out.print(f"\nnodes: {placement.summary()}")
    for line in refusals([placement]):
        out.print(line)
    launches = sum(1 for _ in program.launches)
    out.print(f"for {program.target.name}: {launches} launches of {len(program.kernels)} kernels")
    out.print(f"memory: {memory.constants:,} bytes of constants, an arena of {memory.arena:,} bytes", end="")
    out.print(f" ({memory.least_arena:,} are alive at once)")


def as_json(program: Program, placement: Placement[Placed], *, with_program: bool) -> dict[str, Any]:
    """Everything but weights. with_program: its text, too."""
    memory = Memory.of(program)
    return {
        "target": program.target.name,
        "inputs": {name: str(program.buffers[name]) for name in program.inputs},
        "outputs": {name: str(program.buffers[name]) for name in program.outputs},
        "nodes": operators(placement),
        "placement": [
            {
                "node": node.name,
                "op": operator_of(node),
                "provider": node.provider,
                "through_cudnn": node.through_cudnn,
                "refusals": dict(node.refusals),
                "would_raise": node.would_raise,
            }
            for node in placement
        ],
        "kernels": len(program.kernels),
        "launches": sum(1 for _ in program.launches),
        "cudnn_calls": sum(isinstance(call, CudnnCall) for call in program.calls),
        "host_calls": sum(isinstance(call, HostCall) for call in program.calls),
        "python_calls": sum(isinstance(call, PythonCall) for call in program.calls),
        "constants_bytes": memory.constants,
        "arena_bytes": memory.arena,
        "arena_lower_bound_bytes": memory.least_arena,
    } | ({"program": str(program)} if with_program else {})


def operator_of(node: Placed) -> str:
    """With its domain, unless that is ONNX's own."""
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def operators(placement: Placement[Placed]) -> dict[str, dict[str, int]]:
    """Operator → provider → nodes, the most frequent operators first."""
    totals = Counter(operator_of(node) for node in placement)
    pairs = Counter((operator_of(node), node.provider) for node in placement)
    return {op: {who: pairs[op, who] for who in (CUDA, CPU) if pairs[op, who]} for op, _ in totals.most_common()}


def refusals(placements: Iterable[Placement[Placed]]) -> Iterator[str]:
    """Every refusal, those for the same reason together, and every error that running a node would raise."""
    nodes: dict[tuple[str, str, str], dict[str, None]] = defaultdict(dict)
    raising: dict[str, None] = {}
    for node in (node for placement in placements for node in placement):
        for provider, reason in node.refusals:
            nodes[operator_of(node), provider, reason][node.name] = None
        if node.would_raise:
            raising[node.would_raise] = None
    for (op, provider, reason), names in nodes.items():
        yield f"  {op} not on {provider}: {reason} ({', '.join(names)})"
    yield from (f"  would raise: {error}" for error in raising)
