"""Cases of com.microsoft::BiasSoftmax, by its definition: onnxruntime's CPU provider lacks it."""

from __future__ import annotations

from math import prod

import numpy as np

from cases.node_case import NodeCase
from cases.references import floats
from harness import tensor_type, tolerance


def _case(detail: str, x: np.ndarray, bias: np.ndarray, axis: int, inner: int) -> NodeCase:
    def want() -> list[np.ndarray]:
        rows, columns = prod(x.shape[:axis]), prod(x.shape[axis:])
        biases = bias.reshape(-1, columns).astype(np.float64)
        repeat = rows // len(biases)
        added = np.repeat(biases, repeat, axis=0) if inner else np.tile(biases, (repeat, 1))
        scores = x.reshape(rows, columns).astype(np.float64) + added
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        return [(powers / powers.sum(-1, keepdims=True)).reshape(x.shape).astype(x.dtype)]

    return NodeCase(
        f"BiasSoftmax-{detail}",
        "BiasSoftmax",
        [x, bias],
        {"axis": axis, "is_inner_broadcast": inner},
        domain="com.microsoft",
        output_types=[(tensor_type(x), x.shape)],
        want=want,
        rtol=tolerance(x.dtype.name, 64),
    )


_x = floats("scores", (2, 3, 4, 50), low=-6, high=6)
_hidden = np.where(floats("hidden", (2, 1, 1, 50)) > 0, 0, -np.inf).astype(np.float32)
CASES = [
    _case("inner", _x, _hidden, 3, 1),
    _case("outer", _x, floats("outer", (1, 1, 4, 50)), 3, 0),
    _case("all", _x, floats("all", (2, 3, 4, 50)), 3, 0),
    _case("axes", _x, floats("axes", (2, 1, 4, 50)), 2, 1),
    _case("float16", _x.astype(np.float16), floats("outer", (1, 3, 4, 50), "float16"), 3, 0),
    _case("float64", _x.astype(np.float64), floats("outer", (1, 3, 4, 50), "float64"), -1 % 4, 0),
    _case("long", floats("long", (2, 3, 140_001), low=-6, high=6), floats("long", (2, 1, 140_001)), 2, 1),
]
