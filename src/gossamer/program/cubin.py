"""Cubins: the machine code of a kernel and what its launch has to know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from gossamer.program.calls import Kernel
from gossamer.program.target import Target


@dataclass(frozen=True, slots=True)
class TensorMapLayout:
    """How the compiler expects a TMA descriptor: figures for the driver's `cuTensorMapEncodeTiled`."""

    swizzle: int
    element_size: int
    element_type: int
    box: tuple[int, ...]
    fp4_padded: bool


@dataclass(frozen=True, slots=True)
class Cubin:
    """Machine code for one kernel on one architecture.

    function: the symbol. shared_bytes: dynamic shared memory of a block. scratch_bytes, scratch_alignment: global
    memory that the kernel wants per program (its first hidden parameter). tensor_maps: one per TMA descriptor argument,
    in order. triton, ptxas: the versions of the compilers.
    """

    function: str
    arch: int
    num_warps: int
    shared_bytes: int
    scratch_bytes: int
    scratch_alignment: int
    tensor_maps: tuple[TensorMapLayout, ...]
    triton: str
    code: bytes
    ptxas: str = ""

    def header(self) -> dict[str, Any]:
        """Everything but the code, as JSON values."""
        return {name: getattr(self, name) for name in self.__slots__ if name not in ("code", "tensor_maps")} | {
            "tensor_maps": [{name: getattr(layout, name) for name in layout.__slots__} for layout in self.tensor_maps]
        }

    @staticmethod
    def from_header(header: dict[str, Any], code: bytes) -> Cubin:
        maps = tuple(TensorMapLayout(**layout | {"box": tuple(layout["box"])}) for layout in header["tensor_maps"])
        return Cubin(**header | {"tensor_maps": maps, "code": code})


Compile: TypeAlias = Callable[[Iterable[Kernel], Target], Mapping[Kernel, Cubin]]
"""Machine code for kernels: `build.compilation.compile_kernels`, or a lookup in a compiled file."""
