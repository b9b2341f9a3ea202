"""Cases of Resize and Upsample.

Not compared with onnxruntime, which leaves an axis alone whose scale is one even where the region of interest crops it,
or, with antialias, whose extent does not change. Nor with antialias where the region reaches beyond the image: whether
it then answers or fails differs between machines.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from cases.node_case import MOVED_DTYPES, NodeCase, random_array
from harness import ort, tensor_type

COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
NEAREST_MODES = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def _resize(
    detail: str,
    x: np.ndarray,
    *,
    scales: tuple[float, ...] | None = None,
    sizes: tuple[int, ...] | None = None,
    roi: tuple[float, ...] | None = None,
    opset: int = 19,
    **attributes: Any,
) -> NodeCase:
    inputs = [
        x,
        None if roi is None else np.array(roi, np.float32),
        None if scales is None else np.array(scales, np.float32),
        None if sizes is None else np.array(sizes, np.int64),
    ]
    while inputs[-1] is None:
        inputs.pop()
    return NodeCase(f"Resize-{detail}", "Resize", inputs, attributes, opset=opset, constants=(1, 2, 3), rtol=2e-5)


def _modes() -> Iterator[NodeCase]:
    x = random_array("resize", (2, 3, 7, 6))
    stretches = {"up": (2.3, 3.0), "down": (0.62, 0.45), "both": (1.73, 0.7)}
    for coordinates, (name, scales) in itertools.product(COORDINATES, stretches.items()):
        common = {"coordinate_transformation_mode": coordinates, "scales": scales, "axes": [2, 3]}
        for nearest in NEAREST_MODES:
            yield _resize(f"{coordinates}_{name}_{nearest}", x, mode="nearest", nearest_mode=nearest, **common)
        yield _resize(f"{coordinates}_{name}_linear", x, mode="linear", **common)
        yield _resize(f"{coordinates}_{name}_linear_antialias", x, mode="linear", antialias=1, **common)
        for exclude in (0, 1):
            cubic = {"mode": "cubic", "exclude_outside": exclude, **common}
            yield _resize(f"{coordinates}_{name}_cubic_{exclude}", x, **cubic)
            yield _resize(
                f"{coordinates}_{name}_cubic_{exclude}_antialias", x, antialias=1, cubic_coeff_a=-0.5, **cubic
            )


def _forms() -> Iterator[NodeCase]:
    x = random_array("forms", (1, 2, 5, 4))
    yield _resize("sizes", x, sizes=(1, 2, 9, 6), mode="linear")
    tall = random_array("lines", (2, 3, 33, 29))  # enough for programs of a GPU that make several lines
    for mode in ("nearest", "linear", "cubic"):
        yield _resize(f"lines_{mode}", tall, scales=(1, 1, 2, 2.2), mode=mode)
    yield _resize("lines_antialias", tall, scales=(1, 1, 0.3, 0.4), mode="linear", antialias=1)
    yield _resize("sizes_axes", x, sizes=(3, 9), axes=[3, 2], mode="linear")
    yield _resize("negative_axes", x, sizes=(3, 9), axes=[-1, -2], mode="nearest")
    yield _resize("scales_of_all_axes", x, scales=(1, 1, 2, 2), opset=11, roi=(), mode="nearest")
    yield _resize("opset_13", x, scales=(1, 1, 0.5, 1.5), opset=13, mode="cubic")
    yield _resize("nothing_to_do", x, scales=(1, 1, 1, 1))
    for mode in ("nearest", "linear", "cubic"):  # antialiased, so that axes are taken one after the other
        want = np.zeros((0, 2, 2, 9), np.float32)
        empty = _resize(
            f"empty_{mode}", want[:, :, :, :4], sizes=want.shape, mode=mode, antialias=int(mode != "nearest")
        )
        yield replace(empty, output_types=[(tensor_type(want), want.shape)], want=lambda want=want: [want])
    yield _resize("channels_and_batch", x, scales=(2, 2, 1, 1), mode="nearest")
    yield _resize(
        "one_pixel", x, sizes=(1, 2, 1, 1), mode="linear", coordinate_transformation_mode="pytorch_half_pixel"
    )
    yield _resize(
        "one_pixel_corners", x, sizes=(1, 2, 1, 7), mode="linear", coordinate_transformation_mode="align_corners"
    )
    yield _resize("from_one_pixel", x[:, :, :1, :1], sizes=(1, 2, 4, 3), mode="linear")
    yield _resize(
        "tf_half_pixel_for_nn",
        x,
        scales=(1, 1, 1.6, 0.7),
        opset=11,
        roi=(),
        coordinate_transformation_mode="tf_half_pixel_for_nn",
    )
    for policy in ("not_larger", "not_smaller"):
        yield _resize(policy, x, sizes=(11, 6), axes=[2, 3], mode="linear", keep_aspect_ratio_policy=policy)
    yield _resize("1d_linear", random_array("x", (2, 3, 9)), scales=(1, 1, 1.5), mode="linear")
    yield _resize("1d_nearest", random_array("x", (2, 3, 9)), scales=(1, 1, 0.4))
    yield _resize("2d_linear", random_array("x", (5, 9)), scales=(1.5, 2), mode="linear")
    yield _resize("3d_linear", random_array("x", (1, 2, 3, 4, 5)), scales=(1, 1, 2, 1.5, 0.5), mode="linear")
    yield _resize("3d_nearest", random_array("x", (1, 2, 3, 4, 5)), scales=(1, 1, 2, 1.5, 0.5))
    yield _resize("wide", random_array("x", (1, 3, 40, 300)), scales=(1, 1, 2, 2), mode="linear")
    yield _resize(
        "shrink_much", random_array("x", (1, 1, 40, 64)), scales=(1, 1, 0.1, 0.125), mode="linear", antialias=1
    )
    yield _resize(
        "shrink_much_cubic", random_array("x", (1, 1, 40, 64)), scales=(1, 1, 0.1, 0.125), mode="cubic", antialias=1
    )
    yield NodeCase("Resize-opset_10_up", "Resize", [x, np.array([1, 1, 2, 1.5], np.float32)], opset=10, constants=(1,))
    yield NodeCase(
        "Resize-opset_10_down", "Resize", [x, np.array([1, 1, 0.6, 0.5], np.float32)], opset=10, constants=(1,)
    )
    linear = {"mode": "linear"}
    yield NodeCase(
        "Resize-opset_10_linear", "Resize", [x, np.array([1, 1, 0.6, 3], np.float32)], linear, opset=10, constants=(1,)
    )
    yield NodeCase("Upsample-attribute", "Upsample", [x], {"scales": [1.0, 1.0, 2.0, 3.0]}, opset=7)
    yield NodeCase("Upsample-input", "Upsample", [x, np.array([1, 1, 2, 3], np.float32)], opset=9, constants=(1,))
    yield NodeCase(
        "Upsample-linear", "Upsample", [x, np.array([1, 1, 2, 1.5], np.float32)], linear, opset=9, constants=(1,)
    )


def _antialiased_crop(
    x: np.ndarray, mode: str, roi: tuple[float, ...], sizes: tuple[int, int], outside: float
) -> np.ndarray:
    """Resize of the last two axes by the operator's text, in fp64."""
    rows, columns = (_crop_matrix(mode, x.shape[i - 2], sizes[i], roi[i], roi[i + 2]) for i in (0, 1))
    y = np.einsum("pr,...rc,qc->...pq", rows, x, columns)
    return np.where(np.isnan(y), outside, y).astype(x.dtype)


