"""Where cuDNN is looked for: steps, in order, each a function from what is known about the process to candidates.

The working directory is no such place, and neither are options, models, `sys.path` and PYTHONPATH (R1.2): a model's
folder or a configuration must not be able to bring code into the process. Nothing here opens or even reads a library.
"""

from __future__ import annotations

import os
import re
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from gossamer.cudnn.symbols import MAJOR


class Step(StrEnum):
    """How a candidate was come by."""

    RESIDENT = "already loaded in the process"
    PRELOADED = "preload_dlls"
    PACKAGE = "installed package"
    VERSIONED = "the system's search for the versioned name"
    UNVERSIONED = "the system's search for the unversioned name"


@dataclass(frozen=True)
class Candidate:
    """One library to look at. target: an absolute path, or a name that the system's loader is to search for."""

    target: str
    step: Step

    @property
    def is_name(self) -> bool:
        """Whether the system's loader would have to search for it."""
        return not os.path.isabs(self.target)


@dataclass(frozen=True)
class Environment:
    """All that the search depends on. packages: folders of installed packages. library_path: the dynamic loader's
    LD_LIBRARY_PATH. preloaded: libraries that preload_dlls opened, latest first.
    """

    platform: str
    packages: tuple[Path, ...] = ()
    library_path: str = ""
    preloaded: tuple[str, ...] = ()


@dataclass(frozen=True)
class Naming:
    """How a platform calls cuDNN's files. part: matches the file name of a part, with its name as the group."""

    versioned: str
    unversioned: str  # empty: there is none
    folder: str  # below a package's own folder
    part: re.Pattern[str]


NAMING: dict[str, Naming] = {
    "linux": Naming(
        f"libcudnn.so.{MAJOR}", "libcudnn.so", "lib", re.compile(rf"libcudnn_(\w+)\.so\.{MAJOR}(?:\.\d+)*")
    ),
    # Only read about, never run: the wheels for Windows hold DLLs in bin; no DLL has an unversioned name.
    "win32": Naming(f"cudnn64_{MAJOR}.dll", "", "bin", re.compile(rf"cudnn_(\w+?)64_{MAJOR}\.dll")),
}
"""Platform → its names. Others have no cuDNN."""

WHEELS = ("nvidia/cudnn", "nvidia/cudnn_jit")
"""Folders of NVIDIA's wheels below a folder of packages; the second has only runtime-compiled engines."""


def environment(preloaded: tuple[str, ...] = ()) -> Environment:
    """This process's environment."""
    return Environment(sys.platform, package_folders(), library_path(), preloaded)


def package_folders() -> tuple[Path, ...]:
    """Folders that installers install into: the interpreter's, the virtual environment's, the user's.

    Not `sys.path`, which has the working directory and PYTHONPATH in it.
    """
    folders = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    return tuple(dict.fromkeys(Path(folder) for folder in folders if folder and os.path.isabs(folder)))


def library_path() -> str:
    """LD_LIBRARY_PATH as the dynamic loader has it: it reads the variable when the process starts, and never again."""
    try:
        started_with = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return os.environ.get("LD_LIBRARY_PATH", "")
    values = [entry.partition(b"=")[2] for entry in started_with if entry.startswith(b"LD_LIBRARY_PATH=")]
    return os.fsdecode(values[0]) if values else ""


def candidates(environment: Environment) -> Iterator[Candidate]:
    """Every candidate of every step, in order. (R1.2)"""
    if environment.platform in NAMING:
        for step in STEPS:
            yield from step(environment)


def resident(environment: Environment) -> Iterator[Candidate]:
    """A copy that something else in the process loaded, PyTorch for one."""
    yield Candidate(NAMING[environment.platform].versioned, Step.RESIDENT)


def preloaded(environment: Environment) -> Iterator[Candidate]:
    """What `preload_dlls` opened because the program said so."""
    for path in environment.preloaded:
        yield Candidate(path, Step.PRELOADED)


def packages(environment: Environment) -> Iterator[Candidate]:
    """NVIDIA's wheels."""
    naming = NAMING[environment.platform]
    for folder in environment.packages:
        for wheel in WHEELS:
            path = folder / wheel / naming.folder / naming.versioned
            if path.is_file():
                yield Candidate(str(path), Step.PACKAGE)


def system_versioned(environment: Environment) -> Iterator[Candidate]:
    """What the dynamic loader finds by the versioned name."""
    yield Candidate(NAMING[environment.platform].versioned, Step.VERSIONED)


def system_unversioned(environment: Environment) -> Iterator[Candidate]:
    """What the dynamic loader finds by the name that links against it use."""
    if name := NAMING[environment.platform].unversioned:
        yield Candidate(name, Step.UNVERSIONED)


STEPS: tuple[Callable[[Environment], Iterator[Candidate]], ...] = (
    resident,
    preloaded,
    packages,
    system_versioned,
    system_unversioned,
)


def steerable(environment: Environment) -> str:
    """Why no cuDNN may be used because the working directory could steer what is opened, or nothing.

    The dynamic loader resolves relative entries of LD_LIBRARY_PATH, and empty ones, against the working directory of
    the moment. It does so for any cuDNN, also one that was opened by absolute path: cuDNN opens its parts by name, when
    it first needs each, and begins with names that no wheel has beside it (`libcudnn_graph.so.9.28.1`).
    """
    entries = environment.library_path.replace(";", ":").split(":") if environment.library_path else []
    relative = dict.fromkeys(repr(entry) if entry else "an empty entry" for entry in entries if entry[:1] != "/")
    if not relative or environment.platform != "linux":
        return ""
    return (
        f"not opened, because LD_LIBRARY_PATH={environment.library_path} has {' and '.join(relative)}: "
        "cuDNN's parts would be looked for in the working directory"
    )
