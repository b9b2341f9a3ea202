"""Division of indices by numbers that are known when a kernel is launched: a multiplication and a shift.

A 32-bit division costs a GPU about twenty instructions, more than all else that is done to an element that moves.
"""

from __future__ import annotations

from typing import TypeAlias

import triton
import triton.language as tl

Divisor: TypeAlias = "tuple[int, int, int]"
"""(divisor, magic, shift), see `magic`."""


@triton.jit
def divide_by(i, divisor, WIDE: tl.constexpr):
    """i // divisor for 0 ≤ i < 2³¹: (i · (2³² + magic)) >> (32 + shift). WIDE: by a division, of any i ≥ 0."""
    if WIDE:
        return i // divisor[0]
    else:
        u = i.to(tl.uint32)
        return ((tl.umulhi(u, tl.cast(divisor[1], tl.uint32)) + u) >> divisor[2]).to(tl.int32)


def divisor_of(extent: int, wide: bool) -> Divisor:
    """`extent` as `divide_by` takes it; one for zero, whose axis has nothing to be divided."""
    extent = max(1, extent)
    return (extent, *magic(extent, wide))


def magic(divisor: int, wide: bool) -> tuple[int, int]:
    """(magic, shift) such that x // divisor = (x · (2³² + magic)) >> (32 + shift) for 0 ≤ x < 2³². magic as a signed
    32-bit integer.

    T. Granlund and P. L. Montgomery, "Division by Invariant Integers using Multiplication", 1994, figure 4.1.
    """
    if wide:
        return 0, 0
    shift = (divisor - 1).bit_length()
    multiplier = ((1 << 32) * ((1 << shift) - divisor)) // divisor + 1
    return multiplier - (1 << 32) if multiplier >= 1 << 31 else multiplier, shift
