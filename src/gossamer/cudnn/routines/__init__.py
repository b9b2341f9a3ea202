"""What a CudnnCall executes: a graph's plan, or a routine of cuDNN's other API, opened from its description.

    with Handle(stream) as handle, open_routine("pooling", description, handle) as routine:
        routine.execute(handle, {"x": x_address, "y": y_address}, workspace_address)

A description is JSON: what a routine is made from besides memory. Each module registers its routines in `ROUTINES` by
the name that descriptions, profiles and printed Programs use.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

from gossamer.cudnn.handles import Handle
from gossamer.errors import NotFound

__all__ = ["GRAPH", "ROUTINES", "PackingRoutine", "Piece", "Routine", "open_routine", "routine_type"]

GRAPH = "graph"
"""The one routine that runs plans; the others are of cuDNN's direct API (`direct.DirectRoutine`)."""

ROUTINES: dict[str, str] = {
    GRAPH: "graph:GraphRoutine",
    "batch_normalization": "batch_normalization:BatchNormalization",
    "lrn": "lrn:LocalResponseNormalization",
    "pooling": "pooling:Pooling",
    "recurrent": "recurrent:Recurrent",
}
"""Routine → the module of this package that has a class of it, `module:Class`."""


class Routine(Protocol):
    """One opened routine. workspace_bytes: device memory that `execute` may overwrite, 16-byte aligned."""

    workspace_bytes: int

    def execute(self, handle: Handle, pointers: Mapping[str, int], workspace: int) -> None:
        """Enqueue it on the handle's stream. pointers: role → device address. CudnnError where cuDNN refuses."""

    def close(self) -> None:
        """Free its descriptors; again does nothing."""


@dataclass(frozen=True, slots=True)
class Piece:
    """`nbytes` bytes of a role's memory from `source` on, which are packed to `target`."""

    role: str
    source: int
    target: int
    nbytes: int


@runtime_checkable
class PackingRoutine(Routine, Protocol):
    """A routine that reads some of its memory in an arrangement of cuDNN's own, in which whoever runs it puts it.

    packed_bytes: memory that keeps its contents, 256-byte aligned, given as the role `packed`. pieces: what it is made
    of. fixed: whether the pieces are constants, so that once is enough.
    """

    packed_bytes: int
    pieces: tuple[Piece, ...]
    fixed: bool


def open_routine(routine: str, description: str, handle: Handle, plan: bytes = b"") -> Routine:
    """The routine of that name. NotFound for an unknown one; CudnnError, PlanError where cuDNN refuses it."""
    settings: Any = json.loads(description)
    opened: Routine = routine_type(routine)(settings, handle, plan)
    return opened


def routine_type(routine: str) -> type[Any]:
    """The class of a routine. NotFound for an unknown one."""
    if routine not in ROUTINES:
        raise NotFound(f"cuDNN routine {routine!r}; there are {', '.join(ROUTINES)}")
    module, _, name = ROUTINES[routine].partition(":")
    kind: type[Any] = getattr(import_module(f"gossamer.cudnn.routines.{module}"), name)
    return kind
