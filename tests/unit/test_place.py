"""Placement: each node gets the first provider that takes it; what nobody takes is reported in one error."""

from __future__ import annotations

from functools import partial

import onnx
import onnx_ir as ir
import pytest

from gossamer.errors import UnsupportedModel
from gossamer.kernels import registry
from gossamer.model.node import Constants, Node, Scope
from gossamer.place import CPU, CUDA, Placement, place
from gossamer.program import Origin, Refusal, Target
from gossamer.providers import cpu

TARGET = Target.named("sm_90")

MIXED = """
<ir_version: 10, opset_import: ["": 21, "tests": 1]>
mixed (float[4,8] x, string[4] words) => (float[4,8] y, int64[2,n] found, string[4] lower) {
    [act] a = Relu(x)
    [twist] b = tests.Twist(a)
    [find] found = NonZero(b)
    [turn] c = tests.Turn(b)
    [words] lower = StringNormalizer <case_change_action="LOWER"> (words)
    [last] y = Relu(c)
}
"""


@pytest.fixture(autouse=True)
def _onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    """Placement only asks whether it is installed."""
    monkeypatch.setattr(cpu, "_has_onnxruntime", lambda: True)


def model_of(text: str) -> ir.Model:
    """A model from ONNX's text form, with inferred shapes."""
    return ir.serde.deserialize_model(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))


def placed(text: str, *providers: str, strict: bool = False) -> Placement:
    model = model_of(text)
    scope = Scope(Constants(), dict(model.opset_imports))
    return place(model, providers or (CUDA, CPU), TARGET, scope, strict=strict)


SUPPORTED = """
<ir_version: 10, opset_import: ["": 21]>
supported (float[4,8] x, string[4] words) => (float[4,8] y, int64[2,n] found, string[4] lower, int64[2,n] twice) {
    [act] y = Relu(x)
    [find] found = NonZero(y)
    [double] twice = Add(found, found)
    [words] lower = StringNormalizer <case_change_action="LOWER"> (words)
}
"""


def test_what_the_gpu_refuses_goes_to_the_cpu_and_the_reasons_are_kept() -> None:
    placement = placed(SUPPORTED)
    assert [(node.name, node.provider) for node in placement] == [
        ("act", CUDA),
        ("find", CPU),
        ("double", CPU),
        ("words", CPU),
    ]
    reasons = {node.name: dict(node.refusals) for node in placement}
    assert reasons["act"] == {}
    assert "known only when the model runs" in reasons["double"][CUDA]
    assert reasons["words"] == {CUDA: "strings do not live on a GPU"}
    assert placement.counts() == {CUDA: 1, CPU: 3}
    assert placement.summary() == f"{CUDA}: 1 node, {CPU}: 3 nodes (NonZero, Add, StringNormalizer)"
    assert "StringNormalizer 'words'\n    not on CUDAExecutionProvider: strings do not live on a GPU" in str(placement)


def test_calls_keep_the_node_that_they_came_from() -> None:
    (call,) = next(iter(placed(SUPPORTED))).calls
    assert call.origin == Origin("act", "Relu", "")


def test_every_unsupported_node_is_in_one_error() -> None:
    with pytest.raises(UnsupportedModel) as caught:
        placed(MIXED)
    assert [(node.node, node.op) for node in caught.value.nodes] == [("twist", "tests.Twist"), ("turn", "tests.Turn")]
    for node in caught.value.nodes:
        assert [reason.partition(": ")[0] for reason in node.reasons] == [CUDA, CPU]
    text = str(caught.value)
    assert text.startswith("mixed: 2 node(s) cannot run here, operators: tests.Turn, tests.Twist\n")
    assert "no kernel for operator Twist of domain tests" in text
    assert "onnxruntime has no operators of domain tests" in text


def test_without_the_cpu_provider_its_nodes_are_unsupported_too() -> None:
    with pytest.raises(UnsupportedModel) as caught:
        placed(SUPPORTED, CUDA)
    assert [node.node for node in caught.value.nodes] == ["find", "double", "words"]


def test_strict_asks_only_the_first_provider_and_says_so() -> None:
    with pytest.raises(UnsupportedModel, match="option 'strict' keeps nodes off the others") as caught:
        placed(SUPPORTED, strict=True)
    assert [node.node for node in caught.value.nodes] == ["find", "double", "words"]


def test_the_cpu_provider_may_be_first() -> None:
    assert placed(SUPPORTED, CPU, CUDA).counts() == {CPU: 4}


def test_without_onnxruntime_the_refusal_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "_has_onnxruntime", lambda: False)
    with pytest.raises(UnsupportedModel, match=r"pip install 'gossamer\[cpu\]'"):
        placed(SUPPORTED)


def test_operators_that_passes_make_never_reach_onnxruntime() -> None:
    for domain in ("gossamer", "gossamer.nhwc"):
        refusal = cpu.accepts(ir.node("Conv", [], domain=domain))
        assert isinstance(refusal, Refusal)
        assert "Gossamer's own operator" in refusal.reason


def test_a_node_without_a_name_is_called_by_its_first_output() -> None:
    (node,) = placed('<ir_version: 10, opset_import: ["": 21]> g (float[4] x) => (float[4] y) { y = Relu(x) }')
    assert node.name == "y"


# The registry of lowerings


@pytest.fixture
def lowerings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_LOWERINGS", {})
    monkeypatch.setattr(registry, "_import_families", lambda: None)


def lowering(node: Node, target: Target) -> registry.Lowered:
    """A lowering that nobody calls."""
    raise AssertionError


@pytest.mark.usefixtures("lowerings")
def test_the_newest_lowering_that_the_opset_has_is_used() -> None:
    first = registry.lowers("Twist", "Turn", domain="tests", since=3)(partial(lowering))
    second = registry.lowers("Twist", domain="tests", since=7)(partial(lowering))
    found = [registry.find("tests", "Twist", version) for version in (3, 6, 7, 9)]
    assert found == [first, first, second, second]
    assert registry.find("tests", "Twist", 2) == Refusal("Twist has kernels from opset 3 on, the model uses 2")
    assert registry.find("", "Twist", 9) == Refusal("no kernel for operator Twist")
    assert [row[:3] for row in registry.registered()] == [
        ("tests", "Turn", 3),
        ("tests", "Twist", 3),
        ("tests", "Twist", 7),
    ]


@pytest.mark.usefixtures("lowerings")
def test_registering_twice_is_an_error() -> None:
    registry.lowers("Twist", domain="tests")(lowering)
    with pytest.raises(RuntimeError, match=r"tests\.Twist since 1 is lowered by both"):
        registry.lowers("Twist", domain="tests")(lowering)
