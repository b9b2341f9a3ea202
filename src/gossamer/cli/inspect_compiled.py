"""`gossamer inspect` of a compiled model: all that it holds but weights. Needs only the base install."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from gossamer.cli import program_report
from gossamer.cli.arguments import CPU, CUDA, Request
from gossamer.cli.output import console
from gossamer.errors import InvalidArgument
from gossamer.program import CudnnCall, HostCall, Program, Target
from gossamer.program.archive import FORMAT
from gossamer.program.artifact import WEIGHTS, Artifact, Variant, open_artifact
from gossamer.program.manifest import Entry, Slot, difference, shapes_text
from gossamer.program.placement import CUDNN


def inspect_compiled(request: Request, target: str, *, with_program: bool, as_json: bool) -> None:
    """Check the whole file and print what it holds, for one target, and for input shapes, where they are given.

    Errors: ArtifactError where the file is damaged; InvalidArgument where it lacks the target or the shapes.
    """
    if request.device or request.options:
        raise InvalidArgument(f"{request.model} is compiled: --device and --option change nothing about it any more")
    artifact = open_artifact(request.model)
    entries = _chosen(artifact, request, target)
    artifact.verify()
    variants = [artifact.variant(entry.target, entry.shapes, cudnn=entry.uses_cudnn) for entry in entries]
    if as_json:
        print(json.dumps(_as_json(artifact, entries, variants, with_program)))
        return
    _show(artifact, variants)
    for variant in variants if target or request.shapes or with_program else ():
        console().print(f"\n{_title(variant)}\n")
        program_report.show(variant.program, variant.placement, with_program=with_program)


def _chosen(artifact: Artifact, request: Request, target: str) -> list[Entry]:
    """The Programs that the command line asks for. Errors: InvalidArgument where there is none."""
    _, wanted = request.for_inputs([slot.name for slot in artifact.description.inputs])
    held = [entry for entry in artifact.programs if target in ("", entry.target)]
    if not held:
        artifact.signatures(target)  # says which targets there are
    chosen = [entry for entry in held if wanted.items() <= entry.shapes.items()]
    if not chosen:
        partial = [{name: entry.shapes[name] for name in wanted} for entry in held]
        raise InvalidArgument(f"{artifact.path}: {difference(wanted, partial)}")
    return chosen


def _as_json(
    artifact: Artifact, entries: Sequence[Entry], variants: Sequence[Variant], with_program: bool
) -> dict[str, Any]:
    made = artifact.description
    targets = {variant.program.target.name: variant.program.target for variant in variants}
    return {
        "file": artifact.path,
        "bytes": os.path.getsize(artifact.path),
        "format": FORMAT,
        "checksums": "right",
        "model": made.model,
        "versions": made.versions,
        "metadata": made.metadata,
        "optimized": made.optimized,
        "inputs": [asdict(slot) for slot in made.inputs],
        "outputs": [asdict(slot) for slot in made.outputs],
        "targets": [_target_json(target) for target in targets.values()],
        "programs": [
            {"shapes": entry.shapes, "uses_cudnn": entry.uses_cudnn, "needs": entry.needs, "member": entry.member}
            | program_report.as_json(variant.program, variant.placement, with_program=with_program)
            for entry, variant in zip(entries, variants, strict=True)
        ],
        "weights": {"tensors": len(artifact.weights), "bytes": artifact.members[WEIGHTS]},
        "members": artifact.members,
    }


def _target_json(target: Target) -> dict[str, Any]:
    properties = json.loads(target.properties) if target.properties else None
    return asdict(target) | {"properties": properties}


def _show(artifact: Artifact, variants: Sequence[Variant]) -> None:
    out, made = console(), artifact.description
    out.print(f"{artifact.path}: format {FORMAT}, {os.path.getsize(artifact.path):,} bytes, every checksum is right")
    out.print("made by " + (_pairs(made.versions) or "nobody that says so"))
    out.print(f"model {made.model}" + (f" ({_pairs(made.metadata)})" if made.metadata else ""))
    if not made.optimized:
        out.print("nothing is fused (ORT_DISABLE_ALL)")
    for title, slots in (("inputs", made.inputs), ("outputs", made.outputs)):
        out.print(f"{title}: {', '.join(map(_slot, slots))}")
    for target in {variant.program.target.name: variant.program.target for variant in variants}.values():
        out.print(f"\n{_target(target)}")
        out.print(_programs([variant for variant in variants if variant.program.target == target]))
    lines = list(program_report.refusals(variant.placement for variant in variants))
    if lines:
        out.print("\nnodes that were refused")
    for line in lines:
        out.print(line)
    out.print()
    for line in _members(artifact):
        out.print(line)


def _pairs(texts: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {text}" for name, text in texts.items())


def _slot(slot: Slot) -> str:
    shape = "" if slot.shape is None else f"[{','.join('?' if size is None else str(size) for size in slot.shape)}]"
    return f"{slot.name}: {slot.dtype}{shape}"


def _target(target: Target) -> str:
    device = json.loads(target.properties).get("deviceName", "") if target.properties else ""
    architecture = f"sm_{target.arch}"
    facts = (
        *[architecture] * (target.name != architecture),
        f"{target.sm_count} multiprocessors, {target.shared_bytes:,} bytes of shared memory a block",
        "TF32 for fp32 products" if target.use_tf32 else "no TF32",
        *["deterministic"] * target.deterministic,
        *["for Triton's interpreter"] * target.interpreted,
        *[f"as of {device}"] * bool(device),
    )
    return f"target {target.name}: {', '.join(facts)}"


def _programs(variants: Sequence[Variant]) -> Table:
    nodes, calls = ("GPU nodes", CUDNN, "CPU"), ("kernels", "launches", "plans", "host calls")
    table = Table("inputs", *nodes, *calls, "arena bytes", "needs", box=None, pad_edge=False)
    for variant in variants:
        program, counts = variant.program, variant.placement.counts()
        through = sum(node.through_cudnn for node in variant.placement)
        figures = (counts.get(CUDA, 0) - through, through, counts.get(CPU, 0), *_calls(program), program.arena_bytes)
        needs = ", ".join(program.needs) or "nothing"
        table.add_row(shapes_text(variant.shapes), *(f"{figure:,}" if figure else "" for figure in figures), needs)
    return table


def _calls(program: Program) -> tuple[int, int, int, int]:
    """Kernels, launches, cuDNN's plans, calls on the host."""
    plans = {call.plan for call in program.calls if isinstance(call, CudnnCall) and call.plan}
    hosts = sum(isinstance(call, HostCall) for call in program.calls)
    return len(program.kernels), sum(1 for _ in program.launches), len(plans), hosts


def _title(variant: Variant) -> str:
    how = "with cuDNN" if variant.uses_cudnn else "native"
    return f"{variant.program.target.name}, {shapes_text(variant.shapes)}, {how}"


def _members(artifact: Artifact) -> Iterator[str]:
    """What takes how much space, by folder of the file."""
    sizes: dict[str, list[int]] = defaultdict(list)
    for name, nbytes in artifact.members.items():
        sizes[name.partition("/")[0]].append(nbytes)
    tensors = len(artifact.weights)
    yield f"{WEIGHTS}: {sum(sizes.pop(WEIGHTS)):,} bytes, {tensors} tensor{'s' * (tensors != 1)}"
    for folder, held in sizes.items():
        yield f"{folder}: {sum(held):,} bytes in {len(held)} member{'s' * (len(held) != 1)}"
