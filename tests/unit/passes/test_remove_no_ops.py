from __future__ import annotations

import pytest

from gossamer.model.passes import infer_shapes, remove_no_ops


def shaped(model):
    """With shapes known, as when the pass runs in the compiler."""
    infer_shapes(model)
    return remove_no_ops(model)


@pytest.mark.parametrize(
    "node",
    [
        "b = Identity (a)",
        "b = Dropout (a)",
        "b = Dropout (a, ratio)",
        "b, mask = Dropout (a, ratio, no)",
        "b = Cast <to = 1> (a)",
        "b = Transpose <perm = [0, 1, 2]> (a)",
        "b = Reshape (a, shape)",
        "b = Reshape (a, rest)",
        "b = Flatten <axis = 1> (f)",
        "b = Expand (a, shape)",
        "b = Tile (a, ones)",
        "b = Slice (a, zeros, shape)",
        "b = Slice (a, zeros, shape, axes, ones)",
        "b = Pad (a, no_pads)",
        "b = Concat <axis = 1> (a)",
        "b = Sum (a)",
        "b = Max (a)",
    ],
)
def test_what_changes_nothing_goes(bench, node):
    source = "f" if "(f)" in node else "a"
    result = bench.after(
        shaped,
        f"""
        g (float[2,3,4] x) => (float y)
        <int64[3] shape = {{2,3,4}}, int64[3] rest = {{2,-1,4}}, int64[3] ones = {{1,1,1}}, int64[3] zeros = {{0,0,0}},
         int64[3] axes = {{0,1,2}}, int64[6] no_pads = {{0,0,0,0,0,0}}, float ratio = {{0.5}}, bool no = {{0}}>
        {{
          a = Relu (x)
          f = Flatten <axis = 1> (a)
          {node}
          c = Neg (b)
          s = Abs (f)
          m = ReduceSum <keepdims = 0> (c)
          n = ReduceSum <keepdims = 0> (s)
          y = Add (m, n)
        }}""",
    )
    assert f"Neg(%{source})" in result
    assert "%b" not in result


@pytest.mark.parametrize(
    "node",
    [
        "b = Cast <to = 11> (a)",
        "b = Transpose <perm = [0, 2, 1]> (a)",
        "b = Transpose (a)",
        "b = Reshape (a, other)",
        "b = Slice (a, ends, starts, axes, back)",
        "b = Dropout (a, ratio, yes)",
        "b, mask = Dropout (a)",
        "b = Pad (a, moved)",
    ],
)
def test_what_changes_something_stays(bench, node):
    reader = "z = Not (mask)" if "mask" in node else "z = Not (yes)"
    model = bench.load(f"""
        g (float[2,4,4] x) => (float[a,b,c] y, bool[d] z)
        <int64[3] other = {{4,2,4}}, int64[3] starts = {{-9,-9,-9}}, int64[3] ends = {{-1,-1,-1}},
         int64[3] axes = {{0,1,2}}, int64[3] back = {{-1,-1,-1}}, int64[6] moved = {{0,0,-1,0,0,1}},
         float ratio = {{0.5}}, bool yes = {{1}}>
        {{ a = Relu (x) {node} {reader} y = Neg (b) }}""")
    infer_shapes(model)
    assert not remove_no_ops(model)


def test_outputs_keep_their_names(bench, text):
    assert bench.after(
        remove_no_ops,
        """
        g (float[2] x) => (float[2] y, float[2] z) {
          a = Relu (x)
          y = Identity (a)
          z = Neg (a)
        }""",
    ) == text("""
        graph g(%x : float32[2]) {
          %y = Relu(%x) : float32[2]
          %z = Neg(%y) : float32[2]
          return %y, %z
        }
    """)


def test_copies_that_outputs_need_stay(bench):
    bench.keeps(
        remove_no_ops,
        """
        g (float[2] x) => (float[2] y, float[2] z, float[2] w)
        <float[2] k = {1.0, 2.0}>
        { y = Identity (x) z = Identity (k) w = Identity (y) }""",
    )
