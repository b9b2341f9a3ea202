"""Every environment variable that Gossamer reads, in one typed table.

A setting is read when it is used, never when a module is imported, so a program may set its environment after importing
Gossamer. `override` replaces values for the current thread (or asyncio task) inside a `with` block:

    with settings.override(DEVICE="interpreter", DEBUG=2):
        session = InferenceSession("model.onnx")

`Kind` (how a text becomes a value and back) is shared with the provider options in `options`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from gossamer.errors import InvalidArgument

__all__ = ["SETTINGS", "Kind", "Setting", "as_markdown", "choice", "flag", "override", "whole"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A type of value that has a text form.

    `parse` raises ValueError on a text it does not take; `accepted` says which ones it takes, for messages and
    documentation; `show` is the inverse of `parse`.
    """

    accepted: str
    parse: Callable[[str], T]
    show: Callable[[T], str]

    def read(self, owner: str, given: object) -> T:
        """The value of what was given for `owner`, or InvalidArgument naming owner, value and accepted values."""
        text = ",".join(map(str, given)) if isinstance(given, list | tuple | set | frozenset) else str(given).strip()
        try:
            return self.parse(text)
        except ValueError:
            raise InvalidArgument(f"{owner}={text!r}: accepted are {self.accepted}") from None


def flag() -> Kind[bool]:
    """`1`, `0`, `true`, `false` in any case; Python's bools read as `True` and `False`."""
    values = {"1": True, "true": True, "0": False, "false": False}

    def parse(text: str) -> bool:
        if text.lower() not in values:
            raise ValueError(text)
        return values[text.lower()]

    return Kind("1, 0, true, false", parse, lambda value: str(int(value)))


def choice(*names: str) -> Kind[str]:
    """Exactly one of the names."""

    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(text)
        return text

    return Kind(", ".join(name or "(empty)" for name in names), parse, str)


def names(*known: str) -> Kind[tuple[str, ...]]:
    """Any number of the names, separated by commas, or a list of them; kept in their own order."""

    def parse(text: str) -> tuple[str, ...]:
        given = {name.strip() for name in text.split(",")} - {""}
        if not given <= set(known):
            raise ValueError(text)
        return tuple(name for name in known if name in given)

    return Kind(f"names separated by commas of {', '.join(known)}", parse, ",".join)


def whole(least: int, most: int | None = None) -> Kind[int]:
    """A decimal whole number between `least` and `most`, both included."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]+", text):
            raise ValueError(text)
        value = int(text)
        if value < least or (most is not None and value > most):
            raise ValueError(text)
        return value

    return Kind(f"whole numbers from {least}" + ("" if most is None else f" to {most}"), parse, str)


def target() -> Kind[str]:
    """What `program.Target.named` takes, by its form (it knows which names there are), or nothing."""

    def parse(text: str) -> str:
        if not re.fullmatch(r"([a-z][a-z0-9]*([_-][a-z0-9]+)*|.+\.json)?", text, re.IGNORECASE):
            raise ValueError(text)
        return text

    accepted = "a name such as sm_90 or h200 (`gossamer target list`), a file by `gossamer target dump`, or nothing"
    return Kind(accepted, parse, str)


def folder() -> Kind[Path]:
    """A folder, which need not exist yet; `~` is the home folder."""

    def parse(text: str) -> Path:
        if not text:
            raise ValueError(text)
        return Path(text).expanduser()

    return Kind("a folder", parse, str)


def default_cache_folder() -> Path:
    """The platform's folder for data that may be deleted at any time."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "gossamer" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gossamer"


