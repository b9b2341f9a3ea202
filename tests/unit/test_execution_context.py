"""What contexts and their pool do in which order: streams that have to wait, memory that runs out, sessions that close.

A driver that only remembers what it was asked for stands in for the GPU's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gossamer.errors import DriverError, InvalidArgument, OutOfMemory, RuntimeException
from gossamer.program import Arena, Buffer, Fill, Host, HostCall, Kernel, Launch, Program, Target
from gossamer.run import driver
from gossamer.run.context import ExecutionContext
from gossamer.run.cuda import _ContextPool
from gossamer.run.device_tensor import DeviceTensor

OWN, DONE = 7, 8
"""The context's stream and event."""
KERNEL = Kernel("elementwise.scale_kernel", (), ())


class Driver:
    """Its calls as (function, arguments as integers). failing: functions that raise. most: bytes of an allocation."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.failing: set[str] = set()
        self.most = 1 << 20

    def call(self, function: str, *arguments: Any, doing: str = "") -> Any:
        if function in self.failing:
            raise DriverError(function, 700, "an illegal address", doing)
        self.calls.append((function, *map(int, arguments)))
        return 1 << 16

    def allocate(self, nbytes: int, *_: Any, doing: str, **__: Any) -> Any:
        if nbytes > self.most:
            raise OutOfMemory(nbytes, 0, 0, None, doing)
        self.calls.append(("allocate", nbytes))
        return SimpleNamespace(pointer=4096, nbytes=nbytes, close=lambda: self.calls.append(("free", nbytes)))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Driver:
    recorder = Driver()
    monkeypatch.setattr(driver, "call", recorder.call)
    monkeypatch.setattr(driver, "allocate", recorder.allocate)
    return recorder


def context(scratch_bytes: int = 0, host: Any = None) -> ExecutionContext:
    shared: Any = SimpleNamespace(
        device=SimpleNamespace(ordinal=0),
        ledger=None,
        host=host,
        kernel=lambda kernel: SimpleNamespace(cubin=SimpleNamespace(scratch_bytes=scratch_bytes)),
    )
    made = ExecutionContext(shared, OWN, DONE)
    made.arena = SimpleNamespace(pointer=1 << 20, nbytes=4096, close=lambda: None)  # type: ignore[assignment]
    return made


def on_host() -> Program:
    """y = host(x); x lives on the host, y in the arena."""
    buffers = {"x": Buffer("x", "float32", (4,)), "y": Buffer("y", "float32", (2, 2))}
    calls = (HostCall(b"a model", ("x",), ("y",)),)
    return Program("m", Target.named("sm_90"), ("x",), ("y",), buffers, {"x": Host(), "y": Arena(256)}, calls, 512, 512)


def launching(blocks: int) -> Program:
    return replace(on_host(), calls=(Launch(KERNEL, (blocks, 1, 1), (), (), ()),))


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], _ContextPool]:
    monkeypatch.setattr(ExecutionContext, "create", lambda shared: ExecutionContext(shared, OWN, DONE))
    shared: Any = None
    return lambda bound: _ContextPool(shared, bound)


def test_an_input_for_the_host_is_read_behind_what_writes_it(gpu: Driver) -> None:
    """The caller's stream need not be one that the default stream waits for."""
    context().upload(on_host(), {"x": DeviceTensor(99, np.dtype(np.float32), (4,), 0)}, 5)
    (function, _, pointer, nbytes, stream), waiting = gpu.calls[:2]
    assert (function, pointer, nbytes, stream) == ("cuMemcpyDtoHAsync", 99, 16, 5)
    assert waiting == ("cuStreamSynchronize", 5)


@pytest.mark.parametrize(
    "result", [np.zeros((2, 3), np.float32), np.zeros((2, 2)), np.zeros((2, 2), np.int32), [np.zeros((2, 2))]], ids=str
)
def test_what_the_cpu_made_otherwise_than_expected_goes_nowhere(gpu: Driver, result: np.ndarray) -> None:
    made = context(host=SimpleNamespace(run=lambda call, arrays: {"y": result}))
    made.host_arrays["x"] = np.zeros(4, np.float32)
    with pytest.raises(
        RuntimeException, match=r"made 'y' a (\w+\[.*\]|list) on the CPU, and float32\[2,2\] was expected"
    ):
        made.execute(made.prepare(on_host()), 5, graphs=False)
    assert not [call for call in gpu.calls if call[0] == "cuMemcpyHtoDAsync"]


def test_scratch_is_not_freed_under_work_that_uses_it(gpu: Driver) -> None:
    made = context(scratch_bytes=100)
    made._scratch_for(launching(1))
    gpu.calls.clear()
    made._scratch_for(launching(2))
    assert gpu.calls == [("cuStreamSynchronize", OWN), ("cuEventSynchronize", DONE), ("free", 100), ("allocate", 200)]


def test_closing_waits_for_work_on_the_callers_stream_too(gpu: Driver) -> None:
    context().close()
    assert gpu.calls[:2] == [("cuStreamSynchronize", OWN), ("cuEventSynchronize", DONE)]


def test_memory_that_could_not_grow_is_made_anew(gpu: Driver) -> None:
    """The old one is gone: what needs no more than that must not be given its address."""
    made = context(scratch_bytes=100)
    made._scratch_for(launching(1))
    gpu.most = 150
    with pytest.raises(OutOfMemory, match="making kernel scratch"):
        made._scratch_for(launching(2))
    gpu.calls.clear()
    assert made._scratch_for(launching(1)) == 4096
    assert gpu.calls == [("allocate", 100)]


