"""Movement and transpose kernels: compiled for every architecture, chosen as they should be, and not launched at all
where a view does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from cases.node_case import ints
from gossamer.kernels.copies import choose_tile, collapse, split_axes, walk
from gossamer.program import Call, Copy, Kernel, Launch, Program, Target, View
from harness import compile_all, kernels_of, lower_model, node_model

WORDS = {"int8": np.int8, "float16": np.float16, "float32": np.float32, "float64": np.float64}


def zeros(*shape: int, dtype: Any = np.float16) -> np.ndarray:
    """Zeros that take no memory, of whatever size."""
    return np.broadcast_to(np.zeros((), dtype), shape)


def program(op_type: str, inputs: list[Any], attributes: dict[str, Any], target: str = "sm_90", **rest: Any) -> Program:
    constants = range(1, len(inputs)) if op_type != "Concat" else ()
    return lower_model(node_model(op_type, inputs, attributes, constants=constants, **rest), Target.named(target))[0]


def calls(op_type: str, inputs: list[Any], attributes: dict[str, Any] | None = None, **rest: Any) -> tuple[Call, ...]:
    return program(op_type, inputs, attributes or {}, **rest).calls


def _kernels() -> Iterator[Kernel]:
    for word in WORDS.values():
        x = zeros(8, 64, 56, 56, dtype=word)
        yield from kernels_of(node_model("Transpose", [x], {"perm": [0, 2, 3, 1]}))
    x = zeros(8, 64, 56, 56)
    yield from kernels_of(node_model("Transpose", [x[:, :3, :7]], {"perm": [0, 2, 3, 1]}))
    for op_type in ("DepthToSpace", "SpaceToDepth"):
        yield from kernels_of(node_model(op_type, [x], {"blocksize": 2}))
    yield from kernels_of(node_model("Transpose", [x[:, :8]], {"perm": [0, 2, 3, 1]}))
    yield from kernels_of(node_model("Concat", [x, x, x], {"axis": 1}))
    yield from kernels_of(node_model("Split", [x, ints(30, 34)], {"axis": 1}, n_outputs=2, constants=(1,)))
    reverse = [x, ints(-1, 5), ints(-1000, 50), ints(3, 2), ints(-2, 3)]
    yield from kernels_of(node_model("Slice", reverse, constants=(1, 2, 3, 4)))
    yield from kernels_of(node_model("Tile", [x, ints(1, 2, 1, 3)], constants=(1,)))
    huge = zeros(70000, 64, 640)  # more than 2³¹ elements
    yield from kernels_of(node_model("Transpose", [huge], {"perm": [0, 2, 1]}))
    yield from kernels_of(node_model("Concat", [huge, huge], {"axis": 1}))


def test_every_kernel_compiles_for_every_architecture() -> None:
    kernels = list(dict.fromkeys(_kernels()))
    assert {kernel.function for kernel in kernels} == {
        "copy_strided_kernel", "interleave_kernel", "copy_segments_kernel",
    }  # fmt: skip
    assert {dict(kernel.constants)["WIDE"] for kernel in kernels} == {True, False}
    compile_all(kernels)


def test_dtypes_of_one_size_share_a_kernel() -> None:
    shared = {
        kernel
        for dtype in (np.float16, np.int16, np.uint16)
        for kernel in kernels_of(node_model("Transpose", [zeros(8, 40, 56, dtype=dtype)], {"perm": [0, 2, 1]}))
    }
    assert len(shared) == 1


def test_layout_changes_turn_tiles() -> None:
    """Coalesced on both sides: x is read along its contiguous axis, which is not y's."""
    for perm in ([0, 2, 3, 1], [0, 3, 1, 2]):
        (launch,) = calls("Transpose", [zeros(8, 64, 56, 56)], {"perm": perm})
        assert isinstance(launch, Launch)
        assert dict(launch.kernel.constants) == {"ROWS": 64, "COLS": 64, "TURN": True, "WIDE": False}
        assert launch.grid[0] == pytest.approx(8 * 64 * 56 * 56 / 64**2, rel=0.15)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "offset"),
    [
        ("Reshape", [zeros(4, 6), ints(3, 8)], {}, 0),
        ("BitCast", [zeros(4, 6)], {"to": TensorProto.INT16}, 0),
        ("Transpose", [zeros(1, 64, 1, 7)], {"perm": [0, 2, 1, 3]}, 0),
        ("Slice", [zeros(4, 8, 2), ints(1), ints(3), ints(0)], {}, 32),
        ("Slice", [zeros(1, 8, 4), ints(2), ints(8), ints(1)], {}, 16),
        ("Expand", [zeros(4, 6), ints(1, 4, 6)], {}, 0),
        ("Gather", [zeros(4, 8), np.array(-1)], {}, 48),
        ("Tile", [zeros(4, 6), ints(1, 1)], {}, 0),
    ],
    ids=str,
)
def test_what_lies_there_already_is_a_view(
    op_type: str, inputs: list[Any], attributes: dict[str, Any], offset: int
) -> None:
    opset = 26 if op_type == "BitCast" else 21
    assert [(type(call), call.offset) for call in calls(op_type, inputs, attributes, opset=opset)] == [(View, offset)]


