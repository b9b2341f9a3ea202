"""Graphs: built from operations, planned for a device, and restored from plans.

    with Graph(properties=DeviceProperties.named("h100-sxm")) as graph:
        x = graph.tensor("x", (8, 64, 56, 56), "float16", layout="NHWC")
        w = graph.tensor("w", (64, 64, 3, 3), "float16", layout="NHWC")
        b = graph.tensor("b", (1, 64, 1, 1), "float16")
        y = graph.relu(graph.add(graph.convolution(x, w, padding=1), b))
        graph.output(y, name="y")
        plan = graph.build(modes=("A", "fallback"))
        blob = plan.serialize()

A graph has device properties, a handle, or both. With properties it is *handle-free*: building and restoring need
neither handle nor context, and, with a driver or its stand-in (`driver_stand_in`), no device. Executing always needs a
handle.

Source: cudnn_graph.h, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR; cuDNN frontend, Graph.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, overload

from gossamer.cudnn import loader, plan_format, prerequisites
from gossamer.cudnn.builder import GraphBuilder
from gossamer.cudnn.descriptors import Attribute, Descriptor, Kind, Type
from gossamer.cudnn.device_properties import DeviceProperties
from gossamer.cudnn.engines import Choice, EngineConfig, propose
from gossamer.cudnn.enums import cudnnStatus
from gossamer.cudnn.handles import Handle, address_of
from gossamer.cudnn.kernel_cache import KernelCache
from gossamer.cudnn.operations import Lowering
from gossamer.cudnn.plan_format import BackendPlan, PlanRecord, Scalar
from gossamer.cudnn.plans import Plan
from gossamer.cudnn.verdicts import version_text
from gossamer.errors import CudnnError, InvalidArgument, PlanError, WrongType

__all__ = ["Graph"]

_EXECUTION_PLAN = Kind.CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR


class Graph(GraphBuilder):
    """A graph of operations, and what to plan it with.

    properties: of the device to plan for. handle: a Handle, or another library's as its address; it stays the caller's.
    With both, properties serve building and restoring, and the handle executing. kernel_cache: kernels that plans of
    graphs with `dynamic_shapes` share. name, compute, intermediate: see GraphBuilder.

    `close`, or leaving `with`, ends its use; plans that it made live on. Everything that it makes inside cuDNN while it
    builds or restores is freed before that returns.
    """

    def __init__(
        self,
        *,
        properties: DeviceProperties | None = None,
        handle: Handle | int | None = None,
        name: str = "",
        compute: Any = "float32",
        intermediate: Any = "float32",
        kernel_cache: KernelCache | None = None,
        dynamic_shapes: bool = False,
    ) -> None:
        super().__init__(name, compute, intermediate)
        if properties is not None and not isinstance(properties, DeviceProperties):
            raise WrongType(f"properties are DeviceProperties, not {type(properties).__name__}")
        if handle is not None:
            address_of(handle)  # says so if it is none
        if kernel_cache is not None and not dynamic_shapes:
            raise InvalidArgument("a kernel cache is for graphs with dynamic_shapes=True")
        self.properties = properties
        self.handle = handle
        self.kernel_cache = kernel_cache
        self.dynamic_shapes = dynamic_shapes

    def build(
        self,
        *,
        modes: Collection[str] = ("A", "fallback"),
        require: Collection[str] = (),
        forbid: Collection[str] = (),
        where: Callable[[EngineConfig], bool] | None = None,
        workspace_limit: int | None = None,
    ) -> Plan:
        """The plan of the first engine that cuDNN proposes, that is acceptable, and that works.

        modes: heuristic modes in order: `A`, `B`, `fallback`. require, forbid: notes, of behaviour or numerical, that
        the engine must all have or none of which it may have: `require=["RUNTIME_COMPILATION"]`,
        `forbid=["NONDETERMINISTIC", "DOWN_CONVERT_INPUTS"]`. where: any other condition. workspace_limit: most bytes.

        PlanError NOT_SUPPORTED lists what was proposed and why it was not taken; ATTRIBUTE_NOT_SET says that the graph
        has neither properties nor a handle. CudnnError where cuDNN calls an operation invalid.
        """
        refusals: list[str] = []
        choice = Choice(tuple(modes), frozenset(require), frozenset(forbid), where, workspace_limit)
        with closing(self._plans(choice, refusals)) as plans:
            plan = next(plans, None)
        if plan is None:
            raise self._no_engine(choice, refusals)
        return plan

    def plans(
        self,
        *,
        modes: Collection[str] = ("A", "fallback"),
        require: Collection[str] = (),
        forbid: Collection[str] = (),
        where: Callable[[EngineConfig], bool] | None = None,
        workspace_limit: int | None = None,
    ) -> Iterator[Plan]:
        """Every plan that `build` could return, in its order, made as it is asked for; for measuring them."""
        return self._plans(Choice(tuple(modes), frozenset(require), frozenset(forbid), where, workspace_limit), [])

    def _plans(self, choice: Choice, refusals: list[str]) -> Generator[Plan, None, None]:
        with ExitStack() as stack:
            properties = self._properties(stack)
            operation_graph = self._operation_graph(stack, None if properties else self.handle)
            for config in self._proposed(operation_graph, choice, properties, stack, refusals):
                plan = self._plan(config, operation_graph, properties, choice, refusals)
                if plan is not None:
                    yield plan

    def _properties(self, stack: ExitStack, driver: int | None = None) -> Descriptor | None:
        """The properties' descriptor; None where the handle serves.

        driver: of a plan that is restored. cuDNN up to 9.19 takes it for no other one, later ones for newer ones too:
        it is told the plan's own where the device's is newer.
        """
        if self.properties is None and self.handle is None:
            raise PlanError(
                "ATTRIBUTE_NOT_SET",
                "this graph has neither device properties nor a handle; give Graph(properties=…) to work without a "
                "handle, or Graph(handle=…)",
            )
        if self.properties is not None:
            newer = driver is not None and self.properties.driver > driver
            described = self.properties.with_driver(driver) if driver is not None and newer else self.properties
            return stack.enter_context(described.describe())
        prerequisites.prepare()
        return None

    def _operation_graph(self, stack: ExitStack, handle: Handle | int | None) -> Descriptor:
        if not self.outputs:
            raise InvalidArgument("this graph has no output")
        tensors = {uid: stack.enter_context(tensor.describe()) for uid, tensor in self.tensors.items()}
        lowering = Lowering(tensors, stack)
        graph = lowering.new(Kind.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, f"graph {self}")
        graph.set(Attribute.CUDNN_ATTR_OPERATIONGRAPH_OPS, *(one.describe(lowering) for one in self.operations))
        if handle is not None:
            address = address_of(handle)
            graph.set(Attribute.CUDNN_ATTR_OPERATIONGRAPH_HANDLE, address, type=Type.CUDNN_TYPE_HANDLE)
        if self.dynamic_shapes:
            graph.set(Attribute.CUDNN_ATTR_OPERATIONGRAPH_IS_DYNAMIC_SHAPE_ENABLED, True)
        try:
            return graph.finalize()
        except CudnnError as error:
            raise self._as_plan_error(error) from error

    def _proposed(
        self,
        operation_graph: Descriptor,
        choice: Choice,
        properties: Descriptor | None,
        stack: ExitStack,
        refusals: list[str],
    ) -> Iterator[EngineConfig]:
        try:
            for config in propose(operation_graph, choice.modes, properties, stack):
                if objection := choice.objection(config):
                    refusals.append(f"{config}: {objection}")
                else:
                    yield config
        except CudnnError as error:
            raise self._as_plan_error(error) from error

    def _plan(
        self,
        config: EngineConfig,
        operation_graph: Descriptor,
        properties: Descriptor | None,
        choice: Choice,
        refusals: list[str],
    ) -> Plan | None:
        """The plan of a config, or None after noting why there is none."""
        descriptor = Descriptor(_EXECUTION_PLAN, f"the plan of {config}")
        try:
            descriptor.set(Attribute.CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config.descriptor)
            if self.kernel_cache is not None:
                cache = self.kernel_cache.for_graph(operation_graph)
                descriptor.set(Attribute.CUDNN_ATTR_EXECUTION_PLAN_KERNEL_CACHE, cache)
            self._set_device(descriptor, properties, self.handle)
            descriptor.finalize()
            plan = Plan(descriptor, self._record(config, descriptor), self.handle)
        except CudnnError as error:
            descriptor.close()
            refusals.append(f"{config}: {error.text}")
            return None
        except BaseException:
            descriptor.close()
            raise
        if choice.workspace_limit is not None and plan.workspace_size > choice.workspace_limit:
            refusals.append(f"{config}: needs a workspace of {plan.workspace_size} bytes")
            plan.close()
            return None
        return plan

    def _record(self, config: EngineConfig, descriptor: Descriptor) -> PlanRecord:
        text = descriptor.get_text(Attribute.CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION)
        try:
            backend = plan_format.read_backend_plan(text)
        except (ValueError, KeyError, TypeError) as error:
            this = loader.load().version_text
            raise PlanError("NOT_SUPPORTED", f"cuDNN {this} writes plans otherwise than is known: {error!r}") from error
        scalars = {
            tensor.uid: Scalar(tensor.value, tensor.dtype)
            for tensor in self.tensors.values()
            if tensor.value is not None
        }
        return PlanRecord(
            backend,
            behavior_notes=config.behavior_notes,
            numerical_notes=config.numerical_notes,
            mode=config.mode,
            scalars=scalars,
            names={uid: self.tensors[uid].name for uid in backend.tensors if self.tensors[uid].name},
            graph=self.as_dict(),
        )

    def serialize(self) -> bytes:
        """The graph alone as bytes: `deserialize` builds its plan then, unless a precompiled one is insisted on."""
        return plan_format.encode(PlanRecord(None, graph=self.as_dict()))

    @overload
    def deserialize(
        self, blob: bytes, enforce_precompiled: bool = False, *, handle: Handle | int | None = None
    ) -> Plan: ...

    @overload
    def deserialize(self, blob: str | Mapping[str, Any]) -> None: ...

    def deserialize(
        self,
        blob: bytes | str | Mapping[str, Any],
        enforce_precompiled: bool = False,
        *,
        handle: Handle | int | None = None,
    ) -> Plan | None:
        """Restore a plan from bytes, or a graph from text or a dict; InvalidArgument (WrongType) on anything else.

        Bytes are a plan, from `Plan.serialize` or NVIDIA's frontend of the same cuDNN version. It is restored with
        `handle` where one is given (the graph's properties are ignored then), else with the graph's properties, else
        with its handle, and returned. Name, kernel cache, properties and handle of this graph stay; tensors, data types
        and operations become the plan's (of the frontend's plans only tensors).

        Text or a dict is a graph (`as_dict`, or that as JSON): tensors, data types and operations become that, and None
        is returned.

        enforce_precompiled: refuse bytes that carry a graph and no plan, for which it would be built here.
        PlanError: ATTRIBUTE_NOT_SET (nothing to restore with), NOT_SUPPORTED (cuDNN too old for properties),
        ARCH_MISMATCH, DRIVER_MISMATCH, VERSION_MISMATCH, CORRUPT, NOT_PRECOMPILED.
        """
        if isinstance(blob, str | Mapping):
            self._take(_parsed(blob) if isinstance(blob, str) else blob)
            return None
        if not isinstance(blob, bytes | bytearray | memoryview):
            raise WrongType(f"bytes are a plan, text or a dict a graph; this is {type(blob).__name__}")
        record = plan_format.decode(bytes(blob))
        if record.backend is not None:
            return self._restored(record, record.backend, handle)
        if enforce_precompiled or record.graph is None:
            raise PlanError("NOT_PRECOMPILED", "these bytes carry no precompiled plan")
        self._take(record.graph)
        return self.build() if handle is None else self._with_handle(handle).build()

    def _with_handle(self, handle: Handle | int) -> Graph:
        """This graph, to be planned with a handle only."""
        twin = Graph(handle=handle, name=self.name, kernel_cache=self.kernel_cache, dynamic_shapes=self.dynamic_shapes)
        twin._take(self.as_dict())
        return twin

    def _restored(self, record: PlanRecord, backend: BackendPlan, handle: Handle | int | None) -> Plan:
        use_handle = handle is not None or self.properties is None
        chosen = self.handle if handle is None else handle
        with ExitStack() as stack:
            properties = None if use_handle and chosen is not None else self._properties(stack, backend.device.driver)
            prerequisites.prepare()
            descriptor = Descriptor(_EXECUTION_PLAN, "a plan that is restored")
            try:
                self._set_device(descriptor, properties, chosen)
                descriptor.set_text(Attribute.CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, backend.text)
                descriptor.finalize()
                plan = Plan(descriptor, record, chosen)
                self._become(record, backend)
            except CudnnError as error:
                descriptor.close()
                raise self._not_restored(error, backend, chosen if properties is None else None) from error
            except BaseException:
                descriptor.close()
                raise
        return plan

    def _set_device(self, plan: Descriptor, properties: Descriptor | None, handle: Handle | int | None) -> None:
        """What a plan is finalized with: properties, or else the handle. cuDNN wants one of them, and not both."""
        if properties is not None:
            plan.set(Attribute.CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, properties)
        elif handle is not None:
            plan.set(Attribute.CUDNN_ATTR_EXECUTION_PLAN_HANDLE, address_of(handle), type=Type.CUDNN_TYPE_HANDLE)

    def _become(self, record: PlanRecord, backend: BackendPlan) -> None:
        """Take over a restored plan's tensors, data types and operations."""
        if record.graph is not None:
            self._take(record.graph)
            return
        self.operations = []
        self._replace_tensors(
            replace(
                tensor,
                name=record.names.get(uid, ""),
                value=record.scalars[uid].value if uid in record.scalars else tensor.value,
            )
            for uid, tensor in backend.tensors.items()
        )

    def _not_restored(self, error: CudnnError, backend: BackendPlan, handle: Handle | int | None) -> PlanError:
        """What it means that cuDNN does not take a plan."""
        library = loader.load()
        if error.status == cudnnStatus.CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH:
            return self._mismatch(error, backend.device, handle)
        if backend.version != library.version:
            made_by, this = version_text(backend.version), library.version_text
            return PlanError("VERSION_MISMATCH", f"cuDNN {made_by} made the plan, and this is cuDNN {this}: {error}")
        reason = "CORRUPT" if error.status // 1000 == 2 else "NOT_SUPPORTED"
        return PlanError(reason, f"cuDNN does not take the plan for {backend.device}: {error}")

    def _mismatch(self, error: CudnnError, made_for: DeviceProperties, handle: Handle | int | None) -> PlanError:
        here = self.properties if handle is None else DeviceProperties.from_handle(handle)
        if here is None:
            return PlanError("ARCH_MISMATCH", f"the plan is for {made_for}: {error}")
        keys = made_for.differences(here)
        values = (f"{key} {made_for.values[key]} and {here.values[key]}" for key in keys)
        reason = "DRIVER_MISMATCH" if keys == ("driverVer",) else "ARCH_MISMATCH"
        differing = f" (they differ in {', '.join(values)})" if keys else ""
        return PlanError(reason, f"the plan is for {made_for}, and this is for {here}{differing}: {error}")

    def _as_plan_error(self, error: CudnnError) -> CudnnError | PlanError:
        """Not supported is for callers to handle; everything else stays what it is."""
        if error.status // 1000 != 3:
            return error
        return PlanError("NOT_SUPPORTED", f"cuDNN has no engine for graph {self}: {error}")

    def _no_engine(self, choice: Choice, refusals: list[str]) -> PlanError:
        distinct = list(dict.fromkeys(refusals))  # an engine is proposed with one setting of its knobs after another
        proposed = "\n  ".join(distinct[:8]) or "nothing was proposed"
        more = f"\n  … and {len(distinct) - 8} more" if len(distinct) > 8 else ""
        asked = ", ".join(choice.modes)
        return PlanError("NOT_SUPPORTED", f"no engine for graph {self} (modes {asked}):\n  {proposed}{more}")

    def close(self) -> None:
        """End its use. The handle, the kernel cache and plans are their owners' to close."""
        self.operations = []
        self._replace_tensors(())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __str__(self) -> str:
        kinds = ", ".join(type(operation).__name__ for operation in self.operations)
        return f"'{self.name}' ({kinds})" if self.name else f"({kinds})"


def _parsed(text: str) -> Mapping[str, Any]:
    try:
        values = json.loads(text)
    except ValueError as error:
        raise InvalidArgument(f"this text is no graph: {error}") from None
    if not isinstance(values, dict):
        raise InvalidArgument(f"a graph is a JSON object, not {type(values).__name__}")
    return values
