"""HostCalls: CPU nodes packed into models, run by onnxruntime between GPU calls, and whole models on the CPU."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from gossamer.build.programs import build
from gossamer.errors import Fail, RuntimeException
from gossamer.model.node import Constants, Scope
from gossamer.options import CompileOptions
from gossamer.place import CPU, CUDA, PlacedNode, Placement
from gossamer.program import Arena, Buffer, Copy, Host, HostCall, Origin, Program, Target
from gossamer.run import host
from gossamer.run.host import HostModel, HostRunner
from gossamer.run.interpreter import InterpreterExecutor

pytest.importorskip("onnxruntime")


def program_of(text: str, gpu: Iterable[str] = (), **constants: np.ndarray) -> tuple[Program, Constants]:
    """A Program whose nodes run on the CPU, but those named in `gpu`, which become copies of their input.

    constants: initializers of the model.
    """
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in constants.items())
    model = ir.serde.deserialize_model(onnx.shape_inference.infer_shapes(proto))
    scope = Scope(Constants(), dict(model.opset_imports))
    for name, value in model.graph.initializers.items():
        assert value.const_value is not None
        scope.constants.register(name, value.const_value)
    placement = Placement(tuple(placed(node, node.name in gpu, scope) for node in model.graph))
    return build(model, placement, Target.named("sm_90"), scope), scope.constants


def placed(node: ir.Node, on_gpu: bool, scope: Scope) -> PlacedNode:
    name, kind = node.name or "", (node.op_type, node.domain)
    if not on_gpu:
        return PlacedNode(node, name, *kind, CPU, (), ((CUDA, "for the test"),))
    source, out = (scope.buffer_or_dynamic(value) for value in (*node.inputs, *node.outputs) if value is not None)
    return PlacedNode(node, name, *kind, CUDA, (Copy(source.name, out.name, source.nbytes),), ())


def host_calls(program: Program) -> list[HostCall]:
    return [call for call in program.calls if isinstance(call, HostCall)]


def run(program: Program, constants: Constants, **feeds: np.ndarray) -> dict[str, np.ndarray]:
    return InterpreterExecutor(constants).run(program, feeds)


HEAD = '<ir_version: 10, opset_import: ["": 21]>'


def test_neighbours_are_one_call_and_a_gpu_node_divides_them() -> None:
    program, constants = program_of(
        f"""{HEAD} g (float[4] x) => (float[4] y) {{
            [a] a = Neg(x) [b] b = Exp(a) [gpu] c = Relu(b) [d] d = Add(c, b) [e] y = Cos(d) }}""",
        gpu=["gpu"],
    )
    before, after = host_calls(program)
    assert [type(call).__name__ for call in program.calls] == ["HostCall", "Copy", "HostCall"]
    assert (before.reads, before.writes, before.origin) == (("x",), ("b",), Origin("a", "Neg+Exp", ""))
    assert (after.reads, after.writes) == (("c", "b"), ("y",))
    x = np.array([0, 1, -1, 2], np.float32)
    np.testing.assert_allclose(run(program, constants, x=x)["y"], np.cos(2 * np.exp(-x)), rtol=1e-5)


def test_what_the_gpu_reads_is_in_the_arena_and_the_rest_on_the_host() -> None:
    program, constants = program_of(
        f"""{HEAD} g (float[4] x, float[4] h) => (float[4] y, float[4] z) {{
            [a] a = Neg(x) [gpu] y = Relu(a) [b] b = Neg(h) [c] z = Neg(b) }}""",
        gpu=["gpu"],
    )
    kinds = {name: type(place) for name, place in program.locations.items()}
    # b never leaves its HostCall, so it is no buffer at all.
    assert kinds == {"x": Host, "h": Host, "z": Host, "a": Arena, "y": Arena}
    x, h = np.ones(4, np.float32), np.full(4, 3, np.float32)
    results = run(program, constants, x=x, h=h)
    np.testing.assert_array_equal(results["y"], -x)
    np.testing.assert_array_equal(results["z"], h)


def test_constants_are_embedded_and_no_inputs() -> None:
    program, constants = program_of(
        f"{HEAD} g (float[2] x) => (float[2] y) {{ [a] a = Add(x, w) [b] y = Mul(a, w) }}",
        w=np.array([2, 3], np.float32),
    )
    (call,) = host_calls(program)
    assert call.reads == ("x",)
    np.testing.assert_array_equal(run(program, constants, x=np.ones(2, np.float32))["y"], [6, 12])


def test_shapes_that_depend_on_data() -> None:
    program, constants = program_of(
        f"""{HEAD} g (float[3,3] x) => (int64[2,n] found, int64[2] sizes, float[3,3] n) {{
            [find] found = NonZero(x) [gpu] g = Relu(x) [size] sizes = Shape(found) [n] n = Neg(g) }}""",
        gpu=["gpu"],
    )
    assert program.buffers["found"].dynamic
    assert program.locations["found"] == Host()
    for x in (np.eye(3, dtype=np.float32), np.zeros((3, 3), np.float32)):
        results = run(program, constants, x=x)
        np.testing.assert_array_equal(results["found"], np.nonzero(x))
        np.testing.assert_array_equal(results["sizes"], results["found"].shape)
        np.testing.assert_array_equal(results["n"], -x)


IF = f"""{HEAD} g (bool c, float[2] x) => (float[2] y) {{
    [outer] outer = Exp(x)
    [gpu] kept = Relu(x)
    [choose] y = If (c) <
        then_branch = then () => (float[2] t) {{ t = Add(outer, w) }},
        else_branch = otherwise () => (float[2] e) {{
            f = Neg(outer)
            e = If (c) <
                then_branch = inner () => (float[2] i) {{ i = Identity(x) }},
                else_branch = last () => (float[2] j) {{ j = Mul(f, x) }}
            >
        }}
    >
}}"""


def test_subgraphs_get_the_outer_values_that_they_capture() -> None:
    w, x = np.array([1, 2], np.float32), np.array([0, 1], np.float32)
    program, constants = program_of(IF, gpu=["gpu"], w=w)
    before, choose = host_calls(program)
    assert before.writes == ("outer",)
    assert set(choose.reads) == {"c", "outer", "x"}
    np.testing.assert_allclose(run(program, constants, c=np.array(True), x=x)["y"], np.exp(x) + w, rtol=1e-6)
    np.testing.assert_allclose(run(program, constants, c=np.array(False), x=x)["y"], -np.exp(x) * x, rtol=1e-6)


LOOP = f"""{HEAD} g (int64 n, float[2] x) => (float[2] y, float[k,2] steps) {{
    [loop] y, steps = Loop (n, , x) <
        body = body (int64 i, bool go, float[2] state) => (bool on, float[2] next, float[2] step) {{
            on = Identity(go)
            next = Add(state, x)
            step = Identity(next)
        }}
    >
}}"""


def test_loops() -> None:
    program, constants = program_of(LOOP)
    x = np.array([1, 2], np.float32)
    results = run(program, constants, n=np.array(3, np.int64), x=x)
    np.testing.assert_array_equal(results["y"], 4 * x)
    assert results["steps"].shape == (3, 2)


def test_strings_pass_through() -> None:
    program, constants = program_of(
        f"""{HEAD} g (string[2] s) => (string[2] t, int64[1,n] same) {{
            [j] t = StringConcat(s, s) [e] e = Equal(s, t) [n] same = NonZero(e) }}"""
    )
    results = run(program, constants, s=np.array(["a", ""], object))
    assert results["t"].tolist() == ["aa", ""]
    np.testing.assert_array_equal(results["same"], [[1]])


def test_the_packed_model_is_typed_onnx_with_the_buffers_names() -> None:
    program, _ = program_of(IF, gpu=["gpu"], w=np.zeros(2, np.float32))
    for call in host_calls(program):
        model = onnx.load_from_string(call.model)
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
        assert [value.name for value in model.graph.input] == list(call.reads)
        assert [value.name for value in model.graph.output] == list(call.writes)


# The runner


def call_of(text: str) -> HostCall:
    model = onnx.parser.parse_model(text)
    graph = model.graph
    reads, writes = (tuple(value.name for value in values) for values in (graph.input, graph.output))
    return HostCall(model.SerializeToString(), reads, writes, Origin("node", "Neg"))


NEG = f"{HEAD} g (float[2] x) => (float[2] y) {{ y = Neg(x) }}"


def test_one_session_for_equal_models(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    real = host._open
    monkeypatch.setattr(host, "_open", lambda *given: opened.append(given[2]) or real(*given))
    runner, x = HostRunner(), np.ones(2, np.float32)
    threads = [threading.Thread(target=runner.run, args=(call_of(NEG), {"x": x})) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(runner.run(call_of(NEG), {"x": x})["y"], -x)
    assert opened == ["Neg 'node'"]
    runner.run(call_of(NEG.replace("Neg", "Abs")), {"x": x})
    assert len(opened) == 2


def test_a_model_that_onnxruntime_refuses_is_named_with_its_words() -> None:
    bad = call_of(NEG.replace("Neg(x)", "Neg(x, x)"))
    with pytest.raises(Fail, match=r"onnxruntime refuses Neg 'node': .*[Ii]nput"):
        HostRunner().run(bad, {"x": np.ones(2, np.float32)})


def test_a_run_that_fails_is_named_with_onnxruntimes_words() -> None:
    with pytest.raises(RuntimeException, match=r"Neg 'node' failed on the CPU: .*x"):
        HostRunner().run(call_of(NEG), {"x": np.ones(3, np.float32)})


@pytest.mark.parametrize("buffer", [Buffer("y", "int32", (4,)), Buffer("y", "float32", (2,))], ids=str)
def test_what_was_made_otherwise_than_expected_goes_nowhere(buffer: Buffer) -> None:
    program, constants = program_of(
        f"{HEAD} g (float[4] x) => (float[4] z) {{ [a] y = Neg(x) [gpu] z = Relu(y) }}", ["gpu"]
    )
    forged = replace(program, buffers={**program.buffers, "y": buffer})
    expected = re.escape(f"made 'y' a float32[4] on the CPU, and {buffer} was expected")
    with pytest.raises(RuntimeException, match=expected):
        run(forged, constants, x=np.ones(4, np.float32))


def test_options_reach_onnxruntime() -> None:
    text = NEG.replace("[2]", "[n]")
    options = CompileOptions(dimensions={"n": 2}, intra_op_threads=1, optimize=False)
    runner = HostRunner(options)
    np.testing.assert_array_equal(runner.run(call_of(text), {"x": np.ones(2, np.float32)})["y"], [-1, -1])
    with pytest.raises(RuntimeException, match="2"):
        runner.run(call_of(text), {"x": np.ones(3, np.float32)})


def test_whole_models_run_on_the_cpu() -> None:
    model = HostModel(onnx.parser.parse_model(NEG), CompileOptions())
    np.testing.assert_array_equal(model.run(["y"], {"x": np.ones(2, np.float32)})["y"], [-1, -1])
    with pytest.raises(RuntimeException, match="the model failed on the CPU"):
        model.run(["y"], {"x": np.ones(3, np.float32)})
