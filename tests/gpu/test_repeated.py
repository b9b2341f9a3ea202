"""Programs that wait for each other, and rows that are written where they were read, give the same bits every time.

The sanitizer's racecheck sees shared memory alone. What goes through L2 shows only as an answer that changes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from onnx import helper

import harness
from cases import attention, cumulative, einsum, normalization, recurrent, reduction, softmax
from cases.node_case import NodeCase
from cases.references import floats
from gossamer.build.compilation import compile_kernels
from gossamer.run.cuda import CudaExecutor, target_of_device

TIMES = 50
SHARED = (
    "shared_float16",
    "shared_gru",
    "two_rows_linear_gru",
    "tiles_shared_float32",
    "tiles_in_turn_rnn",
    "anew_gru",
)
PRODUCT = NodeCase("split_k", "MatMul", [floats("a", (64, 8192), "float16"), floats("b", (8192, 96), "float16")])
FILTERS = [floats("images", (1, 512, 7, 7), "float16"), floats("filters", (512, 512, 3, 3), "float16")]
CONVOLUTION = NodeCase("convolution", "Conv", FILTERS, {"pads": [1] * 4})
CASES = [
    *(recurrent.LARGE[name].case(name) for name in SHARED),
    *attention.SPLIT[:2],
    *(case for family in (softmax, normalization, reduction, cumulative, einsum) for case in family.LARGE),
    PRODUCT,
    CONVOLUTION,
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_same_bits_every_time(case: NodeCase) -> None:
    answers = _answers(case.model(), case.feeds(), TIMES)
    first = [array.tobytes() for array in next(answers)]
    for index, answer in enumerate(answers, 1):
        assert [array.tobytes() for array in answer] == first, f"run {index} differs from the first"


ROWS = {
    "registers": ("Softmax", "float16", (500, 1000)),
    "cache": ("Softmax", "float16", (600, 50_257)),
    "cache_logarithm": ("LogSoftmax", "float32", (300, 33_333)),
    "whole_vectors": ("Softmax", "float32", (300, 32_768)),
    "parts": ("Softmax", "float32", (3, 100_001)),
    "norm_registers": ("LpNormalization", "float32", (500, 1000)),
    "norm_cache": ("LpNormalization", "float16", (300, 50_001)),
    "norm_parts": ("LpNormalization", "float32", (3, 100_001)),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_may_be_written_where_they_were_read(name: str) -> None:
    """-op(-x), with the operator's result where its input was, has the bits of op(-x) elsewhere."""
    op, dtype, shape = ROWS[name]
    x = floats(name, shape, dtype)
    ((want,),) = _answers(_chain([op], x), {"x": -x}, 1)
    for (got,) in _answers(_chain(["Neg", op, "Neg"], x), {"x": x}, TIMES // 5, in_place=("v1", "v2")):
        np.testing.assert_array_equal(-got, want)


def _chain(ops: list[str], x: np.ndarray) -> onnx.ModelProto:
    """x through the operators one by one; the results are v1, v2 …, and the last is y."""
    names = ["x", *(f"v{i}" for i in range(1, len(ops))), "y"]
    steps = zip(ops, names[:-1], names[1:], strict=True)
    nodes = [helper.make_node(op, [source], [result], name=f"{op} {result}") for op, source, result in steps]
    element = harness.tensor_type(x)
    infos = [helper.make_tensor_value_info(name, element, x.shape) for name in names]
    graph = helper.make_graph(nodes, "chain", infos[:1], infos[-1:], value_info=infos[1:-1])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _answers(
    model: onnx.ModelProto, feeds: dict[str, np.ndarray], times: int, in_place: tuple[str, str] | None = None
) -> Iterator[list[np.ndarray]]:
    """What the model answers, time after time. in_place: two values that must share their memory."""
    program, constants = harness.lower_model(model, target_of_device(0))
    if in_place is not None:
        one, other = (program.locations[name] for name in in_place)
        assert one == other
    with CudaExecutor(constants, compile_kernels) as executor:
        for _ in range(times):
            answer = executor.run(program, feeds)
            yield [answer[name] for name in program.outputs]
