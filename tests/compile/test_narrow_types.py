"""Conversions from and to types of up to 8 bits compile for every architecture."""

from __future__ import annotations

import pytest

import harness
from cases.narrow_types import CASES, NARROW


@pytest.mark.parametrize("name", NARROW)
def test_conversions_compile(name: str) -> None:
    """As the cases have them, from and to types each of which is read, or written, in a way of its own."""
    ways = {"float32", "float64", "int64", *NARROW}
    casts = [case for case in CASES if case.op_type == "Cast" and name in (types := case.name.split("-")[2:])
             and ways.issuperset(types)]  # fmt: skip
    kernels = dict.fromkeys(kernel for case in casts for kernel in harness.kernels_of(case.model()))
    assert len(kernels) > 3
    harness.compile_all(tuple(kernels))
