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
    Unavailable,
    View,
)
from gossamer.program.cubin import Cubin, TensorMapLayout
from gossamer.program.memory import Arena, Host, Weight
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
        *(Launch, CudnnCall, HostCall, PythonCall, Copy, Fill, View, Unavailable),
        *(Kernel, Pointer, TensorMap, TensorValue, Cubin, TensorMapLayout),
    )
}
"""What a document may hold, by name. No other class is ever made from one."""


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
    if not _fits(kernels, tuple[Kernel, ...]):
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
        if not _fits(content, _hints(type(value).__name__)[field.name]):
            raise Fail(f"{type(value).__name__}.{field.name} does not hold what its type says: {content!r}")
    return encoded


def _is_default(field: Field[Any], value: Any) -> bool:
    """Whether leaving it out loses nothing: equality alone takes 0 for 0.0 and False."""
    return field.default is not MISSING and type(value) is type(field.default) and value == field.default


def _decode(document: Any, fetch: Fetch, kernels: tuple[Kernel, ...]) -> Any:
    match document:
        case None | bool() | int() | float() | str():
            return document
        case list():
            return tuple(_decode(item, fetch, kernels) for item in document)
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


def _decode_fields(name: str, given: dict[Any, Any], fetch: Fetch, kernels: tuple[Kernel, ...]) -> Any:
    kind = KINDS.get(name)
    if kind is None:
        raise _malformed(f"there is no kind '{name}'")
    hints = _hints(name)
    content: dict[str, Any] = {}
    for field, document in given.items():
        if field not in hints:
            raise _malformed(f"a {name} has no field '{field}'")
        if get_origin(hints[field]) is Mapping and isinstance(document, dict):
            content[field] = {key: _decode(item, fetch, kernels) for key, item in document.items()}
        else:
            content[field] = _decode(document, fetch, kernels)
        if not _fits(content[field], hints[field]):
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


@cache
def _hints(name: str) -> Mapping[str, Any]:
    """Field → type, of the kind of that name."""
    recursive = {leaf.__name__.removeprefix("_"): leaf for leaf in _LEAVES}
    return get_type_hints(KINDS[name], localns=recursive)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a declared type. A bool is no int, and what has a class was checked when it was made."""
    if hint in _LEAVES:
        return all(_fits(item, hint) for item in value) if type(value) is tuple else isinstance(value, _LEAVES[hint])
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, choice) for choice in arguments)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(_fits(item, arguments[1]) for item in value.values())
    if origin is tuple and arguments[1:] == (...,):
        return type(value) is tuple and all(_fits(item, arguments[0]) for item in value)
    if origin is tuple:
        return type(value) is tuple and len(value) == len(arguments) and all(map(_fits, value, arguments))
    return isinstance(value, hint) and (hint is bool or not isinstance(value, bool))


def _shortened(document: Any) -> str:
    text = repr(document)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _malformed(text: str) -> ArtifactError:
    return ArtifactError("MALFORMED", text)
