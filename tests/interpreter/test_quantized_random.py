"""Quantisation, and products of 8-bit integers, with random shapes, granularities and types, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cases.node_case import NodeCase
from cases.quantization import dequantize_case, dynamic_case, quantize_case
from cases.quantized_products import conv_integer, integer, values
from cases.references import floats
from examples import examples

BYTES = ("int8", "uint8")
SPECIAL = (np.nan, np.inf, -np.inf, 0.5, 3e38, 1e-45)


@st.composite
def quantizations(draw: st.DrawFn) -> NodeCase:
    shape = tuple(draw(st.lists(st.integers(0, 40), min_size=1, max_size=4)))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    attributes: dict[str, Any] = {"axis": axis}
    scales: tuple[int, ...] = ()
    kind = draw(st.sampled_from(("tensor", "axis", "block")))
    if kind == "axis":
        scales = (shape[axis],)
    elif kind == "block" and shape[axis]:
        attributes["block_size"] = block = draw(st.integers(1, shape[axis]))
        scales = tuple(-(-n // block) if d == axis % len(shape) else n for d, n in enumerate(shape))
    dtype = draw(st.sampled_from(("int8", "uint8", "int16", "uint16")))
    scale = floats("scale", scales, "float32", 0.01, 0.3)
    zero = values("zero", dtype, *scales) if draw(st.booleans()) else None
    if draw(st.booleans()):
        return dequantize_case("random", values("x", dtype, *shape), scale, zero, attributes)
    x = floats("x", shape, low=-50, high=50)
    if x.size:
        x.reshape(-1)[0] = draw(st.sampled_from(SPECIAL))
    return quantize_case("random", x, scale, zero, attributes, dtype if zero is not None else "uint8")


@st.composite
def products(draw: st.DrawFn) -> NodeCase:
    m, n, k = (draw(st.integers(0, 50)) for _ in range(3))
    a_type, b_type = draw(st.sampled_from(BYTES)), draw(st.sampled_from(BYTES))
    batches = draw(st.sampled_from((((), ()), ((2,), ()), ((), (3,)), ((2, 1), (1, 3)))))
    a, b = values("a", a_type, *batches[0], m, k), values("b", b_type, *batches[1], k, n)
    az = draw(st.sampled_from((None, values("az", a_type), values("az", a_type, m))))
    bz = draw(st.sampled_from((None, values("bz", b_type), values("bz", b_type, n))))
    return integer("random", a, b, az if az is None or az.size else None, bz if bz is None or bz.size else None)


@st.composite
def convolutions(draw: st.DrawFn) -> NodeCase:
    rank, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    x_type, w_type = draw(st.sampled_from(BYTES)), draw(st.sampled_from(BYTES))
    window = [draw(st.integers(1, 3)) for _ in range(rank)]
    dilations = [draw(st.integers(1, 2)) for _ in range(rank)]
    pads = [draw(st.integers(0, 2)) for _ in range(2 * rank)]
    spatial = [d * (taps - 1) + draw(st.integers(1, 5)) for d, taps in zip(dilations, window, strict=True)]
    channels, outputs = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    x = values("x", x_type, draw(st.integers(0, 2)), group * channels, *spatial)
    w = values("w", w_type, group * outputs, channels, *window)
    attributes = {"group": group, "dilations": dilations, "pads": pads, "strides": [draw(st.integers(1, 3))] * rank}
    xz = draw(st.sampled_from((None, values("xz", x_type))))
    wz = draw(st.sampled_from((None, values("wz", w_type), values("wz", w_type, len(w)))))
    return conv_integer("random", x, w, xz, wz, attributes)


many = settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])


@many
@given(quantizations())
def test_quantization(node: NodeCase) -> None:
    with np.errstate(all="ignore"):
        node.check("interpreter")


@many
@given(st.lists(st.floats(-(2.0**99), 2.0**99, width=32), max_size=70))
def test_dynamic_quantization(x: list[float]) -> None:
    dynamic_case("random", np.array(x, np.float32)).check("interpreter")


@many
@given(products())
def test_products(node: NodeCase) -> None:
    node.check("interpreter")


@many
@given(convolutions())
def test_convolutions(node: NodeCase) -> None:
    node.check("interpreter")
