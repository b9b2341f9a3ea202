"""What runs Programs, whoever made them: devices and their executors, engines that keep a Program per signature, and
the delivery of results. Nothing here knows of ONNX or the compiler, so that compiled models run without both.
"""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypedDict, TypeVar, Unpack, runtime_checkable

import numpy as np

from gossamer import settings
from gossamer.diagnostics import logger
from gossamer.errors import InvalidArgument
from gossamer.options import CudaOptions
from gossamer.program import Call, Program, Target
from gossamer.program.cubin import Compile
from gossamer.program.manifest import Description, Slot
from gossamer.program.model_metadata import ModelMetadata
from gossamer.program.placement import Placed, Placement
from gossamer.run.device_tensor import Tensor, check_bound
from gossamer.run.host import HostRunner
from gossamer.run.profile import profile_text


class Delivery(TypedDict, total=False):
    """How to run, and where results go: the arguments that `session.engine.Engine.run` describes."""

    bound: Mapping[str, Tensor] | None
    on_device: Collection[str]
    stream: int | None
    synchronize: bool
    capture: bool


class Engine(ABC):
    """What every engine knows of its model, from its description."""

    def __init__(self, description: Description) -> None:
        self.inputs: tuple[Slot, ...] = description.inputs
        self.outputs: tuple[Slot, ...] = description.outputs
        self.overridable_initializers: tuple[Slot, ...] = ()
        self._texts = description.metadata

    @property
    def metadata(self) -> ModelMetadata:
        """What the model says about itself; the caller's own."""
        return ModelMetadata.of(self._texts)

    @abstractmethod
    def run(
        self, feeds: Mapping[str, Tensor], outputs: Sequence[str], **how: Unpack[Delivery]
    ) -> Mapping[str, Tensor]: ...

    @abstractmethod
    def placement(self) -> Placement[Placed]: ...

    @abstractmethod
    def program(self, shapes: Mapping[str, tuple[int, ...]]) -> Program: ...

    @abstractmethod
    def close(self) -> None: ...


class Executor(Protocol):
    """What runs Programs: on a GPU, in the interpreter, or nowhere."""

    def run(
        self, program: Program, feeds: Mapping[str, Tensor], outputs: Sequence[str], **how: Unpack[Delivery]
    ) -> Mapping[str, Tensor]: ...
    def time_calls(self, program: Program, feeds: Mapping[str, Tensor]) -> list[tuple[Call, float]]: ...
    def drop(self, program: Program) -> None: ...
    def close(self) -> None: ...
    def active(self) -> AbstractContextManager[None]:
        """Makes the device's context current, where it has one."""


class Named(Protocol):
    """A device with a name."""

    @property
    def name(self) -> str: ...


@runtime_checkable
class Stopwatch(Protocol):
    """An executor on a device where time means something."""

    device: Named

    def seconds_of(self, program: Program) -> float: ...


class Ready(Protocol):
    """What one signature of a model became."""

    @property
    def program(self) -> Program: ...
    @property
    def placement(self) -> Placement[Placed]: ...
    @property
    def is_outdated(self) -> bool:
        """Whether it has to be made anew before it runs again."""


R = TypeVar("R", bound=Ready)


