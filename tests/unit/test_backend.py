"""ONNX's backend interface, as far as it needs no device: what it takes, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from gossamer import backend, settings
from gossamer.errors import InvalidArgument, UnsupportedModel

X = np.ones((2, 3), np.float32)


@pytest.fixture(autouse=True)
def null_device() -> Iterator[None]:
    with settings.override(DEVICE="null"):
        yield


def model(op_type: str, *names: str) -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in (*names, "y")]
    graph = helper.make_graph([helper.make_node(op_type, names, ["y"])], "one", infos[:-1], infos[-1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize(
    ("device", "supported"),
    [("CUDA", True), ("CUDA:1", True), ("CPU", False), ("CUDA:", False), ("CUDA:x", False), ("cuda", False)],
)
def test_devices(device: str, supported: bool) -> None:
    assert backend.supports_device(device) == supported
    if not supported:
        with pytest.raises(InvalidArgument, match="accepted are CUDA and CUDA:<index>"):
            backend.prepare(model("Relu", "x"), device)


def test_inputs_by_position() -> None:
    with backend.prepare(model("Add", "a", "b")) as prepared:
        (y,) = prepared.run([X, X])
        assert (y.dtype, y.shape) == (np.float32, (2, 3))
        with pytest.raises(InvalidArgument, match=r"2 inputs \['a', 'b'\], got 1"):
            prepared.run(X)


def test_one_input_needs_no_list() -> None:
    (y,) = backend.run_model(model("Relu", "x"), X)
    assert y.shape == (2, 3)


def test_nothing_runs_on_the_cpu() -> None:
    with pytest.raises(UnsupportedModel, match="NonZero"):
        backend.run_node(helper.make_node("NonZero", ["x"], ["y"]), [X])


def test_options_of_the_provider() -> None:
    with pytest.raises(InvalidArgument, match="no option 'tf32'"):
        backend.prepare(model("Relu", "x"), tf32=True)
    with backend.prepare(model("Relu", "x"), use_tf32=True) as prepared, pytest.raises(InvalidArgument, match="seed"):
        prepared.run([X], seed=1)


def test_node_with_an_omitted_input() -> None:
    node = helper.make_node("Clip", ["x", "", "most"], ["y"])
    (y,) = backend.run_node(node, [X, np.float32(0.5)])
    assert y.shape == (2, 3)
    with pytest.raises(InvalidArgument, match=r"the inputs \['x', 'most'\].*got 1 inputs"):
        backend.run_node(node, [X])
