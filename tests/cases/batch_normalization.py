"""Cases of BatchNormalization; expected results are the operator's text in NumPy, in fp64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from cases.node_case import NodeCase
from cases.references import FLOAT_DTYPES, channels_last, floats, within
from harness import tensor_type


def case(detail: str, x: np.ndarray, parameters: str | None = None, *, opset: int = 15, **attributes: Any) -> NodeCase:
    """parameters: their dtype, x's where it is not given."""
    channels, dtype = x.shape[1], parameters or x.dtype.name
    inputs = [x, *(floats(name, (channels,), dtype) for name in ("scale", "bias", "mean"))]
    inputs.append(floats("variance", (channels,), dtype, low=0.1, high=2))
    epsilon = float(np.float32(attributes.get("epsilon", 1e-5)))

    def want() -> list[np.ndarray]:
        by_channel = [a.astype(np.float64).reshape(-1, *(1,) * (x.ndim - 2)) for a in inputs[1:]]
        scale, bias, mean, variance = by_channel
        y = (x.astype(np.float64) - mean) / np.sqrt(variance + epsilon) * scale + bias
        return [y.astype(x.dtype)]

    types = [(tensor_type(x), x.shape)]
    made = NodeCase(
        f"BatchNormalization-{detail}", "BatchNormalization", inputs, attributes, opset, output_types=types, want=want
    )
    return within(made, 4)


def training(detail: str, x: np.ndarray, **attributes: Any) -> NodeCase:
    """Against onnxruntime, with the running averages."""
    made = case(detail, x, training_mode=1, **attributes)
    return within(replace(made, n_outputs=3, output_types=None, want=None), x.size)


def old_training(detail: str, x: np.ndarray) -> NodeCase:
    """Before version 14: asking for statistics makes it training; the last two outputs are the batch's own."""
    made = case(detail, x, opset=9, momentum=0.75)
    mean, variance = x.mean((0, 2, 3), np.float64), x.var((0, 2, 3), np.float64)
    *_, old_mean, old_variance = made.inputs
    assert old_mean is not None
    assert old_variance is not None

    def want() -> list[np.ndarray]:
        _, scale, bias, *_ = made.inputs
        y = (x - mean[:, None, None]) / np.sqrt(variance[:, None, None] + float(np.float32(1e-5)))
        y = y * scale[:, None, None] + bias[:, None, None]
        averages = [old_mean * 0.75 + mean * 0.25, old_variance * 0.75 + variance * 0.25]
        return [a.astype(x.dtype) for a in (y, *averages, mean, variance)]

    types = [(tensor_type(x), x.shape), *((tensor_type(x), mean.shape),) * 4]
    return within(replace(made, n_outputs=5, output_types=types, want=want), x.size)


def per_element(detail: str, x: np.ndarray) -> NodeCase:
    """spatial = 0 of version 7: the same as a matrix with a column for each element of an image."""
    flat = case(detail, x.reshape(x.shape[0], -1), opset=7)
    inputs = [x, *(a if a is None else a.reshape(x.shape[1:]) for a in flat.inputs[1:])]
    want = [y.reshape(x.shape) for y in flat.expected()]
    types = [(tensor_type(x), x.shape)]
    return replace(flat, inputs=inputs, attributes={"spatial": 0}, output_types=types, want=lambda: want)


def empty_batch() -> NodeCase:
    """The statistics of nothing are NaN."""
    x, nan = np.zeros((0, 3, 2), np.float32), np.full(3, np.nan, np.float32)
    return replace(training("training_empty", x), want=lambda: [x, nan, nan])


def _cases() -> list[NodeCase]:
    x = floats("batch", (2, 6, 4, 5))
    first = [case(dtype, floats("batch", (2, 6, 4, 5), dtype)) for dtype in FLOAT_DTYPES]
    first += [case("1d", x.reshape(2, 6, 20)), case("3d", x.reshape(2, 6, 2, 2, 5)), case("epsilon", x, epsilon=0.25)]
    first += [
        case("fp16_with_fp32", x.astype(np.float16), "float32"),
        case("bf16_with_fp32", x.astype(ml_dtypes.bfloat16), "float32"),
    ]
    trained = [training("training", x, momentum=0.75), training("training_float64", x.astype(np.float64))]
    versions = [case(f"opset_{opset}", x, opset=opset) for opset in (7, 9, 14)]
    others = [
        case("2d", floats("matrix", (5, 6))),
        case("empty", np.zeros((1, 2048, 0), np.float32)),
        training("one_image", x[:1]),
        old_training("training_before_14", x),
        per_element("per_element", x),
        empty_batch(),
    ]
    return [*first, *map(channels_last, first), *trained, *map(channels_last, trained), *versions, *others]


def training_cases() -> list[NodeCase]:
    """Those that compute statistics."""
    return [node for node in CASES if node.attributes.get("training_mode")]


CASES = _cases()
LARGE = [
    case("resnet-float16", floats("large", (8, 64, 56, 56), "float16")),
    channels_last(case("resnet-float16", floats("large", (8, 64, 56, 56), "float16"))),
    training("training_large", floats("large", (8, 16, 100, 100))),
]
