"""Custom operators without a device: registration, shapes, placement, and what executors hand to functions. (R4.2)"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

import gossamer
from gossamer import custom_ops
from gossamer.cudnn import loader
from gossamer.cudnn.loader import Library, State
from gossamer.custom_ops import CustomNode, KernelContext, TensorInfo
from gossamer.errors import CudnnUnavailable, InvalidArgument, NotFound, UnsupportedModel, WrongType
from gossamer.program import Arena, Buffer, Copy, Fill, Origin, Program, PythonCall, Target, TensorValue
from gossamer.run import cudnn as cudnn_steps
from gossamer.run import dlpack, driver
from gossamer.run.context import ExecutionContext
from gossamer.run.device_tensor import DeviceTensor
from gossamer.run.python_calls import KernelTensor, PythonStep

HEAD = '<ir_version: 10, opset_import: ["": 21, "my": 1]>'
SCALE = f"{HEAD} g (float[n,4] x) => (float[n,4] y) {{ [relu] a = Relu(x) [scale] y = my.Scale <factor=2.0> (a) }}"


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], custom_ops.CustomOp]:
    """An empty one for each test."""
    operators: dict[tuple[str, str], custom_ops.CustomOp] = {}
    monkeypatch.setattr(custom_ops, "_operators", operators)
    return operators


def never(ctx: KernelContext) -> None:
    raise AssertionError("the null device executes nothing")


def session_of(text: str, *more: str, **options: object) -> gossamer.InferenceSession:
    model = parser.parse_model(text)
    providers = [("CUDAExecutionProvider", {"device": "null", **options}), *more]
    return gossamer.InferenceSession(model.SerializeToString(), providers=providers)


def program_of(text: str, **feeds: tuple[int, ...]) -> Program:
    with session_of(text) as session:
        return session.program({name: np.zeros(shape, np.float32) for name, shape in feeds.items()})


def python_calls(program: Program) -> list[PythonCall]:
    return [call for call in program.calls if isinstance(call, PythonCall)]


# Registration


def test_the_function_stays_what_it_was() -> None:
    assert gossamer.custom_op("my", "Scale")(never) is never
    registered = custom_ops.find("my", "Scale")
    assert registered is not None
    assert registered.function is never
    assert custom_ops.find("my", "Other") is None


def test_a_second_registration_is_refused_unless_it_says_so() -> None:
    gossamer.custom_op("my", "Scale")(never)

    def second(ctx: KernelContext) -> None: ...

    with pytest.raises(
        InvalidArgument, match=r"my.Scale is a custom operator already, .*never; pass replace=True .*second"
    ):
        gossamer.custom_op("my", "Scale")(second)
    gossamer.custom_op("my", "Scale", replace=True)(second)
    registered = custom_ops.find("my", "Scale")
    assert registered is not None
    assert registered.function is second


@pytest.mark.parametrize("domain", ["", "ai.onnx", "ai.onnx.ml", "com.microsoft", "gossamer", "gossamer.nhwc"])
def test_domains_that_have_an_owner(domain: str) -> None:
    with pytest.raises(InvalidArgument, match="give the node a domain of your own"):
        gossamer.custom_op(domain, "Relu")


def test_onnxruntime_extensions_domain_is_free() -> None:
    gossamer.custom_op("ai.onnx.contrib", "Scale")(never)


def test_what_is_no_name_or_no_function() -> None:
    decorator: Any = gossamer.custom_op
    with pytest.raises(TypeError):
        decorator(never)  # @custom_op without arguments
    with pytest.raises(WrongType, match=r"as in @gossamer.custom_op\('my.domain', 'Scale'\); got 'my' and 3"):
        decorator("my", 3)
    with pytest.raises(InvalidArgument, match="name of a custom operator of domain 'my' is empty"):
        decorator("my", "")
    with pytest.raises(WrongType, match=r"outputs of my\.Scale must be a function"):
        decorator("my", "Scale", outputs=[((1,), "float32")])
    with pytest.raises(WrongType, match=r"my\.Scale must be a function of a KernelContext, not None"):
        decorator("my", "Scale")(None)


# Shapes


def node(n_outputs: int = 1, **attributes: Any) -> CustomNode:
    return CustomNode("here", "Op", "my", attributes, n_outputs)


X = TensorInfo((2, 3), np.dtype(np.float32))


def types_of(outputs: Any, n_outputs: int = 1, *inputs: TensorInfo | None) -> list[TensorInfo]:
    gossamer.custom_op("my", "Op", outputs=outputs, replace=True)(never)
    registered = custom_ops.find("my", "Op")
    assert registered is not None
    return registered.output_types(node(n_outputs), inputs or (X,))


def test_one_output_like_the_first_input() -> None:
    assert types_of(None) == [X]


@pytest.mark.parametrize(("n_outputs", "inputs"), [(2, (X,)), (1, (None, X))])
def test_without_a_shape_function_other_nodes_are_refused(
    n_outputs: int, inputs: tuple[TensorInfo | None, ...]
) -> None:
    with pytest.raises(InvalidArgument, match=r"my.Op \(node 'here'\) has .*; pass outputs=... to custom_op"):
        types_of(None, n_outputs, *inputs)


def test_answers_of_a_shape_function() -> None:
    def outputs(node: CustomNode, *inputs: TensorInfo | None) -> list[Any]:
        return [([np.int64(2), 0], "bfloat16"), ((), np.bool_), X, ((1,), np.dtype(np.int64))]

    assert types_of(outputs, 3) == [
        TensorInfo((2, 0), np.dtype(ml_dtypes.bfloat16)),
        TensorInfo((), np.dtype(bool)),
        X,
    ]


@pytest.mark.parametrize(
    "answer",
    [None, [], ((2, 3), "float32"), [(2, "float32")], [((2.5,), "float32")], [((-1,), "float32")], [((2,), "flaot")],
     [((2,), str)], [((2, 3), "float32", 1)], [("n", "float32")]],
)  # fmt: skip
def test_answers_that_cannot_be_used(answer: Any) -> None:
    expected = (
        r"the shape function of custom operator my.Op \(node 'here'\) gave .*; expected a list of \(shape, dtype\)"
    )
    with pytest.raises(InvalidArgument, match=expected):
        types_of(lambda node, *inputs: answer)


def test_what_a_shape_function_raises_names_the_node() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        types_of(lambda node, x: 1 / 0)
    assert caught.value.__notes__ == ["in the shape function of custom operator my.Op (node 'here')"]


def test_shape_functions_see_attributes_constants_and_omitted_inputs() -> None:
    seen: list[Any] = []

    def outputs(node: CustomNode, x: TensorInfo, nothing: None, size: TensorInfo) -> list[Any]:
        assert size.value is not None
        seen.append((node.name, node.op_type, node.domain, dict(node.attributes), node.n_outputs, x, nothing))
        return [(size.value, x.dtype), (x.shape[:1], "int64")]

    gossamer.custom_op("my", "Pool", outputs=outputs)(never)
    text = f"""{HEAD} g (float[n,4] x) => (y, i) <int64[2] size = {{3, 2}}> {{
        [pool] y, i = my.Pool <axes = [0, 1], mode = "max", eps = 0.5> (x, , size) }}"""
    program = program_of(text, x=(5, 4))
    attributes = {"axes": (0, 1), "mode": "max", "eps": 0.5}
    assert set(seen[-1][3]) == set(attributes)
    assert seen[-1] == ("pool", "Pool", "my", attributes, 2, TensorInfo((5, 4), np.dtype(np.float32)), None)
    assert [str(program.buffers[name]) for name in program.outputs] == ["float32[3,2]", "int64[5]"]
    assert "n" not in [dim for entry in seen for dim in entry[5].shape]  # nothing is asked about symbols


def test_shapes_go_through_several_in_a_row() -> None:
    calls: list[str] = []

    def halved(node: CustomNode, x: TensorInfo) -> list[Any]:
        calls.append(node.name)
        return [((x.shape[0] // 2, *x.shape[1:]), x.dtype)]

    gossamer.custom_op("my", "Halve", outputs=halved)(never)
    text = f"""{HEAD} g (float[n,4] x) => (y) {{
        a = Relu(x)
        [one] b = my.Halve(a)
        c = Sigmoid(b)
        [two] d = my.Halve(c)
        f = Transpose(d)
        [three] y = my.Halve(f)
    }}"""
    program = program_of(text, x=(8, 4))
    assert [str(program.buffers[call.writes[0]]) for call in python_calls(program)] == [
        "float32[4,4]",
        "float32[2,4]",
        "float32[2,2]",
    ]
    assert calls[-3:] == ["one", "two", "three"]


def test_computed_shapes_behind_a_custom_operator_are_folded() -> None:
    gossamer.custom_op("my", "Double", outputs=lambda node, x: [((2 * x.shape[0], 4), x.dtype)])(never)
    text = f"""{HEAD} g (float[n,4] x) => (y) {{
        a = my.Double(x)
        s = Shape(a)
        two = Constant <value_ints = [2]> ()
        t = Div(s, two)
        rest = Constant <value_ints = [-1]> ()
        zero = Constant <value_int = 0> ()
        rows = Gather <axis = 0> (t, zero)
        axis = Constant <value_ints = [0]> ()
        r = Unsqueeze(rows, axis)
        to = Concat <axis = 0> (r, rest)
        y = Reshape(a, to)
    }}"""
    program = program_of(text, x=(3, 4))
    assert str(program.buffers["y"]) == "float32[3,8]"
    assert [type(call).__name__ for call in program.calls] == ["PythonCall", "View"]


def test_inference_shows_each_node_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """n custom operators in a row: n + 1 goes, but no node is in two of them."""
    gossamer.custom_op("my", "Same")(never)
    shown: list[list[str]] = []
    infer = onnx.shape_inference.infer_shapes

    def spy(model: onnx.ModelProto, **how: Any) -> onnx.ModelProto:
        shown.append([node.op_type for node in model.graph.node])
        return infer(model, **how)

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", spy)
    body = " ".join(f"a{i} = Relu(b{i}) b{i + 1} = my.Same(a{i})" for i in range(10))
    with session_of(f"{HEAD} g (float[n] b0) => (y) {{ {body} y = Neg(b10) }}") as session:
        session.program({"b0": np.zeros(3, np.float32)})
        assert len(shown) < 20  # of the model whose shapes are symbols, nothing waits
        shown.clear()
        session.program({"b0": np.zeros(5, np.float32)})
    assert [names for names in shown if names] == [["Relu"]] * 10 + [["Neg"]]


def test_a_stale_claim_gives_way_to_the_shape_function() -> None:
    gossamer.custom_op("my", "Scale")(never)
    model = parser.parse_model(
        f"{HEAD} g (float[n,4] x) => (y) {{ a = my.Scale(x) s = Shape(a) y = Cast <to = 1> (s) }}"
    )
    model.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, [1, 4]))
    with gossamer.InferenceSession(
        model.SerializeToString(), providers=[("CUDAExecutionProvider", {"device": "null"})]
    ) as session:
        assert [str(session.program({"x": np.zeros((n, 4), np.float32)}).buffers["y"]) for n in (2, 3)] == [
            "float32[2]"
        ] * 2
        assert "a" not in session.program({"x": np.zeros((3, 4), np.float32)}).buffers  # only its shape was asked for


def test_a_shape_that_depends_on_data_is_refused_with_the_reason() -> None:
    gossamer.custom_op("my", "Scale")(never)
    text = f"{HEAD} g (float[4] x) => (y) {{ a = NonZero(x) [scale] y = my.Scale(a) }}"
    with session_of(text, "CPUExecutionProvider") as session, pytest.raises(UnsupportedModel) as caught:
        session.program({"x": np.zeros(4, np.float32)})
    (unsupported,) = caught.value.nodes
    assert unsupported.node == "scale"
    assert "shape of 'a' is known only when the model runs" in unsupported.reasons[0]
    assert unsupported.reasons[1] == "CPUExecutionProvider: the custom operator my.Scale runs on the CUDA provider only"
    assert not caught.value.remedy


# Placement and Programs


def test_a_call_is_data_and_has_a_text() -> None:
    gossamer.custom_op("my", "Scale")(never)
    program = program_of(SCALE, x=(3, 4))
    (call,) = python_calls(program)
    assert call == PythonCall(
        "my", "Scale", (("factor", 2.0),), ("a",), ("y",), cudnn=True, origin=Origin("scale", "Scale", "my")
    )
    hash(call)
    assert program.line(call) == "y: float32[3,4] @256 = python my.Scale(a, factor=2.0)  # my.Scale 'scale'"


def test_attributes_of_every_kind() -> None:
    gossamer.custom_op("my", "Op")(never)
    tensor = helper.make_tensor("table", TensorProto.FLOAT16, [2, 2], [1, 2, 3, 4])
    attributes = {"i": 3, "f": 0.5, "s": "text", "ints": [1, 2], "floats": [0.5], "strings": ["a", "b"], "t": tensor}
    model = one_node(helper.make_node("Op", ["x", ""], ["y"], domain="my", name="here", **attributes, ts=[tensor]))
    with gossamer.InferenceSession(model, providers=[("CUDAExecutionProvider", {"device": "null"})]) as session:
        program = session.program({"x": np.zeros(2, np.float32)})
    (call,) = python_calls(program)
    value = TensorValue("float16", (2, 2), np.arange(1, 5, dtype=np.float16).tobytes())
    assert dict(call.attributes) == {
        "i": 3, "f": 0.5, "s": "text", "ints": (1, 2), "floats": (0.5,), "strings": ("a", "b"), "t": value,
        "ts": (value,),
    }  # fmt: skip
    assert call.inputs == ("x", None)  # passes keep even trailing omitted inputs
    assert call.reads == ("x",)
    assert "strings=['a', 'b'], t=float16[2,2], ts=[float16[2,2]])" in program.line(call)


def one_node(node: onnx.NodeProto) -> bytes:
    """A model of one node, of x to y."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("my", 1)]
    model = helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=imports, ir_version=10)
    made: bytes = model.SerializeToString()
    return made


