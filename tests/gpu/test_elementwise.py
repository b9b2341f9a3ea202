"""Elementwise operators on the GPU: the interpreter's cases, and sizes that take the paths only a GPU has."""

from __future__ import annotations

import numpy as np
import pytest

import harness
from cases.elementwise import CASES, Case, numbers
from gossamer.kernels.elementwise import RAGGED_FROM


@pytest.mark.parametrize("case", CASES, ids=str)
def test_elementwise(case: Case) -> None:
    case.check("cuda")


@pytest.mark.parametrize("size", [RAGGED_FROM + 1, RAGGED_FROM + 1024, RAGGED_FROM - 1, 1 << 22])
def test_ragged_sizes(size: int) -> None:
    x, y = numbers("ragged x", "float16", (size,)), numbers("ragged y", "float16", (size,))
    (got,) = harness.run_node("Max", [x, y], device="cuda")
    np.testing.assert_array_equal(got, np.maximum(x, y))


@pytest.mark.parametrize(
    "shapes", [((8, 64, 56, 56), (64, 1, 1)), ((3001, 768), (768,)), ((70001, 49), (49,)), ((65535, 33), (65535, 1))]
)
def test_broadcast_operands_of_whole_layers(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    x, y = (numbers("layer", "int32", shape) for shape in shapes)
    (got,) = harness.run_node("Sub", [x, y], device="cuda")
    np.testing.assert_array_equal(got, x - y)


def test_more_elements_than_32_bits_count() -> None:
    x = np.zeros((1 << 16, (1 << 15) + 3), np.int8)
    x[-1, -5:] = (1, 2, 3, 4, 5)
    y = np.arange(x.shape[1], dtype=np.int8)
    (got,) = harness.run_node("Add", [x, y], device="cuda")
    np.testing.assert_array_equal(got[0], y)
    np.testing.assert_array_equal(got[-1, -5:], y[-5:] + np.arange(1, 6, dtype=np.int8))
