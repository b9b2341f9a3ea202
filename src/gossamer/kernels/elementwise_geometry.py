"""How elementwise operands are addressed: merged dimensions and layouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Geometry:
    """Merged dimensions: their extents, and the strides in them of every input."""

    extents: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]

    @property
    def farthest(self) -> int:
        """The largest offset from an input's first element, in elements."""
        reach = (sum((e - 1) * abs(s) for e, s in zip(self.extents, steps, strict=True)) for steps in self.strides)
        return max(reach, default=0)


def collapse(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> Geometry:
    """Merges neighbouring dimensions in which every operand moves as in one, and drops those of extent one."""
    extents: list[int] = []
    merged: list[list[int]] = [[] for _ in strides]
    for dim, extent in enumerate(shape):
        if extent == 1:
            continue
        if extents and all(m[-1] == s[dim] * extent for m, s in zip(merged, strides, strict=True)):
            extents[-1] *= extent
            for m, s in zip(merged, strides, strict=True):
                m[-1] = s[dim]
        else:
            extents.append(extent)
            for m, s in zip(merged, strides, strict=True):
                m.append(s[dim])
    return Geometry(tuple(extents), tuple(map(tuple, merged)))


def broadcast_strides(operand: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """The strides that read a dense operand as if it had `shape`, by NumPy's broadcasting rule."""
    strides, step = [], 1
    for extent in reversed(operand):
        strides.append(step if extent != 1 else 0)
        step *= extent
    return (0,) * (len(shape) - len(operand)) + tuple(reversed(strides))


Layout: TypeAlias = "tuple[str, tuple[tuple[int, int], ...]]"
"""("dense" | "scalar" | "strided", (dimension, position in the kernel's strides) of the dimensions it moves in)."""


def layout_of(extents: Sequence[int], strides: Sequence[int], position: int) -> Layout:
    """How an input of these strides is addressed. position: where its strides will stand in the kernel's."""
    moving = [dim for dim, stride in enumerate(strides) if stride]
    if not moving:
        return ("scalar" if extents else "dense"), ()
    step = 1
    for extent, stride in zip(reversed(extents), reversed(strides), strict=True):
        if stride != step:
            return "strided", tuple((dim, position + k) for k, dim in enumerate(moving))
        step *= extent
    return "dense", ()
