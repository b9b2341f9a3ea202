"""Interpolation along one axis as a table: which elements of it make an element of the result, with what weights.

Every mode of ONNX's Resize is such a table (nearest: one tap of weight one); several axes are the product of theirs.
Coordinates are computed in fp32, as onnxruntime does: where one falls on a tie, its rounding decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

OUTSIDE = -1
"""The index of every tap of an element that lies outside of the axis, where such elements are extrapolated."""


@dataclass(frozen=True, slots=True)
class AxisResize:
    """How `extent` elements become `out` along one axis.

    The attributes are Resize's, for this axis. nearest "simple" is that of Upsample and Resize 10, which have no
    nearest_mode: down, or up where the axis shrinks.
    """

    extent: int
    out: int
    scale: float
    mode: str = "nearest"
    coordinates: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    cubic_a: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    roi: tuple[float, float] = (0.0, 1.0)

    @property
    def is_identity(self) -> bool:
        if self.extent != self.out:
            return False
        if self.coordinates == "tf_crop_and_resize":
            return self.roi == (0.0, 1.0)
        return self.coordinates == "align_corners" or self.scale == 1

    @property
    def taps(self) -> int:
        """Elements of the axis per element of the result."""
        if self.mode == "nearest":
            return 1
        return 2 * self._reach

    @property
    def _reach(self) -> int:
        """Taps on each side."""
        reach = 1 if self.mode == "linear" else 2
        stretch = min(self.scale, 1.0) if self.antialias else 1.0
        return -int(np.floor(-reach / stretch))

    def indices(self) -> np.ndarray:
        """int32[out, taps]."""
        x = self.source_coordinates()
        first = self._nearest(x) if self.mode == "nearest" else self._first_tap(x)
        taps: np.ndarray = np.clip(first[:, None] + np.arange(self.taps), 0, self.extent - 1)
        if self.coordinates == "tf_crop_and_resize":
            taps[(x < 0) | (x > self.extent - 1)] = OUTSIDE
        return taps.astype(np.int32)

    def weights(self) -> np.ndarray:
        """fp32[out, taps], each row with the sum one."""
        x = self.source_coordinates()
        if self.mode == "linear":
            x = np.clip(x, 0, self.extent - 1)
        taps = self._first_tap(x)[:, None] + np.arange(self.taps)
        distance = np.abs(taps - x[:, None].astype(np.float64))
        if self.antialias:
            distance *= min(self.scale, 1.0)
        weights: np.ndarray = np.maximum(1 - distance, 0) if self.mode == "linear" else self._cubic(distance)
        if self.exclude_outside:
            weights[(taps < 0) | (taps >= self.extent)] = 0
        weights /= weights.sum(axis=1, keepdims=True)
        return weights.astype(np.float32)

    def _first_tap(self, x: np.ndarray) -> np.ndarray:
        if self.mode == "linear":
            x = np.clip(x, 0, self.extent - 1)
        first: np.ndarray = np.floor(x).astype(np.int64) + 1 - self._reach
        return first

    def source_coordinates(self) -> np.ndarray:
        """Where the elements of the result lie along the axis: fp32[out]."""
        x: np.ndarray = self._coordinates(np.arange(self.out, dtype=np.float32), np.float32)
        return x.astype(np.float32)

    def _coordinates(self, i: np.ndarray, f: type[np.float32]) -> Any:
        scale, extent, out = f(self.scale), f(self.extent), f(self.out)
        start, end = map(f, self.roi)
        match self.coordinates:
            case "asymmetric":
                return i / scale
            case "half_pixel":
                return (i + f(0.5)) / scale - f(0.5)
            case "half_pixel_symmetric":
                adjustment = out / (scale * extent)
                return extent / f(2) * (f(1) - adjustment) + (i + f(0.5)) / scale - f(0.5)
            case "pytorch_half_pixel":
                return (i + f(0.5)) / scale - f(0.5) if self.out > 1 else 0 * i
            case "tf_half_pixel_for_nn":
                return (i + f(0.5)) / scale
            case "align_corners":
                return i * (extent - f(1)) / (out - f(1)) if self.out > 1 else 0 * i
        assert self.coordinates == "tf_crop_and_resize", self.coordinates
        if self.out > 1:
            return start * (extent - f(1)) + i * (end - start) * (extent - f(1)) / (out - f(1))
        return 0 * i + f(0.5) * (start + end) * (extent - f(1))

    def _nearest(self, x: np.ndarray) -> np.ndarray:
        x = x.astype(np.float64)  # adding a half to an fp32 just below a half would round up to one
        match self.nearest:
            case "round_prefer_floor":
                x = np.ceil(x - 0.5)
            case "round_prefer_ceil":
                x = np.floor(x + 0.5)
            case "floor":
                x = np.floor(x)
            case "ceil":
                x = np.ceil(x)
            case "simple":
                x = np.ceil(x) if self.scale < 1 else np.floor(x)
        whole: np.ndarray = x.astype(np.int64)
        return whole

    def _cubic(self, distance: np.ndarray) -> np.ndarray:
        """Keys' kernel with the parameter cubic_a."""
        a, d = self.cubic_a, distance
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, 0.0))
