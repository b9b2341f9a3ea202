"""Sessions over compiled models, as far as no kernel has to run: what is chosen, what is refused, and with what words.

Machine code and plans in these files are made up. Where a GPU is meant, one of our choice is there, and what would run
on it is a `Recorder`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gossamer
from compiled_files import CUDA, KERNEL, WEIGHTS, compiled, compiled_native, native, program, variant
from gossamer import compiled_model, custom_ops, execution
from gossamer.compiled_model import CompiledEngine
from gossamer.cudnn import DeviceProperties, fitting, loader, plan_cache
from gossamer.errors import (
    ArtifactError,
    DeviceNotFound,
    GossamerError,
    InvalidArgument,
    InvalidProtobuf,
    UnsupportedModel,
)
from gossamer.options import CompileOptions, CudaOptions
from gossamer.program import Call, CudnnCall, Kernel, Launch, Origin, Program, PythonCall, Target
from gossamer.program.artifact import open_artifact
from gossamer.program.cubin import Compile, Cubin
from gossamer.program.model_metadata import ModelMetadata
from gossamer.program.placement import PlacedRecord, Placement
from gossamer.session import InferenceSession, SessionOptions
from gossamer.session import providers as provider_lists


def with_cpu(**options: Any) -> list[Any]:
    return [(CUDA, {"device": "null"} | options), "CPUExecutionProvider"]


def session(path: Path, sess_options: SessionOptions | None = None, **options: Any) -> InferenceSession:
    return InferenceSession(path, sess_options, with_cpu(**options))


def rows(count: int) -> dict[str, np.ndarray]:
    return {"x": np.ones((count, 4), np.float32)}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For sm_80 and sm_90, with 2 and 8 rows, with and without cuDNN; the last node runs on the CPU."""
    return compiled(tmp_path_factory.mktemp("compiled"))


