"""Products and convolutions of 8-bit integers, against NumPy.

onnxruntime's CPU provider is no oracle for uint8 times int8: on machines without VNNI it adds pairs of products in 16
bits, which saturate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cases.node_case import NodeCase, random_array
from cases.quantization import dynamically_quantized
from cases.references import floats
from harness import tensor_type

Array = np.ndarray
FLOAT = 1


def saturated(sums: Array, scale: Array, y_scale: Array, y_zero: Array | None, dtype: str) -> Array:
    """round(sums · scale / y_scale) + y_zero as onnxruntime computes it: the factor first, in fp32."""
    zero = 0 if y_zero is None else int(y_zero)
    limits = np.iinfo(dtype)
    factor = np.asarray(scale.astype(np.float32) / y_scale.astype(np.float32), np.float32)
    return np.clip(np.rint(sums.astype(np.float32) * factor) + zero, limits.min, limits.max).astype(dtype)


def _less(x: Array, zero: Array | None) -> Array:
    return x.astype(np.int64) - (0 if zero is None else zero.astype(np.int64))


def _rows(values: Array | None, a: Array) -> Array | None:
    """Scales or zero points of A's rows, so that they broadcast."""
    return values[:, None] if values is not None and values.ndim == 1 and values.size == a.shape[-2] > 1 else values


def _case(
    name: str,
    op: str,
    inputs: Sequence[Array | None],
    want: Array,
    attributes: Mapping[str, Any] = {},
    **more: Any,
) -> NodeCase:
    while inputs[-1] is None:
        inputs = inputs[:-1]
    types = [(tensor_type(want), want.shape)]
    return NodeCase(f"{op}-{name}", op, inputs, attributes, output_types=types, want=lambda: [want], **more)


def integer(name: str, a: Array, b: Array, az: Array | None = None, bz: Array | None = None, **more: Any) -> NodeCase:
    sums = (_less(a, _rows(az, a)) @ _less(b, bz)).astype(np.int32)
    return _case(f"{name}-{a.dtype}-{b.dtype}", "MatMulInteger", [a, b, az, bz], sums, **more)


def qlinear(name: str, a: Array, b: Array, scales: Sequence[Array], zeros: Sequence[Array], **more: Any) -> NodeCase:
    """scales and zeros: of a, b and y."""
    sums = _less(a, _rows(zeros[0], a)) @ _less(b, zeros[1])
    scale = _rows(scales[0], a).astype(np.float32) * scales[1].astype(np.float32)  # type: ignore[union-attr]
    want = saturated(sums, scale, scales[2], zeros[2], zeros[2].dtype.name)
    inputs = [a, scales[0], zeros[0], b, scales[1], zeros[1], scales[2], zeros[2]]
    return _case(f"{name}-{a.dtype}-{b.dtype}", "QLinearMatMul", inputs, want, **more)


