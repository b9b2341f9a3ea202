"""What the package says about its own work: the GOSSAMER_DEBUG ladder, through the logger `gossamer`, and warnings.

Nothing is configured at import. `listen` gives the logger a handler when GOSSAMER_DEBUG asks for one and the program
has set up none. `watch` is for programs that want to show progress, such as the command line.
"""

from __future__ import annotations

import logging
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from gossamer import settings

_PACKAGE = __name__.partition(".")[0]

logger = logging.getLogger(_PACKAGE)


class Watcher(Protocol):
    """What follows the stages of the pipeline. Stages nest."""

    def begin(self, stage: str) -> None: ...
    def advance(self, done: int, total: int) -> None:
        """How far the innermost stage has come, in steps of its own."""

    def end(self) -> None: ...


_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


def listen() -> None:
    """Sends the logger's messages to standard error, if GOSSAMER_DEBUG is 1 or more and nobody else handles them."""
    if settings.DEBUG() and not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("gossamer: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)


def warn(text: str) -> None:
    """A UserWarning that points at the line outside of Gossamer which led to it, through however many calls."""
    depth, frame = 1, sys._getframe()
    while frame.f_back and str(frame.f_globals.get("__name__")).partition(".")[0] == _PACKAGE:
        depth, frame = depth + 1, frame.f_back
    warnings.warn(text, UserWarning, stacklevel=depth)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Logs how long a stage of the pipeline took, at GOSSAMER_DEBUG=1, and tells the watcher."""
    watcher = _watcher.get()
    if watcher:
        watcher.begin(name)
    started = time.perf_counter()
    try:
        yield
    finally:
        if watcher:
            watcher.end()
        if settings.DEBUG() >= 1:
            logger.info("%s: %.1f ms", name, (time.perf_counter() - started) * 1e3)


def advance(done: int, total: int) -> None:
    """Tells the watcher how far the innermost stage has come."""
    watcher = _watcher.get()
    if watcher:
        watcher.advance(done, total)


@contextmanager
def watch(watcher: Watcher) -> Iterator[None]:
    """Inside, `watcher` follows the stages that this thread (or asyncio task) goes through."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)
