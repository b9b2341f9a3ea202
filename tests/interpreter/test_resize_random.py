"""Resize and Upsample with random forms, attributes, shapes and types, against the operator's text written down as one
matrix per axis, and against onnxruntime where it takes the form."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnxruntime.capi.onnxruntime_pybind11_state import EPFail, Fail, InvalidArgument, NotImplemented, RuntimeException

from cases.drawing import FLOATS, INTEGERS, bits, numpy_dtype, opsets, seeds, shapes, types, with_types
from cases.node_case import NodeCase, ints
from examples import examples
from harness import assert_close, ort, run_model

_COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize")
COORDINATES = {
    11: (*_COORDINATES, "tf_half_pixel_for_nn"),
    13: _COORDINATES,
    18: _COORDINATES,
    19: (*_COORDINATES, "half_pixel_symmetric"),
}
SCALES = (0.25, 0.4, 0.5, 0.6, 0.75, 1.0, 1.0, 1.25, 1.5, 1.9, 2.0, 2.6, 3.0)


@dataclass(frozen=True)
class Along:
    """How one axis is resized, in the operator's words."""

    extent: int
    out: int
    scale: float
    mode: str = "nearest"
    coordinates: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    a: float = -0.75
    exclude: bool = False
    antialias: bool = False
    roi: tuple[float, float] = (0.0, 1.0)

    def originals(self) -> np.ndarray:
        """x_original of every x_resized. In fp32, like onnxruntime: the text does not say, and ties depend on it."""
        f = np.float32
        x, scale, extent, out = np.arange(self.out, dtype=f), f(self.scale), f(self.extent), f(self.out)
        start, end = map(f, self.roi)
        last = extent - f(1)
        center = extent / f(2) * (f(1) - out / (scale * extent))
        many = self.out > 1
        formulas: Mapping[str, Callable[[], np.ndarray]] = {
            "half_pixel": lambda: (x + f(0.5)) / scale - f(0.5),
            "half_pixel_symmetric": lambda: center + (x + f(0.5)) / scale - f(0.5),
            "pytorch_half_pixel": lambda: (x + f(0.5)) / scale - f(0.5) if many else 0 * x,
            "tf_half_pixel_for_nn": lambda: x if self.is_still else (x + f(0.5)) / scale,
            "asymmetric": lambda: x / scale,
            "align_corners": lambda: x * last / (out - f(1)) if many else 0 * x,
            "tf_crop_and_resize": lambda: (
                start * last + x * (end - start) * last / (out - f(1)) if many else x + f(0.5) * (start + end) * last
            ),
        }
        return formulas[self.coordinates]()

    @property
    def is_still(self) -> bool:
        """By the text tf_half_pixel_for_nn moves batches and channels by a half, too: nobody reads it so."""
        return self.extent == self.out and self.scale == 1

    def matrix(self) -> np.ndarray:
        """What each element of the result takes of each of the axis; a row of NaN where it lies outside of a crop."""
        matrix = np.zeros((self.out, self.extent))
        for row, x in zip(matrix, self.originals(), strict=True):
            taps, weights = self._filter(float(x))
            inside = (taps >= 0) & (taps < self.extent)
            if self.exclude:
                weights = np.where(inside, weights, 0)
            np.add.at(row, np.clip(taps, 0, self.extent - 1), weights / weights.sum())
            if self.coordinates == "tf_crop_and_resize" and not 0 <= x <= np.float32(self.extent - 1):
                row[:] = np.nan
        return matrix

    def _filter(self, x: float) -> tuple[np.ndarray, np.ndarray]:
        if self.mode == "nearest":
            return np.array([self._nearest(x)]), np.ones(1)
        stretch = min(1.0, self.scale) if self.antialias else 1.0
        if self.mode == "linear":
            x = min(max(x, 0.0), self.extent - 1.0)
        reach = (1 if self.mode == "linear" else 2) / stretch
        taps = np.arange(math.floor(x - reach), math.ceil(x + reach) + 1)
        distance = np.abs(taps - x) * stretch
        return taps, np.maximum(1 - distance, 0) if self.mode == "linear" else self._keys(distance)

    def _nearest(self, x: float) -> int:
        whole = {
            "round_prefer_floor": math.ceil(x - 0.5),
            "round_prefer_ceil": math.floor(x + 0.5),
            "floor": math.floor(x),
            "ceil": math.ceil(x),
            "simple": math.ceil(x) if self.scale < 1 else math.floor(x),
        }
        return whole[self.nearest]

    def _keys(self, d: np.ndarray) -> np.ndarray:
        a = self.a
        near, far = (a + 2) * d**3 - (a + 3) * d**2 + 1, a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, 0))


