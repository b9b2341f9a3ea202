"""Pooling, which cuDNN calls resampling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gossamer.cudnn.descriptors import Attribute, Descriptor, Kind
from gossamer.cudnn.enums import cudnnNanPropagation, cudnnPaddingMode, cudnnResampleMode
from gossamer.cudnn.operations.base import Lowering, Operation
from gossamer.cudnn.tensors import DATA_TYPES


@dataclass(frozen=True)
class Resample(Operation):
    """y = the maximum or average of x under a moving window.

    mode: a name out of MODES. window, padding_before, padding_after, stride: one per spatial dimension.

    Source: cudnn_graph.h, CUDNN_BACKEND_RESAMPLE_DESCRIPTOR and CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR.
    """

    mode: str
    x: int
    y: int
    window: tuple[int, ...]
    padding_before: tuple[int, ...]
    padding_after: tuple[int, ...]
    stride: tuple[int, ...]
    compute: str

    READS: ClassVar[tuple[str, ...]] = ("x",)

    def describe(self, lowering: Lowering) -> Descriptor:
        operation = lowering.new(Kind.CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR, f"pooling {self.mode}")
        operation.set(Attribute.CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, self._parameters(lowering))
        operation.set(Attribute.CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, lowering.tensors[self.x])
        operation.set(Attribute.CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, lowering.tensors[self.y])
        return operation.finalize()

    def _parameters(self, lowering: Lowering) -> Descriptor:
        parameters = lowering.new(Kind.CUDNN_BACKEND_RESAMPLE_DESCRIPTOR, f"the parameters of pooling {self.mode}")
        parameters.set(Attribute.CUDNN_ATTR_RESAMPLE_MODE, MODES[self.mode])
        parameters.set(Attribute.CUDNN_ATTR_RESAMPLE_COMP_TYPE, DATA_TYPES[self.compute])
        parameters.set(Attribute.CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, len(self.window))
        parameters.set(Attribute.CUDNN_ATTR_RESAMPLE_NAN_PROPAGATION, cudnnNanPropagation.CUDNN_PROPAGATE_NAN)
        parameters.set(Attribute.CUDNN_ATTR_RESAMPLE_PADDING_MODE, self._padding_mode)
        # Windows, strides and paddings may be fractions (for interpolation); those of pooling are whole numbers.
        parameters.set(Attribute.CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, *self.window)
        parameters.set(Attribute.CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, *self.padding_before)
        parameters.set(Attribute.CUDNN_ATTR_RESAMPLE_POST_PADDINGS, *self.padding_after)
        parameters.set(Attribute.CUDNN_ATTR_RESAMPLE_STRIDES, *self.stride)
        return parameters.finalize()

    @property
    def _padding_mode(self) -> cudnnPaddingMode:
        return cudnnPaddingMode.CUDNN_NEG_INF_PAD if self.mode == "max" else cudnnPaddingMode.CUDNN_ZERO_PAD


MODES: dict[str, cudnnResampleMode] = {
    "max": cudnnResampleMode.CUDNN_RESAMPLE_MAXPOOL,
    "average": cudnnResampleMode.CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING,
    "average_including_padding": cudnnResampleMode.CUDNN_RESAMPLE_AVGPOOL,
}
"""Modes by name; `average` divides by the elements that lie inside of x, as ONNX does by default."""
