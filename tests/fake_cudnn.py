"""Libraries built with `cc` that behave as cuDNN does while it is loaded, well or badly; and Pythons to load them in.

For Linux; and for Windows, where MinGW's gcc builds them.

As in the real one, the umbrella exports every function, opens its parts by name when it first needs them, and calls
`abort` where it cannot (as cuDNN did up to 9.9). Every constructor writes the name of its library and the process into
the file that FAKE_CUDNN_LOG names.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import venv
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gossamer.cudnn.symbols import FUNCTIONS, adv, cnn, graph, ops, recent

PARTS = ("graph", "ops", "cnn", "adv", "heuristic", "engines_precompiled", "engines_runtime_compiled")
JIT_PARTS = ("graph", "engines_runtime_compiled")
FAMILIES = {"graph": graph, "ops": ops, "cnn": cnn, "adv": adv, "ext": recent}
SOURCE = Path(__file__).parents[1] / "src"
WINDOWS = sys.platform == "win32"

_CONSTRUCTOR = """
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#ifdef _WIN32
#include <process.h>
#include <windows.h>
#define PART(name) "cudnn_" name "64_9.dll"
#define OPEN(name) ((void *)LoadLibraryA(name))
#define FIND(library, symbol) ((void *)GetProcAddress((HMODULE)(library), symbol))
#else
#include <dlfcn.h>
#include <unistd.h>
#define PART(name) "libcudnn_" name ".so.9"
#define OPEN(name) dlopen(name, RTLD_NOW | RTLD_LOCAL)
#define FIND(library, symbol) dlsym(library, symbol)
#endif
__attribute__((constructor)) static void opened(void) {
    const char *log = getenv("FAKE_CUDNN_LOG");
    FILE *file = log ? fopen(log, "a") : 0;
    if (file) { fprintf(file, "%s %d\\n", NAME, (int)getpid()); fclose(file); }
    AT_START
}
"""
_FORWARD = """
static void *part(const char *name) {
    void *library = OPEN(name);
    if (!library) { fprintf(stderr, "Unable to load any of {%s}\\n", name); abort(); }
    return library;
}
static int compare(const char *name, const char *symbol) {
    unsigned *version = FIND(part(name), symbol);
    unsigned v = version ? *version : 0;
    return !v || (v >> 16) * 10000 + (v >> 8 & 255) * 100 + (v & 255) == VERSION ? 0 : 1002;
}
"""
_GET_VERSION = """
size_t cudnnGetVersion(void) {
    size_t (*real)(void) = (size_t (*)(void))FIND(part(PART("graph")), "cudnnGetVersion");
    return real();
}
const char *cudnnGetErrorString(int status) { return status ? "a fake status" : "fine"; }
"""


@dataclass(frozen=True)
class Toolchain:
    """How libraries are built for a platform, and what cuDNN's are called there. part: a format."""

    compilers: tuple[str, ...]
    options: tuple[str, ...]
    umbrella: str
    unversioned: str
    part: str
    sonames: bool

    def compiler(self) -> str | None:
        """The first of the compilers that is here."""
        return next(filter(None, map(shutil.which, self.compilers)), None)

    def compile(self, path: Path, source: str, name: str, aborts: bool, version: int) -> Path:
        """One library. Its constructor says `name` in the log, and then aborts if it is to."""
        text = _CONSTRUCTOR.replace("AT_START", "abort();" if aborts else "") + source
        options = [f'-DNAME="{name}"', f"-DVERSION={version}"]
        options += [f"-Wl,-soname,{path.name}"] if self.sonames else []
        path.write_bytes(_compiled(text, self, tuple(options)))
        return path


_SHARED = ("-shared", "-fno-builtin", "-Wno-unused-function")
TOOLCHAINS = {
    "linux": Toolchain(
        ("cc",),
        (*_SHARED, "-fPIC", "-Wl,-rpath,$ORIGIN"),
        "libcudnn.so.9",
        "libcudnn.so",
        "libcudnn_{}.so.9",
        sonames=True,
    ),
    "win32": Toolchain(
        ("x86_64-w64-mingw32-gcc", *(("gcc",) if sys.platform == "win32" else ())),
        (*_SHARED, "-static-libgcc"),
        "cudnn64_9.dll",
        "",
        "cudnn_{}64_9.dll",
        sonames=False,
    ),
}


