"""Every elementwise operator and type in the interpreter, against NumPy; NumPy's answers against onnxruntime's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes

import harness
from cases.elementwise import CASES, ORACLE_CASES, Case, compare, numbers
from examples import examples
from gossamer.kernels.elementwise import strided_copy
from gossamer.model.node import Constants
from gossamer.program import Arena, Buffer, Launch, Program, Target
from gossamer.run.interpreter import InterpreterExecutor

INTERPRETER = Target.named("interpreter")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_elementwise(case: Case) -> None:
    case.check("interpreter")


@pytest.mark.parametrize("case", ORACLE_CASES, ids=str)
def test_onnxruntime_agrees_with_the_references(case: Case) -> None:
    for got, want in zip(harness.ort(case.model(), case.feeds()), case.expected(), strict=True):
        compare(got, want, atol=max(case.atol, 4.0))


@settings(max_examples=examples(100), deadline=None)
@given(mutually_broadcastable_shapes(num_shapes=3, max_dims=8, max_side=4), st.booleans())
def test_any_shapes_that_broadcast(shapes: Any, constant: bool) -> None:
    dtypes = ("bool", "int32", "int32")
    condition, x, y = (
        numbers(f"operand{i}", dtype, shape)
        for i, (dtype, shape) in enumerate(zip(dtypes, shapes.input_shapes, strict=True))
    )
    (got,) = harness.run_node("Where", [condition, x, y], constants=(2,) if constant else ())
    np.testing.assert_array_equal(got, np.where(condition, x, y))


@pytest.mark.parametrize(
    "shapes", [((6, 5, 7), (5, 1)), ((6, 5, 16), (16,)), ((3, 4, 5, 6), (4, 1, 6)), ((333,), (333,))]
)
@pytest.mark.parametrize("path", ["WIDE", "RAGGED"])
def test_paths_of_large_tensors(shapes: tuple[tuple[int, ...], tuple[int, ...]], path: str) -> None:
    """What is chosen from 2³¹ elements on, or for large odd sizes, in blocks of 64, at sizes that can be tested."""
    x, y = (numbers("paths", "int32", shape) for shape in shapes)
    program, constants = harness.lower_model(harness.node_model("Sub", [x, y]), INTERPRETER)
    (launch,) = program.launches
    kernel = replace(
        launch.kernel, constants=tuple((dict(launch.kernel.constants) | {path: True, "BLOCK": 64}).items())
    )
    changed = replace(launch, kernel=kernel, grid=(-(-x.size // 64), 1, 1))
    results = InterpreterExecutor(constants).run(replace(program, calls=(changed,)), {"x0": x, "x1": y})
    np.testing.assert_array_equal(results["y0"], x - y)


def _run(launch: Launch, source: Buffer, out: Buffer, x: np.ndarray) -> np.ndarray:
    places = {source.name: Arena(0), out.name: Arena(1 << 16)}
    buffers = {source.name: source, out.name: out}
    program = Program("copy", INTERPRETER, (source.name,), (out.name,), buffers, places, (launch,), 1 << 17, 0)
    return InterpreterExecutor(Constants()).run(program, {source.name: x})[out.name]


def test_strided_copies() -> None:
    """A transposition, a reversal with an offset and a step, and an expansion that converts."""
    x = numbers("strided", "float32", (6, 8))
    source = Buffer("x", "float32", x.shape)
    for offset, strides, out, want in (
        (0, (1, 8), Buffer("y", "float32", (8, 6)), x.T),
        (47, (-16, -1), Buffer("y", "float32", (3, 8)), x[::-2, ::-1]),
        (3, (8, 0), Buffer("y", "float16", (6, 4)), np.broadcast_to(x[:, 3:4], (6, 4)).astype(np.float16)),
    ):
        launch = strided_copy(source, offset, strides, out, INTERPRETER)
        np.testing.assert_array_equal(_run(launch, source, out, x), want)
