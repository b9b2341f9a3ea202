from __future__ import annotations

import onnx.parser
import pytest

from gossamer.errors import InvalidGraph
from gossamer.model.load import load
from gossamer.model.passes import inline_functions, lift_constants
from gossamer.model.text import to_text

HEADER = '<ir_version: 8, opset_import: ["" : 18, "local" : 1]>\n'
SCALE = """
<domain: "local", opset_import: ["" : 18]>
Scale <by> (a) => (b) { factor = Constant <value_float : float = @by> () b = Mul (a, factor) }
"""


def test_calls_become_the_functions_nodes_with_attributes_in_place(text):
    model = load(
        onnx.parser.parse_model(
            HEADER
            + """
        g (float[2] x) => (float[2] y) {
          a = local.Scale <by : float = 2.0> (x)
          y = local.Scale <by : float = 3.0> (a)
        }"""
            + SCALE
        )
    )
    lift_constants(model)
    assert to_text(model) == text("""
        graph g(%x : float32[2]) {
          %factor : float32[] = {2}
          %factor_2 : float32[] = {3}
          %a = Mul(%x, %factor)
          %y = Mul(%a, %factor_2) : float32[2]
          return %y
        }
    """)
    assert not inline_functions(model)


def test_calls_in_functions_and_branches(text):
    model = load(
        onnx.parser.parse_model(
            HEADER
            + """
        g (bool c, float[2] x) => (float[2] y) {
          y = If (c) <
            then_branch = t () => (float[2] r) { r = local.Twice (x) },
            else_branch = e () => (float[2] r) { r = Neg (x) }
          >
        }
        <domain: "local", opset_import: ["" : 18, "local" : 1]>
        Twice (a) => (b) { b = local.Scale <by : float = 2.0> (a) }
        """
            + SCALE
        )
    )
    lift_constants(model)
    assert to_text(model) == text("""
        graph g(%c : bool[], %x : float32[2]) {
          %y = If(%c) : float32[2]
            then_branch() {
              %factor : float32[] = {2}
              %r = Mul(%x, %factor) : float32[…]
              return %r
            }
            else_branch() {
              %r_1 = Neg(%x) : float32[…]
              return %r_1
            }
          return %y
        }
    """)


def test_functions_that_call_one_another_in_a_circle():
    proto = onnx.parser.parse_model(
        HEADER
        + """
        g (float[2] x) => (float[2] y) { y = local.A (x) }
        <domain: "local", opset_import: ["local" : 1]> A (a) => (b) { b = local.B (a) }
        <domain: "local", opset_import: ["local" : 1]> B (a) => (b) { b = local.A (a) }"""
    )
    with pytest.raises(InvalidGraph, match=r"functions cannot be inlined: .*A"):
        load(proto)


def test_functions_of_another_opset():
    proto = onnx.parser.parse_model(
        HEADER
        + """
        g (float[2] x) => (float[2] y) { y = local.A (x) }
        <domain: "local", opset_import: ["" : 13]> A (a) => (b) { b = Neg (a) }"""
    )
    with pytest.raises(InvalidGraph, match="version 18 in the model but version 13"):
        load(proto)
