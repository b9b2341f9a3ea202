"""What a session tells about a model's inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gossamer.session.element_types import BY_NAME
from gossamer.session.engine import NodeArgInfo


@dataclass(frozen=True)
class NodeArg:
    """One input or output.

    type: onnxruntime's text for it, such as `tensor(float)`. shape: a number, a name, or None for each dimension; empty
    for a scalar, and (as in onnxruntime) where the model does not say the rank.
    """

    name: str
    type: str
    shape: list[int | str | None]

    @classmethod
    def of(cls, info: NodeArgInfo, overrides: Mapping[str, int]) -> NodeArg:
        """overrides: values of symbolic dimensions, from the session's options."""
        row = BY_NAME.get(info.dtype)
        shape = [overrides.get(extent, extent) if isinstance(extent, str) else extent for extent in info.shape or ()]
        return cls(info.name, row.tensor if row else info.dtype, shape)
