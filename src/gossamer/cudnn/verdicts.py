"""Whether a cuDNN can be used: examined in a child process, and remembered.

A half-installed cuDNN takes its process down: where it cannot open one of its parts, it calls `abort` (9.28 only for
some parts, 9.8 for any). So a candidate is opened in a child first (`examination`), and here only if the child had
nothing against it. The verdict is kept in the cache folder for as long as the files, and whatever the search for them
depends on, stay as they were; only the first start after an install pays. (R1.5)
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gossamer import settings
from gossamer.cudnn import search
from gossamer.cudnn.search import NAMING, Candidate
from gossamer.cudnn.symbols import FUNCTIONS, MAJOR
from gossamer.diagnostics import logger

FULL = ("graph", "ops", "cnn", "adv", "heuristic", "engines_precompiled", "engines_runtime_compiled")
"""The parts of a whole cuDNN 9."""
JIT = ("graph", "engines_runtime_compiled")
"""The parts of `nvidia-cudnn-jit` and `libcudnn9-jit`: graphs only, by engines that NVRTC compiles."""

CHECKS = {
    "graph": "cudnnGraphVersionCheck",
    "ops": "cudnnOpsVersionCheck",
    "cnn": "cudnnCnnVersionCheck",
    "adv": "cudnnAdvVersionCheck",
    "ext": "cudnnSubquadraticOpsVersionCheck",
}
"""Part → the umbrella's function that compares its version with the umbrella's own."""

STAND_IN = "cudnn_shim_stand_in"
"""A symbol of the library that `gossamer cudnn-shim` builds (shim/cudnn_loader.c): it has cuDNN's SONAME."""

TIMEOUT_S = 120.0
"""A gigabyte from a slow disk takes its time."""

NOT_FOUND = "not found"
"""The problem with what is not there."""

_DRIVER = "libcuda.so.1"
"""What the runtime-compiled engines need and no cuDNN brings: without a driver they do not load. That is no fault."""

_BOOT = "import sys; sys.path.append(sys.argv[1]); from gossamer.cudnn.examination import main; main()"
_FORMAT = 1
_SIGKILL = 9  # what takes a process when memory runs out; Windows has no name for it


@dataclass(frozen=True)
class Part:
    """A library that the umbrella opens. version: 0 where it does not say. error: why it does not load, or nothing."""

    name: str
    path: str
    version: int = 0
    error: str = ""


@dataclass(frozen=True)
class Verdict:
    """What is to be thought of a candidate.

    problem: why it cannot be used, or nothing. found: whether there is anything. version: as cudnnGetVersion counts.
    lacking: functions of the manifest that it has not. files: every file of cuDNN's that the examination had open.
    lasting: whether the same files give the same verdict again, so that it may be remembered.
    """

    problem: str = ""
    found: bool = True
    path: str = ""
    version: int = 0
    parts: tuple[Part, ...] = ()
    lacking: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    lasting: bool = True

    @property
    def good(self) -> bool:
        return not self.problem


def version_text(version: int) -> str:
    """9.28.1 for 92801, 8.9.7 for 8907: cuDNN counted in thousands before 9."""
    thousands = 10000 if version >= 90000 else 1000
    return f"{version // thousands}.{version % thousands // 100}.{version % 100}"


def verdict_on(candidate: Candidate, anew: bool = False) -> Verdict:
    """The verdict that is remembered, else that of an examination. anew: whatever is remembered, examine."""
    if not candidate.is_name and not os.path.exists(candidate.target):
        return Verdict(NOT_FOUND, found=False)
    key = _key(candidate)
    verdict = None if anew else _remembered(key)
    if verdict is None:
        verdict = _examine(candidate)
        if verdict.lasting:
            _remember(key, verdict, _watched(candidate, verdict))
    return verdict


# What the child found


def judge(target: str, report: dict[str, Any]) -> Verdict:
    """The verdict on what an examination of `target` reported."""
    if path := report.get("stand_in"):
        return Verdict(f"{path} is a stand-in for cuDNN (gossamer cudnn-shim), not cuDNN", found=False, path=path)
    if error := report.get("error"):
        return _unopened(target, error)
    parts = tuple(Part(**part) for part in report["parts"])
    path, version = report["path"], report["version"]
    known = Verdict("", True, path, version, parts, tuple(report["lacking"]), tuple(report["resident"]))
    if not version:
        return _with(known, _half_installed(path, parts) or f"{path} is no cuDNN: it lacks cudnnGetVersion")
    if version // 10000 != MAJOR:
        return _with(known, f"{path} is cuDNN {version_text(version)}, and Gossamer needs cuDNN {MAJOR}")
    unexported = set(report["unexported"])
    needed = [name for name, function in FUNCTIONS.items() if function.required and function.since <= version]
    if missing := [name for name in needed if name in unexported]:
        return _with(known, f"{path} (cuDNN {version_text(version)}) lacks {', '.join(missing)}")
    if problem := _half_installed(path, parts):
        return _with(known, problem, lasting=not any(_for_want_of_others(part) for part in parts))
    return _with(known, _mixed(path, version, parts, report["checks"]))


