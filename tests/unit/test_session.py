"""The session over a fake engine: what it checks, what it hands over, what it returns."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gossamer
from fake_engine import FakeEngine, Info
from gossamer import errors
from gossamer.errors import DeviceNotFound, InvalidArgument, NoModel
from gossamer.options import CompileOptions, CpuOptions, CudaOptions, ProviderOptions
from gossamer.session import InferenceSession, OrtValue, RunOptions, SessionOptions, inference_session

X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Workshop:
    """Stands in for the compiler: hands out prepared engines and remembers what it was asked for."""

    def __init__(self) -> None:
        self.engine = FakeEngine()
        self.models: list[object] = []
        self.providers: tuple[ProviderOptions, ...] = ()
        self.options = CompileOptions()

    def __call__(
        self, model: object, providers: tuple[ProviderOptions, ...], options: CompileOptions, compiled: bool
    ) -> FakeEngine:
        assert not compiled
        self.models.append(model)
        self.providers, self.options = providers, options
        return self.engine

    def session(self, **given: Any) -> InferenceSession:
        given.setdefault("providers", ["CUDAExecutionProvider"])
        given.setdefault("path_or_bytes", b"a model")
        return InferenceSession(**given)


@pytest.fixture
def workshop(monkeypatch: pytest.MonkeyPatch) -> Workshop:
    made = Workshop()
    monkeypatch.setattr(inference_session, "create_engine", made)
    monkeypatch.setenv("GOSSAMER_DEVICE", "interpreter")
    return made


def test_run_returns_the_named_outputs_in_order(workshop: Workshop) -> None:
    session = workshop.session()
    y, total = session.run(None, {"x": X})
    np.testing.assert_array_equal(y, X + 1)
    assert total == 15
    assert total.shape == ()
    again = session.run(["total", "y", "total"], {"x": X})
    assert [value.shape for value in again] == [(), (2, 3), ()]
    assert len(session.run([], {"x": X})) == 2


def test_what_the_model_says(workshop: Workshop) -> None:
    session = workshop.session()
    (x,) = session.get_inputs()
    assert (x.name, x.type, x.shape) == ("x", "tensor(float)", ["n", 3])
    assert str(x) == "NodeArg(name='x', type='tensor(float)', shape=['n', 3])"
    assert [(out.name, out.shape) for out in session.get_outputs()] == [("y", ["n", 3]), ("total", [])]
    meta = session.get_modelmeta()
    assert (meta.producer_name, meta.version) == ("tests", 7)
    assert meta.custom_metadata_map == {"character": "a\nb"}
    assert session.placement().summary() == "1 node on CUDAExecutionProvider"
    assert session.get_overridable_initializers() == []


def test_a_tensor_that_its_package_keeps_is_named(workshop: Workshop) -> None:
    class NeedsGradient:
        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

        def __dlpack__(self, **_: object) -> object:
            raise BufferError("use tensor.detach()")  # PyTorch's

    text = r"input 'x' expects tensor\(float\).*got a NeedsGradient that cannot be used: use tensor\.detach\(\)"
    with pytest.raises(InvalidArgument, match=text):
        workshop.session().run(None, {"x": NeedsGradient()})


@pytest.mark.parametrize(
    ("feed", "parts"),
    [
        ({}, ["missing inputs ['x']", "got []"]),
        ({"X": X}, ["no input 'X'", "did you mean 'x'"]),
        ({"x": X, "mask": X}, ["no input 'mask'"]),
        ({"x": X.astype(np.float64)}, ["'x'", "tensor(float)", "[n, 3]", "tensor(double)", "[2, 3]"]),
        ({"x": X.astype("datetime64[s]")}, ["'x'", "tensor(float)", "datetime64"]),
        ({"x": X[0]}, ["'x'", "[n, 3]", "[3]", "rank 1 instead of 2"]),
        ({"x": X.T.copy()}, ["'x'", "[n, 3]", "[3, 2]", "dimension 1 is 2 instead of 3"]),
        ({"x": [["a", "b", "c"]]}, ["'x'", "tensor(float)", "tensor(string)"]),
        ({"x": [[1.0, 2.0, 3.0], [4.0]]}, ["'x'", "tensor(float)", "list"]),
        ({"x": None}, ["'x'", "tensor(float)", "got None"]),
        ({"x": object()}, ["'x'", "tensor(float)"]),
        ({"x": OrtValue.ortvalue_from_numpy(X.astype(np.int64))}, ["'x'", "tensor(float)", "tensor(int64)"]),
    ],
)
def test_a_wrong_feed_is_refused_by_name(workshop: Workshop, feed: dict[str, object], parts: list[str]) -> None:
    with pytest.raises(InvalidArgument) as caught:
        workshop.session().run(None, feed)
    for part in parts:
        assert part in str(caught.value)
    assert workshop.engine.calls == []


@pytest.mark.parametrize("names", [["z"], ["y", "Total_"], "y"])
def test_a_wrong_output_is_refused(workshop: Workshop, names: Any) -> None:
    with pytest.raises(InvalidArgument, match="output"):
        workshop.session().run(names, {"x": X})


def test_a_feed_that_is_no_dictionary_is_refused(workshop: Workshop) -> None:
    with pytest.raises(InvalidArgument, match="input_feed"):
        workshop.session().run(None, [X])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value",
    [
        X.T.copy().T,
        np.stack([X, X], axis=-1)[..., 0],
        X[::-1][::-1],
        X.astype(">f4"),
        X.tolist(),
        [list(map(int, row)) for row in X],
        OrtValue.ortvalue_from_numpy(X),
        np.ma.masked_array(X),
    ],
    ids=["fortran", "strided", "reversed twice", "big-endian", "list", "list of ints", "OrtValue", "subclass"],
)
def test_feeds_become_dense_native_arrays(workshop: Workshop, value: object) -> None:
    workshop.session().run(None, {"x": value})
    (call,) = workshop.engine.calls
    fed = call["feeds"]["x"]
    assert type(fed) is np.ndarray
    assert fed.dtype == np.float32
    assert fed.dtype.isnative
    assert fed.flags.c_contiguous
    np.testing.assert_array_equal(fed, X)


def test_a_dense_array_is_not_copied(workshop: Workshop) -> None:
    workshop.session().run(None, {"x": X})
    assert workshop.engine.calls[0]["feeds"]["x"] is X


def test_another_packages_tensor_is_used_in_place(workshop: Workshop) -> None:
    class Foreign:
        def __dlpack__(self, **how: Any) -> object:
            return X.copy().__dlpack__(**how)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    y = workshop.session().run(["y"], {"x": Foreign()})[0]
    np.testing.assert_array_equal(y, X + 1)


@pytest.mark.parametrize(
    ("dtype", "given", "fed"),
    [
        ("int64", [1, 2], np.array([1, 2], np.int64)),
        ("int64", [], np.array([], np.int64)),
        ("uint8", [1, 255], np.array([1, 255], np.uint8)),
        ("bool", [True, False], np.array([True, False])),
        ("float16", [1, 0.5], np.array([1, 0.5], np.float16)),
        ("bfloat16", [1, 0.5], np.array([1, 0.5], ml_dtypes.bfloat16)),
        ("bfloat16", np.array([1, 2], ml_dtypes.bfloat16), np.array([1, 2], ml_dtypes.bfloat16)),
        ("string", ["a", "bc"], np.array(["a", "bc"], object)),
        ("string", np.array(["a", "bc"]), np.array(["a", "bc"], object)),
    ],
)
def test_element_types(workshop: Workshop, dtype: str, given: Any, fed: np.ndarray) -> None:
    workshop.engine.inputs = (Info("x", dtype, ("n",)),)
    workshop.engine.outputs = (Info("y", dtype, ("n",)),)
    session = workshop.session()
    session.run(None, {"x": given})
    (call,) = workshop.engine.calls
    assert call["feeds"]["x"].dtype == fed.dtype
    np.testing.assert_array_equal(call["feeds"]["x"], fed)


@pytest.mark.parametrize(
    ("dtype", "given"),
    [
        ("int64", [1.5]),
        ("int64", [2**63]),
        ("bool", [1]),
        ("uint8", [-1]),
        ("int4", [0.5]),
        ("string", [1]),
        ("float32", [1j]),
    ],
)
def test_lists_that_would_lose_meaning_are_refused(workshop: Workshop, dtype: str, given: list[Any]) -> None:
    workshop.engine.inputs = (Info("x", dtype, ("n",)),)
    with pytest.raises(InvalidArgument, match="input 'x'"):
        workshop.session().run(None, {"x": given})


def test_unknown_rank_takes_any_rank(workshop: Workshop) -> None:
    workshop.engine.inputs = (Info("x", "float32", None),)
    session = workshop.session()
    assert session.get_inputs()[0].shape == []
    session.run(None, {"x": np.float32(3)})
    assert workshop.engine.calls[0]["feeds"]["x"].shape == ()
    session.run(None, {"x": X})


def test_what_is_no_tensor_is_passed_on(workshop: Workshop) -> None:
    workshop.engine.inputs = (
        Info("x", "float32", ("n", 3)),
        Info("s", "seq(tensor(float))", None),
        Info("o", "optional(tensor(float))", None),
    )
    session = workshop.session()
    assert session.get_inputs()[1].type == "seq(tensor(float))"
    session.run(None, {"x": X, "s": [X, X]})
    assert len(workshop.engine.calls[0]["feeds"]["s"]) == 2
    with pytest.raises(InvalidArgument, match=r"missing inputs \['s'\]"):
        session.run(None, {"x": X, "o": None})


def test_overridable_initializers_may_be_fed_and_left_out(workshop: Workshop) -> None:
    workshop.engine.overridable_initializers = (Info("w", "float32", (3,)),)
    session = workshop.session()
    assert [w.name for w in session.get_inputs()] == ["x"]
    assert [w.name for w in session.get_overridable_initializers()] == ["w"]
    session.run(None, {"x": X})
    session.run(None, {"x": X, "w": X[0]})
    assert list(workshop.engine.calls[1]["feeds"]) == ["x", "w"]
    with pytest.raises(InvalidArgument, match="input 'w'"):
        session.run(None, {"x": X, "w": X})


def test_overridden_dimensions_are_checked_and_passed_on(workshop: Workshop) -> None:
    options = SessionOptions()
    options.add_free_dimension_override_by_name("n", 4)
    session = workshop.session(sess_options=options)
    assert workshop.options.dimensions == {"n": 4}
    assert [arg.shape for arg in (*session.get_inputs(), *session.get_outputs())] == [[4, 3], [4, 3], []]
    with pytest.raises(InvalidArgument, match=r"\[n=4, 3\].*dimension 0 is 2 instead of 4"):
        session.run(None, {"x": X})


def test_run_with_ort_values(workshop: Workshop) -> None:
    session = workshop.session()
    y, total = session.run_with_ort_values(None, {"x": OrtValue.ortvalue_from_numpy(X)})
    np.testing.assert_array_equal(y.numpy(), X + 1)
    assert (total.device_name(), total.shape()) == ("cpu", [])


def test_run_options_reach_the_engine(workshop: Workshop) -> None:
    session = workshop.session(providers=[("CUDAExecutionProvider", {"user_compute_stream": "77"})])
    how = RunOptions()
    how.add_run_config_entry("disable_synchronize_execution_providers", "1")
    how.add_run_config_entry("gpu_graph_id", "-1")
    session.run(None, {"x": X})
    session.run(None, {"x": X}, how)
    seen = [(call["stream"], call["synchronize"], call["capture"]) for call in workshop.engine.calls]
    assert seen == [(77, True, True), (77, False, False)]
    with pytest.raises(InvalidArgument, match=r"run_options is a gossamer\.RunOptions, got a dict"):
        session.run(None, {"x": X}, {"gpu_graph_id": "-1"})  # type: ignore[arg-type]


def test_methods_that_cannot_be_honoured_say_why(workshop: Workshop) -> None:
    session = workshop.session()
    for name, why in {"end_profiling": "GOSSAMER_DEBUG=2", "run_async": "a thread of your own"}.items():
        assert not hasattr(session, name)
        with pytest.raises(AttributeError, match=rf"InferenceSession\.{name} is not supported: .*{why}"):
            getattr(session, name)
    with pytest.raises(AttributeError, match="InferenceSession has no attribute 'get_imputs'"):
        session.get_imputs()  # type: ignore[attr-defined]


def test_models_in_every_form(workshop: Workshop, tmp_path: Path) -> None:
    class Proto:
        def SerializeToString(self) -> bytes:  # noqa: N802 - protobuf's name
            raise AssertionError("the session leaves this to the compiler")

    proto = Proto()
    for given in ("a.onnx", tmp_path / "b.onnx", b"bytes", bytearray(b"more"), memoryview(b"view"), proto):
        workshop.session(path_or_bytes=given)
    assert workshop.models == ["a.onnx", str(tmp_path / "b.onnx"), b"bytes", b"more", b"view", proto]
    with pytest.raises(InvalidArgument, match="got a int"):
        workshop.session(path_or_bytes=3)


def test_providers_and_options_come_back_as_given(workshop: Workshop) -> None:
    """R3.2, R8.3."""
    session = workshop.session(
        providers=[("CUDAExecutionProvider", {"enable_cudnn": False, "device_id": 1}), "CPUExecutionProvider"]
    )
    assert session.get_providers() == ["CUDAExecutionProvider", "CPUExecutionProvider"]
    options = session.get_provider_options()
    assert (options["CUDAExecutionProvider"]["enable_cudnn"], options["CPUExecutionProvider"]) == ("0", {})
    again = workshop.session(providers=list(options), provider_options=list(options.values()))
    assert again.get_provider_options() == options
    assert workshop.providers == (CudaOptions(enable_cudnn=False, device_id=1), CpuOptions())


def test_two_sessions_may_differ(workshop: Workshop) -> None:
    """R3.3."""
    off = workshop.session(providers=[("CUDAExecutionProvider", {"enable_cudnn": "0"})])
    on = workshop.session()
    assert off.get_provider_options()["CUDAExecutionProvider"]["enable_cudnn"] == "0"
    assert on.get_provider_options()["CUDAExecutionProvider"]["enable_cudnn"] == "1"


def test_set_providers_compiles_anew_or_leaves_the_session_as_it_was(workshop: Workshop) -> None:
    session = workshop.session()
    first = workshop.engine
    with pytest.raises(InvalidArgument, match="use_tf23"):
        session.set_providers(["CUDAExecutionProvider"], [{"use_tf23": 1}])
    assert first.closed == 0
    session.run(None, {"x": X})
    workshop.engine = FakeEngine()
    session.set_providers(["CUDAExecutionProvider"], [{"use_tf32": 0}])
    session.run(None, {"x": X})
    assert (first.closed, len(first.calls), len(workshop.engine.calls)) == (1, 1, 1)
    assert workshop.providers == (CudaOptions(use_tf32=False),)


def test_closing(workshop: Workshop) -> None:
    with workshop.session() as session:
        session.run(None, {"x": X})
    session.close()
    assert workshop.engine.closed == 1
    with pytest.raises(NoModel, match="closed"):
        session.run(None, {"x": X})
    with pytest.raises(NoModel):
        session.get_inputs()
    assert session.get_providers() == ["CUDAExecutionProvider"]


def test_a_forgotten_session_closes_its_engine(workshop: Workshop) -> None:
    session = workshop.session()
    gone = weakref.ref(session)
    del session
    gc.collect()
    assert gone() is None
    assert workshop.engine.closed == 1


def test_a_binding_keeps_its_session(workshop: Workshop) -> None:
    binding = workshop.session().io_binding()
    gc.collect()
    assert workshop.engine.closed == 0
    binding.session.close()


def test_fallback_and_other_keywords(workshop: Workshop) -> None:
    session = workshop.session(enable_fallback=0, disabled_optimizers=None, read_config_from_model=0)
    session.disable_fallback()
    with pytest.raises(errors.NotImplemented, match="CPUExecutionProvider"):
        session.enable_fallback()
    with pytest.raises(errors.NotImplemented, match="disabled_optimizers"):
        workshop.session(disabled_optimizers=["MatMulAddFusion"])
    with pytest.raises(InvalidArgument, match="'sesion_options'"):
        workshop.session(sesion_options=SessionOptions())
    with pytest.raises(InvalidArgument, match="sess_options"):
        workshop.session(sess_options={"intra_op_num_threads": 1})


def test_many_threads(workshop: Workshop) -> None:
    session = workshop.session()
    wrong: list[int] = []

    def work(seed: int) -> None:
        x = np.full((2, 3), seed, np.float32)
        for _ in range(50):
            y, total = session.run(None, {"x": x})
            if not (y == seed + 1).all() or total != 6 * seed:
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(workshop.engine.calls) == 16 * 50


def test_signatures_are_onnxruntimes() -> None:
    """R8.3: every method that both have takes onnxruntime's arguments, in its order and with its defaults."""
    import inspect

    onnxruntime = pytest.importorskip("onnxruntime")
    compared = []
    for ours in (gossamer.InferenceSession, gossamer.IOBinding, gossamer.OrtValue):
        theirs = getattr(onnxruntime, ours.__name__)
        if not inspect.isclass(theirs):
            continue
        for name, method in vars(ours).items():
            if (name == "__init__" and ours is gossamer.OrtValue) or not hasattr(theirs, name):
                continue
            if isinstance(method, (staticmethod, classmethod)) or inspect.isfunction(method):
                compared.append(name)
                _same_arguments(getattr(ours, name), getattr(theirs, name))
    assert {"run", "bind_output", "ortvalue_from_numpy"} <= set(compared)


