"""Sizes at which 32-bit offsets and 16-bit grids end: reported bugs of other runtimes."""

from __future__ import annotations

import numpy as np
from onnx import helper

import gossamer


def _run(op_type: str, x: np.ndarray, y_shape: list[int], **attributes: object) -> np.ndarray:
    """One operator with one input and one output, on the GPU alone."""
    element = helper.np_dtype_to_tensor_dtype(x.dtype)
    infos = [helper.make_tensor_value_info(name, element, shape) for name, shape in (("x", x.shape), ("y", y_shape))]
    graph = helper.make_graph([helper.make_node(op_type, ["x"], ["y"], **attributes)], "large", infos[:1], infos[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    options = {"device": "cuda"}
    with gossamer.InferenceSession(model, providers=[("CUDAExecutionProvider", options)]) as session:
        result: np.ndarray = session.run(None, {"x": x})[0]
        return result


def _pattern(shape: tuple[int, ...]) -> np.ndarray:
    """fp16 values that repeat with a prime period, so that a wrong offset shows, made fast."""
    period = np.random.default_rng(0).standard_normal(999_983).astype(np.float16)
    return np.resize(period, shape)


def test_softmax_of_more_than_2_to_the_31_elements() -> None:
    x = _pattern((2_100_000, 1024))
    assert x.size > 2**31
    y = _run("Softmax", x, list(x.shape), axis=-1)
    for row in (0, 1, 1_048_576, 2_097_151, 2_097_152, 2_099_999):
        e = np.exp(x[row].astype(np.float64) - x[row].max())
        np.testing.assert_allclose(y[row], e / e.sum(), rtol=2e-3, atol=1e-7)


def test_pool_of_more_images_than_a_grid_has_rows() -> None:
    x = _pattern((65_537, 3, 6, 6))
    y = _run("MaxPool", x, [65_537, 3, 3, 3], kernel_shape=[2, 2], strides=[2, 2])
    np.testing.assert_array_equal(y, x.reshape(65_537, 3, 3, 2, 3, 2).max((3, 5)))


def test_sum_over_more_than_2_to_the_31_elements() -> None:
    x = np.ones(2**31 + 4, np.int32)
    x[1::2] = -1
    x[-3:] = (5, 7, 11)
    y = _run("ReduceSum", x, [1])
    assert int(y[0]) == 24


def test_transpose_of_more_than_2_to_the_31_elements() -> None:
    x = _pattern((3, 30_000, 24_001))
    assert x.size > 2**31
    y = _run("Transpose", x, [24_001, 3, 30_000], perm=[2, 0, 1])
    for i, j, k in ((0, 0, 0), (24_000, 2, 29_999), (12_345, 1, 7), (23_999, 2, 3)):
        assert y[i, j, k] == x[j, k, i]
    np.testing.assert_array_equal(y[24_000], x[:, :, 24_000])
