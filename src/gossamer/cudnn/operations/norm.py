"""Normalisations, for inference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gossamer.cudnn.descriptors import Attribute, Descriptor, Kind
from gossamer.cudnn.enums import cudnnBackendNormFwdPhase, cudnnBackendNormMode
from gossamer.cudnn.operations.base import Lowering, Operation


@dataclass(frozen=True)
class Norm(Operation):
    """y = (x - mean) / √(variance + epsilon) · scale + bias, with mean and variance of x itself.

    mode: a name out of MODES. layer, rms: over the dimensions in which scale is not 1; instance: over the spatial ones.
    rms takes the mean as 0, and its bias is optional. epsilon: a scalar by value.

    Source: cudnn_graph.h, CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR.
    """

    mode: str
    x: int
    scale: int
    y: int
    epsilon: int
    bias: int | None = None

    READS: ClassVar[tuple[str, ...]] = ("x", "scale", "bias", "epsilon")

    def describe(self, lowering: Lowering) -> Descriptor:
        operation = lowering.new(Kind.CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR, f"{self.mode} normalisation")
        operation.set(Attribute.CUDNN_ATTR_OPERATION_NORM_FWD_MODE, MODES[self.mode])
        phase = cudnnBackendNormFwdPhase.CUDNN_NORM_FWD_INFERENCE
        operation.set(Attribute.CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, phase)
        for attribute, uid in (
            (Attribute.CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, self.x),
            (Attribute.CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, self.scale),
            (Attribute.CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, self.bias),
            (Attribute.CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, self.epsilon),
            (Attribute.CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, self.y),
        ):
            if uid is not None:
                operation.set(attribute, lowering.tensors[uid])
        return operation.finalize()


MODES: dict[str, cudnnBackendNormMode] = {
    "instance": cudnnBackendNormMode.CUDNN_INSTANCE_NORM,
    "layer": cudnnBackendNormMode.CUDNN_LAYER_NORM,
    "rms": cudnnBackendNormMode.CUDNN_RMS_NORM,
}
"""Modes by name. Batch normalisation for inference is pointwise to cuDNN, and it has no group normalisation."""
