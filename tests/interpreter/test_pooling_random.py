"""Pools with random attributes, versions, layouts, shapes, types and values.

Each is compared with the operator's text in NumPy (`cases.pool_text`), and with onnxruntime's CPU provider where it has
a kernel and follows the text; `docs/disagreements.md` says where it does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from cases.node_case import NodeCase
from cases.pool_text import Axis, axes_of, counted, pool
from examples import examples
from gossamer.model.passes.shapes import infer_shapes
from harness import run_model, tensor_type
from random_arrays import (
    DEVICES,
    NEWEST_OPSET,
    accumulation_unit,
    assert_within,
    floats,
    integers,
    legal_dtypes,
    onnxruntime_answers,
)

CHANNELS_LAST = "gossamer.nhwc"
SINCE = {
    "MaxPool": {"storage_order": 8, "ceil_mode": 10, "dilations": 10},
    "AveragePool": {"ceil_mode": 10, "dilations": 19},
    "LpPool": {"ceil_mode": 18, "dilations": 18},
}
"""From which opset on operators have the attributes that they had not always."""
MOST_FOR_SMALL_TILES = 300
"""Elements that windows may see in all where a GPU's tiles are used: each is a few pixels, and takes milliseconds."""


@dataclass(frozen=True)
class Example:
    """A node over N, C, spatial…; what it gives, in fp64 or integers, and how far off the first output may be."""

    node: NodeCase
    want: Sequence[np.ndarray]
    bound: np.ndarray | float = 0.0
    channels_last: bool = False
    onnxruntime: bool = True
    device: str = "interpreter"

    def check(self) -> None:
        for got, want in zip(run_model(self.model(), self.feeds(), self.device), self.want, strict=True):
            self._compare(np.moveaxis(got, -1, 1) if self.channels_last else got, want)
        answers = onnxruntime_answers(self.node.model(), self.node.feeds()) if self.onnxruntime else None
        for answer, want in zip(answers or (), self.want, strict=False):
            self._compare(answer, want)

    def _compare(self, got: np.ndarray, want: np.ndarray) -> None:
        if got.dtype.kind in "iu":
            np.testing.assert_array_equal(got, want)
        else:
            assert_within(got, want, self.bound)

    def model(self) -> Any:
        node = replace(self.node, inputs=self._inputs(), domain=CHANNELS_LAST if self.channels_last else "")
        shapes = [np.moveaxis(y, 1, -1).shape if self.channels_last else y.shape for y in self.want]
        types = [tensor_type(self.node.inputs[0]), 7][: len(shapes)]
        return replace(node, output_types=list(zip(types, shapes, strict=True))).model()

    def _inputs(self) -> list[np.ndarray | None]:
        first, *rest = self.node.inputs
        assert first is not None
        return [np.ascontiguousarray(np.moveaxis(first, 1, -1)) if self.channels_last else first, *rest]

    def feeds(self) -> dict[str, np.ndarray]:
        return replace(self.node, inputs=self._inputs()).feeds()


def opsets(*versions: int) -> st.SearchStrategy[int]:
    return st.sampled_from((*versions, NEWEST_OPSET))


def array(draw: st.DrawFn, shape: Sequence[int], dtype: str, exponent: int) -> np.ndarray:
    if dtype in ("int8", "uint8"):
        return integers(draw, shape, dtype, draw(st.sampled_from((2, None))))
    return floats(draw, shape, dtype, exponent=exponent)


