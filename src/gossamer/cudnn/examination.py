"""What a cuDNN is like, found out in a process of its own, which may die of it.

Started by `verdicts`; imports next to nothing, to be quick. Standard input has the request as JSON: `target` (a path,
or a name that the dynamic loader is to search for), `part` (regular expression for the file names of parts), `names`
(part → its name for the dynamic loader, where it is not beside the umbrella), `checks` (part → umbrella function that
checks its version), `functions` and `stand_in` (a symbol that only a stand-in for cuDNN has). Standard output gets JSON
lines: `{"doing": …}` before each step that may end the process, and last `{"report": …}`.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

from gossamer.cudnn.linking import has_symbol, open_library, path_of, resident_files

Say = Callable[[str], None]


def main() -> None:
    """Answer the request. What the libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    _leave_no_core_dump()

    def say(doing: str) -> None:
        answers.write(json.dumps({"doing": doing}) + "\n")

    answers.write(json.dumps({"report": examine(json.load(sys.stdin), say)}) + "\n")
    answers.flush()
    os._exit(0)  # destructors of a broken library have nothing to add


def examine(request: dict[str, Any], say: Say) -> dict[str, Any]:
    """Open the umbrella, let it open its parts in its own way, open those that it has not, and look up functions."""
    say(f"opening {request['target']}")
    try:
        umbrella = open_library(request["target"])
    except OSError as error:
        return {"error": str(error)}
    path, pattern = path_of(umbrella), re.compile(request["part"])
    if has_symbol(umbrella, request["stand_in"]):
        return {"stand_in": path}
    beside = _parts_in(os.path.dirname(path), pattern)
    if sys.platform == "win32":
        _open_first(beside, say)
    # From 9 on, cudnnGetVersion is in the part graph. Up to 9.9, calling a function whose part is nowhere is the end.
    marks_nine = request["checks"]["graph"]
    whole = not has_symbol(umbrella, marks_nine) or _is_somewhere("graph", beside, request)
    version = _version(umbrella, path, beside, say) if whole else 0
    checks = _checks(umbrella, path, beside, request, say) if version else {}
    parts, opened = _open_parts(path, pattern, request, say)
    return {
        "path": path,
        "version": version,
        "parts": parts,
        "checks": checks,
        "unexported": [name for name in request["functions"] if not has_symbol(umbrella, name)],
        "lacking": [name for name in request["functions"] if not any(has_symbol(part, name) for part in opened)],
        "resident": resident_files("libcudnn"),
    }


def _parts_in(folder: str, pattern: re.Pattern[str]) -> dict[str, str]:
    """Part → path in a folder; of several names for one part the shortest, which is the SONAME."""
    names = sorted(os.listdir(folder), key=lambda name: (len(name), name))
    return _by_part((os.path.join(folder, name) for name in names), pattern)


def _open_first(beside: dict[str, str], say: Say) -> None:
    """Open the parts before the umbrella wants them, as `linking.open_umbrella` does on Windows, where it would search
    PATH for them and end the process. One that does not load is reported with the others, later.
    """
    for part in sorted(beside, key=_rank):
        say(f"opening {beside[part]}")
        with contextlib.suppress(OSError):
            open_library(beside[part])


def _rank(part: str) -> tuple[int, str]:
    """What others need comes first, so that reports name the cause first."""
    return ("graph", "ops").index(part) if part in ("graph", "ops") else 2, part


def _by_part(paths: Iterable[str], pattern: re.Pattern[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in paths:
        if match := pattern.fullmatch(os.path.basename(path)):
            found.setdefault(match[1], path)
    return found


def _is_somewhere(part: str, beside: dict[str, str], request: dict[str, Any]) -> bool:
    """Whether a part lies beside the umbrella, or where the dynamic loader finds it."""
    if part in beside:
        return True
    try:
        open_library(request["names"][part])
    except (KeyError, OSError):
        return False
    return True


def _version(umbrella: ctypes.CDLL, path: str, beside: dict[str, str], say: Say) -> int:
    if not has_symbol(umbrella, "cudnnGetVersion"):
        return 0
    say(f"asking {path} for its version, which is in {beside.get('graph', 'itself')}")
    function = umbrella["cudnnGetVersion"]
    function.argtypes, function.restype = [], ctypes.c_size_t
    return int(function())


def _checks(
    umbrella: ctypes.CDLL, path: str, beside: dict[str, str], request: dict[str, Any], say: Say
) -> dict[str, int]:
    """Part → status of cuDNN's own comparison of versions, which opens the part the way that cuDNN will."""
    statuses = {}
    for part, function in request["checks"].items():
        if not has_symbol(umbrella, function):  # older than the part
            continue
        if not _is_somewhere(part, beside, request):  # and those that follow need it
            break
        say(f"comparing {path} with its part {beside.get(part, part)} ({function})")
        statuses[part] = int(umbrella[function]())
    return statuses


def _open_parts(
    path: str, pattern: re.Pattern[str], request: dict[str, Any], say: Say
) -> tuple[list[dict[str, Any]], list[ctypes.CDLL]]:
    """The parts that cuDNN opened for the comparisons, wherever it found them; then the rest, beside the part graph."""
    mapped = _by_part(resident_files("libcudnn_"), pattern)
    # By the names that they were opened by: where those are symbolic links, more parts lie beside the links.
    used = {name: path_of(open_library(file)) for name, file in mapped.items()}
    found = _parts_in(os.path.dirname(used.get("graph", path)), pattern) | used
    targets = found | {name: target for name, target in request["names"].items() if name not in found}
    parts, opened = [], []
    for name in sorted(targets, key=_rank):
        target = targets[name]
        say(f"opening {target}")
        try:
            library = open_library(target)
        except OSError as error:
            if name in found:
                parts.append({"name": name, "path": target, "error": str(error)})
        else:
            opened.append(library)
            parts.append({"name": name, "path": path_of(library), "version": _own_version(library, name)})
    return parts, opened


def _own_version(library: ctypes.CDLL, part: str) -> int:
    """The version that a part carries itself, where it does: bytes patch, minor, major."""
    for symbol in (f"cudnn_{part}_version", f"cudnn_{part}_infer_version"):
        try:
            number = ctypes.c_uint32.in_dll(library, symbol).value
        except ValueError:
            continue
        return (number >> 16 & 255) * 10000 + (number >> 8 & 255) * 100 + (number & 255)
    return 0


def _leave_no_core_dump() -> None:
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
