"""Programs as JSON: nothing is lost, every kind of call is known, and what is none of ours is refused."""

from __future__ import annotations

import json
import math
import types
from dataclasses import fields, is_dataclass, replace
from typing import Any, Union, get_args, get_origin

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases.op_cases import CASES, OpCase
from gossamer.errors import ArtifactError, Fail
from gossamer.program import (
    Arena,
    Buffer,
    Call,
    Kernel,
    Launch,
    Location,
    Pointer,
    Program,
    Target,
    TensorMap,
    Unavailable,
    View,
    codec,
)
from gossamer.program import calls as call_kinds
from gossamer.program.calls import TensorValue
from gossamer.program.codec import KINDS, decode, decode_value, encode, encode_value
from harness import lower_model


def round_trip(value: Any) -> Any:
    """Through JSON text."""
    kept: dict[str, bytes] = {}

    def keep(data: bytes) -> str:
        name = f"data{len(kept)}"
        kept[name] = data
        return name

    if isinstance(value, Program):
        return decode(json.loads(json.dumps(encode(value, keep), allow_nan=False)), kept.__getitem__)
    return decode_value(json.loads(json.dumps(encode_value(value, keep), allow_nan=False)), kept.__getitem__)


def assert_same(got: Any, want: Any) -> None:
    """Equal in value and in type, down to the last bit of a float. Programs compare by identity; this does not."""
    assert type(got) is type(want)
    if is_dataclass(want):
        for field in fields(want):
            assert_same(getattr(got, field.name), getattr(want, field.name))
    elif isinstance(want, dict):
        assert list(got) == list(want)
        for key, item in want.items():
            assert_same(got[key], item)
    elif isinstance(want, tuple):
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            assert_same(one, other)
    elif isinstance(want, float):
        assert np.float64(got).tobytes() == np.float64(want).tobytes()
    else:
        assert got == want


NUMBERS = st.integers(-(2**63), 2**64)
FLOATS = st.floats()
TEXTS = st.text(max_size=5)
POINTERS = st.builds(Pointer, TEXTS, NUMBERS)
SIZES = st.lists(NUMBERS, max_size=3).map(tuple)
MAPS = st.builds(TensorMap, TEXTS, TEXTS, SIZES, SIZES, SIZES, SIZES)
TENSORS = st.builds(TensorValue, TEXTS, SIZES, st.binary(max_size=8))


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(leaves, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=4)