@st.composite
def windows(draw: st.DrawFn, op: str, opset: int, rank: int) -> tuple[dict[str, Any], list[Axis]]:
    """Attributes of a pool, and its axes: at least one window along each."""

    def each(low: int, high: int, count: int = rank) -> list[int]:
        return [draw(st.integers(low, high)) for _ in range(count)]

    attributes: dict[str, Any] = {"kernel_shape": each(1, 4 if rank < 3 else 2)}
    if draw(st.booleans()):
        attributes["strides"] = each(1, 5)
    if draw(st.booleans()):
        attributes["dilations"] = each(1, 3)
    match draw(st.sampled_from(("none", "pads", "pads", "auto"))):
        case "pads":
            attributes["pads"] = each(0, draw(st.sampled_from((1, 3, 6))), 2 * rank)
        case "auto":
            attributes["auto_pad"] = draw(st.sampled_from(("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")))
    attributes["ceil_mode"] = draw(st.integers(0, 1))
    if op == "MaxPool":
        attributes["storage_order"] = draw(st.integers(0, 1))
    if op == "AveragePool":
        attributes["count_include_pad"] = draw(st.integers(0, 1))
    if op == "LpPool":
        attributes["p"] = draw(st.sampled_from((1, 2, 2, 3, 5)))
    known = {name: value for name, value in attributes.items() if opset >= SINCE[op].get(name, 0)}
    sizes = each(0, 9 if rank < 3 else 5)
    axes = axes_of(sizes, known)
    assume(all(axis.outputs for axis in axes))
    return known, axes


def departs(op: str, attributes: dict[str, Any], axes: Sequence[Axis], x: np.ndarray) -> bool:
    """Whether onnxruntime leaves the text, or refuses: `docs/disagreements.md`, "Pools"."""
    mode = attributes.get("auto_pad", "NOTSET")
    dilated = max(attributes.get("dilations", [1])) > 1
    skips = any((axis.outputs - 1) * axis.step + (axis.taps - 1) * axis.gap + 1 < axis.size for axis in axes)
    wide_pads = any(max(axis.begin, axis.end) >= axis.taps for axis in axes)
    return (
        (mode.startswith("SAME") and (dilated or skips))
        or (mode == "VALID" and attributes.get("ceil_mode", 0) == 1)
        or (mode == "NOTSET" and wide_pads)
        or (op == "MaxPool" and not counted(axes, padding=False).any(-1).all())
        or (op == "MaxPool" and bool(np.isnan(x.astype(np.float64)).any()))
        or 0 in x.shape[1:]
    )


