"""The process's cuDNN: looked for once, at first need, and opened only where nothing speaks against it.

    library = loader.load()
    if library.available and library.has("cudnnBackendPopulateCudaGraph"): …

What there is, is a `Library` in each case: opened; or with the reason why none is (`reason`) and everything that was
tried (`tried`). A failure is remembered until `preload` succeeds. Policies (`enable_cudnn`) are the sessions' own:
`effective` gives `DISABLED` for those that want none, and does not look for one. (R1, R3.3, R3.4)
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum

from gossamer.cudnn import linking, search, verdicts
from gossamer.cudnn.search import Candidate, Step
from gossamer.cudnn.symbols import FUNCTIONS
from gossamer.cudnn.verdicts import Part, Verdict, version_text
from gossamer.diagnostics import logger
from gossamer.errors import CudnnUnavailable


class State(StrEnum):
    """Whether a cuDNN can be used, and if not, for which of three reasons."""

    AVAILABLE = "available"
    DISABLED = "disabled"
    MISSING = "missing"
    INCOMPATIBLE = "incompatible"


@dataclass(frozen=True)
class Attempt:
    """One candidate of a search. outcome: why it was not used, or "used". path: its file, where one was found."""

    target: str
    step: Step
    outcome: str
    path: str = ""
    version: int = 0
    found: bool = True

    def __str__(self) -> str:
        return f"{self.target} ({self.step}): {self.outcome}"


@dataclass(frozen=True, eq=False)
class Library:
    """A cuDNN, or why there is none.

    reason: continues "requires cuDNN, but …"; empty when available. version: as cudnnGetVersion counts (92801), 0 when
    there is none. step: how it was found. parts: the libraries that cuDNN opens itself. opened: for the trampolines.
    """

    state: State
    reason: str = ""
    path: str = ""
    version: int = 0
    step: Step | None = None
    parts: tuple[Part, ...] = ()
    tried: tuple[Attempt, ...] = ()
    lacking: frozenset[str] = frozenset(FUNCTIONS)
    opened: ctypes.CDLL | None = None

    @property
    def available(self) -> bool:
        return self.state is State.AVAILABLE

    @property
    def handle(self) -> int | None:
        """What `dlopen` (LoadLibrary) returned, for code that looks up symbols itself; None if unavailable. (R1.10)"""
        return self.opened._handle if self.opened else None

    @property
    def version_text(self) -> str:
        """9.28.1, or nothing."""
        return version_text(self.version) if self.available else ""

    def has(self, function: str) -> bool:
        """Whether a function of the manifest can be called: it is not too new, and its part is installed. (R1.4)"""
        return function not in self.lacking

    def require(self, op: str, node: str = "") -> None:
        """Raises CudnnUnavailable, with all that was tried, unless available. (R1.8, R5)"""
        if not self.available:
            raise CudnnUnavailable(op, node, self.reason, tuple(map(str, self.tried)))


DISABLED = Library(State.DISABLED, "cuDNN was disabled by the CUDA provider option 'enable_cudnn'.")
"""For sessions with `enable_cudnn=0`."""

_NOT_FOUND = "cuDNN was not found at runtime. Install cuDNN, or disable CUDA execution for this op/model."


class _Process:
    """What the process knows. library: None until somebody asked. preloaded: paths, latest first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.library: Library | None = None
        self.preloaded: tuple[str, ...] = ()
        self.forced = False  # by a test


_process = _Process()


def load() -> Library:
    """The process's cuDNN. The first call looks for it, and opens it; threads that ask meanwhile wait. (R1.6)"""
    library = _process.library
    if library is None:
        with _process.lock:
            if _process.library is None:
                _process.library = _first_usable(search.candidates(search.environment(_process.preloaded)))
            library = _process.library
    return library


def effective(enabled: bool) -> Library:
    """What a session with this policy has: `DISABLED` without looking, or the process's cuDNN. (R3.3, R3.4)"""
    return load() if enabled else DISABLED


def loaded_without_loading() -> Library | None:
    """The process's cuDNN if it was asked for before, else None."""
    return _process.library


def preload(candidates: Iterable[Candidate]) -> Library:
    """Opens the first of `candidates` that can be used, and lets `load` forget an earlier failure. (R1.7)

    Gives what came of it. Where the process has a cuDNN already, that one stays.
    """
    with _process.lock:
        before = _process.library
        if before is not None and (before.available or _process.forced):
            return before
        library = _first_usable(candidates)
        if library.available:
            _process.preloaded = (library.path, *_process.preloaded)
            _process.library = library
    return library


