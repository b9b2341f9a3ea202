"""Programs whose parts are of the right types and contradict each other."""

from __future__ import annotations

import re
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
    dtype_of,
)
from gossamer.program.calls import TRITON_TYPES, Argument, TypeName
from gossamer.program.cubin import Cubin, TensorMapLayout
from gossamer.program.soundness import check_code, check_program, check_target
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


@pytest.mark.parametrize("buffer", [Buffer("y", "object", (2,)), Buffer("y", "float32", (2, 4), dynamic=True)], ids=str)
def test_what_the_device_cannot_hold_is_on_the_host(buffer: Buffer) -> None:
    checked(with_buffer("y", buffer, Host()))
    with pytest.raises(ValueError, match="'y' cannot be"):
        checked(with_buffer("y", buffer, Arena(0)))


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
        View("y", "y"),
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
        (CudnnCall("graph", "[]", (), (), ("y",)), "its description is no JSON object"),
        (CudnnCall("graph", '{"a":1,"a":2}', (), (), ("y",)), "the key 'a' is there twice"),
        (View("a", "y", 16), "32 bytes at 16 lie outside buffer 'a'"),
    ],
    ids=str,
)
def test_calls_stay_within_their_buffers(call: Call, text: str) -> None:
    checked(with_call(Copy("a", "y", 28, 4, 4)))
    checked(with_call(Fill("y", 255)))
    with pytest.raises(ValueError, match=text):
        checked(with_call(call))


def test_views_are_where_their_buffers_are() -> None:
    half, whole = Buffer("y", "float32", (4,)), Buffer("y", "float32", (2, 4))

    def viewing(out: Buffer, place: Arena | Weight, view: View) -> Program:
        made = with_buffer("y", out, place)
        return replace(made, calls=(*made.calls, view))

    checked(viewing(half, Arena(256 + 16), View("a", "y", 16)))
    checked(viewing(half, Weight("w", 48), View("w", "y", 48)))
    checked(viewing(replace(half, shape=(0,)), Arena(0), View("a", "y")))
    for out, place, view in (
        (half, Arena(256), View("a", "y", 16)),
        (whole, Arena(768), View("a", "y")),
        (half, Weight("w", 32), View("w", "y", 48)),
        (half, Arena(256), View("w", "y")),
    ):
        with pytest.raises(ValueError, match=f"buffer 'y' is at .*, and its view of '{view.source}' at"):
            checked(viewing(out, place, view))


@pytest.mark.parametrize("call", [View("a", "y"), Copy("a", "y", 8)], ids=str)
def test_elements_that_move_stay_as_large(call: Copy | View) -> None:
    """Operators only say what they mean: a BitCast is a view."""
    for dtype in ("int32", "float64", "float16"):
        made = replace(with_buffer("y", Buffer("y", dtype, (4,)), Arena(256)), calls=(call,))
        if dtype == "int32":
            checked(made)
        else:
            with pytest.raises(ValueError, match=r"elements of 'a', float32.*, cannot be those of 'y'"):
                checked(made)


@pytest.mark.parametrize("copy", [Copy("a", "y", 6), Copy("a", "y", 4, 2), Copy("a", "y", 4, 0, 2)], ids=str)
def test_elements_that_move_are_whole(copy: Copy) -> None:
    with pytest.raises(ValueError, match="elements of 'a'"):
        checked(with_call(copy))


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
        ("i64:8", -24),
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
        ("i32:16", 24),
        ("i64:8", 4),
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


@pytest.mark.parametrize("dtype", TRITON_TYPES)
def test_kernels_work_on_the_elements_that_buffers_have(dtype: str) -> None:
    """Those of the same size they may take for integers."""
    own, words = TRITON_TYPES[dtype], {1: "u8", 2: "i16", 4: "i32", 8: "i64"}[dtype_of(dtype).itemsize]
    made = with_buffer("y", Buffer("y", dtype, (8,)), Arena(512))
    for name in (own, words):
        checked(replace(made, calls=passing(f"*{name}", Pointer("y")).calls))
    for name in {*TRITON_TYPES.values()} - {own} - {element for element in TRITON_TYPES.values() if element[0] in "iu"}:
        with pytest.raises(ValueError, match=rf"scale_kernel takes \*{name}, and buffer 'y' is {dtype}"):
            checked(replace(made, calls=passing(f"*{name}", Pointer("y")).calls))
    with pytest.raises(ValueError, match="scale_kernel takes"):
        checked(replace(made, calls=passing("*i64" if words != "i64" else "*i32", Pointer("y")).calls))


def test_addresses_are_divisible_as_kernels_take_for_granted() -> None:
    checked(passing("*fp32", Pointer("y", 4)))
    for type_name, argument in (("*fp32:16", Pointer("y", 4)), ("*fp32:8", Pointer("y", 12))):
        with pytest.raises(ValueError, match="does not lie at a multiple of"):
            checked(passing(type_name, argument))
    odd = with_buffer("y", Buffer("y", "float32", (2, 4)), Arena(772))
    for type_name, operand in (("*fp32:16", Pointer("y")), ("tensordesc<fp32[1,4]>", MAP)):
        with pytest.raises(ValueError, match="byte 0 of buffer 'y' does not lie at a multiple of 16"):
            checked(replace(odd, calls=passing(type_name, operand).calls))


