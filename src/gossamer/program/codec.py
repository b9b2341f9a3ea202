"""Programs as JSON values and back, without loss: what compiled files hold.

A dataclass is an object with its name under `kind` and its fields, those at their default left out; a tuple is an
array; bytes are `{"bytes": NAME}`, kept elsewhere under that name; a kernel, which many launches share, is
`{"kernel": INDEX}` into the Program's list; a float that JSON lacks is `{"float": BITS}`. Reading checks every value
against the type its field is declared with, so that a Program from a file is as well formed as one from the builder.
"""

from __future__ import annotations

import struct
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from functools import cache
from math import isfinite
from typing import Any, TypeAlias, Union, get_args, get_origin, get_type_hints

from gossamer.errors import ArtifactError, Fail
from gossamer.program.buffers import Buffer
from gossamer.program.calls import (
    Copy,
    CudnnCall,
    Fill,
    HostCall,
    Kernel,
    Launch,
    Origin,
    Pointer,
    PythonCall,
    TensorMap,
    TensorValue,
    View,
)
from gossamer.program.cubin import Cubin, TensorMapLayout
from gossamer.program.memory import Arena, Host, Weight
from gossamer.program.placement import PlacedRecord
from gossamer.program.program import Program
from gossamer.program.target import Target

Store: TypeAlias = Callable[[bytes], str]
"""Keeps bytes, and says under which name."""
Fetch: TypeAlias = Callable[[str], bytes]
"""The bytes of that name."""

KINDS: Mapping[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        *(Program, Target, Buffer, Arena, Weight, Host, Origin),
        *(Launch, CudnnCall, HostCall, PythonCall, Copy, Fill, View),
        *(Kernel, Pointer, TensorMap, TensorValue, Cubin, TensorMapLayout, PlacedRecord),
    )
}
"""What a document may hold, by name. No other class is ever made from one. `Unavailable` is not here: whether a cuDNN
can be used is for the machine to say that runs the Program."""


def encode(program: Program, store: Store) -> dict[str, Any]:
    """The Program as JSON values: `{"kernels": […], "program": {…}}`. Kernels stand in the order of their first launch.

    Raises Fail where it holds a value of a type that files do not know.
    """
    kernels = {kernel: index for index, kernel in enumerate(program.kernels)}
    return {
        "kernels": [_encode(kernel, store, {}) for kernel in kernels],
        "program": _encode(program, store, kernels),
    }


def decode(document: Any, fetch: Fetch) -> Program:
    """The Program of a document that `encode` made. Raises ArtifactError (MALFORMED) where it is no such document."""
    if not isinstance(document, dict) or document.keys() != {"kernels", "program"}:
        raise _malformed("a Program is an object of 'kernels' and 'program'")
    kernels = _decode(document["kernels"], fetch, ())
    if not _check_of(tuple[Kernel, ...])(kernels):
        raise _malformed("'kernels' is no list of kernels")
    program = _decode(document["program"], fetch, kernels)
    if not isinstance(program, Program):
        raise _malformed("'program' is no Program")
    return program


def encode_value(value: Any, store: Store) -> Any:
    """A value of one of `KINDS`, or of what their fields hold, as a JSON value. Raises Fail as `encode` does."""
    return _encode(value, store, {})


def decode_value(document: Any, fetch: Fetch) -> Any:
    """What `encode_value` encoded. Raises ArtifactError (MALFORMED)."""
    return _decode(document, fetch, ())


def _encode(value: Any, store: Store, kernels: Mapping[Kernel, int]) -> Any:
    match value:
        case None | bool() | str():
            return value
        case int():
            return int(value)
        case float():
            return float(value) if isfinite(value) else {"float": struct.pack(">d", value).hex()}
        case bytes():
            return {"bytes": store(value)}
        case tuple():
            return [_encode(item, store, kernels) for item in value]
        case Kernel() if value in kernels:
            return {"kernel": kernels[value]}
        case _ if KINDS.get(type(value).__name__) is type(value):
            return _encode_fields(value, store, kernels)
        case _:
            raise Fail(f"compiled files cannot hold a {type(value).__module__}.{type(value).__qualname__}: {value!r}")


def _encode_fields(value: Any, store: Store, kernels: Mapping[Kernel, int]) -> dict[str, Any]:
    encoded: dict[str, Any] = {"kind": type(value).__name__}
    for field in fields(value):
        content = getattr(value, field.name)
        if isinstance(content, Mapping):
            encoded[field.name] = {name: _encode(item, store, kernels) for name, item in content.items()}
        elif not _is_default(field, content):
            encoded[field.name] = _encode(content, store, kernels)
        if not _checks(type(value).__name__)[field.name](content):
            raise Fail(f"{type(value).__name__}.{field.name} does not hold what its type says: {content!r}")
    return encoded


