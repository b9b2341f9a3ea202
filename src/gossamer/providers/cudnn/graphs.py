"""Graphs as calls: what lowerings that make one share.

A `Form` is one way to write a node: a graph, and native launches after it for what cuDNN's graph leaves out. A `Step`
is one way to look for engines. Steps go before forms: what needs no compiler at run time is tried in every form first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gossamer.cudnn.builder import GraphBuilder
from gossamer.cudnn.plan_cache import Planned, Task, planned, properties_of
from gossamer.errors import CudnnError, NotFound, PlanError
from gossamer.program import Buffer, Call, CudnnCall, Pointer, Refusal, Target
from gossamer.providers.cudnn import Lowered, Policy
from gossamer.providers.cudnn.tuning import Way

COMPILED = "RUNTIME_COMPILATION"
"""The note of engines that compile for half a second and more whenever a shape is new."""


@dataclass(frozen=True, slots=True)
class Operand:
    """Memory for a tensor of a graph. offset: in elements."""

    buffer: Buffer
    offset: int = 0

    @property
    def pointer(self) -> Pointer:
        return Pointer(self.buffer.name, self.offset * self.buffer.itemsize)


@dataclass(frozen=True, slots=True)
class Form:
    """graph: whose output is named `y`. operands: tensor name → memory. after: launches that follow."""

    name: str
    graph: GraphBuilder
    operands: Mapping[str, Operand]
    after: tuple[Call, ...] = ()
    flops: int = 0

    def calls(self, task: Task, plan: Planned) -> tuple[Call, ...]:
        reads = tuple(operand.buffer.name for name, operand in self.operands.items() if name != "y")
        call = CudnnCall(
            "graph",
            task.description,
            tuple((name, operand.pointer) for name, operand in self.operands.items()),
            reads,
            (self.operands["y"].buffer.name,),
            plan.plan,
            self.flops,
        )
        return (call, *self.after)


@dataclass(frozen=True, slots=True)
class Step:
    """modes: of heuristics. compiled: whether it is engines that compile at run time that are looked for, or others.
    most: plans to measure of each form."""

    modes: tuple[str, ...]
    compiled: bool = False
    most: int = 1

    def task(self, form: Form, forbid: Sequence[str]) -> Task:
        compiled, others = ((COMPILED,), ()) if self.compiled else ((), (COMPILED,))
        return Task.of(form.graph, self.modes, (*forbid, *others), compiled)


_LAST_RESORT = Step(("A", "fallback"), compiled=True)
STEPS: dict[str, tuple[Step, ...]] = {
    "HEURISTIC": (Step(("A",)), Step(("fallback",)), _LAST_RESORT),
    "DEFAULT": (Step(("fallback",)), Step(("A",)), _LAST_RESORT),
}
"""By the option `cudnn_conv_algo_search`, which plans are looked for, the first one found being taken."""

MEASURED = (Step(("A", "fallback"), most=8), Step(("A",), compiled=True, most=3))
"""What EXHAUSTIVE measures: more are mostly the same kernels with other tiles, at half a second each to compile."""


def by_policy(
    target: Target, policy: Policy, forms: Sequence[Form], forbid: Sequence[str] = ()
) -> Lowered | Iterator[Way]:
    """As the session's policy says: what heuristics choose, or all that is worth measuring."""
    if policy.exhaustive:
        return _ways(target, forms, forbid)
    return first_found(target, forms, STEPS["HEURISTIC" if policy.search == "EXHAUSTIVE" else policy.search], forbid)


def first_found(
    target: Target, forms: Sequence[Form], steps: Sequence[Step] = STEPS["HEURISTIC"], forbid: Sequence[str] = ()
) -> Lowered:
    """The calls of the first plan that the steps find for any of the forms, or why there is none.

    forbid: notes of engines that must not be used.
    """
    try:
        properties = properties_of(target)
    except (CudnnError, PlanError, NotFound) as error:
        return Refusal(one_line(error))
    reasons = []
    for step in steps:
        for form in forms:
            task = step.task(form, forbid)
            try:
                return form.calls(task, planned(task, properties)[0])
            except (CudnnError, PlanError) as error:
                reasons.append(one_line(error))
    return Refusal(reasons[-1])


def _ways(target: Target, forms: Sequence[Form], forbid: Sequence[str]) -> Iterator[Way]:
    properties = properties_of(target)
    for step in MEASURED:
        for form in forms:
            task = step.task(form, forbid)
            try:
                plans = planned(task, properties, step.most)
            except (CudnnError, PlanError):
                continue  # a form without engines is no way; that there is none at all, the caller sees
            for plan in plans:
                compiled = ", compiled at run time" if step.compiled else ""
                yield Way(f"cuDNN {form.name}, {plan.label}{compiled}", form.calls(task, plan))


def one_line(error: Exception) -> str:
    """An error's first two lines as a reason."""
    first, *rest = str(error).splitlines()
    return f"{first} {rest[0].strip()}" if rest else first
