"""The memory planner: no buffer is overwritten while it is needed, and the arena is hardly larger than it must be.

The oracle executes a plan on real bytes: every call checks that what it reads is what was written, then writes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.program import (
    ARENA_ALIGNMENT,
    Arena,
    Buffer,
    Call,
    Copy,
    Fill,
    Host,
    HostCall,
    Kernel,
    Launch,
    MemoryPlan,
    View,
    Weight,
    plan_memory,
)

KERNEL = Kernel("tests.kernel", (), ())


@dataclass
class Machine:
    """A program under construction: bytes of each buffer, and the calls so far."""

    buffers: dict[str, Buffer] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    weights: dict[str, str] = field(default_factory=dict)

    def buffer(self, name: str, nbytes: int) -> str:
        self.buffers[name] = Buffer(name, "uint8", (nbytes,))
        return name

    def launch(self, reads: Sequence[str], writes: Sequence[str], inplace: Sequence[tuple[str, str]] = ()) -> None:
        self.calls.append(Launch(KERNEL, (1, 1, 1), (), tuple(reads), tuple(writes), tuple(inplace)))

    def plan(self) -> MemoryPlan:
        return plan_memory(self.buffers, self.calls, self.inputs, self.outputs, self.weights)


@dataclass
class Memory:
    """Executes calls by a plan. `expected`: what each buffer holds if nothing else got in its way."""

    machine: Machine
    plan: MemoryPlan

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.arena = self._noise(self.plan.arena_bytes)
        self.host: dict[str, np.ndarray] = {}
        self.constants = {key: self._noise(self.machine.buffers[n].nbytes) for n, key in self.machine.weights.items()}
        self.expected = {name: self.constants[key].copy() for name, key in self.machine.weights.items()}

    def _noise(self, nbytes: int) -> np.ndarray:
        return self.random.integers(0, 256, nbytes, np.uint8)

    def bytes_of(self, name: str) -> np.ndarray:
        place, nbytes = self.plan.locations[name], self.machine.buffers[name].nbytes
        match place:
            case Arena():
                assert place.offset % 16 == 0, "kernels are compiled for pointers that are divisible by 16"
                assert place.offset + nbytes <= self.plan.arena_bytes
                return self.arena[place.offset :][:nbytes]
            case Weight():
                return self.constants[place.key][place.offset :][:nbytes]
            case Host():
                return self.host.setdefault(name, self._noise(nbytes))

    def write(self, name: str, content: np.ndarray) -> None:
        self.bytes_of(name)[:] = content
        self.expected[name] = content.copy()

    def check(self, name: str) -> None:
        np.testing.assert_array_equal(self.bytes_of(name), self.expected[name], err_msg=f"{name} was overwritten")

    def execute(self) -> None:
        for name in self.machine.inputs:
            self.write(name, self._noise(self.machine.buffers[name].nbytes))
        for call in self.machine.calls:
            for name in call.reads:
                self.check(name)
            self._step(call)
            for name in call.writes:  # nor may one output of a call lie on another
                self.check(name)
        for name in (*self.machine.outputs, *self.machine.weights):
            self.check(name)

    def _step(self, call: Call) -> None:
        match call:
            case Launch() | HostCall():
                for name in call.writes:
                    self.write(name, self._noise(self.machine.buffers[name].nbytes))
            case Copy():
                part = self.expected[call.source][call.source_offset :][: call.nbytes].copy()
                if call.out not in self.expected:
                    self.write(call.out, self._noise(self.machine.buffers[call.out].nbytes))
                self.check(call.out)  # the rest of it
                self.bytes_of(call.out)[call.out_offset :][: call.nbytes] = part
                self.expected[call.out][call.out_offset :][: call.nbytes] = part
            case Fill():
                self.write(call.out, np.full(self.machine.buffers[call.out].nbytes, call.byte, np.uint8))
            case View():
                nbytes = self.machine.buffers[call.out].nbytes
                self.expected[call.out] = self.expected[call.source][call.offset :][:nbytes].copy()


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """Programs of up to 24 calls over buffers of up to 2000 bytes. Every buffer is written before it is read."""
    machine, names = Machine(), (f"b{i}" for i in itertools.count())
    sizes = st.integers(0, 2000)
    made: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        made.append(machine.buffer(next(names), draw(sizes)))
        machine.inputs.append(made[-1])
    for _ in range(draw(st.integers(0, 2))):
        made.append(machine.buffer(next(names), draw(sizes)))
        machine.weights[made[-1]] = f"key of {made[-1]}"
    for _ in range(draw(st.integers(1, 24))):
        made += _draw_call(draw, machine, names, made)
    machine.outputs = draw(st.lists(st.sampled_from(made), min_size=1, max_size=3, unique=True))
    return machine


def _draw_call(draw: st.DrawFn, machine: Machine, names: itertools.count[str], made: list[str]) -> list[str]:
    """Adds one call; the buffers that it makes."""
    source = draw(st.sampled_from(made))
    nbytes = machine.buffers[source].nbytes
    match draw(st.sampled_from(("launch", "launch", "launch", "view", "copy", "fill", "host"))):
        case "view":
            offset = 16 * draw(st.integers(0, nbytes // 16))
            out = machine.buffer(next(names), draw(st.integers(0, nbytes - offset)))
            machine.calls.append(View(source, out, offset))
        case "copy":
            offset = draw(st.integers(0, nbytes))
            size = draw(st.integers(0, nbytes - offset))
            out = machine.buffer(next(names), size + draw(st.integers(0, 500)))
            machine.calls.append(Copy(source, out, size, offset, machine.buffers[out].nbytes - size))
        case "fill":
            out = machine.buffer(next(names), draw(st.integers(0, 2000)))
            machine.calls.append(Fill(out, 7))
        case "host":
            reads = draw(st.lists(st.sampled_from(made), max_size=2, unique=True))
            out = machine.buffer(next(names), draw(st.integers(0, 2000)))
            machine.calls.append(HostCall(b"", tuple(reads), (out,)))
        case _:
            return _draw_launch(draw, machine, names, made)
    return [out]


def _draw_launch(draw: st.DrawFn, machine: Machine, names: itertools.count[str], made: list[str]) -> list[str]:
    """A launch with one or two outputs, each of which may claim to be written over one of the inputs."""
    reads = draw(st.lists(st.sampled_from(made), min_size=1, max_size=3, unique=True))
    outputs, inplace = [], []
    for _ in range(draw(st.integers(1, 2))):
        over = draw(st.sampled_from((None, *reads)))
        nbytes = draw(st.integers(0, 2000)) if over is None else machine.buffers[over].nbytes
        outputs.append(machine.buffer(next(names), nbytes))
        if over is not None:
            inplace.append((outputs[-1], over))
    machine.launch(reads, outputs, inplace)
    return outputs


@settings(deadline=None, max_examples=200)
@given(machines())
def test_nothing_is_overwritten_while_it_is_needed(machine: Machine) -> None:
    plan = machine.plan()
    Memory(machine, plan).execute()
    assert set(plan.locations) == set(machine.buffers)
    assert plan.arena_bytes % ARENA_ALIGNMENT == 0
    assert plan.lower_bound_bytes <= plan.arena_bytes


@settings(deadline=None, max_examples=20)
@given(machines())
def test_planning_is_deterministic(machine: Machine) -> None:
    assert machine.plan() == machine.plan()


def chain(nbytes: int, *, inplace: bool) -> Machine:
    """x → a → b → y, each made from the one before."""
    machine = Machine(inputs=["x"], outputs=["y"])
    for name in "xaby":
        machine.buffer(name, nbytes)
    for source, out in itertools.pairwise("xaby"):
        machine.launch([source], [out], [(out, source)] if inplace else [])
    return machine


def test_a_chain_needs_two_buffers_or_one_in_place() -> None:
    two, one = chain(1024, inplace=False).plan(), chain(1024, inplace=True).plan()
    assert (two.arena_bytes, two.lower_bound_bytes) == (2048, 2048)
    assert (one.arena_bytes, one.lower_bound_bytes) == (1024, 1024)
    assert len(set(one.locations.values())) == 1


def test_an_input_that_is_read_later_is_not_written_over() -> None:
    machine = chain(1024, inplace=True)
    machine.buffer("z", 1024)
    machine.launch(["a", "y"], ["z"])
    machine.outputs = ["z"]
    locations = machine.plan().locations
    assert locations["b"] != locations["a"] == locations["x"]


def test_an_output_of_the_model_is_not_written_over() -> None:
    machine = chain(1024, inplace=True)
    machine.outputs = ["y", "a"]
    locations = machine.plan().locations
    assert locations["b"] != locations["a"]


def test_a_constant_is_never_written_over() -> None:
    machine = Machine(outputs=["y"], weights={"w": "weight"})
    machine.buffer("w", 512)
    machine.buffer("y", 512)
    machine.launch(["w"], ["y"], [("y", "w")])
    locations = machine.plan().locations
    assert locations["w"] == Weight("weight")
    assert isinstance(locations["y"], Arena)


def test_shifted_views_of_one_buffer_are_not_written_over_each_other() -> None:
    """y = x[:-1] + x[1:]: writing y over the first view would change what other programs read through the second."""
    machine = Machine(inputs=["x"], outputs=["y"])
    machine.buffer("x", 4096)
    for name, offset in (("a", 0), ("b", 1024)):
        machine.calls.append(View("x", machine.buffer(name, 3072), offset))
    machine.buffer("y", 3072)
    machine.launch(["a", "b"], ["y"], [("y", "a")])
    x, y = machine.plan().locations["x"], machine.plan().locations["y"]
    assert isinstance(x, Arena)
    assert isinstance(y, Arena)
    assert abs(x.offset - y.offset) >= 3072


def test_disjoint_views_of_one_buffer_allow_it() -> None:
    """y = x[:n] · σ(x[n:]), a gated unit: nothing is read twice."""
    machine = Machine(inputs=["x"], outputs=["y"])
    machine.buffer("x", 2048)
    for name, offset in (("a", 0), ("b", 1024)):
        machine.calls.append(View("x", machine.buffer(name, 1024), offset))
    machine.launch(["a", "b"], [machine.buffer("y", 1024)], [("y", "a")])
    assert machine.plan().arena_bytes == 2048


def test_two_outputs_of_a_launch_do_not_share_even_if_one_is_never_read() -> None:
    machine = Machine(inputs=["x"], outputs=["y"])
    for name in ("x", "unused", "y"):
        machine.buffer(name, 1024)
    machine.launch(["x"], ["unused", "y"], [("unused", "x"), ("y", "x")])
    locations = machine.plan().locations
    assert locations["unused"] != locations["y"]


def test_views_share_memory_and_keep_it_alive() -> None:
    machine = Machine(inputs=["x"], outputs=["late"])
    for name, nbytes in (("x", 4096), ("tail", 1024), ("other", 4096), ("late", 1024)):
        machine.buffer(name, nbytes)
    machine.calls.append(View("x", "tail", 3072))
    machine.launch(["x"], ["other"])
    machine.launch(["other", "tail"], ["late"])
    locations = machine.plan().locations
    x, tail, other = locations["x"], locations["tail"], locations["other"]
    assert isinstance(x, Arena)
    assert isinstance(other, Arena)
    assert tail == Arena(x.offset + 3072)
    assert abs(x.offset - other.offset) >= 4096


def test_a_view_of_a_constant_is_an_offset_into_it() -> None:
    machine = Machine(outputs=["y"], weights={"w": "weight"})
    machine.buffer("w", 512)
    machine.calls.append(View("w", machine.buffer("row", 128), 256))
    machine.launch(["row"], [machine.buffer("y", 128)])
    assert machine.plan().locations["row"] == Weight("weight", 256)


def test_what_only_the_host_touches_stays_there() -> None:
    machine = Machine(inputs=["indices", "x"], outputs=["y"])
    for name in ("indices", "x", "counts", "y"):
        machine.buffer(name, 64)
    machine.buffers["found"] = Buffer("found", "int64", (), dynamic=True)
    machine.calls.append(HostCall(b"", ("indices",), ("found", "counts")))
    machine.calls.append(HostCall(b"", ("found",), ("y",)))
    machine.launch(["x", "counts"], [machine.buffer("z", 64)])
    locations = machine.plan().locations
    assert {name for name, place in locations.items() if place == Host()} == {"indices", "found", "y"}


@pytest.mark.models
@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("light_resnet50", {"gpu_0/data_0": (1, 3, 224, 224)}),
        ("ppocr_v4_det", {"x": (1, 3, 320, 480)}),
        ("ppocr_v4_rec", {"x": (1, 3, 48, 320)}),
        ("ppocr_v2_cls", {"x": (6, 3, 48, 192)}),
        ("ppocr_v6_det_tiny", {"x": (1, 3, 320, 480)}),
    ],
)
def test_arenas_of_real_models_are_near_the_lower_bound(
    name: str, shapes: dict[str, tuple[int, ...]], model_path: Callable[[str], Path]
) -> None:
    from gossamer.engines import DeviceEngine
    from gossamer.options import CompileOptions, CudaOptions

    engine = DeviceEngine(
        str(model_path(name)), CudaOptions(device="null", target="sm_90"), CompileOptions(), cpu_listed=True
    )
    program = engine.compiled(shapes).program
    assert 0 < program.lower_bound_bytes <= program.arena_bytes <= 1.2 * program.lower_bound_bytes


def test_places_come_in_the_same_order_in_every_process() -> None:
    """Compiled files list them, and the same model gives the same bytes: no order of a set of texts is left in it."""
    machine = Machine()
    names = [machine.buffer(f"t{i:02}", 4) for i in range(40)]
    machine.inputs, machine.outputs = names[:20], names[20:]
    machine.calls.append(HostCall(b"", tuple(names[:20]), tuple(names[20:])))
    assert list(machine.plan().locations) == names
