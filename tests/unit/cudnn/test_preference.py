"""Which convolutions are cuDNN's where it is there, and which were measured to be faster natively. (R7)"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import harness
from gossamer import settings
from gossamer.cudnn import DeviceProperties, loader
from gossamer.cudnn.loader import Library, State
from gossamer.cudnn.plan_cache import Planned
from gossamer.model.node import Constants, Node, Scope
from gossamer.place import CUDA, place
from gossamer.program import CudnnCall, Target
from gossamer.providers.cudnn import Policy, graphs, operator_of
from gossamer.providers.cudnn.preference import (
    APART,
    DEPTHWISE,
    FEW_CHANNELS,
    FEW_POSITIONS,
    FEW_TRANSPOSED,
    NATIVE,
    kind_of,
)
from gossamer.providers.cudnn.tuning import Tuner

ir = pytest.importorskip("onnx_ir")

NHWC = {"domain": "gossamer.nhwc"}
STORED_LAST = {"op_type": "NhwcConv", "domain": "com.microsoft"}


def model_of(
    x: tuple[int, ...],
    w: tuple[int, ...],
    y: tuple[int, ...],
    attributes: Mapping[str, Any] = {},
    *,
    op_type: str = "Conv",
    dtype: Any = np.float16,
    domain: str = "",
) -> Any:
    """A model of one convolution with these shapes in memory."""
    inputs, element = [np.zeros(x, dtype), np.zeros(w, dtype)], harness.tensor_type(np.zeros(1, dtype))
    made = harness.node_model(op_type, inputs, attributes, domain=domain, constants=(1,), output_types=[(element, y)])
    return ir.serde.deserialize_model(made)


def scope_of(model: Any) -> Scope:
    constants = Constants()
    for name, value in model.graph.initializers.items():
        constants.register(name, value.const_value)
    return Scope(constants, dict(model.opset_imports))


PADS = {"pads": [1] * 4}
TWICE = {"pads": [1] * 4, "strides": [2, 2]}
TRANSPOSED = {"op_type": "ConvTranspose"}


@pytest.mark.parametrize(
    ("shapes", "attributes", "how", "kind"),
    [
        (((1, 64, 56, 56), (64, 64, 3, 3), (1, 64, 56, 56)), PADS, {}, "Conv"),
        (((1, 56, 56, 64), (64, 64, 3, 3), (1, 56, 56, 64)), PADS, NHWC, "Conv"),
        (((1, 14, 14, 64), (64, 64, 3, 3), (1, 14, 14, 64)), PADS, NHWC, FEW_POSITIONS),
        (((1, 16, 16, 64), (64, 3, 3, 64), (1, 16, 16, 64)), PADS, STORED_LAST, FEW_POSITIONS),
        (((1, 17, 16, 64), (64, 3, 3, 64), (1, 17, 16, 64)), PADS, STORED_LAST, "NhwcConv"),
        (((32, 7, 7, 64), (64, 64, 3, 3), (32, 7, 7, 64)), PADS, NHWC, "Conv"),
        (((1, 64, 14, 14), (64, 64, 3, 3), (1, 64, 14, 14)), PADS, {"dtype": np.float32}, "Conv"),
        (((1, 64, 14, 14), (128, 64, 1, 1), (1, 128, 14, 14)), {}, {}, "Conv"),
        (((1, 14, 14, 64), (128, 1, 1, 64), (1, 14, 14, 128)), {}, STORED_LAST, "NhwcConv"),
        (((1, 3, 224, 224), (64, 3, 7, 7), (1, 64, 112, 112)), {}, {}, FEW_CHANNELS),
        (((1, 3, 224, 224), (64, 3, 7, 7), (1, 64, 112, 112)), {}, {"dtype": np.float32}, "Conv"),
        (((1, 3, 64, 64), (32, 3, 3, 3), (1, 64, 64, 32)), {**PADS, "x_channels_first": 1}, NHWC, FEW_CHANNELS),
        (((1, 64, 64, 3), (32, 3, 3, 3), (1, 64, 64, 32)), PADS, NHWC, FEW_CHANNELS),
        (((1, 5, 64, 64), (32, 5, 3, 3), (1, 32, 64, 64)), PADS, {}, "Conv"),
        (((8, 96, 56, 56), (96, 1, 3, 3), (8, 96, 56, 56)), {**PADS, "group": 96}, {}, DEPTHWISE),
        (((8, 56, 56, 96), (192, 1, 3, 3), (8, 56, 56, 192)), {**PADS, "group": 96}, NHWC, DEPTHWISE),
        (((1, 96, 14, 14), (96, 4, 3, 3), (1, 96, 14, 14)), {**PADS, "group": 24}, {}, "Conv"),
        (((1, 64, 900), (64, 64, 3), (1, 64, 898)), {}, {}, "Conv"),
        (((1, 64, 4, 8, 8), (64, 64, 3, 3, 3), (1, 64, 2, 6, 6)), {}, {}, FEW_POSITIONS),
        (((1, 8, 64, 64), (8, 8, 4, 4), (1, 8, 128, 128)), TWICE, TRANSPOSED, FEW_TRANSPOSED),
        (((2, 8, 64, 64), (8, 8, 4, 4), (2, 8, 128, 128)), TWICE, TRANSPOSED, "ConvTranspose"),
        (((1, 64, 64, 8), (8, 8, 4, 4), (1, 128, 128, 8)), TWICE, {**TRANSPOSED, **NHWC}, FEW_TRANSPOSED),
        (((1, 64, 64, 8), (8, 8, 4, 4), (1, 128, 128, 8)), TWICE, {**TRANSPOSED, "dtype": np.float32}, "ConvTranspose"),
        (((4, 8, 64, 64), (8, 8, 2, 2), (4, 8, 128, 128)), {"strides": [2, 2]}, TRANSPOSED, APART),
        (((4, 8, 64, 64), (8, 8, 2, 3), (4, 8, 128, 129)), {"strides": [2, 2]}, TRANSPOSED, "ConvTranspose"),
        (((4, 8, 64, 64), (8, 8, 2, 2), (4, 8, 65, 65)), {}, TRANSPOSED, "ConvTranspose"),
    ],
    ids=str,
)
def test_kinds(shapes: tuple[tuple[int, ...], ...], attributes: dict[str, Any], how: dict[str, Any], kind: str) -> None:
    model = model_of(*shapes, attributes, **how)
    node = Node(next(iter(model.graph)), scope_of(model))
    assert kind_of(operator_of(node.domain, node.op_type), node) == kind


def test_other_operators_are_of_their_own_kind() -> None:
    made = harness.node_model("LRN", [np.zeros((1, 4, 8, 8), np.float16)], {"size": 3})
    model = ir.serde.deserialize_model(made)
    assert kind_of("LRN", Node(next(iter(model.graph)), scope_of(model))) == "LRN"


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cuDNN that has a plan for everything."""
    monkeypatch.setattr(graphs, "planned", lambda *_: (Planned(b"plan", "an engine"),))
    monkeypatch.setattr(graphs, "properties_of", lambda _: DeviceProperties.named("sm_90"))
    with loader.forced(Library(State.AVAILABLE, version=92801, lacking=frozenset())):
        yield


