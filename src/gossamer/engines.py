"""Engines that compile: one runs its model on the CPU alone, the other makes a Program for each signature of input
shapes and has an executor run that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import onnx_ir as ir

from gossamer import diagnostics
from gossamer.build.compilation import compile_kernels
from gossamer.build.programs import trial
from gossamer.compiler import Choices, Compiled, prepare, specialise_and_build
from gossamer.diagnostics import stage
from gossamer.errors import InvalidArgument
from gossamer.execution import (
    Delivery,
    Engine,
    ProgramEngine,
    Stopwatch,
    deliver,
    executor_for,
    target_of,
)
from gossamer.model.edit import dtype_name
from gossamer.model.load import load
from gossamer.model.node import Node
from gossamer.options import CompileOptions, CpuOptions, CudaOptions, ProviderOptions
from gossamer.place import CPU, CUDA, Placement, all_on_cpu
from gossamer.program import Call, Program
from gossamer.program.manifest import Description, Slot
from gossamer.program.model_metadata import ModelMetadata
from gossamer.providers import cudnn
from gossamer.providers.cudnn.tuning import Tuner
from gossamer.run.device_tensor import Tensor
from gossamer.run.host import HostModel, HostRunner


def create_engine(source: Any, providers: Sequence[ProviderOptions], options: CompileOptions) -> Engine:
    """An engine for the model: on the CPU alone, or with the CUDA provider in front.

    source: a path, bytes or a ModelProto. providers: as the session resolved them, none of them impossible here.
    """
    diagnostics.listen()
    cuda = next((given for given in providers if isinstance(given, CudaOptions)), None)
    if cuda is None or isinstance(providers[0], CpuOptions):
        return HostEngine(source, options)
    return DeviceEngine(source, cuda, options, cpu_listed=len(providers) > 1)


def loaded(source: Any) -> ir.Model:
    """A model out of a path, bytes or a ModelProto, checked."""
    with stage("load"):
        return load(source)


def describe(model: ir.Model) -> Description:
    """What a model declares and says about itself."""
    graph = model.graph
    metadata = ModelMetadata(
        model.producer_name or "",
        graph.name or "",
        model.domain or "",
        model.doc_string or "",
        graph.doc_string or "",
        model.model_version or 0,
        dict(model.metadata_props),
    )
    inputs, outputs = (tuple(map(_slot, values)) for values in (graph.inputs, graph.outputs))
    return Description(graph.name or "", inputs, outputs, metadata=metadata.texts)


class HostEngine(Engine):
    """The whole model on the CPU, by onnxruntime."""

    def __init__(self, source: Any, options: CompileOptions) -> None:
        model = loaded(source)
        super().__init__(describe(model))
        self._placement = all_on_cpu(model)
        with stage("open on the CPU"):
            self._host = HostModel(source, options)

    def run(self, feeds: Mapping[str, Tensor], outputs: Sequence[str], **how: Unpack[Delivery]) -> Mapping[str, Tensor]:
        return deliver(self._host.run(outputs, feeds), how.get("bound"))

    def program(self, shapes: Mapping[str, tuple[int, ...]]) -> Program:
        raise InvalidArgument("the session runs on the CPU provider alone, which has no Program")

    def placement(self) -> Placement:
        return self._placement

    def close(self) -> None:
        self._host.close()


_TRIAL_RUNS = 10
"""Runs of a node's calls within one measurement, so that launching it does not count."""


class DeviceEngine(ProgramEngine[Compiled]):
    """A model that is compiled, signature by signature, for the CUDA provider's device."""

    def __init__(self, source: Any, cuda: CudaOptions, options: CompileOptions, *, cpu_listed: bool) -> None:
        self.model = loaded(source)
        self._target = target_of(cuda).with_deterministic(options.deterministic)
        description = describe(self.model)
        self.constants = prepare(self.model, options)
        super().__init__(description, executor_for(cuda, self.constants, compile_kernels, HostRunner(options)))
        providers, policy = (CUDA, CPU) if cpu_listed else (CUDA,), cudnn.Policy.of(cuda, self._tuner())
        self._choices = Choices(providers, cuda.strict, options.optimize, cuda.prefer_nhwc, policy)

    def _tuner(self) -> Tuner | None:
        """The device as one to measure on, where there is one."""
        executor = self._executor
        if not isinstance(executor, Stopwatch):
            return None

        def seconds_of(node: Node, calls: tuple[Call, ...]) -> float:
            return executor.seconds_of(trial(node, calls, self._target, _TRIAL_RUNS)) / _TRIAL_RUNS

        return Tuner(executor.device.name, seconds_of)

    def make(self, shapes: Mapping[str, tuple[int, ...]]) -> Compiled:
        with self._executor.active():  # in which cuDNN reads what the device can do
            return specialise_and_build(self.model, shapes, self.constants, self._target, self._choices)


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
