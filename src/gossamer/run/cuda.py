"""The CUDA executor: Programs on a GPU, from many threads, with the driver alone."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import numpy as np

from gossamer import settings
from gossamer.errors import DriverError, InvalidArgument
from gossamer.program import Buffer, Call, Copy, Fill, Host, Kernel, Program, Target, dtype_of
from gossamer.program.cubin import Compile
from gossamer.run import driver
from gossamer.run.context import ExecutionContext, Prepared, Step
from gossamer.run.device_tensor import DeviceTensor, Tensor, check_bound, owned_tensor
from gossamer.run.host import HostRunner
from gossamer.run.launching import LoadedKernel, load_kernel
from gossamer.run.python_calls import PythonStep

_CLOSED = "the session is closed"


class CudaExecutor:
    """Runs Programs on one GPU. Safe from many threads: each run takes an execution context from a bounded pool.

    constants: arrays by the keys that Programs use. compile: gives machine code. graphs: "auto" replays CUDA graphs
    from a Program's second run in a context on, "1" from the first, "0" never. gpu_mem_limit: bytes this executor may
    hold. max_contexts: how many runs may be under way at once; GOSSAMER_MAX_CONTEXTS where it is not given.
    """

    def __init__(
        self,
        constants: Mapping[str, np.ndarray],
        compile: Compile,
        *,
        device_id: int = 0,
        gpu_mem_limit: int | None = None,
        graphs: str = "auto",
        max_contexts: int | None = None,
        host: HostRunner | None = None,
    ) -> None:
        self.device = driver.device(device_id)
        self.ledger = driver.Ledger(gpu_mem_limit)
        self.host = host or HostRunner()
        self._constants = constants
        self._compile = compile
        self._graphs = graphs
        self._contexts = _ContextPool(self, max_contexts or settings.MAX_CONTEXTS())
        self._lock = threading.RLock()
        self._weights: dict[str, driver.DeviceMemory] = {}
        self._kernels: dict[Kernel, LoadedKernel] = {}
        self._loaded: dict[int, Program] = {}
        self._closed = False

    def __enter__(self) -> CudaExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Waits for running calls, then frees everything. Closing twice is closing once."""
        if self._closed:
            return
        self._closed = True
        with self.device.active():
            self._contexts.close()
            with self._lock:  # a call may still load what it will not run
                for memory in self._weights.values():
                    memory.close()
                for kernel in self._kernels.values():
                    driver.call("cuModuleUnload", kernel.module, doing="closing")
                self._weights.clear()
                self._kernels.clear()
                self._loaded.clear()

    def _require_open(self) -> None:
        if self._closed:
            raise InvalidArgument(_CLOSED)

    def active(self) -> AbstractContextManager[None]:
        """The device's context is current inside."""
        return self.device.active()

    def kernel(self, kernel: Kernel) -> LoadedKernel:
        return self._kernels[kernel]

    def weight(self, key: str) -> int:
        """The device address of a constant, which is uploaded when first asked for."""
        with self._lock:
            memory = self._weights.get(key)
            if memory is None:
                array, ordinal = self._constants[key], self.device.ordinal
                memory = driver.allocate(array.nbytes, ordinal, ledger=self.ledger, doing=f"uploading '{key}'")
                driver.copy_to_device(memory.pointer, array, ordinal)
                self._weights[key] = memory
            return memory.pointer

    def load(self, program: Program) -> None:
        """Compiles and loads what the Program needs; a later `run` then only runs."""
        if id(program) in self._loaded:
            return
        with self._lock:
            self._require_open()
            missing = [kernel for kernel in program.kernels if kernel not in self._kernels]
            if missing:
                cubins = self._compile(missing, program.target)
                with self.device.active():
                    for kernel in missing:
                        self._kernels[kernel] = load_kernel(cubins[kernel])
            for key in program.weights:
                self.weight(key)
            self._loaded[id(program)] = program

    def drop(self, program: Program) -> None:
        """Frees what contexts keep for a Program that will not run again."""
        self._loaded.pop(id(program), None)
        with self.device.active():
            self._contexts.drop(program)

    def run(
        self,
        program: Program,
        feeds: Mapping[str, Tensor],
        outputs: Sequence[str] | None = None,
        *,
        bound: Mapping[str, Tensor] | None = None,
        on_device: Collection[str] = (),
        stream: int | None = None,
        synchronize: bool = True,
        capture: bool = True,
    ) -> dict[str, Tensor]:
        """The outputs named (all: None). See `session.engine.Engine.run` for the arguments.

        While the caller captures `stream` into a graph of their own, launches go into that graph: nothing is replayed
        or waited for, outputs must be bound to device memory, and the context used stays reserved for the graph until
        `close`.
        """
        self._require_open()
        names = program.outputs if outputs is None else outputs
        with self.device.active():
            capturing = stream is not None and _is_capturing(stream)
            if not capturing:
                self.load(program)
            allocating = _relaxed_capture() if capturing else nullcontext()
            with allocating, self._contexts.taken(stream, reserve=capturing) as context:
                if capturing:
                    self.load(program)
                prepared = context.prepare(program)
                on = context.stream if stream is None else stream
                context.upload(program, feeds, on)
                context.execute(prepared, on, graphs=capture and not capturing and self._replays(prepared))
                results = self._collect(
                    context, program, names, bound=bound or {}, on_device=on_device, stream=on, capturing=capturing
                )
                if capturing:
                    return results
                if synchronize or any(isinstance(result, np.ndarray) for result in results.values()):
                    driver.call("cuStreamSynchronize", on, doing=f"running {program.name}")
                else:
                    context.leave_pending(on)
                return results

    def _replays(self, prepared: Prepared) -> bool:
        return self._graphs == "1" or (self._graphs == "auto" and prepared.runs > 0)

    def _collect(
        self,
        context: ExecutionContext,
        program: Program,
        names: Sequence[str],
        *,
        bound: Mapping[str, Tensor],
        on_device: Collection[str],
        stream: Any,
        capturing: bool,
    ) -> dict[str, Tensor]:
        """Enqueues the copies of outputs to where the caller wants them."""
        results: dict[str, Tensor] = {}
        for name in names:
            target = bound.get(name)
            if capturing and not isinstance(target, DeviceTensor):
                raise InvalidArgument(f"while a stream is captured, output '{name}' must be bound to device memory")
            if isinstance(program.locations[name], Host):
                made = context.host_arrays[name]
                on_host = target is None and name not in on_device
                results[name] = made if on_host else self._from_host(name, made, target)
                continue
            buffer = program.buffers[name]
            dtype = dtype_of(buffer.dtype)
            if target is not None:
                check_bound(name, target, buffer.shape, dtype)
            elif name in on_device:
                target = owned_tensor(buffer.shape, dtype, self.device.ordinal)
            else:
                target = np.empty(buffer.shape, dtype)
            if buffer.nbytes:
                pointer = target.pointer if isinstance(target, DeviceTensor) else target.ctypes.data
                source = context.address(program, name)
                driver.call("cuMemcpyAsync", pointer, source, buffer.nbytes, stream, doing=f"reading output '{name}'")
            results[name] = target
        return results

    def _from_host(self, name: str, made: np.ndarray, target: Tensor | None) -> Tensor:
        """An output that a HostCall made, in the tensor bound for it or in a new one on the device."""
        if target is None:
            target = owned_tensor(made.shape, made.dtype, self.device.ordinal)
        check_bound(name, target, made.shape, made.dtype)
        if isinstance(target, DeviceTensor):
            driver.copy_to_device(target.pointer, made, self.device.ordinal)
        else:
            np.copyto(target, made)
        return target

    def time_calls(self, program: Program, feeds: Mapping[str, Tensor], repeats: int = 5) -> list[tuple[Call, float]]:
        """(call, median seconds) of each step on the device, launched one by one between events."""
        self.load(program)
        with self.device.active(), self._contexts.taken(None, reserve=False) as context:
            prepared = context.prepare(program)
            context.upload(program, feeds, context.stream)
            context.execute(prepared, context.stream, graphs=False)
            steps = [step for segment in prepared.segments for step in segment.on_stream]

            def seconds_of(step: Step | PythonStep) -> float:
                return _timed(lambda: context.enqueue_step(program, step, context.stream), context.stream)

            rounds = [[seconds_of(step) for step in steps] for _ in range(repeats)]
            medians = map(statistics.median, zip(*rounds, strict=True))
            calls = (step if isinstance(step, Copy | Fill) else step.call for step in steps)
            return list(zip(calls, medians, strict=True))

    def seconds_of(self, program: Program, repeats: int = 5) -> float:
        """Median seconds of a run on the device, replayed as a CUDA graph, with random inputs. Of what was loaded for
        it only kernels stay."""
        with self._lock:
            fresh = set(program.weights) - self._weights.keys()
        try:
            self.load(program)
            with self.device.active(), self._contexts.taken(None, reserve=False) as context:
                return self._seconds_in(context, program, repeats)
        finally:
            self.drop(program)
            self._free_weights(fresh)

    @staticmethod
    def _seconds_in(context: ExecutionContext, program: Program, repeats: int) -> float:
        prepared, stream = context.prepare(program), context.stream
        context.upload(program, {name: _noise(program.buffers[name]) for name in program.inputs}, stream)
        for graphs in (False, True):  # what is loaded at first use is no part of a graph, nor is capturing of a time
            context.execute(prepared, stream, graphs=graphs)
        times = [_timed(lambda: context.execute(prepared, stream, graphs=True), stream) for _ in range(repeats)]
        return statistics.median(times)

    def _free_weights(self, keys: Iterable[str]) -> None:
        """Those of them that no loaded Program uses."""
        with self._lock, self.device.active():
            kept = {key for program in self._loaded.values() for key in program.weights}
            for memory in filter(None, (self._weights.pop(key, None) for key in set(keys) - kept)):
                memory.close()