def test_attributes_that_are_no_data() -> None:
    gossamer.custom_op("my", "Op")(never)
    y = helper.make_tensor_value_info("inner", TensorProto.FLOAT, [2])
    body = helper.make_graph([helper.make_node("Relu", ["x"], ["inner"])], "body", [], [y])
    texts = helper.make_tensor("t", TensorProto.STRING, [1], [b"a"])
    for value, reason in ((body, "'it' is a Graph"), (texts, "'it' is a tensor of texts")):
        model = one_node(helper.make_node("Op", ["x"], ["y"], domain="my", it=value))
        with (
            gossamer.InferenceSession(model, providers=[("CUDAExecutionProvider", {"device": "null"})]) as session,
            pytest.raises(UnsupportedModel, match=f"attributes are numbers, texts and tensors; {reason}"),
        ):
            session.program({"x": np.zeros(2, np.float32)})


def test_omitted_outputs_and_outputs_that_nobody_reads() -> None:
    gossamer.custom_op("my", "Op", outputs=lambda node, x: [x] * node.n_outputs)(never)
    (call,) = python_calls(program_of(f"{HEAD} g (float[4] x) => (c) {{ a, , c, d = my.Op(x) }}", x=(4,)))
    assert call.outputs == ("a", None, "c", "d")
    assert call.writes == ("a", "c", "d")