def through_cudnn(model: Any, target: str = "sm_90", **policy: Any) -> bool:
    placement = place(model, [CUDA], Target.named(target), scope_of(model), policy=Policy(enabled=True, **policy))
    return any(isinstance(call, CudnnCall) for call in placement.nodes[0].calls)


@pytest.mark.usefixtures("plans")
def test_what_was_measured_faster_is_native_where_it_was_measured() -> None:
    """On other architectures cuDNN stays the choice, and so it does where the user asks for it."""
    model = model_of((1, 96, 28, 28), (96, 1, 3, 3), (1, 96, 28, 28), {**PADS, "group": 96})
    assert DEPTHWISE in NATIVE[90]
    assert not through_cudnn(model)
    assert through_cudnn(model, "sm_80")
    assert through_cudnn(model, only=("Conv",))
    assert through_cudnn(model, everywhere=True)
    assert through_cudnn(model_of((1, 96, 28, 28), (96, 96, 3, 3), (1, 96, 28, 28), PADS))


@pytest.mark.usefixtures("plans")
@pytest.mark.parametrize(("engine", "cudnn"), [(1e-6, True), (3e-6, False)])
def test_an_exhaustive_search_measures_whatever_is_preferred(tmp_path: Any, engine: float, cudnn: bool) -> None:
    def seconds_of(node: Node, calls: Any) -> float:
        return engine if any(isinstance(call, CudnnCall) for call in calls) else 2e-6

    model = model_of((1, 96, 28, 28), (96, 1, 3, 3), (1, 96, 28, 28), {**PADS, "group": 96})
    with settings.override(CACHE_DIR=tmp_path):
        assert through_cudnn(model, search="EXHAUSTIVE", tuner=Tuner("a GPU", seconds_of)) == cudnn
