"""The byte cache: machine code on disk, under a key that says everything it was made from.

One file per entry: the length of a JSON header, the header (it holds the code's SHA-256), the code. Files appear by
rename, so readers never see half of one; a damaged one is treated as absent, with a warning.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gossamer import settings
from gossamer.diagnostics import logger
from gossamer.program.cubin import Cubin

_SUFFIX = ".kernel"


@dataclass(frozen=True, slots=True)
class Entry:
    """One cached kernel. used: seconds since the epoch of the last read or write."""

    path: Path
    function: str
    arch: int
    nbytes: int
    used: float


def folder() -> Path:
    """Where cached kernels lie; `GOSSAMER_CACHE_DIR` moves it."""
    return settings.CACHE_DIR() / "kernels"


def load(key: str) -> Cubin | None:
    """The entry of `key`, or None."""
    path = _path(key)
    try:
        data = path.read_bytes()
        os.utime(path)  # prune goes by the time of last use
    except OSError:
        return None
    cubin = _decode(data)
    if cubin is None:
        logger.warning("cached kernel %s is damaged and will be compiled again", path)
    return cubin


def store(key: str, cubin: Cubin) -> None:
    """Writes an entry; where the cache cannot be written, says so once and goes on without."""
    header = json.dumps(cubin.header() | {"sha256": hashlib.sha256(cubin.code).hexdigest()}).encode()
    path, partial = _path(key), None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            partial = Path(file.name)
            file.write(len(header).to_bytes(8, "little") + header + cubin.code)
        os.replace(partial, path)
    except OSError as error:
        if partial is not None:
            partial.unlink(missing_ok=True)
        _warn_once(f"kernels cannot be cached in {folder()}", error)


def entries() -> Iterator[Entry]:
    """Every entry, most recently used first."""
    for path, status in _files():
        try:
            cubin = _decode(path.read_bytes())
        except FileNotFoundError:  # pruned meanwhile, by another process
            continue
        if cubin is not None:
            yield Entry(path, cubin.function, cubin.arch, status.st_size, status.st_mtime)


def prune(max_bytes: int | None = None, max_age_days: float | None = None) -> list[Path]:
    """Removes what was not used for `max_age_days`, then the least recently used until `max_bytes` hold the rest.

    Gives what it removed.
    """
    removed, kept_bytes = [], 0
    for path, status in _files():
        too_old = max_age_days is not None and time.time() - status.st_mtime > max_age_days * 86400
        too_much = max_bytes is not None and kept_bytes + status.st_size > max_bytes
        if too_old or too_much:
            path.unlink(missing_ok=True)
            removed.append(path)
        else:
            kept_bytes += status.st_size
    return removed


def _files() -> list[tuple[Path, os.stat_result]]:
    """The files of all entries, damaged ones included, most recently used first."""
    found = []
    for path in folder().glob(f"*/*{_SUFFIX}"):
        with contextlib.suppress(FileNotFoundError):  # pruned meanwhile, by another process
            found.append((path, path.stat()))
    return sorted(found, key=lambda file: -file[1].st_mtime)


def _path(key: str) -> Path:
    return folder() / key[:2] / (key + _SUFFIX)


def _decode(data: bytes) -> Cubin | None:
    length = int.from_bytes(data[:8], "little")
    code = data[8 + length :]
    try:
        header = json.loads(data[8 : 8 + length])
        if header.pop("sha256") != hashlib.sha256(code).hexdigest():
            return None
        return Cubin.from_header(header, code)
    except (ValueError, KeyError, TypeError):
        return None


_warned: set[str] = set()


def _warn_once(message: str, reason: object) -> None:
    if message not in _warned:
        _warned.add(message)
        logger.warning("%s: %s", message, reason)