def _crop_matrix(mode: str, extent: int, out: int, start: float, end: float) -> np.ndarray:
    """What each of `out` elements takes of each element of the axis; NaN where it lies outside."""
    matrix, stretch = np.zeros((out, extent)), min(1.0, out / extent)
    reach = (1 if mode == "linear" else 2) / stretch
    for i, row in enumerate(matrix):
        center = (start + i * (end - start) / (out - 1)) * (extent - 1)
        taps = np.arange(math.floor(center - reach), math.ceil(center + reach) + 1)
        distance = np.abs(taps - center) * stretch
        weights = np.maximum(1 - distance, 0) if mode == "linear" else _keys(distance)
        np.add.at(row, np.clip(taps, 0, extent - 1), weights / weights.sum())
        if not 0 <= center <= extent - 1:
            row[:] = np.nan
    return matrix


def _keys(d: np.ndarray, a: float = -0.75) -> np.ndarray:
    """The cubic filter, by the operator's text."""
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _crops() -> Iterator[NodeCase]:
    x = random_array("crop", (1, 2, 6, 7))
    for mode, roi in itertools.product(("nearest", "linear", "cubic"), ((0.1, 0.2, 0.9, 0.7), (-0.2, 0.3, 0.8, 1.4))):
        crop = {
            "roi": roi,
            "axes": [2, 3],
            "coordinate_transformation_mode": "tf_crop_and_resize",
            "extrapolation_value": 7.5,
        }
        yield _resize(f"crop_{mode}_{roi[0]}", x, mode=mode, sizes=(9, 4), **crop)
        if mode != "nearest":
            smooth = _resize(f"crop_{mode}_{roi[0]}_antialias", x, mode=mode, sizes=(9, 4), antialias=1, **crop)
            want = _antialiased_crop(x, mode, roi, (9, 4), 7.5)
            yield _with_want(smooth, want, smooth.rtol)
    ramp = np.arange(5, dtype=np.float32).reshape(1, 1, 5)
    yield NodeCase(
        "Resize-crop_without_scale",
        "Resize",
        [ramp, np.array([0, 0, 0.25, 1, 1, 0.75], np.float32), None, np.array([1, 1, 5])],
        {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"},
        constants=(1, 3),
        want=lambda: [np.array([[[1, 1.5, 2, 2.5, 3]]], np.float32)],
    )


def _dtypes() -> Iterator[NodeCase]:
    scales = (1, 1, 2, 2)
    for dtype in MOVED_DTYPES:
        x = random_array("x", (1, 2, 3, 5), dtype)
        want = x.repeat(2, axis=2).repeat(2, axis=3)
        yield _with_want(_resize(f"nearest_{dtype}", x, scales=scales), want)
    for dtype in ("float16", "bfloat16", "float64"):
        x = random_array("x", (1, 2, 3, 5)).astype(dtype if dtype != "bfloat16" else ml_dtypes.bfloat16)
        exact = _resize("", x.astype(np.float32), scales=scales, mode="linear")
        (want,) = ort(exact.model(), exact.feeds())
        rtol = 1e-6 if dtype == "float64" else None  # onnxruntime computes with fp32 here
        yield _with_want(_resize(f"linear_{dtype}", x, scales=scales, mode="linear"), want.astype(x.dtype), rtol)
    for dtype in ("uint8", "int8", "int32"):  # the weights of a doubling are quarters: no rounding before the last
        x = random_array("x", (1, 2, 3, 5), "int8").astype(dtype)
        yield _resize(f"linear_{dtype}", x, scales=scales, mode="linear")
    shrink, grow = {"scales": (1, 1, 0.5, 0.5), "mode": "linear"}, {"scales": (1, 1, 2, 2), "mode": "cubic"}
    for name, stretch in (("linear", shrink), ("cubic", grow)):  # onnxruntime rounds after each axis
        x = random_array("x", (1, 2, 8, 8), "uint8")
        exact = _resize("", x.astype(np.float32), antialias=1, **stretch)
        want = np.clip(np.floor(ort(exact.model(), exact.feeds())[0] + 0.5), 0, 255).astype(np.uint8)
        yield _with_want(_resize(f"{name}_antialias_uint8", x, antialias=1, **stretch), want)
    edges = np.array([[0, 0, 9, 9, 0, 0]])  # a cubic filter goes beyond them: what is below nothing is nothing
    exact = _resize("", edges.astype(np.float32), scales=(1, 2), mode="cubic")
    want = np.maximum(np.trunc(ort(exact.model(), exact.feeds())[0]), 0).astype(np.uint32)
    for dtype in ("uint8", "uint16", "uint32", "uint64"):
        overshoot = _resize(f"cubic_overshoot_{dtype}", edges.astype(dtype), scales=(1, 2), mode="cubic")
        yield _with_want(overshoot, want.astype(dtype))
    crop = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 100.0}
    big = random_array("x", (1, 1, 4, 4), "int32")
    want = np.pad(big, ((0, 0), (0, 0), (0, 0), (0, 4)), constant_values=100)[..., ::2]
    case = _resize(
        "nearest_crop_int32", big, sizes=(1, 1, 4, 4), roi=(0, 0, 0, 0, 1, 1, 1, 2), nearest_mode="floor", **crop
    )
    yield _with_want(case, want)


