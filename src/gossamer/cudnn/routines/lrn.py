"""Local response normalisation across channels.

Source: cudnn_ops.h, cudnnSetLRNDescriptor, cudnnLRNCrossChannelForward.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gossamer.cudnn.enums import cudnnLRNMode
from gossamer.cudnn.handles import Handle
from gossamer.cudnn.routines.direct import DirectRoutine, factor

__all__ = ["LEAST_BETA", "LEAST_K", "SIZES", "LocalResponseNormalization"]

SIZES = range(1, 17)
"""CUDNN_LRN_MIN_N to CUDNN_LRN_MAX_N."""
LEAST_BETA, LEAST_K = 0.01, 1e-5
"""CUDNN_LRN_MIN_BETA, CUDNN_LRN_MIN_K."""


class LocalResponseNormalization(DirectRoutine):
    """Roles x, y: y = x / (k + alpha / size · sum of squares) ** beta, summed over (size - 1) // 2 channels before,
    the channel, and size // 2 behind. settings: a tensor x of four or five dimensions, which y is like; size, alpha,
    beta, k.
    """

    doing = "normalising across channels"
    functions = ("cudnnLRNCrossChannelForward",)

    def open(self, settings: Mapping[str, Any], handle: Handle | None) -> None:
        self._x = self.tensor(settings["x"])
        self._one, self._zero = (factor(value, settings["x"]["dtype"]) for value in (1, 0))
        self._norm = self.create("LRN")
        alpha, beta, k = (float(settings[name]) for name in ("alpha", "beta", "k"))
        self.call("cudnnSetLRNDescriptor", self._norm, int(settings["size"]), alpha, beta, k)

    def execute(self, handle: Handle, pointers: Mapping[str, int], workspace: int) -> None:
        begin = handle.address, self._norm, cudnnLRNMode.CUDNN_LRN_CROSS_CHANNEL_DIM1, self._one.address
        x, y = (self._x, pointers["x"]), (self._x, pointers["y"])
        self.call("cudnnLRNCrossChannelForward", *begin, *x, self._zero.address, *y)
