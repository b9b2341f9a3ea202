"""[2] Placement: each node gets a provider, or all the reasons why not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import onnx_ir as ir

from gossamer import custom_ops, kernels
from gossamer.errors import UnsupportedModel, UnsupportedNode
from gossamer.model.custom_nodes import is_custom
from gossamer.model.edit import name_of
from gossamer.model.node import Node, Scope, UnknownShape
from gossamer.options import CpuOptions, CudaOptions
from gossamer.program import Call, CudnnCall, Refusal, Target, Unavailable, placement
from gossamer.program.placement import CUDNN
from gossamer.providers import cpu, cudnn, custom
from gossamer.providers.cudnn.tuning import Chosen

CUDA = CudaOptions.provider
CPU = CpuOptions.provider


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """One node of the model, as `gossamer.program.placement.Placed` has it. calls: what runs it, for CUDA."""

    node: ir.Node
    name: str
    op_type: str
    domain: str
    provider: str
    calls: tuple[Call, ...]
    refusals: tuple[tuple[str, str], ...]
    choice: str = ""

    @property
    def through_cudnn(self) -> bool:
        """Whether cuDNN has a part in it."""
        return any(isinstance(call, CudnnCall) for call in self.calls)

    @property
    def would_raise(self) -> str:
        """The error that running it would raise, as far as that is known before; empty where none is."""
        missing = next((call for call in self.calls if isinstance(call, Unavailable)), None)
        return "" if missing is None else str(missing.error)


Placement: TypeAlias = placement.Placement[PlacedNode]


def place(
    model: ir.Model,
    providers: Sequence[str],
    target: Target,
    scope: Scope,
    *,
    strict: bool = False,
    policy: cudnn.Policy = cudnn.NEVER,
) -> Placement:
    """Asks the doors in the order of `providers`. strict: only the first provider counts. policy: what the CUDA
    provider does with cuDNN.

    Raises UnsupportedModel, naming every node that no provider takes and each provider's reason.
    """
    asked = providers[:1] if strict else providers
    placed = tuple(_place_node(node, asked, target, scope, policy) for node in model.graph)
    where = " (option 'strict' keeps nodes off the others)" if strict and len(providers) > 1 else ""
    _require_homes(placed, f"{model.graph.name or 'model'}{where}")
    return Placement(placed)


def _require_homes(placed: Iterable[PlacedNode], model: str) -> None:
    """Raises UnsupportedModel if there are nodes that no provider takes."""
    homeless = [node for node in placed if not node.provider]
    if not homeless:
        return
    unsupported = (
        UnsupportedNode(
            node.name,
            f"{node.domain + '.' if node.domain else ''}{node.op_type}",
            tuple(f"{who}: {why}" for who, why in node.refusals),
        )
        for node in homeless
    )
    raise UnsupportedModel(tuple(unsupported), model, _remedy(homeless))


def _remedy(homeless: Iterable[PlacedNode]) -> str:
    """What to do about the first operator that nobody here has heard of."""
    for node in homeless:
        if custom_ops.may_register(node.domain) and not is_custom(node.node):
            return (
                f"@gossamer.custom_op('{node.domain}', '{node.op_type}') registers a function of yours for such nodes."
            )
    return ""


def all_on_cpu(model: ir.Model) -> Placement:
    """Every node on the CPU provider: the model as onnxruntime runs it alone.

    Raises UnsupportedModel for custom operators, which onnxruntime cannot call.
    """
    placed = []
    for node in model.graph:
        refusal = cpu.refuse_custom(node)
        placed.append(_placed(node, "", (), [(CPU, refusal.reason)]) if refusal else _placed(node, CPU, (), ()))
    _require_homes(placed, model.graph.name or "model")
    return Placement(tuple(placed))


def _place_node(
    node: ir.Node, providers: Sequence[str], target: Target, scope: Scope, policy: cudnn.Policy
) -> PlacedNode:
    refusals: list[tuple[str, str]] = []
    for provider in providers:
        answer = _lower(node, target, scope, policy, refusals) if provider == CUDA else cpu.accepts(node)
        if isinstance(answer, Chosen):
            return replace(_placed(node, provider, answer.calls, refusals), choice=answer.text)
        if not isinstance(answer, Refusal):
            return _placed(node, provider, answer, refusals)
        refusals.append((provider, answer.reason))
    return _placed(node, "", (), refusals)


def _placed(node: ir.Node, provider: str, calls: tuple[Call, ...], refusals: Iterable[tuple[str, str]]) -> PlacedNode:
    return PlacedNode(node, name_of(node), node.op_type, node.domain, provider, calls, tuple(refusals))


def _lower(
    node: ir.Node, target: Target, scope: Scope, policy: cudnn.Policy, refusals: list[tuple[str, str]]
) -> tuple[Call, ...] | Refusal | Chosen:
    """What the CUDA provider does about a node. refusals: gets cuDNN's, where it refuses what is then done natively."""
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    if any(value.dtype == ir.DataType.STRING for value in values):
        return Refusal("strings do not live on a GPU")
    if not all(value.type is None or isinstance(value.type, ir.TensorType) for value in values):
        return Refusal("sequences and optionals do not live on a GPU")
    try:
        view = Node(node, scope)
    except UnknownShape as reason:
        version = node.version or scope.opset.get(node.domain, 1)
        known = None if is_custom(node) else kernels.find(node.domain, node.op_type, version)
        return known if isinstance(known, Refusal) else Refusal(str(reason))
    lowered: tuple[Call, ...] | Refusal | Chosen
    if is_custom(node):
        lowered = custom.lower(view, cudnn=policy.enabled)
    else:
        lowered = _lower_known(view, target, policy, refusals)
    if isinstance(lowered, Chosen):
        return replace(lowered, calls=_signed(lowered.calls, view))
    return lowered if isinstance(lowered, Refusal) else _signed(lowered, view)


def _signed(calls: Iterable[Call], node: Node) -> tuple[Call, ...]:
    """Calls that say which node they are from."""
    origin = node.origin
    return tuple(replace(call, origin=origin) for call in calls)


def _lower_known(
    node: Node, target: Target, policy: cudnn.Policy, refusals: list[tuple[str, str]]
) -> tuple[Call, ...] | Refusal | Chosen:
    """cuDNN's calls where it is asked and takes the node, else native ones. refusals: gets cuDNN's."""
    lowered = cudnn.lower(node, target, policy)
    if isinstance(lowered, Refusal):
        refusals.append((CUDNN, lowered.reason))
    if lowered is None or isinstance(lowered, Refusal):
        lowering = kernels.find(node.domain, node.op_type, node.version)
        try:
            return lowering if isinstance(lowering, Refusal) else lowering(node, target)
        except kernels.NoSuchElements as dtype:
            return Refusal(f"{node.op_type} of {dtype} has no kernel")
    return lowered