def _with_want(case: NodeCase, want: np.ndarray, rtol: float | None = None) -> NodeCase:
    return NodeCase(
        case.name, "Resize", case.inputs, case.attributes, 19, case.constants, want=lambda: [want], rtol=rtol
    )


def _channels_last(plain: NodeCase) -> NodeCase:
    """The result is that of ONNX on the permuted input; scales, sizes, roi and axes stay in ONNX's order."""
    x = plain.inputs[0]
    assert x is not None
    (want,) = plain.expected()
    want = np.moveaxis(want, 1, -1)
    return NodeCase(
        f"{plain.name}_channels_last",
        plain.op_type,
        [np.ascontiguousarray(np.moveaxis(x, 1, -1)), *plain.inputs[1:]],
        plain.attributes,
        plain.opset,
        plain.constants,
        domain="gossamer.nhwc",
        output_types=[(tensor_type(want), want.shape)],
        want=lambda: [want],
        rtol=2e-5,
    )


def _channels_last_cases() -> Iterator[NodeCase]:
    x, wide = random_array("nhwc", (2, 3, 5, 4)), random_array("nhwc", (1, 48, 5, 4))
    yield _channels_last(_resize("nearest_3", x, scales=(1, 1, 2, 2)))
    yield _channels_last(
        _resize(
            "nearest_48", wide, scales=(1, 1, 2, 4), coordinate_transformation_mode="asymmetric", nearest_mode="floor"
        )
    )
    yield _channels_last(_resize("linear_48", wide, sizes=(9, 3), axes=[2, 3], mode="linear"))
    yield _channels_last(_resize("linear_3", x, scales=(1, 1, 0.5, 2.5), mode="linear"))
    yield _channels_last(_resize("cubic_48", wide, scales=(1, 1, 2, 2), mode="cubic"))
    yield _channels_last(_resize("antialias_48", wide, scales=(1, 1, 0.3, 0.5), mode="linear", antialias=1))
    yield _channels_last(
        _resize("volume", random_array("x", (1, 16, 2, 3, 4)), scales=(1, 1, 2, 2, 1.5), mode="linear")
    )
    yield _channels_last(
        NodeCase("Upsample-input", "Upsample", [wide, np.array([1, 1, 2, 3], np.float32)], opset=9, constants=(1,))
    )


CASES = [*_modes(), *_forms(), *_crops(), *_dtypes(), *_channels_last_cases()]
