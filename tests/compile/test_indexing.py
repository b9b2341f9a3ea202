"""Kernels of padding, indexing, generators and Resize, compiled for every architecture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto, TensorProto

from cases.node_case import ints
from gossamer.program import Target
from harness import compile_all, kernels_of, lower_model, node_model

FLOATS = (np.float16, np.dtype(ml_dtypes.bfloat16), np.float32, np.float64)


def zeros(*shape: int, dtype: Any = np.float16) -> np.ndarray:
    return np.broadcast_to(np.zeros((), dtype), shape)


def _padding() -> Iterator[ModelProto]:
    pads = ints(0, 0, 1, 1, 0, 0, 1, 1)
    for dtype in (np.int8, np.float16, np.float32, np.float64):
        yield node_model("Pad", [zeros(1, 96, 40, 40, dtype=dtype), pads, zeros(dtype=dtype)], constants=(1,))
    for mode in ("reflect", "edge", "wrap"):
        yield node_model("Pad", [zeros(1, 96, 40, 40), pads], {"mode": mode}, constants=(1,))


def _indexing() -> Iterator[ModelProto]:
    indices, tuples = zeros(8, 768, dtype=np.int64), zeros(8, 2, dtype=np.int32)
    for dtype in (np.int8, np.float16, np.float32, np.float64):
        yield node_model("Gather", [zeros(1000, 768, dtype=dtype), zeros(8, 128, dtype=np.int64)])
    yield node_model("Gather", [zeros(100, 80, 3), zeros(40, dtype=np.int32)], {"axis": 1})
    table, cube, updates = zeros(1000, 768), zeros(10, 100, 768), zeros(8, 768)
    yield node_model("GatherElements", [table, indices])
    yield node_model("GatherND", [cube, tuples.astype(np.int64)])
    yield node_model("ScatterElements", [table, indices, updates])
    yield node_model("ScatterND", [cube, tuples.astype(np.int64), updates])
    first = zeros(8, dtype=np.int64)
    for dtype in (np.int8, np.float16, np.float32, np.float64):
        cache, step = zeros(8, 12, 2048, 64, dtype=dtype), zeros(8, 12, 1, 64, dtype=dtype)
        yield node_model("TensorScatter", [cache, step, first], opset=24)
    yield node_model("TensorScatter", [zeros(8, 12, 64, 2048), zeros(8, 12, 64, 1)], {"axis": -1}, opset=24)
    huge, last = zeros(8, 128, 2**15, 128), zeros(8, 128, 77, 128)  # more than 2³¹ elements
    yield node_model("TensorScatter", [huge, last, first], {"mode": "circular"}, opset=24)


def _reductions() -> Iterator[ModelProto]:
    """Atomics: natively in 32 and 64 bits, through a wider accumulator below."""
    indices, tuples = zeros(8, 768, dtype=np.int64), zeros(8, 2, dtype=np.int64)
    for dtype in (*FLOATS, np.int64, np.bool_):
        table, updates = zeros(1000, 768, dtype=dtype), zeros(8, 768, dtype=dtype)
        yield node_model("ScatterElements", [table, indices, updates], {"reduction": "add"})
    by_dtype = {np.float32: ("mul", "max", "min"), np.float64: ("mul", "max"), np.int32: ("mul",), np.uint64: ("min",)}
    for dtype, reductions in by_dtype.items():
        for reduction in reductions:
            cube, rows = zeros(10, 100, 768, dtype=dtype), zeros(8, 768, dtype=dtype)
            yield node_model("ScatterND", [cube, tuples, rows], {"reduction": reduction})


def _reductions_in_order() -> Iterator[ModelProto]:
    indices = zeros(8, 768, dtype=np.int64)
    for dtype in (np.float32, np.float64):
        table, updates = zeros(1000, 768, dtype=dtype), zeros(8, 768, dtype=dtype)
        yield node_model("ScatterElements", [table, indices, updates], {"reduction": "add"})
    inputs = [zeros(10, 100, 768), zeros(8, 2, dtype=np.int64), zeros(8, 768)]
    yield node_model("ScatterND", inputs, {"reduction": "mul"})


def _generators() -> Iterator[ModelProto]:
    for dtype, name in (
        (np.float32, TensorProto.FLOAT),
        (np.float64, TensorProto.DOUBLE),
        (np.int16, TensorProto.INT16),
    ):
        yield node_model("Range", [zeros(dtype=dtype)] * 3, output_types=[(name, (1000,))])
    for indices in (zeros(4, 40, dtype=np.int64), zeros(4, 40, dtype=np.float32)):
        values = np.array([0, 1], np.float16)
        yield node_model("OneHot", [indices, np.array(9), values], output_types=[(TensorProto.FLOAT16, (4, 40, 9))])
        inner = [(TensorProto.FLOAT16, (4, 9, 40))]
        yield node_model("OneHot", [indices, np.array(9), values], {"axis": 1}, output_types=inner)
    yield node_model("Trilu", [zeros(8, 128, 128), np.array(1)])
    yield node_model("Trilu", [zeros(8, 128, 128, dtype=np.bool_)], {"upper": 0})


def _resize() -> Iterator[ModelProto]:
    def model(x: np.ndarray, *scales: float, **attributes: Any) -> ModelProto:
        inputs = [x, None, np.array(scales, np.float32)]
        last = x.shape[1:3] if attributes.pop("channels_last", False) else None
        if last is None:
            return node_model("Resize", inputs, attributes, constants=(2,))
        shape = (x.shape[0], int(last[0] * scales[2]), int(last[1] * scales[3]), x.shape[3])
        types = [(TensorProto.FLOAT16, shape)]
        return node_model("Resize", inputs, attributes, constants=(2,), domain="gossamer.nhwc", output_types=types)

    image, last = zeros(1, 96, 40, 40), zeros(1, 40, 40, 96)
    for channels_last, x in ((False, image), (True, last)):
        yield model(x, 1, 1, 2, 2, channels_last=channels_last)
        yield model(x, 1, 1, 2, 2, mode="linear", channels_last=channels_last)
    for dtype in (*FLOATS[1:], np.uint8):
        yield model(image.astype(dtype), 1, 1, 2, 2, mode="linear")
    yield model(image, 1, 1, 2, 2, mode="cubic")
    yield model(image, 1, 1, 0.1, 0.3, mode="linear", antialias=1)
    crop = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 1.5}
    inputs = [image, np.array([0, 0, 1, 1], np.float32), None, ints(20, 30)]
    for mode in ("nearest", "linear"):
        yield node_model("Resize", inputs, {"mode": mode, "axes": [2, 3], **crop}, constants=(1, 3))


FAMILIES = {
    "padding": _padding,
    "indexing": _indexing,
    "reductions": _reductions,
    "generators": _generators,
    "resize": _resize,
}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_kernel_compiles_for_every_architecture(family: str) -> None:
    kernels = [kernel for model in FAMILIES[family]() for kernel in kernels_of(model)]
    assert kernels
    compile_all(tuple(dict.fromkeys(kernels)))


def test_reductions_in_order_compile_for_every_architecture() -> None:
    target = Target.named("sm_90").with_deterministic(True)
    kernels = [kernel for model in _reductions_in_order() for kernel in lower_model(model, target)[0].kernels]
    assert {kernel.name for kernel in kernels} == {"scatter_in_order.scatter_in_order_kernel"}
    compile_all(tuple(dict.fromkeys(kernels)))


@pytest.mark.parametrize(("constants", "in_place"), [((), True), ((0,), False)])
def test_a_cache_is_updated_in_place_where_nobody_reads_it_any_more(constants: tuple[int, ...], in_place: bool) -> None:
    inputs = [zeros(2, 4, 64, 16), zeros(2, 4, 1, 16), zeros(2, dtype=np.int64)]
    model = node_model("TensorScatter", inputs, opset=24, constants=constants)
    locations = lower_model(model, Target.named("sm_90"))[0].locations
    assert (locations["x0"] == locations["y0"]) == in_place
