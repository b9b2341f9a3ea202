"""cuDNN's functions for C and C++ programs that start without cuDNN: sources made from the manifest, and their build.

    write(folder)                   # cudnn_symbols.inc, cudnn_types.h, loader and trampolines
    build(folder)                   # libcudnn_shim.a, hidden trampolines, to link instead of -lcudnn
    build(folder, stand_in=True)    # libcudnn.so.9, for binaries that insist on one when they are loaded

The C files beside this module are copied as they are; what depends on the manifest is in the two generated ones. The
loader in C searches as gossamer's own does where a C program can: see the comment at the top of cudnn_loader.c.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from enum import IntEnum
from importlib import resources
from pathlib import Path

from gossamer.cudnn import enums, symbols
from gossamer.cudnn.symbols import FUNCTIONS, MAJOR, POINTER_TYPES, STRUCT_TYPES, Function
from gossamer.errors import Fail, InvalidArgument, NotFound

COPIED = ("cudnn_shim.h", "cudnn_loader.c", "cudnn_trampolines.c", "libcudnn.map")
COMPILED = ("cudnn_loader.c", "cudnn_trampolines.c")
ARCHIVE = "libcudnn_shim.a"
STAND_IN = f"libcudnn.so.{MAJOR}"

SYSTEM_FOLDERS = ("/usr/lib64", "/usr/local/cuda/lib64")
"""Folders of usual installations that not every system's dynamic loader searches."""

COMPILE_FLAGS = ("-std=c11", "-Wall", "-Wextra", "-O2", "-fPIC", "-fvisibility=hidden", "-pthread")
LINK_FLAGS = ("-shared", f"-Wl,-soname,{STAND_IN}", "-Wl,--version-script=libcudnn.map", "-Wl,-z,defs", "-ldl")

KINDS = {"cudnnStatus_t": "STATUS", "size_t": "SIZE", "const char *": "TEXT", "void": "MESSAGE"}
"""Return type → what the trampolines do without cuDNN; the one function that returns nothing fills a buffer."""

_GENERATED = "/* Written by `gossamer cudnn-shim` from Gossamer's manifest of cuDNN. */\n"


def write(folder: Path, search: Sequence[str] = ()) -> list[Path]:
    """Write the sources into a folder, which is made if need be; files of these names are replaced. Returns them all.

    search: folders, absolute, in which the loader looks for cuDNN before it asks the system. They become part of what
    is built, so they must be trusted as much as it is.
    """
    texts = {
        "cudnn_symbols.inc": _symbols(),
        "cudnn_types.h": _types(),
        "cudnn_config.h": _config((*search, *SYSTEM_FOLDERS)),
    }
    texts |= {name: resources.files(__name__).joinpath(name).read_text(encoding="utf-8") for name in COPIED}
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


def build(folder: Path, *, stand_in: bool = False) -> tuple[Path, str]:
    """Compile what `write` wrote, with `cc`. Returns what was made, and what the compiler had to say.

    Raises NotFound without a C compiler, Fail where the sources do not compile.
    """
    if stand_in:
        text = _run(folder, "cc", *COMPILE_FLAGS, "-DCUDNN_SHIM_STAND_IN", *COMPILED, *LINK_FLAGS, "-o", STAND_IN)
        return folder / STAND_IN, text
    text = _run(folder, "cc", *COMPILE_FLAGS, "-c", *COMPILED)
    objects = [f"{Path(name).stem}.o" for name in COMPILED]
    (folder / ARCHIVE).unlink(missing_ok=True)  # `ar` would add to an old one
    text += _run(folder, "ar", "rcs", ARCHIVE, *objects)
    for name in objects:
        (folder / name).unlink()
    return folder / ARCHIVE, text


