from __future__ import annotations

import pytest

from gossamer.model.passes import share_duplicates


def test_equal_nodes_and_initializers_become_one(bench, text):
    assert bench.after(
        share_duplicates,
        """
        g (float[2] x) => (float[2] y)
        <float k = {2.0}, float l = {2.0}>
        {
          a = Mul (x, k)
          b = Mul (x, l)
          c = Sigmoid (a)
          d = Sigmoid (b)
          y = Add (c, d)
        }""",
    ) == text("""
        graph g(%x : float32[2]) {
          %k : float32[] = {2}
          %a = Mul(%x, %k)
          %c = Sigmoid(%a)
          %y = Add(%c, %c) : float32[2]
          return %y
        }
    """)


def test_an_output_is_made_by_the_first(bench, text):
    assert bench.after(
        share_duplicates,
        """
        g (float[2] x) => (float[2] y, float[2] z) {
          a = Sigmoid (x)
          y = Sigmoid (x)
          z = Neg (a)
        }""",
    ) == text("""
        graph g(%x : float32[2]) {
          %y = Sigmoid(%x) : float32[2]
          %z = Neg(%y) : float32[2]
          return %y, %z
        }
    """)


@pytest.mark.parametrize(
    "nodes",
    [
        "a = Sigmoid (x) b = Neg (x)",
        "a = LeakyRelu <alpha = 0.1> (x) b = LeakyRelu <alpha = 0.2> (x)",
        "a = Sub (x, k) b = Sub (k, x)",
        "a = RandomUniformLike (x) b = RandomUniformLike (x)",
        "a = Bernoulli (p) b = Bernoulli (p)",
        "a = Constant <value = float {1.0}> () b = Constant <value = float {-1.0}> ()",
    ],
)
def test_what_differs_stays(bench, nodes):
    bench.keeps(
        share_duplicates,
        f"""
        g (float[2] x, float[2] p) => (float[2] y)
        <float[2] k = {{2.0, 3.0}}>
        {{ {nodes} y = Add (a, b) }}""",
    )


def test_two_outputs_stay_two(bench):
    bench.keeps(
        share_duplicates,
        """
        g (float[2] x) => (float[2] y, float[2] z) { y = Sigmoid (x) z = Sigmoid (x) }""",
    )


def test_initializers_of_other_types_and_shapes_stay(bench):
    bench.keeps(
        share_duplicates,
        """
        g (float[2] x) => (float[2] y, int32[1] z)
        <float[1] k = {0.0}, int32[1] l = {0}, float m = {0.0}>
        { a = Add (x, k) y = Sub (a, m) z = Neg (l) }""",
    )


def test_a_constant_output_is_nothing_to_warn_of(bench, caplog):
    bench.keeps(share_duplicates, "g (float[2] x) => (float[2] y, float[2] k) <float[2] k = {1, 2}> { y = Neg (x) }")
    assert not caplog.records