@dataclass(frozen=True)
class Drawn:
    """A node, how each axis of it is resized, and what lies outside of a crop."""

    node: NodeCase
    along: Sequence[Along]
    outside: float = 0.0

    def want(self) -> np.ndarray:
        """By the operator's text, in float64; NaN, which no input has, marks what lies outside."""
        x = self.node.inputs[0]
        assert x is not None
        if x.size == 0:
            return np.zeros([along.out for along in self.along])
        y, outside = x.astype(np.float64), np.zeros((), bool)
        if self.along[0].mode == "nearest":
            return self._nearest(x)
        for axis, along in enumerate(self.along):
            matrix = along.matrix()
            beyond = np.isnan(matrix).any(axis=1)
            y = np.moveaxis(np.tensordot(np.nan_to_num(matrix), y, (1, axis)), 0, axis)
            outside = outside | beyond.reshape([-1 if d == axis else 1 for d in range(x.ndim)])
        return np.where(outside, self.outside, y)

    def _nearest(self, x: np.ndarray) -> np.ndarray:
        """Elements as they are, which float64 would not hold."""
        y, outside = x, np.zeros((), bool)
        for axis, along in enumerate(self.along):
            matrix = along.matrix()
            beyond = np.isnan(matrix).any(axis=1)
            y = np.take(y, np.nan_to_num(matrix).argmax(axis=1), axis)
            outside = outside | beyond.reshape([-1 if d == axis else 1 for d in range(x.ndim)])
        with np.errstate(all="ignore"):
            return np.where(outside, np.array(self.outside).astype(x.dtype), y)


@st.composite
def resizes(draw: st.DrawFn) -> Drawn:
    opset = draw(st.sampled_from(opsets("Resize", 10)))
    mode = draw(st.sampled_from(("nearest", "linear", "cubic") if opset >= 11 else ("nearest", "linear")))
    dtype = draw(st.sampled_from(_dtypes("Resize", opset, mode)))
    shape = draw(shapes(1, 5, sides=(0, 1, 2, 3, 5, 6), size=400))
    attributes: dict[str, Any] = {} if mode == "nearest" and draw(st.booleans()) else {"mode": mode}
    common = {"mode": mode, **_filters(draw, opset, mode, attributes)}
    if dtype == "complex64":  # it moves, but no number becomes one: Gossamer refuses that
        attributes.pop("extrapolation_value", None)
    axes = list(range(len(shape)))
    if opset >= 18 and draw(st.booleans()):
        axes = draw(st.permutations(axes))[: draw(st.integers(1, len(axes)))]
        attributes["axes"] = [axis - len(shape) if draw(st.booleans()) else axis for axis in axes]
    still = {axis for axis in axes if shape[axis] == 0 or draw(st.integers(0, 2)) == 0}
    roi = [(0.0, 1.0) if axis in still else draw(crops) for axis in axes]
    if common["coordinates"] != "tf_crop_and_resize":
        roi = []
    extents = [shape[axis] for axis in axes]
    if opset >= 11 and draw(st.booleans()):
        sizes = [n if axis in still else draw(st.integers(1, 9)) for axis, n in zip(axes, extents, strict=True)]
        if opset >= 18 and all(shape) and draw(st.booleans()):
            attributes["keep_aspect_ratio_policy"] = draw(st.sampled_from(("stretch", "not_larger", "not_smaller")))
        outs, scales = _stretched(extents, sizes, attributes.get("keep_aspect_ratio_policy", "stretch"))
    else:
        sizes, scales = [], [1.0 if axis in still else draw(st.sampled_from(SCALES)) for axis in axes]
        # By the text a crop shortens the result; onnx's shape inference, which types the graph, leaves it as it is.
        outs = [math.floor(np.float32(n) * np.float32(scale)) for n, scale in zip(extents, scales, strict=True)]
    along = [Along(n, n, 1.0, mode=mode) for n in shape]
    for i, axis in enumerate(axes):
        along[axis] = Along(shape[axis], outs[i], scales[i], roi=roi[i] if roi else (0.0, 1.0), **common)
    inputs = _inputs(opset, _numbers(draw(seeds), shape, dtype, mode), roi, scales, sizes)
    node = NodeCase("random", "Resize", inputs, attributes, opset, tuple(range(1, len(inputs))))
    return Drawn(node, along, attributes.get("extrapolation_value", 0.0))


