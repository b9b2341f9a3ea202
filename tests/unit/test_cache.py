"""The byte cache: entries appear whole or not at all, damaged ones count as absent, pruning goes by last use."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gossamer.build import cache
from gossamer.program.cubin import Cubin, TensorMapLayout

CUBIN = Cubin("softmax_kernel", 90, 4, 0, 0, 1, (TensorMapLayout(3, 2, 6, (64, 64), False),), "3.9.0", b"\x7fELF" * 250)
KEYS = tuple(f"{i:02x}" * 32 for i in range(4))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GOSSAMER_CACHE_DIR", str(tmp_path))
    return tmp_path / "kernels"


def entry_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_what_was_stored_is_loaded() -> None:
    assert cache.load(KEYS[0]) is None
    cache.store(KEYS[0], CUBIN)
    assert cache.load(KEYS[0]) == CUBIN
    assert cache.load(KEYS[1]) is None


def test_entries_say_what_they_are(folder: Path) -> None:
    cache.store(KEYS[0], CUBIN)
    (entry,) = cache.entries()
    assert (entry.function, entry.arch) == ("softmax_kernel", 90)
    assert [entry.path] == entry_files(folder)
    assert entry.nbytes == entry.path.stat().st_size > len(CUBIN.code)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[:20],
        lambda data: data[:3],
        lambda data: b"",
        lambda data: data[:-5] + b"\0" + data[-4:],
        lambda data: b"\xff" * 8 + data[8:],
        lambda data: data[:8] + b"{}" + data[10:],
        lambda data: data + b"more",
        lambda data: (2).to_bytes(8, "little") + b"[]" + data,
        lambda data: data.replace(b'"num_warps"', b'"num_worps"'),
    ],
    ids=[
        "shorter",
        "header-cut",
        "length-cut",
        "empty",
        "bit-flip",
        "huge-header",
        "no-json",
        "longer",
        "other-json",
        "unknown-field",
    ],
)
def test_a_damaged_entry_is_absent_and_replaced(
    damage: Callable[[bytes], bytes], folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache.store(KEYS[0], CUBIN)
    (path,) = entry_files(folder)
    path.write_bytes(damage(path.read_bytes()))
    with caplog.at_level(logging.WARNING, "gossamer"):
        assert cache.load(KEYS[0]) is None
    assert str(path) in caplog.text
    assert "damaged" in caplog.text
    assert list(cache.entries()) == []
    cache.store(KEYS[0], CUBIN)
    assert cache.load(KEYS[0]) == CUBIN


def test_readers_never_see_half_an_entry() -> None:
    """One thread rewrites an entry while others read it: each read gives one of the two versions, whole."""
    versions = (CUBIN, replace(CUBIN, code=b"other" * 100_000))
    cache.store(KEYS[0], CUBIN)
    stop, seen = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            seen.append(cache.load(KEYS[0]))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for turn in range(60):
        cache.store(KEYS[0], versions[turn % 2])
    stop.set()
    for reader in readers:
        reader.join()
    assert seen
    assert set(seen) <= set(versions)


def test_a_cache_that_cannot_be_written_warns_once_and_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "kernels").write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING, "gossamer"):
        for key in KEYS:
            cache.store(key, CUBIN)
        assert cache.load(KEYS[0]) is None
    assert len(caplog.records) == 1
    assert str(tmp_path) in caplog.text


def test_a_write_that_fails_leaves_nothing_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    cache.store(KEYS[0], CUBIN)
    assert entry_files(folder) == []


def use(key: str, at: float, folder: Path) -> Path:
    cache.store(key, CUBIN)
    path = next(path for path in entry_files(folder) if path.stem == key)
    os.utime(path, (at, at))
    return path


def test_pruning_removes_the_least_recently_used_until_the_rest_fits(folder: Path) -> None:
    paths = [use(key, 1e9 + age, folder) for age, key in enumerate(KEYS)]
    assert [entry.path for entry in cache.entries()] == paths[::-1]
    size = paths[0].stat().st_size
    assert cache.prune(max_bytes=2 * size) == [paths[1], paths[0]]
    assert entry_files(folder) == paths[2:]
    assert cache.prune(max_bytes=2 * size) == []
    assert set(cache.prune(max_bytes=0)) == set(paths[2:])
    assert entry_files(folder) == []


def test_loading_counts_as_use(folder: Path) -> None:
    paths = [use(key, 1e9 + age, folder) for age, key in enumerate(KEYS)]
    cache.load(KEYS[0])
    assert next(cache.entries()).path == paths[0]


def test_pruning_by_age(folder: Path) -> None:
    old, new = use(KEYS[0], 1e9, folder), use(KEYS[1], 1e9, folder)
    cache.load(KEYS[1])
    assert cache.prune(max_age_days=30) == [old]
    assert entry_files(folder) == [new]


def test_an_empty_cache_is_no_error() -> None:
    assert list(cache.entries()) == []
    assert cache.prune(max_bytes=0) == []
