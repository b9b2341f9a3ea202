"""Elementwise operations of one, two or three tensors, with broadcasting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from gossamer.cudnn.descriptors import Attribute, Descriptor, Kind, Type
from gossamer.cudnn.enums import cudnnPointwiseMode
from gossamer.cudnn.operations.base import Lowering, Operation
from gossamer.cudnn.tensors import DATA_TYPES, Tensor
from gossamer.errors import InvalidArgument


@dataclass(frozen=True)
class Pointwise(Operation):
    """y = mode(x), mode(x, b), or, `select`, t ? x : b.

    mode: a name out of MODES. lower_clip, upper_clip, slope belong to `relu` (slope is that of values below
    lower_clip), alpha to `elu`, beta to `softplus` and `swish`, axis to `index`.

    Source: cudnn_graph.h, CUDNN_BACKEND_POINTWISE_DESCRIPTOR and CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR.
    """

    mode: str
    x: int
    y: int
    compute: str
    b: int | None = None
    t: int | None = None
    lower_clip: float | None = None
    upper_clip: float | None = None
    slope: float | None = None
    alpha: float | None = None
    beta: float | None = None
    axis: int | None = None

    READS: ClassVar[tuple[str, ...]] = ("x", "b", "t")

    def describe(self, lowering: Lowering) -> Descriptor:
        operation = lowering.new(Kind.CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, f"pointwise {self.mode}")
        operation.set(Attribute.CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, self._parameters(lowering))
        operation.set(Attribute.CUDNN_ATTR_OPERATION_POINTWISE_XDESC, lowering.tensors[self.x])
        if self.b is not None:
            operation.set(Attribute.CUDNN_ATTR_OPERATION_POINTWISE_BDESC, lowering.tensors[self.b])
        if self.t is not None:
            operation.set(Attribute.CUDNN_ATTR_OPERATION_POINTWISE_TDESC, lowering.tensors[self.t])
        operation.set(Attribute.CUDNN_ATTR_OPERATION_POINTWISE_YDESC, lowering.tensors[self.y])
        return operation.finalize()

    def _parameters(self, lowering: Lowering) -> Descriptor:
        parameters = lowering.new(Kind.CUDNN_BACKEND_POINTWISE_DESCRIPTOR, f"the parameters of {self.mode}")
        parameters.set(Attribute.CUDNN_ATTR_POINTWISE_MODE, MODES[self.mode])
        parameters.set(Attribute.CUDNN_ATTR_POINTWISE_MATH_PREC, DATA_TYPES[self.compute])
        for attribute, value in (
            (Attribute.CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, self.lower_clip),
            (Attribute.CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, self.upper_clip),
            (Attribute.CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, self.slope),
            (Attribute.CUDNN_ATTR_POINTWISE_ELU_ALPHA, self.alpha),
            (
                Attribute.CUDNN_ATTR_POINTWISE_SOFTPLUS_BETA
                if self.mode == "softplus"
                else Attribute.CUDNN_ATTR_POINTWISE_SWISH_BETA,
                self.beta,
            ),
        ):
            if value is not None:
                parameters.set(attribute, value, type=Type.CUDNN_TYPE_DOUBLE)
        if self.axis is not None:
            parameters.set(Attribute.CUDNN_ATTR_POINTWISE_AXIS, self.axis)
        return parameters.finalize()


_RENAMED = {
    "GELU_APPROX_TANH_FWD": "gelu_tanh",
    "BINARY_SELECT": "select",
    "GEN_INDEX": "index",
}

MODES: dict[str, cudnnPointwiseMode] = {
    _RENAMED.get(short, short.removesuffix("_FWD").lower()): mode
    for mode in cudnnPointwiseMode
    if not (short := mode.name.removeprefix("CUDNN_POINTWISE_")).endswith("_BWD")
}
"""Modes by name: cuDNN's own in lower case, but `gelu_tanh`, `select` and `index`; no backward ones."""

BINARY = frozenset(
    (
        "add",
        "add_square",
        "div",
        "max",
        "min",
        "mod",
        "floor_mod",
        "mul",
        "pow",
        "sub",
        "atan2",
        "logical_and",
        "logical_or",
    )
) | {name for name in MODES if name.startswith("cmp_")}
"""Modes of two tensors; `select` has three, the rest one."""

LOGICAL = frozenset(name for name in MODES if name.startswith(("cmp_", "logical_")))
"""Modes whose result is a truth value."""

PARAMETERS: dict[str, frozenset[str]] = {
    "relu": frozenset(("lower_clip", "upper_clip", "slope")),
    "elu": frozenset(("alpha",)),
    "softplus": frozenset(("beta",)),
    "swish": frozenset(("beta",)),
    "index": frozenset(("axis",)),
}
"""Parameters by mode; the others have none."""


def checked_mode(mode: str, operands: int, parameters: Sequence[str]) -> None:
    """InvalidArgument when there is no such mode, or it takes other operands or parameters."""
    if mode not in MODES:
        raise InvalidArgument(f"pointwise mode {mode!r}: accepted are {', '.join(MODES)}")
    wanted = 3 if mode == "select" else 2 if mode in BINARY else 1
    if operands != wanted:
        raise InvalidArgument(f"pointwise {mode} takes {wanted} tensors, not {operands}")
    if foreign := set(parameters) - PARAMETERS.get(mode, frozenset()):
        raise InvalidArgument(f"pointwise {mode} has no {', '.join(sorted(foreign))}")


def broadcast(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """Dims of an elementwise result: equal ranks; sizes equal, or 1."""
    if len({len(tensor.dims) for tensor in tensors}) != 1:
        raise InvalidArgument(f"{', '.join(map(str, tensors))}: all must have the same number of dimensions")
    dims = tuple(max(sizes) for sizes in zip(*(tensor.dims for tensor in tensors), strict=True))
    for tensor in tensors:
        if any(size not in (1, whole) for size, whole in zip(tensor.dims, dims, strict=True)):
            raise InvalidArgument(f"{', '.join(map(str, tensors))}: sizes must be equal or 1")
    return dims
