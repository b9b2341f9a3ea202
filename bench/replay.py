"""Programs on a GPU, run and timed by the driver alone: replays of CUDA graphs over more memory than L2 holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import numpy as np

from gossamer.program import (
    Arena,
    Copy,
    CudnnCall,
    Fill,
    Kernel,
    Launch,
    Program,
    View,
    Weight,
    dtype_of,
    plan_memory,
)
from gossamer.program.cubin import Cubin
from gossamer.run import driver
from gossamer.run.context import ExecutionContext
from gossamer.run.cudnn import CudnnSteps
from gossamer.run.host import HostRunner
from gossamer.run.launching import LoadedKernel, load_kernel

L2_BYTES = 60 << 20
MOST_COPIES = 256
LEAST_CALLS = 16
"""Calls in one graph, so that what its launch costs does not show."""
LEAST_REPLAYS = 7
SECONDS = 0.05
"""For the replays of one case; the least number of them may take longer."""
WARM_UP = 0.02
"""Seconds of replays before those that count: idle GPUs clock down."""


@dataclass
class Site:
    """Memory for one copy of a Program: what its contexts have in common. first: where its constants come from."""

    device: driver.Device
    kernels: Mapping[Kernel, LoadedKernel]
    constants: Mapping[str, np.ndarray]
    first: Site | None = None
    ledger: driver.Ledger = field(default_factory=driver.Ledger)
    host: HostRunner = field(default_factory=HostRunner)
    weights: dict[str, driver.DeviceMemory] = field(default_factory=dict)

    def kernel(self, kernel: Kernel) -> LoadedKernel:
        return self.kernels[kernel]

    def weight(self, key: str) -> int:
        if key not in self.weights:
            self.weights[key] = self._from_host(key) if self.first is None else self._from(self.first, key)
        return self.weights[key].pointer

    def _from_host(self, key: str) -> driver.DeviceMemory:
        array = self.constants[key]
        memory = driver.allocate(array.nbytes, self.device.ordinal)
        driver.copy_to_device(memory.pointer, array, self.device.ordinal)
        return memory

    def _from(self, other: Site, key: str) -> driver.DeviceMemory:
        source = other.weight(key)
        nbytes = other.weights[key].nbytes
        memory = driver.allocate(nbytes, self.device.ordinal)
        driver.copy_on_device(memory.pointer, source, nbytes, self.device.ordinal)
        return memory

    def close(self) -> None:
        for memory in self.weights.values():
            memory.close()


@dataclass
class Bench:
    """A GPU, with the machine code that was loaded. Freed by `close()`."""

    device: driver.Device
    kernels: dict[Kernel, LoadedKernel] = field(default_factory=dict)

    @classmethod
    def on(cls, ordinal: int = 0) -> Bench:
        return cls(driver.device(ordinal))

    def load(self, cubins: Mapping[Kernel, Cubin]) -> None:
        with self.device.active():
            self.kernels.update((k, load_kernel(cubin)) for k, cubin in cubins.items() if k not in self.kernels)

    def close(self) -> None:
        with self.device.active():
            for kernel in self.kernels.values():
                driver.call("cuModuleUnload", kernel.module, doing="closing")
        self.kernels.clear()

    @contextmanager
    def placed(
        self, program: Program, constants: Mapping[str, np.ndarray], feeds: Mapping[str, np.ndarray]
    ) -> Iterator[Placed]:
        """The Program with its inputs in as many places as L2 cannot hold."""
        program = keeping_inputs(program)
        allowed = Launch | CudnnCall | Copy | Fill | View
        assert all(isinstance(call, allowed) for call in program.calls), "not on the GPU alone"
        with self.device.active(), ExitStack() as stack:
            first = Site(self.device, self.kernels, constants)
            for key in program.weights:
                first.weight(key)
            count = copies(program.arena_bytes + sum(memory.nbytes for memory in first.weights.values()))
            sites = [first, *(Site(self.device, self.kernels, constants, first) for _ in range(count - 1))]
            contexts = []
            cudnn = CudnnSteps(self.device.ordinal, first.ledger)  # one handle: all run on one stream
            for site in sites:
                stack.callback(site.close)
                contexts.append(ExecutionContext.create(site))
                contexts[-1].cudnn = cudnn
                stack.callback(contexts[-1].close)
            placed = Placed(program, contexts)
            placed.fill(feeds)
            yield placed


@dataclass
class Placed:
    """A Program in several places; the GPU's context is current while it is used."""

    program: Program
    contexts: list[ExecutionContext]

    @property
    def stream(self) -> Any:
        return self.contexts[0].stream

    def fill(self, feeds: Mapping[str, np.ndarray]) -> None:
        """The inputs in every arena, and one bits everywhere else."""
        first, *others = self.contexts
        for context in self.contexts:
            context.prepare(self.program)
        nbytes = self.program.arena_bytes
        source = _arena(first)
        driver.call("cuMemsetD8Async", source, 0xFF, nbytes, self.stream, doing="filling memory")
        first.upload(self.program, feeds, self.stream)
        for context in others:
            driver.call("cuMemcpyDtoDAsync", _arena(context), source, nbytes, self.stream, doing="copying inputs")
        self._wait()

    def outputs(self) -> dict[str, np.ndarray]:
        """What one run gives."""
        self._enqueue(self.contexts[0])
        self._wait()
        results = {}
        for name in self.program.outputs:
            assert isinstance(self.program.locations[name], Arena), f"{name} is a constant"
            buffer = self.program.buffers[name]
            results[name] = np.empty(buffer.shape, dtype_of(buffer.dtype))
            address = self.contexts[0].address(self.program, name)
            driver.copy_to_host(results[name], address, self.contexts[0].shared.device.ordinal)
        return results

    def microseconds(self) -> float:
        """Median time of one run."""
        rounds = -(-LEAST_CALLS // len(self.contexts))

        def every_one() -> None:
            for context in self.contexts * rounds:
                self._enqueue(context)

        every_one()  # cuDNN loads kernels and packs weights when a call runs for the first time, in each copy
        self._wait()
        return replay_us(every_one, self.stream) / (rounds * len(self.contexts))

    def _enqueue(self, context: ExecutionContext) -> None:
        for segment in context.prepare(self.program).segments:
            for step in segment.steps:
                context.enqueue_step(self.program, step, self.stream)

    def _wait(self) -> None:
        driver.call("cuStreamSynchronize", self.stream, doing=f"running {self.program.name}")


def copies(nbytes: int) -> int:
    """How many copies of so much memory are used in turn, until twice of what L2 holds lies between two uses."""
    return max(2, min(MOST_COPIES, -(-2 * L2_BYTES // max(1, nbytes))))


def keeping_inputs(program: Program) -> Program:
    """The Program with a memory plan that lets nothing be written over its inputs, so that it can run again."""
    views = {call.out for call in program.calls if isinstance(call, View)}
    places = program.locations.items()
    weights = {name: place.key for name, place in places if isinstance(place, Weight) and name not in views}
    kept = (*program.outputs, *program.inputs)
    plan = plan_memory(program.buffers, program.calls, program.inputs, kept, weights)
    return replace(program, locations=plan.locations, arena_bytes=plan.arena_bytes)


def replay_us(enqueue: Callable[[], None], stream: Any) -> float:
    """Median microseconds of replaying what `enqueue` puts on the stream, by the GPU's clock."""
    graph = _captured(enqueue, stream)
    start, end = (driver.call("cuEventCreate", 0, doing="timing") for _ in range(2))
    try:
        _replay_for(WARM_UP, graph, stream, start, end)
        return median(_replay_for(SECONDS, graph, stream, start, end)) * 1e3
    finally:
        for event in (start, end):
            driver.call("cuEventDestroy", event, doing="timing")
        driver.call("cuGraphExecDestroy", graph, doing="dropping a CUDA graph")


def _captured(enqueue: Callable[[], None], stream: Any) -> Any:
    mode = driver.constant("CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL")
    driver.call("cuStreamBeginCapture", stream, mode, doing="capturing a CUDA graph")
    try:
        enqueue()
    finally:
        graph = driver.call("cuStreamEndCapture", stream, doing="capturing a CUDA graph")
    executable = driver.call("cuGraphInstantiate", graph, 0, doing="instantiating a CUDA graph")
    driver.call("cuGraphDestroy", graph, doing="instantiating a CUDA graph")
    return executable


def _replay_for(seconds: float, graph: Any, stream: Any, start: Any, end: Any) -> list[float]:
    """Milliseconds of each replay."""
    times: list[float] = []
    until = time.perf_counter() + seconds
    while len(times) < LEAST_REPLAYS or time.perf_counter() < until:
        driver.call("cuEventRecord", start, stream, doing="timing")
        driver.call("cuGraphLaunch", graph, stream, doing="launching a CUDA graph")
        driver.call("cuEventRecord", end, stream, doing="timing")
        driver.call("cuEventSynchronize", end, doing="timing")
        times.append(driver.call("cuEventElapsedTime", start, end, doing="timing"))
    return times


def memcpy_us(values: np.ndarray, nbytes: int) -> float:
    """Median microseconds in which the driver copies so many bytes from one place in device memory to another."""
    device = driver.device(0)
    with device.active(), driver.allocate(nbytes) as source, driver.allocate(nbytes) as target:
        stream = driver.call("cuStreamCreate", 0, doing="creating a stream")
        for offset in range(0, nbytes, values.nbytes):
            part = min(values.nbytes, nbytes - offset)
            driver.copy_to_device(source.pointer + offset, values.view(np.uint8)[:part])
        addresses = (target.pointer, source.pointer)

        def copy_repeatedly() -> None:
            for _ in range(4):
                driver.call("cuMemcpyDtoDAsync", *addresses, nbytes, stream, doing="copying on the GPU")

        try:
            return replay_us(copy_repeatedly, stream) / 4
        finally:
            driver.call("cuStreamDestroy", stream, doing="closing a stream")


def _arena(context: ExecutionContext) -> int:
    assert context.arena is not None
    return context.arena.pointer
