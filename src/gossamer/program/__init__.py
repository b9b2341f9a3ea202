"""The waist of the hourglass: what the machine does, as frozen data. Nothing here knows ONNX, Triton or the driver."""

from __future__ import annotations

from gossamer.program.buffers import ARENA_ALIGNMENT, Buffer, dtype_of
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
    Origin,
    Pointer,
    PythonCall,
    Refusal,
    Scalar,
    TensorMap,
    TensorValue,
    Unavailable,
    View,
)
from gossamer.program.memory import Arena, Host, Location, MemoryPlan, Weight, plan_memory
from gossamer.program.program import Program
from gossamer.program.target import Target

__all__ = [
    "ARENA_ALIGNMENT",
    "Arena",
    "Argument",
    "AttributeValue",
    "Buffer",
    "Call",
    "Copy",
    "CudnnCall",
    "Fill",
    "Host",
    "HostCall",
    "Kernel",
    "Launch",
    "Location",
    "MemoryPlan",
    "Origin",
    "Pointer",
    "Program",
    "PythonCall",
    "Refusal",
    "Scalar",
    "Target",
    "TensorMap",
    "TensorValue",
    "Unavailable",
    "View",
    "Weight",
    "dtype_of",
    "plan_memory",
]
