"""The passes that fuse and lay out, over real models: how little is left, and the same answers."""

from __future__ import annotations

from collections import Counter

import onnx
import pytest

import fetch
from feeds import random_feeds
from gossamer.compiler import EARLY_FUSIONS, FUSIONS
from gossamer.model.load import load
from gossamer.model.passes import prepare, run_passes, specialise
from gossamer.model.passes.channels_last import channels_last
from gossamer.model.passes.conv_epilogue import conv_epilogue
from gossamer.model.passes.matmul_epilogue import matmul_epilogue
from gossamer.model.text import to_text
from harness import assert_close, ort
from our_operators import in_onnx

PASSES = (conv_epilogue, channels_last, matmul_epilogue)


@pytest.mark.models
@pytest.mark.parametrize(("name", "transposes", "most_nodes"), [
    ("ppocr_v2_cls", 0, 77),
    ("ppocr_v4_det", 0, 103),
    ("ppocr_v4_rec", 4, 128),  # of attention heads
    ("ppocr_v6_det_tiny", 0, 132),
    ("ppocr_v6_rec_tiny", 0, 56),
    ("slanet_plus", 0, 105),
    ("spindle_detector_eeg", 1, 94),  # of a spectrogram with 15 channels, on its way in
    ("light_resnet50", 0, 59),
    ("light_shufflenet", 16, 112),  # the shuffles
])  # fmt: skip
def test_models_stay_channels_last_and_answer_the_same(model_path, name, transposes, most_nodes):
    path, feeds = model_path(name), random_feeds(fetch.catalogue()[name])
    model = load(path)
    prepare(model)
    model = specialise(model, {key: array.shape for key, array in feeds.items()})
    assert run_passes(model, PASSES)
    assert not run_passes(model, PASSES)
    operators = Counter(node.op_type for node in model.graph)
    assert operators["Transpose"] == transposes
    assert len(model.graph) <= most_nodes
    assert not any(node.domain in ("", "gossamer") and "Conv" in node.op_type for node in model.graph)
    for got, want in zip(ort(in_onnx(model), feeds), ort(onnx.load(path), feeds), strict=True):
        assert_close(got, want, scale=1.0, rtol=1e-4)


@pytest.mark.models
@pytest.mark.parametrize("name", ["ppocr_v4_det", "ppocr_v4_rec", "slanet_plus"])
def test_what_is_fused_once_for_all_signatures_is_fused_alike(model_path, name):
    path, entry = model_path(name), fetch.catalogue()[name]
    shapes = {key: tuple(spec["shape"]) for key, spec in entry.inputs.items()}
    texts = []
    for early in ((), EARLY_FUSIONS):
        model = load(path)
        prepare(model)
        before = len(model.graph)
        run_passes(model, early)
        assert bool(early) == (len(model.graph) < before)
        model = specialise(model, shapes)
        run_passes(model, FUSIONS)
        texts.append(sorted(line.split(" = ")[-1] for line in to_text(model).splitlines()))
    assert texts[0] == texts[1]
