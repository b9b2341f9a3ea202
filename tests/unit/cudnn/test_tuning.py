"""Choosing by measuring: what is measured and remembered, and that nothing is measured twice. Times are made up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import harness
from gossamer import InferenceSession, engines, settings
from gossamer.build.programs import trial
from gossamer.cudnn import DeviceProperties, loader
from gossamer.cudnn.loader import Library, State
from gossamer.cudnn.plan_cache import Planned, Task
from gossamer.errors import CudnnError, PlanError
from gossamer.model.node import Constants, Node, Scope
from gossamer.place import CUDA, Placement, place
from gossamer.program import Call, CudnnCall, Launch, Program, Target, Unavailable
from gossamer.providers.cudnn import Policy, graphs, tuning
from gossamer.providers.cudnn.tuning import NATIVE, Tuner, Way, fastest

ir = pytest.importorskip("onnx_ir")
SM_90 = Target.named("sm_90")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of its own, and a cuDNN with two engines for every graph of one convolution."""

    def planned(task: Task, _: DeviceProperties, most: int = 1) -> tuple[Planned, ...]:
        if "RUNTIME_COMPILATION" in task.require:
            raise PlanError("NOT_SUPPORTED", "no engine")
        return tuple(Planned(b"plan", f"engine {7 + i} (A, {i})") for i in range(min(most, 2)))

    monkeypatch.setattr(graphs, "planned", planned)
    monkeypatch.setattr(graphs, "properties_of", lambda _: DeviceProperties.named("sm_90"))
    library = Library(State.AVAILABLE, version=92801, lacking=frozenset())
    with settings.override(CACHE_DIR=tmp_path), loader.forced(library):
        yield tmp_path


class Clock:
    """Seconds by what calls are: engine's place in the order, or native."""

    def __init__(self, native: float, *engines: float) -> None:
        self.native, self.engines = native, engines
        self.measured: list[tuple[Call, ...]] = []

    def seconds_of(self, node: Node, calls: tuple[Call, ...]) -> float:
        self.measured.append(calls)
        if not any(isinstance(call, CudnnCall) for call in calls):
            return self.native
        return self.engines[(len(self.measured) - 1) % len(self.engines)]


def model(size: int = 8) -> object:
    x, w = np.zeros((1, 8, size, size), np.float16), np.zeros((8, 8, 3, 3), np.float16)
    made = harness.node_model("Conv", [x, w], constants=(1,))
    return ir.serde.deserialize_model(made)


def placed(clock: Clock, target: Target = SM_90, size: int = 8, device: str = "a GPU", **policy: object) -> Placement:
    graph = model(size)
    constants = Constants()
    for name, value in graph.graph.initializers.items():
        constants.register(name, value.const_value)
    scope = Scope(constants, dict(graph.opset_imports))
    how = Policy(True, search="EXHAUSTIVE", tuner=Tuner(device, clock.seconds_of), **policy)  # type: ignore[arg-type]
    return place(graph, [CUDA], target, scope, policy=how)


def runs_natively(placement: Placement) -> bool:
    (node,) = placement.nodes
    return all(isinstance(call, Launch) for call in node.calls)


def test_the_native_kernels_win() -> None:
    clock = Clock(1e-6, 2e-6, 3e-6)
    placement = placed(clock)
    assert runs_natively(placement)
    assert len(clock.measured) == 3
    assert "measured: the native kernels 1.0 µs, cuDNN alone, engine" in str(placement)


def test_cudnn_wins_and_its_plan_is_taken() -> None:
    placement = placed(Clock(9e-6, 4e-6))
    (call,) = placement.nodes[0].calls
    assert isinstance(call, CudnnCall)
    assert call.origin.op_type == "Conv"
    assert "Conv 'node', through cuDNN" in str(placement)


def test_remembered() -> None:
    """A second process measures nothing: it takes the same way."""
    for first in (Clock(1e-6, 2e-6), Clock(9e-6, 4e-6)):
        tuning.path().unlink(missing_ok=True)
        before = placed(first)
        again = Clock(5e-6, 5e-6)
        after = placed(again)
        assert not again.measured
        assert before.nodes[0].calls == after.nodes[0].calls
        assert "measured before" in str(after)


def test_what_a_measurement_depends_on() -> None:
    placed(Clock(1e-6, 2e-6))
    for changed in (
        {"size": 9},
        {"device": "another GPU"},
        {"target": SM_90.with_tf32(False)},
        {"target": SM_90.with_deterministic(True)},
    ):
        clock = Clock(1e-6, 2e-6)
        placed(clock, **changed)  # type: ignore[arg-type]
        assert clock.measured, changed
    with loader.forced(Library(State.AVAILABLE, version=91900, lacking=frozenset())):
        clock = Clock(1e-6, 2e-6)
        placed(clock)
        assert clock.measured


@pytest.mark.parametrize(
    "damaged",
    [b"", b"{", b"[]", b"\xff\xfe", b'{"format": 1, "entries": []}', b'{"format": 99, "entries": {}}', "entry"],
    ids=lambda held: repr(held)[:20],
)
def test_a_damaged_cache_is_made_anew(damaged: bytes | str) -> None:
    placed(Clock(1e-6, 2e-6))
    whole = json.loads(tuning.path().read_text())
    if damaged == "entry":
        whole["entries"] = {key: {"way": 3} for key in whole["entries"]}
        damaged = json.dumps(whole).encode()
    assert isinstance(damaged, bytes)
    tuning.path().write_bytes(damaged)
    clock = Clock(1e-6, 2e-6)
    placed(clock)
    assert clock.measured
    entries = json.loads(tuning.path().read_text())["entries"]
    assert [entry["way"] for entry in entries.values()] == [NATIVE]


