"""Engines, one of which a session holds: it runs its model on the CPU alone, or compiles a Program for each signature
of input shapes and has an executor run that.
"""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypedDict, Unpack, runtime_checkable

import numpy as np
import onnx_ir as ir

from gossamer import diagnostics, settings
from gossamer.build import trial
from gossamer.build.compilation import compile_kernels
from gossamer.compiler import EARLY_FUSIONS, Choices, Compiled, specialise_and_build
from gossamer.diagnostics import logger, stage
from gossamer.errors import InvalidArgument
from gossamer.model import passes
from gossamer.model.edit import dtype_name
from gossamer.model.load import load
from gossamer.model.node import Constants, Node
from gossamer.options import CompileOptions, CpuOptions, CudaOptions, ProviderOptions
from gossamer.place import CPU, CUDA, Placement, all_on_cpu
from gossamer.program import Call, Program, Target
from gossamer.program.manifest import Slot
from gossamer.providers import cudnn
from gossamer.providers.cudnn.tuning import Tuner
from gossamer.run.device_tensor import Tensor, check_bound
from gossamer.run.host import HostModel, HostRunner
from gossamer.run.profile import profile_text

Shapes: TypeAlias = tuple[tuple[int, ...], ...]


_CUDNN_ATTENTION = 8
"""cuDNN's bit of onnxruntime's `sdpa_kernel`."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a model says about itself."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: Mapping[str, str]


def create_engine(source: Any, providers: Sequence[ProviderOptions], options: CompileOptions) -> Engine:
    """An engine for the model: on the CPU alone, or with the CUDA provider in front.

    source: a path, bytes or a ModelProto. providers: as the session resolved them, none of them impossible here.
    """
    diagnostics.listen()
    cuda = next((given for given in providers if isinstance(given, CudaOptions)), None)
    if cuda is None or isinstance(providers[0], CpuOptions):
        return HostEngine(source, options)
    return DeviceEngine(source, cuda, options, cpu_listed=len(providers) > 1)


class Delivery(TypedDict, total=False):
    """How to run, and where results go: the arguments that `session.engine.Engine.run` describes."""

    bound: Mapping[str, Tensor] | None
    on_device: Collection[str]
    stream: int | None
    synchronize: bool
    capture: bool


class Engine(ABC):
    """What both engines know of their model."""

    def __init__(self, source: Any) -> None:
        with stage("load"):
            self.model = load(source)
        graph = self.model.graph
        self.inputs = tuple(map(_slot, graph.inputs))
        self.outputs = tuple(map(_slot, graph.outputs))
        self.overridable_initializers: tuple[Slot, ...] = ()
        self.metadata = Metadata(
            self.model.producer_name or "",
            graph.name or "",
            self.model.domain or "",
            self.model.doc_string or "",
            graph.doc_string or "",
            self.model.model_version or 0,
            dict(self.model.metadata_props),
        )

    @abstractmethod
    def run(
        self, feeds: Mapping[str, Tensor], outputs: Sequence[str], **how: Unpack[Delivery]
    ) -> Mapping[str, Tensor]: ...

    @abstractmethod
    def placement(self) -> Placement: ...

    @abstractmethod
    def program(self, shapes: Mapping[str, tuple[int, ...]]) -> Program: ...

    @abstractmethod
    def close(self) -> None: ...


class HostEngine(Engine):
    """The whole model on the CPU, by onnxruntime."""

    def __init__(self, source: Any, options: CompileOptions) -> None:
        super().__init__(source)
        self._placement = all_on_cpu(self.model)
        with stage("open on the CPU"):
            self._host = HostModel(source, options)

    def run(self, feeds: Mapping[str, Tensor], outputs: Sequence[str], **how: Unpack[Delivery]) -> Mapping[str, Tensor]:
        return _deliver(self._host.run(outputs, feeds), how.get("bound"))

    def program(self, shapes: Mapping[str, tuple[int, ...]]) -> Program:
        raise InvalidArgument("the session runs on the CPU provider alone, which has no Program")

    def placement(self) -> Placement:
        return self._placement

    def close(self) -> None:
        self._host.close()


class Executor(Protocol):
    """What runs Programs: on a GPU, in the interpreter, or nowhere."""

    def run(
        self, program: Program, feeds: Mapping[str, Tensor], outputs: Sequence[str], **how: Unpack[Delivery]
    ) -> Mapping[str, Tensor]: ...
    def time_calls(self, program: Program, feeds: Mapping[str, Tensor]) -> list[tuple[Call, float]]: ...
    def drop(self, program: Program) -> None: ...
    def close(self) -> None: ...


class Named(Protocol):
    """A device with a name."""

    @property
    def name(self) -> str: ...


@runtime_checkable
class Stopwatch(Protocol):
    """An executor on a device where time means something."""

    device: Named

    def seconds_of(self, program: Program) -> float: ...


_TRIAL_RUNS = 10
"""Runs of a node's calls within one measurement, so that launching it does not count."""


