"""The numbers are compared in tests/interpreter/test_elementwise_chains.py: onnxruntime cannot run what comes out."""

from __future__ import annotations

import pytest

from gossamer.model.load import load
from gossamer.model.passes import infer_shapes, remove_unused, run_passes
from gossamer.model.passes.elementwise_chains import MOST_INPUTS, MOST_OUTPUTS, MOST_STEPS, elementwise_chains
from gossamer.model.text import to_text
from our_operators import parse, unchanged

PASSES = (elementwise_chains, remove_unused)


def joined(source: str) -> str:
    """The text after the pass, which must change the model once and not again."""
    model = load(parse(source))
    infer_shapes(model)
    assert run_passes(model, PASSES)
    text = to_text(model)
    assert not run_passes(model, PASSES)
    return text


def test_chain_and_diamond(text):
    assert joined(
        "g (float[2,3] x, float[3] b) => (float[2,3] y) { s = Add (x, b) g = Sigmoid (s) y = Mul (s, g) }"
    ) == text("""
        graph g(%x : float32[2,3], %b : float32[3]) {
          %y = gossamer::Elementwise[steps=["add 0 1","sigmoid 2","mul 2 3"], results=[4]](%x, %b) : float32[2,3]
          return %y
        }
        """)


def test_constants_of_one_element_become_part_of_the_program(text):
    source = """g (float[4] x) => (float[1,4] y) <float two = {2}, float[1,1] c = {0.1}> {
        z = Mul (x, c) y = Pow (z, two) }"""
    assert joined(source) == text("""
        graph g(%x : float32[4]) {
          %y = gossamer::Elementwise[steps=["constant value=0.1 to=float32","mul 0 1","square 2"], results=[3]](%x) : float32[1,4]
          return %y
        }
        """)  # noqa: E501


def test_what_others_read_stays_an_output_and_the_order_is_mended(text):
    source = (
        "g (float[3,3] x) => (float[3,3] y, float[3,3] p) { a = Neg (x) p = MatMul (a, x) b = Exp (a) y = Add (b, x) }"
    )
    assert joined(source) == text("""
        graph g(%x : float32[3,3]) {
          %a, %y = gossamer::Elementwise[steps=["neg 0","exp 1","add 2 0"], results=[1,3]](%x) : float32[3,3], float32[3,3]
          %p = MatMul(%a, %x) : float32[3,3]
          return %y, %p
        }
        """)  # noqa: E501


def test_a_node_that_would_depend_on_itself_is_left_out(text):
    """y reads a both directly and by way of the product."""
    source = "g (float[3,3] x) => (float[3,3] y) { a = Neg (x) b = Abs (a) p = MatMul (a, x) y = Add (p, b) }"
    assert joined(source) == text("""
        graph g(%x : float32[3,3]) {
          %a, %b = gossamer::Elementwise[steps=["neg 0","abs 1"], results=[1,2]](%x) : float32[3,3], float32[3,3]
          %p = MatMul(%a, %x) : float32[3,3]
          %y = Add(%p, %b) : float32[3,3]
          return %y
        }
        """)


def test_units_that_were_joined_count_as_one_for_dependence(text):
    """c reads d, which is in one unit with e, which reads the product of a: c must not join a."""
    source = """g (float[3,3] x, float[3,3] z) => (float[3,3] c, float[3,3] e) {
        a = Neg (x) d = Exp (z) p = MatMul (a, x) e = Add (d, p) q = MatMul (d, x) c = Mul (a, q) }"""
    assert joined(source) == text("""
        graph g(%x : float32[3,3], %z : float32[3,3]) {
          %a = Neg(%x) : float32[3,3]
          %p = MatMul(%a, %x) : float32[3,3]
          %d, %e = gossamer::Elementwise[steps=["exp 0","add 2 1"], results=[2,3]](%z, %p) : float32[3,3], float32[3,3]
          %q = MatMul(%d, %x) : float32[3,3]
          %c = Mul(%a, %q) : float32[3,3]
          return %c, %e
        }
        """)


def test_types_are_cast_inside(text):
    source = """g (float16[4] x, float[4] z) => (bool[4] y) {
        a = Cast <to = 1> (x) b = Mul (a, z) c = Cast <to = 10> (b) y = Less (c, x) }"""
    assert joined(source) == text("""
        graph g(%x : float16[4], %z : float32[4]) {
          %y = gossamer::Elementwise[steps=["cast 0 to=float32","mul 2 1","cast 3 to=float16","less 4 0"], results=[5]](%x, %z) : bool[4]
          return %y
        }
        """)  # noqa: E501


def test_equal_steps_are_done_once(text):
    source = "g (float[4] x) => (float[4] y) { a = Exp (x) b = Exp (x) c = Neg (a) y = Add (c, b) }"
    assert 'steps=["exp 0","neg 1","add 2 1"]' in joined(source)


def test_zeros_of_either_sign_are_two_constants():
    constants = "<float plus = {0.0}, float minus = {-0.0}>"
    assert '"constant value=0.0 to=float32","div 0 1","constant value=-0.0 to=float32","div 2 3"' in joined(
        f"g (float[4] x) => (float[4] y) {constants} {{ a = Div (x, plus) y = Div (a, minus) }}"
    )


@pytest.mark.parametrize(
    "source",
    [
        "g (float[4] x) => (float[4] y) { y = Relu (x) }",
        "g (float[4] x, float[2,4] z) => (float[2,4] y) { a = Relu (x) y = Add (a, z) }",
        "g (float[N] x) => (float[N] y) { a = Relu (x) y = Neg (a) }",
        "g (float[4] x) => (float[1,4] y) <int64[2] s = {1, 4}> { a = Relu (x) b = Reshape (a, s) y = Neg (b) }",
        "g (float[4] x, float[4] z) => (float[4] y, float[4] w) { y = Relu (x) w = Neg (z) }",
        """g (float[4] x, bool c) => (float[4] y) {
            y = If (c) <then_branch = t () => (float[4] u) { a = Neg (x) u = Exp (a) },
                        else_branch = e () => (float[4] v) { v = Identity (x) }> }""",
    ],
    ids=["single", "smaller", "symbolic", "across_a_reshape", "unconnected", "subgraph"],
)
def test_kept(source):
    unchanged(parse(source), elementwise_chains)


def _members(text: str) -> list[int]:
    """The number of steps of every Elementwise of a model's text."""
    return [line.count('"') // 2 for line in text.splitlines() if "Elementwise" in line]


def test_programs_have_a_most_of_steps():
    body = " ".join(f"v{i + 1} = Neg (v{i})" for i in range(MOST_STEPS + 5))
    assert _members(joined(f"g (float[4] v0) => (float[4] v{MOST_STEPS + 5}) {{ {body} }}")) == [MOST_STEPS, 5]


def test_programs_have_a_most_of_inputs():
    count = MOST_INPUTS + 3
    parameters = ", ".join(f"float[4] x{i}" for i in range(count))
    body = "v1 = Add (x0, x1) " + " ".join(f"v{i} = Add (v{i - 1}, x{i})" for i in range(2, count))
    assert _members(joined(f"g ({parameters}) => (float[4] v{count - 1}) {{ {body} }}")) == [MOST_INPUTS - 1, 3]


def test_programs_have_a_most_of_outputs():
    count = MOST_OUTPUTS + 2
    outputs = ", ".join(f"float[4] v{i}" for i in range(1, count + 1))
    body = " ".join(f"v{i} = Neg (v{i - 1})" for i in range(1, count + 1))
    assert _members(joined(f"g (float[4] v0) => ({outputs}) {{ {body} }}")) == [MOST_OUTPUTS, 2]
