"""Gather and Scatter in the interpreter, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

import gossamer
from cases.indexing import CASES, ROUNDED_REDUCTIONS
from cases.node_case import NodeCase
from gossamer.errors import UnsupportedModel
from gossamer.kernels import tensor_scatter
from gossamer.program import Program, Target
from gossamer.run.interpreter import InterpreterExecutor
from harness import SMALL_GPU, assert_close, lower_model, run_node


@pytest.mark.parametrize("case", CASES, ids=str)
def test_indexing(case: NodeCase) -> None:
    case.check("interpreter")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_indexing_with_the_launches_of_a_gpu(case: NodeCase) -> None:
    case.check(SMALL_GPU)


@pytest.mark.parametrize("case", [case for case in CASES if case.op_type == "TensorScatter"], ids=str)
def test_caches_of_more_elements_than_32_bits_count(case: NodeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is chosen from 2³¹ elements on, at sizes that can be tested."""
    monkeypatch.setattr(tensor_scatter, "is_wide", lambda *_: True)
    case.check(SMALL_GPU)


@pytest.mark.parametrize("case", ROUNDED_REDUCTIONS, ids=str)
def test_scatter_in_order(case: NodeCase) -> None:
    program, (got,) = run_deterministic(case)
    assert kernel_names(program) == {"scatter_in_order.scatter_in_order_kernel"}
    assert_close(got, case.expected()[0])


@pytest.mark.parametrize("reduction", ["add", "mul"])
def test_scatter_in_order_is_the_loop_over_the_updates(reduction: str) -> None:
    """To the last bit, with seventy roundings per element."""
    case = next(case for case in ROUNDED_REDUCTIONS if case.name == f"ScatterElements-crowded_{reduction}")
    np.testing.assert_array_equal(run_deterministic(case)[1][0], case.expected()[0])


@pytest.mark.parametrize(("dtype", "reduction"), [("int32", "add"), ("uint8", "mul"), ("float32", "max")])
def test_what_has_no_order_is_atomic_even_where_determinism_is_asked_for(dtype: str, reduction: str) -> None:
    case = next(case for case in CASES if case.name == f"ScatterElements-{reduction}_{dtype}")
    assert "scatter.scatter_elements_kernel" in kernel_names(run_deterministic(case)[0])


@pytest.mark.parametrize("deterministic", [False, True])
def test_session_option_chooses_the_kernel(deterministic: bool) -> None:
    case = next(case for case in ROUNDED_REDUCTIONS if case.name == "ScatterND-rows_add")
    options = gossamer.SessionOptions()
    options.use_deterministic_compute = deterministic
    providers = [("CUDAExecutionProvider", {"device": "interpreter"})]
    with gossamer.InferenceSession(case.model(), options, providers) as session:
        kernels = kernel_names(session.program(case.feeds()))
    assert ("scatter_in_order.scatter_in_order_kernel" in kernels) == deterministic


@pytest.mark.parametrize("op_type", ["ScatterElements", "ScatterND"])
def test_there_are_five_reductions(op_type: str) -> None:
    x = np.zeros((1, 1), np.float32)
    with pytest.raises(UnsupportedModel, match="there is no reduction 'average'"):
        run_node(op_type, [x, np.zeros((1, 1), np.int64), x], {"reduction": "average"}, opset=18)


def test_tensor_scatter_knows_two_modes() -> None:
    x = np.zeros((1, 2, 1), np.float32)
    with pytest.raises(UnsupportedModel, match="there is no mode 'spiral'"):
        run_node("TensorScatter", [x, x], {"mode": "spiral"}, opset=24)


def run_deterministic(case: NodeCase) -> tuple[Program, list[np.ndarray]]:
    program, constants = lower_model(case.model(), Target.named("interpreter").with_deterministic(True))
    results = InterpreterExecutor(constants).run(program, case.feeds())
    return program, [results[name] for name in program.outputs]


def kernel_names(program: Program) -> set[str]:
    return {kernel.name for kernel in program.kernels}
