"""Cases of the Reduce operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases.node_case import NodeCase, ints, random_array
from cases.references import FLOAT_DTYPES, factors, floats, through_float32, within

OPERATORS = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
SHAPE = (2, 3, 4, 5)
AXES = ((3,), (-1, -2), (0,), (1,), (1, 2), (0, 2), (1, 3), (0, 1, 2, 3))
NAN, INF = float("nan"), float("inf")


def case(
    op: str, detail: str, x: np.ndarray, axes: Any = None, *, opset: int = 20, want: Any = None, **attributes: Any
) -> NodeCase:
    """A Reduce node with its axes as input 1 where the operator has it so, else as attribute."""
    as_input = opset >= (13 if op == "Sum" else 18)
    inputs = [x] if axes is None or not as_input else [x, ints(*axes)]
    if axes is not None and not as_input:
        attributes["axes"] = list(axes)
    made = NodeCase(f"{op}-{detail}", f"Reduce{op}", inputs, attributes, opset, (1,) if len(inputs) > 1 else ())
    if want is not None:
        made = NodeCase(f"{op}-{detail}", f"Reduce{op}", inputs, attributes, opset, made.constants, want=lambda: [want])
    return within(through_float32(made), x.size)


def _axes() -> list[NodeCase]:
    x = floats("axes", SHAPE, low=0.5)
    return [
        case(op, f"axes_{'_'.join(map(str, axes))}-keep_{keep}", x, axes, keepdims=keep)
        for op in OPERATORS
        for axes in AXES
        for keep in ((0, 1) if op == "Sum" else (1,))
    ]


def _dtypes() -> list[NodeCase]:
    cases = [
        case(op, dtype, floats("dtypes", (6, 50), dtype, low=0.8, high=1.25), (1,))
        for op in OPERATORS
        for dtype in FLOAT_DTYPES
    ]
    for op in ("Sum", "Mean", "Max", "Min", "L1", "L2", "SumSquare"):
        x = np.arange(-12, 12, dtype=np.int32).reshape(3, 8) * 1000
        cases.append(case(op, "int32", x, (1,)))
    numbers = random_array("integers", (5, 9), "int64") // 16
    cases.append(case("Sum", "int64_exact", numbers, (1,), keepdims=0, want=numbers.sum(1)))
    for dtype in ("int8", "uint8", "uint32", "int64", "uint64"):
        x = random_array("integers", (7, 9), dtype)
        cases += [
            case("Max", dtype, x, (0,), want=x.max(0, keepdims=True)),
            case("Min", dtype, x, (1,), want=x.min(1, keepdims=True)),
        ]
    x = random_array("bool", (6, 3), "bool")
    x[0] = True
    cases += [
        case("Max", "bool", x, (1,), want=x.any(1, keepdims=True)),
        case("Min", "bool", x, (1,), want=x.all(1, keepdims=True)),
    ]
    return cases


def _forms() -> list[NodeCase]:
    x = floats("forms", SHAPE, low=0.5)
    old = [case(op, f"opset_{opset}", x, (1, -1), opset=opset) for op in OPERATORS for opset in (8, 11, 13)]
    return [
        *old,
        case("Sum", "no_axes", x),
        case("Sum", "empty_axes", x, (), keepdims=0),
        case("Sum", "noop", x, (), noop_with_empty_axes=1),
        case("SumSquare", "noop_still_squares", x, (), noop_with_empty_axes=1),
        case("LogSum", "noop_without_axes", x, None, noop_with_empty_axes=1, want=np.log(x)),
        case("Mean", "extent_one", x.reshape(2, 1, 60), (1,), keepdims=0),
        case("Mean", "rank_0", np.array(3, np.float32), None),
        case("Sum", "three_runs", floats("runs", (3, 2, 4, 3, 2, 5)), (0, 2, 4)),
        case("L2", "four_runs", floats("runs", (2, 3, 2, 4, 3, 2, 2, 3)), (1, 3, 5, 7), keepdims=0),
        case("LogSumExp", "three_runs", floats("runs", (3, 2, 4, 3, 2, 5)), (0, 2, 4)),
        case("Max", "three_runs", floats("runs", (3, 2, 4, 3, 2, 5)), (0, 2, 4)),
    ]


def _extremes() -> list[NodeCase]:
    x = np.array(
        [[-INF, -INF, 1], [INF, 1, -INF], [NAN, 1, 2], [1, NAN, 2], [-INF, -INF, -INF], [1e38, 1e38, 1e38]], np.float32
    )
    empty = np.zeros((2, 0, 3), np.float32)
    identities = {
        "Sum": 0.0,
        "Prod": 1.0,
        "Max": -INF,
        "Min": INF,
        "L1": 0.0,
        "L2": 0.0,
        "SumSquare": 0.0,
        "LogSum": -INF,
        "LogSumExp": -INF,
    }
    return [
        case("Max", "nan", x, (1,), keepdims=0, want=x.max(1)),
        case("Min", "nan", x, (1,), keepdims=0, want=x.min(1)),
        case("LogSumExp", "infinite", x[:5], (1,), keepdims=0),
        case("LogSumExp", "large", np.float32([[1000, 1000.5, -1000]]), (1,)),
        case("Sum", "infinite", x, (1,), keepdims=0),
        *(
            case(op, "nothing", empty, (1,), keepdims=0, want=np.full((2, 3), value, np.float32))
            for op, value in identities.items()
        ),
        case(
            "Max",
            "nothing_int32",
            empty.astype(np.int32),
            (1,),
            want=np.full((2, 1, 3), np.iinfo(np.int32).min, np.int32),
        ),
        case("Sum", "no_rows", np.zeros((0, 3), np.float32), (1,)),
    ]


CASES = [*_axes(), *_dtypes(), *_forms(), *_extremes()]

PRODUCT = factors("large", (3, 70_000))
LARGE = [
    case("Mean", "pool_channels_first-float16", floats("large", (32, 2048, 7, 7), "float16"), (2, 3)),
    case("Mean", "pool_channels_last-float16", floats("large", (4, 7, 7, 2048), "float16"), (1, 2)),
    case("Sum", "one_long_row", floats("large", (1, 3_000_000)), (1,)),
    case("Max", "everything", floats("large", (17, 1001, 129)), None),
    case("LogSumExp", "vocabulary", floats("large", (2, 128_257)), (1,)),
    case("Sum", "tall", floats("large", (100_003, 33)), (0,)),
    case("SumSquare", "nested", floats("large", (16, 64, 56, 56)), (0, 2, 3)),
    case("Prod", "long", PRODUCT, (1,), want=PRODUCT.prod(1, np.float64, keepdims=True).astype(np.float32)),
]