class DeviceEngine(Engine):
    """A model on the CUDA provider's device: one Program per signature of input shapes, the latest ones kept."""

    def __init__(self, source: Any, cuda: CudaOptions, options: CompileOptions, *, cpu_listed: bool) -> None:
        super().__init__(source)
        target, executor_type = _device(cuda)
        self._target = target.with_deterministic(options.deterministic)
        with stage("prepare"):
            if options.dimensions:
                _fix_dimensions(self.model, options.dimensions)
            passes.prepare(self.model)
            passes.run_passes(self.model, EARLY_FUSIONS if options.optimize else ())
        self.constants = Constants()
        for name, value in self.model.graph.initializers.items():
            assert value.const_value is not None
            self.constants.register(name, value.const_value)
        self._executor = executor_type(self.constants, HostRunner(options), cuda)
        providers, policy = (CUDA, CPU) if cpu_listed else (CUDA,), _cudnn_policy(cuda, self._tuner())
        self._choices = Choices(providers, cuda.strict, options.optimize, cuda.prefer_nhwc, policy)
        self._compiled: OrderedDict[Shapes, Compiled] = OrderedDict()
        self._lock = threading.Lock()
        self._building = threading.Lock()
        self._profiled: weakref.WeakSet[Program] = weakref.WeakSet()

    def _tuner(self) -> Tuner | None:
        """The device as one to measure on, where there is one."""
        executor = self._executor
        if not isinstance(executor, Stopwatch):
            return None

        def seconds_of(node: Node, calls: tuple[Call, ...]) -> float:
            return executor.seconds_of(trial(node, calls, self._target, _TRIAL_RUNS)) / _TRIAL_RUNS

        return Tuner(executor.device.name, seconds_of)

    def compiled(self, shapes: Mapping[str, tuple[int, ...]]) -> Compiled:
        """The Program for inputs of these shapes, and where its nodes were placed."""
        signature = tuple(shapes.get(slot.name, ()) for slot in self.inputs)
        found = self._found(signature)
        if found is not None:
            return found
        with self._building:
            found = self._found(signature)  # another thread may have built it meanwhile
            if found is None:
                found = specialise_and_build(self.model, shapes, self.constants, self._target, self._choices)
                self._keep(signature, found)
            return found

    def _found(self, signature: Shapes) -> Compiled | None:
        with self._lock:
            found = self._compiled.get(signature)
            if found is None or found.is_outdated:
                return None
            self._compiled.move_to_end(signature)
            return found

    def _keep(self, signature: Shapes, compiled: Compiled) -> None:
        """Keeps a Program, and lets the least recently used one go where there are too many."""
        with self._lock:
            outdated = self._compiled.pop(signature, None)
            self._compiled[signature] = compiled
            too_many = len(self._compiled) - settings.MAX_PROGRAMS()
            forgotten = [self._compiled.popitem(last=False)[1] for _ in range(too_many)]
            forgotten += [outdated] if outdated else []
        for old in forgotten:
            self._executor.drop(old.program)

    def run(self, feeds: Mapping[str, Tensor], outputs: Sequence[str], **how: Unpack[Delivery]) -> Mapping[str, Tensor]:
        program = self.compiled({name: tuple(getattr(feed, "shape", ())) for name, feed in feeds.items()}).program
        if settings.DEBUG() >= 2 and program not in self._profiled and how.get("stream") is None:
            self._profiled.add(program)
            logger.info("%s", profile_text(program, self._executor.time_calls(program, feeds)))
        return self._executor.run(program, feeds, outputs, **how)

    def program(self, shapes: Mapping[str, tuple[int, ...]]) -> Program:
        return self.compiled(shapes).program

    def placement(self) -> Placement:
        """Of the signature that ran last; before any run, of the declared shapes, if they are static.

        Raises InvalidArgument where placement depends on shapes that nobody has given yet.
        """
        if self._compiled:
            return next(reversed(self._compiled.values())).placement
        shapes = {}
        for slot in self.inputs:
            shape = slot.static_shape
            if shape is None:
                raise InvalidArgument(
                    f"placement depends on the shape of input '{slot.name}': run the model once, or give shapes "
                    "(gossamer inspect MODEL --input-shape name=1x3x224x224)"
                )
            shapes[slot.name] = shape
        return self.compiled(shapes).placement

    def close(self) -> None:
        self._executor.close()


