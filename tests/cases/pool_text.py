"""Pools by the operators' text, in NumPy: every window written out, then reduced in fp64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, prod
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Axis:
    """One spatial axis: of `size` elements with `begin` and `end` more as padding, seen by `outputs` windows."""

    size: int
    taps: int
    step: int
    gap: int
    begin: int
    end: int
    outputs: int

    @property
    def places(self) -> np.ndarray:
        """Where in the input each window's taps are: [outputs, taps]."""
        starts = np.arange(self.outputs) * self.step - self.begin
        return starts[:, None] + np.arange(self.taps) * self.gap

    def within(self, *, padding: bool) -> np.ndarray:
        """Which taps are elements, or elements and padding: [outputs, taps]."""
        before, behind = (self.begin, self.end) if padding else (0, 0)
        return (self.places >= -before) & (self.places < self.size + behind)


def axes_of(sizes: Sequence[int], attributes: Mapping[str, Any]) -> list[Axis]:
    """The axes of a MaxPool, AveragePool or LpPool over spatial extents `sizes`, as of version 22 of their text."""
    kernel, rank = attributes["kernel_shape"], len(sizes)
    steps, gaps = attributes.get("strides", [1] * rank), attributes.get("dilations", [1] * rank)
    pads = attributes.get("pads", [0] * 2 * rank)
    mode, rounds_up = attributes.get("auto_pad", "NOTSET"), bool(attributes.get("ceil_mode", 0))
    of_axis = zip(sizes, kernel, steps, gaps, pads[:rank], pads[rank:], strict=True)
    return [_axis(*numbers, mode, rounds_up) for numbers in of_axis]


def _axis(size: int, taps: int, step: int, gap: int, begin: int, end: int, mode: str, rounds_up: bool) -> Axis:
    reach = (taps - 1) * gap + 1
    if mode.startswith("SAME"):
        outputs = ceil(size / step)
        total = max(0, (outputs - 1) * step + reach - size)  # pads "can take any value greater than or equal to 0"
        begin = total // 2 if mode == "SAME_UPPER" else total - total // 2
        return Axis(size, taps, step, gap, begin, total - begin, outputs)
    if mode == "VALID":
        return Axis(size, taps, step, gap, 0, 0, max(0, ceil((size - reach + 1) / step)))
    steps = (size + begin + end - reach) / step
    outputs = (ceil(steps) if rounds_up else floor(steps)) + 1
    if rounds_up and (outputs - 1) * step >= size + begin:
        outputs -= 1  # "Sliding windows that would start in the right padded region are ignored."
    return Axis(size, taps, step, gap, begin, end, max(0, outputs))


def windows(x: np.ndarray, axes: Sequence[Axis]) -> np.ndarray:
    """x over [N, C, outputs…, taps], with any element where a tap is none."""
    empty = [(0, int(axis.size == 0)) for axis in axes]
    x = np.pad(x, [(0, 0), (0, 0), *empty])
    places = [np.clip(axis.places, 0, max(0, axis.size - 1)).ravel() for axis in axes]
    return _taps_last(x[:, :, *np.ix_(*places)], axes)


def counted(axes: Sequence[Axis], *, padding: bool) -> np.ndarray:
    """Which taps are elements, or elements and padding: [outputs…, taps]."""
    grid = np.ones((), bool)
    for axis in axes:
        grid = np.logical_and.outer(grid, axis.within(padding=padding).ravel())
    return _taps_last(grid, axes)


def _taps_last(spread: np.ndarray, axes: Sequence[Axis]) -> np.ndarray:
    """[…, outputs · taps, …] of each axis → […, outputs…, taps of all]."""
    rank, leading = len(axes), spread.shape[: spread.ndim - len(axes)]
    apart = spread.reshape(*leading, *(n for axis in axes for n in (axis.outputs, axis.taps)))
    order = [*range(0, 2 * rank, 2), *range(1, 2 * rank, 2)]
    apart = apart.transpose(*range(len(leading)), *(len(leading) + i for i in order))
    return apart.reshape(*leading, *(axis.outputs for axis in axes), prod(axis.taps for axis in axes))


def pool(op: str, x: np.ndarray, attributes: Mapping[str, Any]) -> list[np.ndarray]:
    """y over N, C, spatial…, in fp64; of MaxPool also where each maximum is, -1 for a window without elements.

    A maximum of NaN and others is NaN, and it is where the first NaN is. Of no elements the maximum is the least value
    of the type, the mean 0.
    """
    axes = axes_of(x.shape[2:], attributes)
    seen, values = counted(axes, padding=False), windows(x, axes).astype(np.float64)
    if op == "MaxPool":
        least = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
        return _maxima(values, seen, _places(x.shape, axes, attributes.get("storage_order", 0)), least)
    terms = np.where(seen, values, 0)
    if op == "AveragePool":
        elements = counted(axes, padding=bool(attributes.get("count_include_pad", 0)))
        return [terms.sum(-1) / np.maximum(elements.sum(-1), 1)]
    p = attributes.get("p", 2)
    return [(np.abs(terms) ** p).sum(-1) ** (1 / p)]


def _places(shape: Sequence[int], axes: Sequence[Axis], column_major: int) -> np.ndarray:
    """What number each tap's element has among all of x: [N, C, outputs…, taps]."""
    plane = np.arange(prod(shape[2:])).reshape(shape[2:], order="F" if column_major else "C")
    images = np.arange(prod(shape[:2])).reshape(*shape[:2], *(1 for _ in shape[2:]))
    return windows(images * prod(shape[2:]) + plane, axes)


def _maxima(values: np.ndarray, seen: np.ndarray, places: np.ndarray, least: float) -> list[np.ndarray]:
    known, nan = np.where(seen, values, least), seen & np.isnan(values)
    y = known.max(-1, initial=least)
    best = np.where(nan.any(-1, keepdims=True), nan, seen & (known == y[..., None]))
    first = np.take_along_axis(places, best.argmax(-1)[..., None], -1)[..., 0]
    return [y, np.where(seen.any(-1), first, -1)]