def _same_arguments(ours: Any, theirs: Any) -> None:
    import inspect

    try:
        wanted = inspect.signature(theirs).parameters
    except ValueError:  # object's own methods
        return
    given = inspect.signature(ours).parameters
    wanted = {name: parameter for name, parameter in wanted.items() if name not in _NOT_OURS}
    assert list(given)[: len(wanted)] == list(wanted), ours
    for name, parameter in wanted.items():
        assert given[name].default == parameter.default, (ours, name)


# onnxruntime's allocators are objects of its own.
_NOT_OURS = {"memory_info"}


def resolve_without_a_gpu(
    monkeypatch: pytest.MonkeyPatch, providers: Sequence[Any] | None, has_onnxruntime: bool = True
) -> Mapping[str, object]:
    """What a session gets on a machine without a GPU."""
    from gossamer.session import providers as provider_lists

    missing = DeviceNotFound("CUDA device 0", ("libcuda.so.1: not found",), "install a driver")
    monkeypatch.setenv("GOSSAMER_DEVICE", "cuda")
    monkeypatch.setattr(provider_lists, "missing_device", lambda device_id: missing)
    monkeypatch.setattr(provider_lists, "has_onnxruntime", lambda: has_onnxruntime)
    return {options.provider: options for options in provider_lists.resolve(providers, None)}


