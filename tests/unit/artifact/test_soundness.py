"""Programs whose parts are of the right types and contradict each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cases.op_cases import CASES, OpCase
from compiled_files import KERNEL, WEIGHTS, program
from gossamer.program import (
    Arena,
    Buffer,
    Call,
    Copy,
    CudnnCall,
    Fill,
    Host,
    HostCall,
    Kernel,
    Launch,
    Pointer,
    Program,
    PythonCall,
    Target,
    TensorMap,
    TensorValue,
    View,
    Weight,
)
from gossamer.program.calls import Argument, TypeName
from gossamer.program.soundness import check_program
from harness import lower_model


def checked(made: Program) -> None:
    check_program(made, WEIGHTS)


def with_buffer(name: str, buffer: Buffer, place: Arena | Weight | Host) -> Program:
    made = program()
    return replace(made, buffers={**made.buffers, name: buffer}, locations={**made.locations, name: place})


def test_what_the_builder_makes_holds() -> None:
    for cudnn in (False, True):
        checked(program(cudnn=cudnn))


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_what_is_made_of_real_models_holds(case: OpCase, target: str) -> None:
    check_program(*lower_model(case.model(), Target.named(target)))


@pytest.mark.parametrize("nbytes", [-1, 2**63, 2**80])
def test_arenas_that_no_memory_has(nbytes: int) -> None:
    """What is merely too large is an OutOfMemory, when it is asked for."""
    checked(replace(program(), arena_bytes=2**60))
    with pytest.raises(ValueError, match=f"no arena of {nbytes} bytes"):
        checked(replace(program(), arena_bytes=nbytes))


@pytest.mark.parametrize("dtype", ["(,,)f4", "f4,f4", "f4", ">f4", "float32 ", "nothing", "__import__('os')", "", "("])
def test_dtypes_are_names(dtype: str) -> None:
    with pytest.raises((ValueError, TypeError), match=r"no name of a dtype|not understood"):
        checked(with_buffer("y", Buffer("y", dtype, (2, 4)), Arena(768)))


def test_buffers_lie_in_the_arena() -> None:
    shape = Buffer("y", "float32", (2, 4))
    checked(with_buffer("y", shape, Arena(1024 - 32)))
    for offset in (1024 - 31, -1, 2**63):
        with pytest.raises(ValueError, match="'y' lies outside the arena"):
            checked(with_buffer("y", shape, Arena(offset)))
    with pytest.raises(ValueError, match="'y' cannot be"):
        checked(with_buffer("y", replace(shape, shape=(-2, -4)), Arena(0)))


def test_buffers_lie_in_constants_that_are_there() -> None:
    shape = Buffer("w", "float32", (2, 4))
    checked(with_buffer("w", shape, Weight("w", 32)))
    for place in (Weight("w", 33), Weight("w", -4), Weight("absent")):
        with pytest.raises(ValueError, match=f"constant '{place.key}' is not there, or too small for buffer 'w'"):
            checked(with_buffer("w", shape, place))


def test_strings_live_on_the_host() -> None:
    strings = Buffer("y", "object", (2,))
    checked(with_buffer("y", strings, Host()))
    with pytest.raises(ValueError, match="'y' cannot be"):
        checked(with_buffer("y", strings, Arena(0)))


def test_calls_name_buffers_that_are_there() -> None:
    made = program()
    for call in (
        Launch(KERNEL, (1, 1, 1), (Pointer("x"), Pointer("nowhere")), ("x",), ("a",)),
        Launch(
            replace(KERNEL, signature=(("x", (("*fp32",),)),)), (1, 1, 1), (((Pointer("nowhere"),),),), ("x",), ("a",)
        ),
        CudnnCall("graph", "{}", (("X", Pointer("nowhere")),), ("x",), ("a",)),
        HostCall(b"", ("nowhere",), ("y",)),
    ):
        with pytest.raises(KeyError, match="nowhere"):
            checked(replace(made, calls=(*made.calls, call)))


def with_call(call: Call) -> Program:
    return replace(program(), calls=(*program().calls, call))


@pytest.mark.parametrize(
    "call",
    [
        Launch(KERNEL, (1, 1, 1), (Pointer("a"), Pointer("y")), ("a",), ("y",)),
        CudnnCall("graph", "{}", (("Y", Pointer("y")),), (), ("y",)),
        PythonCall("my", "Op", (), ("a",), ("y",)),
        Copy("a", "y", 4),
        Fill("y"),
        View("y", "a"),
    ],
    ids=lambda call: type(call).__name__,
)
def test_what_works_on_the_device_has_its_buffers_there(call: Call) -> None:
    checked(with_call(call))
    made = with_call(call)
    with pytest.raises(ValueError, match="buffer 'y' is on the host"):
        checked(replace(made, locations={**made.locations, "y": Host()}))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (Copy("a", "y", 33), "33 bytes at 0 lie outside buffer 'a'"),
        (Copy("a", "y", 32, 4), "32 bytes at 4 lie outside buffer 'a'"),
        (Copy("a", "y", 28, 4, 8), "28 bytes at 8 lie outside buffer 'y'"),
        (Copy("a", "y", 4, -4), "4 bytes at -4 lie outside buffer 'a'"),
        (Copy("a", "y", -1), "-1 bytes at 0 lie outside"),
        (Fill("y", 256), "256 is no byte"),
        (Fill("y", -1), "-1 is no byte"),
        (CudnnCall("graph", "{}", (("Y", Pointer("y", 33)),), (), ("y",)), "0 bytes at 33 lie outside buffer 'y'"),
    ],
    ids=str,
)
def test_calls_stay_within_their_buffers(call: Call, text: str) -> None:
    checked(with_call(Copy("a", "y", 28, 4, 4)))
    checked(with_call(Fill("y", 255)))
    with pytest.raises(ValueError, match=text):
        checked(with_call(call))


@pytest.mark.parametrize("grid", [(0, 1, 1), (-1, 1, 1), (2**31, 1, 1), (1, 65536, 1), (1, 1, 65536)])
def test_grids_that_no_gpu_launches(grid: tuple[int, int, int]) -> None:
    arguments = (Pointer("a"), Pointer("y"))
    checked(with_call(Launch(KERNEL, (2**31 - 1, 65535, 65535), arguments, ("a",), ("y",))))
    with pytest.raises(ValueError, match="there is no grid of"):
        checked(with_call(Launch(KERNEL, grid, arguments, ("a",), ("y",))))


def passing(type_name: TypeName, argument: Argument) -> Program:
    kernel = Kernel("elementwise.scale_kernel", (("x", type_name),), ())
    return with_call(Launch(kernel, (1, 1, 1), (argument,), (), ()))


MAP = TensorMap("y", "float32", (2, 4), (4, 1), (1, 4))


@pytest.mark.parametrize(
    ("type_name", "argument"),
    [
        ("*fp32:16", Pointer("y", 16)),
        ("*fp32", Pointer("y", 32)),
        ("i32:16", -(2**31)),
        ("u8", 255),
        ("i1", 1),
        ("i64", 2**63 - 1),
        ("fp32", 1),
        ("fp64", 0.5),
        ("1", 1),
        ("none", 0),
        (("*fp32", ("i32", "i32")), (Pointer("y"), (1, 2))),
        ((), ()),
        ("tensordesc<fp32[1,4]>", MAP),
        ("tensordesc<fp32[1,4]>", replace(MAP, gaps=(1, 2))),
    ],
    ids=str,
)
def test_arguments_are_of_their_types(type_name: TypeName, argument: Argument) -> None:
    checked(passing(type_name, argument))


@pytest.mark.parametrize(
    ("type_name", "argument"),
    [
        ("*fp32:16", 0),
        ("*fp32:16", MAP),
        ("i32", 2**31),
        ("i32", -(2**31) - 1),
        ("u8", -1),
        ("i64", 2**63),
        ("i32", 0.5),
        ("i128", 1),
        ("i32", Pointer("y")),
        ("tensordesc<fp32[1,4]>", Pointer("y")),
        (("i32",), (1, 2)),
        (("i32", "i32"), 1),
        ("i32", (1,)),
    ],
    ids=str,
)
def test_arguments_of_other_types(type_name: TypeName, argument: Argument) -> None:
    with pytest.raises(ValueError, match=r"the arguments are not those of elementwise\.scale_kernel"):
        checked(passing(type_name, argument))


def test_as_many_arguments_as_the_kernel_has() -> None:
    for arguments in ((Pointer("a"),), (Pointer("a"), Pointer("y"), 1)):
        with pytest.raises(ValueError, match="the arguments are not those"):
            checked(with_call(Launch(KERNEL, (1, 1, 1), arguments, ("a",), ("y",))))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"shape": (3, 4)}, "48 bytes at 0 lie outside buffer 'y'"),
        ({"strides": (8, 1)}, "48 bytes at 0 lie outside buffer 'y'"),
        ({"shape": (2**70, 4)}, "lie outside buffer 'y'"),
        ({"dtype": "float64"}, "64 bytes at 0 lie outside buffer 'y'"),
        ({"dtype": "f4"}, "no name of a dtype"),
        ({"shape": (-2, 4)}, "there is no TensorMap"),
        ({"strides": (0, 1)}, "there is no TensorMap"),
        ({"box": (0, 4)}, "there is no TensorMap"),
        ({"box": (4,)}, "there is no TensorMap"),
        ({"gaps": (1, 1, 1)}, "there is no TensorMap"),
        ({"gaps": (1, -1)}, "there is no TensorMap"),
    ],
    ids=str,
)
def test_tensor_maps_lead_nowhere_else(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        checked(passing("tensordesc<fp32[1,4]>", replace(MAP, **changes)))


def test_tensors_of_attributes_have_their_bytes() -> None:
    def with_table(table: TensorValue) -> Program:
        call = PythonCall("my.domain", "Filter", (("tables", ("first", table)),), ("b",), ("y",))
        return replace(program(), calls=(*program().calls, call))

    checked(with_table(TensorValue("bfloat16", (2, 3), bytes(12))))
    for table in (
        TensorValue("float32", (2, 3), bytes(12)),
        TensorValue("object", (1,), bytes(8)),
        TensorValue("float32", (-2, -3), bytes(24)),
    ):
        with pytest.raises(ValueError, match="bytes are no"):
            checked(with_table(table))


def test_weights_may_be_larger_than_what_is_used() -> None:
    check_program(program(), WEIGHTS | {"w": np.zeros((100, 100), np.float32)})
