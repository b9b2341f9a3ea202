"""Reads and writes through arrays of addresses, for the interpreter executor.

Triton's interpreter follows addresses one by one and wherever they lead. Here a tile is one NumPy gather or scatter,
some ten times as fast, and an address outside of the buffers that a launch declares is an error.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


class Spans:
    """The stretches of memory that one launch may touch. memories: uint8 arrays; those that overlap become one span."""

    def __init__(self, memories: Iterable[Array]) -> None:
        spans: list[tuple[int, Array]] = []
        for start, memory in sorted(((m.ctypes.data, m) for m in memories if m.size), key=lambda span: span[0]):
            if spans and start < spans[-1][0] + spans[-1][1].size:
                spans[-1] = (spans[-1][0], _joined(*spans[-1], start, memory))
            else:
                spans.append((start, memory))
        self._starts = [start for start, _ in spans]
        self._memories = [memory for _, memory in spans]

    def load(self, addresses: Array, mask: Array, other: Array, dtype: np.dtype[Any]) -> Array:
        """The elements of `dtype` at the addresses where mask, else `other`. Raises IndexError outside of the spans."""
        mask = np.broadcast_to(mask, addresses.shape)
        if not mask.any():
            return np.broadcast_to(other, addresses.shape).astype(dtype)
        if mask.all():
            elements, at = self._locate(addresses, int(addresses.flat[0]), dtype)
            return elements.take(at)
        elements, at = self._locate(addresses, int(addresses.flat[mask.argmax()]), dtype)
        return np.where(mask, elements.take(np.where(mask, at, 0)), other.astype(dtype, copy=False))

    def store(self, addresses: Array, values: Array, mask: Array) -> None:
        """Writes values to the addresses where mask; the last of several to one address stays. Raises IndexError
        outside of the spans."""
        mask = np.broadcast_to(mask, addresses.shape)
        if not mask.any():
            return
        elements, at = self._locate(addresses, int(addresses.flat[mask.argmax()]), values.dtype)
        values = np.broadcast_to(values, addresses.shape)
        if mask.all():
            elements[at] = values
        else:
            elements[at[mask]] = values[mask]

    def _locate(self, addresses: Array, first: int, dtype: np.dtype[Any]) -> tuple[Array, Array]:
        """The span that `first` lies in, as elements, and the indices of all addresses in it: beyond its end for those
        that lie elsewhere, before it or behind it."""
        found = bisect_right(self._starts, first) - 1
        if found < 0 or first >= self._starts[found] + self._memories[found].size:
            raise IndexError(f"address {first:#x} lies in none of the launch's buffers")
        memory = self._memories[found]
        elements = memory[: memory.size // dtype.itemsize * dtype.itemsize].view(dtype)
        # Unsigned differences put what lies before the start far beyond the end; the highest bit must be no sign.
        distance = (addresses - np.uint64(self._starts[found])) & np.uint64(2**63 - 1)
        return elements, (distance >> np.uint64(dtype.itemsize.bit_length() - 1)).view(np.int64)


def _joined(start: int, memory: Array, other_start: int, other: Array) -> Array:
    """Two overlapping stretches as one. Both are parts of the same array, which is looked up as their common base."""
    end = max(start + memory.size, other_start + other.size)
    if end == start + memory.size:
        return memory
    base = memory
    while isinstance(base.base, np.ndarray):
        base = base.base
    whole = base.reshape(-1).view(np.uint8)
    return whole[start - whole.ctypes.data : end - whole.ctypes.data]
