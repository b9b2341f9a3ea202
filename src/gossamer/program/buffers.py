"""Buffers: named, dense, row-major tensors, before anyone has decided where they live."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import cache

import ml_dtypes
import numpy as np

ARENA_ALIGNMENT = 256
"""Bytes. The driver's own allocations have it, tensor maps ask for 128, vector loads for 16."""

_EXTENDED = {
    name: np.dtype(getattr(ml_dtypes, name))
    for name in (
        *("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
        *("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "int2", "int4", "uint2", "uint4"),
    )
}
"""Elements of less than 8 bits lie in the lower bits of bytes, one each."""


def dtype_of(name: str) -> np.dtype:
    """The dtype of that name: NumPy's names, and ml_dtypes' for what NumPy lacks (`bfloat16`)."""
    return _EXTENDED.get(name) or np.dtype(name)


_PLAIN_NAME = re.compile("[a-z][a-z0-9_]*")


@cache
def dtype_from_file(name: str) -> np.dtype:
    """As `dtype_of`, of a name that anyone may have written: NumPy takes, and evaluates, far more than names.

    Raises ValueError, TypeError.
    """
    if not _PLAIN_NAME.fullmatch(name) or dtype_of(name).name != name:
        raise ValueError(f"{name!r} is no name of a dtype")
    return dtype_of(name)


@dataclass(frozen=True, slots=True)
class Buffer:
    """A dense row-major tensor.

    dtype: a name that `dtype_of` knows. shape: sizes in elements. dynamic: the shape is known only after a HostCall
    wrote it; such a buffer stays on the host and `shape` means nothing.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    dynamic: bool = False

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return dtype_of(self.dtype).itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """Row-major strides in elements."""
        strides, step = [], 1
        for extent in reversed(self.shape):
            strides.append(step)
            step *= extent
        return tuple(reversed(strides))

    def reshaped(self, *shape: int) -> Buffer:
        """The same memory under another shape of the same size."""
        assert math.prod(shape) == self.size, f"{self} reshaped to {shape}"
        return replace(self, shape=shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{'?' if self.dynamic else ','.join(map(str, self.shape))}]"
