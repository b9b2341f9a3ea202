"""Einsum in the interpreter, against NumPy and onnxruntime, and what its equations become. (R6)"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import harness
from cases.einsum import CASES, EQUATIONS, case
from cases.node_case import NodeCase
from gossamer.errors import UnsupportedModel
from gossamer.kernels.einsum_equation import parse_equation
from gossamer.program import Launch, Refusal, Target


@pytest.mark.parametrize("node", CASES, ids=str)
def test_einsum(node: NodeCase) -> None:
    node.check("interpreter")


UNEQUAL_ELLIPSES = ("...ij,...jk->...ik", "...ij,...jk", "...,...->...")
"""Where an ellipsis covers more dimensions in one operand than in another: NumPy broadcasts, onnxruntime refuses."""


@pytest.mark.parametrize("equation", [e for e in EQUATIONS if e not in UNEQUAL_ELLIPSES])
def test_onnxruntime_agrees(equation: str) -> None:
    replace(case(equation, EQUATIONS[equation]), want=None).check("interpreter")


def _calls(equation: str) -> list[str]:
    program = harness.lower_model(case(equation, EQUATIONS[equation]).model(), Target.named("interpreter"))[0]
    return [call.kernel.function if isinstance(call, Launch) else type(call).__name__ for call in program.calls]


@pytest.mark.parametrize(
    ("equation", "calls"),
    [
        ("ij", ["View"]),
        ("ij->ji", ["copy_strided_kernel"]),
        ("ii->i", ["copy_strided_kernel"]),
        ("ijk->ki", ["reduce_kernel", "copy_strided_kernel"]),
        ("ij , jk -> ki", ["matmul_kernel"]),
        ("bqhd,bkhd->bhqk", ["matmul_kernel"]),
        ("abcd,cdef->abef", ["matmul_kernel"]),
        ("iij,jk->ik", ["matmul_kernel"]),
        ("a,b,c->cab", ["elementwise_kernel"]),
        ("ij,jk,kl->il", ["matmul_kernel", "matmul_kernel"]),
    ],
)
def test_transpositions_and_diagonals_cost_no_copy(equation: str, calls: list[str]) -> None:
    assert _calls(equation) == calls


@pytest.mark.parametrize(
    ("equation", "shapes", "reason"),
    [
        ("ij,jk->ik", [(2, 3)], "has 2 operands"),
        ("ijk->i", [(2, 3)], "does not fit"),
        ("i->i", [(2, 3)], "does not fit"),
        ("ij,jk->ik", [(2, 3), (4, 5)], "do not agree"),
        ("ij->iz", [(2, 3)], "that no operand has"),
        ("ij->ii", [(2, 3)], "repeats a label"),
    ],
)
def test_wrong_equations_are_refused_with_the_reason(equation: str, shapes: list[tuple[int, ...]], reason: str) -> None:
    refusal = parse_equation(equation, shapes)
    assert isinstance(refusal, Refusal)
    assert reason in refusal.reason


def test_labels_without_an_arrow_come_in_order_of_their_characters() -> None:
    equation = parse_equation("bC...,aA", [(2, 3, 4), (5, 6)])
    assert not isinstance(equation, Refusal)
    assert equation.output == (".0", "A", "C", "a", "b")


def test_bool_is_refused() -> None:
    node = case("ij->ji", ((3, 4),))
    flags = replace(node, inputs=[np.zeros((3, 4), bool)], output_types=[(9, (4, 3))])
    with pytest.raises(UnsupportedModel, match="Einsum of bool"):
        harness.run_model(flags.model(), flags.feeds())
