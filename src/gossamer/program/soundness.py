"""Whether a Program that was read holds together: what it names is there, and no buffer lies outside its memory.

Types are checked where values are decoded (`gossamer.program.codec`); this is about what they say to each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

import numpy as np

from gossamer.program.buffers import dtype_of
from gossamer.program.calls import AttributeValue, Call, CudnnCall, Launch, PythonCall, TensorValue, leaves
from gossamer.program.memory import Arena, Host, Weight
from gossamer.program.program import Program


def check_program(program: Program, weights: Mapping[str, np.ndarray]) -> None:
    """Raises ValueError, KeyError or TypeError where a Program and the constants of its file contradict each other."""
    named = {*program.inputs, *program.outputs}
    for name in named.union(*(_buffers_of(call) for call in program.calls)):
        _check_place(name, program, weights)
    for call in program.calls:
        if isinstance(call, PythonCall):
            _check_attribute(tuple(value for _, value in call.attributes))


def _buffers_of(call: Call) -> Iterator[str]:
    """Every buffer that a call names."""
    yield from call.reads
    yield from call.writes
    if isinstance(call, Launch):
        yield from (leaf.buffer for leaf in leaves(call.arguments) if not isinstance(leaf, int | float))
    if isinstance(call, CudnnCall):
        yield from (pointer.buffer for _, pointer in call.arguments)


def _check_place(name: str, program: Program, weights: Mapping[str, np.ndarray]) -> None:
    """The buffer lies inside the arena, or inside a constant that is there. Strings, which NumPy has as objects, live
    on the host."""
    buffer, place = program.buffers[name], program.locations[name]
    if min(buffer.shape, default=0) < 0 or (dtype_of(buffer.dtype).hasobject and not isinstance(place, Host)):
        raise ValueError(f"buffer '{name}' cannot be {buffer}")
    if isinstance(place, Arena) and not 0 <= place.offset <= program.arena_bytes - buffer.nbytes:
        raise ValueError(f"buffer '{name}' lies outside the arena")
    if isinstance(place, Weight):
        present = weights[place.key].nbytes if place.key in weights else -1
        if not 0 <= place.offset <= present - buffer.nbytes:
            raise ValueError(f"constant '{place.key}' is not there, or too small for buffer '{name}'")


def _check_attribute(value: AttributeValue) -> None:
    match value:
        case tuple():
            for item in value:
                _check_attribute(item)
        case TensorValue():
            dtype = dtype_of(value.dtype)
            if dtype.hasobject or len(value.content) != prod(value.shape) * dtype.itemsize:
                raise ValueError(f"{len(value.content)} bytes are no {value.dtype}{list(value.shape)}")
