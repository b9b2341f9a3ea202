"""Cases of Pad."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cases.node_case import MOVED_DTYPES, NodeCase, ints, random_array


def _pad(detail: str, x: np.ndarray, pads: tuple[int, ...], *more: np.ndarray | None, **attributes: Any) -> NodeCase:
    constants = tuple(i for i in (1, 3) if i < 2 + len(more))
    return NodeCase(f"Pad-{detail}", "Pad", [x, ints(*pads), *more], attributes, opset=19, constants=constants)


def _typed(dtype: str) -> NodeCase:
    """onnxruntime pads neither int16 nor uint16."""
    x, value = random_array("x", (3, 7), dtype), random_array("value", (1,), dtype).reshape(())
    want = np.full((6, 8), value)
    want[1:4, :7] = x
    case = _pad(f"constant_{dtype}", x, (1, 0, 2, 1), value)
    return replace(case, want=lambda: [want])


_X = random_array("pad", (2, 3, 4, 5))
_TEN = np.array(10, np.float32)
_MODES = ("constant", "reflect", "edge", "wrap")
_PADS = {
    "none": (0,) * 8,
    "spatial": (0, 0, 1, 2, 0, 0, 2, 1),
    "channels": (0, 1, 0, 0, 0, 2, 0, 0),
    "batch": (1, 0, 0, 0, 1, 0, 0, 0),
    "all": (1, 2, 3, 4, 1, 2, 2, 3),
    "negative": (0, -1, 1, -2, 0, 0, -1, 2),
}
CASES = [
    *(_pad(f"{mode}_{name}", _X, pads, _TEN, mode=mode) for mode in _MODES for name, pads in _PADS.items()),
    *map(_typed, MOVED_DTYPES),
    _pad("no_value", _X, _PADS["all"]),
    _pad("axes", _X, (1, 2, 3, 4), None, ints(-1, 1)),
    _pad("to_empty", _X, (0, -3, 0, 0, 0, 0, 0, 0)),
    _pad("from_empty", np.zeros((2, 0, 3), np.float32), (0, 1, 0, 0, 1, 1), _TEN),
    _pad("long", random_array("x", (300,)), (100, 50), _TEN, mode="reflect"),
    *(_pad(f"{m}_lines", random_array("x", (4, 5, 29, 37)), (0, 0, 28, 36, 0, 0, 3, 1), mode=m) for m in _MODES),
    _pad("rows", random_array("x", (3, 100, 64)), (0, 3, 0, 0, 2, 0), _TEN),
    NodeCase("Pad-attributes", "Pad", [_X], {"pads": _PADS["all"], "mode": "constant", "value": 2.5}, opset=10),
    NodeCase("Pad-attributes_zero", "Pad", [_X], {"pads": _PADS["spatial"]}, opset=7),
    NodeCase("Pad-attributes_reflect", "Pad", [_X], {"pads": _PADS["spatial"], "mode": "reflect"}, opset=7),
]
