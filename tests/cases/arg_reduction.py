"""Cases of ArgMax and ArgMin."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases.node_case import NodeCase, random_array
from cases.references import floats

NAN, INF = float("nan"), float("inf")


def case(op: str, detail: str, x: np.ndarray, *, opset: int = 13, want: Any = None, **attributes: Any) -> NodeCase:
    return NodeCase(f"{op}-{detail}", op, [x], attributes, opset, want=None if want is None else lambda: [want])


def _ties() -> list[NodeCase]:
    x = random_array("ties", (3, 7, 5), "int64") % 4
    return [
        case(
            op,
            f"axis_{axis}-last_{last}-keep_{keep}",
            x.astype(np.float32),
            axis=axis,
            select_last_index=last,
            keepdims=keep,
        )
        for op in ("ArgMax", "ArgMin")
        for axis in (0, 1, 2, -1)
        for last, keep in ((0, 0), (1, 1))
    ]


def _dtypes() -> list[NodeCase]:
    cases = []
    for dtype in ("float16", "float64", "int8", "uint8", "int32", "int64"):
        x = floats("dtypes", (4, 30), dtype) if dtype.startswith("float") else random_array("dtypes", (4, 30), dtype)
        cases += [case("ArgMax", dtype, x, axis=1), case("ArgMin", dtype, x, axis=0)]
    for dtype in ("int16", "uint16", "uint32", "uint64"):
        x = random_array("dtypes", (4, 30), dtype)
        cases.append(case("ArgMax", dtype, x, axis=1, keepdims=0, want=x.argmax(1)))
    x = floats("dtypes", (4, 30), "bfloat16")
    return [*cases, case("ArgMin", "bfloat16", x, axis=1, keepdims=0, want=x.astype(np.float32).argmin(1))]


def _extremes() -> list[NodeCase]:
    rows = [
        [NAN, 1, 3],
        [1, NAN, 3],
        [1, 3, NAN],
        [NAN, NAN, NAN],
        [5, NAN, 3],
        [-INF, -INF, -INF],
        [INF, INF, INF],
        [-INF, INF, NAN],
    ]
    x = np.array(rows, np.float32)
    return [
        *(
            case(op, f"nan-last_{last}", x, axis=1, select_last_index=last)
            for op in ("ArgMax", "ArgMin")
            for last in (0, 1)
        ),
        case("ArgMax", "leading_axis_nan", x.T.copy(), axis=0),
        case("ArgMax", "default_axis", floats("default", (5, 4)), opset=11),
        case("ArgMax", "extent_one", floats("one", (32, 1)), axis=1, keepdims=0),
        case("ArgMin", "no_rows", np.zeros((0, 3), np.float32), axis=1, want=np.zeros((0, 1), np.int64)),
        case("ArgMax", "nothing_to_answer", np.zeros((0, 0), np.float32), axis=1, want=np.zeros((0, 1), np.int64)),
    ]


CASES = [*_ties(), *_dtypes(), *_extremes()]
LARGE = [
    case("ArgMax", "vocabulary", floats("vocabulary", (2, 128_257)), axis=1),
    case("ArgMax", "vocabulary_of_ties", random_array("ties", (1, 200_000), "int32") % 3, axis=1, select_last_index=1),
    case("ArgMin", "channels", floats("channels", (8, 150, 64, 65)), axis=1),
    case("ArgMax", "text", floats("text", (6, 40, 6625)), axis=2, keepdims=0),
]
