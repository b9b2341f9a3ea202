"""Whether a Program that was read holds together: what it names is there, no buffer lies outside its memory, calls stay
within their buffers and take them for what they are, and machine code is what a GPU like the target can launch.

Types are checked where values are decoded (`gossamer.program.codec`); this is about what they say to each other. What
only an operator, onnxruntime or cuDNN knows of its outputs is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from math import prod
from typing import TypeAlias

import numpy as np

from gossamer.program import strict_json
from gossamer.program.buffers import ARENA_ALIGNMENT, dtype_from_file
from gossamer.program.calls import (
    MAX_BOX,
    MAX_GAP,
    MAX_GRID,
    TRITON_TYPES,
    Argument,
    AttributeValue,
    Call,
    Copy,
    CudnnCall,
    Fill,
    HostCall,
    Kernel,
    Launch,
    Pointer,
    PythonCall,
    TensorMap,
    TensorValue,
    TypeName,
    View,
    leaves,
)
from gossamer.program.cubin import Cubin, TensorMapLayout
from gossamer.program.manifest import Description
from gossamer.program.memory import Arena, Host, Weight
from gossamer.program.program import Program
from gossamer.program.target import Target

_MOST_BYTES = 2**63 - 1
_ANY_NUMBER = ("1", "none", "fp32", "fp64")
_INTEGERS = {"i1": range(-128, 128)} | {
    name: numbers
    for bits in (8, 16, 32, 64)
    for name, numbers in ((f"i{bits}", range(-(2 ** (bits - 1)), 2 ** (bits - 1))), (f"u{bits}", range(2**bits)))
}
"""What a parameter of each integer type can be."""
_ELEMENTS = {name: dtype for dtype, name in TRITON_TYPES.items()}
"""Triton's name of an element type → dtype."""
_MOST_WARPS = 32
"""Of a block. Source: as of `MAX_GRID`."""
_MOST_RANK, _MOST_EXTENT, _MOST_STRIDE = 5, 2**32, 2**40
"""Of a TMA descriptor; strides in bytes, to be less. Source: as of `MAX_BOX`."""
_SWIZZLES = range(4)
"""CUtensorMapSwizzle, as far as Triton uses it."""
_ALIGNMENTS = tuple(1 << shift for shift in range(ARENA_ALIGNMENT.bit_length()))
"""Of scratch, in bytes: the driver's allocations have them."""
_VECTOR_BYTES = 16
"""What pointers that are said to be divisible are divisible by, and the strides and the address of a TMA descriptor."""

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
        _check_call(call, program, bytes_of)


def check_code(program: Program, cubins: Mapping[Kernel, Cubin]) -> None:
    """Raises ValueError where figures of machine code are none that a GPU like the target has or that go with the
    launches. cubins: for the kernels of a Program that `check_program` let pass; an interpreted one has none."""
    for kernel, cubin in cubins.items():
        _check_cubin(kernel, cubin, program.target)
    for launch in program.launches if cubins else ():
        cubin = cubins[launch.kernel]
        if cubin.scratch_bytes * prod(launch.grid) > _MOST_BYTES:
            raise ValueError(f"{launch.origin}: no GPU has {cubin.scratch_bytes} bytes for each of its blocks")
        maps = (leaf for leaf in leaves(launch.arguments) if isinstance(leaf, TensorMap)) if cubin.tensor_maps else ()
        for what, layout in zip(maps, cubin.tensor_maps, strict=True):
            _check_layout(what, layout)


def _check_cubin(kernel: Kernel, cubin: Cubin, target: Target) -> None:
    expected = {
        "function": cubin.function.isascii() and cubin.function.isidentifier(),
        "arch": cubin.arch == target.arch,
        "num_warps": 1 <= cubin.num_warps <= _MOST_WARPS,
        "shared_bytes": 0 <= cubin.shared_bytes <= target.shared_bytes,
        "scratch_bytes": cubin.scratch_bytes >= 0,
        "scratch_alignment": cubin.scratch_alignment in _ALIGNMENTS,
    }
    for name, holds in expected.items():
        if not holds:
            figure = f"{name} {getattr(cubin, name)!r}"
            raise ValueError(f"the machine code of {kernel.name} for {target.name} cannot have {figure}")
    wanted = sum(leaf.startswith("tensordesc<") for leaf in _type_names(kernel))
    if len(cubin.tensor_maps) != wanted:
        raise ValueError(f"{kernel.name} takes {wanted} TMA descriptors, its machine code {len(cubin.tensor_maps)}")


def _type_names(kernel: Kernel) -> Iterator[str]:
    """Of the parameters, out of their tuples."""
    waiting: list[TypeName] = [kind for _, kind in kernel.signature]
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, tuple):
            waiting += kind
        else:
            yield kind