ends = st.sampled_from((-0.3, 0.0, 0.125, 0.4, 0.75, 1.0, 1.3))
crops = st.tuples(ends, ends).map(lambda pair: (min(pair), max(pair)) if pair[0] != pair[1] else (0.0, 1.0))


def _dtypes(op_type: str, opset: int, mode: str) -> list[str]:
    return [t for t in types(op_type, opset) if mode == "nearest" or t not in ("bool", "complex64")]


def _stretched(extents: Sequence[int], sizes: Sequence[int], policy: str) -> tuple[Sequence[int], Sequence[float]]:
    """What becomes of the axes, and their scales, by keep_aspect_ratio_policy."""
    scales = [float(np.float32(size) / np.float32(n)) if n else 1.0 for size, n in zip(sizes, extents, strict=True)]
    if policy == "stretch":
        return sizes, scales
    scale = (min if policy == "not_larger" else max)(scales)
    return [math.floor(float(np.float32(scale) * np.float32(n)) + 0.5) for n in extents], [scale] * len(extents)


def _inputs(
    opset: int, x: np.ndarray, roi: Sequence[tuple[float, float]], scales: Sequence[float], sizes: Sequence[int]
) -> list[np.ndarray | None]:
    """Without sizes, scales say what is wanted. What opset 11 and 12 leave out is empty."""
    absent = np.zeros(0, np.float32) if opset < 13 else None
    stretch = np.array(scales, np.float32)
    if opset == 10:
        return [x, stretch]
    crop = np.array([end for pair in zip(*roi, strict=True) for end in pair], np.float32) if roi else absent
    return [x, crop, absent, ints(*sizes)] if sizes else [x, crop, stretch]