def test_equal_nodes_stay_two_calls() -> None:
    """They may have state."""
    gossamer.custom_op("my", "Random")(never)
    text = f"{HEAD} g (float[4] x) => (y) {{ a = my.Random(x) b = my.Random(x) y = Add(a, b) }}"
    assert len(python_calls(program_of(text, x=(4,)))) == 2


def test_a_models_own_function_gives_way() -> None:
    text = f"""{HEAD} g (float[4] x) => (y) {{ [call] y = my.Twice(x) }}
        <domain: "my", opset_import: ["": 21]> Twice (a) => (b) {{ b = Add(a, a) }}"""
    assert not python_calls(program_of(text, x=(4,)))
    gossamer.custom_op("my", "Twice")(never)
    assert [call.origin.name for call in python_calls(program_of(text, x=(4,)))] == ["call"]


def test_cpu_nodes_beside_it_never_see_it() -> None:
    gossamer.custom_op("my", "Scale")(never)
    text = f"""{HEAD} g (float[4] x) => (y, found) {{
        [scale] b = my.Scale(x) found = NonZero(b) y = Relu(b) }}"""
    with session_of(text, "CPUExecutionProvider") as session:
        program = session.program({"x": np.zeros(4, np.float32)})
        placement = {placed.name: placed.provider for placed in session.placement()}
    assert [type(call).__name__ for call in program.calls] == ["PythonCall", "HostCall", "Launch"]
    assert placement["scale"] == "CUDAExecutionProvider"


