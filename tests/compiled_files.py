"""A small compiled model with one of everything, for the tests of the file format."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from gossamer.program import (
    Arena,
    Buffer,
    CudnnCall,
    HostCall,
    Kernel,
    Launch,
    Pointer,
    Program,
    Target,
    Weight,
)
from gossamer.program.artifact import Variant, write_artifact
from gossamer.program.cubin import Cubin
from gossamer.program.manifest import Description, Slot
from gossamer.program.placement import PlacedRecord, Placement

KERNEL = Kernel("elementwise.scale_kernel", (("x", "*fp32:16"), ("y", "*fp32:16")), (("BLOCK", 1024),))
DESCRIPTION = Description(
    "small",
    (Slot("x", "float32", ("N", 4)),),
    (Slot("y", "float32", ("N", 4)),),
    {"gossamer": "0.1.0", "triton": "3.9.0", "cudnn": "9.28.1"},
    {"producer_name": "a test"},
)


CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


def program(target: str = "sm_90", rows: int = 2, device: int | None = None, cudnn: bool = False) -> Program:
    """y = host(scale(scale(x), w)), of `rows` × 4; cudnn: the second step by cuDNN."""
    found = Target.named(target)
    shape = (rows, 4)
    names = {"x": Arena(0), "a": Arena(256), "b": Arena(512), "y": Arena(768)}
    buffers = {name: Buffer(name, "float32", shape) for name in names} | {"w": Buffer("w", "float32", (4, 4))}
    memory = (("X", Pointer("a")), ("W", Pointer("w")), ("Y", Pointer("b")))
    second = (
        CudnnCall("graph", '{"nodes":[]}', memory, ("a", "w"), ("b",), f"plan for {target}".encode())
        if cudnn
        else Launch(KERNEL, (rows, 1, 1), (Pointer("a"), Pointer("b")), ("a", "w"), ("b",))
    )
    calls = (
        Launch(KERNEL, (rows, 1, 1), (Pointer("x"), Pointer("a")), ("x",), ("a",)),
        second,
        HostCall(b"an ONNX model", ("b",), ("y",)),
    )
    return Program(
        "small", replace(found, device=device), ("x",), ("y",), buffers, names | {"w": Weight("w")}, calls, 1024, 1024
    )


def variant(target: str = "sm_90", rows: int = 2, device: int | None = None, cudnn: bool = False) -> Variant:
    made = program(target, rows, device, cudnn)
    code = f"machine code for {target}".encode()
    cubins = {KERNEL: Cubin("scale_kernel", made.target.arch, 4, 0, 0, 1, (), "3.9.0", code)}
    nodes = (
        PlacedRecord("scale", "Mul", "", CUDA),
        PlacedRecord("conv", "Conv", "", CUDA, through_cudnn=cudnn, choice="measured" if cudnn else ""),
        PlacedRecord("count", "NonZero", "", CPU, ((CUDA, "its shape depends on data"),)),
    )
    return Variant(made, cubins, Placement(nodes))


WEIGHTS = {
    "w": np.arange(16, dtype=np.float32).reshape(4, 4),
    "unused": np.ones(1000, np.float32),
}


def compiled(folder: Path, variants: tuple[Variant, ...] | None = None) -> Path:
    """The path of a file for two targets and two signatures, each with and without cuDNN."""
    path = folder / "small.gossamer"
    every = tuple(
        variant(target, rows, cudnn=cudnn)
        for target in ("sm_80", "sm_90")
        for rows in (2, 8)
        for cudnn in (False, True)
    )
    write_artifact(path, DESCRIPTION, variants or every, WEIGHTS)
    return path


def native(variant: Variant) -> Variant:
    """Without its node on the CPU: b = scale(scale(x), w)."""
    made = variant.program
    calls = tuple(call for call in made.calls if not isinstance(call, HostCall))
    nodes = tuple(node for node in variant.placement if node.provider == CUDA)
    return replace(variant, program=replace(made, calls=calls, outputs=("b",)), placement=Placement(nodes))


def compiled_native(folder: Path, *variants: Variant, **changes: Any) -> Path:
    """The path of a file with these variants, which are native. changes: of the description."""
    path = folder / "native.gossamer"
    outputs = (Slot("b", "float32", ("N", 4)),)
    write_artifact(path, replace(DESCRIPTION, outputs=outputs, **changes), variants, WEIGHTS)
    return path


ALL_DTYPES = (
    *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
    *("float16", "float32", "float64", "complex64", "complex128", "bfloat16"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    *("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "int4", "uint4", "int2", "uint2"),
)


def tensor(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    kind = np.dtype(getattr(ml_dtypes, dtype)) if hasattr(ml_dtypes, dtype) else np.dtype(dtype)
    return (np.arange(int(np.prod(shape))) % 2).reshape(shape).astype(kind)


def directory_offset(data: bytes) -> int:
    """Of the zip's central directory."""
    (offset,) = struct.unpack_from("<Q", data, data.rindex(b"PK\6\6") + 48)
    return int(offset)