def _with(verdict: Verdict, problem: str, lasting: bool = True) -> Verdict:
    return Verdict(**vars(verdict) | {"problem": problem, "lasting": lasting})


def _unopened(target: str, error: str) -> Verdict:
    """The loader's own words begin with the file that it could not open: the candidate, or something it needs."""
    absent = not os.path.isabs(target) and (error.startswith(f"{target}: cannot open") or sys.platform == "win32")
    return Verdict(NOT_FOUND if absent else f"does not load: {error}", found=not absent, lasting=absent)


def _half_installed(path: str, parts: tuple[Part, ...]) -> str:
    """What is wrong with the parts that there are, or nothing."""
    present = {part.name for part in parts}
    wanted = JIT if present.isdisjoint(set(FULL) - set(JIT)) else FULL
    if absent := [part_file(name) for name in wanted if name not in present]:
        return f"{path} is half-installed: {', '.join(absent)} missing from {os.path.dirname(path)}"
    broken = [part for part in parts if part.error and not part.error.startswith(f"{_DRIVER}:")]
    return "; ".join(f"{part.path} does not load: {part.error}" for part in broken)


def _for_want_of_others(part: Part) -> bool:
    """Whether a part does not load for want of a library that is none of cuDNN's, which may be installed any time."""
    return bool(part.error) and "undefined symbol" not in part.error and not part.error.startswith("libcudnn")


def part_file(part: str) -> str:
    """The file name of a part."""
    return f"cudnn_{part}64_{MAJOR}.dll" if sys.platform == "win32" else f"libcudnn_{part}.so.{MAJOR}"


def _mixed(path: str, version: int, parts: tuple[Part, ...], checks: dict[str, int]) -> str:
    """Which versions were mixed, or nothing. A part that needs a foreign one fails its check, too."""
    told = [part for part in parts if part.version]
    if any(part.version != version for part in told):
        versions = ", ".join(f"{part.path} is {version_text(part.version)}" for part in told)
        return f"{path} has parts of different versions: {versions}"
    failed = [part for part in parts if checks.get(part.name, 0) != 0]
    statuses = ", ".join(f"{CHECKS[part.name]} returned {checks[part.name]} for {part.path}" for part in failed)
    return f"{path} is of another version than its parts ({version_text(version)}): {statuses}" if failed else ""


# The child