def test_contiguous_but_unaligned_is_one_copy() -> None:
    (copy,) = calls("Slice", [zeros(4, 3), ints(1), ints(3), ints(0)])
    assert isinstance(copy, Copy)
    assert (copy.source_offset, copy.nbytes) == (6, 12)


def test_split_views_what_is_aligned_and_copies_the_rest_at_once() -> None:
    made = calls("Split", [zeros(9, 4), ints(2, 1, 1, 5)], {"axis": 0}, n_outputs=4)
    views = [call.offset for call in made if isinstance(call, View)]
    assert views == [0, 16, 32]
    (copied,) = (call for call in made if not isinstance(call, View))
    assert isinstance(copied, Copy)
    assert copied.source_offset == 24


def test_concat_of_many_takes_a_launch_per_eight() -> None:
    made = calls("Concat", [zeros(5, 3)] * 17, {"axis": 1})
    assert [isinstance(call, Launch) for call in made] == [True] * 3


def test_axes_collapse() -> None:
    nchw_to_nhwc = collapse((2, 5, 7, 3), (105, 7, 1, 35), (105, 21, 3, 1))
    assert [(axis.extent, axis.x, axis.y) for axis in nchw_to_nhwc] == [(2, 105, 105), (35, 1, 3), (3, 35, 1)]
    assert collapse((1, 1), (9, 9), (1, 1)) == []
    assert walk([(2, 12), (3, 4), (4, 1), (5, 7)]) == ((24, 5), (1, 7))


def test_short_columns_are_joined() -> None:
    rows, cols = split_axes(collapse((100, 40, 3), (120, 1, 40), (120, 3, 1)))
    assert [axis.extent for axis in rows] == [100]
    assert [axis.extent for axis in cols] == [40, 3]
    rows, cols = split_axes(collapse((100, 32, 8), (256, 1, 32), (256, 8, 1)))
    assert [axis.extent for axis in rows] == [100, 32]
    assert [axis.extent for axis in cols] == [8]


@pytest.mark.parametrize("extents", [(1, 1), (1, 10**6), (10**6, 1), (7, 50), (10**5, 65), (3, 1000), (0, 5)])
@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
@pytest.mark.parametrize("turn", [True, False])
def test_tiles_are_mostly_full(extents: tuple[int, int], itemsize: int, turn: bool) -> None:
    rows, cols = choose_tile(*extents, itemsize, turn, Target.named("sm_90"))
    assert rows & (rows - 1) == cols & (cols - 1) == 0
    assert 1 <= rows * cols * itemsize <= 8192
    assert rows < 2 * max(1, extents[0])
    assert cols < 2 * max(1, extents[1])
