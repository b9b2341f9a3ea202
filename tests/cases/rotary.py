"""Cases of RotaryEmbedding, ONNX's and com.microsoft's."""

from __future__ import annotations

import numpy as np

from cases.node_case import NodeCase
from cases.references import floats, through_float32, within

POSITIONS = np.array([[3, 31, 0, 7, 7], [1, 2, 3, 4, 5]])


def _case(detail: str, domain: str, inputs: list[np.ndarray], **attributes: int) -> NodeCase:
    x = inputs[0]
    types = [(1 if x.dtype == np.float32 else 10, x.shape)]
    case = NodeCase(f"Rotary-{detail}", "RotaryEmbedding", inputs, attributes, 23, domain=domain, output_types=types)
    return within(through_float32(case), 2)


def _cases(dtype: str, interleaved: int) -> list[NodeCase]:
    cos, sin = floats("cos", (32, 4), dtype), floats("sin", (32, 4), dtype)
    each = [floats(name, (2, 5, 4), dtype) for name in ("cos", "sin")]
    flat, heads = floats("flat", (2, 5, 24), dtype), floats("heads", (2, 3, 5, 8), dtype)
    part, wide = floats("part", (2, 5, 36), dtype), floats("wide", (2, 3, 5, 12), dtype)
    name = f"{dtype}{'-interleaved' * interleaved}"
    how = {"interleaved": interleaved}
    contrib, onnx = "com.microsoft", ""
    return [
        _case(f"{name}-flat", contrib, [flat, POSITIONS, cos, sin], **how),
        _case(f"{name}-first", contrib, [flat, np.array([7]), cos, sin], **how),
        _case(f"{name}-heads", contrib, [heads, POSITIONS, cos, sin], **how),
        _case(f"{name}-part", contrib, [part, POSITIONS, cos, sin], **how, num_heads=3, rotary_embedding_dim=8),
        _case(f"{name}-onnx", onnx, [wide, cos, sin, POSITIONS], **how, rotary_embedding_dim=8),
        _case(f"{name}-onnx-each", onnx, [flat, *each], **how, num_heads=3),
        _case(f"{name}-onnx-one_step", onnx, [heads[:, :, :1].copy(), cos, sin, POSITIONS[:, 1:2].copy()], **how),
    ]


CASES = [case for dtype in ("float32", "float16") for interleaved in (0, 1) for case in _cases(dtype, interleaved)]
