"""The cases of the indexing family on a GPU."""

from __future__ import annotations

import numpy as np
import pytest

from cases.indexing import CASES, ROUNDED_REDUCTIONS
from cases.node_case import NodeCase
from gossamer.build.compilation import compile_kernels
from gossamer.run.cuda import CudaExecutor, target_of_device
from harness import assert_close, lower_model


@pytest.mark.parametrize("case", CASES, ids=str)
def test_indexing(case: NodeCase) -> None:
    case.check("cuda")


@pytest.mark.parametrize("case", ROUNDED_REDUCTIONS, ids=str)
def test_scatter_in_order(case: NodeCase) -> None:
    assert_close(run_deterministic(case), case.expected()[0])


@pytest.mark.parametrize("reduction", ["add", "mul"])
def test_scatter_in_order_is_the_loop_over_the_updates(reduction: str) -> None:
    """To the last bit, with seventy roundings per element."""
    case = next(case for case in ROUNDED_REDUCTIONS if case.name == f"ScatterElements-crowded_{reduction}")
    np.testing.assert_array_equal(run_deterministic(case), case.expected()[0])


def run_deterministic(case: NodeCase) -> np.ndarray:
    program, constants = lower_model(case.model(), target_of_device(0).with_deterministic(True))
    with CudaExecutor(constants, compile_kernels) as executor:
        return executor.run(program, case.feeds())[program.outputs[0]]
