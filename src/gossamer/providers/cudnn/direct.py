"""What lowerings to cuDNN's direct routines have in common: its view of tensors, their limits, and the calls."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from gossamer.cudnn.loader import Library
from gossamer.cudnn.routines.direct import DirectRoutine
from gossamer.program import Buffer, CudnnCall, Pointer, Refusal

FLOATS = ("float16", "bfloat16", "float32", "float64")
MOST_ELEMENTS = 2**31 - 1
"""cuDNN counts a tensor's elements in 32 bits."""


@dataclass(frozen=True, slots=True)
class Images:
    """A tensor as cuDNN sees it: dims N, C, and spatial ones; strides in elements."""

    dtype: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, buffer: Buffer, *, channels_last: bool = False) -> Images:
        """Of activations. cuDNN has no images of fewer than two dimensions: extents of one take the leading places."""
        order = (0, buffer.rank - 1, *range(1, buffer.rank - 1)) if channels_last else range(buffer.rank)
        dims, strides = (tuple(values[axis] for axis in order) for values in (buffer.shape, buffer.strides))
        missing = 4 - buffer.rank
        row = dims[2] * strides[2] if len(dims) > 2 else 1
        dims, strides = (*dims[:2], *(1,) * missing, *dims[2:]), (*strides[:2], *(row,) * missing, *strides[2:])
        return cls(buffer.dtype, dims, strides)

    @property
    def extents(self) -> tuple[int, ...]:
        """The spatial dims."""
        return self.dims[2:]

    @property
    def pixels(self) -> int:
        return prod(self.extents)


def refusal_of(library: Library, routine: type[DirectRoutine], dtype: str, *images: Images) -> Refusal | None:
    """Why none of these tensors, of floats of `dtype`, can be given to this routine, where that is so."""
    if objection := routine.objection(library, dtype):
        return Refusal(objection)
    if dtype not in FLOATS:
        return Refusal(f"cuDNN does not do this with {dtype}")
    if any(len(image.dims) > 5 for image in images):
        return Refusal("cuDNN has images of up to three dimensions")
    if any(prod(image.dims) > MOST_ELEMENTS for image in images):
        return Refusal("cuDNN has tensors of up to 2³¹ - 1 elements")
    return None


def direct_call(
    routine: str,
    settings: Mapping[str, Any],
    reads: Mapping[str, Buffer | None],
    writes: Mapping[str, Buffer | None],
    flops: int = 0,
) -> CudnnCall:
    """The call of a routine. settings: what it is made from; `Images` are written as tensors. reads, writes: role →
    buffer; those that are None are left out."""
    described = {key: asdict(value) if isinstance(value, Images) else value for key, value in settings.items()}
    given, made = ({role: b.name for role, b in roles.items() if b is not None} for roles in (reads, writes))
    arguments = tuple((role, Pointer(name)) for role, name in (given | made).items())
    description = json.dumps(described, sort_keys=True)
    return CudnnCall(routine, description, arguments, tuple(given.values()), tuple(made.values()), flops=flops)