BY_NAME: dict[str, st.SearchStrategy[Any]] = {
    "Constant": nested(NUMBERS | FLOATS | TEXTS | st.booleans() | st.none()),
    "TypeName": nested(TEXTS),
    "Argument": nested(POINTERS | MAPS | NUMBERS | FLOATS),
    "AttributeValue": nested(NUMBERS | FLOATS | TEXTS | TENSORS),
}


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a declared type, so that a field that is added tomorrow is drawn tomorrow."""
    plain = {int: NUMBERS, float: FLOATS, str: TEXTS, bool: st.booleans(), bytes: st.binary(max_size=8)}
    if hint in plain:
        return plain[hint]
    if hint is type(None):
        return st.none()
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return st.one_of(*(values_of(choice) for choice in arguments if choice is not Unavailable))
    if origin is tuple and arguments[1:] == (...,):
        return st.lists(values_of(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, arguments))
    if origin is not None:
        return st.dictionaries(TEXTS, values_of(arguments[1]), max_size=3)
    return instances_of(hint) if hint.__name__ in KINDS else BY_NAME[hint.__name__.removeprefix("_")]


def instances_of(kind: type) -> st.SearchStrategy[Any]:
    drawn = {name: values_of(hint) for name, hint in codec._hints(kind.__name__).items()}
    if kind is View:
        drawn["offset"] = st.integers(0, 1000).map(lambda blocks: 16 * blocks)
    return st.builds(kind, **drawn)


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_nothing_is_lost(name: str, data: st.DataObject) -> None:
    value = data.draw(instances_of(KINDS[name]))
    assert_same(round_trip(value), value)


CALLS = [call for call in get_args(Call) if call is not Unavailable]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_every_kind_of_call_has_its_code(call: type) -> None:
    assert KINDS[call.__name__] is call


def test_a_node_that_waits_for_cudnn_has_none() -> None:
    waiting = Unavailable("Conv", "cuDNN is not here.", ("x",), ("x",))
    with pytest.raises(Fail, match=r"cannot hold a gossamer\.program\.calls\.Unavailable"):
        encode(small_program(waiting), lambda data: "")
    with pytest.raises(ArtifactError, match="no kind 'Unavailable'"):
        decode_value({"kind": "Unavailable"}, lambda name: b"")


@pytest.mark.parametrize("place", get_args(Location), ids=lambda place: place.__name__)
def test_every_kind_of_place_has_its_code(place: type) -> None:
    assert KINDS[place.__name__] is place


def test_every_dataclass_of_calls_has_its_code() -> None:
    made = {kind for kind in vars(call_kinds).values() if is_dataclass(kind) and isinstance(kind, type)}
    absent = {call_kinds.Refusal, Unavailable}
    assert made - set(KINDS.values()) == absent, "the one never is in a Program, the other never in a file"


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_programs_of_real_models_come_back(case: OpCase, target: str) -> None:
    program, _ = lower_model(case.model(), Target.named(target))
    assert_same(round_trip(program), program)


KERNEL = Kernel("elementwise.scale_kernel", (("x", "*fp16:16"),), (("BLOCK", 1024),))


def small_program(*calls: Call) -> Program:
    buffers = {"x": Buffer("x", "float16", (8,))}
    return Program("small", Target.named("sm_90"), ("x",), ("x",), buffers, {"x": Arena(0)}, calls, 256, 256)


def test_launches_share_their_kernel() -> None:
    launch = Launch(KERNEL, (1, 1, 1), (Pointer("x"),), ("x",), ("x",))
    document = encode(small_program(launch, replace(launch, grid=(2, 1, 1))), lambda data: "")
    assert len(document["kernels"]) == 1
    first, second = round_trip(small_program(launch, launch)).launches
    assert first.kernel is second.kernel


def test_fields_at_their_default_are_left_out() -> None:
    assert encode_value(Pointer("x"), lambda data: "") == {"kind": "Pointer", "buffer": "x"}


def test_bytes_are_kept_elsewhere() -> None:
    assert encode_value(b"plan", lambda data: f"data/{data.hex()}") == {"bytes": "data/706c616e"}


def test_floats_that_json_lacks_keep_their_bits() -> None:
    for value in (math.inf, -math.inf, math.nan, -math.nan, -0.0):
        assert_same(round_trip(value), value)


@pytest.mark.parametrize(
    "value", [np.int64(1), [1], {"a": 1}, Ellipsis, Pointer(np.int32(1)), Pointer("x", 1.0)], ids=repr
)
def test_what_a_file_cannot_hold_is_refused_when_it_is_written(value: Any) -> None:
    with pytest.raises(Fail):
        encode_value(value, lambda data: "")


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"kind": "Exploit"}, "no kind 'Exploit'"),
        ({"kind": "Pointer"}, "Pointer"),
        ({"kind": "Pointer", "buffer": 1}, "Pointer.buffer cannot be 1"),
        ({"kind": "Pointer", "buffer": "x", "offset": True}, "Pointer.offset cannot be True"),
        ({"kind": "Pointer", "buffer": "x", "offset": 1.5}, "Pointer.offset"),
        ({"kind": "Pointer", "buffer": "x", "size": 1}, "no field 'size'"),
        ({"kind": "View", "source": "x", "out": "y", "offset": 3}, "alignment"),
        ({"kernel": 0}, "stands for no value"),
        ({"float": "zz"}, "bits of a float"),
        ({"float": "00"}, "bits of a float"),
        ({"bytes": "x", "more": 1}, "stands for no value"),
        ({}, "stands for no value"),
    ],
)
def test_what_is_no_value_is_refused_when_it_is_read(document: Any, text: str) -> None:
    with pytest.raises(ArtifactError, match="MALFORMED") as caught:
        decode_value(document, lambda name: b"")
    assert text in str(caught.value)


@pytest.mark.parametrize("document", [None, [], {}, {"kernels": [], "program": 1}, {"kernels": 1, "program": 1}])
def test_what_is_no_program_is_refused(document: Any) -> None:
    with pytest.raises(ArtifactError, match="MALFORMED"):
        decode(document, lambda name: b"")


def test_a_launch_of_a_kernel_that_is_not_there_is_refused() -> None:
    document = encode(small_program(Launch(KERNEL, (1, 1, 1), (), (), ())), lambda data: "")
    document["kernels"] = []
    with pytest.raises(ArtifactError, match="stands for no value"):
        decode(document, lambda name: b"")
