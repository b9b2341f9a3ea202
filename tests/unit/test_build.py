"""From a placement to a Program, and the null device, which goes no further."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from gossamer.build.programs import build
from gossamer.errors import InvalidArgument
from gossamer.model.node import Constants, Scope
from gossamer.place import CPU, CUDA, PlacedNode, Placement
from gossamer.program import Arena, Call, Fill, Host, Kernel, Launch, Origin, Program, Target, View, Weight
from gossamer.run.null import NullExecutor

KERNEL = Kernel("tests.kernel", (), ())
TARGET = Target.named("sm_90")


def program_of(text: str, calls: dict[str, Sequence[Call]], **constants: np.ndarray) -> Program:
    """A Program whose nodes have these calls, by node name."""
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in constants.items())
    model = ir.serde.deserialize_model(onnx.shape_inference.infer_shapes(proto))
    scope = Scope(Constants(), dict(model.opset_imports))
    for name, value in model.graph.initializers.items():
        assert value.const_value is not None
        scope.constants.register(name, value.const_value)
    placement = [_placed(node, calls.get(node.name or ""), scope) for node in model.graph]
    return build(model, Placement(tuple(placement)), TARGET, scope)


def _placed(node: ir.Node, calls: Sequence[Call] | None, scope: Scope) -> PlacedNode:
    for value in (*node.inputs, *node.outputs):
        if value is not None:
            scope.buffer_or_dynamic(value)
    provider = CPU if calls is None else CUDA
    return PlacedNode(node, node.name or "", node.op_type, node.domain, provider, tuple(calls or ()), ())


def launch(reads: Sequence[str], writes: Sequence[str], grid: tuple[int, int, int] = (1, 1, 1)) -> Launch:
    return Launch(KERNEL, grid, (), tuple(reads), tuple(writes), origin=Origin(writes[0]))


CHAIN = """<ir_version: 10, opset_import: ["": 21]> chain (float[64] x) => (float[64] y) {
    [first] a = Neg(x) [second] y = Add(a, w) }"""


def test_calls_stand_in_the_order_of_nodes_and_everything_has_a_place() -> None:
    calls = {"first": [launch("x", "a")], "second": [Fill("y"), launch(("a", "w"), "y")]}
    program = program_of(CHAIN, calls, w=np.zeros(64, np.float32))
    assert program.calls == (*calls["first"], *calls["second"])
    assert (program.name, program.inputs, program.outputs) == ("chain", ("x",), ("y",))
    assert program.locations["w"] == Weight("w")
    assert {name for name, place in program.locations.items() if isinstance(place, Arena)} == {"x", "a", "y"}
    assert program.locations.keys() == program.buffers.keys()
    assert program.lower_bound_bytes <= program.arena_bytes == 512


def test_launches_over_nothing_are_dropped() -> None:
    calls = {"first": [launch("x", "a", (0, 4, 1))], "second": [launch(("a", "w"), "y", (1, 1, 0)), launch("a", "y")]}
    program = program_of(CHAIN, calls, w=np.zeros(64, np.float32))
    assert program.calls == (calls["second"][1],)


def test_buffers_that_no_call_touches_are_left_out() -> None:
    program = program_of(CHAIN, {"first": [], "second": [launch("x", "y")]}, w=np.zeros(64, np.float32))
    assert program.buffers.keys() == {"x", "y"}


def test_an_input_that_is_an_output_and_a_constant_output() -> None:
    text = """<ir_version: 10, opset_import: ["": 21]> g (float[4] x) => (float[4] x, float[2] w, float[4] y) {
        [n] y = Neg(x) }"""
    program = program_of(text, {"n": [launch("x", "y")]}, w=np.zeros(2, np.float32))
    assert program.outputs == ("x", "w", "y")
    assert program.locations["w"] == Weight("w")
    assert program.weights == ("w",)
    assert program.locations["x"] != program.locations["y"]


def test_empty_tensors_have_a_place() -> None:
    text = """<ir_version: 10, opset_import: ["": 21]> g (float[0,4] x) => (float[0,4] y) { [n] y = Neg(x) }"""
    program = program_of(text, {"n": [launch("x", "y", (0, 1, 1))]})
    assert program.calls == ()
    assert all(isinstance(program.locations[name], Arena | Host) for name in "xy")


def test_views_cost_no_memory() -> None:
    text = """<ir_version: 10, opset_import: ["": 21]> g (float[64] x) => (float[64] y) {
        [view] a = Identity(x) [n] y = Neg(a) }"""
    program = program_of(text, {"view": [View("x", "a")], "n": [launch("a", "y")]})
    assert program.locations["a"] == program.locations["x"]
    assert program.arena_bytes == 512


# The null device


def test_the_null_device_gives_zeros_and_remembers_programs() -> None:
    program = program_of(CHAIN, {"first": [launch("x", "a")], "second": [launch("a", "y")]}, w=np.zeros(64, np.float32))
    executor = NullExecutor()
    results = executor.run(program, {"x": np.ones(64, np.float32)})
    np.testing.assert_array_equal(results["y"], np.zeros(64, np.float32), strict=True)
    assert executor.programs == [program]


def test_the_null_device_does_not_invent_shapes() -> None:
    text = (
        """<ir_version: 10, opset_import: ["": 21]> g (float[4] x) => (int64[1,n] found) { [n] found = NonZero(x) }"""
    )
    program = program_of(text, {})
    with pytest.raises(InvalidArgument, match="output 'found', which depends on data"):
        NullExecutor().run(program, {"x": np.ones(4, np.float32)})
