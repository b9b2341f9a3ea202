"""What a session tells about its model."""

from __future__ import annotations

from dataclasses import dataclass, field

from gossamer.session.element_types import BY_NAME
from gossamer.session.engine import MetadataInfo, NodeArgInfo


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
    def of(cls, info: NodeArgInfo) -> NodeArg:
        row = BY_NAME.get(info.dtype)
        return cls(info.name, row.tensor if row else info.dtype, list(info.shape or ()))


@dataclass(frozen=True)
class ModelMetadata:
    """What a model says about itself; texts are empty where it says nothing."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, info: MetadataInfo) -> ModelMetadata:
        return cls(
            info.producer_name,
            info.graph_name,
            info.domain,
            info.description,
            info.graph_description,
            info.version,
            dict(info.custom_metadata_map),
        )
