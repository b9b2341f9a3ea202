"""Expected results where onnxruntime's CPU provider lacks a type or a layout: derived cases that it does have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import ml_dtypes
import numpy as np

from cases.node_case import NodeCase
from harness import tolerance

HALF_DTYPES = ("float16", "bfloat16")
FLOAT_DTYPES = (*HALF_DTYPES, "float32", "float64")


def floats(name: str, shape: Sequence[int], dtype: str = "float32", low: float = -2.0, high: float = 2.0) -> np.ndarray:
    """Uniform values, the same for the same name."""
    rng = np.random.default_rng([ord(c) for c in f"{name}{tuple(shape)}"])
    return rng.uniform(low, high, shape).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def factors(name: str, shape: Sequence[int]) -> np.ndarray:
    """fp32 numbers, every ten followed by their reciprocals in another order: products of millions stay where fp32 is.

    Numbers close to one would do that as well, but with their few digits every other product lies just below the middle
    between two fp32 numbers when it is above one: the errors are all of one sign, and add up instead of cancelling. So
    do those of a number times the reciprocal right behind it, which is what a tree of products starts with: the product
    lies just beside one, and fp32 is twice as fine below one as it is above.
    """
    rng = np.random.default_rng([ord(c) for c in f"{name}{tuple(shape)}"])
    x = np.exp2(rng.uniform(-0.5, 0.5, (*shape[:-1], shape[-1] // 20, 10))).astype(np.float32)
    return np.concatenate([x, rng.permuted(1 / x, axis=-1)], axis=-1).reshape(shape)


def through_float32(case: NodeCase) -> NodeCase:
    """Half types computed in fp32 by onnxruntime and rounded once."""
    halves = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
    dtype = next(a.dtype for a in case.inputs if a is not None)
    if dtype not in halves:
        return case
    single = replace(
        case, inputs=[a.astype(np.float32) if a is not None and a.dtype in halves else a for a in case.inputs]
    )
    if case.output_types is not None:
        single = replace(single, output_types=[(1 if t in (10, 16) else t, s) for t, s in case.output_types])

    def want() -> list[np.ndarray]:
        return [y.astype(dtype) if y.dtype == np.float32 else y for y in single.expected()]

    return replace(case, want=want)


def channels_last(case: NodeCase) -> NodeCase:
    """The same node over activations N, spatial…, C."""
    x = case.inputs[0]
    assert x is not None
    types = [output.type.tensor_type for output in case.model().graph.output]
    shapes = [[dim.dim_value for dim in t.shape.dim] for t in types]
    moved = [(t.elem_type, [s[0], *s[2:], s[1]] if len(s) == x.ndim else s) for t, s in zip(types, shapes, strict=True)]
    return replace(
        case,
        name=f"{case.name}-channels_last",
        inputs=[np.moveaxis(x, 1, -1).copy(), *case.inputs[1:]],
        domain="gossamer.nhwc",
        output_types=moved,
        want=lambda: [np.moveaxis(y, 1, -1) if y.ndim == x.ndim else y for y in case.expected()],
    )


def within(case: NodeCase, reduction: int) -> NodeCase:
    """With the tolerance of sums of `reduction` elements; integers stay exact."""
    x = next(a for a in case.inputs if a is not None)
    return replace(case, rtol=tolerance(x.dtype.name, reduction)) if x.dtype.name in FLOAT_DTYPES else case
