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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from gossamer.errors import ArtifactError, InvalidArgument
from gossamer.program.archive import FORMAT, MANIFEST, Archive, Checksum, Chunks, write_archive
from gossamer.program.buffers import dtype_of
from gossamer.program.calls import Kernel
from gossamer.program.codec import Store, decode, decode_value, encode, encode_value
from gossamer.program.cubin import Cubin
from gossamer.program.manifest import (
    Description,
    Shapes,
    description_of,
    difference,
    shapes_of,
    shapes_text,
    slot_entry,
)
from gossamer.program.memory import Arena, Weight
from gossamer.program.program import Program
from gossamer.program.target import Target
from gossamer.program.tensors import read_tensors, tensor_chunks

WEIGHTS = "weights.safetensors"


@dataclass(frozen=True, slots=True)
class Variant:
    """One Program and the machine code of its kernels, which for an interpreted target there is none of."""

    program: Program
    cubins: Mapping[Kernel, Cubin]

    @property
    def shapes(self) -> Shapes:
        return {name: self.program.buffers[name].shape for name in self.program.inputs}


def write_artifact(
    path: str | os.PathLike[str],
    description: Description,
    variants: Sequence[Variant],
    weights: Mapping[str, np.ndarray],
) -> None:
    """Writes a compiled model. The same arguments give the same bytes, in whatever order the variants come.

    weights: at least every constant that a Program uses, by the Programs' keys; others are left out. Targets lose their
    `device`: the file is for every GPU like it. Raises InvalidArgument where two variants are for one target and
    signature, where one target name stands for two targets, or where weights or machine code are missing.
    """
    _check_variants(variants, weights)
    members: dict[str, Chunks] = {}
    programs = [_program_entry(variant, members) for variant in variants]
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
        "programs": sorted(programs, key=lambda entry: (entry["target"], list(entry["shapes"].items()))),
    }

    def manifest_for(checksums: Mapping[str, Checksum]) -> bytes:
        sums = {name: {"sha256": of.sha256, "nbytes": of.nbytes} for name, of in checksums.items()}
        return _json(manifest | {"members": sums})

    write_archive(path, members, manifest_for)


class _Chosen(Mapping[str, np.ndarray]):
    """Some entries of a mapping, each asked for only when it is needed."""

    def __init__(self, source: Mapping[str, np.ndarray], keys: Sequence[str]) -> None:
        self._source = source
        self._keys = dict.fromkeys(keys)

    def __getitem__(self, key: str) -> np.ndarray:
        if key not in self._keys:
            raise KeyError(key)
        return self._source[key]

    def __iter__(self) -> Any:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def _check_variants(variants: Sequence[Variant], weights: Mapping[str, np.ndarray]) -> None:
    seen: set[Any] = set()
    targets: dict[str, Target] = {}
    for variant in variants:
        program, name = variant.program, variant.program.target.name
        signature = (name, frozenset(variant.shapes.items()))
        if signature in seen:
            raise InvalidArgument(f"there are two Programs for {name} and inputs {shapes_text(variant.shapes)}")
        seen.add(signature)
        if variant.shapes.keys() != variants[0].shapes.keys():
            raise InvalidArgument(f"{program.name} has other inputs than {variants[0].program.name}")
        if targets.setdefault(name, _portable(program.target)) != _portable(program.target):
            raise InvalidArgument(f"there are two targets '{name}' that differ")
        absent = [key for key in program.weights if key not in weights]
        if absent:
            raise InvalidArgument(f"weights are missing for {program.name}: {', '.join(absent)}")
        if not program.target.interpreted and (missing := set(program.kernels) - variant.cubins.keys()):
            names = sorted(kernel.name for kernel in missing)
            raise InvalidArgument(f"machine code is missing for {program.name} on {name}: {', '.join(names)}")


def _portable(target: Target) -> Target:
    return replace(target, device=None)


