"""How many examples the random tests draw: their own number, times GOSSAMER_EXAMPLES for a long search."""

from __future__ import annotations

import os

TIMES = int(os.environ.get("GOSSAMER_EXAMPLES", "1"))


def examples(count: int) -> int:
    """`count` in an ordinary run; `GOSSAMER_EXAMPLES=20` draws twenty times as many, new ones on every run."""
    return count * TIMES