def test_an_unknown_operator_is_told_how_to_register() -> None:
    with session_of(SCALE, "CPUExecutionProvider") as session, pytest.raises(UnsupportedModel) as caught:
        session.program({"x": np.zeros((1, 4), np.float32)})
    assert caught.value.remedy == "@gossamer.custom_op('my', 'Scale') registers a function of yours for such nodes."


def test_the_cpu_provider_alone_refuses() -> None:
    gossamer.custom_op("my", "Scale")(never)
    with pytest.raises(UnsupportedModel, match=r"the custom operator my\.Scale runs on the CUDA provider only"):
        gossamer.InferenceSession(parser.parse_model(SCALE).SerializeToString(), providers=["CPUExecutionProvider"])


def test_inside_a_branch_it_is_refused() -> None:
    gossamer.custom_op("my", "Scale")(never)
    text = f"""{HEAD} g (bool c, float[4] x) => (float[4] y) {{
        [choose] y = If(c) <then_branch = t () => (float[4] a) {{ a = my.Scale(x) }},
                            else_branch = e () => (float[4] b) {{ b = Relu(x) }}> }}"""
    with (
        session_of(text, "CPUExecutionProvider") as session,
        pytest.raises(UnsupportedModel, match="is inside this If"),
    ):
        session.program({"c": np.array(True), "x": np.zeros(4, np.float32)})


