"""What the commands that take a model have in common: NAME=VALUE arguments, shapes, devices."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer import settings
from gossamer.errors import InvalidArgument
from gossamer.program.artifact import is_compiled

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


@dataclass(frozen=True)
class Request:
    """One model and what the command line says about running it.

    inputs, shapes: by input name; the name is empty where the command line gave none. device: `cuda`, `interpreter`,
    `null`, `cpu`, or empty for the default. options: of the CUDA provider.
    """

    model: Path
    inputs: Mapping[str, str]
    shapes: Mapping[str, tuple[int, ...]]
    device: str
    options: Mapping[str, str]
    seed: int

    @classmethod
    def parse(
        cls,
        model: Path,
        inputs: Sequence[str] | None,
        shapes: Sequence[str] | None,
        device: str | None,
        options: Sequence[str] | None,
        seed: int,
    ) -> Request:
        """From the texts of the command line. Errors: InvalidArgument with the option, what came and what is wanted."""
        named = _pairs("--option", options or ())
        if "" in named:
            raise InvalidArgument(f"--option {named['']!r}: NAME=VALUE is wanted, such as use_tf32=0")
        return cls(
            model,
            _pairs("--input", inputs or ()),
            {name: parse_shape(text) for name, text in _pairs("--input-shape", shapes or (), at_last=True).items()},
            str(device) if device else "",
            named,
            seed,
        )

    def for_inputs(self, names: Sequence[str]) -> tuple[dict[str, str], dict[str, tuple[int, ...]]]:
        """`inputs` and `shapes` with every name filled in and known. Errors: InvalidArgument."""
        return _resolved("--input", self.inputs, names), _resolved("--input-shape", self.shapes, names)

    def providers(self) -> list[Any] | None:
        """What InferenceSession takes. Errors: DeviceNotFound where the GPU was asked for by name and is not there."""
        if self.device == "cpu":
            if self.options:
                raise InvalidArgument("--option is for the CUDA provider, and --device cpu does not use it")
            return [CPU]
        if self.device == "cuda":
            from gossamer.run import driver

            driver.require_device(int(self.options.get("device_id", "0")))
        device = {"device": self.device} if self.device else {}
        return [(CUDA, device | dict(self.options)), CPU]

    @property
    def is_compiled(self) -> bool:
        """Whether the model is one that `gossamer compile` wrote."""
        return is_compiled(self.model)

    @property
    def runs_nothing(self) -> bool:
        """Whether outputs will be zeros because the device is null."""
        return (self.device or settings.DEVICE()) == "null"


def parse_signature(text: str, names: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """`x=1x3x48x320,y=1x10` → shapes of inputs; NAME= may be left out where there is one. names: of all inputs.

    Errors: InvalidArgument.
    """
    shapes = {
        name: parse_shape(shape, "--shapes")
        for name, shape in _pairs("--shapes", _of_inputs(text, names), at_last=True).items()
    }
    return _resolved("--shapes", shapes, names)


def _of_inputs(text: str, names: Sequence[str]) -> list[str]:
    """The parts of a signature, NAME=SHAPE each: one begins with the longest name of an input that fits there, which
    may hold commas and equals signs, and ends before a comma, a name and `=`. What is no input's name has neither."""
    name = "|".join((*map(re.escape, sorted(names, key=len, reverse=True)), "[^,=]+"))
    part = re.compile(rf"((?:{name})=.*?)(?:,(?=(?:{name})=)|\Z)", re.DOTALL)
    return part.findall(text) if part.match(text) else [text] * bool(text)


def parse_shape(text: str, option: str = "--input-shape") -> tuple[int, ...]:
    """`1x3x224x224` (or with commas) → sizes; nothing is the shape of a scalar."""
    if not re.fullmatch(r"(\d+([x,]\d+)*)?", text):
        raise InvalidArgument(f"{option} {text!r}: whole numbers joined by x are wanted, such as 1x3x224x224")
    return tuple(int(extent) for extent in re.split("[x,]", text)) if text else ()


def parse_size(text: str) -> int:
    """`200M`, `2G` or a plain number → bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text, re.IGNORECASE)
    if match is None:
        raise InvalidArgument(f"size {text!r}: a number of bytes is wanted, such as 500000, 200M or 2G")
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))


def _pairs(option: str, texts: Sequence[str], *, at_last: bool = False) -> dict[str, str]:
    """NAME=VALUE, divided at the first `=`, or at the last one, where no value has any."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.rpartition("=") if at_last else text.partition("=")
        name, value = (name, value) if equals else ("", text)
        if name in pairs:
            raise InvalidArgument(f"{option} {text!r}: {f'{name!r} was given before' if name else 'NAME= is needed'}")
        pairs[name] = value
    return pairs


def _resolved(option: str, given: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """`given` with the one input's name in place of the empty one."""
    resolved = {}
    for name, value in given.items():
        if not name and len(names) != 1:
            raise InvalidArgument(f"{option}: say for which input, NAME=...; the model has {', '.join(names)}")
        if name and name not in names:
            raise InvalidArgument(f"{option} {name}=...: the model has no such input; it has {', '.join(names)}")
        resolved[name or names[0]] = value
    return resolved
