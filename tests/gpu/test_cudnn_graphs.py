"""Convolutions and attention through cuDNN's graphs on a GPU: the native kernels' cases and tolerances. (R7)"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gossamer
import harness
from cases import attention, contrib_convolution, convolution
from cases.node_case import NodeCase
from conftest import missing
from gossamer import settings
from gossamer.cudnn import DeviceProperties
from gossamer.cudnn.plan_cache import planned
from gossamer.errors import PlanError
from gossamer.place import CUDA
from gossamer.program import CudnnCall
from gossamer.providers.cudnn import Policy
from gossamer.run.cuda import target_of_device

OPERATORS = ("Conv", "ConvTranspose", "FusedConv", "NhwcConv", "Attention", "MultiHeadAttention")
POLICY = Policy(enabled=True, only=OPERATORS, attention=True)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

PADDED, HALVED = {"pads": [1] * 4}, {"strides": [2, 2]}
REALISTIC = [
    convolution.Case(name, x, w, attributes, op, convolution.NHWC, residual=op == "FusedConv")
    for name, x, w, attributes, op in (
        ("resnet_3x3", (2, 128, 28, 28), (128, 128, 3, 3), {**PADDED, "activation": "relu"}, "FusedConv"),
        ("resnet_7x7", (1, 512, 7, 7), (512, 512, 3, 3), {**PADDED, "activation": "relu"}, "FusedConv"),
        ("silu", (2, 64, 28, 28), (128, 64, 1, 1), {"activation": "silu", "activation_params": [1.0]}, "FusedConv"),
        ("resnet_stem", (2, 3, 224, 224), (64, 3, 7, 7), {"pads": [3] * 4, **HALVED}, "Conv"),
        ("stem_channels_first", (2, 3, 64, 64), (32, 3, 3, 3), {**PADDED, "x_channels_first": 1}, "Conv"),
        ("resnet_downsample", (2, 256, 56, 56), (512, 256, 1, 1), HALVED, "Conv"),
        ("depthwise", (2, 96, 112, 112), (96, 1, 3, 3), {**PADDED, **HALVED, "group": 96}, "Conv"),
        ("asymmetric", (2, 64, 28, 28), (64, 64, 3, 3), {"pads": [0, 0, 1, 1], **HALVED}, "Conv"),
        ("upsample", (1, 24, 60, 62), (24, 24, 2, 2), HALVED, "ConvTranspose"),
        ("channels_first", (2, 64, 28, 28), (128, 64, 3, 3), PADDED, "Conv"),
    )
]


pytestmark = pytest.mark.usefixtures("planning_cudnn")

SMALL = (*convolution.PLAIN, *convolution.DEPTHWISE, *convolution.TRANSPOSED, *convolution.FUSED, *convolution.CONTRIB)
DTYPES = [np.dtype(np.float16), BFLOAT16, np.dtype(np.float32), np.dtype(np.float64)]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("case", SMALL, ids=str)
def test_convolution(case: convolution.Case, dtype: Any) -> None:
    replace(case, dtype=dtype).check("cuda", POLICY)


@pytest.mark.parametrize("dtype", DTYPES[:3], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("case", REALISTIC, ids=str)
def test_layers_of_real_networks(case: convolution.Case, dtype: Any) -> None:
    replace(case, dtype=dtype).check("cuda", POLICY)


@pytest.mark.parametrize("case", [case for case in SMALL if case.name in ("3x3", "groups", "depthwise")], ids=str)
def test_filters_that_are_no_constants(case: convolution.Case) -> None:
    replace(case, constants=False, dtype=np.float16).check("cuda", POLICY)


@pytest.mark.parametrize("node", contrib_convolution.CASES, ids=str)
def test_contributed_operators(node: NodeCase) -> None:
    tf32 = node.inputs[0] is not None and node.inputs[0].dtype == np.float32
    replace(node, rtol=5e-3 if tf32 else node.rtol).check("cuda", POLICY)


def _attentions() -> list[NodeCase]:
    """In halves, and nothing that cuDNN refuses."""
    small = attention.qkv("small", 2, 3, 3, 5, 7, 8, 8, "float16")
    group = attention.qkv("group", 2, 6, 2, 64, 64, 64, 64, "bfloat16")
    flat = [x.transpose(0, 2, 1, 3).reshape(2, x.shape[2], -1) for x in group]
    zeros = np.zeros((5, 7), np.float16)
    cases = [
        attention.attention("plain", *small),
        attention.attention("causal", *small, is_causal=1, scale=0.3),
        attention.attention("groups", *group),
        attention.attention("rank_3", *flat, q_num_heads=6, kv_num_heads=2, is_causal=1),
        replace(attention.attention("bias", *small, zeros + np.float16(0.5)), constants=(3,)),
    ]
    named = ("bert_1", "vit", "causal", "odd_heads", "heads_of_256", "t5", "decode", "split", "split-bfloat16")
    fused = {f"FusedAttention-{name}" for name in named}
    return [*cases, *(case for case in (*attention.SPLIT, *attention.LARGE) if case.name in fused)]


@pytest.mark.parametrize("case", _attentions(), ids=str)
def test_attention(case: NodeCase) -> None:
    if target_of_device(0).arch < 80:
        missing("an architecture with flash attention (sm_80)")
    case.check("cuda", POLICY)


CASE = replace(REALISTIC[0], dtype=np.float16)


def session(case: convolution.Case, **options: object) -> tuple[gossamer.InferenceSession, dict[str, np.ndarray]]:
    model, feeds = case.model()
    return gossamer.InferenceSession(model.SerializeToString(), providers=[(CUDA, options)]), feeds


def check(case: convolution.Case, got: np.ndarray) -> None:
    harness.assert_close(got, convolution.channels_last(case.want()), case.reduction)


def test_replayed_as_a_cuda_graph() -> None:
    """The first run is none, later ones are; inputs change in between."""
    opened, feeds = session(CASE, cudnn_only="Conv")
    for _ in range(4):
        (got,) = opened.run(None, feeds)
        check(CASE, got)
    (other,) = opened.run(None, {name: -array for name, array in feeds.items()})
    assert not np.array_equal(other, got)
    assert "through cuDNN" in str(opened.placement())


def test_exhaustive_search(tmp_path: Path) -> None:
    """Plans and native kernels are timed once; the next session takes what was found."""
    with settings.override(CACHE_DIR=tmp_path):
        first, feeds = session(CASE, cudnn_conv_algo_search="EXHAUSTIVE")
        check(CASE, first.run(None, feeds)[0])
        assert "measured: " in str(first.placement())
        (entry,) = json.loads((tmp_path / "tuning.json").read_text())["entries"].values()
        assert "the native kernels" in entry["microseconds"]
        assert any(name.startswith("cuDNN fused") for name in entry["microseconds"])
        assert entry["microseconds"][entry["way"]] == min(entry["microseconds"].values())
        second, _ = session(CASE, cudnn_conv_algo_search="EXHAUSTIVE")
        check(CASE, second.run(None, feeds)[0])
        assert "measured before: " in str(second.placement())


def test_a_plan_of_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session's plans are for its own GPU; one that is not is refused, by names, and never executed."""
    foreign = DeviceProperties.named("t4" if target_of_device(0).arch != 75 else "h200")
    monkeypatch.setattr("gossamer.providers.cudnn.graphs.planned", _for(foreign))
    with pytest.raises(PlanError, match=r"ARCH_MISMATCH: the plan is for .*, and this is for"):
        convolution.PLAIN[0].check("cuda", POLICY)


def _for(foreign: DeviceProperties) -> Callable[..., Any]:
    return lambda task, properties, most=1: planned(task, foreign, most)


def test_the_live_device_is_planned_for() -> None:
    model, _ = CASE.model()
    program, _ = harness.lower_model(model, target_of_device(0), POLICY)
    calls = [call for call in program.calls if isinstance(call, CudnnCall)]
    assert calls
    assert all(call.plan for call in calls)
