"""Execution contexts: a stream, an arena, and Programs made ready for them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from gossamer.errors import DriverError
from gossamer.program import (
    ARENA_ALIGNMENT,
    Arena,
    Copy,
    CudnnCall,
    Fill,
    HostCall,
    Kernel,
    Launch,
    Program,
    PythonCall,
    Unavailable,
    View,
    Weight,
    dtype_of,
)
from gossamer.run import driver
from gossamer.run.device_tensor import DeviceTensor, Tensor
from gossamer.run.host import HostRunner, checked
from gossamer.run.launching import LoadedKernel, PreparedLaunch, PreparedStep
from gossamer.run.python_calls import PythonStep

if TYPE_CHECKING:
    from gossamer.run.cudnn import CudnnSteps

Step: TypeAlias = PreparedStep | Copy | Fill
"""What a stream does without the host's help."""

MOST_STAGED = 32 << 20
"""Bytes of one input that pass through pinned memory."""


class Shared(Protocol):
    """What the contexts of one session have in common."""

    device: driver.Device
    ledger: driver.Ledger
    host: HostRunner

    def weight(self, key: str) -> int: ...
    def kernel(self, kernel: Kernel) -> LoadedKernel: ...


@dataclass(slots=True)
class Segment:
    """Steps, and the call that ends them because the host takes part in it. graph: the instantiated CUDA graph once it
    was captured."""

    steps: list[Step]
    end: HostCall | PythonStep | Unavailable | None = None
    graph: Any = None

    @property
    def on_stream(self) -> list[Step | PythonStep]:
        """What puts work on the stream, in order."""
        return [*self.steps, *([self.end] if isinstance(self.end, PythonStep) else [])]

    def may_be_captured(self, runs: int) -> bool:
        """Whether the run of this number may be: there is something to capture, and nothing that no capture allows."""
        return bool(self.steps) and (
            runs > 1 or all(step.captured_at_once for step in self.steps if isinstance(step, PreparedStep))
        )


@dataclass(slots=True)
class Prepared:
    """A Program made ready for one arena. runs: how often it ran there."""

    program: Program
    segments: list[Segment]
    runs: int = 0