def _run(folder: Path, *command: str) -> str:
    program = shutil.which(command[0])
    if program is None:
        raise NotFound(
            f"there is no '{command[0]}' here: install a C compiler, or take the sources to one with --no-build"
        )
    result = subprocess.run(
        [program, *command[1:]],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise Fail(f"{' '.join(command)}, in {folder}, failed with status {result.returncode}:\n{result.stdout}")
    return result.stdout


def _symbols() -> str:
    """cudnn_symbols.inc."""
    return "\n".join([_GENERATED + _ABOUT_SYMBOLS, *map(_entry, FUNCTIONS.values()), ""])


def _entry(function: Function) -> str:
    parameters = ", ".join(map(_declaration, function.arguments)) or "void"
    arguments = ", ".join(name for _, name in function.arguments)
    return (
        f"CUDNN_FUNCTION({KINDS[function.returns]}, {function.returns}, {function.name},\n    ({parameters}),\n"
        f"    ({arguments}), {function.since}, {int(function.required)})"
    )


def _declaration(argument: tuple[str, str]) -> str:
    c_type, name = argument
    return f"{c_type}{'' if c_type.endswith('*') else ' '}{name}"


def _types() -> str:
    """cudnn_types.h: what the prototypes are made of, for programs without cuDNN's headers and CUDA's."""
    newest = max(function.since for function in FUNCTIONS.values())
    return _TYPES.format(generated=_GENERATED, newest=newest, types="\n".join(_typedefs()))


def _typedefs() -> Iterator[str]:
    known = {f"{enum.__name__}_t": enum for enum in _enums()}
    for name in sorted(_type_names() - symbols.SCALAR_TYPES - {"void", "char"}):
        if name in _SPELLED_OUT:
            yield _SPELLED_OUT[name]
        elif name in POINTER_TYPES:
            yield f"typedef struct {name.removesuffix('_t')}Struct *{name};"
        elif name in STRUCT_TYPES:
            yield f"typedef struct {name} {name};"
        elif name in known:
            yield _enum(name, known.pop(name))
        else:
            yield f"typedef int {name}; /* an enum */"
    yield from (_enum(name, enum) for name, enum in known.items())


def _type_names() -> set[str]:
    """Every type in the manifest, without `const` and `*`."""
    types = (c_type for function in FUNCTIONS.values() for c_type, _ in (*function.arguments, (function.returns, "")))
    return {" ".join(word for word in c_type.replace("*", " ").split() if word != "const") for c_type in types}


def _enums() -> Iterator[type[IntEnum]]:
    for name in enums.__all__:
        value = getattr(enums, name)
        if isinstance(value, type):
            yield value


def _enum(name: str, enum: type[IntEnum]) -> str:
    members = "\n".join(f"    {member.name} = {member.value}," for member in enum)
    return f"typedef enum {{\n{members}\n}} {name};"


def _config(folders: Sequence[str]) -> str:
    """cudnn_config.h."""
    entries = "".join(f" {_c_string(folder)}," for folder in folders)
    return (
        f"{_GENERATED}#define CUDNN_SHIM_MAJOR {MAJOR}\n"
        f'#define CUDNN_SHIM_MAJOR_TEXT "{MAJOR}"\n'
        f"/* Searched in this order, before the system's own search path. */\n"
        f"#define CUDNN_SHIM_FOLDERS{entries}\n"
    )


def _c_string(folder: str) -> str:
    if not folder.startswith("/") or not folder.isprintable():
        raise InvalidArgument(f"a folder to search must be an absolute path, without control characters: {folder!r}")
    escaped = folder.replace("\\", "\\\\").replace('"', '\\"').replace("?", "\\?")  # ?? begins a trigraph
    return f'"{escaped}"'


_SPELLED_OUT = {
    "cudnnHandle_t": "typedef struct cudnnContext *cudnnHandle_t;",
    "cudnnBackendDescriptor_t": "typedef void *cudnnBackendDescriptor_t;",
    "cudnnCallback_t": "typedef struct cudnnDebugStruct cudnnDebug_t;\n"
    "typedef void (*cudnnCallback_t)(int severity, void *data, const cudnnDebug_t *debug, const char *message);",
    "cudaStream_t": "typedef struct CUstream_st *cudaStream_t;",
    "cudaGraph_t": "typedef struct CUgraph_st *cudaGraph_t;",
    "libraryPropertyType": "typedef int libraryPropertyType; /* an enum of CUDA's */",
}

_ABOUT_SYMBOLS = """\
/*
 * CUDNN_FUNCTION(kind, returns, name, parameters, arguments, since, required)
 *
 * kind: what a trampoline does where there is no cuDNN. STATUS: returns CUDNN_STATUS_NOT_INITIALIZED; SIZE: returns 0;
 * TEXT: returns a fixed text; MESSAGE: writes it to the buffer that the arguments are. since: the version that brought
 * the function, as cudnnGetVersion counts. required: 1 where a library without the function is not used.
 */"""

_TYPES = """\
{generated}#ifndef CUDNN_TYPES_H
#define CUDNN_TYPES_H

#ifdef CUDNN_H_

#if CUDNN_VERSION < {newest}
#error "this <cudnn.h> lacks functions of the manifest: take a newer one, or do without"
#endif

#else

#include <stddef.h>
#include <stdint.h>

{types}

#endif
#endif
"""
