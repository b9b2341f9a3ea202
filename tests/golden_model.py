"""The model of the golden files: compiled files that every later Gossamer has to run.

`cases/format_N.gossamer` was written by the first version with format N and stays as it is; `cases/format_N.json` is
what is said about it. tools/write_golden_file.py writes them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).with_name("cases")
TARGETS = ("sm_80", "sm_90")
BATCHES = (2, 4)

MODEL = """
<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1], producer_name: "golden_model.py">
golden (float16[N,4,4,16] x, float[N,2,2] m) => (float16[N,4,4,8] y, float[N] d) {
    [conv] y = com.microsoft.NhwcFusedConv <pads = [1,1,1,1], activation = "Relu"> (x, w, b)
    [det] d = Det (m)
}
"""
"""A kernel with tensor maps on sm_90 and with plain pointers on sm_80, or a plan of cuDNN; and a call on the host."""


def golden_file(version: int) -> Path:
    return FOLDER / f"format_{version}.gossamer"


def report(version: int) -> Any:
    """What `gossamer inspect --json --program` has to say about it; but for where it is."""
    return json.loads(golden_file(version).with_suffix(".json").read_text(encoding="utf-8"))


def signature(batch: int) -> dict[str, tuple[int, ...]]:
    return {"x": (batch, 4, 4, 16), "m": (batch, 2, 2)}


def _eighths(shape: tuple[int, ...], step: int) -> np.ndarray:
    """Numbers from -1 to 1 without an order that a wrong index would preserve."""
    return ((np.arange(np.prod(shape)) * step) % 17 - 8).reshape(shape) / 8


def weights() -> dict[str, np.ndarray]:
    """w: ONNX's order, (8, 16, 3, 3)."""
    return {name: _eighths(shape, 5).astype(np.float16) for name, shape in {"w": (8, 16, 3, 3), "b": (8,)}.items()}


def feeds(batch: int) -> dict[str, np.ndarray]:
    shapes = signature(batch)
    return {"x": _eighths(shapes["x"], 7).astype(np.float16), "m": _eighths(shapes["m"], 3).astype(np.float32)}


def results(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the model computes, in float32."""
    constants = {name: value.astype(np.float32) for name, value in weights().items()}
    x = np.pad(given["x"].astype(np.float32), ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))
    y = np.einsum("nhwcij,kcij->nhwk", windows, constants["w"]) + constants["b"]
    m = given["m"]
    return {"y": np.maximum(y, 0), "d": m[:, 0, 0] * m[:, 1, 1] - m[:, 0, 1] * m[:, 1, 0]}
