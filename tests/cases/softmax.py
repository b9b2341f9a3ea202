"""Cases of Softmax, LogSoftmax, Hardmax."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cases.node_case import NodeCase
from cases.references import FLOAT_DTYPES, floats, through_float32, within

NAN, INF = float("nan"), float("inf")
OPERATORS = ("Softmax", "LogSoftmax", "Hardmax")


def case(op: str, detail: str, x: np.ndarray, *, opset: int = 13, **attributes: Any) -> NodeCase:
    return within(through_float32(NodeCase(f"{op}-{detail}", op, [x], attributes, opset)), 64)


def vocabulary() -> NodeCase:
    """Compared with fp64: onnxruntime adds the exponentials in fp32, which costs 1e-5 of their sum here."""
    x = floats("vocabulary", (2, 128_257), low=-9, high=9)
    power = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    want = (power / power.sum(1, keepdims=True)).astype(np.float32)
    return replace(case("Softmax", "vocabulary", x), want=lambda: [want])


def rows_of_one(op: str) -> NodeCase:
    """Before opset 11 `axis` may be the rank; onnxruntime refuses that."""
    want = np.full(3, op != "LogSoftmax", np.float32)
    return replace(case(op, "axis_is_rank", floats("vector", (3,)), opset=9), want=lambda: [want])


def _axes() -> list[NodeCase]:
    x = floats("axes", (3, 7, 4, 5), low=-6, high=6)
    cases = [
        case(op, f"axis_{axis}-opset_{opset}", x, opset=opset, axis=axis)
        for op in OPERATORS
        for axis in (0, 1, 2, -1)
        for opset in (11, 13)
    ]
    return cases + [case(op, f"default_axis-opset_{opset}", x, opset=opset) for op in OPERATORS for opset in (8, 13)]


def _values() -> list[NodeCase]:
    rows = [
        [NAN, 1, 3],
        [1, 3, NAN],
        [-INF, -INF, -INF],
        [INF, 1, 2],
        [-INF, 3, 4],
        [1e4, -1e4, 9999],
        [-3e38, 3e38, 0],
    ]
    cases = [case(op, "extremes", np.array(rows, np.float32)) for op in OPERATORS[:2]]
    ties = np.float32([[1, 3, 3], [2, 2, 2], [-INF, -INF, -INF], [-1, -2, -1]])
    cases.append(case("Hardmax", "ties", ties))
    cases += [case(op, dtype, floats(dtype, (5, 33), dtype)) for op in OPERATORS[:2] for dtype in FLOAT_DTYPES]
    cases.append(case("Hardmax", "float16", floats("half", (5, 33), "float16")))
    return [
        *cases,
        case("Softmax", "no_rows", np.zeros((0, 4), np.float32)),
        case("Softmax", "one", np.ones((2, 1), np.float32)),
        *(rows_of_one(op) for op in OPERATORS),
    ]


CASES = [*_axes(), *_values()]
LARGE = [
    vocabulary(),
    case("LogSoftmax", "vocabulary-float16", floats("vocabulary", (40, 32_000), "float16", low=-9, high=9)),
    case("Softmax", "rows_read_twice-float16", floats("twice", (600, 50_257), "float16")),
    case("LogSoftmax", "rows_read_twice", floats("twice", (300, 33_333))),
    case("Softmax", "attention-float16", floats("attention", (8, 12, 128, 128), "float16")),
    case("Softmax", "channels", floats("channels", (2, 150, 64, 65)), axis=1),
    case("Softmax", "long_columns", floats("columns", (20_000, 40)), axis=0),
    case("Softmax", "short_rows", floats("short", (100_000, 3))),
]
