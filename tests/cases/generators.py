"""Cases of ConstantOfShape, Range, EyeLike, Shape, Size, OneHot and Trilu."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper, numpy_helper

from cases.node_case import MOVED_DTYPES, NodeCase, ints, random_array


def _constant_of_shape(value: np.ndarray | None, *shape: int) -> NodeCase:
    """onnxruntime has no fp16 and bf16 here."""
    attributes = {} if value is None else {"value": numpy_helper.from_array(value.reshape(1))}
    name = "ConstantOfShape-default" if value is None else f"ConstantOfShape-{value.dtype.name}_{value}"
    want = np.full(shape, np.float32(0) if value is None else value)
    return NodeCase(name, "ConstantOfShape", [ints(*shape)], attributes, constants=(0,), want=lambda: [want])


def _range(start: float, limit: float, delta: float, dtype: str) -> NodeCase:
    inputs = [np.array(v, dtype) for v in (start, limit, delta)]
    want = np.arange(start, limit, delta).astype(dtype)
    return NodeCase(
        f"Range-{dtype}_{len(want)}",
        "Range",
        inputs,
        output_types=[(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), want.shape)],
        want=lambda: [want],
    )


def _one_hot(detail: str, indices: np.ndarray, depth: int, values: np.ndarray, **attributes: Any) -> NodeCase:
    axis = attributes.get("axis", -1)
    places = np.expand_dims(indices.astype(np.int64), axis % (indices.ndim + 1))
    classes = np.arange(depth).reshape([-1 if d == axis % (indices.ndim + 1) else 1 for d in range(indices.ndim + 1)])
    want = np.where(classes == np.where(places < 0, places + depth, places), values[1], values[0]).astype(values.dtype)
    types = [(helper.np_dtype_to_tensor_dtype(values.dtype), want.shape)]
    return NodeCase(
        f"OneHot-{detail}",
        "OneHot",
        [indices, np.array([depth]), values],
        attributes,
        want=lambda: [want],
        output_types=types,
    )


def _trilu(detail: str, x: np.ndarray, k: int | None, **attributes: Any) -> NodeCase:
    cut = np.tril if attributes.get("upper") == 0 else np.triu
    inputs = [x] if k is None else [x, np.array(k, np.int64)]
    return NodeCase(f"Trilu-{detail}", "Trilu", inputs, attributes, opset=14, want=lambda: [cut(x, k or 0)])


_INDICES = np.array([[0, 2, -1], [4, -5, 7]], np.int64)
CASES = [
    _constant_of_shape(None, 3, 5),
    _constant_of_shape(np.array(-1, np.int64), 4),
    _constant_of_shape(np.array(2.5, np.float32), 3, 700),
    _constant_of_shape(np.array(1, np.float16), 2, 3),
    _constant_of_shape(np.array(3, ml_dtypes.bfloat16), 2, 3),
    _constant_of_shape(np.array(True), 2, 3),
    _constant_of_shape(np.array(300, np.uint16), 0, 3),
    _range(0, 10, 1, "int64"),
    _range(10, -3, -4, "int32"),
    _range(0, 3000, 2, "int16"),
    _range(0.5, 3, 0.25, "float32"),
    _range(1, 0, -1 / 16, "float64"),
    _range(3, 3, 1, "int64"),
    *(
        NodeCase(f"EyeLike-{k}_{dtype}", "EyeLike", [np.zeros((3, 5), np.float32)], {"k": k, "dtype": dtype})
        for k in (0, 2, -1)
        for dtype in (TensorProto.FLOAT, TensorProto.INT64)
    ),
    NodeCase("EyeLike-type_of_x", "EyeLike", [np.zeros((4, 3), np.int32)]),
    NodeCase("Shape-all", "Shape", [np.zeros((2, 3, 4), np.float16)]),
    NodeCase("Shape-part", "Shape", [np.zeros((2, 3, 4), np.float16)], {"start": -2, "end": 100}),
    NodeCase("Shape-rank_0", "Shape", [np.array(3.0)]),
    NodeCase("Size-all", "Size", [np.zeros((2, 3, 4), np.float16)]),
    _one_hot("last", _INDICES, 5, np.array([-1, 3], np.float32)),
    _one_hot("first", _INDICES, 5, np.array([0, 1], np.float32), axis=0),
    _one_hot("middle", _INDICES, 5, np.array([0, 1], np.int64), axis=1),
    _one_hot("float_indices", _INDICES.astype(np.float32), 6, np.array([0, 1], np.float32)),
    NodeCase(
        "OneHot-9_negative_is_off",
        "OneHot",
        [np.array([-1, 1, 3]), np.array([3]), np.array([5, 7], np.float32)],
        opset=9,
        constants=(1,),
        want=lambda: [np.array([[5, 5, 5], [5, 7, 5], [5, 5, 5]], np.float32)],
    ),
    NodeCase(
        "OneHot-uint64_has_no_negative",
        "OneHot",
        [np.array([2**64 - 1, 1], np.uint64), np.array([3]), np.array([5, 7], np.float32)],
        constants=(1,),
        want=lambda: [np.array([[5, 5, 5], [5, 7, 5]], np.float32)],
    ),
    _one_hot("int32_bool", _INDICES.astype(np.int32), 5, np.array([False, True]), axis=-2),
    *(_trilu(dtype, random_array("x", (2, 5, 7), dtype), 1) for dtype in MOVED_DTYPES),
    *(
        _trilu(f"upper_{u}_{k}", random_array("x", (2, 6, 4)), k, upper=u)
        for u in (0, 1)
        for k in (None, 0, -2, 3, -100, 100)
    ),
]
