"""`python tools/audit_cudnn.py FOLDER...`: compare Gossamer's cuDNN manifest with real releases.

A FOLDER is a cuDNN as its wheel has it (`site-packages/nvidia/cudnn`): headers in `include`, the library in `lib`.
Compared are prototypes, the types they are made of, enumerators with their values, since when each exists (from the
headers' own `@since`, and because nothing newer than a release may be in it), and the symbols that the library exports
(`nm -D`). Early builds of a release call some enumerators older than they are: 9.27 does, 9.28 does not.

Exit status: 0 everything agrees; 1 there are differences, one a line; 2 a folder cannot be read.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path

from cudnn_headers import HeaderError, Headers, read
from gossamer.cudnn import enums, symbols

UNDOCUMENTED = frozenset(
    ("cudnnGetBackdoor", "cudnnSetBackdoor", "cudnnSetBackdoorEx", "cudnnGetRNNDropoutLocationsInternal")
)
"""Exported, but in no header: not for users."""

UNUSED_STRUCTS = frozenset(("cudnnDebug_t", "cudnnFraction_t"))
"""No function takes a pointer to these; a callback receives the one, an attribute holds the other."""


def differences(headers: Headers, exported: frozenset[str]) -> list[str]:
    """Every difference between the manifest and a release, as sentences."""
    return [
        *_functions(headers),
        *_exports(headers.version, exported),
        *_types(headers),
        *(text for enum in _enums() for text in _members(enum, headers)),
    ]


def exported_symbols(library: Path) -> frozenset[str]:
    """The functions that a library defines for others, without the versions of symbols."""
    result = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True, timeout=60
    )
    return frozenset(re.findall(r" T (\w+)", result.stdout))


def frontend_symbols(shim: str) -> set[str]:
    """What NVIDIA's frontend, from the text of its cudnn_frontend_shim.h, looks up in cuDNN's handle."""
    calls = re.findall(r"NV_FE_CALL_TO_BACKEND\(\s*\w+,\s*(cudnn\w+)", shim)
    return {*calls, *re.findall(r"\bget_symbol\(\"(\w+)\"\)", shim)}


def _functions(headers: Headers) -> Iterator[str]:
    for name, prototype in headers.functions.items():
        function = symbols.FUNCTIONS.get(name)
        if function is None:
            yield f"{name} is declared, but not in the manifest"
            continue
        ours = (function.returns, *(c_type for c_type, _ in function.arguments))
        if ours != prototype.types:
            yield f"{name} takes {prototype.types}, the manifest says {ours}"
        yield from _since(name, function.since, headers)
    for name, function in symbols.FUNCTIONS.items():
        if name not in headers.functions and function.since <= headers.version:
            yield f"{name} is not declared, the manifest has it since {function.since}"


def _exports(version: int, exported: frozenset[str]) -> Iterator[str]:
    for name, function in symbols.FUNCTIONS.items():
        if (function.since <= version) != (name in exported):
            yield f"{name} is {'' if name in exported else 'not '}exported, the manifest has it since {function.since}"
    for name in sorted(exported - set(symbols.FUNCTIONS) - UNDOCUMENTED):
        yield f"{name} is exported, but not in the manifest"


def _types(headers: Headers) -> Iterator[str]:
    for name in sorted(headers.pointers - symbols.POINTER_TYPES):
        yield f"{name} is a pointer, and not in POINTER_TYPES"
    for name in sorted(headers.structs - symbols.STRUCT_TYPES - UNUSED_STRUCTS):
        yield f"{name} is a structure, and not in STRUCT_TYPES"
    for name in sorted((symbols.POINTER_TYPES | symbols.STRUCT_TYPES) & set(headers.enums)):
        yield f"{name} is an enum, the manifest says otherwise"


def _enums() -> Iterator[type[IntEnum]]:
    for name in enums.__all__:
        value = getattr(enums, name)
        if isinstance(value, type):
            yield value


def _members(enum: type[IntEnum], headers: Headers) -> Iterator[str]:
    declared = headers.enums.get(f"{enum.__name__}_t", {})
    for name, member in enum.__members__.items():
        since = enums.since(member)
        if (since <= headers.version) != (name in declared):
            yield f"{name} is {'' if name in declared else 'not '}declared, the manifest has it since {since}"
        elif name in declared and declared[name] != member:
            yield f"{name} is {declared[name]}, the manifest says {int(member)}"
        yield from _since(name, since, headers)


def _since(name: str, ours: int, headers: Headers) -> Iterator[str]:
    theirs = headers.since.get(name)
    if theirs is not None and theirs != ours:
        yield f"{name} came with {theirs}, the manifest says {ours}"
    elif name in headers.functions and ours > headers.version:
        yield f"{name} is declared in {headers.version}, the manifest has it since {ours}"


def main(folders: list[str]) -> int:
    """Audit each folder; returns the exit status."""
    if not folders:
        print(__doc__, file=sys.stderr)
        return 2
    status = 0
    for folder in map(Path, folders):
        try:
            headers = read(folder / "include")
            found = differences(headers, exported_symbols(folder / "lib" / "libcudnn.so.9"))
        except (HeaderError, OSError, subprocess.SubprocessError) as error:
            print(f"{folder}: {error}", file=sys.stderr)
            return 2
        print(
            *(f"{folder}: {text}" for text in found),
            f"{folder}: cuDNN {headers.version}, {len(found)} differences",
            sep="\n",
        )
        status = max(status, int(bool(found)))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
