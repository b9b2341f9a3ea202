"""The norms and the rotary embedding of our own domain, which passes make; expected results in NumPy, in fp64.

Their types are mixed: what fp16 models compute in fp32. Scales are optional, tables have a column for each of x's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cases.node_case import NodeCase
from cases.references import floats
from harness import tensor_type, tolerance

EPSILON = 0.01


def _case(
    op: str,
    detail: str,
    inputs: Sequence[np.ndarray | None],
    want: Callable[..., tuple[np.ndarray, ...]],
    dtype: str,
    domain: str = "gossamer",
    **attributes: Any,
) -> NodeCase:
    """want: of the inputs in fp64. dtype: of the results, the first as large as the first input."""
    exact = [None if array is None else array.astype(np.float64) for array in inputs]
    results = [result.astype(dtype) for result in want(*exact)]
    types = [(tensor_type(result), result.shape) for result in results]
    n_outputs = len(results)
    return NodeCase(
        f"{op}-{detail}", op, inputs, attributes, n_outputs=n_outputs, domain=domain, output_types=types,
        want=lambda: results, rtol=tolerance(dtype, 64),
    )  # fmt: skip


def _normal(x: np.ndarray, axes: tuple[int, ...], *, centred: bool) -> np.ndarray:
    d = x - x.mean(axes, keepdims=True) if centred else x
    return d / np.sqrt((d * d).mean(axes, keepdims=True) + EPSILON)


def _norm(
    op: str, detail: str, inputs: Sequence[np.ndarray | None], dtype: str, axis: int = -1, **rest: Any
) -> NodeCase:
    def want(x: np.ndarray, scale: np.ndarray | None = None, bias: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
        y = _normal(x, tuple(range(axis, 0)), centred=op == "LayerNormalization")
        return ((y if scale is None else y * scale) + (0 if bias is None else bias),)

    return _case(op, detail, inputs, want, dtype, axis=axis, epsilon=EPSILON, **rest)


def _skip_norm(detail: str, shape: tuple[int, ...], skip: tuple[int, ...], gamma: bool, *, rms: bool) -> NodeCase:
    x, z, bias = floats("x", shape), floats("z", skip), floats("c", shape[-1:])
    scale = floats("g", shape[-1:], "float16") if gamma else None

    def want(x: np.ndarray, z: np.ndarray, *rest: np.ndarray | None) -> tuple[np.ndarray, ...]:
        total = x + z + (0 if rest[-1] is None else rest[-1])
        y = _normal(total, (-1,), centred=not rms)
        return (y if rest[0] is None else y * rest[0],)

    inputs = [x, z, scale, bias] if rms else [x, z, scale, None, bias]
    op = "SkipSimplifiedLayerNormalization" if rms else "SkipLayerNormalization"
    return _case(op, detail, inputs, want, "float32", epsilon=EPSILON)


def _rotary(detail: str, x: np.ndarray, table: tuple[int, ...], dtype: str = "float32") -> NodeCase:
    def want(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> tuple[np.ndarray, ...]:
        columns = cos.shape[-1]
        left, right, rest = np.split(x, (columns // 2, columns), axis=-1)
        turned = np.concatenate((-right, left), axis=-1)
        return (np.concatenate((x[..., :columns] * cos + turned * sin, rest), axis=-1),)

    inputs = [x, floats("cos", table, dtype), floats("sin", table, dtype)]
    return _case("RotaryEmbedding", detail, inputs, want, x.dtype.name)


X, HALF = floats("x", (2, 3, 40)), floats("x", (2, 3, 40), "float16")
G, H = floats("g", (40,)), floats("h", (40,))
SLICES = floats("q", (2, 3, 5, 12))
CASES = [
    _norm("LayerNormalization", "no_scale", [X], "float32"),
    _norm("LayerNormalization", "bias_alone", [X, None, H], "float32"),
    _norm("LayerNormalization", "fp32_parameters", [HALF, G, H], "float16"),
    _norm("LayerNormalization", "fp32_result", [HALF, G.astype(np.float16), H.astype(np.float16)], "float32"),
    _norm("LayerNormalization", "two_axes", [X, floats("g", (3, 40)), floats("h", (3, 40))], "float16", axis=-2),
    _norm("RMSNormalization", "no_scale", [X], "float32"),
    _norm("RMSNormalization", "fp32_scale", [HALF, G], "float16"),
    _norm("SimplifiedLayerNormalization", "microsoft", [HALF, G], "float32", domain="com.microsoft"),
    _skip_norm("rank_4", (2, 2, 3, 40), (2, 2, 3, 40), True, rms=False),
    _skip_norm("rank_4_repeated", (2, 2, 3, 40), (1, 1, 3, 40), False, rms=False),
    _skip_norm("rank_4", (2, 2, 3, 40), (3, 40), True, rms=True),
    _skip_norm("no_scale", (6, 40), (6, 40), False, rms=True),
    _rotary("a_table_for_all", SLICES, (5, 12)),
    _rotary("a_table_for_each", SLICES, (2, 1, 5, 12)),
    _rotary("columns_that_stay", SLICES, (1, 1, 5, 8)),
    _rotary("float16", SLICES.astype(np.float16), (5, 12), "float16"),
    _rotary("fp32_tables", SLICES.astype(np.float16), (1, 5, 10)),
]
