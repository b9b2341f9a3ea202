from __future__ import annotations

import pytest

from gossamer.model.passes import inline_if, lift_constants

BRANCHES = """<
    then_branch = t () => (float[2] r) { k = Constant <value_float : float = 2.0> () r = Mul (x, k) },
    else_branch = e () => (float[2] r) { r = Neg (x) }
  >"""


def both(model):
    lifted = lift_constants(model)
    return inline_if(model) or lifted


@pytest.mark.parametrize(
    ("condition", "body"),
    [
        (1, ["%k : float32[] = {2}", "%r = Mul(%x, %k) : float32[…]", "%y = Relu(%r) : float32[2]"]),
        (0, ["%r_1 = Neg(%x) : float32[…]", "%y = Relu(%r_1) : float32[2]"]),
    ],
)
def test_the_taken_branch_replaces_the_node(bench, condition, body):
    result = bench.after(
        both,
        f"""
        g (float[2] x) => (float[2] y)
        <bool c = {{{condition}}}>
        {{ a = If (c) {BRANCHES} y = Relu (a) }}""",
    )
    assert [line.strip() for line in result.splitlines()[2:-2]] == body


def test_the_branchs_result_takes_the_name_of_an_output(bench, text):
    assert bench.after(
        both,
        f"""
        g (float[2] x) => (float[2] y)
        <bool[1] c = {{1}}>
        {{ y = If (c) {BRANCHES} }}""",
    ) == text("""
        graph g(%x : float32[2]) {
          %c : bool[1] = {True}
          %k : float32[] = {2}
          %y = Mul(%x, %k) : float32[2]
          return %y
        }
    """)


def test_a_branch_that_returns_an_initializer_or_an_outer_value_leaves_a_copy(bench, text):
    assert bench.after(
        both,
        """
        g (float[2] x) => (float[2] y, float[2] z)
        <bool c = {1}>
        {
          a = Neg (x)
          y, z = If (c) <
            then_branch = t () => (float[2] r, float[2] s) <float[2] r = {1.0, 2.0}> { s = Identity (a) },
            else_branch = e () => (float[2] r, float[2] s) { r = Neg (x) s = Abs (x) }
          >
        }""",
    ) == text("""
        graph g(%x : float32[2]) {
          %c : bool[] = {True}
          %r : float32[2] = {1,2}
          %a = Neg(%x)
          %z = Identity(%a) : float32[2]
          %y = Identity(%r) : float32[2]
          return %y, %z
        }
    """)


def test_branches_in_branches(bench, text):
    assert bench.after(
        both,
        """
        g (float[2] x) => (float[2] y)
        <bool c = {1}, bool d = {0}>
        {
          y = If (c) <
            then_branch = t () => (float[2] r) {
              q = Abs (x)
              r = If (d) <
                then_branch = t () => (float[2] r) { r = Neg (q) },
                else_branch = e () => (float[2] r) { r = Relu (q) }
              >
            },
            else_branch = e () => (float[2] r) { r = Neg (x) }
          >
        }""",
    ) == text("""
        graph g(%x : float32[2]) {
          %c : bool[] = {True}
          %d : bool[] = {False}
          %q = Abs(%x)
          %y = Relu(%q) : float32[2]
          return %y
        }
    """)


def test_a_condition_that_is_computed_stays(bench):
    bench.keeps(
        inline_if,
        """
        g (bool c, float[2] x) => (float[2] y) {
          y = If (c) <
            then_branch = t () => (float[2] r) { r = Abs (x) },
            else_branch = e () => (float[2] r) { r = Neg (x) }
          >
        }""",
    )