def _examine(candidate: Candidate) -> Verdict:
    """The verdict of a child process, or what its death says."""
    interpreter = _interpreter()
    if not interpreter:
        return Verdict("cannot be examined: sys.executable is no Python interpreter to do it in", lasting=False)
    child = subprocess.Popen(
        [interpreter, "-I", "-S", "-c", _BOOT, str(Path(__file__).parents[2])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_child_environment(),
        cwd=os.path.abspath(os.sep),
    )
    ending = ""
    with child:
        try:
            answers, said = child.communicate(json.dumps(_request(candidate)).encode(), TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            answers, said = child.communicate()
            ending = f"gave no answer in {TIMEOUT_S:g} s"
    messages = list(_messages(answers))
    if messages and "report" in messages[-1]:
        return judge(candidate.target, messages[-1]["report"])
    doing = messages[-1]["doing"] if messages else f"before opening {candidate.target}"
    words = said.decode(errors="replace").strip()
    problem = f"{doing}: the process that did this {ending or _ending(child.returncode)}"
    return Verdict(
        f"{problem}; it said: {words[-500:]}" if words else problem,
        path="" if candidate.is_name else candidate.target,
        # Time and memory may suffice the next time, and which file a name stood for nobody said.
        lasting=not (ending or child.returncode == -_SIGKILL or candidate.is_name),
    )


def _messages(answers: bytes) -> Iterable[dict[str, Any]]:
    """A child's lines. One that it died over is incomplete, and no message."""
    for line in answers.splitlines():
        with contextlib.suppress(ValueError):
            yield json.loads(line)


def _request(candidate: Candidate) -> dict[str, Any]:
    naming = NAMING[sys.platform]
    # On Windows, whatever is not beside the umbrella is nowhere: names would be searched for in System32.
    names = {part: part_file(part) for part in FULL} if sys.platform != "win32" else {}
    return {
        "target": candidate.target,
        "part": naming.part.pattern,
        "names": names,
        "checks": CHECKS,
        "functions": list(FUNCTIONS),
        "stand_in": STAND_IN,
    }


def _interpreter() -> str:
    """A Python to examine in. `sys.executable` may be a program with Python inside, which must not be started again."""
    names = [
        sys.executable or "",
        *(os.path.join(prefix, "bin", "python3") for prefix in (sys.prefix, sys.base_prefix)),
    ]
    pythons = [name for name in names if os.path.basename(name).lower().startswith("python") and os.path.isfile(name)]
    return pythons[0] if pythons and not getattr(sys, "frozen", False) else ""


def _child_environment() -> dict[str, str]:
    """This process's, with the LD_LIBRARY_PATH that its dynamic loader has, not one that was set later."""
    inherited = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    path = search.library_path()
    return inherited | ({"LD_LIBRARY_PATH": path} if path else {})


def _ending(returncode: int) -> str:
    if returncode >= 0:
        return f"ended with code {returncode}"
    try:
        return f"was ended by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"was ended by signal {-returncode}"


# What is remembered


def folder() -> Path:
    """Where verdicts lie; `GOSSAMER_CACHE_DIR` moves it."""
    return settings.CACHE_DIR() / "cudnn"


def _key(candidate: Candidate) -> Path:
    """The file for a verdict: by all that a verdict depends on and that is no file."""
    asked = [_FORMAT, _request(candidate), _interpreter(), search.library_path(), os.environ.get("LD_PRELOAD", "")]
    return folder() / (hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:40] + ".json")


def _watched(candidate: Candidate, verdict: Verdict) -> dict[str, list[int] | None]:
    """Path → size and time of all whose change makes a verdict void: files, folders, where names are searched."""
    paths = [candidate.target, verdict.path, *(part.path for part in verdict.parts), *verdict.files]
    paths += [os.path.dirname(path) for path in paths]
    if verdict.path:
        paths += _siblings(verdict.path)
    paths += _searched_folders()  # for parts, too: cuDNN searches for them by name
    return {path: _stamp(path) for path in dict.fromkeys(paths) if os.path.isabs(path)}


def _siblings(path: str) -> Iterable[str]:
    """Files of cuDNN's beside an umbrella: an examination that died did not say what it had open."""
    folder = Path(path).parent
    pattern = NAMING[sys.platform].part
    return [str(file) for file in folder.iterdir() if pattern.fullmatch(file.name)] if folder.is_dir() else []


def _searched_folders() -> Iterable[str]:
    """What the dynamic loader's answer depends on: its cache, and folders that ldconfig may not know of."""
    yield "/etc/ld.so.cache"
    yield from search.library_path().replace(";", ":").split(":")
    yield from (os.path.join(prefix, "lib") for prefix in (sys.prefix, sys.base_prefix))
    triplet = sysconfig.get_config_var("MULTIARCH") or ""
    yield from (os.path.join(folder, triplet).rstrip("/") for folder in ("/lib", "/usr/lib", "/lib64", "/usr/lib64"))
    yield from ("/lib", "/usr/lib")


def _stamp(path: str) -> list[int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns]


def _remembered(key: Path) -> Verdict | None:
    """The verdict in a file, unless something has changed since, or the file is damaged, or not to be trusted."""
    try:
        if not _is_ours(key):
            return None
        entry = json.loads(key.read_bytes())
        if any(_stamp(path) != stamp for path, stamp in entry["watched"].items()):
            return None
        fields: dict[str, Any] = {name: _hashable(value) for name, value in entry["verdict"].items()}
        return Verdict(**fields | {"parts": tuple(Part(**part) for part in fields["parts"])})
    except OSError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        logger.warning("the verdict on a cuDNN in %s is damaged and will be found anew: %s", key, error)
        return None


def _is_ours(file: Path) -> bool:
    """Whether nobody else could have written a file: a verdict names the library that will be opened.

    A relative cache folder is below the working directory, which must not steer that.
    """
    status = file.stat()
    if not file.is_absolute():
        return False
    if sys.platform == "win32":
        return True
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _remember(key: Path, verdict: Verdict, watched: dict[str, list[int] | None]) -> None:
    """Writes a verdict; where the cache cannot be written, the next process examines again."""
    partial = None
    try:
        key.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=key.parent, delete=False, encoding="utf-8") as file:
            partial = Path(file.name)
            json.dump({"watched": watched, "verdict": asdict(verdict)}, file)
        os.replace(partial, key)
    except OSError as error:
        if partial is not None:
            partial.unlink(missing_ok=True)
        logger.debug("verdicts on cuDNN cannot be kept in %s: %s", key.parent, error)