def _noise(buffer: Buffer) -> np.ndarray:
    """What fills a buffer for measuring: normally distributed, over and over again where it is large; zeros of what is
    no float."""
    dtype = dtype_of(buffer.dtype)
    floats = buffer.dtype.startswith(("float", "bfloat"))
    block = np.random.default_rng(0).standard_normal(min(buffer.size, 1 << 20)) if floats else np.zeros(1)
    return np.resize(block.astype(dtype), buffer.shape)


def target_of_device(device_id: int = 0, use_tf32: bool = True) -> Target:
    """What to compile for to run on a GPU of this machine. Raises DeviceNotFound."""
    return driver.device(device_id).target(use_tf32)


def _timed(enqueue: Callable[[], None], stream: Any) -> float:
    start, end = (driver.call("cuEventCreate", 0, doing="timing") for _ in range(2))
    driver.call("cuEventRecord", start, stream, doing="timing")
    enqueue()
    driver.call("cuEventRecord", end, stream, doing="timing")
    driver.call("cuEventSynchronize", end, doing="timing")
    milliseconds: float = driver.call("cuEventElapsedTime", start, end, doing="timing")
    for event in (start, end):
        driver.call("cuEventDestroy", event, doing="timing")
    return milliseconds / 1e3


def _is_capturing(stream: int) -> bool:
    status = driver.call("cuStreamIsCapturing", stream, doing="asking whether a stream is captured")
    return bool(status != driver.constant("CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE"))


