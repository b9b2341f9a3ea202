"""ONNX's own node tests, through `gossamer.backend`: which there are, and what is known of them (onnx_node_tests.json).

The tests come with the onnx package, which makes their data when they are loaded. A test counts by the operators in
its model: if all of them are `covered` it must pass; if one is not, Gossamer must refuse the model. Both rules have
exceptions by name, with reasons. What is expected to fail and passes fails the suite.

ONNX's tests feed everything. Here the inputs that `parameters` names, which decide shapes or the computation itself,
are initializers, as in files that exporters write: Gossamer compiles for static shapes.

onnx_node_tests.json: onnx, the version it speaks of; parameters, operator → names of inputs; covered, operators;
not_covered, reason → operators; exceptions, what tests raise; tolerances, rtol where the own one is too strict. `tests`
are names or patterns of names.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from gossamer import backend, errors, settings

RECORD: Mapping[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text())
COVERED = frozenset(RECORD["covered"])
NOT_COVERED: Mapping[str, str] = {op: reason for reason, ops in RECORD["not_covered"].items() for op in ops}


@dataclass(frozen=True)
class NodeTest:
    """One of ONNX's tests: a model, what is fed to it by position, and what comes out."""

    name: str
    model: onnx.ModelProto
    inputs: Sequence[Any]
    outputs: Sequence[Any]
    rtol: float
    atol: float

    @property
    def operators(self) -> frozenset[str]:
        return frozenset(
            f"{node.domain}.{node.op_type}" if node.domain else node.op_type for node in _nodes(self.model.graph)
        )

    def check(self, device: str) -> None:
        """Runs the test on a device of the CUDA provider, which has no help from onnxruntime."""
        from onnx.backend.test.runner import Runner

        with settings.override(DEVICE=device), backend.prepare(self.model) as prepared:
            Runner.assert_similar_outputs(self.outputs, prepared.run(self.inputs), self.rtol, self.atol)


def cases(device: str) -> list[Any]:
    """All tests as pytest's parameters, where they can run; elsewhere one that `tests/conftest.py` skips, since loading
    them takes ten seconds."""
    with settings.override(DEVICE=device):
        interprets = os.environ.get("TRITON_INTERPRET") == "1"
        if not backend.supports_device("CUDA") or interprets != (device == "interpreter"):
            return [pytest.param(None, id="all")]
    return [pytest.param(test, id=test.name, marks=_expected(test)) for test in load()]


@cache
def load() -> tuple[NodeTest, ...]:
    """ONNX's tests, always with the same data."""
    from onnx.backend.test.loader import load_model_tests

    state = np.random.get_state()
    np.random.seed(0)  # most generators use the global one as they find it
    with np.errstate(all="ignore"):
        loaded = load_model_tests(kind="node")
    np.random.set_state(state)
    nodes = {case.name: case.model.graph.node[0] for case in loaded}
    return tuple(_node_test(case, nodes[case.name.partition("_expanded")[0]]) for case in loaded)


def _node_test(case: Any, node: onnx.NodeProto) -> NodeTest:
    """node: the operator that is tested, whose function the model may have in its place."""
    ((inputs, outputs),) = case.data_sets
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    infos = list(model.graph.input)
    fed = []
    parameters = _parameters(node, model)
    for info, value in zip(infos, inputs, strict=True):
        if info.name not in parameters:
            fed.append(_array(value))
            continue
        model.graph.input.remove(info)
        tensor = value if isinstance(value, onnx.TensorProto) else numpy_helper.from_array(value)
        model.graph.initializer.add().CopyFrom(tensor)
        model.graph.initializer[-1].name = info.name
    tolerance = _listed("tolerances", case.name)
    rtol = case.rtol if tolerance is None else tolerance["rtol"]
    return NodeTest(case.name, model, fed, [_array(value) for value in outputs], rtol, case.atol)


def _listed(kind: str, name: str) -> Mapping[str, Any] | None:
    """The entry of the record that a test is named in."""
    entries = (entry for entry in RECORD[kind] if any(fnmatchcase(name, pattern) for pattern in entry["tests"]))
    return next(entries, None)


def _parameters(node: onnx.NodeProto, model: onnx.ModelProto) -> set[str]:
    """Names of the model's inputs that the record has as parameters."""
    names = RECORD["parameters"].get(node.op_type, ())
    (version,) = (entry.version for entry in model.opset_import if entry.domain == node.domain)
    formal = onnx.defs.get_schema(node.op_type, version, node.domain).inputs if names else ()
    return {actual for actual, parameter in zip(node.input, formal, strict=False) if parameter.name in names}


def _array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _nodes(attribute.g)


def _expected(test: NodeTest) -> Sequence[pytest.MarkDecorator]:
    """How the test must fail, if it must."""
    exception = _listed("exceptions", test.name)
    if exception is not None:
        raises = getattr(errors, exception["raises"], AssertionError)
        return [pytest.mark.xfail(reason=exception["reason"], raises=raises, strict=True)]
    missing = sorted(test.operators - COVERED)
    if not missing:
        return []
    reason = "; ".join(f"{op}: {NOT_COVERED.get(op, 'not in onnx_node_tests.json')}" for op in missing)
    return [pytest.mark.xfail(reason=reason, raises=errors.UnsupportedModel, strict=True)]
