"""The container of compiled models: a zip that is one sequence of bytes for given members; any other is an error.

Members are stored, not compressed, and their data begin at multiples of 64 bytes, so that they are used where they are
mapped. The first is the manifest; the others follow sorted by name. Dates are zip's first day. Sizes and offsets always
stand in ZIP64 fields: one form, whatever the size. The archive's comment holds the format version and the manifest's
SHA-256, and the manifest those of all others. Unzip and Python's zipfile read it; reading here takes nothing else than
what writing here makes. Sources: PKWARE's APPNOTE.TXT 6.3.10; the padding field is that of Android's zipalign.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from gossamer.errors import ArtifactError, NoSuchFile

FORMAT = 1
"""The version of the format, of container and manifest together. Larger ones are not read."""
ALIGNMENT = 64
MANIFEST = "manifest.json"

Chunks: TypeAlias = Callable[[], Iterable[bytes | memoryview]]
"""The bytes of a member, in pieces, anew each time it is called."""

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")
_END = struct.Struct("<4s4H2IH")
_SIZES_EXTRA = struct.Struct("<2H2Q")
_PLACE_EXTRA = struct.Struct("<2H3Q")
_PADDING_EXTRA = struct.Struct("<3H")

_VERSION = 45  # the first that has ZIP64
_UTF8_NAMES = 0x0800
_FIRST_DAY = 0x0021  # 1980-01-01
_IN_ZIP64 = 0xFFFFFFFF
_IN_ZIP64_SHORT = 0xFFFF
_COMMENT = "Gossamer compiled model, format {:04d}, SHA-256 of the manifest {}"
_COMMENT_PATTERN = re.compile(rb"Gossamer compiled model, format (\d{4}), SHA-256 of the manifest ([0-9a-f]{64})")
_TAIL_BYTES = _END64.size + _LOCATOR.size + _END.size + len(_COMMENT.format(0, "0" * 64))
_NAME_PATTERN = re.compile(r"[A-Za-z0-9_\-]+(\.[A-Za-z0-9_\-]+)*(/[A-Za-z0-9_\-]+(\.[A-Za-z0-9_\-]+)*)*")


BEGINNING_BYTES = _LOCAL.size + len(MANIFEST)
"""How much of a file `begins_archive` looks at."""


def begins_archive(beginning: bytes) -> bool:
    """Whether a file that begins with these bytes is a compiled model, or what is left of one."""
    return beginning[:4] == b"PK\3\4" and beginning[_LOCAL.size :].startswith(MANIFEST.encode())


@dataclass(frozen=True, slots=True)
class Member:
    """A member as the archive records it. offset: of its local header, in bytes from the start of the file."""

    name: str
    nbytes: int
    crc: int
    offset: int

    @property
    def local_header(self) -> bytes:
        """With its extra field, which pads up to the data."""
        name = self.name.encode()
        sizes = _SIZES_EXTRA.pack(1, _SIZES_EXTRA.size - 4, self.nbytes, self.nbytes)
        unpadded = self.offset + _LOCAL.size + len(name) + len(sizes) + _PADDING_EXTRA.size
        zeros = bytes(-unpadded % ALIGNMENT)
        extra = sizes + _PADDING_EXTRA.pack(0xD935, 2 + len(zeros), ALIGNMENT) + zeros
        figures = (_VERSION, _UTF8_NAMES, 0, 0, _FIRST_DAY, self.crc, _IN_ZIP64, _IN_ZIP64, len(name), len(extra))
        return _LOCAL.pack(b"PK\3\4", *figures) + name + extra

    @property
    def directory_entry(self) -> bytes:
        name = self.name.encode()
        extra = _PLACE_EXTRA.pack(1, _PLACE_EXTRA.size - 4, self.nbytes, self.nbytes, self.offset)
        figures = (_VERSION, _VERSION, _UTF8_NAMES, 0, 0, _FIRST_DAY, self.crc, _IN_ZIP64, _IN_ZIP64)
        rest = (len(name), len(extra), 0, 0, 0, 0, _IN_ZIP64)
        return _CENTRAL.pack(b"PK\1\2", *figures, *rest) + name + extra

    @property
    def begin(self) -> int:
        """Where the data begin, in bytes from the start of the file."""
        return self.offset + len(self.local_header)

    @property
    def end(self) -> int:
        return self.begin + self.nbytes


@dataclass(frozen=True, slots=True)
class Checksum:
    """What identifies the bytes of a member. crc: zip's own; sha256: in hexadecimal."""

    nbytes: int
    crc: int
    sha256: str

    @staticmethod
    def of(chunks: Iterable[bytes | memoryview]) -> Checksum:
        nbytes, crc, digest = 0, 0, hashlib.sha256()
        for chunk in chunks:
            nbytes, crc = nbytes + len(chunk), zlib.crc32(chunk, crc)
            digest.update(chunk)
        return Checksum(nbytes, crc, digest.hexdigest())