def _program_entry(variant: Variant, members: dict[str, Chunks]) -> dict[str, Any]:
    """The manifest's entry for a Program; the Program and its bytes join the members."""
    program = replace(variant.program, target=_portable(variant.program.target))
    codes = [variant.cubins.get(kernel) for kernel in program.kernels]
    document = encode(program, _store("data", members))
    document["cubins"] = [encode_value(cubin, _store("cubins", members)) for cubin in codes]
    name = _store("programs", members)(_json(document))
    return {"target": program.target.name, "shapes": {k: list(v) for k, v in variant.shapes.items()}, "member": name}


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
        self._verified: set[str] = set()
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
            self._targets[target.name] = target
        self._programs: dict[str, list[tuple[Shapes, str]]] = {name: [] for name in self._targets}
        for entry in manifest["programs"]:
            if entry["member"] not in self._checksums:
                raise ValueError(f"there is no member {entry['member']!r}")
            self._programs[entry["target"]].append((shapes_of(entry["shapes"]), entry["member"]))
        if len({frozenset(shapes) for held in self._programs.values() for shapes, _ in held}) > 1:
            raise ValueError("its Programs have different inputs")

    @property
    def targets(self) -> tuple[Target, ...]:
        return tuple(self._targets.values())

    @property
    def members(self) -> Mapping[str, int]:
        """Member → bytes, the manifest left out."""
        return {name: nbytes for name, (_, nbytes) in self._checksums.items()}

    def signatures(self, target: str) -> tuple[Shapes, ...]:
        """The input shapes that the file holds Programs for. Raises InvalidArgument for a target that it lacks."""
        return tuple(shapes for shapes, _ in self._programs_for(target))

    def target_for(self, arch: int, sm_count: int) -> Target:
        """The target whose machine code runs on such a GPU, the one with as many multiprocessors if there is a choice.

        Machine code for 7.x and 8.x runs on later minor revisions of its major one; from 9.0 on, where kernels use what
        only their architecture has, on its own alone. Raises ArtifactError (TARGET_MISMATCH).
        """
        fitting = [target for target in self.targets if not target.interpreted and _runs_on(target.arch, arch)]
        if not fitting:
            held = ", ".join(self._targets) or "nothing"
            text = (
                f"it was compiled for {held}, and this GPU is sm_{arch}; compile it again: "
                f"gossamer compile MODEL -o {self.path} --target {','.join((*self._targets, f'sm_{arch}'))}"
            )
            raise self._archive.error("TARGET_MISMATCH", text)
        return max(fitting, key=lambda target: (target.arch, target.sm_count == sm_count))

    def variant(self, target: str, shapes: Shapes) -> Variant:
        """The Program for a target and input shapes, checked with its constants and decoded, and its machine code.

        Raises InvalidArgument where the file has none, naming the input and the shapes it holds; ArtifactError where
        something that the Program needs is damaged.
        """
        shapes = {name: tuple(shape) for name, shape in shapes.items()}
        member = self._member_for(target, shapes)
        document = self._parsed(member, self._read(member))
        variant: Variant = self._checked(lambda: self._read_variant(document), member)
        if variant.program.target != self._targets[target] or variant.shapes != shapes:
            raise self._archive.error("MALFORMED", f"{member} is not for {target} and {shapes_text(shapes)}")
        return variant

    def _read_variant(self, document: dict[str, Any]) -> Variant:
        cubins = [decode_value(entry, self._read) for entry in document.pop("cubins")]
        program = decode(document, self._read)
        if not program.target.interpreted and not all(isinstance(cubin, Cubin) for cubin in cubins):
            raise ValueError("machine code is missing")
        _check_places(program)
        _check_weights(program, self.weights)
        code = zip(program.kernels, cubins, strict=True)
        return Variant(program, {kernel: cubin for kernel, cubin in code if cubin is not None})

    @cached_property
    def weights(self) -> Mapping[str, np.ndarray]:
        """The constants of all Programs by key: read-only arrays over the mapped file."""
        self._verify(WEIGHTS)
        arrays: dict[str, np.ndarray] = self._checked(lambda: read_tensors(self._archive.data_of(WEIGHTS)), WEIGHTS)
        return MappingProxyType(arrays)

    def verify(self) -> None:
        """Compares every member's checksum and decodes everything. Raises ArtifactError for the first that is wrong."""
        for name in self._checksums:
            self._verify(name)
        for target in self._targets:
            for shapes in self.signatures(target):
                self.variant(target, shapes)

    def _programs_for(self, target: str) -> list[tuple[Shapes, str]]:
        if target not in self._programs:
            held = ", ".join(self._programs)
            raise InvalidArgument(f"{self.path}: it holds no target '{target}'; it was compiled for {held}")
        return self._programs[target]

    def _member_for(self, target: str, shapes: Shapes) -> str:
        held = self._programs_for(target)
        for signature, member in held:
            if signature == shapes:
                return member
        raise InvalidArgument(f"{self.path}: {difference(shapes, [signature for signature, _ in held])}")

    def _read(self, name: str) -> bytes:
        """A member's bytes, checked."""
        self._verify(name)
        return bytes(self._archive.data_of(name))

    def _verify(self, name: str) -> None:
        if name in self._verified:
            return
        if name not in self._checksums:
            raise self._archive.error("MALFORMED", f"it has no member '{name}'")
        if hashlib.sha256(self._archive.data_of(name)).hexdigest() != self._checksums[name][0]:
            raise self._archive.error("DAMAGED", f"member {name} does not match its checksum")
        self._verified.add(name)

    def _parsed(self, name: str, data: bytes) -> dict[str, Any]:
        document = self._checked(lambda: json.loads(data), name)
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
    raise ArtifactError("MALFORMED", f"a target has no bytes, '{name}' least of all")


def _runs_on(compiled: int, present: int) -> bool:
    return compiled == present or (compiled // 10 == present // 10 < 9 and compiled < present)


def _check_places(program: Program) -> None:
    """Every buffer that is used is there, has a size, and lies inside the arena. Raises ValueError or KeyError."""
    for buffer in program.buffers.values():
        if dtype_of(buffer.dtype).hasobject or min(buffer.shape, default=0) < 0:
            raise ValueError(f"buffer '{buffer.name}' is {buffer}")
    named = {*program.inputs, *program.outputs}
    for name in named.union(*((*call.reads, *call.writes) for call in program.calls)):
        buffer, place = program.buffers[name], program.locations[name]
        if isinstance(place, Arena) and not 0 <= place.offset <= program.arena_bytes - buffer.nbytes:
            raise ValueError(f"buffer '{name}' lies outside the arena")


def _check_weights(program: Program, weights: Mapping[str, np.ndarray]) -> None:
    """Every constant is there and as large as the buffers inside it say. Raises ValueError."""
    used = {*program.outputs}.union(*(call.reads for call in program.calls))
    for name in used:
        place = program.locations[name]
        if isinstance(place, Weight):
            present = weights[place.key].nbytes if place.key in weights else -1
            if not 0 <= place.offset <= present - program.buffers[name].nbytes:
                raise ValueError(f"constant '{place.key}' is not there, or too small for buffer '{name}'")
