"""From a kernel and its arguments to a Launch: types, specialisation and the list of what is read and written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

from gossamer.program import Argument, Buffer, Kernel, Launch, Pointer, TensorMap
from gossamer.program.calls import TypeName

TRITON_TYPES = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
    "bool": "i1",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
}
"""dtype name → Triton's name for it. What is not here has no kernels."""

MAX_GRID = (2**31 - 1, 65535, 65535)


@dataclass(frozen=True, slots=True)
class Address:
    """A place `offset` elements into a buffer."""

    buffer: Buffer
    offset: int


@dataclass(frozen=True, slots=True)
class Boxes:
    """A buffer to be read or written by TMA in boxes: see `TensorMap`. shape and box in elements."""

    buffer: Buffer
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]


Value: TypeAlias = "Buffer | Address | Boxes | int | float | None | tuple[Value, ...]"


def launch(
    kernel: Any,
    grid: tuple[int, ...],
    *,
    writes: Buffer | Iterable[Buffer],
    num_warps: int = 4,
    num_stages: int = 2,
    inplace: tuple[tuple[Buffer, Buffer], ...] = (),
    flops: int = 0,
    cooperative: bool = False,
    **arguments: Any,
) -> Launch:
    """A Launch of `kernel`, a `triton.jit` function in a module of `gossamer.kernels`.

    arguments: by parameter name. A Buffer or an Address becomes a pointer, Boxes a TMA descriptor, None an absent
    pointer (`if bias_ptr is not None`), int and float scalars, tuples stay tuples; parameters annotated
    `tl.constexpr` take any JSON value. Integers are specialised as Triton's own launcher does (one; divisible by 16; 64-bit from
    2³¹ on), pointers are divisible by 16. writes: the buffers written; every other one is read. A grid with a zero is
    allowed: such a launch is dropped when the Program is built.
    """
    name, parameters = _parameters(kernel)
    assert arguments.keys() == parameters.keys(), (
        f"{name}: missing {sorted(parameters.keys() - arguments.keys())}, unknown {sorted(arguments.keys() - parameters.keys())}"
    )
    dims = (*grid, 1, 1)[:3]
    assert all(0 <= n <= most for n, most in zip(dims, MAX_GRID, strict=True)), f"{name}: grid {grid}"
    runtime = [(p, arguments[p]) for p, is_constant in parameters.items() if not is_constant]
    written = (writes.name,) if isinstance(writes, Buffer) else tuple(buffer.name for buffer in writes)
    touched = dict.fromkeys(name for _, value in runtime for name in _buffers(value))
    return Launch(
        Kernel(
            name,
            tuple((p, _type(value)) for p, value in runtime),
            tuple((p, arguments[p]) for p, is_constant in parameters.items() if is_constant),
            num_warps,
            num_stages,
            cooperative,
        ),
        (dims[0], dims[1], dims[2]),
        tuple(_argument(value) for _, value in runtime),
        reads=tuple(name for name in touched if name not in written),
        writes=written,
        inplace=tuple((out.name, source.name) for out, source in inplace),
        flops=flops,
    )


@cache
def _parameters(kernel: Any) -> tuple[str, dict[str, bool]]:
    """`module.function` and, for each parameter, whether it is a constexpr. Works for compiled and interpreted kernels."""
    function = kernel.fn
    module = function.__module__.removeprefix("gossamer.kernels.")
    annotations = function.__annotations__
    return f"{module}.{function.__name__}", {
        name: "constexpr" in str(annotations.get(name, "")) for name in kernel.arg_names
    }


def _type(value: Value) -> TypeName:
    match value:
        case Buffer():
            return f"*{TRITON_TYPES[value.dtype]}:16"
        case Address():
            aligned = value.offset * value.buffer.itemsize % 16 == 0
            return f"*{TRITON_TYPES[value.buffer.dtype]}" + (":16" if aligned else "")
        case Boxes():
            return f"tensordesc<{TRITON_TYPES[value.buffer.dtype]}{list(value.box)}>"
        case None:
            return "none"
        case tuple():
            return tuple(_type(item) for item in value)
        case bool():
            return "i1"
        case float():
            return "fp32"
        case int():
            return _integer_type(value)
    raise TypeError(f"no kernel takes {value!r}")


def _integer_type(value: int) -> str:
    if value == 1:
        return "1"
    bits = "i32" if -(2**31) <= value < 2**31 else "i64"
    return f"{bits}:16" if value % 16 == 0 else bits


def _argument(value: Value) -> Argument:
    match value:
        case Buffer():
            return Pointer(value.name)
        case Address():
            return Pointer(value.buffer.name, value.offset * value.buffer.itemsize)
        case Boxes():
            return TensorMap(value.buffer.name, value.buffer.dtype, value.shape, value.strides, value.box)
        case None:
            return 0
        case tuple():
            return tuple(_argument(item) for item in value)
        case _:
            return value


def _buffers(value: Value) -> Iterator[str]:
    match value:
        case Buffer():
            yield value.name
        case Address() | Boxes():
            yield value.buffer.name
        case tuple():
            for item in value:
                yield from _buffers(item)
