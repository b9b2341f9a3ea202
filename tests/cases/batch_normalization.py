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
