"""cuDNN's part of an execution context: a handle, made at first need, one workspace, and the calls made ready."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gossamer.cudnn.handles import Handle
from gossamer.cudnn.routines import Routine, open_routine
from gossamer.program import CudnnCall
from gossamer.run import driver


class CudnnSteps:
    """Of one stream's work, what cuDNN does. Every method needs the device's context current. (R4.1)

    All calls share one workspace: they never overlap.
    """

    def __init__(self, ordinal: int, ledger: driver.Ledger) -> None:
        self._ordinal, self._ledger = ordinal, ledger
        self._handle: Handle | None = None
        self._stream = 0
        self._workspace: driver.DeviceMemory | None = None
        self._outgrown: list[driver.DeviceMemory] = []

    @property
    def handle(self) -> Handle:
        """Made when it is first asked for."""
        if self._handle is None:
            self._handle = Handle()
        return self._handle

    def prepare(self, call: CudnnCall, address_of: Callable[[str], int]) -> CudnnStep:
        """A call made ready for the addresses of one arena."""
        routine = open_routine(call.routine, call.description, self.handle, call.plan)
        self._grow(routine.workspace_bytes)
        pointers = {role: address_of(pointer.buffer) + pointer.offset for role, pointer in call.arguments}
        return CudnnStep(call, routine, pointers, self)

    def enqueue(self, step: CudnnStep, stream: Any) -> None:
        if int(stream) != self._stream:
            self._stream = int(stream)
            self.handle.stream = self._stream
        workspace = self._workspace.pointer if self._workspace and step.routine.workspace_bytes else 0
        step.routine.execute(self.handle, step.pointers, workspace)

    def _grow(self, nbytes: int) -> None:
        """Captured graphs hold the old workspace's address, so that one is kept until the end."""
        if nbytes and (self._workspace is None or self._workspace.nbytes < nbytes):
            if self._workspace:
                self._outgrown.append(self._workspace)
            self._workspace = driver.allocate(
                nbytes, self._ordinal, ledger=self._ledger, doing=f"making cuDNN's workspace of {nbytes} bytes"
            )

    def close(self) -> None:
        """Frees the handle and the workspace; what was prepared is closed by its owner, before."""
        for memory in (self._workspace, *self._outgrown):
            if memory:
                memory.close()
        self._workspace, self._outgrown = None, []
        if self._handle:
            self._handle.close()
            self._handle = None


class CudnnStep:
    """One CudnnCall with its routine opened and its addresses looked up."""

    __slots__ = ("_steps", "call", "pointers", "routine")

    def __init__(self, call: CudnnCall, routine: Routine, pointers: Mapping[str, int], steps: CudnnSteps) -> None:
        self.call, self.routine, self.pointers, self._steps = call, routine, pointers, steps

    def enqueue(self, stream: Any) -> None:
        self._steps.enqueue(self, stream)

    def close(self) -> None:
        self.routine.close()
