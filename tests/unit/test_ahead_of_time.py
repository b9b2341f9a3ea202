"""Compiling ahead of time: what file and report say, options, and every error. Machine code is made up. (R10)"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import gossamer
from cases.compiled_models import convolution, one_name_for_two_weights, with_a_node_on_the_cpu, with_weights
from gossamer import ahead_of_time, compiler, settings
from gossamer.ahead_of_time import ProgramReport, Report
from gossamer.cudnn import DeviceProperties, loader, plan_cache, prerequisites
from gossamer.cudnn.loader import Library, State
from gossamer.cudnn.plan_cache import Planned, Task
from gossamer.errors import CompilationError, EPFail, InvalidArgument, NoSuchFile, PlanError, UnsupportedModel
from gossamer.model.node import Constants, Node
from gossamer.options import CudaOptions
from gossamer.place import CPU, CUDA
from gossamer.program import Call, CudnnCall, Kernel, Target
from gossamer.program.artifact import Artifact, open_artifact
from gossamer.program.cubin import Cubin
from gossamer.providers import cudnn
from gossamer.providers.cudnn import Policy, graphs, tuning
from gossamer.providers.cudnn.tuning import Tuner
from gossamer.session import SessionOptions

pytest.importorskip("triton")

VARYING = with_weights("g (float[N,8] x, float[8,4] w) => (float[N,4] y) { y = MatMul (x, w) }", "w")
POOLS = """g (float[1,8,16,16] x, float[8,8,3,3] w) => (float[1,8,8,8] y) {
    c = Conv <pads = [1,1,1,1]> (x, w) y = MaxPool <kernel_shape = [2,2], strides = [2,2]> (c) }"""


@pytest.fixture(autouse=True)
def compiled_kernels(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Takes the compiler's place; how many kernels it was given, by target."""
    asked: Counter[str] = Counter()

    def compile_kernels(kernels: Iterable[Kernel], target: Target) -> dict[Kernel, Cubin]:
        wanted = dict.fromkeys(kernels)
        asked[target.name] += len(wanted)
        return {kernel: cubin(kernel, target) for kernel in wanted}

    def cubin(kernel: Kernel, target: Target) -> Cubin:
        code = hashlib.sha256(f"{kernel} {target.arch}".encode()).digest()
        return Cubin(kernel.function, target.arch, 4, 0, 0, 1, (), "3.9.0", code, "12.9")

    monkeypatch.setattr(ahead_of_time, "compile_kernels", compile_kernels)
    return asked


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.gossamer"


def compiled(source: Any, path: Path, **how: Any) -> tuple[Report, Artifact]:
    report = gossamer.compile_model(source, path, **{"targets": "sm_90", "cudnn": "no"} | how)
    artifact = open_artifact(path)
    artifact.verify()
    return report, artifact


# What is in the file


def test_every_target_and_signature(path: Path) -> None:
    signatures = [{"x": (n, 8)} for n in (1, 2, 2)]
    report, artifact = compiled(VARYING, path, targets=["sm_80", "h200", "SM_80"], signatures=signatures)
    wanted = [(target, {"x": (n, 8)}) for target in ("sm_80", "h200") for n in (1, 2)]
    assert [(program.target, dict(program.shapes)) for program in report.programs] == wanted
    for target, shapes in wanted:
        assert artifact.variant(target, shapes).program.inputs == ("x",)
    assert {target.name for target in artifact.targets} == {"sm_80", "h200"}


