"""Where each node of a model runs, and why not elsewhere: the report that sessions, tools and compiled files give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

CUDNN = "cuDNN"
"""Who refuses what the CUDA provider then runs natively."""


class Placed(Protocol):
    """One node of a model, as far as the report tells of it."""

    @property
    def name(self) -> str: ...
    @property
    def op_type(self) -> str: ...
    @property
    def domain(self) -> str: ...

    @property
    def provider(self) -> str:
        """Who runs it."""

    @property
    def refusals(self) -> tuple[tuple[str, str], ...]:
        """Who would not, and why. cuDNN is one of those who may refuse."""

    @property
    def choice(self) -> str:
        """What was measured to choose between cuDNN and the native kernels, if anything."""

    @property
    def through_cudnn(self) -> bool:
        """Whether cuDNN has a part in it."""

    @property
    def would_raise(self) -> str:
        """The error that running it would raise, as far as that is known before; empty where none is."""


@dataclass(frozen=True, slots=True)
class PlacedRecord:
    """What a compiled file says of a node."""

    name: str
    op_type: str
    domain: str
    provider: str
    refusals: tuple[tuple[str, str], ...] = ()
    choice: str = ""
    through_cudnn: bool = False

    @property
    def would_raise(self) -> str:
        """Nothing: files hold no Program that would."""
        return ""

    @classmethod
    def of(cls, node: Placed) -> PlacedRecord:
        return cls(node.name, node.op_type, node.domain, node.provider, node.refusals, node.choice, node.through_cudnn)


Node_co = TypeVar("Node_co", bound=Placed, covariant=True)


@dataclass(frozen=True)  # calling an alias of a generic class sets an attribute: no slots
class Placement(Generic[Node_co]):
    """Where the nodes of one model run, in execution order."""

    nodes: tuple[Node_co, ...]

    def __iter__(self) -> Iterator[Node_co]:
        return iter(self.nodes)

    def counts(self) -> dict[str, int]:
        """Provider → nodes."""
        return dict(Counter(node.provider for node in self.nodes))

    def summary(self) -> str:
        """`CUDAExecutionProvider: 57 nodes, CPUExecutionProvider: 2 nodes (NonZero ×2)`."""
        parts = []
        for provider, count in sorted(self.counts().items(), reverse=True):
            theirs = (node for node in self.nodes if node.provider == provider)
            refused = Counter(node.op_type for node in theirs if _is_second_choice(node))
            kinds = ", ".join(f"{op} ×{n}" if n > 1 else op for op, n in refused.most_common())
            parts.append(f"{provider}: {count} node{'s' * (count != 1)}" + (f" ({kinds})" if kinds else ""))
        return ", ".join(parts) or "no nodes"

    def __str__(self) -> str:
        return "\n".join(map(_lines, self.nodes))


def _is_second_choice(node: Placed) -> bool:
    """Whether a provider that was asked before refused it."""
    return any(who != CUDNN for who, _ in node.refusals)


def _lines(node: Placed) -> str:
    through = ", through cuDNN" if node.through_cudnn else ""
    choice = f"\n    {node.choice}" if node.choice else ""
    raising = f"\n    would raise: {node.would_raise}" if node.would_raise else ""
    reasons = "".join(f"\n    not on {provider}: {reason}" for provider, reason in node.refusals)
    return f"{node.provider}  {node.op_type} '{node.name}'{through}{choice}{reasons}{raising}"