def test_a_remembered_way_that_is_gone_is_measured_again() -> None:
    placed(Clock(9e-6, 4e-6))
    held = json.loads(tuning.path().read_text())
    for entry in held["entries"].values():
        entry["way"] = "cuDNN alone, engine 99 (A, 5)"
    tuning.path().write_text(json.dumps(held))
    clock = Clock(1e-6, 2e-6)
    assert runs_natively(placed(clock))
    assert len(clock.measured) == 3


def test_a_cache_that_cannot_be_written(elsewhere: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is said, and nothing else happens: a file stands where the folder should be."""
    (elsewhere / "file").write_text("")
    with settings.override(CACHE_DIR=elsewhere / "file"), caplog.at_level("WARNING", "gossamer"):
        assert runs_natively(placed(Clock(1e-6, 2e-6)))
    assert "cannot be" in caplog.text


def test_nothing_is_left_behind(elsewhere: Path) -> None:
    placed(Clock(1e-6, 2e-6))
    assert [file.name for file in elsewhere.iterdir()] == ["tuning.json"]


def test_only_cudnn() -> None:
    """Where a node must run through cuDNN, native kernels are not among the ways. (R7)"""
    clock = Clock(1e-6, 4e-6, 3e-6)
    placement = placed(clock, only=("Conv",))
    assert len(clock.measured) == 2
    assert not runs_natively(placement)


def test_only_cudnn_and_all_ways_are_remembered_apart() -> None:
    assert runs_natively(placed(Clock(1e-6, 2e-6)))
    assert not runs_natively(placed(Clock(1e-6, 2e-6), only=("Conv",)))
    clock = Clock(9e-6, 9e-6)
    assert runs_natively(placed(clock))
    assert not clock.measured


class Failing(Clock):
    """Engines that plan and do not run."""

    def seconds_of(self, node: Node, calls: tuple[Call, ...]) -> float:
        if any(isinstance(call, CudnnCall) for call in calls):
            raise CudnnError("cudnnBackendExecute", 5000, "CUDNN_STATUS_EXECUTION_FAILED")
        return super().seconds_of(node, calls)


def test_ways_that_do_not_run() -> None:
    assert runs_natively(placed(Failing(1e-6)))
    tuning.path().unlink()
    (call,) = placed(Failing(1e-6), only=("Conv",)).nodes[0].calls
    assert isinstance(call, Unavailable)
    assert "EXECUTION_FAILED" in call.reason


def test_without_a_device_heuristics_choose() -> None:
    graph = model(size=24)
    scope = Scope(Constants(), dict(graph.opset_imports))
    placement = place(graph, [CUDA], SM_90, scope, policy=Policy(True, search="EXHAUSTIVE"))
    assert isinstance(placement.nodes[0].calls[0], CudnnCall)
    assert placement.nodes[0].choice == ""


def test_what_follows_a_remembered_way_is_never_made() -> None:
    graph = model()
    node = Node(next(iter(graph.graph)), Scope(Constants(), dict(graph.opset_imports)))

    def ways(stop: bool) -> Iterator[Way]:
        yield Way("first", ())
        assert not stop, "made for nothing"
        yield Way("second", ())

    tuner = Tuner("a GPU", lambda node, calls: 1e-6)
    fastest(node, SM_90, ways(stop=False), tuner, native=True)
    fastest(node, SM_90, ways(stop=True), tuner, native=True)


def test_trials() -> None:
    """A Program of one node's calls, several times over, whose inputs are the node's and whose weights stay weights."""
    graph = model()
    constants = Constants()
    for name, value in graph.graph.initializers.items():
        constants.register(name, value.const_value)
    node = Node(next(iter(graph.graph)), Scope(constants, dict(graph.opset_imports)))
    for way in (NATIVE, "cuDNN"):
        policy = Policy(enabled=way != NATIVE)
        (placed_node,) = place(graph, [CUDA], SM_90, node._scope, policy=policy).nodes
        program = trial(node, placed_node.calls, SM_90, repeats=3)
        assert program.inputs == ("x0",)
        assert program.outputs == ("y0",)
        assert len(program.calls) == 3 * len(placed_node.calls)
        assert program.weights


class FakeGpu:
    """An executor with a clock: native launches take 2 µs each, a plan 1 µs."""

    def __init__(self) -> None:
        self.device = SimpleNamespace(name="a GPU that is not there")
        self.trials: list[Program] = []

    def seconds_of(self, program: Program) -> float:
        self.trials.append(program)
        return sum(1e-6 if isinstance(call, CudnnCall) else 2e-6 for call in program.calls)

    def close(self) -> None: ...

    def active(self) -> AbstractContextManager[None]:
        return nullcontext()


def test_sessions_measure_on_their_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    """`cudnn_conv_algo_search` reaches the device, and each measurement is one of many runs."""
    gpu = FakeGpu()
    monkeypatch.setattr(engines, "target_of", lambda _: SM_90)
    monkeypatch.setattr(engines, "executor_for", lambda *_: gpu)
    x, w = np.zeros((1, 8, 8, 8), np.float16), np.zeros((8, 8, 3, 3), np.float16)
    model = harness.node_model("Conv", [x, w], constants=(1,)).SerializeToString()
    for search, measured in (("HEURISTIC", 0), ("EXHAUSTIVE", 3)):
        gpu.trials.clear()
        session = InferenceSession(model, providers=[(CUDA, {"device": "null", "cudnn_conv_algo_search": search})])
        report = str(session.placement())
        assert len(gpu.trials) == measured
        assert ("measured: cuDNN" in report) == bool(measured)
    assert all(len(program.calls) % 10 == 0 for program in gpu.trials)
    (call,) = session.placement().nodes[0].calls
    assert isinstance(call, CudnnCall)
