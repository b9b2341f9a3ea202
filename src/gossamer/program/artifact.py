"""Compiled models: Programs for several targets and input shapes, with all that running them needs, in one file.

The manifest lists what is in the file; each Program is a JSON member of its own (`gossamer.program.codec`), machine
code and other bytes are members named by their SHA-256, and all Programs share one member of weights. Nothing in the
file is executed or unpickled on reading, and no member is used before its checksum was compared. That finds damage, not
malice: who can write the file can write its checksums, and its machine code runs on the GPU. Load files that you trust.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from gossamer.errors import ArtifactError, InvalidArgument
from gossamer.program import strict_json
from gossamer.program.archive import (
    BEGINNING_BYTES,
    FORMAT,
    MANIFEST,
    Archive,
    Checksum,
    Chunks,
    begins_archive,
    write_archive,
)
from gossamer.program.calls import Kernel, Unavailable
from gossamer.program.codec import Store, decode, decode_value, encode, encode_value
from gossamer.program.cubin import Cubin
from gossamer.program.manifest import (
    CUDNN,
    Description,
    Entry,
    Shapes,
    description_of,
    difference,
    problem_of,
    shapes_text,
    slot_entry,
)
from gossamer.program.placement import PlacedRecord, Placement
from gossamer.program.program import Program
from gossamer.program.shipped_devices import architectures
from gossamer.program.soundness import check_code, check_program, check_target, difference_of_ends
from gossamer.program.target import Target
from gossamer.program.tensors import read_tensors, tensor_chunks

WEIGHTS = "weights.safetensors"


@dataclass(frozen=True, slots=True)
class Variant:
    """One Program, the machine code of its kernels, which for an interpreted target there is none of, and where the
    nodes it was made from were placed."""

    program: Program
    cubins: Mapping[Kernel, Cubin]
    placement: Placement[PlacedRecord]

    @property
    def shapes(self) -> Shapes:
        return {name: self.program.buffers[name].shape for name in self.program.inputs}

    @property
    def uses_cudnn(self) -> bool:
        return CUDNN in self.program.needs


def write_artifact(
    path: str | os.PathLike[str],
    description: Description,
    variants: Sequence[Variant],
    weights: Mapping[str, np.ndarray],
) -> None:
    """Writes a compiled model. The same arguments give the same bytes, in whatever order the variants come.

    weights: at least every constant that a Program uses, by the Programs' keys; others are left out. Targets lose their
    `device`: the file is for every GPU like it. A target and signature may have two variants, one of which uses cuDNN;
    that one never is alone, so that the file runs without. Raises InvalidArgument where there are two of a kind, or one
    with a node that has to run through a cuDNN that is not here; where one target name stands for two targets; and
    where weights or machine code are missing.
    """
    _check_variants(description, variants, weights)
    members: dict[str, Chunks] = {}
    entries = sorted((_entry(variant, members) for variant in variants), key=lambda entry: entry.order)
    if problem := problem_of(entries):
        raise InvalidArgument(problem)
    keys = sorted({key for variant in variants for key in variant.program.weights})
    members[WEIGHTS] = tensor_chunks(_Chosen(weights, keys))
    targets = {variant.program.target.name: variant.program.target for variant in variants}
    manifest = {
        "format": FORMAT,
        "model": description.model,
        "versions": dict(sorted(description.versions.items())),
        "metadata": dict(sorted(description.metadata.items())),
        "inputs": [slot_entry(slot) for slot in description.inputs],
        "outputs": [slot_entry(slot) for slot in description.outputs],
        "targets": [_value_entry(_portable(target)) for _, target in sorted(targets.items())],
        "programs": [entry.as_json() for entry in entries],
        **({} if description.optimized else {"optimized": False}),
    }

    def manifest_for(checksums: Mapping[str, Checksum]) -> bytes:
        sums = {name: {"sha256": of.sha256, "nbytes": of.nbytes} for name, of in checksums.items()}
        return _json(manifest | {"members": sums})

    write_archive(path, members, manifest_for)


class _Chosen(Mapping[str, np.ndarray]):
    """Some entries of a mapping, each asked for only when it is needed."""

    def __init__(self, source: Mapping[str, np.ndarray], keys: Sequence[str]) -> None:
        self._source = source
        self._keys = {key: key for key in keys}

    def __getitem__(self, key: str) -> np.ndarray:
        return self._source[self._keys[key]]

    def __iter__(self) -> Any:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def _check_variants(description: Description, variants: Sequence[Variant], weights: Mapping[str, np.ndarray]) -> None:
    if not variants:
        raise InvalidArgument(f"there is no Program of {description.model}")
    targets: dict[str, Target] = {}
    for variant in variants:
        program, name = variant.program, variant.program.target.name
        if problem := difference_of_ends(program, description):
            raise InvalidArgument(problem)
        if targets.setdefault(name, _portable(program.target)) != _portable(program.target):
            raise InvalidArgument(f"there are two targets '{name}' that differ")
        _check_parts(variant, weights)


def _check_parts(variant: Variant, weights: Mapping[str, np.ndarray]) -> None:
    """All of what it needs is there."""
    program, name = variant.program, variant.program.target.name
    if waiting := [str(call.origin) for call in program.calls if isinstance(call, Unavailable)]:
        raise InvalidArgument(f"{program.name} has to run through a cuDNN that is not here: {', '.join(waiting)}")
    if absent := [key for key in program.weights if key not in weights]:
        raise InvalidArgument(f"weights are missing for {program.name}: {', '.join(absent)}")
    if not program.target.interpreted and (missing := set(program.kernels) - variant.cubins.keys()):
        names = sorted(kernel.name for kernel in missing)
        raise InvalidArgument(f"machine code is missing for {program.name} on {name}: {', '.join(names)}")


def _portable(target: Target) -> Target:
    return replace(target, device=None)


def _entry(variant: Variant, members: dict[str, Chunks]) -> Entry:
    """The manifest's entry for a Program; the Program and its bytes join the members."""
    program = replace(variant.program, target=_portable(variant.program.target))
    codes = [variant.cubins.get(kernel) for kernel in program.kernels]
    document = encode(program, _store("data", members))
    document["cubins"] = [encode_value(cubin, _store("cubins", members)) for cubin in codes]
    document["placement"] = [_value_entry(node) for node in variant.placement]
    name = _store("programs", members)(_json(document))
    return Entry(program.target.name, variant.shapes, program.needs, name)


