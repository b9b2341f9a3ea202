"""What an execution context does for routines of cuDNN: workspaces, and weights in cuDNN's own arrangement. A routine
and a driver that only remember what they were asked for stand in for both libraries."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from gossamer.cudnn.routines import PackingRoutine, Piece
from gossamer.errors import OutOfMemory
from gossamer.program import CudnnCall, Pointer
from gossamer.run import cudnn, driver
from gossamer.run.cudnn import CudnnStep, CudnnSteps

STREAM = 7


@dataclass
class Machine:
    """The driver: memory by address, and copies as (target, source, bytes, stream)."""

    live: dict[int, int] = field(default_factory=dict)
    copies: list[tuple[int, int, int, int]] = field(default_factory=list)
    most: int = 1 << 40
    made: int = 0

    def allocate(self, nbytes: int, *_: Any, **__: Any) -> driver.DeviceMemory:
        if sum(self.live.values()) + nbytes > self.most:
            raise OutOfMemory(nbytes, 0, 0, self.most, "")
        self.made += 1
        self.live[self.made << 20] = nbytes
        return Memory(self, self.made << 20, nbytes)  # type: ignore[return-value]

    def call(self, function: str, *arguments: Any, doing: str) -> None:
        assert function == "cuMemcpyDtoDAsync"
        self.copies.append(arguments)


@dataclass
class Memory:
    machine: Machine
    pointer: int
    nbytes: int

    def close(self) -> None:
        del self.machine.live[self.pointer]


class Fake:
    """A routine that needs a workspace, and packs w if its description says so."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.workspace_bytes = settings["workspace"]
        self.executed: list[tuple[Mapping[str, int], int]] = []
        self.closed = False

    def execute(self, handle: Handle, pointers: Mapping[str, int], workspace: int) -> None:
        assert handle.stream == STREAM
        self.executed.append((dict(pointers), workspace))

    def close(self) -> None:
        self.closed = True


class Packing(Fake):
    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self.packed_bytes, self.fixed = 1000, settings["fixed"]
        self.pieces = (Piece("w", 0, 600, 400), Piece("w", 400, 0, 600))


class Handle:
    stream = 0

    def close(self) -> None: ...


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(driver, "allocate", made.allocate)
    monkeypatch.setattr(driver, "call", made.call)
    return made


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Fake]:
    routines: list[Fake] = []

    def open_routine(routine: str, description: str, handle: Handle, plan: bytes) -> Fake:
        settings = json.loads(description)
        routines.append(Packing(settings) if "fixed" in settings else Fake(settings))
        return routines[-1]

    monkeypatch.setattr(cudnn, "open_routine", open_routine)
    monkeypatch.setattr(cudnn, "Handle", Handle)
    monkeypatch.setattr(cudnn.prerequisites, "prepare", lambda: None)
    return routines


@pytest.fixture
def steps(machine: Machine, opened: list[Fake]) -> Iterator[CudnnSteps]:
    made = CudnnSteps(0, driver.Ledger())
    yield made
    made.close()
    assert not machine.live, "memory that nobody gave back"


def prepare(steps: CudnnSteps, *, w: int = 4096, **settings: Any) -> CudnnStep:
    description = json.dumps({"workspace": 0} | settings)
    arguments = ("x", Pointer("x")), ("w", Pointer("w", 16))
    call = CudnnCall("fake", description, arguments, ("x", "w"), ())
    return steps.prepare(call, {"x": 256, "w": w}.__getitem__)


def test_constants_are_packed_once(steps: CudnnSteps, machine: Machine, opened: list[Fake]) -> None:
    """By the first run, on its stream."""
    step = prepare(steps, fixed=True)
    assert isinstance(step.routine, PackingRoutine)
    assert not machine.copies
    (packed,) = machine.live
    for _ in range(3):
        step.enqueue(STREAM)
    assert machine.copies == [(packed + 600, 4112, 400, STREAM), (packed, 4512, 600, STREAM)]
    assert opened[0].executed == [({"x": 256, "w": 4112, "packed": packed}, 0)] * 3


def test_what_was_packed_is_shared(steps: CudnnSteps, machine: Machine) -> None:
    """By signatures of one model, and after one of them was dropped."""
    first, second = prepare(steps, fixed=True), prepare(steps, fixed=True)
    first.enqueue(STREAM)
    first.close()
    second.enqueue(STREAM)
    assert len(machine.live) == 1
    assert len(machine.copies) == 2
    prepare(steps, fixed=True, w=8192).enqueue(STREAM)
    assert len(machine.live) == 2
    assert len(machine.copies) == 4


def test_weights_that_change_are_packed_by_every_run(steps: CudnnSteps, machine: Machine) -> None:
    first, second = prepare(steps, fixed=False), prepare(steps, fixed=False)
    for step in (first, second, first):
        step.enqueue(STREAM)
    assert len(machine.copies) == 6
    assert len(machine.live) == 2
    first.close()
    first.close()
    assert len(machine.live) == 1
    second.close()


def test_one_workspace_for_all(steps: CudnnSteps, machine: Machine, opened: list[Fake]) -> None:
    """The largest that was asked for; those that captured graphs may hold stay until the end."""
    made = [prepare(steps, workspace=nbytes) for nbytes in (100, 300, 200, 0)]
    for step in made:
        step.enqueue(STREAM)
    assert sorted(machine.live.values()) == [100, 300]
    (largest,) = (pointer for pointer, nbytes in machine.live.items() if nbytes == 300)
    assert [routine.executed[0][1] for routine in opened] == [largest, largest, largest, 0]


@pytest.mark.parametrize("settings", [{"workspace": 2000}, {"fixed": True}, {"fixed": False}], ids=str)
def test_a_routine_is_closed_where_there_is_no_memory_for_it(
    steps: CudnnSteps, machine: Machine, opened: list[Fake], settings: dict[str, Any]
) -> None:
    machine.most = 500
    with pytest.raises(OutOfMemory):
        prepare(steps, **settings)
    assert opened[0].closed
