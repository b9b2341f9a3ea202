"""JSON that has one reading. Python's own parser lets a key be there twice, of which the last one counts, and takes
NaN: another program would read something else than what was checked here.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn


def parse(data: str | bytes) -> Any:
    """Raises ValueError, which names the key where one is there twice, and RecursionError."""
    return json.loads(data, object_pairs_hook=_object, parse_constant=_refuse)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} is there twice")
    return made


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
