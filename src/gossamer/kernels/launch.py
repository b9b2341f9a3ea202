"""From a kernel and its arguments to a Launch: types, specialisation and the list of what is read and written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

from gossamer.program import Argument, Buffer, Kernel, Launch, Pointer, TensorMap
from gossamer.program.calls import MAX_GRID, TRITON_TYPES, TypeName


class NoSuchElements(Exception):
    """Kernels have no elements of a dtype, which is named. Placement makes a refusal of it."""


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
    gaps: tuple[int, ...] = ()


Value: TypeAlias = "Buffer | Address | Boxes | int | float | tuple[Value, ...] | None"


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
    `tl.constexpr` take any JSON value. Integers are specialised as Triton's own launcher does (one; divisible by 16;
    64-bit from 2³¹ on), pointers are divisible by 16. writes: the buffers written; every other one is read. A grid with
    a zero is allowed: such a launch is dropped when the Program is built. Raises NoSuchElements for a buffer of a dtype
    that is not in `TRITON_TYPES`.
    """
    name, runtime, constants = _parameters(kernel)
    assert arguments.keys() == {*runtime, *constants}, (
        f"{name}: missing {sorted({*runtime, *constants} - arguments.keys())}, "
        f"unknown {sorted(arguments.keys() - {*runtime, *constants})}"
    )
    dims = (*grid, 1, 1)[:3]
    assert all(0 <= n <= most for n, most in zip(dims, MAX_GRID, strict=True)), f"{name}: grid {grid}"
    written = (writes.name,) if isinstance(writes, Buffer) else tuple(buffer.name for buffer in writes)
    touched: Touched = {}
    signature, passed = [], []
    for parameter in runtime:
        kind, argument = _pass(arguments[parameter], touched)
        signature.append((parameter, kind))
        passed.append(argument)
    return Launch(
        Kernel(
            name,
            tuple(signature),
            tuple([(parameter, arguments[parameter]) for parameter in constants]),
            num_warps,
            num_stages,
            cooperative,
        ),
        (dims[0], dims[1], dims[2]),
        tuple(passed),
        reads=tuple(name for name in touched if name not in written),
        writes=written,
        inplace=tuple((out.name, source.name) for out, source in inplace),
        flops=flops,
    )


@cache
def _parameters(kernel: Any) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """`module.function`, and the parameters that are passed and those that are constexprs. Works for compiled and
    interpreted kernels."""
    function = kernel.fn
    module = function.__module__.removeprefix("gossamer.kernels.")
    annotations = function.__annotations__
    constants = tuple(name for name in kernel.arg_names if "constexpr" in str(annotations.get(name, "")))
    runtime = tuple(name for name in kernel.arg_names if name not in constants)
    return f"{module}.{function.__name__}", runtime, constants


Passed: TypeAlias = "tuple[TypeName, Argument]"
Touched: TypeAlias = "dict[str, None]"
"""The names of the buffers that arguments point into, in order."""


def _pass(value: Value, touched: Touched) -> Passed:
    """Type and argument of a value. Chosen by its exact type: every launch of a new signature comes through here."""
    how = _HOW.get(type(value))
    if how is None:
        raise TypeError(f"no kernel takes {value!r}")
    return how(value, touched)


def _triton_type(dtype: str) -> str:
    name = TRITON_TYPES.get(dtype)
    if name is None:
        raise NoSuchElements(dtype)
    return name


def _pass_buffer(value: Buffer, touched: Touched) -> Passed:
    touched[value.name] = None
    return f"*{_triton_type(value.dtype)}:16", Pointer(value.name)


def _pass_address(value: Address, touched: Touched) -> Passed:
    buffer = value.buffer
    touched[buffer.name] = None
    offset = value.offset * buffer.itemsize
    return f"*{_triton_type(buffer.dtype)}" + (":16" if offset % 16 == 0 else ""), Pointer(buffer.name, offset)


def _pass_boxes(value: Boxes, touched: Touched) -> Passed:
    buffer = value.buffer
    touched[buffer.name] = None
    kind = f"tensordesc<{_triton_type(buffer.dtype)}{list(value.box)}>"
    return kind, TensorMap(buffer.name, buffer.dtype, value.shape, value.strides, value.box, value.gaps)


def _pass_tuple(value: tuple[Value, ...], touched: Touched) -> Passed:
    passed = [_pass(item, touched) for item in value]
    return tuple(kind for kind, _ in passed), tuple(argument for _, argument in passed)


def _pass_integer(value: int, _: Touched) -> Passed:
    if value == 1:
        return "1", value
    bits = "i32" if -(2**31) <= value < 2**31 else "i64"
    # Strides of 8 halves still are 16 bytes, the widest load there is.
    multiple = next((factor for factor in (16, 8) if value % factor == 0), 0)
    return f"{bits}:{multiple}" if multiple else bits, value


_HOW: Mapping[type, Callable[[Any, Touched], Passed]] = {
    Buffer: _pass_buffer,
    Address: _pass_address,
    Boxes: _pass_boxes,
    tuple: _pass_tuple,
    int: _pass_integer,
    bool: lambda value, _: ("i1", value),
    float: lambda value, _: ("fp32", value),
    type(None): lambda _, __: ("none", 0),
}