class ProgramEngine(Engine, Generic[R]):
    """A model on the CUDA provider's device: one Program per signature of input shapes, the latest ones kept."""

    def __init__(self, description: Description, executor: Executor) -> None:
        super().__init__(description)
        self._executor = executor
        self._shapeless: dict[str, tuple[int, ...]] = {slot.name: () for slot in self.inputs if not slot.is_tensor}
        self._kept: OrderedDict[tuple[tuple[int, ...], ...], R] = OrderedDict()
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._profiled: weakref.WeakSet[Program] = weakref.WeakSet()

    @abstractmethod
    def make(self, shapes: Mapping[str, tuple[int, ...]]) -> R:
        """The Program for inputs of these shapes, and where its nodes were placed."""

    def compiled(self, shapes: Mapping[str, tuple[int, ...]]) -> R:
        """What `make` gives, made once."""
        signature = tuple(shapes.get(slot.name, ()) for slot in self.inputs)
        found = self._found(signature)
        if found is not None:
            return found
        with self._making:
            found = self._found(signature)  # another thread may have made it meanwhile
            if found is None:
                found = self.make(shapes)
                self._keep(signature, found)
            return found

    def _found(self, signature: tuple[tuple[int, ...], ...]) -> R | None:
        with self._lock:
            found = self._kept.get(signature)
            if found is None or found.is_outdated:
                return None
            self._kept.move_to_end(signature)
            return found

    def _keep(self, signature: tuple[tuple[int, ...], ...], ready: R) -> None:
        """Keeps a Program, and lets the least recently used one go where there are too many."""
        with self._lock:
            outdated = self._kept.pop(signature, None)
            self._kept[signature] = ready
            too_many = len(self._kept) - settings.MAX_PROGRAMS()
            forgotten = [self._kept.popitem(last=False)[1] for _ in range(too_many)]
            forgotten += [outdated] if outdated else []
        for old in forgotten:
            self._executor.drop(old.program)

    def run(self, feeds: Mapping[str, Tensor], outputs: Sequence[str], **how: Unpack[Delivery]) -> Mapping[str, Tensor]:
        shapes = {name: tuple(getattr(feed, "shape", ())) for name, feed in feeds.items()}
        if self._shapeless:  # an optional that is not fed is None
            omitted: dict[str, Any] = dict.fromkeys(self._shapeless.keys() - feeds.keys())
            feeds = omitted | dict(feeds)
            shapes |= self._shapeless
        program = self.compiled(shapes).program
        if settings.DEBUG() >= 2 and program not in self._profiled and how.get("stream") is None:
            self._profiled.add(program)
            logger.info("%s", profile_text(program, self._executor.time_calls(program, feeds)))
        return self._executor.run(program, feeds, outputs, **how)

    def program(self, shapes: Mapping[str, tuple[int, ...]]) -> Program:
        return self.compiled(shapes).program

    def placement(self) -> Placement[Placed]:
        """Of the signature that ran last; before any run, of the only signature there can be.

        Raises InvalidArgument where placement depends on shapes that nobody has given yet.
        """
        with self._lock:
            latest = next(reversed(self._kept.values()), None)
        return (latest or self.compiled(self.only_shapes())).placement

    def only_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the inputs, where the model leaves no choice. Raises InvalidArgument where it does."""
        shapes = {}
        for slot in self.inputs:
            shape = slot.static_shape
            if shape is None:
                raise InvalidArgument(
                    f"placement depends on the shape of input '{slot.name}': run the model once, or give shapes "
                    "(gossamer inspect MODEL --input-shape name=1x3x224x224)"
                )
            shapes[slot.name] = shape
        return shapes

    def close(self) -> None:
        self._executor.close()


def announce(program: Program, placement: Placement[Placed]) -> None:
    """What GOSSAMER_DEBUG=3 and 4 say of a Program when it is made, or read."""
    if settings.DEBUG() >= 3:
        logger.info("placement:\n%s", placement)
    if settings.DEBUG() >= 4:
        logger.info("%s", program)


def target_of(cuda: CudaOptions) -> Target:
    """What to compile for, to run where the options say. For the interpreter, Triton interprets in this process from
    now on: kernels must not have been imported before. Raises InvalidArgument for a target that there is none of,
    wherever Programs run."""
    named = Target.named(cuda.target) if cuda.target else None
    if cuda.device == "interpreter":
        from gossamer.run.interpreter import enter_interpreter_mode

        enter_interpreter_mode()
        return Target.named("interpreter").with_tf32(cuda.use_tf32)
    if cuda.device == "null":
        return (named or Target.named("sm_90")).with_tf32(cuda.use_tf32)
    from gossamer.run import driver

    return driver.device(cuda.device_id).target(cuda.use_tf32)


def open_device(device_id: int) -> None:
    """Makes the context of a GPU, which whatever needs it first would do. Raises DeviceNotFound, DriverError."""
    from gossamer.run import driver

    driver.device(device_id).context  # noqa: B018


def executor_for(
    cuda: CudaOptions, constants: Mapping[str, np.ndarray], compile: Compile, host: HostRunner
) -> Executor:
    """What runs Programs where the options say. constants: arrays by the keys that Programs use."""
    if cuda.device == "interpreter":
        from gossamer.run.interpreter import InterpreterExecutor

        return _Simulated(InterpreterExecutor(constants, host))
    if cuda.device == "null":
        from gossamer.run.null import NullExecutor

        return _Simulated(NullExecutor())
    from gossamer.run.cuda import CudaExecutor

    return CudaExecutor(
        constants,
        compile,
        device_id=cuda.device_id,
        gpu_mem_limit=cuda.memory_limit,
        graphs=cuda.enable_cuda_graph,
        host=host,
    )


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
        return deliver({name: results[name] for name in outputs}, how.get("bound"))

    def time_calls(self, program: Program, feeds: Mapping[str, Tensor]) -> list[tuple[Call, float]]:
        return self.inner.time_calls(program, feeds)

    def drop(self, program: Program) -> None:
        """Nothing is kept per Program."""

    def close(self) -> None:
        """Nothing is held."""

    def active(self) -> AbstractContextManager[None]:
        return nullcontext()


def deliver(results: Mapping[str, np.ndarray], bound: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
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
