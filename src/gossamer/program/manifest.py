"""What the manifest of a compiled model says: its inputs and outputs, what made it, and its signatures, as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
"""A signature: the shape of every input, by name."""


CUDNN = "cudnn"
"""Among what a Program needs: it has CudnnCalls."""


@dataclass(frozen=True, slots=True)
class Slot:
    """An input or output as the model declares it: dtype by NumPy's name (`string`; ONNX's text for what is no tensor;
    `undefined`), shape with names where a dimension is free."""

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None

    @property
    def is_tensor(self) -> bool:
        """What is none (a sequence, a map, an optional) has no part in signatures: its shape there is empty."""
        return "(" not in self.dtype

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape where every dimension is a number, else None."""
        numbers = tuple(d for d in self.shape or () if isinstance(d, int))
        return None if self.shape is None or len(numbers) < len(self.shape) else numbers


@dataclass(frozen=True, slots=True)
class Description:
    """What a compiled model says about itself.

    versions: of what made it, by name (`gossamer`, `triton`, `ptxas`, `cudnn`). metadata: the model's own, such as its
    producer; its `version` is a whole number. optimized: False where it was compiled with ORT_DISABLE_ALL.
    """

    model: str
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    optimized: bool = True


@dataclass(frozen=True, slots=True)
class Entry:
    """A Program of the file. member: which holds it. needs: `Program.needs`."""

    target: str
    shapes: Shapes
    needs: tuple[str, ...]
    member: str

    @property
    def uses_cudnn(self) -> bool:
        return CUDNN in self.needs

    @property
    def order(self) -> Any:
        """Where it stands in the manifest. No two entries have the same."""
        return self.target, list(self.shapes.items()), self.uses_cudnn

    def as_json(self) -> dict[str, Any]:
        shapes = {name: list(shape) for name, shape in self.shapes.items()}
        return {"target": self.target, "shapes": shapes, "needs": list(self.needs), "member": self.member}

    @staticmethod
    def of(entry: Mapping[str, Any]) -> Entry:
        """From its JSON. Raises ValueError, KeyError, TypeError or AttributeError where it is none."""
        needs = tuple(entry["needs"])
        if not all(isinstance(need, str) for need in needs) or needs != tuple(sorted(set(needs))):
            raise ValueError(f"{entry['needs']} is no sorted list of needs")
        return Entry(entry["target"], shapes_of(entry["shapes"]), needs, entry["member"])


def problem_of(entries: Sequence[Entry]) -> str:
    """What is wrong, if anything, with the Programs of one file: each target and signature has one native Program, and
    at most one that uses cuDNN."""
    found: dict[Any, list[bool]] = {}
    for entry in entries:
        found.setdefault((entry.target, frozenset(entry.shapes.items())), []).append(entry.uses_cudnn)
    for (target, shapes), uses in found.items():
        where = f"{target} and inputs {shapes_text(dict(sorted(shapes)))}"
        if len(uses) > len(set(uses)):
            return f"there are two Programs for {where}{' that use cuDNN' * (uses.count(True) > 1)}"
        if False not in uses:
            return f"the Program for {where} uses cuDNN, and there is none that runs without"
    return ""


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
    int(metadata.get("version", "0"))  # raises ValueError
    optimized = manifest.get("optimized", True)  # which the first files do not say
    if type(optimized) is not bool:
        raise ValueError(f"'optimized' is {optimized!r}")
    return Description(manifest["model"], inputs, outputs, versions, metadata, optimized)


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