def convolved(x: Array, w: Array, attributes: Mapping[str, Any]) -> Array:
    """Sums of products, tap by tap, of integers from which zero points are off."""
    rank, group = x.ndim - 2, attributes.get("group", 1)
    strides, dilations = attributes.get("strides", (1,) * rank), attributes.get("dilations", (1,) * rank)
    pads = attributes.get("pads", (0,) * 2 * rank)
    x = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    spans = [d * (taps - 1) for d, taps in zip(dilations, w.shape[2:], strict=True)]
    outs = [(size - span - 1) // step + 1 for size, span, step in zip(x.shape[2:], spans, strides, strict=True)]
    n, channels = x.shape[0], w.shape[1]
    y = np.zeros((n, w.shape[0], *outs), np.int64)
    for g, filters in enumerate(np.split(w, group)):
        part = x[:, g * channels : (g + 1) * channels]
        rows = slice(g * len(filters), (g + 1) * len(filters))
        for tap in np.ndindex(*w.shape[2:]):
            starts = [t * d for t, d in zip(tap, dilations, strict=True)]
            window = [slice(f, f + (o - 1) * s + 1, s) for f, o, s in zip(starts, outs, strides, strict=True)]
            y[:, rows] += np.einsum("nc...,kc->nk...", part[:, :, *window], filters[:, :, *tap])
    return y


def _per_channel(values: Array | None, w: Array) -> Array | None:
    return values.reshape(-1, *[1] * (w.ndim - 1)) if values is not None and values.ndim == 1 else values


def conv_integer(
    name: str, x: Array, w: Array, xz: Array | None, wz: Array | None, attributes: Mapping[str, Any], **more: Any
) -> NodeCase:
    sums = convolved(_less(x, xz), _less(w, _per_channel(wz, w)), attributes).astype(np.int32)
    return _case(f"{name}-{x.dtype}-{w.dtype}", "ConvInteger", [x, w, xz, wz], sums, attributes, **more)


def qlinear_conv(
    name: str,
    x: Array,
    w: Array,
    scales: Sequence[Array],
    zeros: Sequence[Array],
    bias: Array | None,
    attributes: Mapping[str, Any],
    **more: Any,
) -> NodeCase:
    """scales and zeros: of x, w and y."""
    sums = convolved(_less(x, zeros[0]), _less(w, _per_channel(zeros[1], w)), attributes)
    along = (-1, *[1] * (x.ndim - 2))
    if bias is not None:
        sums += bias.reshape(along)
    scale = scales[0] * (scales[1].reshape(along) if scales[1].ndim else scales[1])
    want = saturated(sums, np.asarray(scale), scales[2], zeros[2], zeros[2].dtype.name)
    inputs = [x, scales[0], zeros[0], w, scales[1], zeros[1], scales[2], zeros[2], bias]
    return _case(f"{name}-{x.dtype}-{w.dtype}", "QLinearConv", inputs, want, attributes, **more)


def to_float(
    name: str, a: Array, b: Array, scales: Sequence[Array], zeros: Sequence[Array | None], bias: Array | None
) -> NodeCase:
    sums = (_less(a, zeros[0]) @ _less(b, zeros[1])).astype(np.float32)
    want = sums * (scales[0] * scales[1]) + (0 if bias is None else bias)
    inputs = [a, b, *scales, *zeros, bias]
    return _case(name, "MatMulIntegerToFloat", inputs, want.astype(np.float32), domain="com.microsoft", rtol=1e-6)


def dynamic(name: str, x: Array, b: Array, scale: Array, zero: Array | None, bias: Array | None) -> NodeCase:
    a, x_scale, x_zero = dynamically_quantized(x)
    sums = (_less(a, x_zero) @ _less(b, zero)).astype(np.float32)
    want = sums * (x_scale * scale) + (0 if bias is None else bias)
    inputs = [x, b, scale, zero, bias]
    return _case(name, "DynamicQuantizeMatMul", inputs, want.astype(np.float32), domain="com.microsoft", rtol=1e-6)


def values(name: str, dtype: str, *shape: int) -> Array:
    return random_array(name, shape, dtype)


def single(value: float) -> Array:
    return np.array(value, np.float32)


PAIRS = [(a, b) for a in ("uint8", "int8") for b in ("uint8", "int8")]
WINDOWS: dict[str, dict[str, Any]] = {
    "padded": {"pads": [1, 1, 1, 1]},
    "uneven": {"strides": [2, 1], "dilations": [1, 2], "pads": [0, 1, 2, 0]},
    "groups": {"pads": [1, 0, 0, 1], "group": 2},
}


def _matmuls() -> list[NodeCase]:
    cases = []
    for x, w in PAIRS:
        a, b = values("a", x, 33, 70), values("b", w, 70, 18)
        az, bz = values("az", x), values("bz", w)
        cases += [
            integer("plain", a, b),
            integer("zeros", a, b, az, bz),
            integer("constant_zeros", a, b, az, bz, constants=(2, 3)),
            integer("per_row_and_column", a, b, values("rows", x, 33), values("columns", w, 18)),
            integer("batch", values("a", x, 2, 1, 5, 40), values("b", w, 3, 40, 6), az, bz),
        ]
        scales = [single(0.02), single(0.03), single(4.0)]
        cases.append(qlinear("plain", a, b, scales, [az, bz, values("yz", x)]))
    a, b = values("a", "uint8", 33, 70), values("b", "int8", 70, 18)
    neutral = np.array(128, np.uint8), np.array(0, np.int8)
    columns = floats("columns", (18,), low=0.01, high=0.1)
    rows = floats("rows", (33,), low=0.01, high=0.1)
    zeros = [values("rows", "uint8", 33), np.zeros(18, np.int8), np.array(7, np.uint8)]
    halves = [np.array(v, np.float16) for v in (0.02, 0.03, 4.0)]
    three = np.array(3, np.uint8)
    stacked = values("stacked", "uint8", 2, 5, 1)
    batched = values("a", "uint8", 2, 5, 40), values("b", "int8", 2, 40, 6)
    sums = (_less(batched[0], stacked) @ _less(batched[1], None)).astype(np.int32)
    return [
        *cases,
        integer("nothing_to_take_off", a, b, *neutral, constants=(2, 3)),
        integer("vector_matrix", a[0], b),
        integer("matrix_vector", a, b[:, 0]),
        integer("empty_sum", a[:, :0], b[:0], three, None),
        integer("no_rows", a[:0], b),
        _case("rows_of_batches", "MatMulInteger", [*batched, stacked], sums),
        qlinear("per_row_and_column", a, b, [rows, columns, single(5.0)], zeros),
        qlinear("halves", a, b, halves, [three, neutral[1], three]),
        to_float("plain", a, b, [single(0.1), single(0.2)], [three, None], None),
        to_float("bias", a, b, [single(0.1), columns], [three, np.zeros(18, np.int8)], floats("bias", (18,))),
        dynamic("unsigned", floats("x", (33, 70)), values("b", "uint8", 70, 18), single(0.2), three, None),
        dynamic("plain", floats("x", (33, 70)), b, single(0.2), None, None),
        dynamic("batch", floats("x", (2, 5, 70)), b, columns, values("z", "int8", 18), floats("bias", (18,))),
    ]


def _convolutions() -> list[NodeCase]:
    cases = []
    for x_type, w_type in PAIRS:
        xz, wz = values("xz", x_type), values("wz", w_type)
        for name, attributes in WINDOWS.items():
            group = attributes.get("group", 1)
            x, w = values("x", x_type, 2, 4, 7, 6), values("w", w_type, 6, 4 // group, 3, 2)
            cases.append(conv_integer(name, x, w, xz, wz, attributes))
        x, w = values("x", x_type, 2, 3, 9, 8), values("w", w_type, 5, 3, 3, 3)
        scales = [single(0.02), floats("w", (5,), low=0.02, high=0.05), single(3.0)]
        zeros = [xz, values("wz", w_type, 5), values("yz", x_type)]
        bias = values("bias", "int32", 5) // 2**17
        cases.append(qlinear_conv("channels", x, w, scales, zeros, bias, {"pads": [1, 1, 1, 1]}))
    x, w = values("x", "uint8", 2, 4, 7, 6), values("w", "int8", 5, 4, 3, 3)
    three, none = np.array(3, np.uint8), np.zeros((), np.int8)
    scales = [single(0.02), single(0.03), single(3.0)]
    pads = {"pads": [1, 1, 1, 1]}
    line, depth = values("x", "uint8", 2, 4, 15), values("x", "int8", 1, 2, 4, 5, 6)
    return [
        *cases,
        conv_integer("no_zeros", x, w, None, None, pads),
        conv_integer("channel_zeros", x, w, three, values("wz", "int8", 5), pads),
        conv_integer("pointwise", x, w[:, :, :1, :1], three, None, {}),
        conv_integer("one_dimension", line, w[:, :, 0], three, None, {"pads": [2, 1], "strides": [2]}),
        conv_integer("three_dimensions", depth, values("w", "int8", 3, 2, 2, 3, 2), np.array(-5, np.int8), None, {}),
        conv_integer("depthwise", x, values("w", "int8", 4, 1, 3, 3), three, None, {"group": 4, **pads}),
        conv_integer("no_images", x[:0], w, three, None, pads),
        qlinear_conv("no_bias", x, w, scales, [three, none, three], None, pads, constants=(2, 3, 5)),
    ]


CASES = [*_matmuls(), *_convolutions()]
LARGE = [
    integer("large", values("a", "uint8", 300, 700), values("b", "int8", 700, 500), np.array(3, np.uint8)),
    integer("one_row", values("a", "uint8", 1, 4000), values("b", "int8", 4000, 500), np.array(3, np.uint8)),
    qlinear_conv(
        "large",
        values("x", "uint8", 2, 64, 28, 28),
        values("w", "int8", 96, 64, 3, 3),
        [single(0.02), floats("w", (96,), low=0.02, high=0.05), single(9.0)],
        [np.array(120, np.uint8), np.zeros(96, np.int8), np.array(110, np.uint8)],
        values("bias", "int32", 96) // 2**16,
        {"pads": [1, 1, 1, 1], "strides": [2, 2]},
    ),
]
