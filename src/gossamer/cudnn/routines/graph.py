"""The routine `graph`: an execution plan, restored from its bytes, or made from its graph where they are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gossamer.cudnn.graph import Graph
from gossamer.cudnn.handles import Handle
from gossamer.cudnn.plan_cache import Task
from gossamer.cudnn.plans import Binding, Plan
from gossamer.cudnn.tensors import Tensor
from gossamer.diagnostics import logger
from gossamer.errors import PlanError

REPLACEABLE = ("VERSION_MISMATCH", "ARCH_MISMATCH", "DRIVER_MISMATCH")
"""Why bytes may be refused that were good where they were made."""


class GraphRoutine:
    """description: of a `plan_cache.Task`. Roles are the names of the graph's tensors.

    Addresses are bound at the first execution and again only where they change.
    """

    def __init__(self, description: dict[str, Any], handle: Handle, plan: bytes = b"") -> None:
        self._plan = _opened(Task.from_dict(description), handle, plan)
        self._bound: tuple[Mapping[str, int], int] | None = None
        self._binding: Binding | None = None
        self.workspace_bytes = self._plan.workspace_size

    def execute(self, handle: Handle, pointers: Mapping[str, int], workspace: int) -> None:
        if self._bound != (pointers, workspace) or self._binding is None:
            if self._binding is not None:
                self._binding.close()
            self._binding = self._plan.bind(dict[str | int | Tensor, Any](pointers.items()), workspace or None)
            self._bound = dict(pointers), workspace
        self._binding.execute(handle)

    def close(self) -> None:
        if self._binding is not None:
            self._binding.close()
        self._plan.close()


def _opened(task: Task, handle: Handle, plan: bytes) -> Plan:
    if plan:
        try:
            return Graph(handle=handle).deserialize(plan)
        except PlanError as error:
            if error.reason not in REPLACEABLE:
                raise
            logger.warning("a cuDNN plan is made anew: %s", error)
    return next(task.plans(handle=handle))
