"""QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear: every granularity, against the operators' text in NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from cases.narrow_types import FLOATS, NEWEST, SCALE, WIDE, bits_of, dtype_named, encoded, every
from cases.node_case import NodeCase, random_array
from cases.references import floats
from harness import tensor_type

NAN, INF = float("nan"), float("inf")
TIES = np.float32([-1.5, -0.5, 0.5, 1.5, 2.5, 300, -300, INF, -INF, NAN, 0, 1])


def spread(values: np.ndarray, x: np.ndarray, axis: int, block: int) -> np.ndarray:
    """Scales or zero points in the shape of x: one, one per index of the axis, or one per block."""
    if values.size == 1:
        return np.broadcast_to(values.reshape(()), x.shape)
    if block:
        return np.repeat(values, block, axis)[tuple(slice(0, extent) for extent in x.shape)]
    return np.broadcast_to(values.reshape([-1 if d == axis % x.ndim else 1 for d in range(x.ndim)]), x.shape)


def quantized(
    x: np.ndarray, scale: np.ndarray, zero: np.ndarray | None, attributes: Mapping[str, Any], dtype: str
) -> np.ndarray:
    axis, block = attributes.get("axis", 1), attributes.get("block_size", 0)
    s = spread(scale.astype(np.float32), x, axis, block)
    z = np.float32(0) if zero is None else spread(zero.astype(np.float32), x, axis, block)
    with np.errstate(all="ignore"):
        q = x.astype(np.float32) / s
        if dtype in FLOATS:
            return encoded(q + z, dtype, bool(attributes.get("saturate", 1)))
        q = np.rint(q)
    limits = ml_dtypes.iinfo(dtype)
    q = np.where(np.isnan(q), limits.min, np.clip(q, limits.min - z, limits.max - z) + z)
    return q.astype(getattr(ml_dtypes, dtype, dtype))


def dequantized(
    x: np.ndarray, scale: np.ndarray, zero: np.ndarray | None, attributes: Mapping[str, Any], dtype: np.dtype
) -> np.ndarray:
    axis, block = attributes.get("axis", 1), attributes.get("block_size", 0)
    kind = np.float32 if x.dtype.name in FLOATS else np.int32
    s = spread(scale.astype(np.float32), x, axis, block)
    z = kind(0) if zero is None else spread(zero.astype(kind), x, axis, block)
    with np.errstate(all="ignore"):
        return ((x.astype(kind) - z).astype(np.float32) * s).astype(dtype)


def dynamically_quantized(x: np.ndarray) -> list[np.ndarray]:
    low, high = np.float32(min(0, x.min(initial=0))), np.float32(max(0, x.max(initial=0)))
    scale = np.float32(1) if low == high else (high - low) / np.float32(255)
    zero = np.rint(np.clip(-low / scale, 0, 255)).astype(np.float32)
    y = np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.uint8)
    return [y, np.array(scale, np.float32), np.array(zero.astype(np.uint8))]


def quantize_case(
    name: str,
    x: np.ndarray,
    scale: np.ndarray,
    zero: np.ndarray | None,
    attributes: Mapping[str, Any] = {},
    dtype: str = "uint8",
    **more: Any,
) -> NodeCase:
    zeros = [] if zero is None else [zero]
    want = quantized(x, scale, zero, attributes, dtype)
    return NodeCase(
        f"QuantizeLinear-{name}-{x.dtype.name}-{dtype}",
        "QuantizeLinear",
        [x, scale, *zeros],
        attributes,
        output_types=[(tensor_type(want), x.shape)],
        want=lambda: [want],
        rtol=0.0,
        **more,
    )


def dequantize_case(
    name: str,
    x: np.ndarray,
    scale: np.ndarray,
    zero: np.ndarray | None,
    attributes: Mapping[str, Any] = {},
    dtype: str = "",
    **more: Any,
) -> NodeCase:
    """dtype: of the output, where it is not that of the scale."""
    zeros = [] if zero is None else [zero]
    want = dequantized(x, scale, zero, attributes, dtype_named(dtype or scale.dtype.name))
    if dtype:
        attributes = {**attributes, "output_dtype": WIDE[dtype]}
    return NodeCase(
        f"DequantizeLinear-{name}-{x.dtype.name}-{scale.dtype.name}",
        "DequantizeLinear",
        [x, scale, *zeros],
        attributes,
        output_types=[(tensor_type(want), x.shape)],
        want=lambda: [want],
        **more,
    )


GRANULARITIES: dict[str, tuple[Mapping[str, Any], tuple[int, ...]]] = {
    "tensor": ({}, ()),
    "tensor_of_one": ({}, (1,)),
    "first_axis": ({"axis": 0}, (3,)),
    "default_axis": ({}, (5,)),
    "last_axis": ({"axis": -1}, (70,)),
    "blocks_of_rows": ({"axis": 1, "block_size": 2}, (3, 3, 70)),
    "blocks_of_columns": ({"axis": 2, "block_size": 4}, (3, 5, 18)),
    "block_of_all": ({"axis": 0, "block_size": 3}, (1, 5, 70)),
}


def _scales(name: str, shape: Sequence[int], dtype: str = "float32") -> np.ndarray:
    return floats(name, shape, dtype, 0.02, 0.2)


def _cases() -> list[NodeCase]:
    x = floats("quantization", (3, 5, 70), low=-20, high=20)
    cases = []
    for name, (attributes, shape) in GRANULARITIES.items():
        scale, zero = _scales(name, shape), random_array(name, shape, "uint8")
        cases.append(quantize_case(name, x, scale, zero, attributes))
        cases.append(dequantize_case(name, random_array(name, x.shape, "uint8"), scale, zero, attributes))
    ties = np.float32(1)
    for dtype in ("int8", "uint8", "int16", "uint16"):
        zero = random_array(dtype, (), dtype)
        cases.append(quantize_case("ties", TIES, np.array(ties), zero, dtype=dtype))
        for real in ("float32", "float16", "bfloat16"):
            values = random_array("real", (4, 33), dtype)
            cases.append(dequantize_case("types", values, _scales("types", (), real), zero))
        half = floats("half", (4, 33), "float16", -9, 9)
        cases.append(quantize_case("types", half, _scales("types", (), "float16"), zero, dtype=dtype))
    brain = floats("brain", (4, 33), "bfloat16", -9, 9)
    integers = random_array("integers", (4, 33), "int32") // 2**16
    nibbles = random_array("nibbles", (4, 33), "int8") // 16
    return [
        *cases,
        *_where_quotients_round(),
        *_narrow(),
        *_block_floats(),
        *(
            quantize_case(
                "unsaturated", x * 1e5, _scales("no", ()), None, {"output_dtype": number, "saturate": 0}, name
            )
            for name, number in FLOATS.items()
        ),
        quantize_case("no_zero", x, _scales("no_zero", ()), None),
        quantize_case("bfloat16", brain, _scales("brain", (), "bfloat16"), np.array(3, np.int8), dtype="int8"),
        quantize_case("integers", integers, np.array(100, np.float32), np.array(3, np.int8), dtype="int8"),
        quantize_case("output_dtype", x, _scales("attribute", ()), None, {"output_dtype": 5}, "int16"),
        quantize_case(
            "onnxruntime", x, _scales("domain", (5,)), random_array("d", (5,), "uint8"), domain="com.microsoft"
        ),
        quantize_case("empty", x[:0], _scales("empty", ()), None),
        dequantize_case("no_zero", random_array("no_zero", (4, 33), "int8"), _scales("no_zero", ()), None),
        dequantize_case("bias", integers, _scales("bias", ()), None),
        dequantize_case("scalar", np.array(7, np.int8), _scales("scalar", ()), np.array(3, np.int8)),
        dequantize_case(
            "onnxruntime", random_array("d", (4, 5), "int8"), _scales("d", (5,)), None, domain="com.microsoft"
        ),
        dequantize_case("nibbles", nibbles.astype(ml_dtypes.int4), _scales("nibbles", ()), None, constants=(0,)),
        dequantize_case(
            "nibbles", nibbles.astype(ml_dtypes.int4), _scales("nibbles", ()), np.array(-3, ml_dtypes.int4)
        ),
        quantize_case("nibbles", x / 10, _scales("nibbles", ()), np.array(-2, ml_dtypes.int4), dtype="int4"),
        quantize_case("nibbles", x / 10, _scales("n", (5,)), nibbles[0, :5].astype(ml_dtypes.uint4), dtype="uint4"),
        dequantize_case(
            "nibbles_in_blocks",
            np.abs(nibbles).astype(ml_dtypes.uint4),
            _scales("blocks", (4, 3)),
            np.abs(nibbles[:, :3]).astype(ml_dtypes.uint4),
            {"axis": 1, "block_size": 11},
            constants=(0, 2),
        ),
    ]


def _narrow() -> list[NodeCase]:
    """Floats of up to 8 bits, integers of 2, and scales that are powers of two."""
    x, new = floats("narrow", (4, 33), low=-9, high=9), {"opset": NEWEST}
    cases = []
    for name in (*FLOATS, "int2", "uint2"):
        zero = np.array([1, 0, 1, -1 if name != "uint2" else 2], np.float32).astype(dtype_named(name))
        every_code = every(name)[: 2 ** bits_of(name)]
        block, cuts = {"axis": 1, "block_size": 11}, _scales("narrow", (4, 3))
        cases += [
            quantize_case("ties", TIES, np.array(1, np.float32), zero[1, ...], {"axis": 0}, name, **new),
            quantize_case("tensor", x, _scales("narrow", ()), zero[0, ...], dtype=name, **new),
            quantize_case("axis", x, _scales("narrow", (4,)), zero, {"axis": 0}, name, **new),
            quantize_case(
                "half", x.astype(np.float16), _scales("half", (), "float16"), zero[0, ...], dtype=name, **new
            ),
            quantize_case("blocks", x, cuts, None, {**block, "output_dtype": tensor_type(zero)}, name, **new),
            dequantize_case("every", every_code, np.array(0.3, np.float32), None, **new),
            dequantize_case("axis", every_code.reshape(-1, 4), _scales("narrow", (4,), "float16"), zero, **new),
            dequantize_case("brain", every_code, _scales("narrow", ()), zero[0, ...], dtype="bfloat16", **new),
        ]
    return cases


def _block_floats() -> list[NodeCase]:
    """Microscaling formats: blocks of 32 elements with a power of two as their scale, of which one is NaN."""
    scale = (np.arange(12, dtype=np.uint8) + 121).reshape(3, 4)
    scale[1, 2] = 255
    scale, blocks, new = scale.view(dtype_named(SCALE)), {"axis": 1, "block_size": 32}, {"opset": NEWEST}
    x = floats("microscaling", (3, 100), low=-300, high=300)
    cases = []
    for name in ("float4_e2m1fn", "float8_e4m3fn", "float8_e5m2", "int8"):
        number = tensor_type(np.zeros((), dtype_named(name)))
        narrow = floats("elements", x.shape, low=-6, high=6).astype(dtype_named(name))
        cases += [
            quantize_case("microscaling", x, scale, None, {**blocks, "output_dtype": number}, name, **new),
            dequantize_case("microscaling", narrow, scale, None, blocks, "float16", constants=(0, 1), **new),
        ]
    return cases


def _where_quotients_round() -> list[NodeCase]:
    """x next to the middle between two integers, where the last bit of x / scale decides; scales from the smallest
    subnormal number to infinity."""
    middles = np.arange(-150.5, 151, dtype=np.float64)[:, None]
    scales = np.float32([0.1, 1 / 3, 0.0123, 7.77, 1e-20, 3e-39, 1e-45, 1e20, 3e38])
    with np.errstate(over="ignore"):
        x = (middles * scales).astype(np.float32)
    around = np.stack([np.nextafter(x, np.float32(-INF)), x, np.nextafter(x, np.float32(INF))])
    zero = random_array("middles", scales.shape, "uint8")
    odd = np.float32([INF, -INF, NAN, -0.0, -0.25])
    return [
        quantize_case("middles", around, scales, zero, {"axis": 2}),
        *(quantize_case(f"middles_{scale:g}", around[:, :, i], np.array(scale), np.array(0, np.int8), dtype="int8")
          for i, scale in enumerate(scales)),
        quantize_case("odd_scales", np.broadcast_to(TIES[:, None], (12, 5)).copy(), odd, None, {"axis": 1}),
    ]  # fmt: skip


DYNAMIC = {
    "both_signs": floats("dynamic", (5, 70), low=-3, high=4),
    "positive": floats("dynamic", (300,), low=1, high=4),
    "negative": floats("dynamic", (300,), low=-4, high=-1),
    "zeros": np.zeros((2, 3), np.float32),
    "empty": np.zeros((0, 3), np.float32),
    "long": floats("dynamic", (300_000,)),
}


def dynamic_case(name: str, x: np.ndarray) -> NodeCase:
    want = dynamically_quantized(x)
    types = [(tensor_type(array), array.shape) for array in want]
    return NodeCase(
        f"DynamicQuantizeLinear-{name}",
        "DynamicQuantizeLinear",
        [x],
        n_outputs=3,
        output_types=types,
        want=lambda: want,
    )


CASES = [*_cases(), *(dynamic_case(name, x) for name, x in DYNAMIC.items())]
LARGE = [
    dynamic_case("large", floats("large", (3000, 1001))),
    quantize_case("large", floats("large", (100, 64, 333)), _scales("large", (64,)), None, {"axis": 1}),
    dequantize_case(
        "large", random_array("large", (1000, 4096), "int8"), _scales("large", (1000,), "float16"), None, {"axis": 0}
    ),
]