@st.composite
def pools(draw: st.DrawFn) -> Example:
    op, opset = draw(st.sampled_from(sorted(SINCE))), draw(opsets(7, 8, 10, 11, 12, 18, 19, 22))
    rank, dtype = draw(st.integers(1, 3)), draw(st.sampled_from(legal_dtypes(op, opset)))
    attributes, axes = draw(windows(op, opset, rank))
    shape = (draw(st.integers(0, 3)), draw(st.sampled_from((0, 1, 2, 3, 17))), *(axis.size for axis in axes))
    p = attributes.get("p", 1)
    x = array(draw, shape, dtype, 12 // p if dtype == "float16" else 60 // p)
    n_outputs = draw(st.integers(1, 2)) if op == "MaxPool" and opset >= 8 else 1
    want = pool(op, x, attributes)[:n_outputs]
    bound: np.ndarray | float = 0.0
    if op == "AveragePool":
        sizes = pool(op, np.abs(np.where(np.isfinite(x), x, 0).astype(np.float64)), attributes)[0]
        bound = (prod(axis.taps for axis in axes) + 2) * accumulation_unit(dtype) * sizes
    if op == "LpPool":
        bound = 100 * accumulation_unit(dtype) * np.where(np.isfinite(want[0]), want[0], 0)
    node = NodeCase(op, op, [x], attributes, opset, draw(st.sampled_from(((), (0,)))), n_outputs)
    few = want[0].size * prod(axis.taps for axis in axes) < MOST_FOR_SMALL_TILES
    device = draw(DEVICES) if few else "interpreter"
    return Example(node, want, bound, draw(st.booleans()), not departs(op, attributes, axes, x), device)


@st.composite
def global_pools(draw: st.DrawFn) -> Example:
    op, opset = draw(st.sampled_from(("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"))), draw(opsets(7, 22))
    dtype, sides = draw(st.sampled_from(legal_dtypes(op, opset))), st.sampled_from((1, 1, 2, 3, 5))
    shape = (draw(st.integers(0, 3)), draw(st.sampled_from((0, 1, 3, 17))), *draw(st.lists(sides, max_size=6)))
    attributes = {"p": draw(st.sampled_from((1, 2, 3, 5)))} if op == "GlobalLpPool" and draw(st.booleans()) else {}
    p = attributes.get("p", 2)
    x = floats(draw, shape, dtype, exponent=12 // p if dtype == "float16" else 60 // p)
    exact, axes = x.astype(np.float64), tuple(range(2, x.ndim))
    unit, bound = accumulation_unit(dtype) * (exact.size // max(1, shape[0] * shape[1]) + 2), np.zeros(())
    match op:
        case "GlobalMaxPool":
            want = exact.max(axes, keepdims=True, initial=-np.inf)
        case "GlobalAveragePool":
            want = exact.mean(axes, keepdims=True) if axes else exact
            bound = unit * np.abs(np.where(np.isfinite(exact), exact, 0)).mean(axes, keepdims=True)
        case _:
            want = (np.abs(exact) ** p).sum(axes, keepdims=True) ** (1 / p)
            bound = 100 * unit * np.where(np.isfinite(want), want, 0)
    # onnxruntime takes one to three spatial dimensions, nothing empty but N, and drops NaN from some maxima.
    agrees = 3 <= x.ndim <= 5 and 0 not in shape[1:] and not (op == "GlobalMaxPool" and np.isnan(exact).any())
    node = NodeCase(op, op, [x], attributes, opset)
    return Example(node, [want], bound, draw(st.booleans()), bool(agrees), draw(DEVICES))


@st.composite
def unpools(draw: st.DrawFn) -> Example:
    """Of what MaxPool gives, back to the shape it had; or of any places in a result of any shape."""
    opset, rank = draw(opsets(9, 11, 22)), draw(st.integers(1, 3))
    dtype = draw(st.sampled_from(legal_dtypes("MaxUnpool", opset, "T1")))
    kernel, steps = ([draw(st.integers(1, 3)) for _ in range(rank)] for _ in range(2))
    pads = [draw(st.integers(0, taps - 1)) for taps in kernel * 2]
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": steps, "pads": pads}
    batch = (draw(st.integers(0, 2)), draw(st.integers(1, 3)))
    sizes = [draw(st.integers(1, 6)) for _ in range(rank)]
    own = [(n - 1) * s - b - e + k for n, s, k, b, e in
           zip(sizes, steps, kernel, pads[:rank], pads[rank:], strict=True)]  # fmt: skip
    assume(min(own) > 0)
    given_shape = draw(st.booleans())
    out = (*batch, *([n + draw(st.integers(0, 3)) for n in own] if given_shape else own))
    x = floats(draw, (*batch, *sizes), dtype)
    room = int(np.prod(out))
    assume(x.size <= room)
    places = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).permutation(room)[: x.size].reshape(x.shape)
    want = np.zeros(room)
    want[places.ravel()] = x.astype(np.float64).ravel()
    inputs: list[np.ndarray | None] = [x, places.astype(np.int64)]
    if given_shape:
        inputs.append(np.array(out, np.int64))
    node = NodeCase("MaxUnpool", "MaxUnpool", inputs, attributes, opset, (2,) if given_shape else ())
    return Example(node, [want.reshape(out)], device=draw(DEVICES), onnxruntime=x.size > 0)


many = settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))


@many
@given(pools())
def test_pools(example: Example) -> None:
    example.check()


@many
@given(global_pools())
def test_global_pools(example: Example) -> None:
    example.check()


@many
@given(unpools())
def test_unpooling(example: Example) -> None:
    example.check()


@many
@given(pools() | global_pools() | unpools())
def test_inference_finds_the_shapes_of_the_text(example: Example) -> None:
    """As the pipeline runs it: versions before 22 too get the shapes of 22."""
    assume(not example.channels_last)
    model = ir.serde.deserialize_model(example.node.model())
    for value in model.graph.outputs:
        value.shape = None
    infer_shapes(model)
    found = [value.shape.numpy() for value in model.graph.outputs if value.shape is not None]
    assert found == [want.shape for want in example.want]
