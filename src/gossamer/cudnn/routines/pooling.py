"""Pools by `cudnnPoolingForward`.

Source: cudnn_ops.h, cudnnSetPoolingNdDescriptor, cudnnPoolingForward.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gossamer.cudnn.enums import cudnnNanPropagation, cudnnPoolingMode
from gossamer.cudnn.handles import Handle
from gossamer.cudnn.routines.direct import DirectRoutine, factor, ints

__all__ = ["MODES", "Pooling"]

MODES = {
    "max": cudnnPoolingMode.CUDNN_POOLING_MAX,
    "average": cudnnPoolingMode.CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING,
    "average_with_padding": cudnnPoolingMode.CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING,
}


class Pooling(DirectRoutine):
    """Roles x, y. settings: tensors x, y of four or five dimensions; mode, of `MODES`; window, padding, strides by
    spatial dimension. NaN wins over any number.
    """

    doing = "pooling"
    functions = ("cudnnPoolingForward",)

    def open(self, settings: Mapping[str, Any], handle: Handle | None) -> None:
        self._x, self._y = self.tensor(settings["x"]), self.tensor(settings["y"])
        self._one, self._zero = (factor(value, settings["x"]["dtype"]) for value in (1, 0))
        self._pool = self.create("Pooling")
        mode, nan = MODES[settings["mode"]], cudnnNanPropagation.CUDNN_PROPAGATE_NAN
        spatial = len(settings["x"]["dims"]) - 2
        extents = (ints(settings[name], spatial) for name in ("window", "padding", "strides"))
        self.call("cudnnSetPoolingNdDescriptor", self._pool, mode, nan, spatial, *extents)

    def execute(self, handle: Handle, pointers: Mapping[str, int], workspace: int) -> None:
        x, y = (self._x, pointers["x"]), (self._y, pointers["y"])
        one, zero = self._one.address, self._zero.address
        self.call("cudnnPoolingForward", handle.address, self._pool, one, *x, zero, *y)