@pytest.fixture(scope="module")
def on_gpu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of it on the GPU, for two rows."""
    return compiled_native(tmp_path_factory.mktemp("on_gpu"), native(variant("sm_90")))


@dataclass
class Recorder:
    """An executor that looks up what a Program needs and gives zeros."""

    constants: Mapping[str, np.ndarray]
    compile: Compile
    options: CudaOptions
    ran: list[Program] = field(default_factory=list)
    code: dict[Kernel, Cubin] = field(default_factory=dict)
    dropped: list[Program] = field(default_factory=list)
    closed: int = 0

    def run(self, program: Program, feeds: Mapping[str, Any], outputs: Sequence[str], **how: Any) -> dict[str, Any]:
        self.ran.append(program)
        self.code |= self.compile(program.kernels, program.target)
        return {name: np.zeros(program.buffers[name].shape, np.float32) for name in outputs}

    def time_calls(self, program: Program, feeds: Mapping[str, Any]) -> list[tuple[Call, float]]:
        return []

    def drop(self, program: Program) -> None:
        self.dropped.append(program)

    def close(self) -> None:
        self.closed += 1

    def active(self) -> AbstractContextManager[None]:
        return nullcontext()


Gpu = Callable[..., CompiledEngine]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """(path, arch, sm_count=…, option=…) → an engine on such a GPU."""

    def engine(
        path: Path, arch: int, sm_count: int = 132, options: CompileOptions | None = None, **given: Any
    ) -> CompiledEngine:
        present = replace(Target.named(f"sm_{arch}"), sm_count=sm_count, device=given.get("device_id", 0))
        monkeypatch.setattr(compiled_model, "target_of", lambda cuda: present)
        monkeypatch.setattr(
            compiled_model, "executor_for", lambda cuda, constants, compile, host: Recorder(constants, compile, cuda)
        )
        cuda = CudaOptions(device="cuda", **{"enable_cudnn": True} | given)
        return CompiledEngine(str(path), cuda, options or CompileOptions(), cpu_listed=True)

    return engine


def recorder(engine: CompiledEngine) -> Recorder:
    made: Any = engine._executor
    assert isinstance(made, Recorder)
    return made


# What a session tells


def test_it_is_told_by_its_content_not_by_its_name(path: Path, tmp_path: Path) -> None:
    renamed = shutil.copy(path, tmp_path / "model.onnx")
    with session(renamed) as opened:
        assert [slot.name for slot in opened.get_inputs()] == ["x"]


def test_inputs_outputs_metadata_and_placement(path: Path) -> None:
    with session(path) as opened:
        (x,), (y,) = opened.get_inputs(), opened.get_outputs()
        assert (x.name, x.type, x.shape) == ("x", "tensor(float)", ["N", 4])
        assert (y.name, y.type, y.shape) == ("y", "tensor(float)", ["N", 4])
        assert opened.get_overridable_initializers() == []
        assert opened.get_modelmeta().producer_name == "a test"
        (result,) = opened.run(None, rows(8))
        assert result.shape == (8, 4)
        assert "NonZero" in opened.placement().summary()
        assert opened.program(rows(8)).target.name == "sm_80"
        assert opened.get_providers() == [CUDA, "CPUExecutionProvider"]


def test_metadata_survives_the_file(tmp_path: Path) -> None:
    said = ModelMetadata("maker", "graph", "ai.example", "what", "how", -7, {"character": "a\nb", "version": "mine"})
    path = compiled_native(tmp_path, native(variant()), metadata=said.texts)
    with session(path) as opened:
        meta = opened.get_modelmeta()
    assert meta.custom_metadata_map == {"character": "a\nb", "version": "mine"}
    assert (meta.producer_name, meta.graph_name, meta.domain, meta.description, meta.graph_description) == (
        *("maker", "graph", "ai.example", "what", "how"),
    )
    assert meta.version == -7
    assert ModelMetadata.of(said.texts) == said
    assert ModelMetadata().texts == {}


def test_a_version_that_is_no_number_is_a_damaged_file(tmp_path: Path) -> None:
    path = compiled_native(tmp_path, native(variant()), metadata={"version": "seven"})
    with pytest.raises(ArtifactError, match=r"MALFORMED: .*native.gossamer.*seven"):
        session(path)


def test_placement_before_any_run(path: Path, on_gpu: Path) -> None:
    with session(on_gpu) as opened:
        assert opened.placement().summary() == f"{CUDA}: 2 nodes"
    with session(path) as opened, pytest.raises(InvalidArgument, match=r"run the model once.*x=2×4; x=8×4"):
        opened.placement()


# Which Program


@pytest.mark.parametrize(("asked", "taken"), [("", "sm_80"), ("sm_80", "sm_80"), ("SM_90", "sm_90")])
def test_the_null_device_takes_the_target_it_is_told(path: Path, asked: str, taken: str) -> None:
    with session(path, target=asked) as opened:
        assert opened.program(rows(2)).target.name == taken


def test_a_target_that_is_not_there(path: Path) -> None:
    with pytest.raises(InvalidArgument, match="holds no target 'sm_75'; it was compiled for sm_80, sm_90"):
        session(path, target="sm_75")


@pytest.mark.parametrize(("arch", "taken"), [(80, "sm_80"), (90, "sm_90")])
def test_a_gpu_gets_the_code_that_runs_on_it(gpu: Gpu, path: Path, arch: int, taken: str) -> None:
    engine = gpu(path, arch)
    engine.run(rows(2), ["y"])
    assert recorder(engine).ran[0].target.name == taken
    assert recorder(engine).code[KERNEL].code == f"machine code for {taken}".encode()


def test_of_two_gpus_of_one_architecture_the_likelier(gpu: Gpu, tmp_path: Path) -> None:
    small = native(variant("sm_90"))
    target = replace(small.program.target, name="h200-slice", sm_count=66)
    smaller = replace(small, program=replace(small.program, target=target))
    path = compiled_native(tmp_path, small, smaller)
    for sm_count, taken in ((132, "sm_90"), (66, "h200-slice")):
        assert gpu(path, 90, sm_count).program({"x": (2, 4)}).target.name == taken


@pytest.mark.parametrize("arch", [75, 100, 120])
def test_a_gpu_that_nothing_is_for(gpu: Gpu, path: Path, arch: int) -> None:
    with pytest.raises(ArtifactError) as caught:
        gpu(path, arch)
    assert caught.value.reason == "TARGET_MISMATCH"
    for part in ("sm_80, sm_90", f"this GPU is sm_{arch}", f"gossamer compile MODEL -o {path} --target sm_80,sm_90"):
        assert part in caught.value.text


def test_compiled_on_one_device_and_loaded_on_another(gpu: Gpu, tmp_path: Path) -> None:
    """The ordinal is the compiling machine's own affair; the code is for any GPU like it."""
    path = compiled_native(tmp_path, native(variant("sm_90", device=1)))
    engine = gpu(path, 90, device_id=0)
    engine.run(rows(2), ["b"])
    assert recorder(engine).ran[0].target.device is None
    assert recorder(engine).options.device_id == 0


