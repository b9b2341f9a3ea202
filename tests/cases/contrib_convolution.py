"""com.microsoft's convolutions over N, spatial…, C: the cases of `convolution` in those layouts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cases.convolution import Case, channels_last
from cases.node_case import NodeCase
from harness import tensor_type, tolerance

PADDED = {"pads": [1, 1, 1, 1]}


def nhwc(
    op: str, name: str, x: tuple[int, ...], w: tuple[int, ...], attributes: Mapping[str, Any], **rest: Any
) -> NodeCase:
    """x, w: shapes as ONNX's Conv has them. NhwcConv has its filters M, spatial…, C / group."""
    constants = rest.pop("constants", (1, 2))
    case = Case(name, x, w, attributes, **rest)
    x_, w_, *others = case.inputs()
    assert x_ is not None
    assert w_ is not None
    inputs = [channels_last(x_), channels_last(w_) if op == "NhwcConv" else w_, *others[:1]]
    inputs += [None if z is None else channels_last(z) for z in others[1:]]
    want = channels_last(case.want())
    return NodeCase(
        f"{op}-{name}", op, inputs, attributes, constants=[i for i in constants if inputs[i] is not None],
        domain="com.microsoft", output_types=[(tensor_type(want), want.shape)], want=lambda: [want],
        rtol=tolerance(want.dtype.name, case.reduction),
    )  # fmt: skip


CASES = [
    nhwc("NhwcConv", "padded", (2, 8, 9, 7), (16, 8, 3, 3), PADDED),
    nhwc("NhwcConv", "varying", (1, 8, 6, 6), (4, 8, 3, 2), PADDED, constants=()),
    nhwc("NhwcConv", "pointwise", (2, 24, 5, 5), (16, 24, 1, 1), {}, bias=False),
    nhwc("NhwcConv", "depthwise", (1, 12, 8, 8), (12, 1, 3, 3), {**PADDED, "group": 12, "strides": [2, 2]}),
    nhwc("NhwcConv", "groups", (1, 12, 8, 8), (8, 3, 3, 3), {**PADDED, "group": 4}),
    nhwc("NhwcConv", "float16", (1, 16, 8, 8), (32, 16, 3, 3), PADDED, dtype=np.float16),
    nhwc("NhwcConv", "one_axis", (2, 6, 11), (4, 6, 3), {"dilations": [2]}),
    nhwc("NhwcFusedConv", "relu", (2, 8, 9, 7), (16, 8, 3, 3), {**PADDED, "activation": "Relu"}, residual=True),
    nhwc("NhwcFusedConv", "plain", (1, 3, 8, 8), (8, 3, 3, 3), {"strides": [2, 2]}, bias=False),
    nhwc("NhwcFusedConv", "leaky", (1, 4, 8, 8), (4, 4, 3, 3), {"activation": "LeakyRelu", "activation_params": [0.2]}),
]
