"""Batch normalisation by channel, with given statistics or those of the batch.

Source: cudnn_ops.h, cudnnDeriveBNTensorDescriptor, cudnnBatchNormalizationForwardInference,
cudnnBatchNormalizationForwardTraining.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gossamer.cudnn.enums import cudnnBatchNormMode
from gossamer.cudnn.handles import Handle
from gossamer.cudnn.routines.direct import DirectRoutine, factor

__all__ = ["BatchNormalization", "parameter_type"]

MODE = cudnnBatchNormMode.CUDNN_BATCHNORM_SPATIAL


def parameter_type(dtype: str) -> str:
    """What scale, bias, mean and variance are for x of `dtype`."""
    return "float64" if dtype == "float64" else "float32"


class BatchNormalization(DirectRoutine):
    """Roles x, scale, bias, y; and mean, variance, unless `training`: then they are the batch's own, of each channel
    over images and pixels, and are not kept. settings: a tensor x of four or five dimensions, which y is like; epsilon.
    """

    doing = "normalising a batch"
    functions = (
        "cudnnDeriveBNTensorDescriptor",
        "cudnnBatchNormalizationForwardInference",
        "cudnnBatchNormalizationForwardTraining",
    )

    def open(self, settings: Mapping[str, Any], handle: Handle | None) -> None:
        self._x, self._parameters = self.tensor(settings["x"]), self.create("Tensor")
        self.call("cudnnDeriveBNTensorDescriptor", self._parameters, self._x, MODE)
        self._one, self._zero = (factor(value, settings["x"]["dtype"]) for value in (1, 0))
        self._epsilon, self._training = float(settings["epsilon"]), bool(settings["training"])

    def execute(self, handle: Handle, pointers: Mapping[str, int], workspace: int) -> None:
        images = (handle.address, MODE, self._one.address, self._zero.address, self._x, pointers["x"], self._x)
        begin = (*images, pointers["y"], self._parameters, pointers["scale"], pointers["bias"])
        if self._training:
            averages = 0.0, None, None
            self.call("cudnnBatchNormalizationForwardTraining", *begin, *averages, self._epsilon, None, None)
        else:
            given = pointers["mean"], pointers["variance"]
            self.call("cudnnBatchNormalizationForwardInference", *begin, *given, self._epsilon)
