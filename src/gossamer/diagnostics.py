"""The GOSSAMER_DEBUG ladder: what the package says about its own work, all through the logger `gossamer`.

Nothing is configured at import. `listen` gives the logger a handler when GOSSAMER_DEBUG asks for one and the program has
set up none.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from gossamer import settings

logger = logging.getLogger("gossamer")


def listen() -> None:
    """Sends the logger's messages to standard error, if GOSSAMER_DEBUG is 1 or more and nobody else handles them."""
    if settings.DEBUG() and not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("gossamer: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Logs how long a stage of the pipeline took, at GOSSAMER_DEBUG=1."""
    started = time.perf_counter()
    try:
        yield
    finally:
        if settings.DEBUG() >= 1:
            logger.info("%s: %.1f ms", name, (time.perf_counter() - started) * 1e3)
