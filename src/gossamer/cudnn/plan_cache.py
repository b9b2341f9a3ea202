"""Plans of described graphs, remembered for the life of the process: a shape is planned once, whoever asks.

A `Task` is all that a plan depends on besides the device: it stands as text in Programs and compiled files, so that a
plan that another cuDNN refuses can be made anew.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from gossamer.cudnn import driver_stand_in, loader
from gossamer.cudnn.builder import GraphBuilder
from gossamer.cudnn.device_properties import DeviceProperties
from gossamer.cudnn.graph import Graph
from gossamer.cudnn.handles import Handle
from gossamer.cudnn.plans import Plan
from gossamer.errors import CudnnError, NotFound, PlanError
from gossamer.program import Target

__all__ = ["WORKSPACE_LIMIT", "Task", "planned", "properties_of"]

WORKSPACE_LIMIT = 1 << 30
"""Most bytes that a plan may need besides its tensors; several times what the fast engines of large layers ask for."""

MOST = 4096
"""Tasks whose outcome is kept."""


@dataclass(frozen=True, slots=True)
class Task:
    """A graph, and which engines may run it.

    graph: `GraphBuilder.as_dict` as JSON. modes, forbid, require: as `Graph.build` has them.
    """

    graph: str
    modes: tuple[str, ...] = ("A", "fallback")
    forbid: tuple[str, ...] = ()
    require: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, graph: GraphBuilder, modes: tuple[str, ...], forbid: Iterable[str] = (), require: Iterable[str] = ()
    ) -> Task:
        return cls(json.dumps(graph.as_dict(), sort_keys=True), modes, tuple(sorted(forbid)), tuple(sorted(require)))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Task:
        """The inverse of what `description` holds."""
        graph = json.dumps(values["graph"], sort_keys=True)
        return cls(graph, *(tuple(values[name]) for name in ("modes", "forbid", "require")))

    @property
    def description(self) -> str:
        """JSON with sorted keys."""
        return json.dumps(asdict(self) | {"graph": json.loads(self.graph)}, sort_keys=True)

    def plans(self, *, properties: DeviceProperties | None = None, handle: Handle | None = None) -> Iterator[Plan]:
        """Every plan there is, best first, made as it is asked for; the first one raises where there is none."""
        graph = Graph(properties=properties, handle=handle)
        graph.deserialize(self.graph)
        how: dict[str, Any] = {"modes": self.modes, "forbid": self.forbid, "require": self.require}
        how["workspace_limit"] = WORKSPACE_LIMIT
        plans = graph.plans(**how)
        first = next(plans, None)
        yield graph.build(**how) if first is None else first  # `build` says what was proposed where nothing works
        yield from plans


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan as bytes. label: which engine runs it, the same in every process with this cuDNN."""

    plan: bytes
    label: str


class _Outcomes:
    """What became of tasks: plans in order, as far as somebody asked, or the error there was."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[Any, tuple[Planned, ...] | CudnnError | PlanError] = OrderedDict()

    def of(self, task: Task, properties: DeviceProperties, most: int) -> tuple[Planned, ...]:
        key = task, properties, loader.load().version, most
        with self._lock:  # cuDNN plans one graph at a time, and two threads mostly want the same one
            outcome = self._kept.get(key)
            if outcome is None:
                outcome = self._kept[key] = _attempt(task, properties, most)
            self._kept.move_to_end(key)
            while len(self._kept) > MOST:
                self._kept.popitem(last=False)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


_outcomes = _Outcomes()


def planned(task: Task, properties: DeviceProperties, most: int = 1) -> tuple[Planned, ...]:
    """The best `most` plans, without a handle. PlanError, CudnnError where there is none: the same one each time."""
    return _outcomes.of(task, properties, most)


def _attempt(task: Task, properties: DeviceProperties, most: int) -> tuple[Planned, ...] | CudnnError | PlanError:
    try:
        return tuple(_written(islice(task.plans(properties=properties), most)))
    except (CudnnError, PlanError) as error:
        return error.with_traceback(None)


def _written(plans: Iterator[Plan]) -> Iterator[Planned]:
    """One engine can be proposed several times, its knobs set otherwise: its place in the order tells which it is."""
    for place, plan in enumerate(plans):
        with plan:
            yield Planned(plan.serialize(), f"engine {plan.engine} ({plan.mode}, {place})")


def properties_of(target: Target) -> DeviceProperties:
    """What cuDNN is told about a target: what this machine's GPU says, or else what the target has. PlanError where
    cuDNN is too old to plan for properties; NotFound for a target without."""
    if target.device is not None:
        return _of_device(target.device, loader.load().path)
    if not target.properties:
        raise NotFound(f"the target {target.name} has no device properties, for which cuDNN could plan")
    driver_stand_in.load()  # this process compiles for a GPU that is not here
    return DeviceProperties.from_json(target.properties)


_live: dict[tuple[int, str], DeviceProperties] = {}


def _of_device(ordinal: int, library: str) -> DeviceProperties:
    known = _live.get((ordinal, library))
    if known is None:
        known = _live[ordinal, library] = DeviceProperties.from_device(ordinal)
    return known
