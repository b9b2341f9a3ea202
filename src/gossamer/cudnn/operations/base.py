"""What every operation is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from gossamer.cudnn.descriptors import Descriptor, Kind


class Lowering:
    """The descriptors of one graph while it is given to cuDNN.

    tensors: by uid, finalized. Everything that `new` makes is freed with the stack.
    """

    def __init__(self, tensors: Mapping[int, Descriptor], stack: ExitStack) -> None:
        self.tensors = tensors
        self._stack = stack

    def new(self, kind: Kind, what: str) -> Descriptor:
        """A descriptor that lives as long as the lowering."""
        return self._stack.enter_context(Descriptor(kind, what))


@dataclass(frozen=True)
class Operation(ABC):
    """One operation. Its tensor fields hold uids; the names of those that it writes are in `WRITES`."""

    READS: ClassVar[tuple[str, ...]] = ()
    WRITES: ClassVar[tuple[str, ...]] = ("y",)

    @abstractmethod
    def describe(self, lowering: Lowering) -> Descriptor:
        """The finalized descriptor, owned by the lowering; CudnnError says what cuDNN does not take."""

    @property
    def reads(self) -> tuple[int, ...]:
        """Uids of its inputs, without those it does not use."""
        return tuple(uid for name in self.READS if (uid := getattr(self, name)) is not None)

    @property
    def writes(self) -> tuple[int, ...]:
        """Uids of its outputs."""
        return tuple(uid for name in self.WRITES if (uid := getattr(self, name)) is not None)

    def as_dict(self) -> dict[str, Any]:
        """Itself as JSON can hold it."""
        return {"operation": type(self).__name__, **asdict(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Operation:
        """The inverse of `as_dict`: lists become tuples again. TypeError on fields that do not fit."""
        known = {field.name for field in fields(cls)}
        if unknown := set(values) - known:
            raise TypeError(f"{cls.__name__} has no {', '.join(sorted(unknown))}")
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})
