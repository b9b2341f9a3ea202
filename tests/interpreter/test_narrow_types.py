"""Types of up to 8 bits in the interpreter: Cast and what moves elements, against the texts and onnxruntime."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import gossamer
import harness
from cases.compiled_models import narrow_weights
from cases.narrow_types import (
    CASES,
    INTEGERS,
    NARROW,
    NEWEST,
    SCALE,
    CastCase,
    bits_of,
    cast_case,
    dtype_named,
    powers_of_two,
)
from gossamer import ahead_of_time, settings
from gossamer.errors import InvalidArgument, UnsupportedModel
from gossamer.program import Kernel, Target, Weight
from gossamer.program.cubin import Cubin


@pytest.mark.parametrize("case", CASES, ids=str)
def test_narrow_types(case: CastCase) -> None:
    case.check("interpreter")


def _through_onnxruntime(case: CastCase) -> np.ndarray:
    """The case's results as float32: onnxruntime's bindings have no arrays of these types."""
    (x,), (_, shape) = case.inputs, case.output_types[0]
    to = case.attributes["to"]
    nodes = [
        helper.make_node("Cast", ["x"], ["narrow"], **case.attributes),
        helper.make_node("Cast", ["narrow"], ["y"], to=TensorProto.FLOAT),
    ]
    graph = helper.make_graph(
        nodes,
        str(to),
        [helper.make_tensor_value_info("x", harness.tensor_type(x), x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
    )
    opsets = [helper.make_opsetid("", 25)]  # onnxruntime knows none that is newer
    (y,) = harness.ort(helper.make_model(graph, opset_imports=opsets, ir_version=11), {"x": x})
    return y


ORACLE_CASES = [
    case
    for case in CASES
    if case.op_type == "Cast"
    and case.inputs[0].dtype == np.float32
    and ("cut" not in case.name or not case.name.endswith(tuple(INTEGERS)))
    and not case.name.endswith(("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"))
    and dict(map(reversed, NARROW.items())).get(case.attributes["to"])
]
"""onnxruntime has no Cast to floats of 4 and 6 bits; where it makes integers of 2 and 4, it rounds halves away from
zero."""


@pytest.mark.parametrize("case", ORACLE_CASES, ids=str)
def test_onnxruntime_agrees_with_the_references(case: CastCase) -> None:
    want, got = case.expected()[0].astype(np.float32), _through_onnxruntime(case)
    if case.name == "Cast-unsaturated-float32-float8_e5m2":
        # Where [x] > FLT_MAX, Cast's text has Inf; what is just so large that it rounds there, onnxruntime makes NaN.
        (x,) = case.inputs
        wrong = np.abs(x) == 61440
        assert np.isnan(got[wrong]).all()
        got[wrong] = want[wrong]
    np.testing.assert_array_equal(got, want)


def test_both_read_the_same_integers() -> None:
    for name in INTEGERS:
        x = np.arange(-9, 16).astype(np.float32)
        case = cast_case("whole", x, name, lambda x: x)
        (got,) = harness.run_model(case.model(), case.feeds())
        np.testing.assert_array_equal(_through_onnxruntime(case), got.astype(np.float32))


def test_what_e8m0_is_rounded_to_by_default() -> None:
    """Up, at opsets that have no round_mode, too."""
    x = np.float32([1.0, 1.1, 3.0])
    number = NARROW[SCALE]
    (got,) = harness.run_node("Cast", [x], {"to": number}, opset=23, output_types=[(number, x.shape)])
    np.testing.assert_array_equal(got.view(np.uint8), powers_of_two(x).view(np.uint8))


def test_an_unknown_round_mode_is_refused() -> None:
    case = cast_case("odd", np.float32([1.0]), SCALE, powers_of_two, round_mode="stochastic")
    with pytest.raises(UnsupportedModel, match="no round_mode 'stochastic'"):
        harness.run_model(case.model(), case.feeds())


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("op_type", ["Add", "Softmax", "ReduceMax"])
def test_arithmetic_is_refused(op_type: str, name: str) -> None:
    """ONNX allows none, and Triton's own 8-bit floats do not compile everywhere."""
    x = np.zeros((3, 4), dtype_named(name))
    inputs = [x, x] if op_type == "Add" else [x]
    shape = (1, 1) if op_type == "ReduceMax" else x.shape
    model = harness.node_model(op_type, inputs, output_types=[(NARROW[name], shape)])
    with pytest.raises(UnsupportedModel, match=f"{op_type} of {name} has no kernel"):
        harness.run_model(model, {f"x{i}": array for i, array in enumerate(inputs)})


