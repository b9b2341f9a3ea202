"""Measuring: which of several ways to run a node is the fastest on this device, remembered from process to process.

The tuning cache is one JSON file, `tuning.json` in the folder of GOSSAMER_CACHE_DIR. An entry's key says all that the
measurement depends on: the node, the device, and the versions of what was measured. Compiling ahead of time takes
such a file as a `Table`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from itertools import tee
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from gossamer import settings
from gossamer.cudnn import loader
from gossamer.cudnn.device_properties import DeviceProperties
from gossamer.diagnostics import logger
from gossamer.errors import CudnnError, InvalidArgument, NoSuchFile, OutOfMemory, PlanError
from gossamer.model.node import Node
from gossamer.program import Call, Refusal, Target

NATIVE = "the native kernels"
FORMAT = 1

Entry: TypeAlias = Mapping[str, Any]
"""What is remembered of one node: `node`, `device`, the fastest `way`, and `microseconds` by way."""

_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Way:
    """One of several ways to run a node. name: the same in every process with the same libraries."""

    name: str
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Tuner:
    """A device on which calls can be measured. device: its name. seconds_of: how long a node's calls take on it."""

    device: str
    seconds_of: Callable[[Node, tuple[Call, ...]], float]


@dataclass(frozen=True, slots=True)
class Table:
    """What was measured elsewhere: the file of a tuning cache, of which nothing is added to or measured anew."""

    path: Path
    entries: Mapping[str, Entry]

    @classmethod
    def read(cls, path: Path) -> Table:
        """Raises NoSuchFile; InvalidArgument for a file that no session wrote, or that is damaged."""
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise NoSuchFile(f"tuning table {path}: there is no such file") from None
        except (OSError, ValueError) as error:
            raise InvalidArgument(f"tuning table {path} cannot be read: {error}") from None
        entries = _entries_of(held)
        if entries is None or not all(map(_is_entry, entries.values())):
            raise InvalidArgument(
                f"tuning table {path} is damaged, of another version, or none; a session with the option "
                "cudnn_conv_algo_search=EXHAUSTIVE writes one into the folder of GOSSAMER_CACHE_DIR"
            )
        return cls(path, entries)

    @property
    def devices(self) -> frozenset[str]:
        """The names of the devices on which its entries were measured."""
        return frozenset(str(entry.get("device", "")) for entry in self.entries.values())

    def entry_of(self, node: Node, target: Target) -> Entry | None:
        """What was measured, native kernels included, for a node on a device like the target."""
        return self.entries.get(key_of(node, target, device_name(target), native=True))


