"""Convolutions with random attributes, versions, layouts, epilogues, shapes, types and values.

Each is compared with the operator's text in NumPy (`cases.convolution`), element by element: an error may be as large
as roundings of the products that an element is the sum of. And with onnxruntime's CPU provider where it has a kernel
and follows the text; `docs/disagreements.md` says where it does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, prod
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx_ir as ir
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from onnx import ModelProto

from cases.convolution import activation, channels_last, convolution, steepness, transposed_convolution
from examples import examples
from gossamer.kernels import convolution as kernels
from gossamer.kernels import convolution_inputs as inputs
from gossamer.kernels.activations import KINDS
from gossamer.kernels.convolution_box_tiles import BoxTiles, takes_boxes
from gossamer.kernels.convolution_epilogue import CONTRIB_ACTIVATIONS
from gossamer.kernels.convolution_geometry import Convolution
from gossamer.kernels.gemm_tiles import Tiles
from gossamer.model.passes.shapes import infer_shapes
from gossamer.program import Target
from harness import node_model, run_model, tensor_type
from random_arrays import (
    DEVICES,
    NEWEST_OPSET,
    accumulation_unit,
    assert_within,
    floats,
    legal_dtypes,
    onnxruntime_answers,
)

FUSED, NHWC, MICROSOFT = "gossamer", "gossamer.nhwc", "com.microsoft"
CONVOLUTIONS = (
    *(("Conv", ""), ("Conv", ""), ("Conv", NHWC), ("FusedConv", FUSED), ("FusedConv", NHWC)),
    *(("FusedConv", MICROSOFT), ("NhwcConv", MICROSOFT), ("NhwcFusedConv", MICROSOFT)),
)
TRANSPOSED = (
    *(("ConvTranspose", ""), ("ConvTranspose", ""), ("ConvTranspose", NHWC)),
    *(("FusedConvTranspose", FUSED), ("FusedConvTranspose", NHWC)),
)
ONNXRUNTIMES_ACTIVATIONS = ("Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip", "HardSigmoid", "HardSwish")
EXPONENTS = {"float16": 8, "bfloat16": 40, "float32": 40, "float64": 300}
"""Powers of two up to which operands are scaled: no sum overflows that is not infinite itself."""

MOST_PHASES_FOR_SMALL_TILES = 3
"""Each phase of a transposed convolution is a program of its own, or many with a GPU's tiles."""


@dataclass(frozen=True)
class Example:
    """One node. inputs: X, W, B, Z with channels first, whatever the layout."""

    op: str
    domain: str
    inputs: Sequence[np.ndarray | None]
    attributes: dict[str, Any]
    opset: int = NEWEST_OPSET
    constants: Sequence[int] = ()
    device: str = "interpreter"
    onnxruntime: bool = True

    def check(self) -> None:
        want, bound = self.want()
        (got,) = run_model(self.model(want.shape), self.feeds(), self.device)
        assert_within(np.moveaxis(got, -1, 1) if self.last else got, want, bound)
        answers = onnxruntime_answers(self.model(want.shape), self.feeds()) if self.onnxruntime else None
        if answers is not None:
            assert_within(answers[0], want, bound)

    @property
    def last(self) -> bool:
        return self.domain == NHWC or self.op.startswith("Nhwc")

    def want(self) -> tuple[np.ndarray, np.ndarray]:
        """The result in fp64, and how far off it may be: sums by their roundings, activations by theirs."""
        x = self.inputs[0]
        assert x is not None
        unit = accumulation_unit(x.dtype.name)
        sums = self._sums([None if a is None else a.astype(np.float64) for a in self.inputs])
        sizes = self._sums([None if a is None else np.abs(_finite(a.astype(np.float64))) for a in self.inputs])
        error = (self._products() + 4) * (unit * sizes + np.finfo(np.float32).smallest_subnormal)
        if self.device != "interpreter" and x.dtype == np.float32:
            error += 2.0**-10 * sizes  # operands rounded to TF32
        want = activation(sums, self.attributes)
        if self.attributes.get("activation"):
            parameters = sum(map(abs, self.attributes.get("activation_params", [])))
            error = steepness(self.attributes) * error + 16 * unit * (_finite(np.abs(want)) + sizes + parameters)
        return want, error

    def _sums(self, arrays: Sequence[np.ndarray | None]) -> np.ndarray:
        x, w, b, z = arrays
        assert x is not None
        assert w is not None
        with np.errstate(all="ignore"):
            y = (transposed_convolution if "Transpose" in self.op else convolution)(x, w, self.attributes)
            y = y if b is None else y + b.reshape(-1, *(1,) * (y.ndim - 2))
            return y if z is None else y + z

    def _products(self) -> int:
        w = self.inputs[1]
        assert w is not None
        return w.size // max(1, w.shape[1] if "Transpose" in self.op else w.shape[0])

    def _arrays(self) -> list[np.ndarray | None]:
        """As the node has them."""
        x, w, b, z = self.inputs
        assert x is not None
        assert w is not None
        if not self.last:
            return [x, w, b, z]
        x = x if self.attributes.get("x_channels_first") else channels_last(x)
        return [x, channels_last(w) if self.op == "NhwcConv" else w, b, None if z is None else channels_last(z)]

    def model(self, shape: Sequence[int]) -> ModelProto:
        """shape: the result's with channels first."""
        arrays = self._arrays()
        arrays = arrays[: max(i for i, a in enumerate(arrays) if a is not None) + 1]
        shape = (shape[0], *shape[2:], shape[1]) if self.last else shape
        types = [(tensor_type(self.inputs[0]), shape)]
        return node_model(
            self.op,
            arrays,
            self.attributes,
            opset=self.opset,
            domain=self.domain,
            constants=self.constants,
            output_types=types,
        )

    def feeds(self) -> dict[str, np.ndarray]:
        return {f"x{i}": a for i, a in enumerate(self._arrays()) if a is not None and i not in self.constants}