def _check_layout(what: TensorMap, layout: TensorMapLayout) -> None:
    spans = [extent * gap for extent, gap in zip(layout.box, what.gaps or (1,) * len(what.box), strict=True)]
    if not (
        layout.swizzle in _SWIZZLES
        and layout.element_size == dtype_from_file(what.dtype).itemsize
        and all(1 <= span <= MAX_BOX for span in spans)
        and max(what.gaps, default=1) <= MAX_GAP
    ):
        raise ValueError(f"there is no {what} as {layout}")


def check_target(target: Target) -> None:
    """Raises ValueError where a target's figures are none, or its properties no JSON object."""
    if min(target.arch, target.sm_count, target.shared_bytes) <= 0:
        raise ValueError(f"there is no target of {target.arch=}, {target.sm_count=}, {target.shared_bytes=}")
    if target.properties and not isinstance(strict_json.parse(target.properties), dict):
        raise ValueError(f"the properties of target {target.name} are no JSON object")


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
    for slot in (*description.inputs, *description.outputs):
        dtype = program.buffers[slot.name].dtype
        if slot.dtype not in (dtype, "undefined") and not isinstance(program.locations[slot.name], Host):
            return f"{program.name} has '{slot.name}' of dtype {dtype}, and the model of {slot.dtype}"
    return ""


def _bytes_of(program: Program, weights: Mapping[str, np.ndarray], name: str) -> int | None:
    """What a buffer has of device memory, None where it is on the host, as strings are. Raises ValueError unless it
    lies inside the arena, or inside a constant that is there."""
    buffer, place = program.buffers[name], program.locations[name]
    on_host_only = dtype_from_file(buffer.dtype).hasobject or buffer.dynamic
    if min(buffer.shape, default=0) < 0 or (on_host_only and not isinstance(place, Host)):
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


def _check_call(call: Call, program: Program, bytes_of: BytesOf) -> None:
    """What the call does stays within the buffers that it names, which are where it can reach them."""
    for name in (*call.reads, *call.writes):
        if bytes_of(name) is None and not isinstance(call, HostCall):
            raise ValueError(f"{call.origin} works on the device, and buffer '{name}' is on the host")
    match call:
        case Launch():
            _check_launch(call, program, bytes_of)
        case CudnnCall():
            _check_cudnn_call(call, bytes_of)
        case Copy():
            _check_stretch(call.source, call.source_offset, call.nbytes, bytes_of)
            _check_stretch(call.out, call.out_offset, call.nbytes, bytes_of)
            _check_elements(call, program, (call.nbytes, call.source_offset, call.out_offset))
        case View():
            _check_view(call, program, bytes_of)
        case Fill() if not 0 <= call.byte <= 255:
            raise ValueError(f"{call.byte} is no byte")
        case PythonCall():
            _check_attribute(tuple(value for _, value in call.attributes))


def _check_cudnn_call(call: CudnnCall, bytes_of: BytesOf) -> None:
    if not isinstance(strict_json.parse(call.description), dict):
        raise ValueError(f"{call.origin}: its description is no JSON object")
    for _, pointer in call.arguments:
        _check_stretch(pointer.buffer, pointer.offset, 0, bytes_of)


def _check_view(view: View, program: Program, bytes_of: BytesOf) -> None:
    """It lies in its source, and is where its buffer is."""
    nbytes = program.buffers[view.out].nbytes
    _check_stretch(view.source, view.offset, nbytes, bytes_of)
    _check_elements(view, program, (view.offset,))
    source, out = program.locations[view.source], program.locations[view.out]
    inside = source if isinstance(source, Host) else replace(source, offset=source.offset + view.offset)
    if nbytes and out != inside:  # nothing may be anywhere
        raise ValueError(f"{view.origin}: buffer '{view.out}' is at {out}, and its view of '{view.source}' at {inside}")


def _check_elements(call: Copy | View, program: Program, nbytes: tuple[int, ...]) -> None:
    """They stay as large as they are, and whole. nbytes: sizes and offsets."""
    source, out = program.buffers[call.source], program.buffers[call.out]
    if source.itemsize != out.itemsize or any(count % out.itemsize for count in nbytes):
        raise ValueError(
            f"{call.origin}: elements of '{source.name}', {source}, cannot be those of '{out.name}', {out}"
        )


def _check_launch(launch: Launch, program: Program, bytes_of: BytesOf) -> None:
    if not all(1 <= blocks <= most for blocks, most in zip(launch.grid, MAX_GRID, strict=True)):
        raise ValueError(f"{launch.origin}: there is no grid of {'×'.join(map(str, launch.grid))} blocks")
    for argument, type_name in _passed(launch, launch.arguments, tuple(kind for _, kind in launch.kernel.signature)):
        if not _fits(argument, type_name):
            raise _not_those(launch)
        if isinstance(argument, Pointer | TensorMap):
            offset = argument.offset if isinstance(argument, Pointer) else 0
            _check_stretch(argument.buffer, offset, 0, bytes_of)
            _check_operand(launch, argument.buffer, offset, type_name, program)
        if isinstance(argument, TensorMap):
            _check_tensor_map(argument, type_name, bytes_of)