def test_the_null_device_executes_nothing() -> None:
    gossamer.custom_op("my", "Scale")(never)
    with session_of(SCALE) as session:
        (y,) = session.run(None, {"x": np.ones((2, 4), np.float32)})
    assert y.shape == (2, 4)


# What a function is given


@dataclass
class Recorder:
    """The driver's calls, as (function, arguments as integers)."""

    calls: list[tuple[Any, ...]] = field(default_factory=list)
    events: int = 100

    def __call__(self, function: str, *arguments: Any, doing: str = "") -> Any:
        self.calls.append((function, *map(int, arguments)))
        if function == "cuEventCreate":
            self.events += 1
        return self.events

    def names(self) -> list[str]:
        return [call[0] for call in self.calls]


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(driver, "call", recorder)
    monkeypatch.setattr(driver, "constant", lambda name: 2)
    return recorder


CALL = PythonCall("my", "Op", (("factor", 2.0),), ("x", None), ("y",), True, Origin("here", "Op", "my"))


def step_of(
    call: PythonCall = CALL, dtype: str = "float32", lend: Callable[[Any], int] = lambda stream: 99
) -> PythonStep:
    def tensor(name: str) -> DeviceTensor:
        return DeviceTensor({"x": 4096, "y": 8192}[name], np.dtype(dtype), (2, 3), 1)

    return PythonStep(call, tensor, lend, 1)