def test_only_cuda_and_no_gpu_says_what_was_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceNotFound, match=r"libcuda\.so\.1: not found"):
        resolve_without_a_gpu(monkeypatch, ["CUDAExecutionProvider"])


@pytest.mark.parametrize("providers", [["CUDAExecutionProvider", "CPUExecutionProvider"], None, []])
def test_both_and_no_gpu_is_the_cpu_with_one_warning(monkeypatch: pytest.MonkeyPatch, providers: Any) -> None:
    with pytest.warns(UserWarning, match="CUDAExecutionProvider is not used") as caught:
        assert list(resolve_without_a_gpu(monkeypatch, providers)) == ["CPUExecutionProvider"]
    (warning,) = caught
    assert "libcuda.so.1: not found" in str(warning.message)


def test_no_gpu_and_no_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceNotFound) as caught:
        resolve_without_a_gpu(monkeypatch, None, has_onnxruntime=False)
    assert "gossamer[cpu]" in caught.value.__notes__[0]
    with pytest.raises(DeviceNotFound, match=r"pip install 'gossamer\[cpu\]'"):
        resolve_without_a_gpu(monkeypatch, ["CPUExecutionProvider"], has_onnxruntime=False)


def test_the_warning_points_at_the_caller(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    from gossamer.session import providers as provider_lists

    monkeypatch.setenv("GOSSAMER_DEVICE", "cuda")
    monkeypatch.setattr(provider_lists, "missing_device", lambda device_id: DeviceNotFound("CUDA device 0", ()))
    with pytest.warns(UserWarning, match="CUDAExecutionProvider is not used") as caught:
        InferenceSession(b"a model")
    assert "list CPUExecutionProvider after" not in str(caught[0].message), "it is listed"
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="TensorrtExecutionProvider; it is skipped") as caught:
        InferenceSession(b"a model", providers=["TensorrtExecutionProvider", "CPUExecutionProvider"])
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("providers", "provider_options", "text"),
    [
        ("CUDAExecutionProvider", None, "a sequence"),
        (["CUDAExecutionProvider", "CPUExecutionProvider"], [{}], "2 providers, but 1"),
        ([("CUDAExecutionProvider", {})], [{}], "sequence of names"),
        (["CUDAExecutionProvider"], {"device_id": 0}, "sequence of dictionaries"),
        (None, [{"device_id": 0}], "none are given"),
        ([("CUDAExecutionProvider", "device_id=0")], None, "pair of a name and a dictionary"),
        (["CUDAProvider"], None, "did you mean 'CUDAExecutionProvider'"),
    ],
)
def test_wrong_forms_of_providers(workshop: Workshop, providers: Any, provider_options: Any, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        workshop.session(providers=providers, provider_options=provider_options)


def test_only_providers_of_others(workshop: Workshop) -> None:
    with pytest.warns(UserWarning, match="skipped"), pytest.raises(InvalidArgument, match="no provider is left"):
        workshop.session(providers=["TensorrtExecutionProvider"])


def test_a_provider_listed_twice_counts_once(workshop: Workshop) -> None:
    with pytest.warns(UserWarning, match="listed twice"):
        workshop.session(providers=[("CUDAExecutionProvider", {"use_tf32": 0}), "CUDAExecutionProvider"])
    assert workshop.providers == (CudaOptions(use_tf32=False),)


def test_onnxruntimes_way_to_forbid_the_cpu(workshop: Workshop) -> None:
    options = SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    workshop.session(sess_options=options)
    assert workshop.providers == (CudaOptions(strict=True),)


def test_available_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    from gossamer.session import providers as provider_lists

    monkeypatch.setenv("GOSSAMER_DEVICE", "interpreter")
    monkeypatch.setattr(provider_lists, "has_onnxruntime", lambda: False)
    assert gossamer.get_available_providers() == ["CUDAExecutionProvider"]
    monkeypatch.setenv("GOSSAMER_DEVICE", "cuda")
    monkeypatch.setattr(provider_lists, "missing_device", lambda device_id: DeviceNotFound("CUDA device 0", ()))
    monkeypatch.setattr(provider_lists, "has_onnxruntime", lambda: True)
    assert gossamer.get_available_providers() == ["CPUExecutionProvider"]
    assert gossamer.get_device() == "CPU"
    assert gossamer.get_all_providers() == ["CUDAExecutionProvider", "CPUExecutionProvider"]