@contextmanager
def _relaxed_capture() -> Iterator[None]:
    """Allocations inside do not spoil a capture that is under way; they are ours and outlive it."""
    relaxed = driver.constant("CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED")
    before = driver.call("cuThreadExchangeStreamCaptureMode", relaxed, doing="preparing inside a capture")
    try:
        yield
    finally:
        driver.call("cuThreadExchangeStreamCaptureMode", before, doing="preparing inside a capture")


class _ContextPool:
    """At most `bound` contexts, made when first needed; the last one returned is the first taken again."""

    def __init__(self, shared: CudaExecutor, bound: int) -> None:
        self._shared = shared
        self._bound = bound
        self._free: list[ExecutionContext] = []
        self._reserved: list[ExecutionContext] = []
        self._count = 0
        self._closed = False
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, stream: int | None, *, reserve: bool) -> Iterator[ExecutionContext]:
        """A context for one run. reserve: it never returns to the pool, since a graph of the caller's refers to it.

        After an error the next run waits for what was enqueued before it: that still uses the context.
        """
        if reserve:
            context = ExecutionContext.create(self._shared)
            self._reserved.append(context)
            yield context
            return
        context = self._take()
        on = context.stream if stream is None else stream
        try:
            context.follow(on)
            yield context
        except BaseException:
            with suppress(DriverError):  # after an error of the GPU's, nothing can be enqueued, nor waited for
                context.leave_pending(on)
            raise
        finally:
            with self._changed:
                self._free.append(context)
                self._changed.notify_all()  # who waits to close does not take it

    def _take(self) -> ExecutionContext:
        with self._changed:
            while not self._free and self._count >= self._bound:
                self._changed.wait()
            if self._closed:
                raise InvalidArgument(_CLOSED)
            if self._free:
                return self._free.pop()
            self._count += 1
        try:
            return ExecutionContext.create(self._shared)
        except BaseException:
            with self._changed:
                self._count -= 1
                self._changed.notify_all()
            raise

    def drop(self, program: Program) -> None:
        """Contexts that are in use keep what they prepared until they close."""
        with self._changed:
            for context in self._free:
                context.drop(program)

    def close(self) -> None:
        with self._changed:
            while len(self._free) < self._count:
                self._changed.wait()
            self._closed = True
            self._changed.notify_all()
            for context in (*self._free, *self._reserved):
                context.close()
            self._free.clear()
            self._reserved.clear()
            self._count = 0
