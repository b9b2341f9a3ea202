"""onnxruntime's log levels on Python's logger `gossamer`."""

from __future__ import annotations

import logging

from gossamer.errors import InvalidArgument

_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)


def set_default_logger_severity(severity: int) -> None:
    """Set the level of the logger `gossamer`: 0 verbose, 1 info, 2 warning, 3 error, 4 fatal."""
    if severity not in range(len(_LEVELS)):
        raise InvalidArgument(f"a severity is a whole number from 0 to {len(_LEVELS) - 1}, got {severity!r}")
    logging.getLogger("gossamer").setLevel(_LEVELS[severity])
