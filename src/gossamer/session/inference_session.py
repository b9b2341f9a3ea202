"""InferenceSession: onnxruntime's names and signatures over one engine."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from gossamer import errors
from gossamer.errors import InvalidArgument, NoModel
from gossamer.options import CompileOptions, CudaOptions, ProviderOptions
from gossamer.program import Program
from gossamer.program.archive import BEGINNING_BYTES, begins_archive
from gossamer.program.artifact import is_compiled
from gossamer.program.model_metadata import ModelMetadata
from gossamer.run.device_tensor import DeviceTensor
from gossamer.run.meanwhile import meanwhile
from gossamer.session import memory
from gossamer.session import providers as provider_lists
from gossamer.session.engine import Engine, HostTensor, Placement, Tensor
from gossamer.session.feeds import Slot, Slots
from gossamer.session.io_binding import IOBinding
from gossamer.session.memory import HOST, Device
from gossamer.session.node_arg import NodeArg
from gossamer.session.ort_value import OrtValue
from gossamer.session.providers import GivenProviders
from gossamer.session.session_options import NO_PROFILE, RunOptions, SessionOptions

ModelSource: TypeAlias = str | bytes | Any
"""A path of an ONNX file or of a compiled model, a serialised model, or an onnx.ModelProto."""

_DEFAULT_RUN = RunOptions()

_NO_FALLBACK = (
    "a session never moves to other providers behind its caller's back; list CPUExecutionProvider to let it take the "
    "nodes that the GPU cannot"
)


_REFUSED_METHODS = {
    **dict.fromkeys(("end_profiling", "get_profiling_start_time_ns"), NO_PROFILE),
    **dict.fromkeys(("get_tuning_results", "set_tuning_results"), "launches are chosen when a Program is built"),
    "run_async": "call run from a thread of your own; a session takes many at once",
    "run_with_ortvaluevector": "bind inputs and outputs with io_binding()",
    "set_ep_dynamic_options": "options are those that the session was made with",
}
"""onnxruntime's methods that cannot be honoured, with the reason."""


