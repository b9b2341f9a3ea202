"""What cuDNN being optional asks for, by number, and which tests hold it: what docs/requirements.md is printed from.

A test holds a requirement by naming its number where it says what it shows: `R1.4` in a docstring.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "tests"

SECTIONS = {
    1: "Loader",
    2: "Manifest, trampolines and shim",
    3: "Provider option `enable_cudnn`",
    4: "Handles",
    5: "Messages",
    6: "Operators that never need cuDNN",
    7: "cuDNN where it is there, native kernels where it is not",
    8: "Python surface",
    9: "Proofs of independence",
    10: "Plans without a handle",
}

REQUIREMENTS = {
    "R1.1": "nothing is opened by importing, by options, or by sessions with `enable_cudnn=0`",
    "R1.2": "the order of the search; never the working directory, never a path from options or models",
    "R1.3": "`RTLD_NOW \\| RTLD_LOCAL`, the umbrella library only",
    "R1.4": "every required function, or unavailable; an optional one missing refuses its feature only",
    "R1.5": "another major, mixed or missing parts: unavailable, named, and the process survives",
    "R1.6": "32 threads load once and agree",
    "R1.7": "tried again after `preload_dlls`",
    "R1.8": "every candidate and why not: in `gossamer doctor`, the log, the error",
    "R1.9": "a hook for tests forces absence",
    "R1.10": "the library's raw handle for those who need it, null without",
    "R2.1": "one manifest: names, types, since-versions",
    "R2.2": "the direct functions",
    "R2.3": "the backend's functions, and the list that NVIDIA's frontend resolves",
    "R2.4": "bound at first call; harmless results without cuDNN",
    "R2.5": "audited against headers and exported symbols of real releases",
    "R2.6": "`gossamer cudnn-shim`",
    "R3.1": "values, defaults, unknown names; `cudnn_path` refused with the reason",
    "R3.2": "part of equality, hash and inverse",
    "R3.3": "0 opens nothing and makes no handle; sessions of one process may differ",
    "R3.4": "disabled and missing can be told apart",
    "R4.1": "a handle belongs to an execution context, made at first need, else None",
    "R4.2": "custom operators get `stream`, `cudnn_handle`, `require_cudnn`",
    "R5": "`NOT_IMPLEMENTED` when the node runs, with the exact text; nothing goes to the CPU silently",
    "R6": "softmax, reductions, Einsum and attention are native in every form",
    "R7": "cuDNN if enabled, there and preferred; else native, to the same result",
    "R8.1": "`preload_dlls`",
    "R8.2": "`cudnn_version`: None without, never a failure",
    "R8.3": "onnxruntime's session API",
    "R9.1": "an environment without cuDNN",
    "R9.2": "no binary shipped or built needs it",
    "R9.3": "an environment with cuDNN: same suite, same results",
    "R9.4": "a public workflow: both on Linux, and Windows",
    "R10.1": "device properties: from a device, from JSON, shipped; round trip",
    "R10.2": "a graph with a handle or with properties, or both",
    "R10.3": "cuDNN before 9.8 is refused with both versions named",
    "R10.4": "`enforce_precompiled`",
    "R10.5": "another architecture is refused, both named",
    "R10.6": "engines chosen by behaviour and numerical notes",
    "R10.7": "a graph and a plan cannot be confused",
    "R10.8": "that there is no handle can be seen",
    "R10.9": "plan → bytes → plan → bytes unchanged; damaged bytes raise",
    "R10.10": "plans are exchanged with NVIDIA's frontend",
    "R10.11": "executing needs a handle; restored plans compute the same",
    "R10.12": "documentation and sample: handle-free is not device-free",
    "R10.13": "restoring keeps a graph's name, kernel cache, properties and handle",
}
"""Number → what it asks for, in a few words."""

ELSEWHERE = {
    "R9.1": "`make test`",
    "R9.3": "`make test-cudnn`",
    "R9.4": "`.github/workflows/ci.yml`; on Windows nothing but the fake libraries' C has been run",
}
"""Number → what holds it besides tests."""

OPEN: dict[str, str] = {}
"""Number → what is still missing. A requirement without a test has to be here."""

_NUMBER = re.compile(r"\bR(\d+)(?:\.(\d+))?\b")


def named_in(text: str) -> set[str]:
    """Numbers of requirements in a text, known or not. Of whole sections, those that are one requirement count."""
    return {match[0] for match in _NUMBER.finditer(text) if match[2] or match[0] in REQUIREMENTS}


def holders() -> dict[str, list[str]]:
    """Number → files of tests that name it, sorted; unknown numbers, too."""
    found: dict[str, list[str]] = {}
    for path in sorted(set(TESTS.rglob("test_*.py")) - {TESTS / "unit" / "test_requirements.py"}):
        for number in named_in(path.read_text(encoding="utf-8")):
            found.setdefault(number, []).append(path.relative_to(TESTS).as_posix())
    return found


def as_markdown() -> str:
    """docs/requirements.md."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield from (
        "# Requirements on optional cuDNN, and the tests that hold them",
        "",
        "Printed from `tools/requirements.py` and the tests: each names the numbers that it holds, so that",
        "`grep -rnw 'R1\\.4' tests` finds the functions. Files are below `tests/`; `gpu/` runs by hand on an H200.",
    )
    by_number = holders()
    for section, title in SECTIONS.items():
        yield from ("", f"## R{section} {title}", "", "| | what it asks for | held by |", "|---|---|---|")
        for number, text in REQUIREMENTS.items():
            if number.partition(".")[0] == f"R{section}":
                yield f"| {number} | {text} | {_held_by(number, by_number.get(number, []))} |"


def _held_by(number: str, files: list[str]) -> str:
    parts = [", ".join(f"`{file}`" for file in files), ELSEWHERE.get(number, "")]
    parts += [f"**open: {OPEN[number]}**"] if number in OPEN else []
    return "; ".join(filter(None, parts))