def _not_those(launch: Launch) -> ValueError:
    return ValueError(f"{launch.origin}: the arguments are not those of {launch.kernel.name}")


def _passed(
    launch: Launch, arguments: tuple[Argument, ...], type_names: tuple[TypeName, ...]
) -> list[tuple[Pointer | TensorMap | int | float, str]]:
    """Each argument of a launch, out of its tuples, with the type of its parameter (`Kernel`)."""
    if len(arguments) != len(type_names):
        raise _not_those(launch)
    passed: list[tuple[Pointer | TensorMap | int | float, str]] = []
    for argument, type_name in zip(arguments, type_names, strict=True):
        if isinstance(argument, tuple) and isinstance(type_name, tuple):
            passed += _passed(launch, argument, type_name)
        elif isinstance(argument, tuple) or isinstance(type_name, tuple):
            raise _not_those(launch)
        else:
            passed.append((argument, type_name))
    return passed


def _fits(argument: Pointer | TensorMap | int | float, type_name: str) -> bool:
    """Whether an argument can be passed as a parameter of that type."""
    if isinstance(argument, Pointer):
        return type_name.startswith("*")
    if isinstance(argument, TensorMap):
        return type_name.startswith("tensordesc<")
    integers = _integers(type_name)
    return integers is None or (isinstance(argument, int) and argument in integers)


@cache
def _integers(type_name: str) -> range | None:
    """Those that a parameter of that type can be; None where it takes any number."""
    kind = type_name.partition(":")[0]
    if kind in _ANY_NUMBER:
        return None
    numbers, divisor = _INTEGERS.get(kind, range(0)), _divisor(type_name)
    return numbers if divisor == 1 else range(-(-numbers.start // divisor) * divisor, numbers.stop, divisor)


@cache
def _divisor(type_name: str) -> int:
    """What the kernel takes for granted that an integer or an address is divisible by."""
    divisor = type_name.partition(":")[2]
    if divisor not in ("", "8", "16"):
        raise ValueError(f"there is no type {type_name}")
    return int(divisor or 1)


def _check_operand(launch: Launch, name: str, offset: int, type_name: str, program: Program) -> None:
    """The buffer has the elements that the kernel works on, and lies as it takes for granted."""
    buffer, place = program.buffers[name], program.locations[name]
    if not _takes(type_name, buffer.dtype):
        raise ValueError(f"{launch.origin}: {launch.kernel.name} takes {type_name}, and buffer '{name}' is {buffer}")
    divisor = _VECTOR_BYTES if type_name.startswith("tensordesc<") else _divisor(type_name)
    if not isinstance(place, Host) and (place.offset + offset) % divisor:
        raise ValueError(f"{launch.origin}: byte {offset} of buffer '{name}' does not lie at a multiple of {divisor}")


@cache
def _takes(type_name: str, dtype: str) -> bool:
    """Whether a kernel that works on elements of this type can be given these: the same ones, or ones of the same size
    for integers, as which it moves them or takes them apart."""
    own, given = _element_of(type_name), dtype_from_file(dtype)
    return own == given or (own.kind in "iu" and own.itemsize == given.itemsize)


def _element_of(type_name: str) -> np.dtype:
    """Of `*fp16:16` or `tensordesc<fp16[64, 64]>`. Raises KeyError."""
    element = type_name.removeprefix("*").removeprefix("tensordesc<").partition(":")[0].partition("[")[0]
    return dtype_from_file(_ELEMENTS[element])


def _check_stretch(name: str, offset: int, nbytes: int, bytes_of: BytesOf) -> None:
    present = bytes_of(name)
    if present is None or not (nbytes >= 0 and 0 <= offset <= present - nbytes):
        raise ValueError(f"{nbytes} bytes at {offset} lie outside buffer '{name}' on the device")


def _check_tensor_map(what: TensorMap, type_name: str, bytes_of: BytesOf) -> None:
    """The driver makes such a descriptor, and every element that the copy engine can take by it lies in the buffer."""
    itemsize = dtype_from_file(what.dtype).itemsize
    ranks = {len(what.shape), len(what.strides), len(what.box), len(what.gaps or what.box)}
    if not (
        ranks <= {*range(1, _MOST_RANK + 1)}
        and len(ranks) == 1
        and min((*what.shape, *what.strides, *what.box, *what.gaps)) > 0
        and max(what.shape) <= _MOST_EXTENT
        and all(stride * itemsize < _MOST_STRIDE for stride in what.strides)
        and all(stride * itemsize % _VECTOR_BYTES == 0 for stride in what.strides[:-1])
        and what.strides[-1] == 1
        and what.dtype == _element_of(type_name).name
    ):
        raise ValueError(f"there is no {what} as {type_name}")
    elements = 1 + sum((extent - 1) * stride for extent, stride in zip(what.shape, what.strides, strict=True))
    _check_stretch(what.buffer, 0, elements * itemsize, bytes_of)


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