def test_what_the_report_says(path: Path, compiled_kernels: Counter[str]) -> None:
    report, artifact = compiled(convolution(), path)
    (program,) = report.programs
    made = artifact.variant("sm_90", program.shapes).program
    assert program == ProgramReport(
        "sm_90",
        {"x": (2, 3, 12, 12)},
        {CUDA: len(artifact.variant("sm_90", program.shapes).placement.nodes)},
        cpu_nodes=(),
        refused=(),
        convolutions=2,
        tuned=0,
        kernels=len(made.kernels),
        launches=len(list(made.launches)),
        plans=0,
        arena_bytes=made.arena_bytes,
        needs=(),
    )
    assert compiled_kernels == {"sm_90": program.kernels}
    assert report.path == str(path)
    assert report.file_bytes == path.stat().st_size
    assert 0 < report.weights_bytes + report.code_bytes + report.program_bytes < report.file_bytes
    assert report.versions == artifact.description.versions
    assert report.versions == {"gossamer": gossamer.__version__, "triton": "3.9.0", "ptxas": "12.9"}
    assert (report.cpu_nodes, report.needs, report.tuning) == ((), (), "")


def test_targets_share_weights(path: Path, tmp_path: Path) -> None:
    """And so do signatures. (Where products are made in TF32, weights are rounded to it, and not all products are.)"""
    how = {"provider_options": {"use_tf32": 0}}
    both, _ = compiled(VARYING, path, targets=["sm_80", "sm_86"], signatures=[{"x": (1, 8)}, {"x": (5, 8)}], **how)
    alone, _ = compiled(VARYING, tmp_path / "alone.gossamer", targets="sm_80", signatures=[{"x": (1, 8)}], **how)
    assert len(both.programs) == 4
    assert both.weights_bytes == alone.weights_bytes


def test_what_the_model_says_about_itself(path: Path) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(VARYING)
    model.producer_name, model.model_version = "a test", 7
    model.metadata_props.add(key="names", value="a,b")
    _, artifact = compiled(model, path, signatures=[{"x": (1, 8)}])
    with gossamer.InferenceSession(path, providers=[(CUDA, {"device": "null"})]) as session:
        told = session.get_modelmeta()
        assert (told.producer_name, told.version, told.custom_metadata_map) == ("a test", 7, {"names": "a,b"})
        assert session.get_inputs()[0].shape == ["N", 8]
    assert artifact.description.outputs[0].shape == ("N", 4)


def test_external_weights_are_inside(tmp_path: Path, path: Path) -> None:
    """The folder of the model can go. (R10)"""
    folder = tmp_path / "source"
    folder.mkdir()
    model = convolution()
    expected = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    onnx.save(model, folder / "model.onnx", save_as_external_data=True, size_threshold=0, location="weights.bin")
    assert (folder / "weights.bin").stat().st_size >= sum(array.nbytes for array in expected.values())
    gossamer.compile_model(folder / "model.onnx", path, targets="sm_80", cudnn="no", provider_options={"use_tf32": 0})
    shutil.rmtree(folder)
    artifact = open_artifact(path)
    artifact.verify()
    np.testing.assert_array_equal(artifact.weights["b"], expected["b"])
    assert sum(array.size for array in artifact.weights.values()) >= sum(array.size for array in expected.values())


def test_two_weights_of_one_name_stay_two(path: Path) -> None:
    """Initialisers of two nodes' subgraphs. (R10)"""
    model = one_name_for_two_weights()
    _, artifact = compiled(model, path)
    held = {key: array for key, array in artifact.weights.items() if array.shape == (4, 4)}
    assert len({array.tobytes() for array in held.values()}) == len(held) >= 2


def test_two_zero_points_of_one_weight_stay_two(path: Path) -> None:
    """They are packed with the weight that they belong to."""
    text = """g (float[2,1,4] x) => (float[2,1,1,4] y, float[2,1,1,4] z)
        <int8[1,4,16] w, int8[1,4,16] r, float[1] s = {0.1}, int8[1] one = {1}, int8[1] two = {2}> {
        y = com.microsoft.DynamicQuantizeLSTM <hidden_size = 4> (x, w, r, , , , , , s, one, s, one)
        z = com.microsoft.DynamicQuantizeLSTM <hidden_size = 4> (x, w, r, , , , , , s, two, s, two) }"""
    model = with_weights(text.replace("<int8[1,4,16] w, int8[1,4,16] r,", "<"), opset=20)
    zeros = np.zeros((1, 4, 16), np.int8)
    model.graph.initializer.extend(numpy_helper.from_array(zeros, name) for name in "wr")
    _, artifact = compiled(model, path, provider_options={"use_tf32": 0})
    packed = [array for key, array in artifact.weights.items() if key.startswith("w#")]
    assert sorted({float(array.flat[0]) for array in packed}) == pytest.approx([-0.2, -0.1])


