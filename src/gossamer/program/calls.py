"""Calls: the steps of a Program. Each keeps the ONNX node it came from: profiles, error texts and checks need it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from gossamer import errors

Scalar: TypeAlias = int | float
Constant: TypeAlias = "int | float | str | bool | tuple[Constant, ...] | None"
TypeName: TypeAlias = "str | tuple[TypeName, ...]"

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
}
"""dtype name → Triton's name for it. Kernels have no other elements: narrow types are passed as their bits
(`kernels/narrow_types`), since Triton's own 8-bit floats are computed by instructions that not every architecture
has."""
MAX_GRID = (2**31 - 1, 65535, 65535)
"""Blocks of a grid, by dimension. Source: CUDA C++ Programming Guide, "Compute Capabilities"."""
MAX_BOX = 256
"""Elements that one copy by a TMA descriptor may span along a dimension, those that it skips included."""
MAX_GAP = 8
"""From one element that such a copy takes to the next. Source of both: CUDA driver API, cuTensorMapEncodeTiled."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The ONNX node a call was lowered from."""

    name: str = ""
    op_type: str = ""
    domain: str = ""

    def __str__(self) -> str:
        return f"{self.domain + '.' if self.domain else ''}{self.op_type} '{self.name}'"


@dataclass(frozen=True, slots=True)
class Pointer:
    """The address of a buffer plus `offset` bytes."""

    buffer: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A TMA descriptor over a buffer. shape, strides: in elements, the last stride is 1. box: what one copy moves.
    gaps: from one element that it takes to the next along each dimension, where these are not all one."""

    buffer: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    gaps: tuple[int, ...] = ()


Argument: TypeAlias = "Pointer | TensorMap | int | float | tuple[Argument, ...]"


@dataclass(frozen=True, slots=True)
class Kernel:
    """A specialised Triton kernel: all that decides its machine code, and nothing about data.

    name: `module.function` below `gossamer.kernels`. signature: parameter name → type for every parameter that is not a
    constexpr, in order: `*fp16:16` is an fp16 pointer divisible by 16, `i32` an integer, `i32:16` and `i32:8` ones
    divisible by that, `1` an integer known to be one (no parameter is passed for it), `none` an absent pointer,
    `tensordesc<fp16[64,64]>` a TMA descriptor of such boxes, a tuple a tuple of these. constants: the constexpr
    parameters. The compiler's other options are the same for all kernels; they are listed in `build/worker`.
    """

    name: str
    signature: tuple[tuple[str, TypeName], ...]
    constants: tuple[tuple[str, Constant], ...]
    num_warps: int = 4
    num_stages: int = 2
    cooperative: bool = False

    @property
    def function(self) -> str:
        return self.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a Triton kernel. arguments run parallel to `kernel.signature`.

    reads, writes: buffer names. inplace: pairs (written, read) that may share memory, because every program of the
    kernel reads all it needs of an element before it writes that element and no other program reads it. flops: multiply
    and add counted as two; 0 where memory is the bound.
    """

    kernel: Kernel
    grid: tuple[int, int, int]
    arguments: tuple[Argument, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    inplace: tuple[tuple[str, str], ...] = ()
    flops: int = 0
    origin: Origin = Origin()


@dataclass(frozen=True, slots=True)
class HostCall:
    """A part of the model that runs on the CPU through onnxruntime: `model` is a serialised ONNX model whose inputs and
    outputs carry the names of the buffers."""

    model: bytes
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    origin: Origin = Origin()


@dataclass(frozen=True, slots=True)
class CudnnCall:
    """One execution by cuDNN.

    routine: `graph`, or what of cuDNN's other API does it, by the names of `gossamer.cudnn.routines`. description: all
    that it is made from besides memory, as JSON with sorted keys: of a graph, its structure. plan: of a graph, the
    serialised execution plan. arguments: role → memory; the roles of a graph are its tensors' names.
    """

    routine: str
    description: str
    arguments: tuple[tuple[str, Pointer], ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    plan: bytes = b""
    flops: int = 0
    origin: Origin = Origin()


@dataclass(frozen=True, slots=True)
class TensorValue:
    """A small tensor as data. content: its elements, dense and row-major."""

    dtype: str
    shape: tuple[int, ...]
    content: bytes


AttributeValue: TypeAlias = "int | float | str | TensorValue | tuple[AttributeValue, ...]"


@dataclass(frozen=True, slots=True)
class PythonCall:
    """A node of an operator that a user registered as a Python function, by `gossamer.custom_op(domain, op_type)`.

    attributes: the node's, by name. inputs, outputs: buffer names in the node's order, None for an omitted one. cudnn:
    whether the session lets it use cuDNN.
    """

    domain: str
    op_type: str
    attributes: tuple[tuple[str, AttributeValue], ...]
    inputs: tuple[str | None, ...]
    outputs: tuple[str | None, ...]
    cudnn: bool = False
    origin: Origin = Origin()

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(name for name in self.inputs if name is not None)

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(name for name in self.outputs if name is not None)


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A node that has to run through cuDNN, which cannot be used: running it raises CudnnUnavailable.

    op: the ONNX operator. reason, tried: of the error.
    """

    op: str
    reason: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    tried: tuple[str, ...] = ()
    origin: Origin = Origin()

    @property
    def error(self) -> errors.CudnnUnavailable:
        """What running it raises."""
        return errors.CudnnUnavailable(self.op, self.origin.name, self.reason, self.tried)


@dataclass(frozen=True, slots=True)
class Copy:
    """`nbytes` bytes of `source` from `source_offset` on become those of `out` from `out_offset` on."""

    source: str
    out: str
    nbytes: int
    source_offset: int = 0
    out_offset: int = 0
    origin: Origin = Origin()

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.source,)

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.out,)


@dataclass(frozen=True, slots=True)
class Fill:
    """Every byte of `out` becomes `byte`."""

    out: str
    byte: int = 0
    origin: Origin = Origin()

    @property
    def reads(self) -> tuple[str, ...]:
        return ()

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.out,)


@dataclass(frozen=True, slots=True)
class View:
    """`out` is the memory of `source` from `offset` bytes on (a multiple of 16: kernels assume it). Costs nothing."""

    source: str
    out: str
    offset: int = 0
    origin: Origin = Origin()

    def __post_init__(self) -> None:
        assert self.offset % 16 == 0, f"a view at byte {self.offset} would break the alignment kernels are compiled for"

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.source,)

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.out,)


Call: TypeAlias = Launch | CudnnCall | HostCall | PythonCall | Copy | Fill | View | Unavailable


@dataclass(frozen=True, slots=True)
class Refusal:
    """A provider's "no", with its reason: a sentence without a full stop that completes "not on the GPU: …"."""

    reason: str


def leaves(arguments: tuple[Argument, ...]) -> Iterator[Pointer | TensorMap | int | float]:
    """The arguments without their tuples, in order."""
    for argument in arguments:
        if isinstance(argument, tuple):
            yield from leaves(argument)
        else:
            yield argument
