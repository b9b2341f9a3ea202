"""Convolutions: cases for the interpreter and the GPU, with what they should give by the operators' text."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import erfc
from typing import Any

import ml_dtypes
import numpy as np
import onnx

import harness
from gossamer.providers.cudnn import NEVER, Policy

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
NHWC = "gossamer.nhwc"


@dataclass(frozen=True)
class Case:
    """One node. x and w: shapes as ONNX has them, whatever the layout. constants: filters and bias are initialisers."""

    name: str
    x: tuple[int, ...]
    w: tuple[int, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    op_type: str = "Conv"
    domain: str = ""
    dtype: Any = np.float32
    bias: bool = True
    residual: bool = False
    constants: bool = True

    def __str__(self) -> str:
        domain = {"": "nchw", NHWC: "nhwc"}.get(self.domain, self.domain)
        varying = "" if self.constants else "-varying"
        return f"{self.op_type}-{self.name}-{domain}-{np.dtype(self.dtype).name}{varying}"

    @property
    def transposed(self) -> bool:
        return self.op_type.endswith("ConvTranspose")

    @property
    def outputs(self) -> int:
        return self.w[1] * self.attributes.get("group", 1) if self.transposed else self.w[0]

    def inputs(self) -> list[np.ndarray | None]:
        """X, W, B, Z with channels first."""
        rng = np.random.default_rng(zlib.crc32(f"{self.name}{self.x}{self.w}".encode()))
        shapes = [self.x, self.w, (self.outputs,) if self.bias else None]
        if self.residual:
            shapes.append(self._residual_shape())
        return [None if s is None else rng.standard_normal(s).astype(self.dtype) for s in shapes]

    def _residual_shape(self) -> tuple[int, ...]:
        x, w = np.zeros(self.x), np.zeros(self.w)
        return (transposed_convolution if self.transposed else convolution)(x, w, self.attributes).shape

    def sums(self) -> np.ndarray:
        """What the activation is applied to, in fp64."""
        exact = [None if a is None else a.astype(np.float64) for a in self.inputs()]
        y = (transposed_convolution if self.transposed else convolution)(exact[0], exact[1], self.attributes)
        if exact[2] is not None:
            y += exact[2].reshape(-1, *(1,) * (y.ndim - 2))
        if self.residual:
            y += exact[3]
        return y

    def want(self) -> np.ndarray:
        return activation(self.sums(), self.attributes).astype(self.dtype)

    def model(self) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
        """The model in the case's layout, and what to feed it."""
        arrays, want = self.inputs(), self.want()
        if self.domain == NHWC:
            want = channels_last(want)
            first_last = not self.attributes.get("x_channels_first")
            arrays = [
                channels_last(a) if a is not None and ((i == 0 and first_last) or i == 3) else a
                for i, a in enumerate(arrays)
            ]
        constants = [i for i in (1, 2) if self.constants and arrays[i] is not None]
        types = [(harness.tensor_type(want), want.shape)]
        model = harness.node_model(
            self.op_type, arrays, self.attributes, domain=self.domain, constants=constants, output_types=types
        )
        return model, {f"x{i}": a for i, a in enumerate(arrays) if a is not None and i not in constants}

    def check(self, device: str, policy: Policy = NEVER) -> None:
        """tf32's error is one of the sums, and an activation multiplies it by its steepness at most: one that saturates
        hides how large the sums were that it was made of."""
        model, feeds = self.model()
        (got,) = harness.run_model(model, feeds, device, policy)
        want = channels_last(self.want()) if self.domain == NHWC else self.want()
        tf32 = device != "interpreter" and np.dtype(self.dtype) == np.float32
        scale = steepness(self.attributes) * float(np.abs(self.sums()).max()) if tf32 else None
        harness.assert_close(got, want, self.reduction, tf32=tf32, scale=scale)

    @property
    def reduction(self) -> int:
        return int(np.prod(self.w)) // (self.outputs if not self.transposed else self.w[1])


def channels_last(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(array, 1, -1))


