"""The whole numbers that grids and tiles are made of."""

from __future__ import annotations


def cdiv(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def power_of_two(extent: int, most: int | None = None, *, least: int = 1) -> int:
    """The smallest power of two not below `extent` or `least`, but at most `most`. Both bounds are powers of two."""
    power = max(least, 1 << max(0, extent - 1).bit_length())
    return power if most is None else min(power, most)