class InferenceSession:
    """A model, compiled for its providers.

    `run` and `run_with_iobinding` are safe from many threads at once; each call takes an execution context from a pool
    of at most GOSSAMER_MAX_CONTEXTS. Arrays that `run` returns are the caller's. What is fed must not change during the
    call, and is not used after it.

    A session is closed by `close`, by leaving its `with` block, or by being forgotten; device memory is released then.
    """

    def __init__(
        self,
        path_or_bytes: ModelSource,
        sess_options: SessionOptions | None = None,
        providers: GivenProviders | None = None,
        provider_options: Sequence[Mapping[str, object]] | None = None,
        **kwargs: Any,
    ) -> None:
        """Load and compile a model, or open a compiled one.

        path_or_bytes: a path (of an ONNX file, or of one that `gossamer compile` wrote), a serialised model, or an
        onnx.ModelProto. providers: names or (name, options) pairs, the
        preferred first; None: all that there are. provider_options: options for each provider, where `providers` has
        only names.

        Errors: InvalidArgument for wrong options; DeviceNotFound if no listed provider can work here; NoSuchFile,
        InvalidProtobuf, InvalidGraph for a broken model; ArtifactError for a compiled one that is damaged or for other
        GPUs; UnsupportedModel naming every node that no listed provider takes.
        """
        _check_keywords(kwargs)
        self._model = _source(path_or_bytes)
        self._sess_options = SessionOptions() if sess_options is None else sess_options
        if not isinstance(self._sess_options, SessionOptions):
            raise InvalidArgument(f"sess_options is a gossamer.SessionOptions, got a {type(sess_options).__name__}")
        self._engine: Engine | None = None
        self._finalizer: weakref.finalize[[], InferenceSession] | None = None
        self._open(providers, provider_options)

    def _open(self, providers: GivenProviders | None, provider_options: Sequence[Mapping[str, object]] | None) -> None:
        """Make an engine for the providers, and release the one before."""
        options = self._sess_options.compile_options()
        compiled = isinstance(self._model, str) and is_compiled(self._model)
        with meanwhile(partial(_import_engine, compiled), ImportError):  # the driver's start takes as long
            resolved = provider_lists.resolve(providers, provider_options, compiled=compiled)
        chosen = provider_lists.with_config(resolved, options.config)
        engine = create_engine(self._model, chosen, options, compiled)
        self.close()
        self._engine = engine
        # Not at exit: device memory goes with the process, and the driver may be gone before finalizers run.
        self._finalizer = weakref.finalize(self, engine.close)
        self._finalizer.atexit = False
        self._providers = chosen
        self._cuda = next((one for one in chosen if isinstance(one, CudaOptions)), None)
        self._stream = self._cuda.stream if self._cuda else None
        self._dimensions = options.dimensions
        self._inputs = Slots("input", engine.inputs, self._dimensions, engine.overridable_initializers)
        self._outputs = Slots("output", engine.outputs, self._dimensions)

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[HostTensor]:
        """The outputs that are named (None or none: all), as arrays.

        input_feed: for each input an array, a (nested) list, an OrtValue, or another package's tensor (`__dlpack__`,
        `__cuda_array_interface__`), which is used in place.
        Errors: InvalidArgument naming the input, what it expects and what came; OutOfMemory, after which the session
        stays usable.
        """
        names = self._names(output_names)
        results = self._execute(self._feeds(input_feed), names, run_options)
        return [memory.to_host(results[name]) for name in names]

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """As `run`, from OrtValues to OrtValues; the results are in host memory (bind outputs to have them
        elsewhere).
        """
        return [OrtValue(array, HOST) for array in self.run(output_names, input_dict_ort_values, run_options)]

    def io_binding(self) -> IOBinding:
        """A new, empty binding for this session."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run on what is bound; the results are in the bound memory and in `iobinding.get_outputs()`."""
        if iobinding.session is not self:
            raise InvalidArgument("a binding is used with the session that made it")
        if not iobinding.outputs:
            raise InvalidArgument(f"no output is bound; the model has {self._outputs.names}")
        outputs = iobinding.outputs
        bound = {name: output.tensor for name, output in outputs.items() if output.tensor is not None}
        on_device = [name for name, output in outputs.items() if output.tensor is None and output.device.type == "cuda"]
        feeds = self._feeds(iobinding.inputs)
        iobinding.store_results(self._execute(feeds, list(outputs), run_options, bound, on_device))

    def _execute(
        self,
        feeds: Mapping[str, Tensor],
        names: Sequence[str],
        run_options: RunOptions | None,
        bound: Mapping[str, Tensor] | None = None,
        on_device: Sequence[str] = (),
    ) -> Mapping[str, Tensor]:
        how = _DEFAULT_RUN if run_options is None else run_options
        if not isinstance(how, RunOptions):
            raise InvalidArgument(f"run_options is a gossamer.RunOptions, got a {type(how).__name__}")
        return self._live_engine().run(
            feeds,
            names,
            bound=bound or {},
            on_device=on_device,
            stream=self._stream,
            synchronize=how.synchronize,
            capture=how.capture,
        )

    def _feeds(self, given: Mapping[str, Any]) -> dict[str, Tensor]:
        """Every input as the engine takes it, checked."""
        if not isinstance(given, Mapping):
            raise InvalidArgument(f"input_feed is a dictionary of inputs by name, got a {type(given).__name__}")
        feeds = {}
        for name, value in given.items():
            tensor = self._inputs[name].take(value.tensor if type(value) is OrtValue else value, self._stream)
            feeds[name] = self._reachable(name, tensor) if isinstance(tensor, DeviceTensor) else tensor
        self._inputs.require(feeds)
        return feeds

    def _reachable(self, name: str, tensor: DeviceTensor) -> Tensor:
        """A device tensor that the engine can read: the tensor itself, or a host copy where the session has no GPU."""
        if self.gpu is None:
            return memory.to_host(tensor)
        if tensor.device_id != self.gpu:
            raise InvalidArgument(
                f"input {name!r} is in memory of cuda:{tensor.device_id}, the session runs on cuda:{self.gpu}"
            )
        return tensor

    def _names(self, output_names: Sequence[str] | None) -> list[str]:
        if isinstance(output_names, str):
            raise InvalidArgument(f"output_names is a list of names, got the text {output_names!r}")
        for name in output_names or ():
            self._outputs[name]
        return list(output_names) if output_names else self._outputs.names

    def _live_engine(self) -> Engine:
        if self._engine is None:
            raise NoModel("the session is closed")
        return self._engine

    @property
    def gpu(self) -> int | None:
        """The index of the GPU that the session runs on, or None if it runs on none."""
        return self._cuda.device_id if self._cuda and self._cuda.device == "cuda" else None

    def input_slot(self, name: str) -> Slot:
        """What may be fed under a name. Errors: InvalidArgument."""
        return self._inputs[name]

    def output_slot(self, name: str) -> Slot:
        """What comes out under a name. Errors: InvalidArgument."""
        return self._outputs[name]

    def require_writable(self, name: str, device: Device) -> None:
        """InvalidArgument unless this session can leave an output on the device."""
        simulated = device.is_simulated or (self._cuda is not None and self._cuda.device != "cuda")
        if device.type == "cuda" and not simulated and device.id != self.gpu:
            runs_on = "on no GPU" if self.gpu is None else f"on cuda:{self.gpu}"
            raise InvalidArgument(f"output {name!r} cannot be bound to {device}: the session runs {runs_on}")

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that must be fed."""
        return [NodeArg.of(info, self._dimensions) for info in self._live_engine().inputs]

    def get_outputs(self) -> list[NodeArg]:
        """The outputs, in the order in which `run` returns them."""
        return [NodeArg.of(info, self._dimensions) for info in self._live_engine().outputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Inputs that have a default value and may be fed."""
        return [NodeArg.of(info, self._dimensions) for info in self._live_engine().overridable_initializers]

    def get_modelmeta(self) -> ModelMetadata:
        """What the model says about itself."""
        return self._live_engine().metadata

    def get_session_options(self) -> SessionOptions:
        """The options that the session was created with."""
        return self._sess_options

    def get_providers(self) -> list[str]:
        """The providers that the session uses, the preferred first."""
        return [options.provider for options in self._providers]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """All options of each provider, as texts that can be given to a session again."""
        return {options.provider: options.as_provider_options() for options in self._providers}

    def set_providers(
        self,
        providers: GivenProviders | None = None,
        provider_options: Sequence[Mapping[str, object]] | None = None,
    ) -> None:
        """Compile the model anew for other providers, while no other thread runs it.

        If that fails, the session stays as it was.
        """
        self._live_engine()
        self._open(providers, provider_options)

    def placement(self) -> Placement:
        """Where each node runs, with the reason for every refusal."""
        return self._live_engine().placement()

    def program(self, input_feed: Mapping[str, Any]) -> Program:
        """What the CUDA provider's device does for inputs of these shapes. Errors: InvalidArgument on the CPU alone."""
        return self._live_engine().program({name: tuple(feed.shape) for name, feed in self._feeds(input_feed).items()})

    def disable_fallback(self) -> None:
        """Nothing to do: a session never falls back to other providers by itself."""

    def enable_fallback(self) -> None:
        """Refused. Errors: NotImplemented."""
        raise errors.NotImplemented(_NO_FALLBACK)

    if not TYPE_CHECKING:  # to which a name that is not there would be one of any type

        def __getattr__(self, name: str) -> Any:
            # Reached only for names that are no real attributes.
            if name in _REFUSED_METHODS:
                raise AttributeError(f"InferenceSession.{name} is not supported: {_REFUSED_METHODS[name]}")
            raise AttributeError(f"InferenceSession has no attribute {name!r}")

    def close(self) -> None:
        """Release the engine and its device memory, after the calls that are under way. A closed session only tells its
        options.
        """
        self._engine = None
        if self._finalizer is not None:
            self._finalizer()  # once, whoever comes first

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def create_engine(
    model: ModelSource, providers: Sequence[ProviderOptions], options: CompileOptions, compiled: bool
) -> Engine:
    """The engine for a model. The compiler is imported when the first model is that needs one. compiled: whether the
    model is the path of a compiled one.
    """
    engine: Engine
    if compiled:
        from gossamer.compiled_model import CompiledEngine

        cuda = providers[0]
        assert isinstance(model, str)
        assert isinstance(cuda, CudaOptions), "resolve() lets no other be the first one"
        engine = CompiledEngine(model, cuda, options, cpu_listed=len(providers) > 1)
    else:
        try:
            from gossamer import engines
        except ModuleNotFoundError as error:
            if isinstance(model, str) and not os.path.exists(model):
                raise errors.NoSuchFile(f"{model}: there is no such file") from None
            error.add_note("ONNX files take the compiler: pip install 'gossamer[compile]'; compiled models run without")
            raise
        engine = engines.create_engine(model, providers, options)
    return engine