def convolution(x: np.ndarray, w: np.ndarray, attributes: Mapping[str, Any]) -> np.ndarray:
    """ONNX Conv without bias: one product per tap of the filter."""
    kernel, rank, group = w.shape[2:], w.ndim - 2, attributes.get("group", 1)
    strides, dilations = attributes.get("strides", [1] * rank), attributes.get("dilations", [1] * rank)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    mode = attributes.get("auto_pad", "NOTSET")
    if mode.startswith("SAME"):
        out = [-(-size // s) for size, s in zip(x.shape[2:], strides, strict=True)]
        total = [max(0, (o - 1) * s + r - size) for o, s, r, size in zip(out, strides, reach, x.shape[2:], strict=True)]
        less, more = [t // 2 for t in total], [t - t // 2 for t in total]
        pads = less + more if mode == "SAME_UPPER" else more + less
    else:
        pads = attributes.get("pads", [0] * 2 * rank)
    x = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    out = [(size - r) // s + 1 for size, r, s in zip(x.shape[2:], reach, strides, strict=True)]
    y = np.zeros((x.shape[0], group, w.shape[0] // group, *out))
    grouped_w = w.reshape(group, w.shape[0] // group, *w.shape[1:])
    for tap in product(*map(range, kernel)):
        starts = [t * d for t, d in zip(tap, dilations, strict=True)]
        window = [slice(a, a + (o - 1) * s + 1, s) for a, o, s in zip(starts, out, strides, strict=True)]
        seen = x[(slice(None), slice(None), *window)].reshape(x.shape[0], group, w.shape[1], *out)
        y += np.einsum("ngc...,gkc->ngk...", seen, grouped_w[(slice(None),) * 3 + tap])
    return y.reshape(x.shape[0], w.shape[0], *out)


def transposed_convolution(x: np.ndarray, w: np.ndarray, attributes: Mapping[str, Any]) -> np.ndarray:
    """ONNX ConvTranspose without bias: every input adds to the outputs that taps lead to; then pads are cut off."""
    kernel, rank, group = w.shape[2:], w.ndim - 2, attributes.get("group", 1)
    strides, dilations = attributes.get("strides", [1] * rank), attributes.get("dilations", [1] * rank)
    extra = attributes.get("output_padding", [0] * rank)
    sizes = x.shape[2:]
    full = [
        (n - 1) * s + e + (k - 1) * d + 1
        for n, s, e, k, d in zip(sizes, strides, extra, kernel, dilations, strict=True)
    ]
    mode, pads = attributes.get("auto_pad", "NOTSET"), attributes.get("pads", [0] * 2 * rank)
    out = [f - a - b for f, a, b in zip(full, pads[:rank], pads[rank:], strict=True)]
    if mode.startswith("SAME") or "output_shape" in attributes:
        out = list(attributes.get("output_shape") or [n * s for n, s in zip(sizes, strides, strict=True)])
        total = [max(0, f - o) for f, o in zip(full, out, strict=True)]
        pads = [t // 2 if mode == "SAME_UPPER" else t - t // 2 for t in total]
    images, channels = x.shape[:2]
    y = np.zeros((images, group, w.shape[1], *(max(f, p + o) for f, p, o in zip(full, pads, out, strict=False))))
    grouped_x = x.reshape(images, group, channels // group, *sizes)
    grouped_w = w.reshape(group, channels // group, *w.shape[1:])
    for tap in product(*map(range, kernel)):
        starts = [t * d for t, d in zip(tap, dilations, strict=True)]
        window = [slice(a, a + (n - 1) * s + 1, s) for a, n, s in zip(starts, sizes, strides, strict=True)]
        y[(slice(None),) * 3 + tuple(window)] += np.einsum(
            "ngc...,gck->ngk...", grouped_x, grouped_w[(slice(None),) * 3 + tap]
        )
    kept = tuple(slice(p, p + o) for p, o in zip(pads, out, strict=False))
    return y[(slice(None),) * 3 + kept].reshape(images, group * w.shape[1], *out)


def activation(y: np.ndarray, attributes: Mapping[str, Any]) -> np.ndarray:
    """The activation of a fused convolution, in fp64: one of `kernels.activations`, or as com.microsoft writes it."""
    kind = attributes.get("activation", "none").lower().replace("_", "") or "none"
    alpha, beta, *_ = *map(float, np.float32(attributes.get("activation_params", []))), 0.0, 0.0
    with np.errstate(all="ignore"):
        return np.asarray(_ACTIVATIONS[kind](y, alpha, beta))


def _sigmoid(y: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-y))


def _hard_swish(y: np.ndarray) -> np.ndarray:
    return y * np.clip(y / 6 + 0.5, 0, 1)


def _softplus(y: np.ndarray) -> np.ndarray:
    return np.maximum(y, 0) + np.log1p(np.exp(-np.abs(y)))


def _normal_probability(y: np.ndarray) -> np.ndarray:
    return 0.5 * np.vectorize(erfc, otypes=[float])(-y / np.sqrt(2))


_ACTIVATIONS: dict[str, Callable[[np.ndarray, float, float], np.ndarray]] = {
    "none": lambda y, a, b: y,
    "relu": lambda y, a, b: np.maximum(y, 0),
    "clip": np.clip,
    "leakyrelu": lambda y, a, b: np.where(y < 0, y * a, y),
    "thresholdedrelu": lambda y, a, b: np.where(y > a, y, 0),
    "elu": lambda y, a, b: np.where(y < 0, a * np.expm1(y), y),
    "celu": lambda y, a, b: np.maximum(y, 0) + np.minimum(a * np.expm1(y / a), 0),
    "selu": lambda y, a, b: b * np.where(y <= 0, a * np.expm1(y), y),
    "sigmoid": lambda y, a, b: _sigmoid(y),
    "hardsigmoid": lambda y, a, b: np.clip(y * a + b, 0, 1),
    "hardswish": lambda y, a, b: _hard_swish(y),
    "affinerelu": lambda y, a, b: np.maximum(y, 0) * a + b,
    "affinehardswish": lambda y, a, b: _hard_swish(y) * a + b,
    "silu": lambda y, a, b: y * _sigmoid(y * a),
    "swish": lambda y, a, b: y * _sigmoid(y),
    "mish": lambda y, a, b: y * np.tanh(_softplus(y)),
    "softplus": lambda y, a, b: _softplus(y),
    "softsign": lambda y, a, b: y / (1 + np.abs(y)),
    "tanh": lambda y, a, b: np.tanh(y),
    "gelu": lambda y, a, b: y * _normal_probability(y),
    "gelutanh": lambda y, a, b: y * _sigmoid(2 * np.sqrt(2 / np.pi) * (y + 0.044715 * y**3)),
}


def steepness(attributes: Mapping[str, Any]) -> float:
    """No less than the activation's Lipschitz constant."""
    kind = attributes.get("activation", "none").lower().replace("_", "") or "none"
    alpha, beta, *_ = *attributes.get("activation_params", []), 0.0, 0.0
    match kind:
        case "leakyrelu" | "elu":
            return max(1.0, abs(alpha))
        case "selu":
            return abs(beta) * max(1.0, abs(alpha))
        case "hardsigmoid" | "affinerelu":
            return abs(alpha)
        case "sigmoid":
            return 0.25
        case "hardswish":
            return 1.5
        case "affinehardswish":
            return 1.5 * abs(alpha)
        case "silu" | "swish" | "mish" | "gelu" | "gelutanh":
            return 1.2
    return 1.0


def layouts(*cases: Case) -> list[Case]:
    return [replace(case, domain=domain) for case in cases for domain in ("", NHWC)]


PLAIN = layouts(
    Case("3x3", (2, 20, 9, 11), (37, 20, 3, 3), {"pads": [1, 1, 1, 1]}),
    Case(
        "strides_dilations_pads",
        (2, 20, 11, 13),
        (7, 20, 3, 2),
        {"pads": [1, 0, 2, 3], "strides": [2, 1], "dilations": [1, 2]},
    ),
    Case("few_channels", (2, 3, 17, 19), (24, 3, 7, 7), {"pads": [3, 3, 3, 3], "strides": [2, 2]}),
    Case("one_channel", (1, 1, 9, 8), (5, 1, 3, 3), bias=False),
    Case("pointwise", (2, 40, 5, 6), (24, 40, 1, 1)),
    Case("pointwise_stride", (2, 40, 7, 6), (24, 40, 1, 1), {"strides": [2, 2]}),
    Case("pointwise_padded", (1, 17, 3, 4), (5, 17, 1, 1), {"pads": [1, 0, 0, 2]}),
    Case("one_pixel", (1, 64, 1, 1), (16, 64, 1, 1)),
    Case("window_larger_than_input", (1, 18, 2, 2), (4, 18, 5, 5), {"pads": [2, 2, 2, 2]}),
    Case("one_pixel_padded", (2, 32, 1, 1), (16, 32, 3, 3), {"pads": [1, 1, 1, 1]}),
    Case("one_row", (3, 16, 1, 20), (8, 16, 1, 5), {"pads": [0, 2, 0, 2]}),
    Case("groups", (2, 36, 6, 7), (9, 12, 3, 3), {"group": 3, "pads": [1, 1, 1, 1]}),
    Case("groups_of_16", (1, 32, 5, 5), (64, 16, 2, 2), {"group": 2}),
    Case("same_upper", (2, 18, 8, 7), (4, 18, 3, 4), {"auto_pad": "SAME_UPPER", "strides": [2, 3]}),
    Case("same_lower", (2, 18, 8, 7), (4, 18, 3, 4), {"auto_pad": "SAME_LOWER", "strides": [2, 3]}),
    Case(
        "same_dilated", (2, 18, 8, 7), (4, 18, 3, 4), {"auto_pad": "SAME_LOWER", "strides": [2, 3], "dilations": [2, 1]}
    ),
    Case("valid", (1, 18, 8, 7), (4, 18, 3, 4), {"auto_pad": "VALID"}),
    Case("1d", (2, 20, 31), (8, 20, 5), {"pads": [2, 1], "strides": [3], "dilations": [2]}),
    Case("1d_pointwise", (2, 20, 31), (8, 20, 1)),
    Case(
        "3d",
        (2, 18, 5, 6, 7),
        (4, 18, 2, 3, 2),
        {"pads": [1, 0, 2, 0, 1, 1], "strides": [2, 1, 2], "dilations": [1, 2, 1]},
    ),
    Case("3d_few_channels", (1, 2, 4, 6, 5), (4, 2, 3, 3, 3), {"pads": [1] * 6}),
)
DEPTHWISE = layouts(
    Case("depthwise", (2, 24, 9, 11), (24, 1, 3, 3), {"group": 24, "pads": [1, 1, 1, 1]}),
    Case(
        "depthwise_stride_dilation",
        (2, 7, 13, 11),
        (7, 1, 5, 3),
        {"group": 7, "strides": [2, 1], "dilations": [1, 3], "pads": [2, 0, 1, 3]},
    ),
    Case("depthwise_multiplier", (2, 6, 8, 7), (18, 1, 3, 3), {"group": 6}),
    Case("depthwise_same_lower", (1, 8, 8, 7), (8, 1, 4, 4), {"group": 8, "auto_pad": "SAME_LOWER"}),
    Case("depthwise_large_filter", (1, 6, 12, 11), (6, 1, 9, 9), {"group": 6, "pads": [4, 4, 4, 4]}),
    Case("depthwise_pointwise", (2, 6, 3, 4), (6, 1, 1, 1), {"group": 6}),
    Case("depthwise_1d", (2, 12, 20), (12, 1, 3), {"group": 12, "pads": [2, 0]}),
    Case("depthwise_3d", (1, 4, 5, 6, 4), (8, 1, 3, 2, 3), {"group": 4, "pads": [1, 0, 1, 0, 1, 1]}),
)
_TRANSPOSED = (
    Case("3x3", (2, 20, 4, 5), (20, 7, 3, 3)),
    Case("2x2_stride_2", (2, 24, 4, 5), (24, 7, 2, 2), {"strides": [2, 2]}),
    Case(
        "3x3_stride_2",
        (2, 20, 4, 5),
        (20, 7, 3, 3),
        {"strides": [2, 2], "pads": [1, 0, 1, 1], "output_padding": [1, 0]},
    ),
    Case("few_channels", (1, 5, 4, 5), (5, 3, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    Case("stride_beyond_filter", (1, 18, 3, 4), (18, 4, 1, 2), {"strides": [3, 4], "output_padding": [2, 1]}),
    Case("dilations", (2, 5, 4, 5), (5, 7, 2, 3), {"strides": [3, 2], "dilations": [2, 2], "pads": [1, 1, 0, 1]}),
    Case("dilations_meet_strides", (1, 16, 4, 3), (16, 4, 3, 3), {"strides": [4, 2], "dilations": [2, 3]}),
    Case("groups", (2, 6, 4, 5), (6, 2, 3, 3), {"strides": [2, 2], "group": 3}),
    Case("depthwise", (2, 6, 4, 5), (6, 1, 3, 3), {"strides": [2, 1], "group": 6}),
    Case("same_upper", (1, 5, 4, 3), (5, 7, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    Case("same_lower", (1, 5, 4, 3), (5, 7, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    Case("output_shape", (1, 5, 4, 3), (5, 7, 3, 4), {"strides": [2, 2], "output_shape": [8, 6]}),
    Case(
        "output_shape_same_upper",
        (1, 5, 4, 3),
        (5, 7, 3, 4),
        {"strides": [2, 2], "output_shape": [8, 7], "auto_pad": "SAME_UPPER"},
    ),
    Case("output_shape_below_input", (1, 5, 4, 3), (5, 7, 3, 4), {"output_shape": [2, 1]}),
    Case("same_beyond_filter", (1, 5, 4, 3), (5, 7, 1, 2), {"strides": [3, 3], "auto_pad": "SAME_LOWER"}),
    Case("1d", (2, 20, 9), (20, 4, 5), {"strides": [3], "pads": [1, 2]}),
    Case("3d", (1, 18, 3, 2, 3), (18, 4, 3, 2, 3), {"strides": [2, 1, 2], "pads": [1, 0, 1, 1, 0, 0]}),
)
TRANSPOSED = layouts(*(replace(case, op_type="ConvTranspose") for case in _TRANSPOSED))

_RELU = {"pads": [1, 1, 1, 1], "activation": "relu"}
FUSED = [
    Case("relu", (2, 20, 6, 7), (24, 20, 3, 3), _RELU, "FusedConv", "gossamer", residual=True),
    Case("relu", (2, 20, 6, 7), (24, 20, 3, 3), _RELU, "FusedConv", NHWC, residual=True),
    Case(
        "no_bias",
        (2, 20, 6, 7),
        (24, 20, 1, 1),
        {"activation": "hard_swish"},
        "FusedConv",
        NHWC,
        bias=False,
        residual=True,
    ),
    Case(
        "clip",
        (1, 20, 6, 7),
        (8, 20, 1, 1),
        {"activation": "clip", "activation_params": [-0.5, 6.0]},
        "FusedConv",
        NHWC,
    ),
    Case("depthwise", (2, 20, 6, 7), (20, 1, 3, 3), {**_RELU, "group": 20}, "FusedConv", NHWC, residual=True),
    Case("depthwise", (2, 20, 6, 7), (20, 1, 3, 3), {**_RELU, "group": 20}, "FusedConv", "gossamer", residual=True),
    Case("x_channels_first", (2, 3, 9, 8), (24, 3, 3, 3), {**_RELU, "x_channels_first": 1}, "FusedConv", NHWC),
    Case("x_channels_first", (2, 33, 9, 8), (24, 33, 1, 1), {"x_channels_first": 1}, "Conv", NHWC),
    Case(
        "x_channels_first_depthwise", (2, 16, 9, 8), (16, 1, 3, 3), {"x_channels_first": 1, "group": 16}, "Conv", NHWC
    ),
    Case(
        "relu",
        (1, 20, 4, 5),
        (20, 7, 2, 2),
        {"strides": [2, 2], "activation": "relu"},
        "FusedConvTranspose",
        NHWC,
        residual=True,
    ),
    Case(
        "tanh",
        (1, 20, 4, 5),
        (20, 7, 2, 2),
        {"strides": [2, 2], "activation": "tanh"},
        "FusedConvTranspose",
        "gossamer",
    ),
]
_CONTRIB: tuple[tuple[str, tuple[float, ...]], ...] = (
    ("Relu", ()),
    ("Tanh", ()),
    ("Sigmoid", ()),
    ("LeakyRelu", (0.1,)),
    ("Clip", (-0.25, 0.5)),
    ("HardSigmoid", (0.3, 0.4)),
    ("HardSwish", ()),
    ("Swish", ()),
    ("SiLU", (1.0,)),
    ("Gelu", ()),
)
CONTRIB = [
    Case(
        name.lower(),
        (2, 20, 6, 7),
        (8, 20, 3, 3),
        {"activation": name} | ({"activation_params": params} if params else {}),
        "FusedConv",
        "com.microsoft",
        residual=name == "Relu",
    )
    for name, params in _CONTRIB
]

_BOXED = (
    Case("3x3", (3, 24, 9, 11), (40, 24, 3, 3), _RELU, "FusedConv", NHWC, residual=True),
    Case(
        "strides_dilations_pads",
        (2, 24, 11, 13),
        (16, 24, 3, 2),
        {"pads": [1, 0, 2, 3], "strides": [3, 2], "dilations": [1, 2]},
        domain=NHWC,
    ),
    Case("pointwise", (2, 40, 5, 7), (24, 40, 1, 1), {"activation": "relu"}, "FusedConv", NHWC, residual=True),
    Case("pointwise_stride", (2, 40, 7, 6), (24, 40, 1, 1), {"strides": [2, 2]}, domain=NHWC),
    Case("1d", (2, 24, 31), (8, 24, 5), {"pads": [2, 1], "strides": [3]}, domain=NHWC),
)
BOXED = [replace(case, dtype=dtype) for case in _BOXED for dtype in (np.float32, np.float16, BFLOAT16)]
"""What the copy engine can fetch: whole 16 bytes of channels, in one group."""

_STEM = {"pads": [3, 2, 3, 4], "strides": [2, 2]}
COPIED = [
    Case("turned", (2, 24, 9, 11), (40, 24, 3, 3), _RELU, "FusedConv", "gossamer", np.float16, residual=True),
    Case("turned", (2, 20, 9, 11), (10, 20, 3, 3), {"pads": [1] * 4, "strides": [2, 1]}, dtype=np.float16),
    Case("turned_groups", (1, 48, 5, 7), (32, 24, 3, 3), {"pads": [1] * 4, "group": 2}),
    Case("turned_pointwise", (2, 24, 5, 6), (8, 24, 1, 1), {"activation": "relu"}, "FusedConv", "gossamer"),
    Case("turned_1d", (2, 24, 31), (8, 24, 5), {"pads": [2, 1], "strides": [3]}),
    Case("turned_3d", (2, 24, 3, 6, 5), (16, 24, 3, 2, 3), {"pads": [1] * 6, "strides": [2, 1, 2]}, dtype=np.float16),
    Case("turned_varying", (1, 24, 5, 7), (16, 24, 3, 3), {"pads": [1] * 4}, dtype=np.float16, constants=False),
    Case("turned_double", (1, 24, 5, 7), (16, 24, 3, 3), {"pads": [1] * 4}, dtype=np.float64),
    Case("turned_transposed", (2, 24, 4, 5), (24, 10, 4, 4), {"strides": [2, 2], "pads": [1] * 4}, "ConvTranspose"),
    Case("widened", (2, 3, 17, 19), (24, 3, 7, 7), _STEM, dtype=np.float16),
    Case(
        "widened",
        (2, 3, 17, 19),
        (24, 3, 7, 7),
        {**_STEM, "activation": "relu"},
        "FusedConv",
        NHWC,
        np.float16,
        residual=True,
    ),
    Case("widened_x_channels_first", (1, 3, 17, 19), (24, 3, 7, 7), {**_STEM, "x_channels_first": 1}, domain=NHWC),
    Case("widened_bfloat16", (1, 3, 9, 10), (16, 3, 3, 3), {"pads": [1] * 4}, domain=NHWC, dtype=BFLOAT16),
    Case("widened_patches", (1, 3, 16, 24), (16, 3, 8, 8), {"strides": [8, 8]}, dtype=np.float16),
    Case("widened_cropped", (1, 4, 18, 20), (12, 4, 5, 5), {"strides": [4, 4]}, dtype=np.float16, domain=NHWC),
    Case("widened_1d", (2, 5, 31), (8, 5, 9), {"pads": [4, 4], "strides": [2]}),
    Case("widened_3d", (1, 3, 4, 5, 9), (16, 3, 3, 3, 7), {"pads": [1, 1, 3, 1, 1, 3]}, dtype=np.float16, domain=NHWC),
]
"""Inputs that are copied before they are convolved, if it pays: to have channels last, or windows' columns in one
stretch of memory."""


def typed(dtype: Any, names: Sequence[str]) -> list[Case]:
    return [replace(case, dtype=dtype) for case in (*PLAIN, *DEPTHWISE, *TRANSPOSED, *FUSED) if case.name in names]


OTHER_TYPES = [
    *typed(np.float16, ["3x3", "few_channels", "pointwise", "depthwise", "3x3_stride_2", "relu", "3d"]),
    *typed(BFLOAT16, ["3x3", "few_channels", "pointwise", "depthwise", "3x3_stride_2", "relu"]),
    *typed(np.float64, ["3x3", "few_channels", "pointwise", "depthwise", "3x3_stride_2", "relu"]),
]
VARYING = [
    replace(case, constants=False)
    for case in (*PLAIN, *DEPTHWISE, *TRANSPOSED)
    if case.name in ("3x3", "few_channels", "groups", "depthwise", "3x3_stride_2", "dilations")
]
CASES = [*PLAIN, *DEPTHWISE, *TRANSPOSED, *FUSED, *CONTRIB, *OTHER_TYPES, *VARYING]
