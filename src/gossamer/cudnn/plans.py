"""Execution plans: a graph with the engine that runs it, ready to run, to be written, and to be restored.

    plan = graph.build()
    blob = plan.serialize()
    …
    plan = Graph(properties=…).deserialize(blob)
    plan.execute({"x": x, "w": w, "y": y}, workspace=scratch)

Making and restoring a plan needs the properties of a device, or a handle; only executing it needs a device.

Source: cudnn_graph.h, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
cudnnBackendExecute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from gossamer.cudnn import calls, plan_format
from gossamer.cudnn.bindings import HostScalar, address_of, workspace_address
from gossamer.cudnn.descriptors import Attribute, Descriptor, Kind, Type
from gossamer.cudnn.handles import Handle
from gossamer.cudnn.handles import address_of as handle_address
from gossamer.cudnn.plan_format import PlanRecord, Scalar
from gossamer.cudnn.tensors import Tensor
from gossamer.errors import Fail, InvalidArgument

__all__ = ["Binding", "Plan"]


class Plan:
    """One execution plan, made by `Graph.build` or `Graph.deserialize`; freed by `close` or by leaving `with`.

    tensors: those that are given when it is executed, by uid, with dims, strides, data type, alignment and, where they
    have one, name. handle: the graph's, used by `execute` when it is given no other; without either, the plan makes its
    own at its first execution.
    """

    def __init__(self, descriptor: Descriptor, record: PlanRecord, handle: Handle | int | None = None) -> None:
        if record.backend is None:
            raise Fail("a plan needs its backend's text")
        self._descriptor = descriptor
        self._record = record
        self._backend = record.backend
        self._handle = handle
        self._own_handle: Handle | None = None
        self.tensors: dict[int, Tensor] = {
            uid: replace(tensor, name=record.names.get(uid, "")) for uid, tensor in record.backend.tensors.items()
        }
        self._uid_of = {tensor.name: uid for uid, tensor in self.tensors.items() if tensor.name}
        size = descriptor.get_int(Attribute.CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)
        self._workspace_size = size + record.reserved_workspace

    @property
    def workspace_size(self) -> int:
        """Bytes of device memory that an execution needs besides its tensors."""
        return self._workspace_size

    @property
    def behavior_notes(self) -> frozenset[str]:
        """What its engine does at run time: RUNTIME_COMPILATION, CUBLASLT_DEPENDENCY, …"""
        return self._record.behavior_notes

    @property
    def numerical_notes(self) -> frozenset[str]:
        """What its engine does to numbers: TENSOR_CORE, WINOGRAD, …; not known of NVIDIA's frontend's plans."""
        return self._record.numerical_notes

    @property
    def engine(self) -> int:
        """The engine's number within cuDNN."""
        return self._backend.engine

    @property
    def mode(self) -> str:
        """The heuristic mode that proposed it; empty for plans of NVIDIA's frontend."""
        return self._record.mode

    @property
    def architecture(self) -> str:
        """What it was made for: `sm_90`."""
        return self._backend.device.architecture

    @property
    def multiprocessors(self) -> int:
        """How many multiprocessors it was made for."""
        return self._backend.device.multiprocessors

    @property
    def cudnn_version(self) -> int:
        """The cuDNN that made it, as cudnnGetVersion counts."""
        return self._backend.version

    @property
    def scalars(self) -> Mapping[int, Scalar]:
        """Values of its scalars, by uid."""
        return dict(self._record.scalars)

    def serialize(self) -> bytes:
        """The plan and its graph as bytes that `Graph.deserialize` restores, and NVIDIA's frontend too.

        The same plan has the same bytes, also after it was restored.
        """
        return plan_format.encode(self._record)

    def bind(self, bindings: Mapping[str | int | Tensor, Any], workspace: Any = None) -> Binding:
        """Addresses for all tensors, to be executed again and again, e.g. while a CUDA graph is captured.

        bindings: by name, uid or Tensor; an address, or an object with `__dlpack__` or `__cuda_array_interface__`;
        numbers for scalars whose values are to change. workspace: the same, at least `workspace_size` bytes.
        InvalidArgument names what is missing, unknown, too small, of another type, or not aligned.
        """
        addresses, scalars = self._addresses(bindings)
        scratch = workspace_address(workspace, self.workspace_size)
        addresses |= {uid: scratch + offset for uid, offset in self._record.placed.items()}
        for uid, (given, offset) in self._record.replacements.items():
            addresses[uid] = addresses[given] + offset
        if lacking := self.tensors.keys() - addresses.keys():
            raise InvalidArgument(f"no address for {', '.join(str(self.tensors[uid]) for uid in sorted(lacking))}")
        pack = self._pack({uid: addresses[uid] for uid in self.tensors}, scratch + self._record.reserved_workspace)
        return Binding(self, pack, tuple(scalars.values()))

    def execute(
        self,
        bindings: Mapping[str | int | Tensor, Any],
        *,
        workspace: Any = None,
        handle: Handle | int | None = None,
    ) -> None:
        """Put the plan's kernels on the handle's stream; returns before they have run.

        handle: by default the graph's, else one of the plan's own, made at the first execution for the current context
        and its default stream. CudnnError says what cuDNN refuses.
        """
        with self.bind(bindings, workspace) as binding:
            binding.execute(handle)

    def _addresses(self, bindings: Mapping[Any, Any]) -> tuple[dict[int, int], dict[int, HostScalar]]:
        scalars = {uid: HostScalar(scalar.value, scalar.dtype) for uid, scalar in self._record.scalars.items()}
        addresses = {}
        for key, given in bindings.items():
            uid = self._uid(key)
            tensor = self.tensors.get(uid)
            if tensor is not None and tensor.by_value:
                scalars[uid] = HostScalar(given, tensor.dtype)
            else:
                addresses[uid] = address_of(given, tensor or Tensor(uid, f"{key}", (1,), (1,), "uint8", alignment=1))
        return addresses | {uid: scalar.address for uid, scalar in scalars.items() if uid in self.tensors}, scalars

    def _uid(self, key: str | int | Tensor) -> int:
        uid = key.uid if isinstance(key, Tensor) else self._uid_of.get(key, -1) if isinstance(key, str) else key
        given = {meant for meant, _ in self._record.replacements.values()}
        if uid not in self.tensors and uid not in given:
            known = ", ".join(str(tensor) for tensor in self.tensors.values() if not tensor.by_value)
            raise InvalidArgument(f"this plan has no tensor {key!r}; it has {known}")
        return uid

    def _pack(self, addresses: Mapping[int, int], workspace: int) -> Descriptor:
        pack = Descriptor(Kind.CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "the variant pack")
        pointer = Type.CUDNN_TYPE_VOID_PTR
        try:
            pack.set(Attribute.CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, *addresses)
            pack.set(Attribute.CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, *addresses.values(), type=pointer)
            pack.set(Attribute.CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace or None, type=pointer)
            return pack.finalize()
        except BaseException:
            pack.close()
            raise

    def _handle_for(self, handle: Handle | int | None) -> int:
        chosen = self._handle if handle is None else handle
        if chosen is None:
            self._own_handle = self._own_handle or Handle()
            chosen = self._own_handle
        return handle_address(chosen)

    def close(self) -> None:
        """Free the plan and the handle that it made; again does nothing."""
        self._descriptor.close()
        if self._own_handle is not None:
            self._own_handle.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        notes = ", ".join(sorted(self.behavior_notes | self.numerical_notes)) or "no notes"
        return (
            f"Plan(engine {self.engine}, {notes}; {self.architecture}, {self.multiprocessors} multiprocessors; "
            f"workspace {self.workspace_size} bytes)"
        )


@dataclass(frozen=True, eq=False)
class Binding:
    """A plan with addresses; the memory behind them must stay. Freed by `close` or by leaving `with`."""

    plan: Plan
    pack: Descriptor
    scalars: tuple[HostScalar, ...]

    def execute(self, handle: Handle | int | None = None) -> None:
        """Put the plan's kernels on the handle's stream, as `Plan.execute` does."""
        address = self.plan._handle_for(handle)
        status = calls.cudnnBackendExecute(address, self.plan._descriptor.address, self.pack.address)
        calls.check(status, "cudnnBackendExecute", f"executing {self.plan!r}")

    def close(self) -> None:
        """Free it; again does nothing."""
        self.pack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