def _filters(draw: st.DrawFn, opset: int, mode: str, attributes: dict[str, Any]) -> dict[str, Any]:
    """The coordinates, and what only some modes look at; the others may have it as well."""
    if opset == 10:
        return {"coordinates": "asymmetric", "nearest": "simple"}
    coordinates = draw(st.sampled_from(COORDINATES[opset]))
    common: dict[str, Any] = {"coordinates": coordinates}
    if coordinates != "half_pixel" or draw(st.booleans()):
        attributes["coordinate_transformation_mode"] = coordinates
    if draw(st.booleans()):
        attributes["extrapolation_value"] = draw(st.sampled_from((7.5, 3.0)))
    if mode == "nearest":
        common["nearest"] = attributes["nearest_mode"] = draw(
            st.sampled_from(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
        )
    if mode == "cubic" and draw(st.booleans()):
        common["a"] = attributes["cubic_coeff_a"] = draw(st.sampled_from((-0.5, -0.75, -0.25)))
    if draw(st.booleans()):
        attributes["exclude_outside"] = 1
        common["exclude"] = mode != "nearest"  # the nearest element is one of the axis
    if opset >= 18 and mode != "nearest" and draw(st.booleans()):
        attributes["antialias"] = 1
        common["antialias"] = True
    return common


def _numbers(seed: int, shape: Sequence[int], dtype: str, mode: str) -> np.ndarray:
    if mode == "nearest":
        return bits(seed, shape, dtype)
    rng = np.random.default_rng(seed)
    if dtype in INTEGERS:
        limits = np.iinfo(dtype)
        return rng.integers(max(limits.min, -1000), min(limits.max, 1000), shape).astype(dtype)
    return np.asarray(rng.standard_normal(shape)).astype(numpy_dtype(dtype))


@st.composite
def upsamples(draw: st.DrawFn) -> Drawn:
    opset, mode = draw(st.sampled_from((7, 9))), draw(st.sampled_from(("nearest", "linear")))
    dtype = draw(st.sampled_from(_dtypes("Upsample", opset, mode)))
    shape = draw(shapes(1, 5, sides=(0, 1, 2, 3, 5), size=100))
    scales = [draw(st.sampled_from((1.0, 1.0, 1.5, 2.0, 2.6, 3.0))) if n else 1.0 for n in shape]
    outs = [math.floor(np.float32(n) * np.float32(scale)) for n, scale in zip(shape, scales, strict=True)]
    along = [
        Along(n, out, scale, mode, "asymmetric", "simple") for n, out, scale in zip(shape, outs, scales, strict=True)
    ]
    x = _numbers(draw(seeds), shape, dtype, mode)
    if opset == 7:
        return Drawn(NodeCase("random", "Upsample", [x], {"mode": mode, "scales": scales}, opset), along)
    return Drawn(NodeCase("random", "Upsample", [x, np.array(scales, np.float32)], {"mode": mode}, opset, (1,)), along)


def check(drawn: Drawn) -> None:
    exact, node = drawn.want(), drawn.node
    x = node.inputs[0]
    assert x is not None
    typed = with_types(node, [np.zeros(exact.shape, x.dtype)])
    (got,) = run_model(typed.model(), node.feeds())
    compare(got, exact, drawn, 1.0)
    if drawn.along[0].mode == "nearest":
        assert got.tobytes() == exact.astype(got.dtype).tobytes(), f"{got}\nexpected\n{exact}"
    (theirs,) = onnxruntimes(drawn)
    if theirs is not None:
        compare(theirs, exact, drawn, 3.0 if any(along.antialias for along in drawn.along) else 1.0)


def compare(got: np.ndarray, exact: np.ndarray, drawn: Drawn, rounding: float) -> None:
    """rounding: how far integers may be off. Both cut or round at the end; with antialias onnxruntime also rounds after
    each axis."""
    assert got.shape == exact.shape
    if drawn.along[0].mode == "nearest":
        np.testing.assert_array_equal(got, exact.astype(got.dtype))
    elif got.dtype.name in FLOATS:
        rtol = {"bfloat16": 2e-2, "float16": 4e-3}.get(got.dtype.name, 2e-5)
        assert_close(got, exact.astype(got.dtype), rtol=rtol, scale=4.0)
    else:
        limits = np.iinfo(got.dtype)
        near = np.abs(got.astype(np.float64) - np.clip(exact, limits.min, limits.max))
        assert (near <= rounding + 1e-3).all(), f"{got}\nexpected\n{exact}"


def misread(drawn: Drawn) -> bool:
    """Whether onnxruntime is known not to do what the operator's text says: see docs/disagreements.md."""
    policy, x = drawn.node.attributes.get("keep_aspect_ratio_policy", "stretch"), drawn.node.inputs[0]
    if x is not None and x.dtype == np.int8 and any(along.antialias for along in drawn.along):
        return True
    if policy != "stretch" and min(drawn.node.attributes.get("axes", (0,))) < 0:
        return True
    same = [along for along in drawn.along if along.extent == along.out]
    return (
        any(along.scale == 1 and along.roi != (0.0, 1.0) for along in same)
        or (len(same) == len(drawn.along) and any(along.scale != 1 for along in same))
        or any(along.antialias and along.scale != 1 for along in same)
    )


def onnxruntimes(drawn: Drawn) -> Sequence[np.ndarray | None]:
    """None where it refuses the form, or is known to answer something else."""
    node = drawn.node
    if misread(drawn):
        return [None]
    try:
        return ort(node.model(), node.feeds())
    except (EPFail, Fail, InvalidArgument, NotImplemented, RuntimeException, RuntimeError):
        return [None]


many = settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])


@many
@given(resizes())
def test_resize(drawn: Drawn) -> None:
    check(drawn)


@many
@given(upsamples())
def test_upsample(drawn: Drawn) -> None:
    check(drawn)