def _finite(array: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(array), array, 0)


@st.composite
def windows(draw: st.DrawFn, rank: int) -> dict[str, Any]:
    """kernel, strides, dilations, group and padding of a convolution of either kind."""

    def each(low: int, high: int, count: int = rank) -> list[int]:
        return [draw(st.integers(low, high)) for _ in range(count)]

    attributes: dict[str, Any] = {"kernel_shape": each(1, 4 if rank < 3 else 2)}
    if draw(st.integers(0, 3)) == 0:
        attributes["kernel_shape"] = [1] * rank
    if draw(st.booleans()):
        attributes["strides"] = each(1, (5, 3, 2)[rank - 1])
    if draw(st.booleans()):
        attributes["dilations"] = each(1, 3)
    match draw(st.sampled_from(("none", "pads", "pads", "auto"))):
        case "pads":
            attributes["pads"] = each(0, draw(st.sampled_from((1, 3))), 2 * rank)
        case "auto":
            attributes["auto_pad"] = draw(st.sampled_from(("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")))
    return attributes


@st.composite
def channels(draw: st.DrawFn, depthwise: tuple[int, ...]) -> tuple[int, int, int]:
    """Groups, and the channels and outputs of one. depthwise: how many groups of one channel there may be."""
    if draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(depthwise)), 1, draw(st.sampled_from((1, 1, 2, 3)))
    sizes = st.sampled_from((1, 2, 3, 5, 8, 16, 17, 24, 32))
    return draw(st.sampled_from((1, 1, 1, 2, 3))), draw(sizes), draw(sizes)


@st.composite
def epilogues(draw: st.DrawFn, op: str, domain: str) -> dict[str, Any]:
    """An activation with its parameters, for operators that have one."""
    if not op.startswith(("Fused", "NhwcFused")) or draw(st.integers(0, 4)) == 0:
        return {}
    kinds = tuple(filter(None, CONTRIB_ACTIVATIONS)) if domain == MICROSOFT else KINDS
    kind = draw(st.sampled_from(kinds))
    parameters = {
        "clip": [-0.5, 1.5], "leakyrelu": [0.1], "thresholdedrelu": [0.7], "elu": [1.5], "celu": [0.8],
        "selu": [1.67, 1.05], "hardsigmoid": [0.3, 0.4], "affinerelu": [1.5, -0.25], "affinehardswish": [0.5, 0.75],
        "silu": [1.0],
    }.get(kind.lower().replace("_", ""))  # fmt: skip
    return {"activation": kind} | ({"activation_params": parameters} if parameters else {})


