"""Every pass test: text before → text after, the same numbers in onnxruntime, and a second run that changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from textwrap import dedent

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest

from gossamer.model.load import load
from gossamer.model.passes import Pass, run_passes
from gossamer.model.text import to_text


@dataclass(frozen=True)
class Bench:
    """Applies passes to models written in ONNX's own text syntax (onnx.parser)."""

    opset: int = 18

    def parse(self, source: str) -> onnx.ModelProto:
        return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {self.opset}]>\n' + source)

    def load(self, source: str) -> ir.Model:
        return load(self.parse(source))

    def after(self, step: Pass, source: str, tolerance: float = 0.0) -> str:
        """The text after the pass, which must change the model, but neither its answers nor, run again, anything."""
        proto = self.parse(source)
        model = load(proto)
        assert run_passes(model, (step,)), "the pass changed nothing"
        text = to_text(model)
        assert not step(model), "the pass is not idempotent"
        assert to_text(model) == text
        same_answers(proto, model, tolerance)
        return text

    def keeps(self, step: Pass, source: str) -> None:
        """The pass must leave the model alone."""
        model = self.load(source)
        text = to_text(model)
        assert not step(model)
        assert to_text(model) == text


def answers(proto: onnx.ModelProto, seed: int = 0) -> list[np.ndarray]:
    """onnxruntime's outputs, without its own optimisations, for random inputs of the declared (static) shapes."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(seed)
    feeds = {}
    for value in proto.graph.input:
        tensor = value.type.tensor_type
        shape = [dim.dim_value or 3 for dim in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        feeds[value.name] = (
            random.random(shape) * 4 - 2 if dtype.kind == "f" else random.integers(0, 2, shape)
        ).astype(dtype)
    return session.run(None, feeds)


def same_answers(proto: onnx.ModelProto, model: ir.Model, tolerance: float) -> None:
    expected, found = answers(proto), answers(ir.to_proto(model))
    assert len(expected) == len(found)
    for wanted, got in zip(expected, found, strict=True):
        assert wanted.dtype == got.dtype
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def bench_of() -> Callable[[int], Bench]:
    """The bench of an opset."""
    return Bench


@pytest.fixture
def text() -> Callable[[str], str]:
    """Expected text, written with the test's indentation."""
    return lambda source: dedent(source).lstrip("\n")