def test_shapes_that_the_file_lacks(path: Path) -> None:
    with session(path) as opened:
        with pytest.raises(InvalidArgument, match=r"input 'x' has shape 3×4, and the file holds 2×4 and 8×4"):
            opened.run(None, rows(3))
        assert opened.run(None, rows(2))[0].shape == (2, 4)


def test_free_dimensions(path: Path) -> None:
    options = SessionOptions()
    options.add_free_dimension_override_by_name("N", 8)
    with session(path, options) as opened:
        assert opened.placement().summary()  # only one signature is left
        assert opened.run(None, rows(8))[0].shape == (8, 4)
        with pytest.raises(InvalidArgument, match="dimension 0 is 2 instead of 8"):
            opened.run(None, rows(2))


def test_free_dimensions_that_the_file_lacks(path: Path) -> None:
    options = SessionOptions()
    options.add_free_dimension_override_by_name("N", 5)
    with pytest.raises(InvalidArgument, match=r"nothing in it has N=5; it holds x=2×4; x=8×4"):
        session(path, options)


def test_programs_are_read_once_and_the_oldest_goes(gpu: Gpu, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSAMER_MAX_PROGRAMS", "1")
    engine = gpu(path, 90)
    for count in (2, 2, 8):
        engine.run(rows(count), ["y"])
    first, again, other = recorder(engine).ran
    assert first is again
    assert other is not first
    assert recorder(engine).dropped == [first]


def test_weights_are_used_where_the_file_is_mapped(gpu: Gpu, path: Path) -> None:
    weight = recorder(gpu(path, 90)).constants["w"]
    np.testing.assert_array_equal(weight, WEIGHTS["w"])
    assert not weight.flags.owndata
    assert not weight.flags.writeable
    assert weight.ctypes.data % 64 == 0


# cuDNN


def uses_cudnn(program: Program) -> bool:
    return any(isinstance(call, CudnnCall) for call in program.calls)


@pytest.mark.parametrize("available", [True, False])
def test_cudnn_where_it_is_there(gpu: Gpu, path: Path, monkeypatch: pytest.MonkeyPatch, available: bool) -> None:
    state = loader.State.AVAILABLE if available else loader.State.MISSING
    monkeypatch.setattr(loader, "load", lambda: loader.Library(state))
    monkeypatch.setattr(plan_cache, "properties_of", lambda target: DeviceProperties.from_json(target.properties))
    monkeypatch.setattr(fitting, "fitted", lambda program, properties: program)  # its plans are made up
    assert uses_cudnn(gpu(path, 90).program({"x": (2, 4)})) is available


def test_disabled_cudnn_is_not_looked_for(gpu: Gpu, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "load", lambda: pytest.fail("cuDNN was looked for"))
    assert not uses_cudnn(gpu(path, 90, enable_cudnn=False).program({"x": (2, 4)}))


def test_without_plans_cudnn_is_not_looked_for(gpu: Gpu, on_gpu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "load", lambda: pytest.fail("cuDNN was looked for"))
    assert not uses_cudnn(gpu(on_gpu, 90).program({"x": (2, 4)}))


def test_the_warning_about_plans_points_at_the_caller(
    gpu: Gpu, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one Program is the only one, that is who makes the session; else who runs it."""

    def fitted(program: Program, properties: DeviceProperties) -> Program:
        calls = (replace(call, plan=b"new") if isinstance(call, CudnnCall) else call for call in program.calls)
        return replace(program, calls=tuple(calls))

    gpu(path, 90)  # from now on there is such a GPU
    monkeypatch.setattr(provider_lists, "missing_device", lambda device_id: None)
    monkeypatch.setattr(loader, "load", lambda: loader.Library(loader.State.AVAILABLE, version=91900))
    monkeypatch.setattr(plan_cache, "properties_of", lambda target: DeviceProperties.from_json(target.properties))
    monkeypatch.setattr(fitting, "fitted", fitted)
    only = compiled(tmp_path, (variant(), variant(cudnn=True)))
    options: Any = {"providers": with_cpu(device="cuda", enable_cudnn=1)}
    with pytest.warns(UserWarning, match="made anew") as at_once:
        InferenceSession(only, **options)
    opened = InferenceSession(path, **options)
    with pytest.warns(UserWarning, match="made anew") as later:
        opened.run(None, rows(2))
    for (warning,) in (at_once, later):
        assert warning.filename == __file__


# What contradicts the file


def test_options_that_were_decided(path: Path) -> None:
    deterministic, unfused = SessionOptions(), SessionOptions()
    deterministic.use_deterministic_compute = True
    unfused.graph_optimization_level = gossamer.GraphOptimizationLevel.ORT_DISABLE_ALL
    contradictions: list[tuple[str, SessionOptions | None, dict[str, Any]]] = [
        ("use_tf32=0 .* --option use_tf32=0", None, {"use_tf32": 0}),
        ("cudnn_only=Conv is for comparing.* give the ONNX file$", None, {"cudnn_only": "Conv"}),
        ("use_deterministic_compute=True .* gossamer.compile_model", deterministic, {}),
        ("ORT_DISABLE_ALL .* gossamer.compile_model", unfused, {}),
    ]
    for text, options, given in contradictions:
        with pytest.raises(InvalidArgument, match=text) as caught:
            session(path, options, **given)
        assert str(path) in str(caught.value)


def test_options_that_the_file_meets(tmp_path: Path) -> None:
    made = native(variant())
    target = made.program.target.with_tf32(False).with_deterministic(True)
    path = compiled_native(tmp_path, replace(made, program=replace(made.program, target=target)))
    options = SessionOptions()
    options.use_deterministic_compute = True
    with session(path, options, use_tf32=0) as opened:
        assert opened.run(None, rows(2))[0].shape == (2, 4)
    with session(path, use_tf32=1) as opened:  # which allows, and demands nothing
        assert opened.run(None, rows(2))[0].shape == (2, 4)


def test_what_was_compiled_unfused_runs_unfused(tmp_path: Path) -> None:
    path = compiled_native(tmp_path, native(variant()), optimized=False)
    unfused = SessionOptions()
    unfused.graph_optimization_level = gossamer.GraphOptimizationLevel.ORT_DISABLE_ALL
    for options in (unfused, None):
        with session(path, options) as opened:
            assert opened.run(None, rows(2))[0].shape == (2, 4)


@pytest.mark.parametrize("providers", [["CPUExecutionProvider"], ["CPUExecutionProvider", CUDA]])
def test_the_cpu_alone_cannot_run_it(path: Path, providers: list[str]) -> None:
    with pytest.raises(InvalidArgument, match=r"CUDAExecutionProvider, which has to be the first.*give the ONNX file"):
        InferenceSession(path, providers=providers)


@pytest.mark.parametrize("providers", [None, [CUDA, "CPUExecutionProvider"], [CUDA]])
def test_without_a_gpu(path: Path, providers: Any, monkeypatch: pytest.MonkeyPatch, recwarn: Any) -> None:
    missing = DeviceNotFound("CUDA device 0", ("CUDA devices: none",), "list CPUExecutionProvider after")
    monkeypatch.setattr(provider_lists, "missing_device", lambda device_id: missing)
    monkeypatch.setenv("GOSSAMER_DEVICE", "cuda")
    with pytest.raises(DeviceNotFound, match=r"a compiled model runs on a GPU; .* give the ONNX file"):
        InferenceSession(path, providers=providers)
    assert not recwarn.list


def test_bytes_are_refused(path: Path) -> None:
    with pytest.raises(InvalidArgument, match="given by its file's path"):
        InferenceSession(path.read_bytes())


# What is missing


NEEDS_CPU: dict[str, tuple[Callable[[Path], object], str]] = {
    "strict": (lambda path: session(path, strict=1), "option 'strict' keeps nodes off it"),
    "not listed": (
        lambda path: InferenceSession(path, providers=[(CUDA, {"device": "null"})]),
        "it is not among the providers of the session",
    ),
    "onnxruntime": (session, r"onnxruntime is not installed \(pip install 'gossamer\[cpu\]'\)"),
}


@pytest.mark.parametrize("case", NEEDS_CPU)
def test_nodes_on_the_cpu(path: Path, on_gpu: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    opening, text = NEEDS_CPU[case]
    if case == "onnxruntime":
        monkeypatch.setattr(compiled_model, "has_onnxruntime", lambda: False)
    with pytest.raises(UnsupportedModel, match=text) as caught:
        opening(path)
    (node,) = caught.value.nodes
    assert (node.node, node.op) == ("count", "NonZero")
    assert node.reasons[0] == f"{CUDA}: its shape depends on data"
    assert str(path) in str(caught.value)
    opening(on_gpu)


@pytest.fixture
def custom(tmp_path: Path) -> Iterator[Path]:
    """b = my.domain.Scale(a), of which no function is registered."""
    made = native(variant())
    (first, _) = made.program.calls
    call = PythonCall("my.domain", "Scale", (), ("a",), ("b",), cudnn=True, origin=Origin("s", "Scale", "my.domain"))
    nodes = (*made.placement.nodes[:1], PlacedRecord("s", "Scale", "my.domain", CUDA))
    yield compiled_native(
        tmp_path, replace(made, program=replace(made.program, calls=(first, call)), placement=Placement(nodes))
    )
    custom_ops._operators.pop(("my.domain", "Scale"), None)


def test_a_custom_operator_that_is_not_registered(custom: Path) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        session(custom)
    assert [(node.node, node.op) for node in caught.value.nodes] == [("s", "my.domain.Scale")]
    assert "not registered in this process" in str(caught.value)
    assert "@gossamer.custom_op('my.domain', 'Scale')" in str(caught.value)


@pytest.mark.parametrize("enabled", [True, False])
def test_a_custom_operator_uses_cudnn_as_the_session_lets_it(custom: Path, enabled: bool) -> None:
    gossamer.custom_op("my.domain", "Scale")(lambda ctx: None)
    with session(custom, enable_cudnn=enabled) as opened:
        launch, call = opened.program(rows(2)).calls
    assert isinstance(launch, Launch)
    assert isinstance(call, PythonCall)
    assert call.cudnn is enabled


def test_the_interpreter_runs_sources_of_the_same_version(tmp_path: Path) -> None:
    path = compiled_native(tmp_path, native(variant()), versions={"gossamer": "0.0.1"})
    with pytest.raises(InvalidArgument, match=r"sources of kernels.*Gossamer 0\.1\.0.*0\.0\.1, which compiled"):
        session(path, device="interpreter")


def test_the_interpreter_without_triton(on_gpu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_model.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InvalidArgument, match=r"pip install 'gossamer\[compile\]'"):
        session(on_gpu, device="interpreter")


# Damage


def test_damage_is_found_before_anything_runs(path: Path, tmp_path: Path) -> None:
    """In the weights, which another thread checks; in a Program, when it is first wanted; and where the file begins."""
    whole = path.read_bytes()
    weights = whole.index(WEIGHTS["w"].tobytes())
    with pytest.raises(ArtifactError, match=r"DAMAGED.*weights"):
        session(changed(whole, weights + 5, tmp_path))
    opened = session(changed(whole, whole.index(b"machine code for sm_80"), tmp_path))
    with opened, pytest.raises(ArtifactError, match=r"DAMAGED.*cubins"):
        opened.run(None, rows(2))
    with pytest.raises(InvalidProtobuf):  # then it is no compiled model any more
        session(changed(whole, 0, tmp_path))


def changed(whole: bytes, position: int, folder: Path) -> Path:
    path = folder / f"damaged{position}.gossamer"
    path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
    return path


def test_a_truncated_file(path: Path, tmp_path: Path) -> None:
    short = tmp_path / "short.gossamer"
    short.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ArtifactError, match="TRUNCATED"):
        session(short)


# Sessions


def test_set_providers(path: Path) -> None:
    with session(path) as opened:
        opened.set_providers(with_cpu(target="sm_90"))
        assert opened.program(rows(2)).target.name == "sm_90"
        with pytest.raises(GossamerError):
            opened.set_providers(with_cpu(target="sm_75"))
        assert opened.program(rows(2)).target.name == "sm_90"  # it stays as it was


def test_closing(gpu: Gpu, path: Path) -> None:
    engine = gpu(path, 90)
    engine.close()
    assert recorder(engine).closed == 1


def test_the_simulated_executors_are_those_of_other_sessions(path: Path) -> None:
    engine = CompiledEngine(str(path), CudaOptions(device="null"), CompileOptions(), cpu_listed=True)
    assert isinstance(engine._executor, execution._Simulated)


def test_an_artifact_has_the_same_program(path: Path) -> None:
    with session(path, target="sm_90") as opened:
        text = str(opened.program(rows(2)))
    assert text == str(open_artifact(path).variant("sm_90", {"x": (2, 4)}).program) == str(program("sm_90"))


def test_what_debug_says(path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("GOSSAMER_DEBUG", "4")
    with caplog.at_level("INFO", "gossamer"), session(path) as opened:
        opened.run(None, rows(2))
    for text in ("open: ", "read: ", "placement:\nCUDAExecutionProvider  Mul 'scale'", "program small for sm_80"):
        assert text in caplog.text