def operand(draw: st.DrawFn, shape: Sequence[int], dtype: str, *, special: bool) -> np.ndarray:
    return floats(draw, shape, dtype, exponent=EXPONENTS[dtype], special=special)


@st.composite
def convolutions(draw: st.DrawFn, *, boxed: bool = False) -> Example:
    """boxed: what a GPU's copy engine can fetch."""
    operators = [(op, domain) for op, domain in CONVOLUTIONS if domain == NHWC or op.startswith("Nhwc") or not boxed]
    (op, domain), opset = draw(st.sampled_from(operators)), draw(st.sampled_from((7, 11, 22, NEWEST_OPSET)))
    dtypes = [dtype for dtype in legal_dtypes("Conv", opset) if dtype != "float64" or not boxed]
    dtype, rank = draw(st.sampled_from(dtypes)), draw(st.integers(1, 3))
    attributes, (group, inner, outer) = draw(windows(rank)), draw(channels((2, 3, 16, 20)))
    if boxed:
        group, inner, outer = 1, draw(st.sampled_from((16, 24, 40))), draw(st.sampled_from((8, 16, 24)))
    kernel = attributes["kernel_shape"]
    sizes = [draw(st.integers(0, 8 if rank < 3 else 4)) for _ in range(rank)]
    mode, pads = attributes.get("auto_pad", "NOTSET"), attributes.get("pads", [0] * 2 * rank)
    strides = attributes.get("strides", [1] * rank)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, attributes.get("dilations", [1] * rank), strict=True)]
    for n, r, before, behind in zip(sizes, reach, pads[:rank], pads[rank:], strict=True):
        assume(n > 0 if mode.startswith("SAME") else n + before + behind >= r)
    if not draw(st.booleans()):
        del attributes["kernel_shape"]
    attributes |= {"group": group} if group > 1 else {}
    attributes |= draw(epilogues(op, domain))
    if domain == NHWC and not boxed and draw(st.integers(0, 3)) == 0:
        attributes["x_channels_first"] = 1
    x = operand(draw, (draw(st.integers(0, 2)), group * inner, *sizes), dtype, special=True)
    w = operand(draw, (group * outer, inner, *kernel), dtype, special=draw(st.integers(0, 4)) == 0)
    b = operand(draw, w.shape[:1], dtype, special=False) if draw(st.booleans()) else None
    z = None
    if op in ("FusedConv", "NhwcFusedConv") and draw(st.booleans()):
        z = operand(draw, convolution(np.zeros(x.shape), np.zeros(w.shape), attributes).shape, dtype, special=True)
    constants = [i for i in (1, 2) if (w, b)[i - 1] is not None and draw(st.booleans())]
    known = attributes.get("activation") in ONNXRUNTIMES_ACTIVATIONS if op == "FusedConv" else domain == ""
    skips = any((-(-n // s) - 1) * s + r < n for n, s, r in zip(sizes, strides, reach, strict=True))
    dilated = max(attributes.get("dilations", [1])) > 1
    compared = known and dtype == "float32" and not (mode.startswith("SAME") and (dilated or skips))
    return Example(op, domain, (x, w, b, z), attributes, opset, constants, draw(DEVICES), compared)


@st.composite
def transposed_convolutions(draw: st.DrawFn) -> Example:
    (op, domain), opset = draw(st.sampled_from(TRANSPOSED)), draw(st.sampled_from((7, 11, 22, NEWEST_OPSET)))
    dtype, rank = draw(st.sampled_from(legal_dtypes("ConvTranspose", opset))), draw(st.integers(1, 3))
    attributes, (group, inner, outer) = draw(windows(rank)), draw(channels((2, 3)))
    kernel, ones = attributes["kernel_shape"], [1] * rank
    strides, dilations = attributes.get("strides", ones), attributes.get("dilations", ones)
    sizes = [draw(st.integers(1, 6 if rank < 3 else 3)) for _ in range(rank)]
    if draw(st.booleans()):
        most = [max(s, d) - 1 for s, d in zip(strides, dilations, strict=True)]
        attributes["output_padding"] = [draw(st.integers(0, m)) for m in most]
    extra = attributes.get("output_padding", [0] * rank)
    full = [(n - 1) * s + e + (k - 1) * d + 1
            for n, s, e, k, d in zip(sizes, strides, extra, kernel, dilations, strict=True)]  # fmt: skip
    if draw(st.integers(0, 3)) == 0:
        attributes["output_shape"] = [max(1, f - draw(st.integers(-2, 3))) for f in full]
    mode, pads = attributes.get("auto_pad", "NOTSET"), attributes.get("pads", [0] * 2 * rank)
    if mode in ("NOTSET", "VALID") and "output_shape" not in attributes:
        assume(all(f - a - b > 0 for f, a, b in zip(full, pads[:rank], pads[rank:], strict=True)))
    attributes |= {"group": group} if group > 1 else {}
    attributes |= draw(epilogues(op, domain))
    x = operand(draw, (draw(st.integers(0, 2)), group * inner, *sizes), dtype, special=True)
    w = operand(draw, (group * inner, outer, *kernel), dtype, special=False)
    b = operand(draw, (group * outer,), dtype, special=False) if draw(st.booleans()) else None
    z = None
    if op == "FusedConvTranspose" and draw(st.booleans()):
        shape = transposed_convolution(np.zeros(x.shape), np.zeros(w.shape), attributes).shape
        z = operand(draw, shape, dtype, special=True)
    constants = [i for i in (1, 2) if (w, b)[i - 1] is not None and draw(st.booleans())]
    short = any(f < n * s for f, n, s in zip(full, sizes, strides, strict=True))
    compared = domain == "" and dtype == "float32" and not (mode.startswith("SAME") and short)
    compared &= all(e < s for e, s in zip(extra, strides, strict=True))
    compared &= all(o <= f for o, f in zip(attributes.get("output_shape", full), full, strict=True))
    device = draw(DEVICES) if prod(strides) <= MOST_PHASES_FOR_SMALL_TILES else "interpreter"
    return Example(op, domain, (x, w, b, z), attributes, opset, constants, device, compared)


many = settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))


@many
@given(convolutions())
def test_convolutions(example: Example) -> None:
    example.check()


@settings(many, max_examples=examples(50))
@given(
    convolutions(boxed=True),
    st.sampled_from(((2, 4, 4), (1, 1, 32), (4, 8, 1), (1, 2, 16))),
    st.integers(1, 3),
    st.booleans(),
)
def test_convolutions_in_boxes(example: Example, box: tuple[int, int, int], splits: int, persistent: bool) -> None:
    def choose(asked: Convolution, dtype: str, _: Target) -> BoxTiles | Tiles:
        if not takes_boxes(asked, dtype, Target.named("sm_90")):  # it has no pixels
            return Tiles(32, 16, 16, 4, 1)
        return BoxTiles(box if asked.rank else (32, 1, 1), 16, 16, 4, 1, splits, persistent and splits == 1)

    with patch.object(kernels, "choose_tiles", choose):
        replace(example, device="interpreter").check()


@settings(many, max_examples=examples(50))
@given(convolutions() | transposed_convolutions())
def test_convolutions_of_copied_inputs(example: Example) -> None:
    """With a GPU's tiles, and copied whenever that is possible."""
    assume("Transpose" not in example.op or prod(example.attributes.get("strides", [1])) <= MOST_PHASES_FOR_SMALL_TILES)
    cheapest, turning_pays = inputs.cheapest_copy.__wrapped__, inputs._turning_pays.__wrapped__
    with patch.multiple(inputs, _copying=lambda *_: -inf, cheapest_copy=cheapest, _turning_pays=turning_pays):
        replace(example, device="sm_90").check()


@many
@given(transposed_convolutions())
def test_transposed_convolutions(example: Example) -> None:
    example.check()


@many
@given(convolutions() | transposed_convolutions())
def test_inference_finds_the_shapes_of_the_text(example: Example) -> None:
    assume(example.domain != NHWC)
    shape = example.want()[0].shape
    model = ir.serde.deserialize_model(example.model(shape))
    model.graph.outputs[0].shape = None
    infer_shapes(model)
    found = model.graph.outputs[0].shape
    assert found is not None
    assert found.numpy() == ((shape[0], *shape[2:], shape[1]) if example.last else shape)
