"""Compiled models in the interpreter give what the models give that they were compiled from. (R10)"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import gossamer
from cases.compiled_models import CASES, CompiledCase, product_and_norm
from gossamer import ahead_of_time, custom_ops, errors
from gossamer.program import Kernel, Target
from gossamer.program.cubin import Cubin
from gossamer.session import InferenceSession
from harness import assert_close, ort
from our_operators import random_feeds

CPU = "CPUExecutionProvider"


@pytest.fixture(autouse=True)
def _no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process interprets, and does not compile: machine code is made up."""

    def compiled(kernels: Iterable[Kernel], target: Target) -> dict[Kernel, Cubin]:
        return {kernel: Cubin(kernel.function, target.arch, 4, 0, 0, 1, (), "none", b"none") for kernel in kernels}

    monkeypatch.setattr(ahead_of_time, "compile_kernels", compiled)


def session(source: Any, **options: object) -> InferenceSession:
    return InferenceSession(source, providers=[("CUDAExecutionProvider", {"device": "interpreter"} | options), CPU])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_same_as_the_model(case: CompiledCase, tmp_path: Path) -> None:
    """To the bit, if both are for the same target. The file for a GPU computes with its tiles, and differs a little."""
    path, model, feeds = tmp_path / "model.gossamer", case.model(), case.feeds()
    gossamer.compile_model(model, path, targets=["interpreter", "sm_90"], cudnn="no", provider_options={"use_tf32": 0})
    with session(model.SerializeToString(), use_tf32=0) as uncompiled:
        wanted = uncompiled.run(None, feeds)
        placement = str(uncompiled.placement())
    with session(path, target="interpreter", use_tf32=0) as compiled:
        assert str(compiled.placement()) == placement
        assert sum(node.provider == CPU for node in compiled.placement()) == case.on_cpu
        for got, want in zip(compiled.run(None, feeds), wanted, strict=True):
            np.testing.assert_array_equal(got, want)
    with session(path, target="sm_90", use_tf32=0) as for_a_gpu:
        assert for_a_gpu.program(feeds).target.name == "sm_90"
        for got, want in zip(for_a_gpu.run(None, feeds), ort(model, feeds), strict=True):
            assert_close(got, want, case.reduction)


def test_weights_beside_the_model_become_part_of_the_file(tmp_path: Path) -> None:
    path, model = tmp_path / "model.gossamer", product_and_norm()
    feeds = random_feeds(model)
    folder = tmp_path / "source"
    folder.mkdir()
    onnx.save(model, folder / "model.onnx", save_as_external_data=True, location="weights", size_threshold=0)
    assert (folder / "weights").stat().st_size > 0
    gossamer.compile_model(folder / "model.onnx", path, targets="interpreter", cudnn="no")
    shutil.rmtree(folder)
    with session(path) as compiled:
        (got,) = compiled.run(None, feeds)
    assert_close(got, ort(product_and_norm(), feeds)[0], 64, tf32=True)


def test_custom_operators_are_called_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The function is what this process registered, whichever did when the model was compiled."""
    monkeypatch.setattr(custom_ops, "_operators", {})

    def register(factor: float) -> None:
        @gossamer.custom_op("my", "Scale", replace=True)
        def scale(ctx: gossamer.KernelContext) -> None:
            np.multiply(ctx.inputs[0], np.float32(factor * ctx.attributes["by"]), out=ctx.outputs[0])

    register(1)
    text = """<ir_version: 9, opset_import: ["": 20, "my": 1]> g (float[4] x) => (float[4] y) {
        r = Relu (x) s = my.Scale <by = 2.0> (r) y = Neg (s) }"""
    path, x = tmp_path / "model.gossamer", np.array([1, -2, 3, -4], np.float32)
    report = gossamer.compile_model(onnx.parser.parse_model(text), path, targets="interpreter", cudnn="no")
    assert report.needs == ("python:my.Scale", "triton")
    register(5)
    with session(path) as compiled:
        np.testing.assert_array_equal(compiled.run(None, {"x": x})[0], -10 * np.maximum(x, 0))


def test_what_is_no_tensor(tmp_path: Path) -> None:
    """Sequences of any length go in and come out; neither they nor optionals are part of a signature."""
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 18]>
        g (seq(float[2]) s, optional(float[2]) o) => (float[2] y, seq(float[2]) t) {
            x = OptionalGetElement (o)
            t = SequenceInsert (s, x)
            i = Constant <value_int = 0> ()
            first = SequenceAt (s, i)
            y = Neg (first)
        }""")
    path = tmp_path / "model.gossamer"
    gossamer.compile_model(model, path, targets="interpreter", cudnn="no")
    one, two = np.float32([1, 2]), np.float32([3, 4])
    for source in (model.SerializeToString(), path):
        with session(source) as opened:
            for length in (1, 3):
                y, t = opened.run(None, {"s": [one] * length, "o": two})
                np.testing.assert_array_equal(y, -one)
                np.testing.assert_array_equal(t, [*[one] * length, two])
            with pytest.raises(errors.RuntimeException, match="contains no data"):
                opened.run(None, {"s": [one]})