def registered(function: Callable[[KernelContext], object]) -> Callable[[KernelContext], object]:
    return gossamer.custom_op("my", "Op", replace=True)(function)


def test_the_context_of_a_gpu(recorder: Recorder) -> None:
    seen: list[KernelContext] = []
    registered(seen.append)
    step_of().enqueue(7)
    (ctx,) = seen
    assert (ctx.stream, ctx.device_id, ctx.name) == (7, 1, "here")
    assert dict(ctx.attributes) == {"factor": 2.0}
    x, nothing = ctx.inputs
    assert nothing is None
    assert (x.shape, x.dtype, x.size, x.nbytes, x.data_ptr()) == ((2, 3), np.float32, 6, 24, 4096)
    assert x.__cuda_array_interface__ == {
        "shape": (2, 3), "typestr": "<f4", "data": (4096, False), "strides": None, "version": 3
    }  # fmt: skip
    assert x.__dlpack_device__() == (2, 1)
    assert recorder.calls == []  # nothing but the function's own work costs anything


def test_dtypes_without_an_array_interface_say_so(recorder: Recorder) -> None:
    def function(ctx: KernelContext) -> None:
        (y,) = ctx.outputs
        assert not hasattr(y, "__cuda_array_interface__")
        assert dlpack.read_capsule(y.__dlpack__(stream=7)).dtype == ml_dtypes.bfloat16

    registered(function)
    step_of(dtype="bfloat16").enqueue(7)


def test_dlpack_on_the_kernels_stream_orders_nothing(recorder: Recorder) -> None:
    def function(ctx: KernelContext) -> None:
        imported = dlpack.read_capsule(ctx.inputs[0].__dlpack__(stream=7, max_version=(1, 0)))
        assert (imported.pointer, imported.shape, imported.strides) == (4096, (2, 3), (3, 1))
        assert (imported.device_type, imported.device_id) == (2, 1)
        dlpack.read_capsule(ctx.outputs[0].__dlpack__(stream=-1))  # the consumer orders its work itself

    registered(function)
    step_of().enqueue(7)
    assert recorder.calls == []


def test_dlpack_to_another_stream_is_ordered_both_ways(recorder: Recorder) -> None:
    def function(ctx: KernelContext) -> None:
        ctx.inputs[0].__dlpack__(stream=9)
        assert recorder.calls == [
            ("cuEventCreate", 2),
            ("cuEventRecord", 101, 7),
            ("cuStreamWaitEvent", 9, 101, 0),
            ("cuEventDestroy", 101),
        ]
        recorder.calls.clear()

    registered(function)
    step_of().enqueue(7)
    assert recorder.calls[1:3] == [("cuEventRecord", 102, 9), ("cuStreamWaitEvent", 7, 102, 0)]


def test_other_streams_are_taken_back_after_an_error_too(recorder: Recorder) -> None:
    def function(ctx: KernelContext) -> None:
        ctx.inputs[0].__dlpack__()  # no stream named: the legacy one
        raise ValueError("no")

    registered(function)
    with pytest.raises(ValueError, match="no"):
        step_of().enqueue(7)
    assert [call for call in recorder.calls if call[0] == "cuEventRecord"][-1] == ("cuEventRecord", 102, 1)


def test_the_legacy_stream_by_both_its_names(recorder: Recorder) -> None:
    registered(lambda ctx: ctx.inputs[0].__dlpack__(stream=1))
    step_of().enqueue(0)
    assert recorder.calls == []


def test_copies_are_not_exported() -> None:
    registered(lambda ctx: ctx.inputs[0].__dlpack__(stream=7, copy=True))
    with pytest.raises(BufferError, match="in place"):
        step_of().enqueue(7)


