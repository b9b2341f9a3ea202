from __future__ import annotations

import pytest

from gossamer.model.passes.rotary_pattern import rotary_pattern
from our_operators import parse, run_and_compare, unchanged

INPUTS = "float[2,3,5,8] x, float[1,1,5,8] c, float[1,1,5,8] s"
OUTPUT = "float[2,3,5,8] y"
CONSTANTS = "<int64[1] zero = {0}, int64[1] four = {4}, int64[1] end = {9223372036854775807}, int64[1] axis = {3}>"
SPLIT = "l, r = Split <axis = -1, num_outputs = 2> (x) n = Neg (r) h = Concat <axis = -1> (n, l)"
SLICES = "l = Slice (x, zero, four, axis) r = Slice (x, four, end, axis) n = Neg (r) h = Concat <axis = 3> (n, l)"
SUM = "a = Mul (x, c) b = Mul (h, s) y = Add (a, b)"


def model(body: str, inputs: str = INPUTS, outputs: str = OUTPUT):
    return parse(f"g ({inputs}) => ({outputs}) {CONSTANTS} {{ {body} }}")


def merged(body: str, **rest) -> str:
    result = run_and_compare(model(body, **rest), rotary_pattern)
    (line,) = (line.strip() for line in result.splitlines() if "Rotary" in line)
    assert "Concat" not in result
    return line.partition(" : ")[0]


def test_text(text):
    assert run_and_compare(model(f"{SPLIT} {SUM}"), rotary_pattern) == text("""
        graph g(%x : float32[2,3,5,8], %c : float32[1,1,5,8], %s : float32[1,1,5,8]) {
          %zero : int64[1] = {0}
          %four : int64[1] = {4}
          %end : int64[1] = {9223372036854775807}
          %axis : int64[1] = {3}
          %y = gossamer::RotaryEmbedding(%x, %c, %s) : float32[2,3,5,8]
          return %y
        }
        """)


@pytest.mark.parametrize(
    "body",
    [f"{SLICES} {SUM}", f"{SPLIT} a = Mul (c, x) b = Mul (s, h) y = Add (b, a)"],
    ids=("slices", "the other way round"),
)
def test_ways_to_write_it(body):
    assert merged(body) == "%y = gossamer::RotaryEmbedding(%x, %c, %s)"


@pytest.mark.parametrize("shape", ["5,8", "1,5,8", "2,1,5,8"])
def test_tables(shape):
    inputs = f"float[2,3,5,8] x, float[{shape}] c, float[{shape}] s"
    assert merged(f"{SPLIT} {SUM}", inputs=inputs) == "%y = gossamer::RotaryEmbedding(%x, %c, %s)"


@pytest.mark.parametrize(
    "parts",
    ["t = Slice (x, zero, four, axis) p = Slice (x, four, end, axis)", "t, p = Split <axis = 3> (x, sizes)"],
    ids=("slices", "split"),
)
def test_some_columns_stay(parts):
    body = f"{parts} l, r = Split <axis = -1, num_outputs = 2> (t) n = Neg (r) h = Concat <axis = -1> (n, l)"
    body += " a = Mul (t, c) b = Mul (h, s) d = Add (a, b) y = Concat <axis = -1> (d, p)"
    inputs = "float[2,3,5,10] x, float[5,4] c, float[5,4] s"
    source = f"g ({inputs}) => (float[2,3,5,10] y) {CONSTANTS.replace('<', '<int64[2] sizes = {4,6}, ')} {{ {body} }}"
    result = run_and_compare(parse(source), rotary_pattern)
    assert "%y = gossamer::RotaryEmbedding(%x, %c, %s)" in result
    assert "Concat" not in result


def test_other_columns_that_are_not_all_of_them_stay_outside():
    body = "t = Slice (x, zero, four, axis) p = Slice (x, four, six, axis)"
    body += " l, r = Split <axis = -1, num_outputs = 2> (t) n = Neg (r) h = Concat <axis = -1> (n, l)"
    body += " a = Mul (t, c) b = Mul (h, s) d = Add (a, b) y = Concat <axis = -1> (d, p)"
    inputs = "float[2,3,5,10] x, float[5,4] c, float[5,4] s"
    constants = CONSTANTS.replace("<", "<int64[1] six = {6}, ")
    result = run_and_compare(parse(f"g ({inputs}) => (float[2,3,5,6] y) {constants} {{ {body} }}"), rotary_pattern)
    assert "%d = gossamer::RotaryEmbedding(%t, %c, %s)" in result


@pytest.mark.parametrize(
    "body",
    [
        "l, r = Split <axis = -1, num_outputs = 2> (x) n = Neg (l) h = Concat <axis = -1> (n, r) " + SUM,
        "l, r = Split <axis = -1, num_outputs = 2> (x) n = Neg (r) h = Concat <axis = -1> (l, n) " + SUM,
        "l, r = Split <axis = -1, num_outputs = 2> (z) n = Neg (r) h = Concat <axis = -1> (n, l) " + SUM,
        f"{SPLIT} a = Mul (x, c) b = Mul (h, s) y = Sub (a, b)",
        f"{SPLIT} a = Mul (x, each) b = Mul (h, s) y = Add (a, b)",  # a table for every head
        f"{SPLIT} a = Mul (x, c) b = Mul (h, s) d = Add (a, b) y = Add (d, h)",  # others read h
        f"{SPLIT} a = Mul (x, h) b = Mul (c, s) y = Add (a, b)",
    ],
)
def test_kept(body):
    unchanged(model(body, inputs=f"{INPUTS}, float[2,3,5,8] z, float[1,3,5,8] each"), rotary_pattern)