@dataclass(frozen=True)
class Fake:
    """A cuDNN to build. lacks: functions that are nowhere. broken: the part whose constructor aborts, or "umbrella".
    versions: of parts that are not `version`. stand_in: with the mark of `gossamer cudnn-shim`.
    """

    version: int = 92801
    parts: tuple[str, ...] = PARTS
    lacks: tuple[str, ...] = ()
    broken: str = ""
    versions: tuple[tuple[str, int], ...] = ()
    unversioned: bool = False
    stand_in: bool = False

    def build(self, folder: Path, platform: str = sys.platform) -> Path:
        """The umbrella, with its parts beside it."""
        tools = TOOLCHAINS[platform]
        folder.mkdir(parents=True, exist_ok=True)
        for part in self.parts:
            self._build_part(tools, folder / tools.part.format(part), part)
        path = folder / (tools.unversioned if self.unversioned else tools.umbrella)
        return tools.compile(path, self._umbrella(), "umbrella", self.broken == "umbrella", self.version)

    def _build_part(self, tools: Toolchain, path: Path, part: str) -> None:
        version = dict(self.versions).get(part, self.version)
        lines = [f"int {name}(void) {{ return 0; }}" for name in self._functions(part) if name != "cudnnGetVersion"]
        if part == "graph":
            lines.append(f"size_t cudnnGetVersion(void) {{ return {version}; }}")
        if part in ("graph", "ops", "adv"):  # as in the real ones, the others say nothing
            symbol = f"cudnn_{part}_version" if part == "graph" else f"cudnn_{part}_infer_version"
            lines.append(
                f"const unsigned {symbol} = {version // 10000 << 16 | version // 100 % 100 << 8 | version % 100};"
            )
        tools.compile(path, "\n".join(lines), part, self.broken == part, version)

    def _functions(self, part: str) -> Iterator[str]:
        text = FAMILIES[part].PROTOTYPES if part in FAMILIES else ""
        return (name for name in FUNCTIONS if f"{name}(" in text and name not in self.lacks)

    def _umbrella(self) -> str:
        if self.version < 90000:
            return f"size_t cudnnGetVersion(void) {{ return {self.version}; }}"
        special = {"cudnnGetVersion", "cudnnGetErrorString", "cudnnOpsVersionCheck", "cudnnAdvVersionCheck"}
        plain = [name for name in FUNCTIONS if name not in (*special, *self.lacks)]
        lines = ['const char cudnn_shim_stand_in[] = "fake";'] if self.stand_in else []
        lines += [_FORWARD, _GET_VERSION, *(f"int {name}(void) {{ return 0; }}" for name in plain)]
        for part, name in (("ops", "cudnnOpsVersionCheck"), ("adv", "cudnnAdvVersionCheck")):
            symbol = f'PART("{part}"), "cudnn_{part}_infer_version"'
            lines.append(f"int {name}(void) {{ return compare({symbol}); }}")
        return "\n".join(lines)


@cache
def _compiled(text: str, tools: Toolchain, options: tuple[str, ...]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "library.so")  # without a suffix, MinGW would append .exe
        command = [tools.compiler() or tools.compilers[0], "-Wall", "-Wextra", "-Werror", *tools.options, *options]
        subprocess.run([*command, "-x", "c", "-", "-o", str(path)], input=text, text=True, check=True)
        return path.read_bytes()


class Library:
    """Fakes by what they are like, each built once; `at` gives a copy of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._built: dict[Fake, Path] = {}

    def at(self, folder: Path, fake: Fake = Fake()) -> Path:
        """The umbrella of a fake in a folder."""
        if fake not in self._built:
            self._built[fake] = fake.build(self._folder / str(len(self._built)))
        shutil.copytree(self._built[fake].parent, folder, dirs_exist_ok=True)
        return folder / self._built[fake].name

    def installed(self, python: Python, fake: Fake = Fake(), wheel: str = "cudnn") -> Path:
        """The umbrella of a fake where pip would put it."""
        return self.at(python.packages / "nvidia" / wheel / ("bin" if WINDOWS else "lib"), fake)


@dataclass(frozen=True)
class Python:
    """A virtual environment with Gossamer and what this interpreter has installed, and no cuDNN of its own.

    Every process has the same cache of verdicts, and writes the libraries that it opens into one log.
    """

    folder: Path

    @classmethod
    def create(cls, folder: Path) -> Python:
        venv.EnvBuilder(symlinks=not WINDOWS).create(folder)
        made = cls(folder)
        # At the end of sys.path, and no folder of packages as search.package_folders sees it.
        others = [str(SOURCE), *(path for path in sys.path if path.endswith(("site-packages", "dist-packages")))]
        (made.packages / "others.pth").write_text("\n".join(others) + "\n", encoding="utf-8")
        return made

    @property
    def packages(self) -> Path:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.folder / ("Lib" if WINDOWS else f"lib/{version}") / "site-packages"

    @property
    def executable(self) -> Path:
        return self.folder / ("Scripts/python.exe" if WINDOWS else "bin/python")

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    @property
    def log(self) -> Path:
        return self.folder / "opened.log"

    def run(self, code: str, *, options: Sequence[str] = (), cwd: Path | None = None, **environment: str) -> Any:
        """What a process prints last, as JSON. The process must end well."""
        done = self.process(code, options=options, cwd=cwd, **environment)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def process(
        self, code: str, *, options: Sequence[str] = (), cwd: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        inherited = {name: value for name, value in os.environ.items() if name not in ("LD_LIBRARY_PATH", "PYTHONPATH")}
        ours = {"GOSSAMER_CACHE_DIR": str(self.cache), "FAKE_CUDNN_LOG": str(self.log)}
        return subprocess.run(
            [self.executable, *options, "-c", textwrap.dedent(code)],
            env=inherited | ours | environment,
            cwd=cwd or self.folder,
            capture_output=True,
            text=True,
            check=False,
        )

    def openings(self) -> Counter[tuple[str, str]]:
        """(library, process) → how often it was opened there; the log begins anew."""
        lines = self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return Counter((line.split()[0], line.split()[1]) for line in lines)


def library_path(folders: Iterable[Path | str]) -> dict[str, str]:
    """The environment that has the dynamic loader search these folders."""
    return {"LD_LIBRARY_PATH": os.pathsep.join(map(str, folders))}