def test_errors_pass_with_the_node_as_a_note() -> None:
    def function(ctx: KernelContext) -> None:
        raise KeyError("missing")

    registered(function)
    with pytest.raises(KeyError) as caught:
        step_of().enqueue(7)
    assert caught.value.__notes__ == ["in custom operator my.Op (node 'here')"]


def test_a_program_may_come_to_a_process_that_lacks_the_function() -> None:
    with pytest.raises(NotFound, match=r"custom operator my.Op \(node 'here'\) is not registered in this process"):
        step_of().enqueue(7)


def test_attributes_come_back_as_arrays() -> None:
    seen: list[KernelContext] = []
    registered(seen.append)
    table = np.arange(6, dtype=ml_dtypes.bfloat16).reshape(2, 3)
    value = TensorValue("bfloat16", (2, 3), table.tobytes())
    call = PythonCall("my", "Op", (("t", value), ("ts", (value,))), (), ())
    step_of(call).enqueue(7)
    np.testing.assert_array_equal(seen[0].attributes["t"], table)
    np.testing.assert_array_equal(seen[0].attributes["ts"][0], table)
    with pytest.raises(TypeError):
        seen[0].attributes["t"] = 1  # type: ignore[index]


# cuDNN


@pytest.fixture
def absent() -> Iterator[None]:
    with loader.force_absent():
        yield


@pytest.mark.usefixtures("absent")
def test_no_handle_where_there_is_no_cudnn() -> None:
    """R4.1: None without an error; R5's text where the function insists."""

    def function(ctx: KernelContext) -> None:
        assert ctx.cudnn_handle is None
        ctx.require_cudnn("MyConv")

    registered(function)
    with pytest.raises(CudnnUnavailable) as caught:
        step_of().enqueue(7)
    assert str(caught.value) == (
        "Operator 'MyConv' on the CUDA EP requires cuDNN, but cuDNN was not found at runtime. Install cuDNN, or "
        "disable CUDA execution for this op/model. (node 'here')"
    )


def test_a_session_that_wants_none_does_not_look_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(ctx: KernelContext) -> None:
        assert ctx.cudnn_handle is None
        ctx.require_cudnn("MyConv")

    def load() -> Library:
        raise AssertionError("cuDNN was looked for")

    monkeypatch.setattr(loader, "load", load)
    registered(function)
    with pytest.raises(CudnnUnavailable, match="disabled by the CUDA provider option 'enable_cudnn'"):
        step_of(replace(CALL, cudnn=False)).enqueue(7)


def test_a_handle_is_lent_for_the_stream_when_asked_for() -> None:
    streams: list[int] = []

    def lend(stream: Any) -> int:
        streams.append(stream)
        return 99

    registered(lambda ctx: None)
    with loader.forced(Library(State.AVAILABLE)):
        step_of(lend=lend).enqueue(7)
        assert streams == []
        registered(
            lambda ctx: (ctx.cudnn_handle, ctx.require_cudnn("MyConv")) == (99, 99) or pytest.fail("another handle")
        )
        step_of(lend=lend).enqueue(7)
    assert streams == [7, 7]


def test_the_option_reaches_the_call() -> None:
    gossamer.custom_op("my", "Scale")(never)
    for enabled in (True, False):
        with session_of(SCALE, enable_cudnn=enabled) as session:
            (call,) = python_calls(session.program({"x": np.zeros((1, 4), np.float32)}))
            assert call.cudnn is enabled


# The CUDA executor's order of things


def context_of() -> ExecutionContext:
    shared: Any = SimpleNamespace(device=SimpleNamespace(ordinal=0), ledger=None)
    made = ExecutionContext(shared, 7, 8)
    made.arena = SimpleNamespace(pointer=1 << 20, nbytes=4096)  # type: ignore[assignment]
    return made


