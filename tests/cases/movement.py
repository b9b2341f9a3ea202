"""Cases of Reshape and its kin, BitCast, Expand, Tile, Slice, Concat, Split."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from cases.node_case import MOVED_DTYPES, NodeCase, ints, random_array
from harness import tensor_type


def _case(op_type: str, detail: str, inputs: list[np.ndarray | None], **rest: Any) -> NodeCase:
    return NodeCase(f"{op_type}-{detail}", op_type, inputs, **rest)


def _views() -> list[NodeCase]:
    x = random_array("view", (2, 1, 3, 4))
    return [
        _case("Identity", "rank_0", [np.array(3, np.float32)]),
        _case("Reshape", "infer_one", [x, ints(4, -1)], constants=(1,)),
        _case("Reshape", "keep_zero", [x, ints(0, 0, 12)], constants=(1,)),
        _case(
            "Reshape",
            "allowzero",
            [np.zeros((0, 3), np.float32), ints(3, 0)],
            attributes={"allowzero": 1},
            constants=(1,),
        ),
        _case("Reshape", "to_rank_0", [x[:1, :, :1, :1], np.zeros(0, np.int64)], constants=(1,)),
        _case("Flatten", "axis_2", [x], attributes={"axis": 2}),
        _case("Flatten", "axis_negative", [x], attributes={"axis": -1}, opset=13),
        _case("Squeeze", "attribute", [x], attributes={"axes": [1]}, opset=11),
        _case("Squeeze", "input", [x, ints(1)], constants=(1,)),
        _case("Squeeze", "all", [x]),
        _case("Unsqueeze", "attribute", [x], attributes={"axes": [0, 4]}, opset=11),
        _case("Unsqueeze", "input", [x, ints(0, -1)], constants=(1,)),
    ]


def _bit_casts() -> list[NodeCase]:
    whole = [
        *(("float64", "uint64"), ("int64", "float64"), ("complex64", "int64"), ("uint64", "int64")),
        *(("float32", "int32"), ("uint32", "float32"), ("int32", "uint32")),
        *(("float16", "uint16"), ("bfloat16", "int16"), ("uint16", "bfloat16"), ("bfloat16", "float16")),
        *(("int8", "uint8"), ("float8_e4m3fn", "int8"), ("uint8", "float8_e5m2")),
    ]
    halves = [("int4", "uint4"), ("uint4", "float4_e2m1fn"), ("float4_e2m1fn", "int4")]
    return [
        *(_bit_cast(source, to, codes=30) for source, to in whole),
        *(_bit_cast(source, to, codes=16) for source, to in halves),
        _bit_cast("uint2", "int2", codes=4),
        _bit_cast("bool", "uint8", codes=2),
    ]


def _bit_cast(source: str, to: str, codes: int) -> NodeCase:
    """codes: how many different first bytes there are, each of which begins a number of both types."""
    before, after = (np.dtype(getattr(ml_dtypes, name, name)) for name in (source, to))
    bits = (np.arange(30) % codes).astype(f"u{before.itemsize}") << (8 * before.itemsize - 8)
    x = bits.reshape(2, 3, 5).view(before)
    y = x.view(after)
    form = {"attributes": {"to": tensor_type(y)}, "output_types": [(tensor_type(y), y.shape)], "opset": 26}
    return _case("BitCast", f"{source}_{to}", [x], **form, want=lambda: [y], rtol=0.0)


def _expansions() -> list[NodeCase]:
    shapes = [
        ((3, 1), (3, 40)),
        ((1, 40), (3, 40)),
        ((40,), (2, 3, 40)),
        ((3, 1, 5), (2, 3, 7, 5)),
        ((2, 3), (1, 1)),
        ((), (4, 5)),
    ]
    cases = [
        _case("Expand", f"{x}_to_{y}".replace(" ", ""), [random_array("x", x), ints(*y)], constants=(1,))
        for x, y in shapes
    ]
    cases += [
        _case("Expand", dtype, [random_array("x", (5, 1, 3), dtype), ints(2, 5, 4, 3)], constants=(1,))
        for dtype in MOVED_DTYPES
    ]
    repeats = [(1, 1, 1), (2, 1, 1), (1, 3, 1), (1, 1, 4), (2, 3, 4), (0, 1, 1)]
    cases += [
        _case("Tile", "x".join(map(str, r)), [random_array("x", (3, 5, 7)), ints(*r)], constants=(1,)) for r in repeats
    ]
    return cases


def _slices() -> list[NodeCase]:
    x = random_array("slice", (4, 6, 8))
    bounds: dict[str, tuple[list[int], list[int], list[int] | None, list[int] | None]] = {
        "inner": ([1], [5], [2], None),
        "inner_step": ([1], [8], [-1], [3]),
        "outer_view": ([2], [4], [0], None),
        "outer_one": ([1], [2], [0], None),
        "all_axes": ([1, 0, 2], [3, 5, 8], None, None),
        "negative_bounds": ([-3, -4], [-1, 1000], [0, 2], None),
        "negative_step": ([-1], [-1000], [2], [-1]),
        "negative_step_2": ([5, 10], [0, -9], [1, 2], [-2, -3]),
        "empty": ([3], [3], [1], None),
        "past_the_end": ([100], [200], [0], None),
        "flip_all": ([-1, -1, -1], [-100, -100, -100], [0, 1, 2], [-1, -1, -1]),
        "focus": ([0, 1], [100, 100], [1, 2], [2, 2]),
    }
    cases = []
    for name, (starts, ends, axes, steps) in bounds.items():
        given = [
            ints(*starts),
            ints(*ends),
            None if axes is None else ints(*axes),
            None if steps is None else ints(*steps),
        ]
        while given[-1] is None:
            given.pop()
        cases.append(_case("Slice", name, [x, *given], constants=(1, 2, 3, 4)))
    cases.append(
        _case("Slice", "attributes", [x], attributes={"starts": [1, -4], "ends": [3, 9], "axes": [0, 2]}, opset=9)
    )
    cases.append(_case("Slice", "attributes_no_axes", [x], attributes={"starts": [1, 2], "ends": [3, -1]}, opset=9))
    cases += [
        _case(
            "Slice",
            dtype,
            [random_array("x", (3, 5, 9), dtype), ints(0, 1), ints(4, 9), ints(1, 2), ints(2, 1)],
            constants=(1, 2, 3, 4),
        )
        for dtype in MOVED_DTYPES
    ]
    narrow = [np.array(v, np.int32) for v in ([1], [7], [-1])]
    cases.append(_case("Slice", "int32_bounds", [x, *narrow], constants=(1, 2, 3)))
    return cases


def _joins() -> list[NodeCase]:
    def parts(axis: int, *extents: int, dtype: str = "float32") -> list[np.ndarray | None]:
        shape = [3, 5, 7]
        return [random_array(f"part{i}", (*shape[:axis], e, *shape[axis + 1 :]), dtype) for i, e in enumerate(extents)]

    cases = [
        _case("Concat", f"axis_{axis}_of_{len(extents)}", parts(axis, *extents), attributes={"axis": axis})
        for axis in range(3)
        for extents in [(2, 4), (1, 1, 1, 1), (4,), tuple(range(1, 12)), (0, 3), (5, 0, 2)]
    ]
    cases += [_case("Concat", dtype, parts(1, 2, 3, 8, dtype=dtype), attributes={"axis": -2}) for dtype in MOVED_DTYPES]
    cases.append(
        _case("Concat", "uneven", [random_array("a", (50, 1)), random_array("b", (50, 300))], attributes={"axis": 1})
    )
    same = random_array("same", (4, 16))
    cases.append(_case("Concat", "vectors", [same[0], same[1], same[2]], attributes={"axis": 0}))
    return cases


def _splits() -> list[NodeCase]:
    x = random_array("split", (4, 6, 8))
    cases = [
        _case("Split", "attribute", [x], attributes={"axis": 1, "split": [1, 2, 3]}, n_outputs=3, opset=11),
        _case("Split", "equal_old", [x], attributes={"axis": 2}, n_outputs=4, opset=7),
        _case("Split", "input", [x, ints(3, 1, 0, 4)], attributes={"axis": -1}, n_outputs=4, constants=(1,), opset=13),
        _case("Split", "views", [x, ints(1, 1, 2)], attributes={"axis": 0}, n_outputs=3, constants=(1,)),
        _case("Split", "num_outputs_uneven", [x], attributes={"axis": 2, "num_outputs": 3}, n_outputs=3, opset=18),
        _case(
            "Split",
            "eleven",
            [random_array("eleven", (5, 22))],
            attributes={"axis": 1, "num_outputs": 11},
            n_outputs=11,
        ),
        _case(
            "Split",
            "unaligned_views",
            [random_array("odd", (7, 3), "float16")],
            attributes={"num_outputs": 7},
            n_outputs=7,
        ),
    ]
    cases += [
        _case(
            "Split",
            dtype,
            [random_array("x", (3, 5, 2), dtype), ints(2, 3)],
            attributes={"axis": 1},
            n_outputs=2,
            constants=(1,),
        )
        for dtype in MOVED_DTYPES
    ]
    return cases


CASES = [*_views(), *_bit_casts(), *_expansions(), *_slices(), *_joins(), *_splits()]