def test_pinned_memory_that_could_not_grow_is_made_anew(gpu: Driver) -> None:
    made = context()
    made._stage(1000)
    gpu.failing.add("cuMemHostAlloc")
    with pytest.raises(DriverError):
        made._stage(1 << 17)
    gpu.failing.clear()
    assert made._stage(1000).pointer


CAPTURE = ["cuStreamBeginCapture", "cuMemsetD8Async", "cuStreamEndCapture", "cuGraphInstantiate", "cuGraphDestroy"]


def functions(gpu: Driver) -> list[str]:
    """What the driver did, but for waiting and errors."""
    return [function for function, *_ in gpu.calls]


def filling() -> Program:
    return replace(on_host(), calls=(Fill("y"),))


def captured(gpu: Driver) -> list[str]:
    """What is done to run a Program as a CUDA graph for the first time, and then no other error is met."""
    made = context()
    prepared = made.prepare(filling())
    gpu.calls.clear()
    made.execute(prepared, 5, graphs=True)
    return functions(gpu)


def test_a_graph_is_destroyed_once_it_is_instantiated(gpu: Driver) -> None:
    assert captured(gpu) == [*CAPTURE, "cuGraphLaunch"]


@pytest.mark.parametrize(
    ("failing", "done"),
    [
        ("cuMemsetD8Async", ["cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphDestroy"]),
        ("cuGraphInstantiate", ["cuStreamBeginCapture", "cuMemsetD8Async", "cuStreamEndCapture", "cuGraphDestroy"]),
        ("cuStreamEndCapture", ["cuStreamBeginCapture", "cuMemsetD8Async"]),
    ],
)
def test_a_graph_that_comes_to_nothing_is_destroyed(gpu: Driver, failing: str, done: list[str]) -> None:
    gpu.failing.add(failing)
    with pytest.raises(DriverError, match=failing):
        captured(gpu)
    assert functions(gpu) == done


def test_an_error_while_capturing_is_told_as_it_came(gpu: Driver) -> None:
    """It mostly ends the capture, too."""
    gpu.failing.update(("cuMemsetD8Async", "cuStreamEndCapture"))
    with pytest.raises(DriverError, match="cuMemsetD8Async"):
        captured(gpu)


def test_a_context_without_an_event_has_no_stream_either(gpu: Driver) -> None:
    gpu.failing.add("cuEventCreate")
    shared: Any = None
    with pytest.raises(DriverError, match="cuEventCreate"):
        ExecutionContext.create(shared)
    assert functions(gpu) == ["cuStreamCreate", "cuStreamDestroy"]


def test_after_an_error_the_next_run_waits(gpu: Driver, pool: Callable[[int], _ContextPool]) -> None:
    contexts = pool(1)
    with pytest.raises(ValueError, match="no"), contexts.taken(5, reserve=False):
        raise ValueError("no")
    with contexts.taken(6, reserve=False):
        assert gpu.calls == [("cuEventRecord", DONE, 5), ("cuStreamWaitEvent", 6, DONE, 0)]


def test_an_error_of_the_gpu_is_told_as_it_came(gpu: Driver, pool: Callable[[int], _ContextPool]) -> None:
    gpu.failing.add("cuEventRecord")
    with pytest.raises(DriverError, match="cuLaunchKernel"), pool(1).taken(None, reserve=False):
        raise DriverError("cuLaunchKernel", 700, "an illegal address")


def test_no_context_after_closing(gpu: Driver, pool: Callable[[int], _ContextPool]) -> None:
    contexts = pool(1)
    contexts.close()
    with pytest.raises(InvalidArgument, match="the session is closed"), contexts.taken(None, reserve=False):
        pass


def test_who_waits_to_close_keeps_no_context_from_others(gpu: Driver, pool: Callable[[int], _ContextPool]) -> None:
    contexts = pool(2)
    with contexts.taken(None, reserve=False):
        with contexts.taken(None, reserve=False):
            closing, using = _waiting(contexts, contexts.close, _use)
        using.join(5)
        assert not using.is_alive()
        assert closing.is_alive()
    closing.join(5)
    assert not closing.is_alive()


def test_who_waits_for_a_context_learns_that_there_will_be_none(
    gpu: Driver, pool: Callable[[int], _ContextPool]
) -> None:
    contexts = pool(1)
    with contexts.taken(None, reserve=False):
        threads = _waiting(contexts, _use, contexts.close, _use, _use)
    for thread in threads:
        thread.join(5)
    assert not any(thread.is_alive() for thread in threads)


def _use(contexts: _ContextPool) -> None:
    with suppress(InvalidArgument), contexts.taken(None, reserve=False):
        pass


def _waiting(contexts: _ContextPool, *what: Callable[..., None]) -> list[threading.Thread]:
    """Threads that do something with a pool of which nothing is free, and wait for it in this order."""
    threads = []
    for target in what:
        arguments = (contexts,) if target is _use else ()
        threads.append(threading.Thread(target=target, args=arguments, daemon=True))
        threads[-1].start()
        while len(contexts._changed._waiters) < len(threads):  # type: ignore[attr-defined]
            time.sleep(0.001)
    return threads
