"""The reference of `gossamer.cudnn`, from its signatures and docstrings: docs/cudnn_reference.md."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from types import FunctionType, ModuleType
from typing import Any

from gossamer import cudnn
from gossamer.cudnn.device_properties import COMPARED
from gossamer.cudnn.engines import MODES, NOTES
from gossamer.cudnn.operations import norm, pointwise, reduction, resample
from gossamer.cudnn.tensors import DATA_TYPES

_BEGIN = """\
# Reference of `gossamer.cudnn`

Printed from its signatures and docstrings; [cudnn_graphs.md](cudnn_graphs.md) shows how it is used. All its errors are
`gossamer.GossamerError`s, and those about arguments `ValueError`s, too. Arguments behind `*` go by name."""

_ORDER = (
    *("Graph", "Tensor", "DeviceProperties", "Plan", "Binding", "EngineConfig"),
    *("Handle", "KernelCache", "driver_stand_in", "PlanError", "CudnnError"),
)
"""Public names, as one comes to need them."""

_MADE_BY_CALLERS = ("Graph", "Handle", "KernelCache", "DeviceProperties")
"""Classes whose constructors are for callers; the others' objects come out of these."""

_INTERNAL = "Descriptor"
"""What returns one, or holds one, is for Gossamer itself."""

_TIED = "\N{NO-BREAK SPACE}"
"""A space at which no line ends, while signatures are wrapped: lines end between parameters."""

_NAMES: dict[str, Iterable[str]] = {
    "Data types": DATA_TYPES,
    "Heuristic modes": MODES,
    "Notes, for `require` and `forbid`": sorted(NOTES),
    "Modes of `pointwise`": pointwise.MODES,
    "Modes of `reduction`": reduction.MODES,
    "Modes of `pool`": resample.MODES,
    "Modes of `normalization`": norm.MODES,
    "Device properties in which a plan's device and the one here have to agree": sorted(COMPARED),
}


def as_markdown() -> str:
    """docs/cudnn_reference.md."""
    assert set(_ORDER) == set(cudnn.__all__), set(_ORDER) ^ set(cudnn.__all__)
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _BEGIN
    for name in _ORDER:
        public = getattr(cudnn, name)
        yield from ("", f"## {name}", "")
        yield from _module(public) if isinstance(public, ModuleType) else _class(public)
    yield from ("", "## Names", "")
    for title, names in _NAMES.items():
        yield f"* {title}: {', '.join(f'`{name}`' for name in names)}"


def _module(module: ModuleType) -> Iterator[str]:
    """Its text, and the functions of its `__all__`."""
    yield _text(module)
    for name in module.__all__:
        if isinstance(function := getattr(module, name), FunctionType):
            yield from _entry(f"{module.__name__.rpartition('.')[2]}.{name}", _signature(name, function), function)


def _class(kind: type) -> Iterator[str]:
    """What it is, how it is made or what it holds, and its members, inherited ones behind its own."""
    if kind.__name__ in _MADE_BY_CALLERS:
        yield from (*_code(_signature(kind.__name__, vars(kind)["__init__"])), "")
    elif is_dataclass(kind):
        held = [f"{field.name}: {field.type}" for field in fields(kind) if field.type != _INTERNAL]
        yield from (*_code("\n".join(held)), "")
    yield _text(kind)
    if text := vars(kind)["__init__"].__doc__ if "__init__" in vars(kind) and not is_dataclass(kind) else "":
        yield from ("", inspect.cleandoc(text))
    yield from _members(kind, kind)
    for base in kind.__mro__[1:]:
        if base.__module__.startswith("gossamer.cudnn"):
            yield from ("", f"### Inherited from {base.__name__}", "", _text(base))
            yield from _members(base, kind)


def _members(owner: type, kind: type) -> Iterator[str]:
    """Public methods and properties in the order in which they are written, as members of `kind`."""
    for name, member in vars(owner).items():
        if name.startswith("_") or (owner is not kind and name in vars(kind)):
            continue
        if isinstance(member, property):
            yield from _entry(f"{kind.__name__}.{name}", f"{name}: {member.fget.__annotations__['return']}", member)
        elif isinstance(member, (FunctionType, classmethod)):
            function = member.__func__ if isinstance(member, classmethod) else member
            if function.__annotations__["return"] != _INTERNAL:
                yield from _entry(f"{kind.__name__}.{name}", _signature(name, function), member)


def _entry(title: str, spelling: str, documented: Any) -> Iterator[str]:
    yield from ("", f"### {title}", "", *_code(spelling), "", _text(documented))


def _code(text: str) -> tuple[str, str, str]:
    wrapped = [textwrap.fill(line, 110, subsequent_indent="    ", break_on_hyphens=False) for line in text.split("\n")]
    return "```", "\n".join(wrapped).replace(_TIED, " "), "```"


def _text(documented: Any) -> str:
    text = inspect.getdoc(documented)
    assert text, f"{documented} has no docstring"
    return text


def _signature(name: str, function: Any) -> str:
    """As it is written in the source, without `self`; the same text from every version of Python."""
    signature = inspect.signature(function)
    parts: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not any(part.startswith("*") for part in parts):
            parts.append("*")
        parts.append(_parameter(parameter))
    returned = "" if signature.return_annotation == "None" else f" -> {signature.return_annotation}".replace(" ", _TIED)
    return f"{name}({', '.join(parts)}){returned}"


def _parameter(parameter: inspect.Parameter) -> str:
    star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
    return f"{star}{parameter.name}: {parameter.annotation}{default}".replace(" ", _TIED)
