"""What routines of cuDNN's direct API have in common: descriptors, made when one is opened and freed together.

A tensor is described as `{"dtype": NumPy's name, "dims": N, C, spatial…, "strides": in elements}`.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, ClassVar

from gossamer.cudnn import calls
from gossamer.cudnn.bindings import HostScalar
from gossamer.cudnn.handles import Handle
from gossamer.cudnn.loader import Library
from gossamer.cudnn.tensors import DATA_TYPES, data_type
from gossamer.errors import InvalidArgument

__all__ = ["DirectRoutine", "factor", "ints"]


class DirectRoutine(ABC):
    """A routine whose descriptors are made by `open`. workspace_bytes: what `execute` may overwrite. functions: those
    without which it cannot run."""

    workspace_bytes = 0
    functions: ClassVar[tuple[str, ...]] = ()
    doing = ""
    """For error texts: what goes on, in words that follow "while"."""

    def __init__(self, settings: Mapping[str, Any], handle: Handle | None, plan: bytes = b"") -> None:
        with ExitStack() as descriptors:
            self._descriptors = descriptors
            self.open(settings, handle)
            self._descriptors = descriptors.pop_all()

    @classmethod
    def objection(cls, library: Library, dtype: str) -> str:
        """Why a cuDNN does not have this for tensors of `dtype`, if it has not."""
        lacking = next((function for function in cls.functions if not library.has(function)), None)
        return f"cuDNN {library.version_text} has no {lacking}" if lacking else ""

    @classmethod
    def dtype_of(cls, settings: Mapping[str, Any]) -> str:
        """What `objection` is to be asked about."""
        return str(settings["x"]["dtype"])

    @abstractmethod
    def open(self, settings: Mapping[str, Any], handle: Handle | None) -> None:
        """Make the descriptors. handle: only where cuDNN has questions that need one."""

    @abstractmethod
    def execute(self, handle: Handle, pointers: Mapping[str, int], workspace: int) -> None:
        """Enqueue it on the handle's stream."""

    def close(self) -> None:
        """Free the descriptors; again does nothing."""
        self._descriptors.close()

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function of cuDNN that returns a status. CudnnError unless that is success."""
        calls.check(getattr(calls, function)(*arguments), function, self.doing)

    def create(self, kind: str) -> int:
        """A new descriptor, as in `cudnnCreate<kind>Descriptor`, which lives until `close`."""
        address = ctypes.c_void_p()
        self.call(f"cudnnCreate{kind}Descriptor", ctypes.byref(address))
        self._descriptors.callback(self.call, f"cudnnDestroy{kind}Descriptor", address.value)
        return address.value or 0

    def tensor(self, described: Mapping[str, Any]) -> int:
        """The descriptor of a tensor."""
        descriptor, dims, dtype = self.create("Tensor"), described["dims"], DATA_TYPES[data_type(described["dtype"])]
        shape = ints(dims, len(dims)), ints(described["strides"], len(dims))
        self.call("cudnnSetTensorNdDescriptor", descriptor, dtype, len(dims), *shape)
        return descriptor


def ints(values: Sequence[int], count: int) -> ctypes.Array[ctypes.c_int]:
    """A C array of exactly `count` numbers: cuDNN reads as many as another argument says."""
    if len(values) != count:
        raise InvalidArgument(f"{len(values)} numbers {list(values)} where cuDNN reads {count}")
    return (ctypes.c_int * count)(*values)


def factor(value: float, dtype: str) -> HostScalar:
    """cuDNN's alpha or beta for tensors of `dtype`: double for float64, else float."""
    return HostScalar(value, "float64" if dtype == "float64" else "float32")