def _cudnn_policy(cuda: CudaOptions, tuner: Tuner | None) -> cudnn.Policy:
    attention = bool(cuda.sdpa_kernel & _CUDNN_ATTENTION)
    return cudnn.Policy(cuda.enable_cudnn, cuda.cudnn_only, attention, cuda.cudnn_conv_algo_search, tuner)


ExecutorType: TypeAlias = Callable[[Constants, HostRunner, CudaOptions], Executor]


def _device(cuda: CudaOptions) -> tuple[Target, ExecutorType]:
    """What to compile for, and what runs it."""
    if cuda.device == "interpreter":
        from gossamer.run.interpreter import InterpreterExecutor, enter_interpreter_mode

        enter_interpreter_mode()  # before kernels are imported
        target = Target.named("interpreter").with_tf32(cuda.use_tf32)
        return target, lambda constants, host, _: _Simulated(InterpreterExecutor(constants, host))
    if cuda.device == "null":
        from gossamer.run.null import NullExecutor

        return Target.named(cuda.target or "sm_90").with_tf32(cuda.use_tf32), lambda *_: _Simulated(NullExecutor())
    from gossamer.run.cuda import CudaExecutor, target_of_device

    def on_gpu(constants: Constants, host: HostRunner, cuda: CudaOptions) -> Executor:
        return CudaExecutor(
            constants,
            compile_kernels,
            device_id=cuda.device_id,
            gpu_mem_limit=cuda.memory_limit,
            graphs=cuda.enable_cuda_graph,
            host=host,
        )

    return target_of_device(cuda.device_id, cuda.use_tf32), on_gpu


class _Simulator(Protocol):
    """The interpreter or the null device."""

    def run(self, program: Program, feeds: Mapping[str, Any]) -> Mapping[str, np.ndarray]: ...
    def time_calls(self, program: Program, feeds: Mapping[str, Any]) -> list[tuple[Call, float]]: ...


@dataclass(slots=True)
class _Simulated:
    """A simulated device behind the arguments of a real one: all memory is the host's, and a run is over on return."""

    inner: _Simulator

    def run(
        self, program: Program, feeds: Mapping[str, Tensor], outputs: Sequence[str], **how: Unpack[Delivery]
    ) -> Mapping[str, Tensor]:
        results = self.inner.run(program, feeds)
        return _deliver({name: results[name] for name in outputs}, how.get("bound"))

    def time_calls(self, program: Program, feeds: Mapping[str, Tensor]) -> list[tuple[Call, float]]:
        return self.inner.time_calls(program, feeds)

    def drop(self, program: Program) -> None:
        """Nothing is kept per Program."""

    def close(self) -> None:
        """Nothing is held."""


def _deliver(results: Mapping[str, np.ndarray], bound: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
    """Results, copied into what the caller bound for them."""
    delivered: dict[str, Tensor] = dict(results)
    for name, target in (bound or {}).items():
        if name not in results:
            continue
        result = results[name]
        check_bound(name, target, result.shape, result.dtype)
        assert isinstance(target, np.ndarray)
        np.copyto(target, result)
        delivered[name] = target
    return delivered


def _slot(value: ir.Value) -> Slot:
    dims = None if value.shape is None else tuple(d if isinstance(d, int) else d.value for d in value.shape)
    return Slot(value.name or "", _type_name(value), dims)


def _type_name(value: ir.Value) -> str:
    if value.type is not None and not isinstance(value.type, ir.TensorType):
        return _type_text(value.type)
    if value.dtype is None:
        return "undefined"
    return "string" if value.dtype == ir.DataType.STRING else dtype_name(value.dtype)


def _type_text(given: ir.TypeProtocol) -> str:
    """ONNX's text for a type: `seq(tensor(float))`."""
    if isinstance(given, (ir.SequenceType, ir.OptionalType)):
        return f"{'seq' if isinstance(given, ir.SequenceType) else 'optional'}({_type_text(given.elem_type)})"
    return f"tensor({given.dtype.name.lower()})"


def _fix_dimensions(model: ir.Model, dimensions: Mapping[str, int]) -> None:
    """Replaces symbolic dimensions of inputs by the values that SessionOptions give them."""
    for value in model.graph.inputs:
        if value.shape is not None:
            value.shape = ir.Shape([d if isinstance(d, int) else dimensions.get(d.value or "", d) for d in value.shape])