def device_name(target: Target) -> str:
    """The driver's name for such a device; empty where the target has no properties."""
    return DeviceProperties.from_json(target.properties).device_name if target.properties else ""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The fastest way. text: what was measured, for the placement report."""

    calls: tuple[Call, ...]
    text: str


def fastest(node: Node, target: Target, ways: Iterable[Way], tuner: Tuner, *, native: bool) -> Chosen | Refusal:
    """Of ways, the one that the cache remembers, else the one that is measured to be fastest.

    ways: gone through once; what follows a remembered one is never made. native: whether the native kernels may be
    among them.
    """
    key = key_of(node, target, tuner.device, native=native)
    ways, untried = tee(ways)
    remembered = _read().get(key)
    if remembered is not None and (known := recall(remembered, untried)) is not None:
        return known
    times, problems = _measured(node, ways, tuner)
    if not times:
        return Refusal("; ".join(problems) or "cuDNN has no engine for it")
    best = min(times, key=lambda way: times[way])
    microseconds = {way.name: round(seconds * 1e6, 2) for way, seconds in times.items()}
    _remember(key, {"node": describe(node), "device": tuner.device, "way": best.name, "microseconds": microseconds})
    return Chosen(best.calls, f"measured: {_summary(microseconds)}")


def recall(entry: Entry, ways: Iterable[Way]) -> Chosen | None:
    """The way that was measured to be fastest, where there still is one of that name; none after it is made."""
    way = next((way for way in ways if way.name == entry["way"]), None)
    return None if way is None else Chosen(way.calls, f"measured before: {_summary(entry['microseconds'])}")


def _measured(node: Node, ways: Iterable[Way], tuner: Tuner) -> tuple[dict[Way, float], list[str]]:
    times, problems = {}, []
    for way in ways:
        try:
            times[way] = tuner.seconds_of(node, way.calls)
        except (CudnnError, PlanError, OutOfMemory) as error:
            problems.append(f"{way.name}: {error}")
            logger.warning("%s cannot be run by %s: %s", node.origin, way.name, error)
    return times, problems


def _summary(microseconds: Mapping[str, float], most: int = 3) -> str:
    """`the native kernels 12.1 µs, cuDNN fused, engine 10 (A, 0) 15.3 µs, 6 others up to 40.2 µs`."""
    ranked = sorted(microseconds.items(), key=lambda item: item[1])
    shown = [f"{name} {time:.1f} µs" for name, time in ranked[:most]]
    others = [f"{len(ranked) - most} others up to {ranked[-1][1]:.1f} µs"] if len(ranked) > most else []
    return ", ".join(shown + others)


def key_of(node: Node, target: Target, device: str, *, native: bool) -> str:
    """The SHA-256 of all that a measurement depends on."""
    parts = {
        "node": describe(node),
        "device": device,
        "native": native,
        "sm_count": target.sm_count,
        "tf32": target.use_tf32,
        "deterministic": target.deterministic,
        "cuDNN": loader.load().version_text,
        "versions": _versions(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def describe(node: Node) -> dict[str, Any]:
    """What lowerings see of a node, but for names and the values of constants."""
    return {
        "op": f"{node.domain or 'ai.onnx'}.{node.op_type}-{node.version}",
        "attributes": {name: _attribute(value) for name, value in sorted(node.attributes.items())},
        "inputs": [None if x is None else f"{x}{' constant' * node.is_constant(x)}" for x in node.inputs],
        "outputs": [None if y is None else str(y) for y in node.outputs],
    }


def _attribute(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    return list(value) if isinstance(value, tuple) else value


def _versions() -> dict[str, str]:
    return dict(_version_of(package) for package in ("gossamer", "triton"))


def _version_of(package: str) -> tuple[str, str]:
    with contextlib.suppress(metadata.PackageNotFoundError):  # a source tree on PYTHONPATH has none
        return package, metadata.version(package)
    return package, ""


# The file


def path() -> Path:
    """Where the cache is kept."""
    return settings.CACHE_DIR() / "tuning.json"


def _read() -> dict[str, Any]:
    """Every entry; nothing of a file that is missing, damaged, or of another format."""
    try:
        held = json.loads(path().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        logger.warning("the tuning cache %s cannot be read and is made anew: %s", path(), error)
        return {}
    return {key: entry for key, entry in (_entries_of(held) or {}).items() if _is_entry(entry)}


def _entries_of(held: Any) -> dict[str, Any] | None:
    """The entries of a file's JSON, unchecked; None where it is none of this format."""
    entries = held.get("entries") if isinstance(held, dict) and held.get("format") == FORMAT else None
    return entries if isinstance(entries, dict) else None


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("way"), str)
        and isinstance(entry.get("microseconds"), dict)
        and all(isinstance(time, int | float) for time in entry["microseconds"].values())
        and bool(entry["microseconds"])
    )


def _remember(key: str, entry: Mapping[str, Any]) -> None:
    """Adds an entry to what the file holds by now. Where it cannot be written, the next process measures again."""
    with _lock:
        text = json.dumps({"format": FORMAT, "entries": _read() | {key: entry}}, indent=1, sort_keys=True)
        try:
            with _replacing(path()) as partial:
                partial.write_text(text, encoding="utf-8")
        except OSError as error:
            logger.warning("the tuning cache %s cannot be written: %s", path(), error)


@contextlib.contextmanager
def _replacing(file: Path) -> Iterator[Path]:
    """A path to write to; what is there afterwards becomes the file at once, so that readers never see half of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        partial = Path(folder) / file.name
        yield partial
        os.replace(partial, file)
