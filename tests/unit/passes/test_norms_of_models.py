"""The passes that recognise norms, over a real model: what becomes of its chains, and the same answers."""

from __future__ import annotations

from collections import Counter

import onnx
import pytest

import fetch
from feeds import random_feeds
from gossamer.model.load import load
from gossamer.model.passes import prepare, run_passes, specialise
from gossamer.model.passes.channels_last import channels_last
from gossamer.model.passes.conv_epilogue import conv_epilogue
from gossamer.model.passes.layer_norm_pattern import layer_norm_pattern
from gossamer.model.passes.matmul_epilogue import matmul_epilogue
from gossamer.model.passes.rms_norm_pattern import rms_norm_pattern
from gossamer.model.passes.rotary_pattern import rotary_pattern
from gossamer.model.passes.skip_norm import skip_norm
from harness import assert_close, ort
from our_operators import in_onnx

AROUND = (conv_epilogue, channels_last)
PASSES = (layer_norm_pattern, rms_norm_pattern, rotary_pattern, matmul_epilogue, skip_norm)


@pytest.mark.models
def test_text_recognition(model_path):
    """The products add their residuals themselves, so that no norm has to."""
    path, feeds = model_path("ppocr_v4_rec"), random_feeds(fetch.catalogue()["ppocr_v4_rec"])
    model = load(path)
    prepare(model)
    model = specialise(model, {key: array.shape for key, array in feeds.items()})
    run_passes(model, (*AROUND, *PASSES))
    assert not run_passes(model, PASSES)
    operators = Counter(node.op_type for node in model.graph)
    assert operators["LayerNormalization"] == 5
    assert not operators.keys() & {"ReduceMean", "Pow", "Sqrt", "Div", "Sub", "SkipLayerNormalization"}
    for got, want in zip(ort(in_onnx(model), feeds), ort(onnx.load(path), feeds), strict=True):
        assert_close(got, want, scale=1.0, rtol=1e-4)