def test_the_same_bytes_in_whatever_order(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.gossamer"
    compiled(VARYING, path, targets=["sm_80", "sm_90"], signatures=[{"x": (1, 8)}, {"x": (2, 8)}])
    compiled(VARYING, other, targets=["sm_90", "sm_80"], signatures=[{"x": (2, 8)}, {"x": (1, 8)}])
    assert path.read_bytes() == other.read_bytes()


def test_constants_of_all_targets_under_their_keys(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one target packs under a key is what every other one would: they share it."""

    class Checked(Constants):
        def derive(self, key: str, make: Callable[[], np.ndarray]) -> None:
            if key in self:
                again.append(key)
                np.testing.assert_array_equal(self[key], make())
            super().derive(key, make)

    again: list[str] = []
    monkeypatch.setattr(compiler, "Constants", Checked)
    names = ["sm_75", "sm_80", "sm_89", "sm_90", "sm_100", "sm_120", "interpreter"]
    for model in (convolution(), with_weights(POOLS, "w")):
        compiled(model, path, targets=names)
    assert len(again) > len(names)


# Nodes on the CPU


def test_nodes_on_the_cpu_are_said(path: Path) -> None:
    """(R10)"""
    report, artifact = compiled(with_a_node_on_the_cpu(), path)
    (node,) = report.cpu_nodes
    assert re.fullmatch(r"NonZero: no kernel .* \(NonZero_\d\)", node)
    assert report.needs == ("onnxruntime",)
    assert report.programs[0].nodes[CPU] == 1
    assert artifact.needs("sm_90", report.programs[0].shapes, cudnn=False) == ("onnxruntime",)


def test_strict_keeps_them_out(path: Path) -> None:
    session = SessionOptions()
    session.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    for how in ({"provider_options": {"strict": 1}}, {"sess_options": session}):
        with pytest.raises(UnsupportedModel, match="NonZero"):
            compiled(with_a_node_on_the_cpu(), path, **how)
    assert not path.exists()


# Options


def program_of(path: Path, **how: Any) -> Any:
    report, artifact = compiled(convolution(), path, **how)
    return artifact.variant("sm_90", report.programs[0].shapes).program


def test_options_that_are_about_compiling(path: Path) -> None:
    fused, target = program_of(path), program_of(path).target
    assert (target.use_tf32, target.deterministic) == (True, False)
    assert not program_of(path, provider_options={"use_tf32": "0"}).target.use_tf32
    session = SessionOptions()
    session.use_deterministic_compute = True
    session.graph_optimization_level = gossamer.GraphOptimizationLevel.ORT_DISABLE_ALL
    unfused = program_of(path, sess_options=session)
    assert unfused.target.deterministic
    assert "Relu" in {call.origin.op_type for call in unfused.calls} - {call.origin.op_type for call in fused.calls}
    null = [("CUDAExecutionProvider", {"device": "null"})]
    gossamer.InferenceSession(path, session, null)
    assert str(program_of(path, provider_options={"prefer_nhwc": 0})) != str(fused)
    session.use_deterministic_compute = False
    with pytest.raises(InvalidArgument, match="ORT_DISABLE_ALL is decided when a model is compiled"):
        gossamer.InferenceSession(path, session, null)


def test_dimensions_of_session_options(path: Path) -> None:
    session = SessionOptions()
    session.add_free_dimension_override_by_name("N", 3)
    report, _ = compiled(VARYING, path, sess_options=session)
    assert report.programs[0].shapes == {"x": (3, 8)}
    with pytest.raises(InvalidArgument, match="dimension 0 is 4 instead of 3"):
        compiled(VARYING, path, sess_options=session, signatures=[{"x": (4, 8)}])


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("device_id", 1, "give it to the session"),
        ("gpu_mem_limit", 1, "give it to the session"),
        ("user_compute_stream", 1, "give it to the session"),
        ("target", "sm_80", "the argument `targets`"),
        ("enable_cudnn", 0, "the argument `cudnn`"),
        ("cudnn_only", "Conv", "runs without cuDNN, too"),
        ("cudnn_conv_algo_search", "EXHAUSTIVE", "measures on the device"),
        ("prefer_nwhc", 1, "did you mean 'prefer_nhwc'"),
        ("use_tf32", 3, "accepted are 1, 0"),
    ],
)
def test_options_that_are_not(path: Path, option: str, value: object, why: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{option}.*{why}"):
        compiled(VARYING, path, provider_options={option: value})


def test_every_option_is_taken_or_refused_with_a_reason() -> None:
    """None is read and has no effect."""
    effective = {"strict", "cudnn_conv_algo_search", "sdpa_kernel", "prefer_nhwc", "use_tf32"}
    assert CudaOptions().as_provider_options().keys() == effective | ahead_of_time._NOT_TAKEN.keys()


# What is wrong with the arguments


def test_only_tensors_are_given_a_shape(path: Path) -> None:
    text = "g (seq(float[2]) s, int64 i) => (float[2] y) { y = SequenceAt (s, i) }"
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> {text}')
    assert compiled(model, path)[0].needs == ("onnxruntime",)
    with pytest.raises(InvalidArgument, match=r"input 's' is seq\(tensor\(float\)\): only tensors"):
        compiled(model, path, signatures=[{"s": (2,)}])


@pytest.mark.parametrize(
    ("signatures", "text"),
    [
        ([], r"dimension 0 \(N\) of input 'x' is open: .*--input-shape x=Nx8"),
        ([{"y": (1, 8)}], "no input 'y'"),
        ([{"x": (1, 9)}], "dimension 1 is 9 instead of 8"),
        ([{"x": (8,)}], "rank 1 instead of 2"),
        ([{"x": (-1, 8)}], "a dimension of input 'x'='-1': accepted are whole numbers from 0"),
        ([{"x": (None, 8)}], "a dimension of input 'x'='None'"),
        ([{"x": "1x8"}], "a dimension of input 'x'='x'"),
        ({"x": (1, 8)}, "signatures is a sequence of dictionaries"),
    ],
)
def test_shapes_that_do_not_do(path: Path, signatures: Any, text: str) -> None:
    """A symbolic dimension without a value is one of them."""
    with pytest.raises(InvalidArgument, match=text):
        compiled(VARYING, path, signatures=signatures)


def test_an_input_of_any_rank(path: Path) -> None:
    tensor = helper.make_tensor_value_info("x", TensorProto.FLOAT, None)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [tensor], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    with pytest.raises(InvalidArgument, match="input 'x' has no declared rank"):
        compiled(model, path)
    report, _ = compiled(model, path, signatures=[{"x": (2, 3)}])
    assert report.programs[0].shapes == {"x": (2, 3)}


@pytest.mark.parametrize(
    ("targets", "text"),
    [("sm_90,sm_80", "unknown target"), ("sm_91", "unknown target.*sm_91.*sm_90"), ([], "at least one is wanted")],
)
def test_targets_that_do_not_do(path: Path, targets: Any, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        compiled(VARYING, path, targets=targets)


def test_a_target_by_the_path_of_its_file(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(Target.named("l4").properties)
    report, _ = compiled(VARYING, path, targets=file, signatures=[{"x": (1, 8)}])
    assert [program.target for program in report.programs] == ["mine"]


def test_options_are_session_options(path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"sess_options is a gossamer\.SessionOptions, got a dict"):
        compiled(VARYING, path, sess_options={})


def test_two_targets_of_one_name(path: Path, compiled_kernels: Counter[str]) -> None:
    """Found before anything is compiled for them."""
    target = Target.named("h200")
    with pytest.raises(InvalidArgument, match=r"2 that differ are called 'h200'.*rename"):
        compiled(VARYING, path, targets=[target, replace(target, sm_count=100)], signatures=[{"x": (1, 8)}])
    assert not compiled_kernels


def test_files_that_cannot_be_written(tmp_path: Path, compiled_kernels: Counter[str]) -> None:
    source, weights = tmp_path / "model.onnx", tmp_path / "weights.bin"
    onnx.save(convolution(), source, save_as_external_data=True, size_threshold=0, location=weights.name)
    before = source.read_bytes(), weights.read_bytes()
    own = "the model itself, or holds its weights"
    for file, why in ((tmp_path, "a folder"), (tmp_path / "no" / "file", "no folder"), (source, own), (weights, own)):
        with pytest.raises(InvalidArgument, match=why):
            compiled(source, file)
    assert (source.read_bytes(), weights.read_bytes()) == before
    assert not compiled_kernels


def test_what_only_writing_finds(tmp_path: Path) -> None:
    """A name that is too long, as a full disk would be: named, and nothing is left."""
    file = tmp_path / ("x" * 300)
    with pytest.raises(InvalidArgument, match="x cannot be written: File name too long"):
        compiled(convolution(), file)
    assert not list(tmp_path.iterdir())


def test_a_failure_leaves_the_file_that_was_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(convolution(), path)
    before = path.read_bytes()

    def fail(kernels: object, target: Target) -> None:
        raise CompilationError("a kernel", target.name, "no")

    monkeypatch.setattr(ahead_of_time, "compile_kernels", fail)
    with pytest.raises(CompilationError):
        compiled(VARYING, path, signatures=[{"x": (1, 8)}])
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


# cuDNN


@pytest.fixture
def planner(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """A cuDNN with two engines for every graph; for which devices it planned, and how often."""
    devices: Counter[str] = Counter()

    def planned(task: Task, properties: DeviceProperties, most: int = 1) -> tuple[Planned, ...]:
        devices[properties.device_name] += 1
        if "RUNTIME_COMPILATION" in task.require:
            raise PlanError("NOT_SUPPORTED", "no engine")
        text = f"{properties.device_name} {task.description}".encode()
        return tuple(Planned(text + b"%d" % i, f"engine {7 + i} (A, {i})") for i in range(min(most, 2)))

    monkeypatch.setattr(graphs, "planned", planned)
    monkeypatch.setattr(plan_cache.driver_stand_in, "load", lambda: None)
    monkeypatch.setattr(prerequisites, "prepare", lambda: None)
    with loader.forced(Library(State.AVAILABLE, version=92801, lacking=frozenset())):
        yield devices


def calls_of(artifact: Artifact, target: str, *, cudnn: bool) -> tuple[Call, ...]:
    (shapes,) = artifact.signatures(target)
    return artifact.variant(target, shapes, cudnn=cudnn).program.calls


def test_a_program_with_cudnn_and_one_without(path: Path, planner: Counter[str]) -> None:
    report, artifact = compiled(convolution(), path, cudnn="auto")
    with_cudnn, native = report.programs
    assert (with_cudnn.needs, native.needs, report.needs) == (("cudnn",), (), ())
    assert (with_cudnn.plans, native.plans) == (2, 0)
    assert with_cudnn.nodes["cuDNN"] == 2
    assert report.versions["cudnn"] == "9.28.1"
    plans = [call for call in calls_of(artifact, "sm_90", cudnn=True) if isinstance(call, CudnnCall)]
    assert len(plans) == 2
    assert not any(isinstance(call, CudnnCall) for call in calls_of(artifact, "sm_90", cudnn=False))


def test_plans_are_for_their_target(path: Path, planner: Counter[str]) -> None:
    """Properties of each target reach cuDNN."""
    names = {"sm_80": "NVIDIA A100-SXM4-80GB", "h200": "NVIDIA H200", "l4": "NVIDIA L4"}
    _, artifact = compiled(convolution(), path, targets=list(names), cudnn="auto")
    assert planner.keys() == set(names.values())
    for target, device in names.items():
        plans = [getattr(call, "plan", b"") for call in calls_of(artifact, target, cudnn=True)]
        plans = [plan for plan in plans if plan]
        assert plans
        assert all(plan.startswith(device.encode()) for plan in plans)


@pytest.mark.parametrize(("use", "through_cudnn"), [("auto", {"Conv"}), ("yes", {"Conv", "MaxPool"})])
def test_auto_is_what_is_preferred_and_yes_is_everything(
    path: Path, planner: Counter[str], use: str, through_cudnn: set[str]
) -> None:
    """On sm_90 the native pools were measured to be faster."""
    report, artifact = compiled(with_weights(POOLS, "w"), path, cudnn=use)
    placement = artifact.variant("sm_90", report.programs[0].shapes, cudnn=True).placement
    assert {node.op_type for node in placement if node.through_cudnn} == through_cudnn


def test_no_does_not_look_for_cudnn(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """(R3.3)"""
    monkeypatch.setattr(loader, "load", lambda: pytest.fail("cuDNN was looked for"))
    compiled(convolution(), path, cudnn="no")


def test_the_setting_of_sessions_counts(path: Path, planner: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """GOSSAMER_ENABLE_CUDNN=0 is what auto goes by; yes says more."""
    monkeypatch.setenv("GOSSAMER_ENABLE_CUDNN", "0")
    assert [program.plans for program in compiled(convolution(), path, cudnn="auto")[0].programs] == [0]
    assert not planner
    with_plans, native = compiled(convolution(), path, cudnn="yes")[0].programs
    assert with_plans.plans > native.plans == 0


def test_a_cudnn_that_cannot_plan(path: Path, planner: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With yes that is an error; without, every node is native, and the report says why."""

    def refuse(*_: object, **__: object) -> None:
        raise PlanError("PREREQUISITE_MISSING", "cuDNN needs a library; pip install it")

    monkeypatch.setattr(prerequisites, "prepare", refuse)
    monkeypatch.setattr(graphs, "planned", refuse)
    with pytest.raises(PlanError, match="pip install it"):
        compiled(convolution(), path, cudnn="yes")
    assert not path.exists()
    report, _ = compiled(convolution(), path, targets=["h200", "sm_90"], cudnn="auto")
    assert [program.plans for program in report.programs] == [0, 0]
    assert report.refused == ("2 nodes: PREREQUISITE_MISSING: cuDNN needs a library; pip install it",)


def test_without_cudnn(path: Path) -> None:
    """auto goes native without a word; yes is one error that says what to do."""
    with loader.forced(Library(State.MISSING, "cuDNN was not found at runtime.")):
        report, _ = compiled(convolution(), path, cudnn="auto")
        assert [program.plans for program in report.programs] == [0]
        assert "cudnn" not in report.versions
        with pytest.raises(EPFail, match=r"pip install 'gossamer\[cudnn\]'") as raised:
            compiled(convolution(), path, cudnn="yes")
        assert "not found" in raised.value.__notes__[0]
    with pytest.raises(InvalidArgument, match="'auto', 'yes' or 'no', got 'maybe'"):
        compiled(convolution(), path, cudnn="maybe")


# Tuning tables


@pytest.fixture
def table(tmp_path: Path, planner: Counter[str]) -> Callable[..., Path]:
    """(seconds of native kernels, of plans, device) → the tuning cache of a session that measured one of the model's
    two convolutions."""

    def measure(native: float, engine: float, device: str = "NVIDIA H200") -> Path:
        def seconds_of(node: Node, calls: tuple[Call, ...]) -> float:
            return engine if any(isinstance(call, CudnnCall) for call in calls) else native

        policy = Policy(True, search="EXHAUSTIVE", tuner=Tuner(device, seconds_of))
        with settings.override(CACHE_DIR=tmp_path / "there"), pytest.MonkeyPatch.context() as patched:
            patched.setattr(ahead_of_time, "_policies", lambda *_: (policy, cudnn.NEVER))
            gossamer.compile_model(convolution(), tmp_path / "measured", targets="h200", cudnn="auto")
            held = json.loads(tuning.path().read_text())
            kept = {key: entry for key, entry in held["entries"].items() if ",3,3]" in entry["node"]["inputs"][1]}
            assert (len(held["entries"]), len(kept)) == (2, 1)
            tuning.path().write_text(json.dumps(held | {"entries": kept}))
            return tuning.path()

    return measure


@pytest.mark.parametrize(("native", "engine", "through_cudnn"), [(1e-6, 5e-6, 1), (5e-6, 1e-6, 2)])
def test_a_table_decides(
    path: Path, table: Callable[..., Path], native: float, engine: float, through_cudnn: int
) -> None:
    """The first convolution as it was measured, the second as heuristics say: through cuDNN."""
    measured = table(native, engine)
    before = measured.read_bytes()
    report, artifact = compiled(convolution(), path, targets="h200", cudnn="auto", tuning=measured)
    program = report.programs[0]
    assert (program.tuned, program.convolutions, program.plans) == (1, 2, through_cudnn)
    assert report.tuning == str(measured)
    placement = artifact.variant("h200", program.shapes, cudnn=True).placement
    assert [node.choice[:16] for node in placement if node.choice] == ["measured before:"]
    assert measured.read_bytes() == before


def test_a_table_that_names_a_plan_which_is_no_more(path: Path, table: Callable[..., Path]) -> None:
    file = table(5e-6, 1e-6)
    held = json.loads(file.read_text())
    for entry in held["entries"].values():
        entry["way"] = "cuDNN fused, engine 99 (A, 0)"
    file.write_text(json.dumps(held))
    report, _ = compiled(convolution(), path, targets="h200", cudnn="auto", tuning=file)
    assert (report.programs[0].tuned, report.programs[0].plans) == (0, 2)


def test_a_table_of_another_device(path: Path, table: Callable[..., Path]) -> None:
    file = table(1e-6, 5e-6, device="NVIDIA L4")
    with pytest.raises(InvalidArgument, match=r"about NVIDIA L4; the targets are sm_80 \(NVIDIA A100.*\), h200 \(NVI"):
        compiled(convolution(), path, targets=["sm_80", "h200"], cudnn="auto", tuning=file)


def test_a_table_without_cudnn(path: Path, table: Callable[..., Path]) -> None:
    file = table(1e-6, 5e-6)
    with pytest.raises(InvalidArgument, match="cudnn is 'no'"):
        compiled(convolution(), path, targets="h200", cudnn="no", tuning=file)
    with (
        loader.forced(Library(State.MISSING, "cuDNN was not found at runtime.")),
        pytest.raises(InvalidArgument, match="not found"),
    ):
        compiled(convolution(), path, targets="h200", cudnn="auto", tuning=file)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff", b"[]", b'{"format": 2, "entries": {}}', b'{"format": 1, "entries": {"a": {"way": 1}}}'],
    ids=repr,
)
def test_a_damaged_table(path: Path, tmp_path: Path, planner: Counter[str], content: bytes) -> None:
    file = tmp_path / "tuning.json"
    with pytest.raises(NoSuchFile, match=r"tuning\.json"):
        compiled(convolution(), path, cudnn="auto", tuning=file)
    file.write_bytes(content)
    with pytest.raises(InvalidArgument, match=r"tuning table .*tuning\.json (is damaged|cannot be read)"):
        compiled(convolution(), path, cudnn="auto", tuning=file)
