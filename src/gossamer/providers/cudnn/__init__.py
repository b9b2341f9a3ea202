"""cuDNN's door: ONNX nodes as CudnnCalls, where a session wants cuDNN and the process has one.

Lowerings register as native ones do; each is asked only with an available library, and answers with calls or with the
reason why cuDNN does not take the node, which then runs natively.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import chain
from typing import TypeAlias

from gossamer import kernels
from gossamer.cudnn import loader
from gossamer.cudnn.loader import Library
from gossamer.errors import Fail
from gossamer.model.node import CHANNELS_LAST, FUSED, Node
from gossamer.options import CudaOptions
from gossamer.program import Call, Refusal, Target, Unavailable
from gossamer.providers.cudnn.preference import prefers_cudnn
from gossamer.providers.cudnn.tuning import NATIVE, Chosen, Table, Tuner, Way, fastest, recall

FAMILIES: tuple[str, ...] = ("attention", "convolution", "lrn", "normalization", "pooling", "recurrent")
"""The modules of this package that register lowerings."""

Lowered: TypeAlias = "tuple[Call, ...] | Refusal"
Lowering: TypeAlias = Callable[[Node, Target, Library], Lowered]

_BASES = {
    (FUSED, "FusedConv"): "Conv",
    (CHANNELS_LAST, "FusedConv"): "Conv",
    (FUSED, "FusedConvTranspose"): "ConvTranspose",
    (CHANNELS_LAST, "FusedConvTranspose"): "ConvTranspose",
    (FUSED, "FusedAttention"): "Attention",
    ("com.microsoft", "NhwcFusedConv"): "NhwcConv",
}
"""What passes made of an operator, and onnxruntime's variants that go by another's name."""

_SDPA_CUDNN = 8
"""cuDNN's bit of onnxruntime's `sdpa_kernel`."""

MEASURED = frozenset({"Conv", "ConvTranspose", "FusedConv", "NhwcConv"})
"""Operators, as `operator_of` names them, whose lowerings give several ways where they are to be measured."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What one session wants of cuDNN.

    enabled: whether it may be used, and looked for. only: the operators that must run through it. attention: whether it
    may do attention, too. search: how plans of convolutions are chosen. tuner: the device on which they are measured,
    or what was measured on one, if that is asked for and there. everywhere: whether it does all that it takes,
    preferred or not.
    """

    enabled: bool = False
    only: tuple[str, ...] = ()
    attention: bool = False
    search: str = "HEURISTIC"
    tuner: Tuner | Table | None = None
    everywhere: bool = False

    @classmethod
    def of(cls, cuda: CudaOptions, tuner: Tuner | Table | None = None) -> Policy:
        """What the CUDA provider's options say."""
        attention = bool(cuda.sdpa_kernel & _SDPA_CUDNN)
        return cls(cuda.enable_cudnn, cuda.cudnn_only, attention, cuda.cudnn_conv_algo_search, tuner)

    @property
    def exhaustive(self) -> bool:
        """Whether convolutions are measured; where they cannot be, heuristics choose."""
        return self.search == "EXHAUSTIVE" and self.tuner is not None


NEVER = Policy()
"""Of sessions without a CUDA provider, and of tools that show what is native."""


Choosing: TypeAlias = Callable[[Node, Target, Library, Policy], "tuple[Call, ...] | Refusal | Iterator[Way]"]
"""A lowering that does as the session's policy says: where that is exhaustive, it gives the ways to be measured."""

_lowerings: dict[tuple[str, str], Choosing] = {}


def lowers(*op_types: str, domain: str = "") -> Callable[[Lowering], Lowering]:
    """Registers a lowering. Raises Fail for a second one of the same operator."""

    def register(lowering: Lowering) -> Lowering:
        chooses(*op_types, domain=domain)(lambda node, target, library, _: lowering(node, target, library))
        return lowering

    return register


