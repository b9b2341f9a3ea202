"""Engines: what cuDNN proposes for a graph, and which of it is taken.

A heuristic mode proposes engine configurations, best first. Each is an engine (a family of kernels) with its knobs set;
notes tell what an engine does at run time (behaviour: compiles, needs cuBLASLt, …) and to numbers (numerical: tensor
cores, Winograd, nondeterministic, …). `Choice` says which are acceptable.

Source: cudnn_graph.h, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, …ENGINECFG…, …ENGINE_DESCRIPTOR.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import IntEnum

from gossamer.cudnn.descriptors import Attribute, Descriptor, Kind, Type
from gossamer.cudnn.enums import cudnnBackendBehaviorNote, cudnnBackendHeurMode, cudnnBackendNumericalNote
from gossamer.errors import CudnnError, InvalidArgument

__all__ = ["MODES", "Choice", "EngineConfig", "propose"]

MODES: dict[str, cudnnBackendHeurMode] = {
    "A": cudnnBackendHeurMode.CUDNN_HEUR_MODE_A,
    "B": cudnnBackendHeurMode.CUDNN_HEUR_MODE_B,
    "fallback": cudnnBackendHeurMode.CUDNN_HEUR_MODE_FALLBACK,
}
"""Heuristic modes: A is fast, B slower and sometimes better, fallback works without promising speed."""

_BEHAVIOR = "CUDNN_BEHAVIOR_NOTE_"
_NUMERICAL = "CUDNN_NUMERICAL_NOTE_"

NOTES = frozenset(
    note.name.removeprefix(prefix)
    for kind, prefix in ((cudnnBackendBehaviorNote, _BEHAVIOR), (cudnnBackendNumericalNote, _NUMERICAL))
    for note in kind
)
"""Every note by name, without its prefix: RUNTIME_COMPILATION, TENSOR_CORE, …"""


@dataclass(frozen=True)
class EngineConfig:
    """One proposal. index: the engine's number within cuDNN, for this kind of graph. mode: what proposed it."""

    descriptor: Descriptor
    mode: str
    index: int
    behavior_notes: frozenset[str]
    numerical_notes: frozenset[str]

    @property
    def notes(self) -> frozenset[str]:
        """Both kinds; no name occurs in both."""
        return self.behavior_notes | self.numerical_notes

    def __str__(self) -> str:
        return f"engine {self.index} of mode {self.mode} ({', '.join(sorted(self.notes)) or 'no notes'})"


@dataclass(frozen=True)
class Choice:
    """Which proposals are acceptable.

    modes: heuristic modes, in the order in which they are asked; one is only asked when those before it gave nothing
    acceptable. require, forbid: notes that an engine must all have, or none of which it may have. where: any other
    condition on a config. workspace_limit: most bytes of workspace.
    """

    modes: tuple[str, ...] = ("A", "fallback")
    require: frozenset[str] = frozenset()
    forbid: frozenset[str] = frozenset()
    where: Callable[[EngineConfig], bool] | None = None
    workspace_limit: int | None = None

    def __post_init__(self) -> None:
        if not self.modes or not MODES.keys() >= set(self.modes):
            raise InvalidArgument(f"heuristic modes {self.modes}: accepted are some of {', '.join(MODES)}")
        if unknown_notes := (self.require | self.forbid) - NOTES:
            raise InvalidArgument(f"notes {', '.join(sorted(unknown_notes))}: there are {', '.join(sorted(NOTES))}")
        if self.workspace_limit is not None and self.workspace_limit < 0:
            raise InvalidArgument(f"workspace_limit {self.workspace_limit}: bytes are counted from 0; None is no limit")

    def objection(self, config: EngineConfig) -> str:
        """Why a config is not acceptable, or nothing. Workspace is only known of a plan, and checked there."""
        if lacking := self.require - config.notes:
            return f"without {', '.join(sorted(lacking))}"
        if present := self.forbid & config.notes:
            return f"with {', '.join(sorted(present))}"
        return "" if self.where is None or self.where(config) else "refused by the caller's condition"


def propose(
    operation_graph: Descriptor, modes: Sequence[str], properties: Descriptor | None, stack: ExitStack
) -> Iterator[EngineConfig]:
    """Configs of each mode in turn, best first; their descriptors live as long as the stack.

    properties: of the device to plan for; None where the operation graph has a handle. A mode that has nothing for this
    graph proposes nothing; CudnnError when none of them had.
    """
    refusal: CudnnError | None = None
    proposed = False
    for mode in modes:
        try:
            results = _results(operation_graph, mode, properties)
        except CudnnError as error:
            refusal = error
            continue
        for descriptor in results:
            stack.enter_context(descriptor)
        for descriptor in results:
            proposed = True
            yield _config(descriptor, mode)
    if refusal is not None and not proposed:
        raise refusal


def _results(operation_graph: Descriptor, mode: str, properties: Descriptor | None) -> list[Descriptor]:
    with Descriptor(Kind.CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, f"heuristic mode {mode}") as heuristic:
        heuristic.set(Attribute.CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, operation_graph)
        heuristic.set(Attribute.CUDNN_ATTR_ENGINEHEUR_MODE, MODES[mode])
        if properties is not None:
            heuristic.set(Attribute.CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, properties)
        heuristic.finalize()
        return heuristic.get_descriptors(
            Attribute.CUDNN_ATTR_ENGINEHEUR_RESULTS, Kind.CUDNN_BACKEND_ENGINECFG_DESCRIPTOR
        )


def _config(descriptor: Descriptor, mode: str) -> EngineConfig:
    with descriptor.get_descriptor(
        Attribute.CUDNN_ATTR_ENGINECFG_ENGINE, Kind.CUDNN_BACKEND_ENGINE_DESCRIPTOR
    ) as engine:
        behavior = engine.get(Attribute.CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, Type.CUDNN_TYPE_BEHAVIOR_NOTE)
        numerical = engine.get(Attribute.CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, Type.CUDNN_TYPE_NUMERICAL_NOTE)
        index = engine.get_int(Attribute.CUDNN_ATTR_ENGINE_GLOBAL_INDEX)
    return EngineConfig(
        descriptor,
        mode,
        index,
        _names(cudnnBackendBehaviorNote, _BEHAVIOR, behavior),
        _names(cudnnBackendNumericalNote, _NUMERICAL, numerical),
    )


def _names(kind: type[IntEnum], prefix: str, notes: Sequence[int]) -> frozenset[str]:
    """Names of notes; one that is newer than the manifest is called by its number."""
    known = {int(note): note.name.removeprefix(prefix) for note in kind}
    return frozenset(known.get(note, f"NOTE_{note}") for note in notes)
