"""The arithmetic of grids and tiles."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gossamer.kernels.extents import cdiv, power_of_two

POWERS = st.integers(0, 20).map(lambda exponent: 2**exponent)


@given(st.integers(0, 2**40), st.integers(1, 2**20))
def test_cdiv_is_the_fewest_blocks_that_cover(a: int, b: int) -> None:
    assert 0 <= cdiv(a, b) * b - a < b


@given(st.integers(0, 2**20), POWERS)
def test_the_smallest_power_of_two_that_covers(extent: int, least: int) -> None:
    power = power_of_two(extent, least=least)
    assert power.bit_count() == 1
    assert power >= max(extent, least)
    assert power == least or power // 2 < extent


@given(st.integers(0, 2**20), POWERS)
def test_the_upper_bound_wins(extent: int, most: int) -> None:
    assert power_of_two(extent, most) == min(power_of_two(extent), most)
    assert power_of_two(extent, most, least=2 * most) == most