def _import_engine(compiled: bool) -> None:
    """What `create_engine` imports, too: not at the same time, since imports that fail in two threads at once say
    something else.
    """
    if compiled:
        import gossamer.compiled_model
    else:
        import gossamer.engines  # noqa: F401


def _source(given: Any) -> ModelSource:
    """The model as the compiler takes it."""
    if isinstance(given, (str, os.PathLike)):
        return os.fsdecode(given)
    if isinstance(given, (bytes, bytearray, memoryview)):
        if begins_archive(bytes(given[:BEGINNING_BYTES])):
            raise InvalidArgument("a compiled model is given by its file's path: its weights are used where they lie")
        return bytes(given)
    if hasattr(given, "SerializeToString"):
        return given
    raise InvalidArgument(f"a model is a path, bytes, or an onnx.ModelProto, got a {type(given).__name__}")


def _check_keywords(given: Mapping[str, Any]) -> None:
    """onnxruntime's further keywords, as far as they ask for nothing."""
    reasons = {
        "enable_fallback": _NO_FALLBACK,
        "disabled_optimizers": "passes cannot be named; SessionOptions.graph_optimization_level turns fusion off",
        "read_config_from_model": "a model cannot configure the session that loads it",
    }
    for name, value in given.items():
        if name not in reasons:
            raise InvalidArgument(f"InferenceSession has no argument {name!r}")
        if value:
            raise errors.NotImplemented(f"InferenceSession({name}={value!r}) is not supported: {reasons[name]}")
