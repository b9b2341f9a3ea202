"""com.microsoft's GroupNorm and SkipGroupNorm; expected results are their text in NumPy, in fp64."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases.node_case import NodeCase
from cases.references import floats
from harness import tensor_type, tolerance

EPSILON = 1e-5


def _group_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, groups: int, silu: bool) -> np.ndarray:
    """Of N, C, pixels."""
    rows = x.reshape(x.shape[0], groups, -1)
    y = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + EPSILON)
    y = y.reshape(x.shape) * gamma[:, None] + beta[:, None]
    return y / (1 + np.exp(-y)) if silu else y


def group_norm(
    detail: str,
    shape: tuple[int, int, int, int],
    groups: int,
    dtype: str = "float32",
    *,
    channels_last: bool = True,
    silu: bool = False,
    skip: tuple[int, ...] | None = None,
    bias: bool = False,
    parameters: str = "float32",
    returns_sum: bool = True,
) -> NodeCase:
    """shape: N, H, W, C or N, C, H, W. skip: the shape of that input; then the operator is SkipGroupNorm."""
    channels = shape[-1] if channels_last else shape[1]
    x, gamma, beta = (
        floats("x", shape, dtype),
        floats("g", (channels,), parameters),
        floats("b", (channels,), parameters),
    )
    added = [
        None if skip is None else floats("skip", skip, dtype),
        floats("bias", (channels,), dtype) if bias else None,
    ]

    def first(array: np.ndarray) -> np.ndarray:
        """As N, C, pixels."""
        exact = array.astype(np.float64)
        if array.size == shape[0] * channels:
            return exact.reshape(shape[0], channels, 1)
        moved = np.moveaxis(exact, -1, 1) if channels_last else exact
        return moved.reshape(shape[0], channels, -1)

    def laid_out(array: np.ndarray) -> np.ndarray:
        image = shape[1:-1] if channels_last else shape[2:]
        whole = array.reshape(shape[0], channels, *image)
        return (np.moveaxis(whole, 1, -1) if channels_last else whole).astype(x.dtype)

    def want() -> list[np.ndarray]:
        total = first(x)
        if added[0] is not None:
            total = total + first(added[0])
        if added[1] is not None:
            total = total + added[1].astype(np.float64)[:, None]
        y = _group_norm(total, gamma.astype(np.float64), beta.astype(np.float64), groups, silu)
        return [laid_out(y), laid_out(total)][:n_outputs]

    n_outputs = 2 if skip is not None and returns_sum else 1
    attributes: dict[str, Any] = {"groups": groups, "activation": int(silu), "epsilon": EPSILON}
    if not channels_last:
        attributes["channels_last"] = 0
    op = "GroupNorm" if skip is None else "SkipGroupNorm"
    inputs = [x, gamma, beta] if skip is None else [x, gamma, beta, *added]
    while inputs[-1] is None:
        inputs.pop()
    return NodeCase(
        f"{op}-{detail}", op, inputs, attributes, n_outputs=n_outputs, domain="com.microsoft", want=want,
        output_types=[(tensor_type(x), shape)] * n_outputs, rtol=tolerance(dtype, x.size),
    )  # fmt: skip


LAST, FIRST = (2, 3, 5, 12), (2, 12, 3, 5)
CASES = [
    group_norm("plain", LAST, 4),
    group_norm("silu", LAST, 4, silu=True),
    group_norm("one_group", LAST, 1, silu=True),
    group_norm("a_group_per_channel", LAST, 12),
    group_norm("channels_first", FIRST, 4, channels_last=False, silu=True),
    group_norm("float16", LAST, 4, "float16", silu=True),
    group_norm("float16_parameters", LAST, 4, "float16", parameters="float16"),
    group_norm("bfloat16", LAST, 4, "bfloat16"),
    group_norm("whole", LAST, 4, silu=True, skip=LAST, bias=True),
    group_norm("per_image", LAST, 4, skip=(2, 12), bias=True),
    group_norm("per_image_of_rank_4", LAST, 4, skip=(2, 1, 1, 12), silu=True),
    group_norm("without_sum", LAST, 4, skip=(2, 12), bias=True, returns_sum=False),
    group_norm("a_group_per_channel", LAST, 12, skip=(2, 12), bias=True),
    group_norm("channels_first", FIRST, 4, channels_last=False, skip=FIRST, bias=True),
    group_norm("channels_first_per_image", FIRST, 4, channels_last=False, skip=(2, 12, 1, 1), bias=True),
    group_norm("float16", LAST, 4, "float16", skip=LAST, bias=True),
]
LARGE = [
    group_norm("unet", (2, 64, 64, 320), 32, "float16", silu=True),
    group_norm("unet", (2, 64, 64, 320), 32, "float16", silu=True, skip=(2, 320), bias=True),
    group_norm("unet_whole", (2, 64, 64, 320), 32, "float16", silu=True, skip=(2, 64, 64, 320), returns_sum=False),
]