def survey(anew: bool = False) -> Iterator[tuple[Candidate, Verdict]]:
    """Every candidate there is, in order, with the verdict on it; opens nothing in this process, and changes nothing.

    anew: examine each, whatever is remembered about it.
    """
    for candidate in search.candidates(search.environment(_process.preloaded)):
        yield _consider(candidate, anew)


def installed_version() -> str | None:
    """`9.28.1` of the cuDNN that `load` gave or would give, None where it gives none. Opens nothing here. (R8.2)"""
    if _process.library is not None:
        return _process.library.version_text or None
    return next((version_text(verdict.version) for _, verdict in survey() if verdict.good), None)


@contextmanager
def forced(library: Library) -> Iterator[None]:
    """For tests only: inside, this is the process's cuDNN, whatever is installed or loaded, and preload_dlls
    changes nothing; afterwards all is as it was. (R1.9)
    """
    with _process.lock:
        before, _process.library, _process.forced = _process.library, library, True
    try:
        yield
    finally:
        with _process.lock:
            _process.library, _process.forced = before, False


def force_absent() -> AbstractContextManager[None]:
    """For tests only: inside, the whole process finds no cuDNN. (R1.9)"""
    return forced(Library(State.MISSING, _NOT_FOUND))


def _first_usable(candidates: Iterable[Candidate]) -> Library:
    """Opens the first candidate that nothing speaks against; logs and keeps what speaks against the others."""
    tried: list[Attempt] = []
    for candidate in candidates:
        library, attempt = _attempt(candidate)
        tried.append(attempt)
        logger.debug("cuDNN: %s", attempt)
        if library:
            return replace(library, tried=tuple(tried))
    return _none_of(tuple(tried))


def _none_of(tried: tuple[Attempt, ...]) -> Library:
    """Missing where nothing was found, incompatible where what was found cannot be used."""
    unusable = [attempt.outcome for attempt in tried if attempt.found]
    if not unusable:
        return Library(State.MISSING, _NOT_FOUND, tried=tried)
    reasons = "; ".join(dict.fromkeys(unusable))
    advice = "Repair or replace it, or disable CUDA execution for this op/model."
    return Library(State.INCOMPATIBLE, f"the cuDNN found at runtime cannot be used: {reasons}. {advice}", tried=tried)


def _attempt(candidate: Candidate) -> tuple[Library | None, Attempt]:
    """Examine, open, look again."""
    candidate, verdict = _consider(candidate)
    library, problem = (None, verdict.problem) if verdict.problem else _open(candidate, verdict)
    outcome = problem or "used"
    return library, Attempt(candidate.target, candidate.step, outcome, verdict.path, verdict.version, verdict.found)


def _consider(candidate: Candidate, anew: bool = False) -> tuple[Candidate, Verdict]:
    """The candidate, by its path where the process has it open already, and all that can be said without opening it."""
    if candidate.step is Step.RESIDENT:
        opened = linking.open_if_resident(candidate.target)
        if opened is None:
            return candidate, Verdict(verdicts.NOT_FOUND, found=False)
        candidate = replace(candidate, target=linking.path_of(opened))
    verdict = verdicts.verdict_on(candidate, anew)
    problem = verdict.problem or search.steerable(search.environment()) or _clash(verdict)
    return candidate, replace(verdict, problem=problem)


def _clash(verdict: Verdict) -> str:
    """What of another cuDNN is loaded already, or nothing: SONAMEs are the same, so parts of the two would mix."""
    mine = {os.path.realpath(path) for path in (*verdict.files, *(part.path for part in verdict.parts))}
    parts = (path for path in linking.resident_files("libcudnn_") if os.path.realpath(path) not in mine)
    foreign = ", ".join(parts)
    return (
        f"{verdict.path} would mix with parts of another cuDNN that this process has loaded: {foreign}"
        if foreign
        else ""
    )


def _open(candidate: Candidate, verdict: Verdict) -> tuple[Library | None, str]:
    """Opens what was found good, by the very path that was examined, and compares it with the verdict."""
    try:
        opened = linking.open_umbrella(verdict.path, [part.path for part in verdict.parts if not part.error])
    except OSError as error:
        return None, f"does not load: {error}"
    lacking = {name for name in FUNCTIONS if not linking.has_symbol(opened, name)}
    required = [
        name for name in sorted(lacking) if FUNCTIONS[name].required and FUNCTIONS[name].since <= verdict.version
    ]
    if required:
        return None, f"{verdict.path} lacks {', '.join(required)}"
    library = Library(
        State.AVAILABLE,
        path=verdict.path,
        version=verdict.version,
        step=candidate.step,
        parts=verdict.parts,
        lacking=frozenset(lacking | set(verdict.lacking)),
        opened=opened,
    )
    return library, ""
