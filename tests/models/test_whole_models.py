"""Whole models in the interpreter, against onnxruntime: numbers, placement and memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import fetch
import gossamer
from feeds import random_feeds
from random_weights import with_random_weights

pytestmark = pytest.mark.interpreter

PROVIDERS = [("CUDAExecutionProvider", {"device": "interpreter"}), "CPUExecutionProvider"]
NUDGE = 1e-6
"""By how much of their largest element inputs are moved to see how sensitive a model is, as for models.json."""
AMPLIFICATION = 8
"""Error allowed, in units of how far the nudge moves the outputs. The nudge, some sixteen roundings of fp32 (6e-8), is
made once; rounding disturbs each of about a hundred layers by one or two, and independent errors of n layers add up to
√n of one: about the nudge itself. The rest is for layers whose errors the model amplifies more than its inputs'."""
FLOOR = 4e-6
"""Relative error allowed where outputs hardly move, because the inputs are integers or the model damps them: 64
roundings."""
ARENA_SLACK = 1.2
EXACT_INTEGERS = ("session.x64quantprecision", "1")
"""Without it onnxruntime's products of uint8 and int8 saturate at 16 bits on CPUs that lack VNNI. (Its quantised LSTM
does so with it, too.)"""

Hosted = tuple[str, str]
"""An operator, and why its node is not on the GPU; names in reasons are blanked."""


@dataclass(frozen=True)
class WholeModel:
    """How one model of models.json is run.

    shapes: of inputs, where smaller ones than listed will do. values: inputs that random numbers do not suit. floor:
    the relative error allowed in any case; a model that rounds its activations to 8 bits makes 1/255 out of the least
    difference. on_host: how many nodes are left to the CPU.
    """

    name: str
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    values: Mapping[str, np.ndarray] = field(default_factory=dict)
    weightless: bool = False
    floor: float = FLOOR
    on_host: Mapping[Hosted, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    def source(self, path: Path) -> bytes:
        return with_random_weights(path) if self.weightless else path.read_bytes()

    def feeds(self) -> dict[str, np.ndarray]:
        return random_feeds(fetch.catalogue()[self.name], shapes=self.shapes) | dict(self.values)


def no_kernel(op_type: str, domain: str = "") -> Hosted:
    return op_type, f"no kernel for operator {op_type}" + (f" of domain {domain}" if domain else "")


def unknown_shape(*op_types: str) -> list[Hosted]:
    return [(op_type, "the shape of … is known only when the model runs") for op_type in op_types]


MODELS = (
    WholeModel("spindle_detector_eeg"),
    # Without the mask the model answers NaN on purpose.
    WholeModel("caustic_carbons", values={"target_mask": np.ones((20, 6), bool)}),
    WholeModel("magika"),
    WholeModel("light_resnet50", weightless=True),
    WholeModel("light_shufflenet", weightless=True),
    WholeModel("light_squeezenet", weightless=True),
    WholeModel("voicefilter_lite_int8", floor=0.02),
    WholeModel(
        "slanet_plus",
        shapes={"x": (1, 3, 96, 96)},
        on_host={
            no_kernel("Loop"): 1,
            **dict.fromkeys(unknown_shape("Add", "Reshape", "Softmax"), 1),
            **dict.fromkeys(unknown_shape("Cast", "Slice"), 2),
        },
    ),
    WholeModel("ppocr_v4_det", shapes={"x": (1, 3, 96, 128)}),
    WholeModel("ppocr_v4_rec", shapes={"x": (1, 3, 48, 160)}),
    WholeModel("ppocr_v2_cls"),
    WholeModel("silero_vad", on_host={no_kernel("If"): 1}),
    WholeModel("surfaces_validity_tree", on_host={no_kernel("TreeEnsembleClassifier", "ai.onnx.ml"): 1}),
    WholeModel("ppocr_v6_det_tiny", shapes={"x": (1, 3, 96, 128)}),
    WholeModel("ppocr_v6_rec_tiny", shapes={"x": (1, 3, 48, 160)}),
)


def test_every_model_of_the_list_is_here() -> None:
    assert sorted(model.name for model in MODELS) == sorted(fetch.catalogue())


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_whole_model(model: WholeModel, model_path: Callable[[str], Path], capfd: pytest.CaptureFixture[str]) -> None:
    source, feeds = model.source(model_path(model.name)), model.feeds()
    want, nudged = reference(source, feeds, nudge(feeds))
    capfd.readouterr()
    options = gossamer.SessionOptions()
    options.add_session_config_entry(*EXACT_INTEGERS)
    with gossamer.InferenceSession(source, options, PROVIDERS) as session:
        got = session.run(None, feeds)
        program, placement = session.program(feeds), session.placement()
    assert capfd.readouterr().err == ""
    for one, right, moved in zip(got, want, nudged, strict=True):
        assert_within_sensitivity(one, right, moved, model.floor)
    assert on_host(placement) == Counter(model.on_host)
    assert program.arena_bytes <= ARENA_SLACK * program.lower_bound_bytes


def reference(source: bytes, *many_feeds: Mapping[str, np.ndarray]) -> list[list[np.ndarray]]:
    """onnxruntime's answers on the CPU to each of the feeds."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry(*EXACT_INTEGERS)
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return [session.run(None, dict(feeds)) for feeds in many_feeds]


def nudge(feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inputs, floating-point ones moved by up to NUDGE of their largest element."""
    random = np.random.default_rng(1)

    def moved(array: np.ndarray) -> np.ndarray:
        if array.dtype.kind != "f" or not array.size:
            return array
        return array + (random.uniform(-NUDGE, NUDGE, array.shape) * np.abs(array).max()).astype(array.dtype)

    return {name: moved(array) for name, array in feeds.items()}


def assert_within_sensitivity(got: np.ndarray, want: np.ndarray, nudged: np.ndarray, floor: float) -> None:
    """Integers are equal. Floats differ by no more than onnxruntime's own answers do when the inputs are nudged, times
    AMPLIFICATION, or by `floor` of the largest of them."""
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    if got.dtype.kind != "f":
        np.testing.assert_array_equal(got, want)
        return
    assert np.isfinite(want).all()
    largest, moves = np.abs(want).max(), np.abs(nudged - want).max()
    error = np.abs(got.astype(np.float64) - want).max()
    allowed = max(floor * largest, AMPLIFICATION * moves)
    assert error <= allowed, f"error {error:.3g}, allowed {allowed:.3g} at values up to {largest:.3g}"


def on_host(placement: Any) -> Counter[Hosted]:
    return Counter(
        (node.op_type, re.sub("'.*?'", "…", node.refusals[0][1]))
        for node in placement
        if node.provider == "CPUExecutionProvider"
    )
