"""UBJSON, draft 12: the binary form of JSON in which NVIDIA's frontend keeps plans.

`encode` writes what nlohmann::json's `to_ubjson` writes without options: no types or counts of containers in front, the
smallest integer that holds a value, floats as float64. `decode` reads that and the optimised containers too; it checks
every length before it believes it, and nesting, so that bytes from anywhere raise ValueError at worst.

Source: https://ubjson.org (draft 12).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

__all__ = ["decode", "encode"]

_INTEGERS: dict[bytes, struct.Struct] = {
    b"i": struct.Struct(">b"),
    b"U": struct.Struct(">B"),
    b"I": struct.Struct(">h"),
    b"l": struct.Struct(">i"),
    b"L": struct.Struct(">q"),
}
"""Markers of integers, smallest first: the order in which the writer tries them."""

_FLOATS: dict[bytes, struct.Struct] = {b"d": struct.Struct(">f"), b"D": struct.Struct(">d")}
_CONSTANTS: dict[bytes, Any] = {b"Z": None, b"T": True, b"F": False}
_DEPTH = 64  # plans nest less than ten deep


def encode(value: Any) -> bytes:
    """The bytes of None, bools, ints (64 bits), floats, texts, sequences and mappings with text keys, in order."""
    if value is None or isinstance(value, bool):
        return {None: b"Z", True: b"T", False: b"F"}[value]
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, float):
        return b"D" + _FLOATS[b"D"].pack(value)
    if isinstance(value, str):
        return b"S" + _text(value)
    if isinstance(value, Mapping):
        return b"{" + b"".join(_text(key) + encode(item) for key, item in value.items()) + b"}"
    if isinstance(value, list | tuple):
        return b"[" + b"".join(map(encode, value)) + b"]"
    raise TypeError(f"UBJSON cannot hold a {type(value).__name__}")


def _integer(value: int) -> bytes:
    for marker, form in _INTEGERS.items():
        try:
            return marker + form.pack(value)
        except struct.error:
            continue
    raise ValueError(f"UBJSON cannot hold {value}: it needs more than 64 bits")


def _text(value: str) -> bytes:
    raw = value.encode()
    return _integer(len(raw)) + raw


def decode(data: bytes) -> Any:
    """The value that the bytes hold, all of them; ValueError where they are no UBJSON."""
    reader = _Reader(data)
    value = reader.value(reader.marker())
    if reader.position != len(data):
        raise ValueError(f"{len(data) - reader.position} bytes follow the end of the document")
    return value


class _Reader:
    """Reads one document from its beginning."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0
        self._depth = 0

    def take(self, count: int) -> bytes:
        if not 0 <= count <= len(self.data) - self.position:
            raise ValueError(
                f"byte {self.position}: {count} bytes are announced, {len(self.data) - self.position} follow"
            )
        piece = self.data[self.position : self.position + count]
        self.position += count
        return piece

    def marker(self) -> bytes:
        """The next marker; `N` (no operation) is skipped."""
        while (marker := self.take(1)) == b"N":
            pass
        return marker

    def value(self, marker: bytes) -> Any:
        if marker in _CONSTANTS:
            return _CONSTANTS[marker]
        if (form := _INTEGERS.get(marker) or _FLOATS.get(marker)) is not None:
            return form.unpack(self.take(form.size))[0]
        if marker == b"S":
            return self.text()
        if marker == b"C":
            return self.take(1).decode()
        if marker in (b"[", b"{"):
            return self._container(marker == b"{")
        raise ValueError(f"byte {self.position - 1}: no value begins with {marker!r}")

    def text(self) -> str:
        return self.take(self.length()).decode()

    def length(self) -> int:
        marker = self.marker()
        if marker not in _INTEGERS:
            raise ValueError(f"byte {self.position - 1}: no length begins with {marker!r}")
        return int(self.value(marker))

    def _container(self, is_object: bool) -> Any:
        self._depth += 1
        if self._depth > _DEPTH:
            raise ValueError(f"byte {self.position}: nested more than {_DEPTH} deep")
        kind, count = self._announced()
        items = self._items(b"}" if is_object else b"]", kind, count, is_object)
        self._depth -= 1
        return items

    def _announced(self) -> tuple[bytes | None, int | None]:
        """Type and number of a container's items, where they are written in front of them."""
        kind = count = None
        if self.data[self.position : self.position + 1] == b"$":
            self.take(1)
            kind = self.take(1)
        if self.data[self.position : self.position + 1] == b"#":
            self.take(1)
            count = self.length()
        if kind is not None and count is None:
            raise ValueError(f"byte {self.position}: a container with a type has no number of items")
        if count is not None and not 0 <= count <= len(self.data) - self.position:
            raise ValueError(f"byte {self.position}: a container announces {count} items")
        return kind, count

    def _items(self, end: bytes, kind: bytes | None, count: int | None, is_object: bool) -> Any:
        found: dict[str, Any] = {}
        listed: list[Any] = []
        while count is None or len(found if is_object else listed) < count:
            if count is None and self._ends(end):
                break
            key = self.text() if is_object else ""
            value = self.value(kind or self.marker())
            if key in found:
                raise ValueError(f"byte {self.position}: the key {key!r} comes twice")
            if is_object:
                found[key] = value
            else:
                listed.append(value)
        return found if is_object else listed

    def _ends(self, end: bytes) -> bool:
        while self.data[self.position : self.position + 1] == b"N":
            self.position += 1
        if self.data[self.position : self.position + 1] != end:
            return False
        self.position += 1
        return True
