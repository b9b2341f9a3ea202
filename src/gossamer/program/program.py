"""The Program: everything a device does for one signature of inputs, and its text form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gossamer.program.buffers import Buffer
from gossamer.program.calls import (
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
    Unavailable,
    View,
)
from gossamer.program.memory import Arena, Location, Weight
from gossamer.program.target import Target


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Program:
    """What the machine does. Programs are equal only to themselves: executors keep what they prepared by identity.

    inputs, outputs: names of the model's inputs and outputs; each is a buffer. calls run in order on one stream.
    locations: where each buffer that is used lives. arena_bytes and lower_bound_bytes: see `MemoryPlan`.
    """

    name: str
    target: Target
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    buffers: Mapping[str, Buffer]
    locations: Mapping[str, Location]
    calls: tuple[Call, ...]
    arena_bytes: int
    lower_bound_bytes: int

    @property
    def launches(self) -> Iterator[Launch]:
        return (call for call in self.calls if isinstance(call, Launch))

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The distinct kernels, in the order of their first launch."""
        return tuple(dict.fromkeys(launch.kernel for launch in self.launches))

    @property
    def weights(self) -> tuple[str, ...]:
        """The keys of the constants that calls read or that are outputs."""
        used = dict.fromkeys(name for call in self.calls for name in call.reads) | dict.fromkeys(self.outputs)
        places = (self.locations[name] for name in used)
        return tuple(dict.fromkeys(place.key for place in places if isinstance(place, Weight)))

    @property
    def needs(self) -> tuple[str, ...]:
        """What running it takes besides the base install, sorted: `cudnn`, `onnxruntime`, `triton` (the interpreter),
        and `python:DOMAIN.OPERATOR` for each custom operator, whose function has to be registered."""
        found = {"triton"} if self.target.interpreted else set()
        for call in self.calls:
            match call:
                case CudnnCall() | Unavailable():
                    found.add("cudnn")
                case HostCall():
                    found.add("onnxruntime")
                case PythonCall():
                    found.add(f"python:{call.domain}.{call.op_type}")
        return tuple(sorted(found))

    def __str__(self) -> str:
        return "\n".join((self._header(), *(f"  {self.line(call)}" for call in self.calls), self._footer()))

    def _header(self) -> str:
        inputs = ", ".join(f"{name}: {self.buffers[name]}" for name in self.inputs)
        return (
            f"program {self.name} for {self.target.name} ({inputs})"
            f"  # {len(self.kernels)} kernels, {sum(1 for _ in self.launches)} launches, arena {self.arena_bytes} bytes"
        )

    def _footer(self) -> str:
        return "  return " + ", ".join(f"{name}: {self.buffers[name]}" for name in self.outputs)

    def line(self, call: Call) -> str:
        """One call as text: what is written, how, from what, and the node it came from."""
        match call:
            case Launch():
                constants = ", ".join(f"{name}={value}" for name, value in call.kernel.constants)
                arguments = ", ".join(_argument(argument) for argument in call.arguments)
                grid = "×".join(map(str, call.grid))
                what = f"{call.kernel.name}<{constants}>[{grid}]({arguments})"
            case CudnnCall():
                arguments = ", ".join(f"{role}={_argument(pointer)}" for role, pointer in call.arguments)
                what = f"cudnn.{call.routine}({arguments})  {len(call.plan)} bytes of plan"
            case Unavailable():
                what = f"nothing: {call.op} requires cuDNN, but {call.reason}"
            case HostCall():
                what = f"host({', '.join(call.reads)})  {len(call.model)} bytes of model"
            case PythonCall():
                values = (f"{name}={_attribute(value)}" for name, value in call.attributes)
                operands = ", ".join((*(name or "None" for name in call.inputs), *values))
                what = f"python {call.domain}.{call.op_type}({operands})"
            case Copy():
                what = f"copy({call.source}+{call.source_offset}, {call.nbytes}) at {call.out_offset}"
            case Fill():
                what = f"fill({call.byte})"
            case View():
                what = f"view({call.source}+{call.offset})"
        written = ", ".join(f"{name}: {self.buffers[name]}{self._where(name)}" for name in call.writes)
        return f"{written} = {what}  # {call.origin}"

    def _where(self, name: str) -> str:
        place = self.locations.get(name)
        return f" @{place.offset}" if isinstance(place, Arena) else ""


def _attribute(value: AttributeValue) -> str:
    match value:
        case tuple():
            return f"[{', '.join(map(_attribute, value))}]"
        case TensorValue():
            return f"{value.dtype}[{','.join(map(str, value.shape))}]"
        case _:
            return repr(value)


def _argument(argument: Argument) -> str:
    match argument:
        case tuple():
            return f"({', '.join(map(_argument, argument))})"
        case Pointer():
            return argument.buffer + (f"+{argument.offset}" if argument.offset else "")
        case TensorMap():
            gaps = f" of every {list(argument.gaps)}" if argument.gaps else ""
            return f"map({argument.buffer}, {list(argument.shape)}, box {list(argument.box)}{gaps})"
        case _:
            return repr(argument)