def program_with_a_call(cudnn: bool = False) -> Program:
    names = ("x", "a", "b", "y")
    buffers = {name: Buffer(name, "float32", (16,)) for name in names}
    locations = {name: Arena(256 * index) for index, name in enumerate(names)}
    call = PythonCall("my", "Op", (), ("a",), ("b",), cudnn)
    calls = (Copy("x", "a", 64), Fill("b"), call, Copy("b", "y", 64))
    return Program("m", Target.named("sm_90"), ("x",), ("y",), buffers, locations, calls, 1024, 1024)


def test_a_call_stands_between_graphs(recorder: Recorder) -> None:
    def function(ctx: KernelContext) -> None:
        recorder.calls.append(("python", ctx.stream, ctx.inputs[0].data_ptr(), ctx.outputs[0].data_ptr()))

    registered(function)
    made = context_of()
    prepared = made.prepare(program_with_a_call())
    made.execute(prepared, 5, graphs=False)
    arena = 1 << 20
    assert recorder.names() == ["cuMemcpyDtoDAsync", "cuMemsetD8Async", "python", "cuMemcpyDtoDAsync"]
    assert recorder.calls[2] == ("python", 5, arena + 256, arena + 512)
    recorder.calls.clear()
    for _ in range(2):
        made.execute(prepared, 5, graphs=True)
    order = [name for name in recorder.names() if name in ("cuGraphLaunch", "python")]
    assert order == ["cuGraphLaunch", "python", "cuGraphLaunch"] * 2
    recording = recorder.names().index("cuStreamBeginCapture"), recorder.names().index("cuStreamEndCapture")
    assert "python" not in recorder.names()[slice(*recording)]


def test_a_context_has_one_handle_made_at_first_need(monkeypatch: pytest.MonkeyPatch, recorder: Recorder) -> None:
    """R4.1, with sessions of both policies sharing what a process has."""
    made = context_of()
    lent: list[int] = []

    def create(*_: object) -> Any:
        lent.append(0)
        return SimpleNamespace(lend=lambda stream: lent.append(stream) or 99)

    monkeypatch.setattr(cudnn_steps, "CudnnSteps", create)
    seen: list[int | None] = []
    registered(lambda ctx: seen.append(ctx.cudnn_handle))
    wanting, refusing = program_with_a_call(cudnn=True), program_with_a_call()
    with loader.forced(Library(State.AVAILABLE)):
        made.execute(made.prepare(refusing), 5, graphs=False)
        assert (seen, lent) == ([None], [])
        for stream in (5, 6):
            made.execute(made.prepare(wanting), stream, graphs=False)
    assert (seen, lent) == ([None, 99, 99], [0, 5, 6])


def test_a_lent_handle_comes_back_on_any_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function may have set its stream; the next of the model's own calls must not rely on it."""
    handle = SimpleNamespace(stream=0, address=99)
    monkeypatch.setattr(cudnn_steps, "Handle", lambda: handle)
    monkeypatch.setattr(cudnn_steps.prerequisites, "prepare", lambda: None)
    steps = cudnn_steps.CudnnSteps(0, driver.Ledger())
    executed: list[int] = []
    routine = SimpleNamespace(workspace_bytes=0, execute=lambda handle, *_: executed.append(handle.stream))
    step: Any = SimpleNamespace(routine=routine, packed=None, pointers={})
    steps.enqueue(step, 5)
    assert steps.lend(5) == 99
    handle.stream = 6
    steps.enqueue(step, 5)
    assert steps.lend(7) == 99
    assert handle.stream == 7
    steps.enqueue(step, 5)
    assert executed == [5, 5, 5]


def test_tensors_tell_what_they_are() -> None:
    seen: list[KernelContext] = []
    registered(seen.append)
    step_of().enqueue(7)
    tensor = seen[0].inputs[0]
    assert isinstance(tensor, KernelTensor)
    assert repr(tensor) == "KernelTensor(float32[2, 3] on cuda:1)"