@pytest.mark.parametrize("type_name", ["i32:0", "i32:7", "*fp32:x", "*fp32:16:16", "*void", "*", "tensordesc<"])
def test_types_that_there_are_not(type_name: str) -> None:
    argument = 0 if type_name.startswith("i") else MAP if type_name.startswith("t") else Pointer("y")
    with pytest.raises((ValueError, KeyError)):
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
        ({"shape": (2**32, 4)}, "lie outside buffer 'y'"),
        ({"shape": (2**70, 4)}, "there is no TensorMap"),
        ({"dtype": "float64"}, "there is no TensorMap"),
        ({"shape": (), "strides": (), "box": ()}, "there is no TensorMap"),
        ({"shape": (1,) * 6, "strides": (4,) * 5 + (1,), "box": (1,) * 6}, "there is no TensorMap"),
        ({"shape": (1, 4), "strides": (2**70, 1)}, "there is no TensorMap"),
        ({"shape": (2, 2), "strides": (3, 1)}, "there is no TensorMap"),
        ({"shape": (2, 2), "strides": (4, 2)}, "there is no TensorMap"),
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


CUBIN = Cubin("scale_kernel", 90, 4, 0, 0, 1, (), "3.9.0", b"code")
LAYOUT = TensorMapLayout(0, 4, 7, (1, 4), False)


def with_code(**figures: Any) -> None:
    """Machine code for the one kernel of the small Program."""
    check_code(program(), {KERNEL: replace(CUBIN, **figures)})


def test_machine_code_as_it_may_be() -> None:
    most = Target.named("sm_90").shared_bytes
    with_code(num_warps=32, shared_bytes=most, scratch_bytes=2**40, scratch_alignment=256)
    with_code(num_warps=1)
    check_code(program("interpreter"), {})


@pytest.mark.parametrize(
    "figures",
    [
        {"function": ""},
        {"function": "scale\0kernel"},
        {"function": "\ud800"},
        {"arch": 80},
        {"num_warps": 0},
        {"num_warps": -4},
        {"num_warps": 33},
        {"shared_bytes": -1},
        {"shared_bytes": Target.named("sm_90").shared_bytes + 1},
        {"scratch_bytes": -1},
        {"scratch_alignment": 0},
        {"scratch_alignment": 3},
        {"scratch_alignment": 512},
    ],
    ids=str,
)
def test_machine_code_that_no_such_gpu_launches(figures: dict[str, Any]) -> None:
    ((name, figure),) = figures.items()
    text = f"the machine code of {KERNEL.name} for sm_90 cannot have {name} {figure!r}"
    with pytest.raises(ValueError, match=re.escape(text)):
        with_code(**figures)


def test_scratch_that_no_gpu_has() -> None:
    with pytest.raises(ValueError, match=r"no GPU has \d+ bytes for each of its blocks"):
        with_code(scratch_bytes=2**62)


def test_machine_code_has_the_descriptors_that_its_kernel_takes() -> None:
    made = passing("tensordesc<fp32[1,4]>", MAP)
    kernel = list(made.launches)[-1].kernel
    own = {KERNEL: CUBIN}
    check_code(made, own | {kernel: replace(CUBIN, tensor_maps=(LAYOUT,))})
    for layouts in ((), (LAYOUT, LAYOUT)):
        with pytest.raises(ValueError, match=f"takes 1 TMA descriptors, its machine code {len(layouts)}"):
            check_code(made, own | {kernel: replace(CUBIN, tensor_maps=layouts)})


@pytest.mark.parametrize(
    ("figures", "gaps"),
    [
        ({"swizzle": 4}, ()),
        ({"swizzle": -1}, ()),
        ({"element_size": 2}, ()),
        ({"box": (1, 257)}, ()),
        ({"box": (0, 4)}, ()),
        ({"box": (1, 129)}, (1, 2)),
        ({}, (1, 9)),
        ({"box": (4,)}, ()),
    ],
    ids=str,
)
def test_descriptors_that_the_driver_does_not_make(figures: dict[str, Any], gaps: tuple[int, ...]) -> None:
    made = passing("tensordesc<fp32[1,4]>", replace(MAP, gaps=gaps))
    kernel = list(made.launches)[-1].kernel
    layout = replace(LAYOUT, **figures)
    with pytest.raises(ValueError, match=r"there is no TensorMap|shorter|longer"):
        check_code(made, {KERNEL: CUBIN, kernel: replace(CUBIN, tensor_maps=(layout,))})


@pytest.mark.parametrize(
    ("figures", "text"),
    [
        ({"arch": 0}, "no target of target.arch=0"),
        ({"sm_count": -1}, "target.sm_count=-1"),
        ({"shared_bytes": 0}, "target.shared_bytes=0"),
        ({"properties": "[]"}, "the properties of target sm_90 are no JSON object"),
        ({"properties": '{"a":1,"a":1}'}, "the key 'a' is there twice"),
    ],
    ids=str,
)
def test_targets_that_are_none(figures: dict[str, Any], text: str) -> None:
    for name in ("sm_90", "interpreter"):
        check_target(Target.named(name))
    with pytest.raises(ValueError, match=text):
        check_target(replace(Target.named("sm_90"), **figures))


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
