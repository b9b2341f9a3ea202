"""Every elementwise operator and type in the interpreter, against NumPy; NumPy's answers against onnxruntime's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes

import harness
from cases.elementwise import CASES, ORACLE_CASES, Case, compare, numbers


@pytest.mark.parametrize("case", CASES, ids=str)
def test_elementwise(case: Case) -> None:
    case.check("interpreter")


@pytest.mark.parametrize("case", ORACLE_CASES, ids=str)
def test_onnxruntime_agrees_with_the_references(case: Case) -> None:
    for got, want in zip(harness.ort(case.model(), case.feeds()), case.expected(), strict=True):
        compare(got, want, atol=max(case.atol, 4.0))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(mutually_broadcastable_shapes(num_shapes=3, max_dims=8, max_side=4), st.booleans())
def test_any_shapes_that_broadcast(shapes: Any, constant: bool) -> None:
    dtypes = ("bool", "int32", "int32")
    condition, x, y = (
        numbers(f"operand{i}", dtype, shape) for i, (dtype, shape) in enumerate(zip(dtypes, shapes.input_shapes, strict=True))
    )
    (got,) = harness.run_node("Where", [condition, x, y], constants=(2,) if constant else ())
    np.testing.assert_array_equal(got, np.where(condition, x, y))