CUDA = ("CUDAExecutionProvider", {"device": "interpreter"})
CPU = "CPUExecutionProvider"


def session(source: ModelProto | Path) -> gossamer.InferenceSession:
    given = source.SerializeToString() if isinstance(source, ModelProto) else source
    return gossamer.InferenceSession(given, providers=[CUDA, CPU])


def moving_model(name: str, weight: np.ndarray) -> ModelProto:
    """turned = xᵀ; kept = w; real = w in float32."""
    kind = NARROW[name]
    nodes = [
        helper.make_node("Transpose", ["x"], ["turned"]),
        helper.make_node("Identity", ["w"], ["kept"]),
        helper.make_node("Cast", ["w"], ["real"], to=TensorProto.FLOAT),
    ]
    outputs = [("turned", kind, ("n", 2)), ("kept", kind, weight.shape), ("real", TensorProto.FLOAT, weight.shape)]
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("x", kind, (2, "n"))],
        [helper.make_tensor_value_info(*output) for output in outputs],
        [numpy_helper.from_array(weight, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", NEWEST)], ir_version=13)


def _codes(name: str, *shape: int) -> np.ndarray:
    bits = np.random.default_rng(0).integers(0, 2 ** bits_of(name), shape, np.uint8)
    return bits.view(dtype_named(name))


def assert_same_bits(got: np.ndarray, want: np.ndarray) -> None:
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    np.testing.assert_array_equal(got.view(np.uint8), want.view(np.uint8))


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("compiled", [False, True], ids=["model", "compiled"])
def test_inputs_outputs_and_initializers(name: str, compiled: bool, tmp_path: Path, machine_code: None) -> None:
    """Packed initializers of odd sizes become an element a byte, in memory, in arrays and in compiled files."""
    weight, x = _codes(name, 3, 5), _codes(name, 2, 7)
    model = moving_model(name, weight)
    source: ModelProto | Path = model
    if compiled:
        source = tmp_path / "model.gossamer"
        gossamer.compile_model(model, source, targets="interpreter", signatures=[{"x": x.shape}], cudnn="no")
    with settings.override(DEVICE="interpreter"), session(source) as opened:
        text = f"tensor({TensorProto.DataType.Name(NARROW[name]).lower()})"
        assert opened.get_inputs()[0].type == text
        assert [output.type for output in opened.get_outputs()] == [text, text, "tensor(float)"]
        turned, kept, real = opened.run(None, {"x": x})
        binding = opened.io_binding()
        value = gossamer.OrtValue.ortvalue_from_numpy(x, "cuda", 0)
        assert (value.data_type(), value.element_type()) == (text, NARROW[name])
        binding.bind_ortvalue_input("x", value)
        binding.bind_output("turned", "cuda", 0)
        opened.run_with_iobinding(binding)
        (bound,) = binding.copy_outputs_to_cpu()
    assert_same_bits(turned, np.ascontiguousarray(x.T))
    assert_same_bits(bound, turned)
    assert_same_bits(kept, weight)
    np.testing.assert_array_equal(real, weight.astype(np.float32))


@pytest.fixture
def machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that interprets does not compile: machine code is made up."""

    def compiled(kernels: Iterable[Kernel], target: Target) -> dict[Kernel, Cubin]:
        return {kernel: Cubin(kernel.function, target.arch, 4, 0, 0, 1, (), "none", b"none") for kernel in kernels}

    monkeypatch.setattr(ahead_of_time, "compile_kernels", compiled)


def test_weights_of_4_bits_stay_what_they_are() -> None:
    """DequantizeLinear of a constant is not folded: the device holds its codes, and reals only while they are used."""
    model = narrow_weights()
    with session(model) as opened:
        feeds = {"x": np.ones((5, 96), np.float32)}
        program = opened.program(feeds)
        assert {node.provider for node in opened.placement()} == {CUDA[0]}
    held = [program.buffers[name] for name, place in program.locations.items() if isinstance(place, Weight)]
    assert {buffer.dtype for buffer in held} == {"uint4", "float8_e4m3fn", "float32"}
    assert sum(buffer.nbytes for buffer in held) == 99 * 64 + 64 * 40 + (3 * 64 + 40) * 4


def test_casts_of_constants_follow_the_texts_too() -> None:
    """onnx.reference, which folds constants, would cut 1.5 and make −0 of NaN."""
    for name, want in (("int4", [2, -2, 2]), ("float4_e2m1fn", [1.5, -1.5, 6])):
        constant = np.float32([1.5, -1.5, np.nan if name != "int4" else 2.5])
        nodes = [
            helper.make_node("Cast", ["w"], ["narrow"], to=NARROW[name]),
            helper.make_node("Cast", ["narrow"], ["real"], to=TensorProto.FLOAT),
            helper.make_node("Add", ["x", "real"], ["y"]),
        ]
        x, y = (helper.make_tensor_value_info(one, TensorProto.FLOAT, (3,)) for one in "xy")
        graph = helper.make_graph(nodes, name, [x], [y], [numpy_helper.from_array(constant, "w")])
        with session(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", NEWEST)], ir_version=13)
        ) as opened:
            (got,) = opened.run(None, {"x": np.zeros(3, np.float32)})
        np.testing.assert_array_equal(got, want)


def block_quantized_rows(data: np.ndarray, scales: np.ndarray) -> ModelProto:
    """rows = rows of data, dequantised, by an operator that runs on the CPU; y = −rows."""
    attributes = {"gather_axis": 0, "quantize_axis": 1, "block_size": 16}
    nodes = [
        helper.make_node(
            "GatherBlockQuantized", ["data", "i", "scales"], ["rows"], domain="com.microsoft", **attributes
        ),
        helper.make_node("Neg", ["rows"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "rows",
        [helper.make_tensor_value_info("i", TensorProto.INT64, (3,))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (3, 32))],
        [numpy_helper.from_array(data, "data"), numpy_helper.from_array(scales, "scales")],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def test_onnxruntime_gets_narrow_constants() -> None:
    data = _codes("int4", 6, 32)
    scales = np.random.default_rng(1).uniform(0.1, 0.2, (6, 2)).astype(np.float32)
    rows = np.array([1, 5, 0])
    with session(block_quantized_rows(data, scales)) as opened:
        (got,) = opened.run(None, {"i": rows})
        assert CPU in {node.provider for node in opened.placement()}
    np.testing.assert_array_equal(got, -(data.astype(np.float32) * np.repeat(scales, 16, 1))[rows])


def test_onnxruntime_cannot_be_handed_narrow_arrays() -> None:
    """A node that only the CPU provider could take, between whose branches data choose."""
    x, y, o = (helper.make_tensor_value_info(name, TensorProto.INT4, (4,)) for name in "xyo")
    branches = {
        f"{which}_branch": helper.make_graph([helper.make_node(op, ["x"], ["o"])], which, [], [o])
        for which, op in (("then", "Identity"), ("else", "Transpose"))
    }
    node = helper.make_node("If", ["c"], ["y"], **branches)
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, ())
    graph = helper.make_graph([node], "choice", [condition, x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    with pytest.raises(UnsupportedModel, match=r"takes and gives no arrays of int4 \('x'\)"):
        session(model).run(None, {"c": np.array(True), "x": _codes("int4", 4)})


def test_dlpack_has_e8m0_and_no_elements_below_8_bits() -> None:
    scales = _codes(SCALE, 6)
    again = gossamer.OrtValue.from_dlpack(gossamer.OrtValue.ortvalue_from_numpy(scales))
    assert_same_bits(again.numpy(), scales)
    with pytest.raises(InvalidArgument, match="no dtype for float4_e2m1fn of 8 bits an element"):
        gossamer.OrtValue.ortvalue_from_numpy(np.zeros(2, ml_dtypes.float4_e2m1fn)).to_dlpack()
