"""What the manifest of a compiled model says: its inputs and outputs, what made it, and its signatures, as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
"""A signature: the shape of every input, by name."""


@dataclass(frozen=True, slots=True)
class Slot:
    """An input or output as the model declares it: dtype by NumPy's name (`string`; ONNX's text for what is no tensor),
    shape with names where a dimension is free."""

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape where every dimension is a number, else None."""
        numbers = tuple(d for d in self.shape or () if isinstance(d, int))
        return None if self.shape is None or len(numbers) < len(self.shape) else numbers


@dataclass(frozen=True, slots=True)
class Description:
    """What a compiled model says about itself.

    versions: of what made it, by name (`gossamer`, `triton`, `ptxas`, `cudnn`). metadata: the model's own, such as its
    producer.
    """

    model: str
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)


def slot_entry(slot: Slot) -> dict[str, Any]:
    """A slot as JSON."""
    shape = None if slot.shape is None else list(slot.shape)
    return {"name": slot.name, "dtype": slot.dtype, "shape": shape}


def description_of(manifest: Mapping[str, Any]) -> Description:
    """What a manifest says about its model. Raises ValueError, KeyError or TypeError where it is no manifest."""
    inputs, outputs = (tuple(map(_slot_of, manifest[name])) for name in ("inputs", "outputs"))
    versions, metadata = (dict(manifest[name]) for name in ("versions", "metadata"))
    texts = (manifest["model"], *versions.values(), *metadata.values())
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("what it says about itself is no text")
    return Description(manifest["model"], inputs, outputs, versions, metadata)


def _slot_of(entry: Mapping[str, Any]) -> Slot:
    name, dtype, shape = entry["name"], entry["dtype"], entry["shape"]
    sizes = () if shape is None else tuple(shape)
    if not isinstance(name, str) or not isinstance(dtype, str) or {*map(type, sizes)} - {int, str, type(None)}:
        raise ValueError(f"{entry} is no input or output")
    return Slot(name, dtype, None if shape is None else sizes)


def shapes_of(entry: Mapping[str, Any]) -> Shapes:
    """A signature from its JSON. Raises ValueError, TypeError or AttributeError where it is none."""
    shapes = {name: tuple(shape) for name, shape in entry.items()}
    if not all(type(size) is int for shape in shapes.values() for size in shape):
        raise ValueError(f"{entry} are no shapes")
    return shapes


def difference(wanted: Shapes, held: Sequence[Shapes]) -> str:
    """Why no signature is the wanted one, in terms of one input where possible."""
    names = list(held[0]) if held else []
    if strange := [name for name in wanted if name not in names]:
        return f"there is no input '{strange[0]}'; the inputs are {', '.join(names)}"
    for name in names:
        shapes = list(dict.fromkeys(signature[name] for signature in held))
        texts = " and ".join(_shape_text(shape) for shape in shapes)
        if name not in wanted:
            return f"the shape of input '{name}' is not given; the file holds {texts}"
        if wanted[name] not in shapes:
            return (
                f"input '{name}' has shape {_shape_text(wanted[name])}, and the file holds {texts}; add it by --shapes"
            )
    signatures = "; ".join(map(shapes_text, held)) or "none"
    return f"inputs {shapes_text(wanted)} are no signature of the file, which holds {signatures}"


def _shape_text(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape)) or "scalar"


def shapes_text(shapes: Shapes) -> str:
    """A signature in words: `x=1×3×224×224`."""
    return ", ".join(f"{name}={_shape_text(shape)}" for name, shape in shapes.items()) or "none"
