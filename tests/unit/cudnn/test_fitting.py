"""Plans made elsewhere: what is asked of cuDNN about them, and what is made anew. Without cuDNN."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from cudnn_plan_records import RECORD, backend
from gossamer.cudnn import DeviceProperties, fitting, loader, plan_format
from gossamer.cudnn.builder import GraphBuilder
from gossamer.cudnn.loader import Library, State
from gossamer.cudnn.plan_cache import Planned, Task
from gossamer.errors import NotFound, PlanError
from gossamer.program import Arena, Buffer, Call, CudnnCall, Fill, Pointer, Program, Target

H200 = DeviceProperties.named("h200")
HERE = Library(State.AVAILABLE, version=92801, lacking=frozenset())
OURS = plan_format.encode(RECORD)


def plan_of(version: int) -> bytes:
    return plan_format.encode(replace(RECORD, backend=plan_format.read_backend_plan(backend(cudnnVersion=version))))


def task(channels: int = 8) -> Task:
    graph = GraphBuilder()
    x, w = graph.tensor("x", (1, channels, 4, 4), "float16"), graph.tensor("w", (8, channels, 1, 1), "float16")
    graph.output(graph.convolution(x, w), name="y")
    return Task.of(graph, ("A",))


@dataclass
class Cudnn:
    """What was asked of it. refused: why it restores nothing."""

    restored: list[bytes] = field(default_factory=list)
    planned: list[Task] = field(default_factory=list)
    refused: str = ""

    def close(self) -> None: ...


@pytest.fixture
def cudnn(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cudnn]:
    asked = Cudnn()

    class Graph:
        def __init__(self, *, properties: DeviceProperties) -> None:
            assert properties == H200

        def deserialize(self, plan: bytes) -> Cudnn:
            asked.restored.append(plan)
            if asked.refused:
                raise PlanError(asked.refused, "said cuDNN")
            return asked

    def planned(given: Task, properties: DeviceProperties) -> tuple[Planned, ...]:
        assert properties == H200
        if given == task(3):
            raise PlanError("NOT_SUPPORTED", "three channels")
        asked.planned.append(given)
        return Planned(b"made anew", "engine 1"), Planned(b"worse", "engine 2")

    monkeypatch.setattr(fitting, "Graph", Graph)
    monkeypatch.setattr(fitting, "planned", planned)
    with loader.forced(HERE):
        yield asked


def call(plan: bytes = OURS, channels: int = 8, routine: str = "graph", description: str = "") -> CudnnCall:
    memory = ("x", Pointer("x")), ("y", Pointer("x"))
    return CudnnCall(routine, description or task(channels).description, memory, ("x",), ("x",), plan)


def plans(*calls: Call) -> list[bytes]:
    """Of the calls of the Program after it was fitted; all else is as it was."""
    buffers = {"x": Buffer("x", "float16", (8,))}
    program = Program("p", Target.named("h200"), ("x",), ("x",), buffers, {"x": Arena(0)}, calls, 256, 256)
    fitted = fitting.fitted(program, H200)
    assert (fitted.name, fitted.buffers, fitted.arena_bytes) == (program.name, program.buffers, program.arena_bytes)
    for before, after in zip(calls, fitted.calls, strict=True):
        same = replace(after, plan=before.plan) if isinstance(before, CudnnCall) else after  # type: ignore[call-arg]
        assert before == same
    return [made.plan for made in fitted.calls if isinstance(made, CudnnCall)]


def test_a_plan_that_is_taken_stays(cudnn: Cudnn) -> None:
    assert plans(Fill("x"), call()) == [OURS]
    assert cudnn.restored == [OURS]
    assert not cudnn.planned


@pytest.mark.parametrize("version", [92800, 91900, 93000])
def test_one_of_another_version_is_made_anew_without_asking(cudnn: Cudnn, version: int) -> None:
    assert plans(call(plan_of(version))) == [b"made anew"]
    assert not cudnn.restored
    assert cudnn.planned == [task()]


@pytest.mark.parametrize("reason", ["ARCH_MISMATCH", "DRIVER_MISMATCH", "CORRUPT", "NOT_SUPPORTED"])
def test_one_that_is_refused_is_made_anew(cudnn: Cudnn, reason: str) -> None:
    cudnn.refused = reason
    assert plans(call()) == [b"made anew"]


def test_bytes_without_a_plan_get_one(cudnn: Cudnn) -> None:
    assert plans(call(plan_format.encode(replace(RECORD, backend=None)))) == [b"made anew"]


def test_each_plan_is_asked_about_once(cudnn: Cudnn) -> None:
    other = plan_of(91900)
    assert plans(call(), call(other), call(), call(other, channels=16)) == [OURS, b"made anew", OURS, b"made anew"]
    assert cudnn.restored == [OURS]
    assert cudnn.planned == [task(), task(16)]


def test_that_there_is_no_plan_is_an_error(cudnn: Cudnn) -> None:
    with pytest.raises(PlanError, match="three channels"):
        plans(call(plan_of(91900), channels=3))


POOL = json.dumps({"x": {"dtype": "float16"}})
LAYER = json.dumps({"dtype": "bfloat16"})


def test_routines_of_the_other_api_have_no_plans(cudnn: Cudnn) -> None:
    assert plans(call(b"", routine="pooling", description=POOL)) == [b""]
    assert plans(call(b"", routine="recurrent", description=LAYER)) == [b""]
    assert not cudnn.restored
    assert not cudnn.planned


@pytest.mark.parametrize(
    ("routine", "description", "library", "text"),
    [
        (
            "pooling",
            POOL,
            replace(HERE, lacking=frozenset({"cudnnPoolingForward"})),
            "9.28.1 has no cudnnPoolingForward",
        ),
        ("lrn", POOL, replace(HERE, lacking=frozenset({"cudnnLRNCrossChannelForward"})), "cudnnLRNCrossChannelForward"),
        ("recurrent", LAYER, replace(HERE, version=90800), "cuDNN 9.8.0 has no recurrent layers of bfloat16"),
    ],
)
def test_routines_that_a_cudnn_does_not_have(routine: str, description: str, library: Library, text: str) -> None:
    with loader.forced(library), pytest.raises(PlanError, match=text):
        plans(call(b"", routine=routine, description=description))


def test_an_unknown_routine(cudnn: Cudnn) -> None:
    with pytest.raises(NotFound, match="graph, batch_normalization"):
        plans(call(b"", routine="of a later version", description="{}"))
