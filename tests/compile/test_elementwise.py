"""Every step in every type, and every way of addressing, compiles for every architecture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import harness
from cases.elementwise import FLOATS, INTEGERS, TENSOR_TYPES, _numpy
from gossamer.kernels.division import magic as magic_of
from gossamer.kernels.elementwise import RAGGED_FROM, choose_tile, evaluate_elementwise, strided_copy
from gossamer.kernels.elementwise_geometry import collapse
from gossamer.model.steps import OPERATIONS, Expression, Step
from gossamer.program import Buffer, Kernel, Target

TARGET = Target.named("sm_90")

_BOOLEAN_RESULT = {"equal", "less", "less_equal", "is_nan", "is_inf", "not"}
_INTEGER_STEPS = [
    *("abs", "neg", "square", "cube", "sign", "add", "sub", "mul", "div", "pow", "mod", "fmod", "max", "min", "prelu"),
    *("equal", "less", "less_equal", "where", "bitwise_not", "bitwise_and", "bitwise_or", "bitwise_xor"),
    *("shift_left", "shift_right"),
]
_APART = {
    "bitwise_not",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "shift_left",
    "shift_right",
    "not",
    "cast",
    "constant",
    "round_to_odd",
    "encode_integer",
    "encode_float",
    "encode_scale",
    "decode",
}
"""Steps that no float takes twice, or that name a type."""


def _everything(dtype: str) -> Expression:
    """All steps that a type has, each on the inputs 0 and 1, added up: nothing can be dropped."""
    steps: list[Step] = []
    total = 0

    def add(step: Step) -> int:
        steps.append(step)
        return 1 + len(steps)

    names = [op for op in OPERATIONS if op not in _APART] if dtype in FLOATS else _INTEGER_STEPS
    for op in names:
        operation = OPERATIONS[op]
        condition = [add(Step("less", (0, 1)))] if op == "where" else []
        operands = (*condition, 0, 1)[: operation.operands]
        value = add(Step(op, operands, (0.5, 0.25)[: len(operation.parameters)]))
        if op in _BOOLEAN_RESULT:
            value = add(Step("where", (value, 0, 1)))
        total = add(Step("add", (total, value)))
    return Expression(2, tuple(steps), (total,))


def _casts(dtype: str) -> Expression:
    """To every type and back, and a constant of the type."""
    steps = [Step("constant", (), (1,), dtype)]
    total = 0
    for to in TENSOR_TYPES:
        steps += [Step("cast", (total,), (), to), Step("cast", (len(steps) + 1,), (), dtype)]
        total = len(steps)
    return Expression(
        1, (*steps, Step("where", (total, 1, total)) if dtype == "bool" else Step("max", (1, total))), (len(steps) + 1,)
    )


def _launched(expression: Expression, dtype: str) -> Kernel:
    """One element a thread: eight take eight times as long to compile and prove no more."""
    inputs = [Buffer(f"x{i}", dtype, (64, 96)) for i in range(expression.n_inputs)]
    outputs = [Buffer("y", dtype, (64, 96))]
    kernel = evaluate_elementwise(expression, inputs, [inputs[0].strides] * len(inputs), outputs, TARGET).kernel
    return replace(kernel, num_warps=1, constants=tuple((dict(kernel.constants) | {"BLOCK": 32}).items()))


@pytest.mark.parametrize("dtype", ["float32", "float64", *INTEGERS])
def test_every_step_compiles(dtype: str) -> None:
    """16-bit floats are computed as fp32: the casts and the ways of addressing have their loads and stores."""
    harness.compile_all([_launched(_everything(dtype), dtype)])


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "bool"])
def test_casts_compile(dtype: str) -> None:
    harness.compile_all([_launched(_casts(dtype), dtype)])


def _addressed() -> Iterator[Kernel]:
    def model(*shapes: tuple[int, ...], dtype: str = "float16") -> tuple[Kernel, ...]:
        return harness.kernels_of(harness.node_model("Add", [np.zeros(shape, _numpy(dtype)) for shape in shapes]))

    yield from model((2, 64, 14, 14), (64, 1, 1))
    yield from model((2, 3, 7, 7), (3, 1, 1))
    yield from model((33, 48), (48,))
    yield from model((2, 5, 6, 7), (5, 1, 7), dtype="float32")
    yield from model((2, 3, 2, 3, 2, 3, 2, 3), (2, 1, 2, 1, 2, 1, 2, 1), dtype="bfloat16")
    yield from model((RAGGED_FROM + 1,), ())
    yield from model((), ())
    x = Buffer("x", "float32", (64, 80))
    yield strided_copy(x, 3, (1, 80), Buffer("y", "float16", (77, 64)), TARGET).kernel
    huge = Buffer("x", "int8", (2**16, 2**16))
    yield strided_copy(huge, 0, (1, 2**16), Buffer("y", "int8", (2**16, 2**16)), TARGET).kernel


def test_every_way_of_addressing_compiles() -> None:
    kernels = tuple(dict.fromkeys(_addressed()))
    constants = [dict(kernel.constants) for kernel in kernels]
    assert any(each["WIDE"] for each in constants)
    assert any(each["RAGGED"] for each in constants)
    harness.compile_all(kernels)


def test_kernels_that_differ_in_scalars_are_one() -> None:
    x = np.zeros((4, 32), np.float32)
    kernels = {harness.kernels_of(harness.node_model("LeakyRelu", [x], {"alpha": alpha})) for alpha in (0.1, 0.2, 0.3)}
    assert len(kernels) == 1


def test_blocks_fill_the_device_and_grow_with_the_work() -> None:
    assert choose_tile(10**7, TARGET).block == 1024
    assert choose_tile(50_000, TARGET).block == 256
    assert choose_tile(1, TARGET).num_warps == 1


@pytest.mark.parametrize("divisor", [2, 3, 7, 10, 49, 64, 641, 12_288, 65_537, 2**30, 2**31 - 1])
def test_division_by_multiplication_is_exact(divisor: int) -> None:
    magic, shift = magic_of(divisor, wide=False)
    near_multiples = [k * divisor + d for k in (0, 1, 2, 2**31 // divisor - 1, 2**31 // divisor) for d in (-1, 0, 1)]
    for x in [x for x in near_multiples if 0 <= x < 2**31] + [2**31 - 1, 123_456_789]:
        high = (x * (magic % 2**32)) >> 32
        assert high + x < 2**32, "the kernel adds in 32 bits"
        assert (high + x) >> shift == x // divisor


def test_dimensions_merge_where_all_operands_allow_it() -> None:
    dense, channel = (192, 64, 8, 1), (0, 8, 0, 0)
    assert collapse((2, 3, 8, 8), [dense, dense]).extents == (384,)
    assert collapse((2, 3, 8, 8), [dense, (0, 1, 0, 0)]).extents == (2, 3, 64)
    assert collapse((2, 3, 8, 8), [dense, (0, 0, 0, 1)]).strides == ((8, 1), (0, 1))
    assert collapse((1, 8, 1, 8), [(64, 8, 8, 1), channel]).extents == (8, 8)


def test_only_what_is_read_in_order_may_be_overwritten() -> None:
    def pairs(*shapes: tuple[int, ...], out: str = "float32") -> tuple[tuple[str, str], ...]:
        inputs = [Buffer(f"x{i}", "float32", shape) for i, shape in enumerate(shapes)]
        expression = Expression(2, (Step("add", (0, 1)),), (2,))
        strides = [(4, 1), (4, 1) if len(shapes[1]) == 2 else (0, 1)]
        return evaluate_elementwise(expression, inputs, strides, [Buffer("y", out, (3, 4))], TARGET).inplace

    assert pairs((3, 4), (3, 4)) == (("y", "x0"), ("y", "x1"))
    assert pairs((3, 4), (4,)) == (("y", "x0"),)
    assert pairs((3, 4), (3, 4), out="float16") == ()