def _store(folder: str, members: dict[str, Chunks]) -> Store:
    def store(data: bytes) -> str:
        name = f"{folder}/{hashlib.sha256(data).hexdigest()}"
        members[name] = lambda: [data]
        return name

    return store


def _value_entry(value: Any) -> Any:
    """A value without bytes as JSON."""
    return encode_value(value, _store("", {}))


def _json(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()


def is_compiled(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins as compiled models do, whatever its name. What is not there, or no file, does not."""
    try:
        with open(path, "rb") as file:
            return begins_archive(file.read(BEGINNING_BYTES))
    except OSError:
        return False


def open_artifact(path: str | os.PathLike[str]) -> Artifact:
    """A compiled model. The file's structure and manifest are checked here, each member before it is first used.

    Raises NoSuchFile, and ArtifactError naming the file and what is wrong with it.
    """
    return Artifact(Archive(path))


class Artifact:
    """A compiled model that was opened. The file is mapped; weights are read in place, and only when asked for."""

    def __init__(self, archive: Archive) -> None:
        self.path = archive.path
        self._archive = archive
        self._weights: Mapping[str, np.ndarray] | None = None
        self._reading_weights = threading.Lock()
        manifest = self._parsed(MANIFEST, archive.manifest)
        self._checked(lambda: self._read_manifest(manifest), MANIFEST)

    def _read_manifest(self, manifest: dict[str, Any]) -> None:
        if manifest["format"] != FORMAT:
            raise ValueError(f"it says format {manifest['format']}")
        self._checksums = {name: (entry["sha256"], entry["nbytes"]) for name, entry in manifest["members"].items()}
        sizes = {name: member.nbytes for name, member in self._archive.members.items() if name != MANIFEST}
        if {name: nbytes for name, (_, nbytes) in self._checksums.items()} != sizes:
            raise ValueError("it lists other members, or other sizes, than the file has")
        self.description = description_of(manifest)
        self._targets: dict[str, Target] = {}
        for entry in manifest["targets"]:
            target = decode_value(entry, _no_bytes)
            if not isinstance(target, Target) or target.name in self._targets:
                raise ValueError("its targets are none, or one is there twice")
            check_target(target)
            self._targets[target.name] = target
        self._programs: dict[str, list[Entry]] = {name: [] for name in self._targets}
        for entry in map(Entry.of, manifest["programs"]):
            if entry.member not in self._checksums:
                raise ValueError(f"there is no member {entry.member!r}")
            self._programs[entry.target].append(entry)
        if problem := problem_of(self.programs):
            raise ValueError(problem)
        if not all(self._programs.values()) or not self._programs:
            raise ValueError("there is a target without a Program, or none at all")
        inputs = {slot.name for slot in self.description.inputs}
        if any(entry.shapes.keys() != inputs for entry in self.programs):
            raise ValueError("there is a Program with other inputs than it declares")

    @property
    def targets(self) -> tuple[Target, ...]:
        return tuple(self._targets.values())

    @property
    def programs(self) -> tuple[Entry, ...]:
        """What the manifest says of each Program, by target."""
        return tuple(entry for held in self._programs.values() for entry in held)

    @property
    def members(self) -> Mapping[str, int]:
        """Member → bytes, the manifest left out."""
        return {name: nbytes for name, (_, nbytes) in self._checksums.items()}

    def signatures(self, target: str) -> tuple[Shapes, ...]:
        """The input shapes that the file holds Programs for. Raises InvalidArgument for a target that it lacks."""
        return tuple(entry.shapes for entry in self._programs_for(target) if not entry.uses_cudnn)

    def needs(self, target: str, shapes: Shapes, *, cudnn: bool = False) -> tuple[str, ...]:
        """What the Program that `variant` gives for the same arguments needs besides the base install, as
        `Program.needs` has it, without reading it."""
        return self._entry_for(target, shapes, cudnn).needs

    def target_for(self, present: Target) -> Target:
        """The target whose machine code runs on this GPU: the nearest by architecture, then by multiprocessors.

        Machine code for 7.x and 8.x runs on later minor revisions of its major one that have as much shared memory as
        it was made for (8.6 and 8.9 have less than 8.0); from 9.0 on, where kernels use what only their architecture
        has, on its own alone. Raises ArtifactError (TARGET_MISMATCH), naming both and the command to compile for both.
        """
        fitting = [target for target in self.targets if _runs_on(target, present)]
        if not fitting:
            raise self._archive.error("TARGET_MISMATCH", self._mismatch(present))
        return max(fitting, key=lambda target: (target.arch, -abs(target.sm_count - present.sm_count)))

    def _mismatch(self, present: Target) -> str:
        architecture = f"sm_{present.arch}"
        held = [name if name == f"sm_{of.arch}" else f"{name} (sm_{of.arch})" for name, of in self._targets.items()]
        named = architecture in architectures()
        wanted = ",".join((*self._targets, architecture if named else "this-gpu.json"))
        dump = "" if named else "gossamer target dump -o this-gpu.json, and then "
        return (
            f"it was compiled for {', '.join(held) or 'nothing'}, and this GPU is {architecture}; compile it again: "
            f"{dump}gossamer compile MODEL -o {self.path} --target {wanted}"
        )

    def variant(self, target: str, shapes: Shapes, *, cudnn: bool = False) -> Variant:
        """The Program for a target and input shapes, checked with its constants and decoded, and its machine code.

        cudnn: the one that uses cuDNN, where there is one, else the native one, which there always is. Raises
        InvalidArgument where the file has none, naming the input and the shapes it holds; ArtifactError where something
        that the Program needs is damaged.
        """
        return self._variant(self._entry_for(target, shapes, cudnn))

    def _variant(self, entry: Entry) -> Variant:
        document = self._parsed(entry.member, self._read(entry.member))
        variant: Variant = self._checked(lambda: self._read_variant(document), entry.member)
        if variant.program.target != self._targets[entry.target] or variant.shapes != entry.shapes:
            text = f"{entry.member} is not for {entry.target} and {shapes_text(entry.shapes)}"
            raise self._archive.error("MALFORMED", text)
        if variant.program.needs != entry.needs:
            needs = ", ".join(variant.program.needs) or "nothing"
            raise self._archive.error("MALFORMED", f"{entry.member} needs {needs}, and {MANIFEST} says otherwise")
        if problem := difference_of_ends(variant.program, self.description):
            raise self._archive.error("MALFORMED", f"{entry.member}: {problem}")
        return variant

    def _read_variant(self, document: dict[str, Any]) -> Variant:
        cubins = [decode_value(entry, self._read) for entry in document.pop("cubins")]
        nodes = tuple(decode_value(entry, _no_bytes) for entry in document.pop("placement"))
        if not all(isinstance(node, PlacedRecord) for node in nodes):
            raise ValueError("its placement is none")
        program = decode(document, self._read)
        kind = type(None) if program.target.interpreted else Cubin
        if not all(isinstance(cubin, kind) for cubin in cubins):
            raise ValueError("machine code is missing, or is there for the interpreter")
        check_program(program, self.weights)
        code = zip(program.kernels, cubins, strict=True)
        held = {kernel: cubin for kernel, cubin in code if cubin is not None}
        check_code(program, held)
        return Variant(program, held, Placement(nodes))

    @property
    def weights(self) -> Mapping[str, np.ndarray]:
        """The constants of all Programs by key: read-only arrays over the mapped file."""
        with self._reading_weights:  # whichever threads ask, their checksum is compared once
            if self._weights is None:
                data = self._data_of(WEIGHTS)
                self._compare(WEIGHTS, data)
                self._weights = MappingProxyType(self._checked(lambda: read_tensors(data), WEIGHTS))
            return self._weights

    def verify(self) -> None:
        """Compares every member's checksum and decodes everything. Raises ArtifactError for the first that is wrong."""
        for name in self._checksums:
            if name != WEIGHTS:  # the first Program is checked with them, and they are compared for that
                self._read(name)
        for entry in self.programs:
            self._variant(entry)

    def _programs_for(self, target: str) -> list[Entry]:
        if target not in self._programs:
            held = ", ".join(self._programs)
            raise InvalidArgument(f"{self.path}: it holds no target '{target}'; it was compiled for {held}")
        return self._programs[target]

    def _entry_for(self, target: str, shapes: Shapes, cudnn: bool) -> Entry:
        wanted = {name: tuple(shape) for name, shape in shapes.items()}
        found = [entry for entry in self._programs_for(target) if entry.shapes == wanted]
        if not found:
            raise InvalidArgument(f"{self.path}: {difference(wanted, self.signatures(target))}")
        return next((entry for entry in found if entry.uses_cudnn == cudnn), found[0])

    def _read(self, name: str) -> bytes:
        """A copy of a member's bytes: what is checked is what is used, whoever writes to the file meanwhile."""
        data = bytes(self._data_of(name))
        self._compare(name, data)
        return data

    def _data_of(self, name: str) -> memoryview:
        if name not in self._checksums:
            raise self._archive.error("MALFORMED", f"it has no member '{name}'")
        return self._archive.data_of(name)

    def _compare(self, name: str, data: bytes | memoryview) -> None:
        if hashlib.sha256(data).hexdigest() != self._checksums[name][0]:
            raise self._archive.error("DAMAGED", f"member {name} does not match its checksum")

    def _parsed(self, name: str, data: bytes) -> dict[str, Any]:
        document = self._checked(lambda: strict_json.parse(data), name)
        if not isinstance(document, dict):
            raise self._archive.error("MALFORMED", f"{name} is no JSON object")
        return document

    def _checked(self, read: Callable[[], Any], name: str) -> Any:
        """What `read` gives; that a member is not what it should be is an ArtifactError that names it and the file."""
        try:
            return read()
        except ArtifactError as error:
            if error.text.startswith(self.path):
                raise
            raise self._archive.error(error.reason, f"{name}: {error.text}") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise self._archive.error("MALFORMED", f"{name}: {error!r}") from None


def _no_bytes(name: str) -> bytes:
    raise ArtifactError("MALFORMED", f"here are no bytes, '{name}' least of all")


def _runs_on(target: Target, present: Target) -> bool:
    if target.interpreted or target.shared_bytes > present.shared_bytes:
        return False
    return target.arch == present.arch or (target.arch // 10 == present.arch // 10 < 9 and target.arch < present.arch)
