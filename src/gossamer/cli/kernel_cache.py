"""`gossamer cache`: the compiled kernels on disk."""

from __future__ import annotations

import json
import time
from datetime import datetime

from rich.table import Table

from gossamer.build import cache
from gossamer.cli.arguments import parse_size
from gossamer.cli.output import console
from gossamer.errors import InvalidArgument


def list_entries(as_json: bool) -> None:
    """Print every entry, the last used first."""
    entries = list(cache.entries())
    if as_json:
        rows = [
            {"function": e.function, "arch": f"sm_{e.arch}", "bytes": e.nbytes, "used": e.used, "path": str(e.path)}
            for e in entries
        ]
        print(json.dumps(rows))
        return
    table = Table("kernel", "target", "bytes", "last used", box=None, pad_edge=False)
    for entry in entries:
        used = datetime.fromtimestamp(entry.used).strftime("%Y-%m-%d %H:%M")
        table.add_row(entry.function, f"sm_{entry.arch}", f"{entry.nbytes:,}", used)
    out = console()
    if entries:
        out.print(table)
    out.print(f"{len(entries)} kernels, {sum(entry.nbytes for entry in entries):,} bytes in {cache.folder()}")


def prune(max_size: str, days: float | None) -> None:
    """Remove what is too old, then what does not fit. Errors: InvalidArgument where neither is said."""
    if not max_size and days is None:
        raise InvalidArgument(
            "say what to keep: --max-size 500M, --days 30, or both; `gossamer cache clear` removes all"
        )
    _remove(parse_size(max_size) if max_size else None, days)


def clear() -> None:
    """Remove everything."""
    _remove(0, None)


def _remove(max_bytes: int | None, days: float | None) -> None:
    started = time.perf_counter()
    removed = cache.prune(max_bytes, days)
    print(f"{len(removed)} kernels removed from {cache.folder()} in {time.perf_counter() - started:.2f} s")