@dataclass(slots=True)
class ExecutionContext:
    """One stream and one arena; used by one `run` at a time. Every method needs the device's context current."""

    shared: Shared
    stream: Any
    done: Any
    """An event behind the last work that used this context."""
    arena: driver.DeviceMemory | None = None
    scratch: driver.DeviceMemory | None = None
    staging: driver.PinnedMemory | None = None
    pending: Any = None
    """The stream on which unfinished work uses this context, or None."""
    prepared: dict[int, Prepared] = field(default_factory=dict)
    host_arrays: dict[str, np.ndarray] = field(default_factory=dict)
    cudnn: CudnnSteps | None = None

    @classmethod
    def create(cls, shared: Shared) -> ExecutionContext:
        non_blocking = driver.constant("CUstream_flags.CU_STREAM_NON_BLOCKING")
        no_timing = driver.constant("CUevent_flags.CU_EVENT_DISABLE_TIMING")
        stream = driver.call("cuStreamCreate", non_blocking, doing="creating a stream")
        with driver.undone_on_error("cuStreamDestroy", stream, "creating an event"):
            return cls(shared, stream, driver.call("cuEventCreate", no_timing, doing="creating an event"))

    def close(self) -> None:
        self._settle("closing a context")
        self._forget()
        if self.cudnn:
            self.cudnn.close()
        for memory in (self.arena, self.scratch, self.staging):
            if memory:
                memory.close()
        driver.call("cuEventDestroy", self.done, doing="closing a context")
        driver.call("cuStreamDestroy", self.stream, doing="closing a context")

    def _forget(self) -> None:
        """Drops what was prepared: its addresses are about to change."""
        for prepared in self.prepared.values():
            self._release(prepared)
        self.prepared.clear()

    def drop(self, program: Program) -> None:
        """Drops what was prepared for a Program that will not run again."""
        prepared = self.prepared.pop(id(program), None)
        if prepared:
            self._release(prepared)

    @staticmethod
    def _release(prepared: Prepared) -> None:
        for segment in prepared.segments:
            if segment.graph is not None:
                driver.call("cuGraphExecDestroy", segment.graph, doing="dropping a CUDA graph")
            for step in segment.steps:
                if isinstance(step, PreparedStep):
                    step.close()

    def prepare(self, program: Program) -> Prepared:
        """The Program made ready for this context's arena, which grows if it must."""
        if self.arena is None or self.arena.nbytes < program.arena_bytes:
            self._grow(program.arena_bytes)
        prepared = self.prepared.get(id(program))
        if prepared is None:
            prepared = self.prepared[id(program)] = Prepared(program, self._segments(program))
        return prepared

    def _grow(self, nbytes: int) -> None:
        self._settle("growing the arena")
        self._forget()
        if self.arena:
            self.arena.close()
            self.arena = None
        device, ledger = self.shared.device, self.shared.ledger
        doing = f"growing the arena to {nbytes} bytes"
        self.arena = driver.allocate(nbytes, device.ordinal, ledger=ledger, doing=doing)

    def _settle(self, doing: str) -> None:
        """Waits for all work in this context, whichever stream it is on."""
        driver.call("cuStreamSynchronize", self.stream, doing=doing)
        driver.call("cuEventSynchronize", self.done, doing=doing)

    def _segments(self, program: Program) -> list[Segment]:
        segments = [Segment([])]
        scratch = self._scratch_for(program)
        for call in program.calls:
            if isinstance(call, HostCall | PythonCall | Unavailable):
                segments[-1].end = self._python_step(program, call) if isinstance(call, PythonCall) else call
                segments.append(Segment([]))
            elif not isinstance(call, View):
                segments[-1].steps.append(self._step(program, call, scratch))
        return segments

    def _step(self, program: Program, call: Launch | CudnnCall | Copy | Fill, scratch: int) -> Step:
        def address_of(name: str) -> int:
            return self.address(program, name)

        if isinstance(call, Launch):
            return PreparedLaunch(call, self.shared.kernel(call.kernel), address_of, scratch)
        if isinstance(call, CudnnCall):
            return self._cudnn_steps().prepare(call, address_of)
        return call

    def _python_step(self, program: Program, call: PythonCall) -> PythonStep:
        def tensor(name: str) -> DeviceTensor:
            buffer = program.buffers[name]
            address, device_id = self.address(program, name), self.shared.device.ordinal
            return DeviceTensor(address, dtype_of(buffer.dtype), buffer.shape, device_id)

        return PythonStep(call, tensor, lambda stream: self._cudnn_steps().lend(stream), self.shared.device.ordinal)

    def _cudnn_steps(self) -> CudnnSteps:
        if self.cudnn is None:
            from gossamer.run.cudnn import CudnnSteps  # most Programs do without

            self.cudnn = CudnnSteps(self.shared.device.ordinal, self.shared.ledger)
        return self.cudnn

    def _scratch_for(self, program: Program) -> int:
        """Triton's global scratch, big enough for every launch: launches on one stream never overlap."""
        needed = 0
        for launch in program.launches:
            x, y, z = launch.grid
            needed = max(needed, self.shared.kernel(launch.kernel).cubin.scratch_bytes * x * y * z)
        if needed and (self.scratch is None or self.scratch.nbytes < needed):
            doing = "making kernel scratch"
            if self.scratch:
                self._settle(doing)
                self._forget()
                self.scratch.close()
                self.scratch = None  # should there be no memory for the larger one
            self.scratch = driver.allocate(needed, self.shared.device.ordinal, ledger=self.shared.ledger, doing=doing)
        return self.scratch.pointer if self.scratch and needed else 0

    def address(self, program: Program, name: str) -> int:
        place = program.locations[name]
        if isinstance(place, Arena):
            assert self.arena is not None
            return self.arena.pointer + place.offset
        assert isinstance(place, Weight), f"{name} is on the host"
        return self.shared.weight(place.key) + place.offset

    # Running

    def follow(self, stream: Any) -> None:
        """Makes `stream` wait for what still uses this context on another stream."""
        if self.pending is not None and self.pending != stream:
            driver.call("cuStreamWaitEvent", stream, self.done, 0, doing="taking over a context")

    def leave_pending(self, stream: Any) -> None:
        """The call returns while `stream` still works in this context."""
        driver.call("cuEventRecord", self.done, stream, doing="leaving a context")
        self.pending = stream

    def execute(self, prepared: Prepared, stream: Any, *, graphs: bool) -> None:
        """Enqueues the whole Program. graphs: replay CUDA graphs, capturing them if there are none yet."""
        prepared.runs += 1
        for segment in prepared.segments:
            if graphs and segment.may_be_captured(prepared.runs):
                if segment.graph is None:
                    segment.graph = self._capture(prepared.program, segment)
                driver.call("cuGraphLaunch", segment.graph, stream, doing="launching a CUDA graph")
            else:
                self._enqueue(prepared.program, segment, stream)
            if segment.end is not None:
                self._end(prepared.program, segment.end, stream)

    def _end(self, program: Program, call: HostCall | PythonStep | Unavailable, stream: Any) -> None:
        """What the host does."""
        match call:
            case HostCall():
                self._run_on_host(program, call, stream)
            case PythonStep():
                call.enqueue(stream)
            case Unavailable():
                raise call.error

    def _enqueue(self, program: Program, segment: Segment, stream: Any) -> None:
        for step in segment.steps:
            self.enqueue_step(program, step, stream)

    def enqueue_step(self, program: Program, step: Step | PythonStep, stream: Any) -> None:
        if isinstance(step, PreparedStep | PythonStep):
            step.enqueue(stream)
            return
        target = self.address(program, step.out)
        match step:
            case Copy():
                target += step.out_offset
                source = self.address(program, step.source) + step.source_offset
                driver.call("cuMemcpyDtoDAsync", target, source, step.nbytes, stream, doing=str(step.origin))
            case Fill():
                nbytes = program.buffers[step.out].nbytes
                driver.call("cuMemsetD8Async", target, step.byte, nbytes, stream, doing=str(step.origin))

    def _capture(self, program: Program, segment: Segment) -> Any:
        """Captured on the context's own stream; a graph may be launched on any."""
        doing = "capturing a CUDA graph"
        mode = driver.constant("CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL")
        driver.call("cuStreamBeginCapture", self.stream, mode, doing=doing)
        try:
            self._enqueue(program, segment, self.stream)
        except BaseException:
            with suppress(DriverError):  # what went wrong may have ended the capture already, and left no graph
                graph = driver.call("cuStreamEndCapture", self.stream, doing=doing)
                driver.call("cuGraphDestroy", graph, doing=doing)
            raise
        graph, doing = driver.call("cuStreamEndCapture", self.stream, doing=doing), "instantiating a CUDA graph"
        with driver.undone_on_error("cuGraphDestroy", graph, doing):
            executable = driver.call("cuGraphInstantiate", graph, 0, doing=doing)
        driver.call("cuGraphDestroy", graph, doing=doing)
        return executable

    def _run_on_host(self, program: Program, call: HostCall, stream: Any) -> None:
        arrays = {name: self._to_host(program, name, stream) for name in call.reads}
        driver.call("cuStreamSynchronize", stream, doing=f"waiting for the inputs of {call.origin}")
        for name, result in self.shared.host.run(call, arrays).items():
            # What is no array is a sequence, a map or an optional, and stays on the host.
            made = checked(call, program, name, result)
            array = np.asarray(made, order="C") if isinstance(made, np.ndarray) else made
            self.host_arrays[name] = array
            if isinstance(program.locations[name], Arena) and array.nbytes:
                target, source = self.address(program, name), array.ctypes.data
                driver.call("cuMemcpyHtoDAsync", target, source, array.nbytes, stream, doing=str(call.origin))

    def _to_host(self, program: Program, name: str, stream: Any) -> np.ndarray:
        """A host array of a buffer; complete once the stream is synchronised."""
        place = program.locations[name]
        if not isinstance(place, Arena | Weight):
            return self.host_arrays[name]
        buffer = program.buffers[name]
        array = np.empty(buffer.shape, dtype_of(buffer.dtype))
        if array.nbytes:
            target, source = array.ctypes.data, self.address(program, name)
            driver.call("cuMemcpyDtoHAsync", target, source, array.nbytes, stream, doing=f"reading '{name}'")
        return array

    def upload(self, program: Program, feeds: Mapping[str, Tensor], stream: Any) -> None:
        """Puts the inputs where the Program reads them; host arrays that are not large pass through pinned memory."""
        self.host_arrays.clear()
        in_arena = {}
        for name in program.inputs:
            feed = feeds[name]
            if isinstance(program.locations[name], Arena):
                in_arena[name] = feed
            else:
                self.host_arrays[name] = _downloaded(name, feed, stream) if isinstance(feed, DeviceTensor) else feed
        staging = self._stage(sum(_padded(feed.nbytes) for feed in in_arena.values() if _is_staged(feed)))
        offset = 0
        for name, feed in in_arena.items():
            if not feed.nbytes:
                continue
            target, doing = self.address(program, name), f"feeding '{name}'"
            if isinstance(feed, DeviceTensor):
                driver.call("cuMemcpyAsync", target, feed.pointer, feed.nbytes, stream, doing=doing)
            elif not _is_staged(feed):
                driver.call("cuMemcpyHtoDAsync", target, feed.ctypes.data, feed.nbytes, stream, doing=doing)
            else:
                pinned = staging.array[offset : offset + feed.nbytes]
                np.copyto(pinned.view(feed.dtype).reshape(feed.shape), feed)
                driver.call("cuMemcpyHtoDAsync", target, staging.pointer + offset, feed.nbytes, stream, doing=doing)
                offset += _padded(feed.nbytes)

    def _stage(self, nbytes: int) -> driver.PinnedMemory:
        """Pinned memory of at least that size, which no earlier run reads any more."""
        if self.pending is not None and nbytes:
            driver.call("cuEventSynchronize", self.done, doing="waiting for the staging memory")
            self.pending = None
        if self.staging is None or self.staging.array.nbytes < nbytes:
            if self.staging:
                self.staging.close()
                self.staging = None
            self.staging = driver.PinnedMemory(max(nbytes, 1 << 16))
        return self.staging


def _is_staged(feed: Tensor) -> bool:
    """Pinned memory makes small copies fast; large ones would pin as much as they are, and the driver cuts them up."""
    return isinstance(feed, np.ndarray) and feed.nbytes <= MOST_STAGED


def _padded(nbytes: int) -> int:
    return -(-nbytes // ARENA_ALIGNMENT) * ARENA_ALIGNMENT


def _downloaded(name: str, feed: DeviceTensor, stream: Any) -> np.ndarray:
    """A device tensor on the host, once what `stream` still does to it is done."""
    array, doing = np.empty(feed.shape, feed.dtype), f"reading input '{name}'"
    if array.nbytes:
        driver.call("cuMemcpyDtoHAsync", array.ctypes.data, feed.pointer, array.nbytes, stream, doing=doing)
        driver.call("cuStreamSynchronize", stream, doing=doing)
    return array