def chooses(*op_types: str, domain: str = "") -> Callable[[Choosing], Choosing]:
    """Registers a lowering that asks for the policy. Raises Fail for a second one of the same operator."""

    def register(lowering: Choosing) -> Choosing:
        for op_type in op_types:
            if (domain, op_type) in _lowerings:
                raise Fail(f"two cuDNN lowerings of {domain or 'ai.onnx'}.{op_type}")
            _lowerings[domain, op_type] = lowering
        return lowering

    return register


def operator_of(domain: str, op_type: str) -> str:
    """The operator that a node stands for, by the name that options and messages use."""
    return _BASES.get((domain, op_type), op_type)


def lower(node: Node, target: Target, policy: Policy) -> tuple[Call, ...] | Refusal | Chosen | None:
    """Calls, maybe native ones that were measured to be faster; or why cuDNN does not take the node; or None where it
    is not asked.

    A node that must run through cuDNN gets an answer in any case: where cuDNN cannot be used or does not take it, the
    answer is a call that raises when it runs. (R5)
    """
    op = operator_of(node.domain, node.op_type)
    lowering = _lowering_of(node, target)
    if op in policy.only:
        return _lower_or_raise(node, target, op, lowering, policy)
    if isinstance(policy.tuner, Table):
        known = _recalled(node, target, lowering, policy) if op in MEASURED else None
        return known or lower(node, target, replace(policy, tuner=None))
    everywhere = policy.everywhere or (policy.exhaustive and op in MEASURED)
    wanted = policy.enabled and (everywhere or prefers_cudnn(op, node, target, attention=policy.attention))
    if not wanted or isinstance(lowering, Refusal):
        return None
    library = loader.load()  # the first need: only now is cuDNN looked for
    if not library.available:
        return None
    return _settled(node, target, library, lowering, policy, native=True)


def _settled(
    node: Node, target: Target, library: Library, lowering: Choosing, policy: Policy, *, native: bool
) -> tuple[Call, ...] | Refusal | Chosen:
    """An answer as it is, or of several ways the fastest. native: whether the native kernels are one more."""
    lowered = lowering(node, target, library, policy)
    if isinstance(lowered, tuple | Refusal):
        return lowered
    assert isinstance(policy.tuner, Tuner)
    ways = chain(_native(node, target) if native else (), lowered)
    return fastest(node, target, ways, policy.tuner, native=native)


def _recalled(node: Node, target: Target, lowering: Choosing | Refusal, policy: Policy) -> Chosen | None:
    """What a table knows to be the fastest, where that is still proposed: cuDNN may do so for a device alone."""
    assert isinstance(policy.tuner, Table)
    entry, library = policy.tuner.entry_of(node, target), loader.load()
    if entry is None or isinstance(lowering, Refusal) or not library.available:
        return None
    lowered = lowering(node, target, library, policy)
    return None if isinstance(lowered, tuple | Refusal) else recall(entry, chain(_native(node, target), lowered))


def _native(node: Node, target: Target) -> Iterator[Way]:
    """First, since it costs nothing to have."""
    lowering = kernels.find(node.domain, node.op_type, node.version)
    calls = lowering if isinstance(lowering, Refusal) else lowering(node, target)
    if not isinstance(calls, Refusal):
        yield Way(NATIVE, calls)


def _lower_or_raise(
    node: Node, target: Target, op: str, lowering: Choosing | Refusal, policy: Policy
) -> tuple[Call, ...] | Chosen:
    library = loader.effective(policy.enabled)
    if not library.available:
        return _raising(node, op, library.reason, tuple(map(str, library.tried)))
    answer: tuple[Call, ...] | Refusal | Chosen
    if isinstance(lowering, Refusal):
        answer = lowering
    else:
        answer = _settled(node, target, library, lowering, policy, native=False)
    if isinstance(answer, Refusal):
        return _raising(node, op, f"cuDNN does not take this node: {answer.reason}.")
    return answer


def _lowering_of(node: Node, target: Target) -> Choosing | Refusal:
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
