"""cuDNN, where there is one: manifest, loader, trampolines, graphs and plans. Knows nothing of ONNX.

For programs that use cuDNN's graphs without ONNX:

    from gossamer.cudnn import DeviceProperties, Graph

Importing this package opens nothing and looks for nothing: each name is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gossamer.cudnn import driver_stand_in
    from gossamer.cudnn.device_properties import DeviceProperties
    from gossamer.cudnn.engines import EngineConfig
    from gossamer.cudnn.graph import Graph
    from gossamer.cudnn.handles import Handle
    from gossamer.cudnn.kernel_cache import KernelCache
    from gossamer.cudnn.plans import Binding, Plan
    from gossamer.cudnn.tensors import Tensor
    from gossamer.errors import CudnnError, PlanError

_HOME = {
    "Binding": "cudnn.plans",
    "CudnnError": "errors",
    "DeviceProperties": "cudnn.device_properties",
    "EngineConfig": "cudnn.engines",
    "Graph": "cudnn.graph",
    "Handle": "cudnn.handles",
    "KernelCache": "cudnn.kernel_cache",
    "Plan": "cudnn.plans",
    "PlanError": "errors",
    "Tensor": "cudnn.tensors",
}

__all__ = [
    "Binding",
    "CudnnError",
    "DeviceProperties",
    "EngineConfig",
    "Graph",
    "Handle",
    "KernelCache",
    "Plan",
    "PlanError",
    "Tensor",
    "driver_stand_in",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name == "driver_stand_in":
        return import_module("gossamer.cudnn.driver_stand_in")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"gossamer.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
