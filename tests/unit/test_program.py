"""Programs as data: their text, what they derive, and the figures of targets and machine code."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest

from gossamer.program import (
    Arena,
    Buffer,
    Copy,
    Fill,
    Host,
    HostCall,
    Kernel,
    Launch,
    Origin,
    Pointer,
    Program,
    Target,
    TensorMap,
    View,
    Weight,
    dtype_of,
)
from gossamer.program.calls import leaves
from gossamer.program.cubin import Cubin, TensorMapLayout

SCALE = Kernel("elementwise.scale_kernel", (("x_ptr", "*fp16:16"), ("n", "i32:16")), (("BLOCK", 1024),))
GEMM = Kernel("gemm.matmul_tma_kernel", (("a", "tensordesc<fp16[64,64]>"), ("sizes", ("i32", "i32"))), ())


def program() -> Program:
    buffers = {
        "x": Buffer("x", "float16", (2, 64)),
        "w": Buffer("w", "float16", (64, 64)),
        "row": Buffer("row", "float16", (1, 64)),
        "y": Buffer("y", "float16", (2, 64)),
        "z": Buffer("z", "float16", (4, 64)),
        "found": Buffer("found", "int64", (), dynamic=True),
    }
    calls = (
        View("x", "row", 128, Origin("slice", "Slice")),
        Launch(GEMM, (2, 1, 1), (TensorMap("x", "float16", (2, 64), (64, 1), (64, 64)), (64, 2)), ("x", "w"), ("y",)),
        Fill("z", 0, Origin("pad", "Pad")),
        Copy("y", "z", 256, 0, 128, Origin("pad", "Pad")),
        Launch(SCALE, (1, 1, 1), (Pointer("z", 32), 256), ("z",), ("z",), origin=Origin("s", "Mul", "gossamer")),
        HostCall(b"12345", ("z",), ("found",), Origin("nz", "NonZero")),
    )
    locations = {"x": Arena(0), "row": Arena(128), "w": Weight("w"), "y": Arena(256), "z": Arena(512), "found": Host()}
    return Program("m", Target.named("sm_90"), ("x",), ("found", "row"), buffers, locations, calls, 1024, 1024)


def test_text_names_what_is_written_where_how_and_for_which_node() -> None:
    assert str(program()) == "\n".join(
        (
            "program m for sm_90 (x: float16[2,64])  # 2 kernels, 2 launches, arena 1024 bytes",
            "  row: float16[1,64] @128 = view(x+128)  # Slice 'slice'",
            "  y: float16[2,64] @256 = gemm.matmul_tma_kernel<>[2×1×1](map(x, [2, 64], box [64, 64]), (64, 2))  #  ''",
            "  z: float16[4,64] @512 = fill(0)  # Pad 'pad'",
            "  z: float16[4,64] @512 = copy(y+0, 256) at 128  # Pad 'pad'",
            "  z: float16[4,64] @512 = elementwise.scale_kernel<BLOCK=1024>[1×1×1](z+32, 256)  # gossamer.Mul 's'",
            "  found: int64[?] = host(z)  5 bytes of model  # NonZero 'nz'",
            "  return found: int64[?], row: float16[1,64]",
        )
    )


def test_kernels_and_weights_are_those_that_calls_use() -> None:
    assert program().kernels == (GEMM, SCALE)
    assert program().weights == ("w",)
    assert SCALE.function == "scale_kernel"


def test_programs_equal_only_themselves() -> None:
    one, other = program(), program()
    assert one != other
    assert len({one, other}) == 2


def test_views_keep_the_alignment_that_kernels_assume() -> None:
    with pytest.raises(AssertionError, match="byte 8"):
        View("x", "y", 8)


def test_buffers_are_dense_and_row_major() -> None:
    buffer = Buffer("x", "bfloat16", (2, 3, 4))
    assert (buffer.strides, buffer.size, buffer.nbytes, buffer.rank) == ((12, 4, 1), 24, 48, 3)
    assert buffer.reshaped(6, 4).strides == (4, 1)
    with pytest.raises(AssertionError, match="reshaped"):
        buffer.reshaped(5, 5)
    assert Buffer("s", "float32", ()).size == 1
    assert Buffer("e", "float32", (3, 0)).nbytes == 0


@pytest.mark.parametrize("name", ["float32", "int64", "bool", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int4"])
def test_dtype_names_go_both_ways(name: str) -> None:
    assert dtype_of(name).name == name
    assert dtype_of("bfloat16") == ml_dtypes.bfloat16
    assert dtype_of("float32") == np.float32


def test_leaves_are_the_arguments_without_their_tuples() -> None:
    assert list(leaves((1, (Pointer("x"), (2.5, 3)), ()))) == [1, Pointer("x"), 2.5, 3]


def test_machine_code_survives_its_header() -> None:
    layout = TensorMapLayout(3, 2, 6, (64, 128), False)
    cubin = Cubin("kernel", 90, 8, 65536, 128, 64, (layout,), "3.9.0", b"\x7fELF code")
    assert Cubin.from_header(json.loads(json.dumps(cubin.header())), cubin.code) == cubin