def write_archive(
    path: str | os.PathLike[str],
    members: Mapping[str, Chunks],
    manifest_for: Callable[[Mapping[str, Checksum]], bytes],
) -> None:
    """Writes a file that holds the members and their manifest. It appears whole or not at all.

    members: what each holds, by name; called twice, since checksums stand before the bytes. manifest_for: the manifest,
    made from the checksums of all members.
    """
    checksums = {name: Checksum.of(chunks()) for name, chunks in sorted(members.items())}
    manifest = manifest_for(checksums)
    first: tuple[str, Checksum, Chunks] = (MANIFEST, Checksum.of([manifest]), lambda: [manifest])
    contents = [first, *((name, checksum, members[name]) for name, checksum in checksums.items())]
    partial = Path(path).with_name(f".{Path(path).name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with open(partial, "wb") as file:
            for piece in _pieces(contents):
                file.write(piece)
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _pieces(contents: Sequence[tuple[str, Checksum, Chunks]]) -> Iterator[bytes | memoryview]:
    """The bytes of a file, the manifest's checksum and bytes coming first."""
    written: list[Member] = []
    offset = 0
    for name, checksum, chunks in contents:
        member = Member(name, checksum.nbytes, checksum.crc, offset)
        yield member.local_header
        yield from chunks()
        written.append(member)
        offset = member.end
    directory = b"".join(member.directory_entry for member in written)
    yield directory
    yield _tail(len(written), len(directory), offset, _COMMENT.format(FORMAT, contents[0][1].sha256))


def _tail(count: int, directory_bytes: int, offset: int, comment: str) -> bytes:
    """What follows the directory, which begins at `offset`."""
    size = _END64.size - 12
    end64 = _END64.pack(b"PK\6\6", size, _VERSION, _VERSION, 0, 0, count, count, directory_bytes, offset)
    locator = _LOCATOR.pack(b"PK\6\7", 0, offset + directory_bytes, 1)
    counts = (_IN_ZIP64_SHORT, _IN_ZIP64_SHORT, _IN_ZIP64, _IN_ZIP64)
    return end64 + locator + _END.pack(b"PK\5\6", 0, 0, *counts, len(comment)) + comment.encode()


class Archive:
    """A mapped file whose structure holds: every byte of it is accounted for, and its manifest is what was written.

    The other members are given unchecked: `gossamer.program.artifact` knows their checksums. The mapping lives as long
    as what was given from it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises NoSuchFile, and ArtifactError where the file is none that `write_archive` made."""
        self.path = os.fspath(path)
        self._data = _mapped(self.path)
        comment = self._comment()
        members = self._members(_COMMENT.format(FORMAT, comment))
        self.members: Mapping[str, Member] = {member.name: member for member in members}
        self.manifest = bytes(self.data_of(MANIFEST))
        if hashlib.sha256(self.manifest).hexdigest() != comment:
            raise self.error("DAMAGED", f"{MANIFEST} does not match its checksum")

    def data_of(self, name: str) -> memoryview:
        """The bytes of a member that is there, where they are mapped; read-only."""
        member = self.members[name]
        return self._data[member.begin : member.end]

    def error(self, reason: str, text: str) -> ArtifactError:
        """An error that names the file."""
        return ArtifactError(reason, f"{self.path}: {text}")

    def _comment(self) -> str:
        """The manifest's checksum, once the file is known for a compiled model of this format."""
        comment = bytes(self._data[-(_TAIL_BYTES - _END64.size - _LOCATOR.size - _END.size) :])
        found = _COMMENT_PATTERN.fullmatch(comment)
        if found is None:
            if begins_archive(bytes(self._data[:BEGINNING_BYTES])):
                raise self.error("TRUNCATED", "its end is missing or damaged")
            raise self.error("NOT_A_COMPILED_MODEL", "it is no file that `gossamer compile` wrote")
        version = int(found[1])
        if version > FORMAT:
            text = f"it has format {version}, and this Gossamer reads formats up to {FORMAT}; update Gossamer"
            raise self.error("NEWER_FORMAT", text)
        return found[2].decode()

    def _members(self, comment: str) -> Sequence[Member]:
        """The members, in the order of their data. What they leave open must be exactly what the writer puts there."""
        directory_end = len(self._data) - _TAIL_BYTES
        if directory_end < 0:
            raise self.error("TRUNCATED", "it ends within its directory")
        (*_, count, _, directory_bytes, offset) = _END64.unpack_from(self._data, directory_end)
        if bytes(self._data[directory_end:]) != _tail(count, directory_bytes, offset, comment):
            raise self.error("DAMAGED", "the end of its directory is not as it was written")
        if offset + directory_bytes != directory_end:
            raise self.error("TRUNCATED", f"{offset + directory_bytes + _TAIL_BYTES} bytes were written, "
                             f"{len(self._data)} are here")  # fmt: skip
        members = list(self._directory(offset, directory_end))
        if len(members) != count or not members or members[0].name != MANIFEST:
            raise self.error("MALFORMED", f"its directory has {len(members)} members of {count}, {MANIFEST} first")
        self._check_places(members, offset)
        return members

    def _directory(self, position: int, end: int) -> Iterator[Member]:
        """The entries of the directory, each as the writer would have written it."""
        while position < end:
            try:
                figures = _CENTRAL.unpack_from(self._data, position)
                after_name = position + _CENTRAL.size + figures[10]
                name = str(self._data[position + _CENTRAL.size : after_name], "utf-8")
                (*_, nbytes, _, offset) = _PLACE_EXTRA.unpack_from(self._data, after_name)
            except (struct.error, UnicodeDecodeError):
                raise self.error("DAMAGED", f"the directory entry at byte {position} cannot be read") from None
            if figures[4] != 0:
                raise self.error("MALFORMED", f"member {name!r} is compressed")
            member = Member(name, nbytes, figures[7], offset)
            entry = member.directory_entry
            if bytes(self._data[position : position + len(entry)]) != entry:
                raise self.error("DAMAGED", f"the directory entry of {name!r} is not as it was written")
            yield member
            position += len(entry)

    def _check_places(self, members: Sequence[Member], directory: int) -> None:
        """Members lie one after the other, without overlap or gap, from the start of the file to the directory."""
        seen: set[str] = set()
        position = 0
        for member in members:
            if not _NAME_PATTERN.fullmatch(member.name):
                raise self.error("MALFORMED", f"{member.name!r} is no name for a member")
            if member.name in seen:
                raise self.error("MALFORMED", f"there are two members {member.name!r}")
            seen.add(member.name)
            if member.end > directory:
                raise self.error("MALFORMED", f"member {member.name!r} points outside the file's members")
            if member.offset != position:
                how = "overlaps the one before it" if member.offset < position else "leaves a gap before it"
                raise self.error("MALFORMED", f"member {member.name!r} {how}")
            if bytes(self._data[member.offset : member.begin]) != member.local_header:
                raise self.error("DAMAGED", f"the header of member {member.name!r} is not as it was written")
            position = member.end
        if position != directory:
            raise self.error("MALFORMED", "there is a gap before its directory")


def _mapped(path: str) -> memoryview:
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise ArtifactError("TRUNCATED", f"{path}: it is empty")
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except FileNotFoundError:
        raise NoSuchFile(f"there is no file '{path}'") from None
