"""The routine `graph`: an execution plan, restored from its bytes, or made from its graph where there are none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gossamer.cudnn.device_properties import DeviceProperties
from gossamer.cudnn.graph import Graph
from gossamer.cudnn.handles import Handle
from gossamer.cudnn.plan_cache import Task
from gossamer.cudnn.plans import Binding, Plan
from gossamer.cudnn.tensors import Tensor


class GraphRoutine:
    """description: of a `plan_cache.Task`. plan: one that fits (`gossamer.cudnn.fitting`). Roles are the names of the
    graph's tensors.

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
    """For the properties of the handle's device, not for the handle: given one, cuDNN up to 9.19 takes a plan for no
    other driver than its own, older ones included."""
    if not plan:
        return next(task.plans(handle=handle))
    return Graph(properties=DeviceProperties.from_handle(handle), handle=handle).deserialize(plan)
