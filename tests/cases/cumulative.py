"""Cases of CumSum and CumProd."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cases.node_case import NodeCase, random_array
from cases.references import factors, floats, within
from harness import tensor_type


def _scan(op: str, x: np.ndarray, axis: int, exclusive: int, reverse: int) -> np.ndarray:
    """The operator's text, in NumPy."""
    x = np.moveaxis(x, axis, 0)
    x = x[::-1] if reverse else x
    if exclusive:
        first = np.full_like(x[:1], 1 if op == "CumProd" else 0)
        x = np.concatenate([first, x[:-1]])
    y = np.cumprod(x, 0, dtype=x.dtype) if op == "CumProd" else np.cumsum(x, 0, dtype=x.dtype)
    return np.moveaxis(y[::-1] if reverse else y, 0, axis)


def case(op: str, detail: str, x: np.ndarray, axis: int, exclusive: int = 0, reverse: int = 0) -> NodeCase:
    """Halves are summed in fp32 and rounded once per element."""
    wide = x.astype(np.float64) if x.dtype.kind == "f" else x
    made = NodeCase(
        f"{op}-{detail}-axis_{axis}-exclusive_{exclusive}-reverse_{reverse}",
        op,
        [x, np.array(axis)],
        {"exclusive": exclusive, "reverse": reverse},
        opset=14 if op == "CumSum" else 26,
        constants=(1,),
        output_types=[(tensor_type(x), x.shape)],
        want=lambda: [_scan(op, wide, axis, exclusive, reverse).astype(x.dtype)],
    )
    return within(made, x.shape[axis])


def axis_as_feed(node: NodeCase) -> NodeCase:
    """The axis known only when the model runs."""
    return replace(node, constants=())


def _cases() -> list[NodeCase]:
    x = floats("scan", (3, 7, 5), low=0.5, high=1.5)
    cases = [
        case(op, "float32", x, axis, e, r)
        for op in ("CumSum", "CumProd")
        for axis in (0, 1, -1)
        for e in (0, 1)
        for r in (0, 1)
    ]
    for dtype in ("float16", "float64"):
        cases.append(case("CumSum", dtype, floats("scan", (4, 50), dtype), 1))
    for dtype in ("int32", "int64", "uint32", "uint64"):
        cases.append(case("CumSum", dtype, random_array("scan", (4, 9), dtype) // 16, 1, 1, 1))
    infinite = np.float32([[1, np.inf, 2, 3], [1, 2, -np.inf, np.inf]])
    return [
        *cases,
        case("CumSum", "infinite", infinite, 1, 1),
        case("CumSum", "no_rows", np.zeros((0, 3), np.float32), 1),
        *(axis_as_feed(case("CumSum", "axis_as_feed", x, axis, 1, 1)) for axis in (0, 1, -1)),
        axis_as_feed(case("CumProd", "axis_as_feed", x, -2)),
    ]


CASES = _cases()
LARGE = [
    case("CumSum", "one_long_row", floats("long", (1, 1_000_003), low=0), 1, 1),
    case("CumSum", "long_columns", random_array("long", (50_000, 6), "int32") // 1024, 0, 0, 1),
    case("CumProd", "long", factors("long", (3, 40_000)), 1),
]
