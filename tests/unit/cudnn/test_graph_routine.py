"""The routine that runs plans: what it does with bytes that are refused, and how often it binds. Without cuDNN."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gossamer.cudnn.builder import GraphBuilder
from gossamer.cudnn.plan_cache import Task
from gossamer.cudnn.routines import graph as routine
from gossamer.cudnn.routines import open_routine
from gossamer.errors import PlanError


class Plan:
    """Notes what is done to it."""

    workspace_size = 64

    def __init__(self) -> None:
        self.done: list[Any] = []

    def bind(self, pointers: dict[str, int], workspace: int | None) -> Plan:
        self.done.append(("bind", dict(pointers), workspace))
        return self

    def execute(self, handle: Any) -> None:
        self.done.append("execute")

    def close(self) -> None:
        self.done.append("close")


def task() -> Task:
    graph = GraphBuilder()
    x, w = graph.tensor("x", (1, 8, 4, 4), "float16"), graph.tensor("w", (8, 8, 1, 1), "float16")
    graph.output(graph.convolution(x, w), name="y")
    return Task.of(graph, ("A",), ("TENSOR_CORE", "FFT"))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Plan]]:
    """Plans that were restored, and those that were built; what is restored is as a test says."""
    plans: dict[str, list[Plan]] = {"restored": [], "built": []}

    class Graph:
        def __init__(self, *, properties: Any, handle: Any) -> None:
            assert properties == f"of {handle}"

        def deserialize(self, plan: bytes) -> Plan:
            if plan.isupper():
                raise PlanError(plan.decode(), "said cuDNN")
            plans["restored"].append(Plan())
            return plans["restored"][-1]

    def build(self: Task, **_: Any) -> Iterator[Plan]:
        assert self == task()
        plans["built"].append(Plan())
        yield plans["built"][-1]

    monkeypatch.setattr(routine, "Graph", Graph)
    monkeypatch.setattr(routine.DeviceProperties, "from_handle", lambda handle: f"of {handle}")
    monkeypatch.setattr(Task, "plans", build)
    return plans


def opened(plan: bytes) -> Any:
    return open_routine("graph", task().description, None, plan)  # type: ignore[arg-type]


def test_description_round_trip() -> None:
    import json

    assert Task.from_dict(json.loads(task().description)) == task()


def test_a_plan_is_restored(made: dict[str, list[Plan]]) -> None:
    assert opened(b"plan").workspace_bytes == 64
    assert len(made["restored"]) == 1
    assert not made["built"]


@pytest.mark.parametrize("reason", [b"VERSION_MISMATCH", b"ARCH_MISMATCH", b"CORRUPT"])
def test_a_plan_that_does_not_fit_is_an_error(reason: bytes, made: dict[str, list[Plan]]) -> None:
    """Making it fit is done before, and said (`gossamer.cudnn.fitting`)."""
    with pytest.raises(PlanError, match=reason.decode()):
        opened(reason)
    assert not made["built"]


def test_without_a_plan_it_is_built(made: dict[str, list[Plan]]) -> None:
    opened(b"")
    assert len(made["built"]) == 1


def test_addresses_are_bound_once(made: dict[str, list[Plan]]) -> None:
    graph = opened(b"plan")
    (plan,) = made["restored"]
    pointers = {"x": 256, "w": 512, "y": 768}
    for _ in range(3):
        graph.execute(None, pointers, 1024)
    assert plan.done == [("bind", pointers, 1024), *["execute"] * 3]
    graph.execute(None, pointers, 2048)  # the workspace grew
    assert plan.done[4:] == ["close", ("bind", pointers, 2048), "execute"]
    graph.execute(None, {**pointers, "y": 4096}, 0)
    assert plan.done[-2:] == [("bind", {**pointers, "y": 4096}, None), "execute"]
    graph.close()
    assert plan.done[-2:] == ["close", "close"]  # the binding, then the plan
