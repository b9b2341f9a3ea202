"""Where the commands print: plain text, as wide as the terminal, and not cut where there is none."""

from __future__ import annotations

import sys

from rich.console import Console

_WIDTH_OF_FILES = 200


def console() -> Console:
    """Standard output, for texts that may contain brackets: names of tensors do."""
    width = None if sys.stdout.isatty() else _WIDTH_OF_FILES
    return Console(highlight=False, markup=False, soft_wrap=True, width=width)