class Setting(Generic[T]):
    """One environment variable: call it to read it."""

    def __init__(
        self, name: str, kind: Kind[T], default: T | Callable[[], T], doc: str, default_text: str = ""
    ) -> None:
        self.name = name
        self.kind = kind
        self.doc = doc
        self._default = default
        self._default_text = default_text
        self._overridden: ContextVar[tuple[T] | None] = ContextVar(name, default=None)

    def __call__(self) -> T:
        """The override in force, else the environment's value, else the default."""
        overridden = self._overridden.get()
        if overridden is not None:
            return overridden[0]
        text = os.environ.get(self.name, "")
        return self.kind.read(self.name, text) if text else self.default

    @property
    def default(self) -> T:
        """The value when the environment is silent (an unset and an empty variable are the same)."""
        return self._default() if callable(self._default) else self._default

    @property
    def default_text(self) -> str:
        """The default as documentation shows it, the same on every machine."""
        return self._default_text or self.kind.show(self.default)

    @contextmanager
    def override(self, value: object) -> Iterator[None]:
        """Replace the value for this thread or task; `value` is checked like the environment's text."""
        token = self._overridden.set((self.kind.read(self.name, value),))
        try:
            yield
        finally:
            self._overridden.reset(token)


DEVICE = Setting(
    "GOSSAMER_DEVICE",
    choice("cuda", "interpreter", "null"),
    "cuda",
    "Default of the CUDA provider's option `device`: run on the GPU, run the same kernels in Triton's interpreter, "
    "or only compile.",
)
DEBUG = Setting(
    "GOSSAMER_DEBUG",
    whole(0, 5),
    0,
    "1: stages and their times; 2: each call with GB/s and TFLOP/s; 3: placement with reasons; "
    "4: the graph after each pass and the Program; 5: PTX, plans and library searches.",
)
CACHE_DIR = Setting(
    "GOSSAMER_CACHE_DIR",
    folder(),
    default_cache_folder,
    "Where compiled kernels, and what was measured to be fastest, are kept between processes.",
    "`$XDG_CACHE_HOME/gossamer`, else `~/.cache/gossamer` (Windows: `%LOCALAPPDATA%\\gossamer\\cache`)",
)
TARGET = Setting(
    "GOSSAMER_TARGET",
    target(),
    "",
    "Default of the CUDA provider's option `target`: what to compile for where no GPU says it.",
    "the GPU's own",
)
ENABLE_CUDNN = Setting(
    "GOSSAMER_ENABLE_CUDNN",
    flag(),
    True,
    "Default of the CUDA provider's option `enable_cudnn`: whether sessions that do not say it may use cuDNN.",
)
MAX_CONTEXTS = Setting(
    "GOSSAMER_MAX_CONTEXTS",
    whole(1, 1024),
    4,
    "Most execution contexts (stream and arena) of one session; more threads than that wait for one another.",
)
MAX_PROGRAMS = Setting(
    "GOSSAMER_MAX_PROGRAMS",
    whole(1),
    32,
    "Most input signatures whose Programs one session keeps; the least recently used goes first.",
)
COMPILE_JOBS = Setting(
    "GOSSAMER_COMPILE_JOBS",
    whole(0, 1024),
    0,
    "Worker processes that compile kernels; 0 is one for each core that this process may use.",
)
STRICT = Setting(
    "GOSSAMER_STRICT",
    flag(),
    False,
    "For the project's tests: a test that would be skipped because this machine lacks something fails instead.",
)

SETTINGS: dict[str, Setting[Any]] = {
    setting.name.removeprefix("GOSSAMER_"): setting
    for setting in (DEVICE, TARGET, ENABLE_CUDNN, DEBUG, CACHE_DIR, MAX_CONTEXTS, MAX_PROGRAMS, COMPILE_JOBS, STRICT)
}


@contextmanager
def override(**values: object) -> Iterator[None]:
    """Replace several settings, named without `GOSSAMER_`, for this thread or task."""
    with ExitStack() as stack:
        for name, value in values.items():
            if name not in SETTINGS:
                raise InvalidArgument(f"no setting GOSSAMER_{name}; there are {', '.join(SETTINGS)}")
            stack.enter_context(SETTINGS[name].override(value))
        yield


def as_markdown() -> str:
    """The text of docs/env_vars.md."""
    head = [
        "# Environment variables",
        "",
        "Printed from the table in `src/gossamer/settings.py`.",
        "A variable is read when it is used; an empty one counts as unset.",
        "",
        "| variable | accepted | default | what it does |",
        "|---|---|---|---|",
    ]
    rows = [f"| `{s.name}` | {s.kind.accepted} | {s.default_text} | {s.doc} |" for s in SETTINGS.values()]
    return "\n".join(head + rows) + "\n"
