"""cuDNN's part of an execution context: a handle, made at first need, one workspace, and the calls made ready."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from gossamer.cudnn import prerequisites
from gossamer.cudnn.handles import Handle
from gossamer.cudnn.routines import PackingRoutine, Routine, open_routine
from gossamer.program import CudnnCall
from gossamer.run import driver
from gossamer.run.launching import PreparedStep


class CudnnSteps:
    """Of one stream's work, what cuDNN does. Every method needs the device's context current. (R4.1)

    All calls share one workspace: they never overlap. Calls that pack the same constants share what they packed.
    """

    def __init__(self, ordinal: int, ledger: driver.Ledger) -> None:
        self._ordinal, self._ledger = ordinal, ledger
        self._handle: Handle | None = None
        self._stream: int | None = 0
        self._workspace: driver.DeviceMemory | None = None
        self._outgrown: list[driver.DeviceMemory] = []
        self._packed: dict[tuple[int, tuple[Transfer, ...]], Packed] = {}

    @property
    def handle(self) -> Handle:
        """Made when it is first asked for."""
        if self._handle is None:
            prerequisites.prepare()  # without its own libraries cuDNN would end the process
            self._handle = Handle()
        return self._handle

    def lend(self, stream: Any) -> int:
        """The handle's address, on `stream`, for code that may change what the handle is set to."""
        self.handle.stream = int(stream)
        self._stream = None
        return self.handle.address

    def prepare(self, call: CudnnCall, address_of: Callable[[str], int]) -> CudnnStep:
        """A call made ready for the addresses of one arena."""
        with ExitStack() as opened:
            routine = open_routine(call.routine, call.description, self.handle, call.plan)
            opened.callback(routine.close)
            self._grow(routine.workspace_bytes)
            pointers = {role: address_of(pointer.buffer) + pointer.offset for role, pointer in call.arguments}
            packed = self._packed_for(routine, pointers) if isinstance(routine, PackingRoutine) else None
            if packed:
                pointers["packed"] = packed.memory.pointer
                if not packed.fixed:
                    opened.callback(packed.memory.close)
            return CudnnStep(call, routine, pointers, self, packed, opened.pop_all())

    def _packed_for(self, routine: PackingRoutine, pointers: Mapping[str, int]) -> Packed:
        transfers = tuple(
            Transfer(piece.target, pointers[piece.role] + piece.source, piece.nbytes) for piece in routine.pieces
        )
        key = routine.packed_bytes, transfers
        if routine.fixed and key in self._packed:
            return self._packed[key]
        doing = f"packing {routine.packed_bytes} bytes for cuDNN"
        memory = driver.allocate(routine.packed_bytes, self._ordinal, ledger=self._ledger, doing=doing)
        packed = Packed(memory, transfers, routine.fixed)
        if routine.fixed:
            self._packed[key] = packed
        return packed

    def enqueue(self, step: CudnnStep, stream: Any) -> None:
        if int(stream) != self._stream:
            self._stream = int(stream)
            self.handle.stream = self._stream
        if step.packed:
            step.packed.fill(stream)
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
        for memory in (self._workspace, *self._outgrown, *(packed.memory for packed in self._packed.values())):
            if memory:
                memory.close()
        self._workspace, self._outgrown, self._packed = None, [], {}
        if self._handle:
            self._handle.close()
            self._handle = None


@dataclass(frozen=True, slots=True)
class Transfer:
    """`nbytes` bytes from the address `source`, to the offset `target` of packed memory."""

    target: int
    source: int
    nbytes: int


@dataclass(slots=True)
class Packed:
    """Memory in an arrangement of cuDNN's own. fixed: what it is made of never changes, so that it is filled once, by
    the first run that needs it, which no CUDA graph captures."""

    memory: driver.DeviceMemory
    transfers: tuple[Transfer, ...]
    fixed: bool
    filled: bool = False

    def fill(self, stream: Any) -> None:
        if self.fixed and self.filled:
            return
        for transfer in self.transfers:
            target = self.memory.pointer + transfer.target
            doing = "packing weights for cuDNN"
            driver.call("cuMemcpyDtoDAsync", target, transfer.source, transfer.nbytes, stream, doing=doing)
        self.filled = True


class CudnnStep(PreparedStep):
    """One CudnnCall with its routine opened and its addresses looked up. owned: closes what is its own."""

    captured_at_once = False  # cuDNN loads kernels and makes workspaces while it runs for the first time

    __slots__ = ("_owned", "_steps", "call", "packed", "pointers", "routine")

    call: CudnnCall

    def __init__(
        self,
        call: CudnnCall,
        routine: Routine,
        pointers: Mapping[str, int],
        steps: CudnnSteps,
        packed: Packed | None,
        owned: ExitStack,
    ) -> None:
        self.call, self.routine, self.pointers, self._steps = call, routine, pointers, steps
        self.packed, self._owned = packed, owned

    def enqueue(self, stream: Any) -> None:
        self._steps.enqueue(self, stream)

    def close(self) -> None:
        self._owned.close()
