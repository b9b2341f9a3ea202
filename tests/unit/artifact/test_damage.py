"""Compiled models that something happened to: each is an ArtifactError that names the file, and no other exception."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiled_files import compiled, directory_offset
from gossamer.errors import ArtifactError
from gossamer.program import archive
from gossamer.program.archive import FORMAT, MANIFEST, Archive, Member, write_archive
from gossamer.program.artifact import WEIGHTS, open_artifact


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("whole"))


def use(path: Path) -> None:
    """Reads everything of a file."""
    open_artifact(path).verify()


def refused(path: Path, reason: str | None = None) -> str:
    """The text of the error that the file is."""
    with pytest.raises(ArtifactError) as caught:
        use(path)
    assert reason in (None, caught.value.reason), str(caught.value)
    assert str(path) in caught.value.text
    return caught.value.text


def damaged(path: Path, position: int, flips: int) -> Iterator[Path]:
    """The file with one byte changed, for as long as the loop over it runs."""
    with open(path, "r+b") as file:
        (before,) = os.pread(file.fileno(), 1, position)
        os.pwrite(file.fileno(), bytes([before ^ flips]), position)
        try:
            yield path
        finally:
            os.pwrite(file.fileno(), bytes([before]), position)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_one_changed_byte_anywhere(path: Path, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, path.stat().st_size - 1))
    for changed in damaged(path, position, data.draw(st.integers(1, 255))):
        refused(changed)


def test_one_flipped_bit_in_every_byte_of_the_zips_own_structure(path: Path) -> None:
    whole = path.read_bytes()
    directory = directory_offset(whole)
    with zipfile.ZipFile(path) as file:
        headers = [
            range(info.header_offset, whole.index(file.read(info), info.header_offset + 30))
            for info in file.infolist()
            if info.file_size > 8
        ]
    for position in (*(p for header in headers for p in header), *range(directory, len(whole))):
        for changed in damaged(path, position, 1):
            with pytest.raises(ArtifactError):
                Archive(changed)
    use(path)


def test_one_flipped_bit_in_each_member_is_named(path: Path) -> None:
    members = Archive(path).members
    assert {name.partition("/")[0] for name in members} == {MANIFEST, WEIGHTS, "programs", "cubins", "data"}
    for member in members.values():
        for changed in damaged(path, member.begin + member.nbytes // 2, 4):
            assert member.name in refused(changed, "DAMAGED")


def test_damage_in_one_program_leaves_the_others_usable(path: Path) -> None:
    entries = json.loads(Archive(path).manifest)["programs"]
    names = {entry["target"]: entry["member"] for entry in entries if "cudnn" not in entry["needs"]}
    for changed in damaged(path, Archive(path).members[names["sm_80"]].begin, 1):
        opened = open_artifact(changed)
        opened.variant("sm_90", {"x": (2, 4)})
        with pytest.raises(ArtifactError, match="DAMAGED"):
            opened.variant("sm_80", {"x": (8, 4)})


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_truncated_anywhere(path: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    whole = path.read_bytes()
    short = tmp_path_factory.mktemp("short") / "small.gossamer"
    kept = data.draw(st.integers(0, len(whole) - 1))
    short.write_bytes(whole[:kept])
    refused(short, "TRUNCATED" if kept == 0 or kept > 64 else None)


def test_bytes_before_within_or_behind(path: Path, tmp_path: Path) -> None:
    whole = path.read_bytes()
    directory = directory_offset(whole)
    for position in (0, directory // 2, directory, len(whole)):
        (tmp_path / "longer").write_bytes(whole[:position] + b"more" + whole[position:])
        refused(tmp_path / "longer")


@pytest.mark.parametrize("content", [b"x", b"PK\5\6" + bytes(18), bytes(5000), b"\x08\x0aan ONNX model" * 50])
def test_other_files(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "other").write_bytes(content)
    assert "gossamer compile" in refused(tmp_path / "other", "NOT_A_COMPILED_MODEL")


def test_another_zip(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "other", "w") as file:
        file.writestr("a.txt", "text")
    refused(tmp_path / "other", "NOT_A_COMPILED_MODEL")


def test_a_newer_format(path: Path, tmp_path: Path) -> None:
    whole = path.read_bytes()
    (tmp_path / "newer").write_bytes(whole.replace(b"format 0001", b"format 0002"))
    text = refused(tmp_path / "newer", "NEWER_FORMAT")
    assert f"it has format 2, and this Gossamer reads formats up to {FORMAT}" in text


def forged(
    path: Path, to: Path, change: Callable[[list[tuple[Member, bytes]]], Sequence[tuple[Member, bytes]]]
) -> Path:
    """The file with a directory that says something else, all checksums around it right."""
    whole = Archive(path)
    parts = [(member, bytes(whole.data_of(name))) for name, member in whole.members.items()]
    body = path.read_bytes()[: directory_offset(path.read_bytes())]
    directory = b"".join(member.directory_entry for member, _ in change(parts))
    count = len(change(parts))
    comment = archive._COMMENT.format(FORMAT, hashlib.sha256(whole.manifest).hexdigest())
    to.write_bytes(body + directory + archive._tail(count, len(directory), len(body), comment))
    return to


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("../../etc/passwd", "no name for a member"),
        ("/etc/passwd", "no name for a member"),
        ("data\\x", "no name for a member"),
        ("data//x", "no name for a member"),
        ("..", "no name for a member"),
        ("C:x", "no name for a member"),
        ("", "no name for a member"),
        ("a\0b", "no name for a member"),
        (MANIFEST, "two members"),
    ],
)
def test_names_that_lead_elsewhere(path: Path, tmp_path: Path, name: str, text: str) -> None:
    def rename(parts: list[tuple[Member, bytes]]) -> list[tuple[Member, bytes]]:
        return [*parts[:1], (replace(parts[1][0], name=name), parts[1][1]), *parts[2:]]

    assert text in refused(forged(path, tmp_path / "forged", rename), "MALFORMED")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"offset": 2**40}, "points outside"),
        ({"nbytes": 2**40}, "points outside"),
        ({"nbytes": 2**64 - 1}, "points outside"),
        ({"offset": 0}, "overlaps"),
        ({"offset": 2**64 - 1}, "points outside"),
    ],
)
def test_members_that_point_elsewhere(path: Path, tmp_path: Path, fields: dict[str, int], text: str) -> None:
    def move(parts: list[tuple[Member, bytes]]) -> list[tuple[Member, bytes]]:
        return [*parts[:2], (replace(parts[2][0], **fields), parts[2][1]), *parts[3:]]

    assert text in refused(forged(path, tmp_path / "forged", move), "MALFORMED")


def test_a_member_that_the_directory_leaves_out(path: Path, tmp_path: Path) -> None:
    assert "leaves a gap" in refused(forged(path, tmp_path / "f", lambda parts: [*parts[:2], *parts[3:]]), "MALFORMED")
    assert "gap" in refused(forged(path, tmp_path / "f", lambda parts: parts[:-1]), "MALFORMED")
    assert "first" in refused(forged(path, tmp_path / "f", lambda parts: parts[1:]), "MALFORMED")
    assert "0 members" in refused(forged(path, tmp_path / "f", lambda parts: []), "MALFORMED")


def test_a_compressed_member(path: Path, tmp_path: Path) -> None:
    whole = bytearray(path.read_bytes())
    struct.pack_into("<H", whole, directory_offset(bytes(whole)) + 10, zipfile.ZIP_DEFLATED)
    (tmp_path / "forged").write_bytes(whole)
    assert "is compressed" in refused(tmp_path / "forged", "MALFORMED")


def rewritten(path: Path, to: Path, name: str, content: bytes) -> Path:
    """The file with another member, or another manifest, and checksums that are right for it."""
    whole = Archive(path)
    members = {key: bytes(whole.data_of(key)) for key in whole.members if key != MANIFEST}
    manifest = content if name == MANIFEST else whole.manifest
    if name != MANIFEST:
        members[name] = content
        entries = json.loads(manifest)
        entries["members"][name] = {"sha256": hashlib.sha256(content).hexdigest(), "nbytes": len(content)}
        manifest = json.dumps(entries).encode()
    write_archive(to, {key: lambda data=data: [data] for key, data in members.items()}, lambda _: manifest)
    return to


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"{}", b"\xff", b"[" * 100_000, b'{"format": 1}'])
def test_a_manifest_that_is_none(path: Path, tmp_path: Path, content: bytes) -> None:
    assert MANIFEST in refused(rewritten(path, tmp_path / "f", MANIFEST, content), "MALFORMED")


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"[" * 100_000, b'{"cubins": [], "kernels": [], "program": 0}'])
def test_a_program_that_is_none(path: Path, tmp_path: Path, content: bytes) -> None:
    name = json.loads(Archive(path).manifest)["programs"][0]["member"]
    assert name in refused(rewritten(path, tmp_path / "f", name, content), "MALFORMED")


def with_entries(path: Path, to: Path, change: Callable[[list[dict[str, Any]]], Any]) -> Path:
    """The file with other entries for its Programs in the manifest."""
    manifest = json.loads(Archive(path).manifest)
    change(manifest["programs"])
    return rewritten(path, to, MANIFEST, json.dumps(manifest).encode())


@pytest.mark.parametrize("needs", [["cudnn", "onnxruntime", "triton"], ["cudnn"], ["cudnn", "python:a.B"]], ids=str)
def test_needs_that_are_not_the_programs(path: Path, tmp_path: Path, needs: list[str]) -> None:
    changed = with_entries(path, tmp_path / "f", lambda entries: entries[1].update(needs=needs))
    assert "needs cudnn, onnxruntime, and manifest.json says otherwise" in refused(changed, "MALFORMED")


@pytest.mark.parametrize("needs", [["onnxruntime", "cudnn"], ["cudnn", "cudnn"], [1], [None], 0, None, "a", {"b": 1}])
def test_needs_that_are_none(path: Path, tmp_path: Path, needs: Any) -> None:
    changed = with_entries(path, tmp_path / "f", lambda entries: entries[1].update(needs=needs))
    assert MANIFEST in refused(changed, "MALFORMED")


def test_programs_that_are_there_twice_or_only_with_cudnn(path: Path, tmp_path: Path) -> None:
    def twice(entries: list[dict[str, Any]]) -> None:
        entries.append(entries[0])

    def twice_with(entries: list[dict[str, Any]]) -> None:
        entries.append(entries[1])

    def alone(entries: list[dict[str, Any]]) -> None:
        del entries[0]

    assert "two Programs for sm_80 and inputs x=2×4" in refused(with_entries(path, tmp_path / "f", twice), "MALFORMED")
    assert "x=2×4 that use cuDNN" in refused(with_entries(path, tmp_path / "f", twice_with), "MALFORMED")
    assert "none that runs without" in refused(with_entries(path, tmp_path / "f", alone), "MALFORMED")


def of_manifest(path: Path, to: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """The file with another manifest."""
    manifest = json.loads(Archive(path).manifest)
    change(manifest)
    return rewritten(path, to, MANIFEST, json.dumps(manifest).encode())


def test_targets_without_programs(path: Path, tmp_path: Path) -> None:
    def half(manifest: dict[str, Any]) -> None:
        manifest["programs"] = [entry for entry in manifest["programs"] if entry["target"] == "sm_80"]

    def nothing(manifest: dict[str, Any]) -> None:
        manifest.update(programs=[], targets=[])

    for change in (half, nothing):
        assert "a target without a Program" in refused(of_manifest(path, tmp_path / "f", change), "MALFORMED")


@pytest.mark.parametrize(
    ("kind", "slot", "text"),
    [
        ("inputs", {"name": "z"}, "other inputs than it declares"),
        ("inputs", {"dtype": "float64"}, "small has 'x' of dtype float32, and the model of float64"),
        ("outputs", {"name": "z"}, "small has the outputs y, and the model z"),
        ("outputs", {"dtype": "int32"}, "small has 'y' of dtype float32, and the model of int32"),
    ],
)
def test_inputs_and_outputs_that_are_not_the_programs(
    path: Path, tmp_path: Path, kind: str, slot: dict[str, str], text: str
) -> None:
    """What is fed has the dtype that the manifest declares, and is copied to where the Program has room for its own."""
    changed = of_manifest(path, tmp_path / "f", lambda manifest: manifest[kind][0].update(slot))
    assert text in refused(changed, "MALFORMED")


def of_program(path: Path, to: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """The file with another first Program."""
    name = json.loads(Archive(path).manifest)["programs"][0]["member"]
    document = json.loads(bytes(Archive(path).data_of(name)))
    change(document)
    return rewritten(path, to, name, json.dumps(document).encode())


def test_keys_that_are_there_twice(path: Path, tmp_path: Path) -> None:
    """Which of the two counts is up to who reads it: here the last one did, elsewhere it may be the first."""
    whole = Archive(path)
    program = json.loads(whole.manifest)["programs"][0]["member"]
    for name, key in ((MANIFEST, "model"), (program, "kernels"), (WEIGHTS, "w")):
        content = bytes(whole.data_of(name))
        at = content.index(f'"{key}":'.encode())
        twice = content[:at] + f'"{key}":0,'.encode() + content[at:]
        if name == WEIGHTS:
            twice = (int.from_bytes(content[:8], "little") + len(twice) - len(content)).to_bytes(8, "little") + twice[
                8:
            ]
        text = refused(rewritten(path, tmp_path / "f", name, twice), "MALFORMED")
        assert f"the key '{key}' is there twice" in text
        assert (name if name != WEIGHTS else "the weights") in text


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_constants_that_are_no_json(path: Path, tmp_path: Path, constant: str) -> None:
    manifest = Archive(path).manifest.replace(b'"model":"small"', f'"model":{constant}'.encode())
    assert f"{constant} is no JSON" in refused(rewritten(path, tmp_path / "f", MANIFEST, manifest), "MALFORMED")


@pytest.mark.parametrize(
    ("figures", "text"),
    [
        ({"num_warps": 64}, "cannot have num_warps 64"),
        ({"num_warps": 4.0}, "Cubin.num_warps cannot be 4.0"),
        ({"num_warps": True}, "Cubin.num_warps cannot be True"),
        ({"shared_bytes": 10**9}, "cannot have shared_bytes 1000000000"),
        ({"scratch_bytes": -1}, "cannot have scratch_bytes -1"),
        ({"arch": 90}, "for sm_80 cannot have arch 90"),
        ({"tensor_maps": [{"kind": "Host"}]}, "Cubin.tensor_maps cannot be"),
    ],
    ids=str,
)
def test_figures_of_machine_code(path: Path, tmp_path: Path, figures: dict[str, Any], text: str) -> None:
    assert text in refused(of_program(path, tmp_path / "f", lambda it: it["cubins"][0].update(figures)), "MALFORMED")


def test_buffers_of_other_types(path: Path, tmp_path: Path) -> None:
    for dtype in ("int64", "float16", "complex64"):
        changed = of_program(path, tmp_path / "f", lambda it, to=dtype: it["program"]["buffers"]["a"].update(dtype=to))
        refused(changed, "MALFORMED")


@pytest.mark.parametrize("optimized", [0, None, "no"])
def test_whether_it_was_optimized_is_yes_or_no(path: Path, tmp_path: Path, optimized: Any) -> None:
    changed = of_manifest(path, tmp_path / "f", lambda manifest: manifest.update(optimized=optimized))
    assert f"'optimized' is {optimized!r}" in refused(changed, "MALFORMED")


@pytest.mark.parametrize(
    "placement", [0, None, [0], ["x"], [{"kind": "Arena", "offset": 0}], [{"kind": "PlacedRecord"}]]
)
def test_a_placement_that_is_none(path: Path, tmp_path: Path, placement: Any) -> None:
    refused(of_program(path, tmp_path / "f", lambda document: document.update(placement=placement)), "MALFORMED")


def test_an_argument_that_is_no_buffer(path: Path, tmp_path: Path) -> None:
    def lead_astray(document: dict[str, Any]) -> None:
        document["program"]["calls"][0]["arguments"][0]["buffer"] = "nowhere"

    assert "nowhere" in refused(of_program(path, tmp_path / "f", lead_astray), "MALFORMED")


def test_a_file_that_is_written_to_after_its_checksums_were_compared(path: Path) -> None:
    """What is checked is what is used: a second reading of the same member finds what happened since the first."""
    opened = open_artifact(path)
    opened.variant("sm_80", {"x": (2, 4)})
    (member,) = (name for name in opened.members if name.startswith("cubins/") and b"sm_80" in opened._read(name))
    for _ in damaged(path, Archive(path).members[member].begin, 1):
        with pytest.raises(ArtifactError, match=f"member {member} does not match"):
            opened.variant("sm_80", {"x": (8, 4)})


def framed(header: str, data: bytes = bytes(64)) -> bytes:
    return len(header).to_bytes(8, "little") + header.encode() + data


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 100,
        framed("{}", b""),
        framed("[]"),
        framed('{"w": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 128]}}'),
        framed('{"w": {"dtype": "F32", "shape": [4, 5], "data_offsets": [0, 80]}}'),
        framed('{"w": {"dtype": "F32", "shape": [-4, -4], "data_offsets": [0, 64]}}'),
        framed('{"w": {"dtype": "F32", "shape": [2.0, 8], "data_offsets": [0, 64]}}'),
        framed('{"w": {"dtype": "X", "shape": [4, 4], "data_offsets": [0, 64]}}'),
        framed('{"w": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]}}', bytes(65)),
        framed('{"w": {"dtype": "F32", "shape": [4, 3], "data_offsets": [0, 48]}}', bytes(48)),
        framed('{"__metadata__": {"w": "object:8"}, "w": {"dtype": "U8", "shape": [64], "data_offsets": [0, 64]}}'),
        framed('{"__metadata__": {"w": "(,,)f4:8"}, "w": {"dtype": "U8", "shape": [64], "data_offsets": [0, 64]}}'),
        framed('{"__metadata__": {"w": 1}, "w": {"dtype": "U8", "shape": [64], "data_offsets": [0, 64]}}'),
    ],
)
def test_weights_that_are_none(path: Path, tmp_path: Path, content: bytes) -> None:
    refused(rewritten(path, tmp_path / "f", WEIGHTS, content), "MALFORMED")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["kind", "bytes", "x"]), inner),
    max_leaves=4,
)


def places(document: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to each value within a JSON document."""
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, item in items:
        yield (*at, key)
        yield from places(item, (*at, key))


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_other_value_in_manifest_or_program(
    path: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """With checksums that are right: what is read is well formed, or an ArtifactError is raised, never another one."""
    whole = Archive(path)
    name = data.draw(st.sampled_from([MANIFEST, json.loads(whole.manifest)["programs"][0]["member"]]))
    document = json.loads(bytes(whole.data_of(name)))
    *way, last = data.draw(st.sampled_from(list(places(document))))
    inner = document
    for key in way:
        inner = inner[key]
    if data.draw(st.booleans()):
        inner[last] = data.draw(ANYTHING)
    else:
        del inner[last]
    changed = rewritten(path, tmp_path_factory.mktemp("any") / "f", name, json.dumps(document).encode())
    with suppress(ArtifactError):
        use(changed)