def _is_default(field: Field[Any], value: Any) -> bool:
    """Whether leaving it out loses nothing: equality alone takes 0 for 0.0 and False."""
    return field.default is not MISSING and type(value) is type(field.default) and value == field.default


def _decode(document: Any, fetch: Fetch, kernels: tuple[Kernel, ...]) -> Any:
    if type(document) in _PLAIN:  # most values are; a match statement takes five times as long to see it
        return document
    if type(document) is list:
        return tuple([_decode(item, fetch, kernels) for item in document])
    match document:
        case {"kind": str(name), **given}:
            return _decode_fields(name, given, fetch, kernels)
        case {"kernel": int(index)} if len(document) == 1 and 0 <= index < len(kernels):
            return kernels[index]
        case {"bytes": str(name)} if len(document) == 1:
            return fetch(name)
        case {"float": str(bits)} if len(document) == 1:
            return _float_of(bits)
        case _:
            raise _malformed(f"{_shortened(document)} stands for no value")


_PLAIN = frozenset((str, int, float, bool, types.NoneType))


def _decode_fields(name: str, given: dict[Any, Any], fetch: Fetch, kernels: tuple[Kernel, ...]) -> Any:
    kind = KINDS.get(name)
    if kind is None:
        raise _malformed(f"there is no kind '{name}'")
    checks, mappings = _checks(name), _mappings(name)
    content: dict[str, Any] = {}
    for field, document in given.items():
        if field not in checks:
            raise _malformed(f"a {name} has no field '{field}'")
        if field in mappings and type(document) is dict:
            content[field] = {key: _decode(item, fetch, kernels) for key, item in document.items()}
        else:
            content[field] = _decode(document, fetch, kernels)
        if not checks[field](content[field]):
            raise _malformed(f"{name}.{field} cannot be {_shortened(document)}")
    try:
        return kind(**content)
    except (TypeError, AssertionError) as error:  # a field is missing, or what the class asks for does not hold
        raise _malformed(f"{name}: {error}") from None


def _float_of(bits: str) -> float:
    try:
        (value,) = struct.unpack(">d", bytes.fromhex(bits))
    except (ValueError, struct.error):
        raise _malformed(f"'{bits}' are not the bits of a float") from None
    return float(value)


class _Constant:
    """Stands for the recursive type `Constant`, which a type hint cannot spell out; so do the others for theirs."""


class _TypeName:
    pass


class _Argument:
    pass


class _AttributeValue:
    pass


_LEAVES: Mapping[type, tuple[type, ...]] = {
    _Constant: (int, float, str, bool, types.NoneType),
    _TypeName: (str,),
    _Argument: (Pointer, TensorMap, int, float),
    _AttributeValue: (int, float, str, TensorValue),
}
"""What stands at the ends of the tuples of each recursive type."""


Check: TypeAlias = Callable[[Any], bool]
"""Whether a value is of some type."""


@cache
def _hints(name: str) -> Mapping[str, Any]:
    """Field → type, of the kind of that name."""
    recursive = {leaf.__name__.removeprefix("_"): leaf for leaf in _LEAVES}
    return get_type_hints(KINDS[name], localns=recursive)


@cache
def _mappings(name: str) -> frozenset[str]:
    """The fields that hold values by name."""
    return frozenset(field for field, hint in _hints(name).items() if get_origin(hint) is Mapping)


@cache
def _checks(name: str) -> Mapping[str, Check]:
    """Field → whether a value is of its type, of the kind of that name."""
    return {field: _check_of(hint) for field, hint in _hints(name).items()}


def _check_of(hint: Any) -> Check:
    """Whether a value is of a declared type. A bool is no int, and what has a class was checked when it was made."""
    if hint in _LEAVES:
        return _check_of_leaves(_LEAVES[hint])
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        choices = tuple(map(_check_of, arguments))
        return lambda value: any(check(value) for check in choices)
    if origin is Mapping:
        item = _check_of(arguments[1])
        return lambda value: isinstance(value, Mapping) and all(map(item, value.values()))
    if origin is tuple and arguments[1:] == (...,):
        each = _check_of(arguments[0])
        return lambda value: type(value) is tuple and all(map(each, value))
    if origin is tuple:
        return _check_of_items(tuple(map(_check_of, arguments)))
    if hint is bool:
        return lambda value: type(value) is bool
    return lambda value: isinstance(value, hint) and type(value) is not bool


def _check_of_items(checks: tuple[Check, ...]) -> Check:
    def check(value: Any) -> bool:
        if type(value) is not tuple or len(value) != len(checks):
            return False
        return all(fits(item) for fits, item in zip(checks, value, strict=True))

    return check


def _check_of_leaves(kinds: tuple[type, ...]) -> Check:
    def check(value: Any) -> bool:
        return all(map(check, value)) if type(value) is tuple else isinstance(value, kinds)

    return check


def _shortened(document: Any) -> str:
    text = repr(document)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _malformed(text: str) -> ArtifactError:
    return ArtifactError("MALFORMED", text)
