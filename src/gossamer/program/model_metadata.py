"""What a model says about itself: as sessions give it, and as the texts that a compiled file has of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_CUSTOM = "custom_metadata_map."
"""What stands in a description before the names that the model's author chose."""


@dataclass(frozen=True, slots=True)
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
    def of(cls, texts: Mapping[str, str]) -> ModelMetadata:
        """From what `texts` gave."""
        own = {name: text for name, text in texts.items() if name in _TEXTS}
        custom = {name.removeprefix(_CUSTOM): text for name, text in texts.items() if name.startswith(_CUSTOM)}
        return cls(**own, version=int(texts.get("version", "0")), custom_metadata_map=custom)

    @property
    def texts(self) -> dict[str, str]:
        """As a `Description` has it; what is empty is left out."""
        own = {name: str(getattr(self, name)) for name in (*_TEXTS, "version") if getattr(self, name)}
        return own | {f"{_CUSTOM}{name}": text for name, text in self.custom_metadata_map.items()}


_TEXTS = ("producer_name", "graph_name", "domain", "description", "graph_description")
