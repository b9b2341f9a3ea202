"""cuDNN's door: ONNX nodes as CudnnCalls, where a session wants cuDNN and the process has one.

Lowerings register as native ones do; each is asked only with an available library, and answers with calls or with the
reason why cuDNN does not take the node, which then runs natively.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TypeAlias

from gossamer.cudnn import loader
from gossamer.cudnn.loader import Library
from gossamer.errors import Fail
from gossamer.model.node import CHANNELS_LAST, FUSED, Node
from gossamer.program import Call, Refusal, Target, Unavailable
from gossamer.providers.cudnn.preference import prefers_cudnn

FAMILIES: tuple[str, ...] = ()
"""The modules of this package that register lowerings."""

Lowered: TypeAlias = "tuple[Call, ...] | Refusal"
Lowering: TypeAlias = Callable[[Node, Target, Library], Lowered]

_lowerings: dict[tuple[str, str], Lowering] = {}

_BASES = {
    (FUSED, "FusedConv"): "Conv",
    (CHANNELS_LAST, "FusedConv"): "Conv",
    (FUSED, "FusedConvTranspose"): "ConvTranspose",
    (CHANNELS_LAST, "FusedConvTranspose"): "ConvTranspose",
    (FUSED, "FusedAttention"): "Attention",
    ("com.microsoft", "NhwcFusedConv"): "NhwcConv",
}
"""What passes made of an operator, and onnxruntime's variants that go by another's name."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What one session wants of cuDNN.

    enabled: whether it may be used, and looked for. only: the operators that must run through it. attention: whether it
    may do attention, too. search: how plans of convolutions are chosen.
    """

    enabled: bool = False
    only: tuple[str, ...] = ()
    attention: bool = False
    search: str = "HEURISTIC"


NEVER = Policy()
"""Of sessions without a CUDA provider, and of tools that show what is native."""


def lowers(*op_types: str, domain: str = "") -> Callable[[Lowering], Lowering]:
    """Registers a lowering. Raises Fail for a second one of the same operator."""

    def register(lowering: Lowering) -> Lowering:
        for op_type in op_types:
            if (domain, op_type) in _lowerings:
                raise Fail(f"two cuDNN lowerings of {domain or 'ai.onnx'}.{op_type}")
            _lowerings[domain, op_type] = lowering
        return lowering

    return register


def operator_of(domain: str, op_type: str) -> str:
    """The operator that a node stands for, by the name that options and messages use."""
    return _BASES.get((domain, op_type), op_type)


def lower(node: Node, target: Target, policy: Policy) -> tuple[Call, ...] | Refusal | None:
    """Calls; or why cuDNN does not take the node; or None where it is not asked.

    A node that must run through cuDNN gets an answer in any case: where cuDNN cannot be used or does not take it, the
    answer is a call that raises when it runs. (R5)
    """
    op = operator_of(node.domain, node.op_type)
    lowering = _lowering_of(node, target)
    if op in policy.only:
        return _lower_or_raise(node, target, op, lowering, loader.effective(policy.enabled))
    wanted = policy.enabled and prefers_cudnn(op, target, attention=policy.attention)
    if not wanted or isinstance(lowering, Refusal):
        return None
    library = loader.load()  # the first need: only now is cuDNN looked for
    return lowering(node, target, library) if library.available else None


def _lower_or_raise(
    node: Node, target: Target, op: str, lowering: Lowering | Refusal, library: Library
) -> tuple[Call, ...]:
    if not library.available:
        return _raising(node, op, library.reason, tuple(map(str, library.tried)))
    lowered = lowering if isinstance(lowering, Refusal) else lowering(node, target, library)
    if isinstance(lowered, Refusal):
        return _raising(node, op, f"cuDNN does not take this node: {lowered.reason}.")
    return lowered


def _lowering_of(node: Node, target: Target) -> Lowering | Refusal:
    if target.interpreted:
        return Refusal("it needs a GPU, and this session runs in the interpreter")
    for family in FAMILIES:
        import_module(f"{__name__}.{family}")
    absent = Refusal(f"it has nothing for {node.domain or 'ai.onnx'}.{node.op_type}")
    return _lowerings.get((node.domain, node.op_type), absent)


def _raising(node: Node, op: str, reason: str, tried: tuple[str, ...] = ()) -> tuple[Call, ...]:
    reads = tuple(buffer.name for buffer in node.inputs if buffer is not None)
    writes = tuple(buffer.name for buffer in node.outputs if buffer is not None)
    return (Unavailable(op, reason, reads, writes, tried),)
