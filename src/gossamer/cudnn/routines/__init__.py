"""What a CudnnCall executes: a graph's plan, or a routine of cuDNN's other API, opened from its description.

    with Handle(stream) as handle, open_routine("pooling", description, handle) as routine:
        routine.execute(handle, {"x": x_address, "y": y_address}, workspace_address)

A description is JSON: what a routine is made from besides memory. Each module registers its routines in `ROUTINES` by
the name that descriptions, profiles and printed Programs use.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Protocol

from gossamer.cudnn.handles import Handle
from gossamer.errors import NotFound

__all__ = ["ROUTINES", "Routine", "open_routine"]

ROUTINES: dict[str, str] = {}
"""Routine → the module of this package that has a class of it, `module:Class`."""


class Routine(Protocol):
    """One opened routine. workspace_bytes: device memory that `execute` may overwrite, 16-byte aligned."""

    workspace_bytes: int

    def execute(self, handle: Handle, pointers: Mapping[str, int], workspace: int) -> None:
        """Enqueue it on the handle's stream. pointers: role → device address. CudnnError where cuDNN refuses."""

    def close(self) -> None:
        """Free its descriptors; again does nothing."""


def open_routine(routine: str, description: str, handle: Handle, plan: bytes = b"") -> Routine:
    """The routine of that name. NotFound for an unknown one; CudnnError, PlanError where cuDNN refuses it."""
    if routine not in ROUTINES:
        raise NotFound(f"cuDNN routine {routine!r}; there are {', '.join(ROUTINES)}")
    module, _, name = ROUTINES[routine].partition(":")
    opened: Callable[..., Routine] = getattr(import_module(f"gossamer.cudnn.routines.{module}"), name)
    settings: Any = json.loads(description)
    return opened(settings, handle, plan)
