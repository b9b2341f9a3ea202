"""Compiled models in which something else stands than was written, all checksums right: they run, as far as that needs
no GPU, or are a GossamerError. What is changed is drawn with a fixed seed, mostly to what almost could stand there.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import golden_model
from compiled_files import CPU, CUDA, compiled
from gossamer import InferenceSession
from gossamer.errors import ArtifactError, GossamerError
from gossamer.program import Arena
from gossamer.program.archive import MANIFEST, Archive, write_archive
from gossamer.program.artifact import Variant, open_artifact
from gossamer.run import driver
from gossamer.run.context import ExecutionContext
from gossamer.run.launching import LoadedKernel

pytest.importorskip("onnxruntime")

ROUNDS = 60
INTEGERS = (0, 1, -1, 3, 8, 2**15, 2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63, 2**70, -(2**31), -(2**63))
TEXTS = (
    *("", "x", "nowhere", "float32", "float16", "int64", "object", "int4", "\ud800", "a\0b", "{}", "cudnn", "none"),
    *("*fp32:16", "*i8", "i32", "tensordesc<fp16[1, 2]>"),
)
VALUES = (None, True, 1.5, "x", [], {}, {"kind": "Host"}, {"kernel": 0}, {"bytes": "x"}, {"float": "7ff0000000000000"})


def places(document: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to each value within a JSON document."""
    items = (
        document.items() if isinstance(document, dict) else enumerate(document if isinstance(document, list) else ())
    )
    for key, item in items:
        yield (*at, key)
        yield from places(item, (*at, key))


def mutate(document: Any, rng: random.Random) -> None:
    """Changes one value, at a place where one is."""

    def at(way: tuple[Any, ...]) -> Any:
        inner = document
        for key in way:
            inner = inner[key]
        return inner

    known = list(places(document))
    *way, last = rng.choice(known)
    inner, value = at(tuple(way)), at((*way, last))
    kind = rng.random()
    if kind < 0.1:
        del inner[last]
    elif kind < 0.2:
        inner[last] = deepcopy(at(rng.choice(known)))
    else:
        inner[last] = rng.choice(VALUES) if kind < 0.25 else like(value, rng)


def like(value: Any, rng: random.Random) -> Any:
    """Another value of the same type."""
    match value:
        case bool():
            return not value
        case int():
            return rng.choice((*INTEGERS, value + 1, value - 1, 2 * value, value // 2, -value, value + 16))
        case str():
            return rng.choice((*TEXTS, value + "x", value[:-1]))
        case list():
            return rng.choice((value[1:], value[:1] + value, value[::-1], [value]))
        case dict() if value:
            key = rng.choice(list(value))
            rest = {name: item for name, item in value.items() if name != key}
            return rng.choice((rest, rest | {rng.choice(TEXTS): value[key]}))
        case _:
            return 0


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that takes everything: what is packed for it has to be right before."""
    descriptor = SimpleNamespace(getPtr=lambda: 1)
    monkeypatch.setattr(driver, "call", lambda function, *_, doing="": descriptor if "Tensor" in function else 1 << 16)
    monkeypatch.setattr(driver, "allocate", lambda nbytes, *_, **__: SimpleNamespace(pointer=1 << 20, nbytes=nbytes))


def launch(variant: Variant) -> None:
    """Packs and counts all that a GPU would be given."""

    def on_host(call: Any, _: Any) -> dict[str, Any]:
        buffers, places = variant.program.buffers, variant.program.locations
        return {n: np.zeros(buffers[n].shape, buffers[n].dtype) for n in call.writes if isinstance(places[n], Arena)}

    shared: Any = SimpleNamespace(
        device=SimpleNamespace(ordinal=0),
        ledger=None,
        host=SimpleNamespace(run=on_host),
        weight=lambda key: 1 << 20,
        kernel=lambda kernel: LoadedKernel(variant.cubins[kernel], 1, 2),
    )
    context = ExecutionContext(shared, 1, 2)
    prepared = context.prepare(variant.program)
    context.host_arrays = dict.fromkeys(variant.program.buffers, np.zeros(0))
    context.execute(prepared, 5, graphs=True)


def use(path: Path, dtypes: Mapping[str, str]) -> None:
    """All that a file holds: read, run on the null device, and packed for a GPU. dtypes: of the inputs."""
    artifact = open_artifact(path)
    for target in artifact.targets:
        cuda = (CUDA, {"device": "null", "target": target.name})
        with suppress(GossamerError), InferenceSession(path, providers=[cuda, CPU]) as session:
            for shapes in artifact.signatures(target.name):
                with suppress(GossamerError):
                    session.run(None, {name: np.zeros(shapes[name], dtype) for name, dtype in dtypes.items()})
    for entry in artifact.programs:
        if not entry.uses_cudnn:
            launch(artifact.variant(entry.target, entry.shapes))


def with_another_value(whole: Archive, part: str, rng: random.Random, to: Path) -> None:
    """Writes the file with something changed in the JSON of a member whose name begins so."""
    members = {name: bytes(whole.data_of(name)) for name in whole.members}
    name = rng.choice([name for name in members if name.startswith(part)])
    content = members[name]
    header = slice(8, 8 + int.from_bytes(content[:8], "little")) if part == "weights" else slice(0, len(content))
    document = json.loads(content[header])
    mutate(document, rng)
    text = json.dumps(document).encode()
    members[name] = (len(text).to_bytes(8, "little") if header.start else b"") + text + content[header.stop :]
    manifest = json.loads(members.pop(MANIFEST))
    if name != MANIFEST:
        manifest["members"][name] = {"sha256": hashlib.sha256(members[name]).hexdigest(), "nbytes": len(members[name])}
    data = json.dumps(manifest).encode()
    write_archive(to, {key: lambda data=data: [data] for key, data in members.items()}, lambda _: data)


@pytest.mark.parametrize("part", ["manifest", "programs", "weights"])
@pytest.mark.parametrize("which", ["golden", "small"])
def test_whatever_stands_there(which: str, part: str, tmp_path: Path) -> None:
    rng, changed = random.Random(f"{which} {part}"), tmp_path / "changed"
    whole = Archive(compiled(tmp_path) if which == "small" else golden_model.golden_file(1))
    dtypes = {slot.name: slot.dtype for slot in open_artifact(whole.path).description.inputs}
    use(Path(whole.path), dtypes)
    refused = []
    for _ in range(ROUNDS):
        with_another_value(whole, part, rng, changed)
        try:
            use(changed, dtypes)
        except ArtifactError as error:
            refused.append(error.text)
    assert len(refused) > ROUNDS // 4, "next to nothing is changed"
    assert all(text.startswith(f"{changed}: ") for text in refused)
