"""Programs whose parts are of the right types and contradict each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiled_files import KERNEL, WEIGHTS, program
from gossamer.program import Arena, Buffer, Host, HostCall, Launch, Pointer, Program, PythonCall, TensorValue, Weight
from gossamer.program.soundness import check_program


def checked(made: Program) -> None:
    check_program(made, WEIGHTS)


def with_buffer(name: str, buffer: Buffer, place: Arena | Weight | Host) -> Program:
    made = program()
    return replace(made, buffers={**made.buffers, name: buffer}, locations={**made.locations, name: place})


def test_what_the_builder_makes_holds() -> None:
    for cudnn in (False, True):
        checked(program(cudnn=cudnn))


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
        Launch(KERNEL, (1, 1, 1), (((Pointer("nowhere"),),), 1), ("x",), ("a",)),
        HostCall(b"", ("nowhere",), ("y",)),
    ):
        with pytest.raises(KeyError, match="nowhere"):
            checked(replace(made, calls=(*made.calls, call)))


def test_tensors_of_attributes_have_their_bytes() -> None:
    def with_table(table: TensorValue) -> Program:
        call = PythonCall("my.domain", "Filter", (("tables", ("first", table)),), ("b",), ("y",))
        return replace(program(), calls=(*program().calls, call))

    checked(with_table(TensorValue("bfloat16", (2, 3), bytes(12))))
    for table in (TensorValue("float32", (2, 3), bytes(12)), TensorValue("object", (1,), bytes(8))):
        with pytest.raises(ValueError, match="bytes are no"):
            checked(with_table(table))


def test_weights_may_be_larger_than_what_is_used() -> None:
    check_program(program(), WEIGHTS | {"w": np.zeros((100, 100), np.float32)})
