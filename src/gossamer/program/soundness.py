"""Whether a Program that was read holds together: what it names is there, no buffer lies outside its memory, and calls
stay within their buffers.

Types are checked where values are decoded (`gossamer.program.codec`); this is about what they say to each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from math import prod
from typing import TypeAlias

import numpy as np

from gossamer.program.buffers import dtype_from_file
from gossamer.program.calls import (
    Argument,
    AttributeValue,
    Call,
    Copy,
    CudnnCall,
    Fill,
    HostCall,
    Launch,
    Pointer,
    PythonCall,
    TensorMap,
    TensorValue,
    TypeName,
    leaves,
)
from gossamer.program.manifest import Description
from gossamer.program.memory import Arena, Host, Weight
from gossamer.program.program import Program

_MOST_BLOCKS = (2**31 - 1, 65535, 65535)
"""Of a grid, by dimension. Source: CUDA C++ Programming Guide, "Compute Capabilities"."""
_MOST_BYTES = 2**63 - 1
_ANY_NUMBER = ("1", "none", "fp32", "fp64")
_INTEGERS = {"i1": range(-128, 128)} | {
    name: numbers
    for bits in (8, 16, 32, 64)
    for name, numbers in ((f"i{bits}", range(-(2 ** (bits - 1)), 2 ** (bits - 1))), (f"u{bits}", range(2**bits)))
}
"""What a parameter of each integer type can be."""

BytesOf: TypeAlias = Callable[[str], int | None]
"""`_bytes_of` a buffer of one Program, each looked at once."""


def check_program(program: Program, weights: Mapping[str, np.ndarray]) -> None:
    """Raises ValueError, KeyError or TypeError where a Program and the constants of its file contradict each other."""
    if not 0 <= program.arena_bytes <= _MOST_BYTES:
        raise ValueError(f"there is no arena of {program.arena_bytes} bytes")
    bytes_of = cache(partial(_bytes_of, program, weights))
    for name in (*program.inputs, *program.outputs):
        bytes_of(name)
    for call in program.calls:
        _check_call(call, bytes_of)


def difference_of_ends(program: Program, description: Description) -> str:
    """How inputs and outputs differ, if they do, from those that the file declares. What a session is fed is checked
    against these, and then copied to where the Program has room for its own."""
    for kind, names, slots in (
        ("inputs", program.inputs, description.inputs),
        ("outputs", program.outputs, description.outputs),
    ):
        declared = [slot.name for slot in slots]
        if set(declared) != set(names):
            return f"{program.name} has the {kind} {', '.join(names)}, and the model {', '.join(declared)}"
    for slot in description.inputs:
        dtype = program.buffers[slot.name].dtype
        if dtype != slot.dtype and not isinstance(program.locations[slot.name], Host):
            return f"{program.name} has '{slot.name}' of dtype {dtype}, and the model of {slot.dtype}"
    return ""


def _bytes_of(program: Program, weights: Mapping[str, np.ndarray], name: str) -> int | None:
    """What a buffer has of device memory, None where it is on the host, as strings are. Raises ValueError unless it
    lies inside the arena, or inside a constant that is there."""
    buffer, place = program.buffers[name], program.locations[name]
    if min(buffer.shape, default=0) < 0 or (dtype_from_file(buffer.dtype).hasobject and not isinstance(place, Host)):
        raise ValueError(f"buffer '{name}' cannot be {buffer}")
    if isinstance(place, Host):
        return None
    nbytes = buffer.nbytes
    if isinstance(place, Arena) and not 0 <= place.offset <= program.arena_bytes - nbytes:
        raise ValueError(f"buffer '{name}' lies outside the arena")
    if isinstance(place, Weight):
        present = weights[place.key].nbytes if place.key in weights else -1
        if not 0 <= place.offset <= present - nbytes:
            raise ValueError(f"constant '{place.key}' is not there, or too small for buffer '{name}'")
    return nbytes


def _check_call(call: Call, bytes_of: BytesOf) -> None:
    """What the call does stays within the buffers that it names, which are where it can reach them."""
    for name in (*call.reads, *call.writes):
        if bytes_of(name) is None and not isinstance(call, HostCall):
            raise ValueError(f"{call.origin} works on the device, and buffer '{name}' is on the host")
    match call:
        case Launch():
            _check_launch(call, bytes_of)
        case CudnnCall():
            for _, pointer in call.arguments:
                _check_stretch(pointer.buffer, pointer.offset, 0, bytes_of)
        case Copy():
            _check_stretch(call.source, call.source_offset, call.nbytes, bytes_of)
            _check_stretch(call.out, call.out_offset, call.nbytes, bytes_of)
        case Fill() if not 0 <= call.byte <= 255:
            raise ValueError(f"{call.byte} is no byte")
        case PythonCall():
            _check_attribute(tuple(value for _, value in call.attributes))


def _check_launch(launch: Launch, bytes_of: BytesOf) -> None:
    if not all(1 <= blocks <= most for blocks, most in zip(launch.grid, _MOST_BLOCKS, strict=True)):
        raise ValueError(f"{launch.origin}: there is no grid of {'×'.join(map(str, launch.grid))} blocks")
    if not _fit(launch.arguments, tuple(kind for _, kind in launch.kernel.signature)):
        raise ValueError(f"{launch.origin}: the arguments are not those of {launch.kernel.name}")
    for leaf in leaves(launch.arguments):
        if type(leaf) is Pointer:
            _check_stretch(leaf.buffer, leaf.offset, 0, bytes_of)
        elif type(leaf) is TensorMap:
            _check_tensor_map(leaf, bytes_of)


def _fit(arguments: tuple[Argument, ...], type_names: tuple[TypeName, ...]) -> bool:
    """Whether arguments can be passed as parameters of these types (`Kernel`)."""
    if len(arguments) != len(type_names):
        return False
    for argument, type_name in zip(arguments, type_names, strict=True):
        if isinstance(argument, tuple) or isinstance(type_name, tuple):
            if not (isinstance(argument, tuple) and isinstance(type_name, tuple) and _fit(argument, type_name)):
                return False
        elif isinstance(argument, int | float):
            integers = _integers(type_name)
            if integers is not None and not (isinstance(argument, int) and argument in integers):
                return False
        elif not type_name.startswith("*" if isinstance(argument, Pointer) else "tensordesc<"):
            return False
    return True


@cache
def _integers(type_name: str) -> range | None:
    """Those that a parameter of that type can be; None where it takes any number."""
    kind = type_name.partition(":")[0]
    return None if kind in _ANY_NUMBER else _INTEGERS.get(kind, range(0))


def _check_stretch(name: str, offset: int, nbytes: int, bytes_of: BytesOf) -> None:
    present = bytes_of(name)
    if present is None or not (nbytes >= 0 and 0 <= offset <= present - nbytes):
        raise ValueError(f"{nbytes} bytes at {offset} lie outside buffer '{name}' on the device")


def _check_tensor_map(what: TensorMap, bytes_of: BytesOf) -> None:
    """Every element that the copy engine can take by it lies in the buffer."""
    ranks = {len(what.shape), len(what.strides), len(what.box), len(what.gaps or what.box)}
    if len(ranks) > 1 or min((*what.shape, *what.strides, *what.box, *what.gaps), default=0) <= 0:
        raise ValueError(f"there is no {what}")
    elements = 1 + sum((extent - 1) * stride for extent, stride in zip(what.shape, what.strides, strict=True))
    _check_stretch(what.buffer, 0, elements * dtype_from_file(what.dtype).itemsize, bytes_of)


def _check_attribute(value: AttributeValue) -> None:
    match value:
        case tuple():
            for item in value:
                _check_attribute(item)
        case TensorValue():
            dtype = dtype_from_file(value.dtype)
            fits = len(value.content) == prod(value.shape) * dtype.itemsize and min(value.shape, default=0) >= 0
            if dtype.hasobject or not fits:
                raise ValueError(f"{len(value.content)} bytes are no {value.dtype}{list(value.shape)}")
