"""Cases of the normalisation operators; expected results are the operators' text in NumPy, in fp64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from cases.node_case import NodeCase
from cases.references import FLOAT_DTYPES, channels_last, floats, within
from harness import tensor_type

EPSILON = float(np.float32(1e-5))
MICROSOFT = "com.microsoft"
Want = Callable[[], Sequence[np.ndarray]]


def _deviation(x: np.ndarray, axes: tuple[int, ...], epsilon: float = EPSILON) -> np.ndarray:
    return np.sqrt(x.var(axes, keepdims=True) + epsilon)


def _rms(x: np.ndarray, axes: tuple[int, ...], epsilon: float = EPSILON) -> np.ndarray:
    return np.sqrt((x * x).mean(axes, keepdims=True) + epsilon)


def case(op: str, detail: str, inputs: list[np.ndarray | None], want: Any, n_outputs: int = 1, **rest: Any) -> NodeCase:
    """want: the results, computed on the inputs in fp64; the first has the type and shape of the first input."""
    x = inputs[0]
    assert x is not None

    def rounded() -> list[np.ndarray]:
        results = want(*(a if a is None else a.astype(np.float64) for a in inputs))
        results = list(results) if isinstance(results, tuple) else [results]
        types = [x.dtype, *(dtype for dtype in rest.get("other_types", [np.float32] * (n_outputs - 1)))]
        return [r.astype(t) for r, t in zip(results, types, strict=True)]

    attributes = rest.pop("attributes", {})
    output_types = rest.pop("output_types", [(tensor_type(x), x.shape)])
    made = NodeCase(
        f"{op}-{detail}", op, inputs, attributes, n_outputs=n_outputs, output_types=output_types, want=rounded, **rest
    )
    return within(made, x.size)


def layer_norm(detail: str, shape: tuple[int, ...], axis: int, dtype: str = "float32", n_outputs: int = 1) -> NodeCase:
    x, inner = floats("layer", shape, dtype, low=-1, high=3), shape[axis:]
    axes = tuple(range(axis % len(shape), len(shape)))

    def want(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, ...]:
        mean, deviation = x.mean(axes, keepdims=True), _deviation(x, axes)
        return ((x - mean) / deviation * gamma + beta, mean, 1 / deviation)[:n_outputs]

    inputs = [x, floats("gamma", inner, dtype), floats("beta", inner, dtype)]
    rows = tuple(1 if i in axes else n for i, n in enumerate(shape))
    types = [(tensor_type(x), shape), (1, rows), (1, rows)][:n_outputs]
    attributes = {"axis": axis}
    return case(
        "LayerNormalization", detail, inputs, want, n_outputs, attributes=attributes, output_types=types, opset=17
    )


def _layer_norms() -> list[NodeCase]:
    cases = [layer_norm(f"axis_{axis}", (2, 3, 4, 6), axis, n_outputs=3) for axis in (-1, 1, 2, 0)]
    cases += [layer_norm(dtype, (3, 5, 40), -1, dtype) for dtype in FLOAT_DTYPES]
    large = np.array([[60000, -60000, 50000, 1]], np.float16)

    def plain(x: np.ndarray, gamma: np.ndarray, beta: Any = 0.0) -> np.ndarray:
        return (x - x.mean(-1, keepdims=True)) / _deviation(x, (-1,)) * gamma + beta

    x = floats("broadcast", (2, 3, 4))
    for detail, inputs in (
        ("fp16_large", [large, floats("gamma", (4,), "float16")]),
        ("scale_of_one", [x, np.float32([3])]),
    ):
        cases.append(case("LayerNormalization", detail, inputs, plain, opset=17))
    # The mean's rounding shows, 1e4 · 2⁻²⁴ of a deviation of 0.6; mean(x²) - mean(x)² would lose every digit.
    offset = [floats("offset", (4, 100), low=1e4 - 1, high=1e4 + 1), np.ones(100, np.float32)]
    cases.append(replace(case("LayerNormalization", "far_from_zero", offset, plain, opset=17), rtol=2e-3))
    repeated = [x, floats("gamma", (4,)), floats("beta", (4,))]
    cases.append(
        case(
            "LayerNormalization",
            "repeated_scale",
            repeated,
            lambda x, g, b: (x - x.mean((1, 2), keepdims=True)) / _deviation(x, (1, 2)) * g + b,
            attributes={"axis": 1},
            opset=17,
        )
    )
    return cases


def _scales_that_broadcast() -> list[NodeCase]:
    """To the normalised shape, or to all of X; onnxruntime has the same."""

    def plain(axes: tuple[int, ...]) -> Callable[..., np.ndarray]:
        return lambda x, g, b: (x - x.mean(axes, keepdims=True)) / _deviation(x, axes) * g + b

    shapes = {
        "other_axes": ((2, 3, 4), 1, (3, 1), (3, 4)),
        "rows": ((2, 3, 4), 2, (2, 1, 1), (4,)),
        "as_many_rows_as_steps": ((4, 4), 1, (4, 1), (4, 1)),
        "whole": ((2, 3, 4), 1, (2, 3, 4), (1, 1, 1)),
    }
    return [
        case(
            "LayerNormalization",
            f"scale_of_{detail}",
            [floats("x", shape), floats("gamma", gamma), floats("beta", beta)],
            plain(tuple(range(axis, len(shape)))),
            attributes={"axis": axis},
            opset=17,
        )
        for detail, (shape, axis, gamma, beta) in shapes.items()
    ]


def _rows_of_nothing() -> NodeCase:
    """Their statistics are NaN, and there are some."""
    x, nan = np.zeros((2, 0), np.float32), np.full((2, 1), np.nan, np.float32)
    made = layer_norm("no_steps", (2, 0), -1, n_outputs=3)
    return replace(made, want=lambda: [x, nan, nan])


def _rms_norms() -> list[NodeCase]:
    def want(x: np.ndarray, gamma: np.ndarray) -> np.ndarray:
        return x / _rms(x, (-1,)) * gamma

    cases = []
    for dtype in FLOAT_DTYPES:
        inputs = [floats("rms", (3, 5, 40), dtype), floats("gamma", (40,), dtype)]
        cases.append(case("RMSNormalization", dtype, inputs, want, opset=23))
    cases.append(case("SimplifiedLayerNormalization", "plain", inputs[:2], want, opset=17))
    types = [(11, (3, 5, 40)), (1, (3, 5, 1))]
    cases.append(
        case(
            "SimplifiedLayerNormalization",
            "inverse",
            inputs,
            lambda x, g: (want(x, g), 1 / _rms(x, (-1,))),
            n_outputs=2,
            output_types=types,
        )
    )
    return cases


def skip_norm(detail: str, skip_shape: tuple[int, ...], dtype: str = "float32", *, rms: bool = False) -> NodeCase:
    """All inputs, and the outputs that both operators have in common with different names: norm and sum."""
    x, skip = floats("skip_x", (2, 5, 24), dtype), floats("skip", skip_shape, dtype)
    gamma, beta, bias = (floats(name, (24,), dtype) for name in ("gamma", "beta", "bias"))

    def want(x: np.ndarray, skip: np.ndarray, gamma: np.ndarray, *rest: np.ndarray) -> np.ndarray:
        total = x + skip + rest[-1]
        if rms:
            return total / _rms(total, (-1,)) * gamma
        return (total - total.mean(-1, keepdims=True)) / _deviation(total, (-1,)) * gamma + rest[0]

    inputs = [x, skip, gamma, bias] if rms else [x, skip, gamma, beta, bias]
    op = "SkipSimplifiedLayerNormalization" if rms else "SkipLayerNormalization"
    return case(op, detail, inputs, want, attributes={"epsilon": EPSILON}, domain=MICROSOFT)


def _skip_norms() -> list[NodeCase]:
    shapes = {"whole": (2, 5, 24), "one_image": (1, 5, 24), "matrix": (5, 24)}
    cases = [skip_norm(name, shape, rms=rms) for name, shape in shapes.items() for rms in (False, True)]
    cases += [
        skip_norm(dtype, (2, 5, 24), dtype, rms=rms) for dtype in ("float16", "bfloat16") for rms in (False, True)
    ]
    x, skip, gamma = floats("x", (2, 3, 8)), floats("s", (2, 3, 8)), floats("g", (8,))

    def outputs(x: np.ndarray, skip: np.ndarray, gamma: np.ndarray) -> tuple[np.ndarray, ...]:
        total = x + skip
        mean, deviation = total.mean(-1, keepdims=True), _deviation(total, (-1,), float(np.float32(1e-12)))
        return (total - mean) / deviation * gamma, mean, 1 / deviation, total

    types = [(1, (2, 3, 8)), (1, (2, 3, 1)), (1, (2, 3, 1)), (1, (2, 3, 8))]
    cases.append(
        case("SkipLayerNormalization", "outputs", [x, skip, gamma], outputs, 4, domain=MICROSOFT, output_types=types)
    )
    return cases


def instance_norm(detail: str, x: np.ndarray) -> NodeCase:
    spatial = tuple(range(2, x.ndim))
    per_channel = (-1, *(1,) * len(spatial))

    def want(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
        normal = (x - x.mean(spatial, keepdims=True)) / _deviation(x, spatial)
        return normal * gamma.reshape(per_channel) + beta.reshape(per_channel)

    channels = x.shape[1]
    inputs = [x, floats("gamma", (channels,), x.dtype.name), floats("beta", (channels,), x.dtype.name)]
    return case("InstanceNormalization", detail, inputs, want)


def group_norm(detail: str, x: np.ndarray, groups: int, opset: int = 21) -> NodeCase:
    n, channels = x.shape[:2]
    count = channels if opset >= 21 else groups

    def want(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
        rows = x.reshape(n, groups, -1)
        normal = (rows - rows.mean(-1, keepdims=True)) / _deviation(rows, (-1,))
        parts = normal.reshape(n, count, -1)
        return (parts * gamma[:, None] + beta[:, None]).reshape(x.shape)

    inputs = [x, floats("gamma", (count,), x.dtype.name), floats("beta", (count,), x.dtype.name)]
    return case("GroupNormalization", detail, inputs, want, attributes={"num_groups": groups}, opset=opset)


def _images() -> list[NodeCase]:
    x = floats("images", (2, 6, 4, 5), low=-1, high=3)
    first = [
        instance_norm("2d", x),
        instance_norm("1d", x.reshape(2, 6, 20)),
        instance_norm("3d", x.reshape(2, 6, 2, 2, 5)),
    ]
    first += [group_norm(f"groups_{groups}", x, groups) for groups in (1, 2, 6)]
    for dtype in ("float16", "bfloat16", "float64"):
        first += [
            instance_norm(dtype, floats("images", x.shape, dtype)),
            group_norm(dtype, floats("images", x.shape, dtype), 3),
        ]
    return [*first, *map(channels_last, first), *(group_norm(f"opset_18-{groups}", x, groups, 18) for groups in (1, 3))]


def lp_norm(detail: str, x: np.ndarray, axis: int, p: int) -> NodeCase:
    def want(x: np.ndarray) -> np.ndarray:
        norm = np.linalg.norm(x, p, axis, keepdims=True)
        return np.divide(x, norm, out=np.zeros_like(x), where=norm != 0)

    return case("LpNormalization", detail, [x], want, attributes={"axis": axis, "p": p})


def mean_variance_norm(detail: str, x: np.ndarray, axes: tuple[int, ...]) -> NodeCase:
    def want(x: np.ndarray) -> np.ndarray:
        return (x - x.mean(axes, keepdims=True)) / (x.std(axes, keepdims=True) + 1e-9)

    return case("MeanVarianceNormalization", detail, [x], want, attributes={"axes": list(axes)}, opset=13)


def _others() -> list[NodeCase]:
    x = floats("others", (2, 3, 4, 6))
    cases = [lp_norm(f"axis_{axis}-p_{p}", x, axis, p) for axis in (0, 1, -1) for p in (1, 2)]
    cases += [lp_norm("zeros", np.float32([[0, 0], [3, 4]]), -1, 2), lp_norm("float16", x.astype(np.float16), 1, 2)]
    cases += [mean_variance_norm(f"axes_{axes}", x, axes) for axes in ((0, 2, 3), (1,), (0, 3), (0, 1, 2, 3))]
    cases.append(mean_variance_norm("three_runs", floats("runs", (2, 3, 2, 3, 2)), (0, 2, 4)))
    tiny = np.finfo(np.float32).smallest_subnormal
    cases.append(lp_norm("subnormal", np.float32([[tiny, -3 * tiny], [0, tiny]]), -1, 1))
    cases.append(lp_norm("subnormal_bfloat16", (floats("tiny", (3, 4)) * 2.0**-130).astype(ml_dtypes.bfloat16), -1, 1))
    return cases


CASES = [
    *_layer_norms(),
    *_scales_that_broadcast(),
    _rows_of_nothing(),
    *_rms_norms(),
    *_skip_norms(),
    *_images(),
    *_others(),
]
LARGE = [
    layer_norm("bert-float16", (8, 128, 768), -1, "float16"),
    layer_norm("long", (3, 100_001), -1, n_outputs=3),
    layer_norm("rows_read_twice-float16", (300, 50_001), -1, "float16"),
    instance_norm("style", floats("style", (1, 32, 200, 200), low=-1, high=3)),
    channels_last(instance_norm("style", floats("style", (1, 32, 200, 200), low=-1, high=3))),
    group_norm("unet", floats("unet", (2, 320, 32, 32), "float16"), 32),
    channels_last(group_norm("unet", floats("unet", (2, 320, 32, 32), "float16"), 32)),
    mean_variance_norm("batch", floats("batch", (8, 16, 33, 33)), (0, 2, 3)),
]
