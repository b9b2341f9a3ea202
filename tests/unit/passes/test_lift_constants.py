from __future__ import annotations

import numpy as np
import onnx
import pytest

from gossamer.errors import InvalidGraph
from gossamer.model.load import load
from gossamer.model.passes import lift_constants


def test_every_form_of_numbers(bench, text):
    assert bench.after(
        lift_constants,
        """
        g (float[2] x) => (float[2] y, int64[2] n) {
          a = Constant <value = float[2] {1.5, 2.5}> ()
          b = Constant <value_float : float = 3.0> ()
          c = Constant <value_floats : floats = [4.0, 5.0]> ()
          d = Constant <value_int : int = 6> ()
          e = Constant <value_ints : ints = [7, 8]> ()
          s = Add (a, b)
          t = Add (s, c)
          y = Add (x, t)
          n = Add (d, e)
        }""",
    ) == text("""
        graph g(%x : float32[2]) {
          %a : float32[2] = {1.5,2.5}
          %b : float32[] = {3}
          %c : float32[2] = {4,5}
          %d : int64[] = {6}
          %e : int64[2] = {7,8}
          %s = Add(%a, %b)
          %t = Add(%s, %c)
          %y = Add(%x, %t) : float32[2]
          %n = Add(%d, %e) : int64[2]
          return %y, %n
        }
    """)


def test_strings(bench):
    model = bench.load("""
        g (string[2] x) => (bool[2] y, bool[2] z) {
          a = Constant <value_string : string = "é"> ()
          b = Constant <value_strings : strings = ["é", "b"]> ()
          y = Equal (x, a)
          z = Equal (x, b)
        }""")
    assert lift_constants(model)
    found = {
        name: (value.const_value.numpy().tolist(), list(value.shape))
        for name, value in model.graph.initializers.items()
    }
    assert found == {"a": ("é".encode(), []), "b": (["é".encode(), b"b"], [2])}


def test_in_branches_they_stay_there(bench, text):
    assert bench.after(
        lift_constants,
        """
        g (bool c, float[2] x) => (float[2] y) {
          y = If (c) <
            then_branch = t () => (float[2] r) { k = Constant <value_float : float = 2.0> () r = Mul (x, k) },
            else_branch = e () => (float[2] r) { r = Neg (x) }
          >
        }""",
    ) == text("""
        graph g(%c : bool[], %x : float32[2]) {
          %y = If(%c) : float32[2]
            then_branch() {
              %k : float32[] = {2}
              %r = Mul(%x, %k) : float32[…]
              return %r
            }
            else_branch() {
              %r_1 = Neg(%x) : float32[…]
              return %r_1
            }
          return %y
        }
    """)


def test_a_constant_output_leaves_a_copy(bench, text):
    assert bench.after(
        lift_constants,
        """
        g (float[1] x) => (float[1] y, float[1] z) {
          z = Constant <value = float[1] {2.0}> ()
          y = Add (x, z)
        }""",
    ) == text("""
        graph g(%x : float32[1]) {
          %z_value : float32[1] = {2}
          %z = Identity(%z_value) : float32[1]
          %y = Add(%x, %z) : float32[1]
          return %y, %z
        }
    """)


def test_sparse_and_empty_constants_are_refused():
    values = onnx.helper.make_tensor("v", onnx.TensorProto.FLOAT, [1], [1.0])
    indices = onnx.numpy_helper.from_array(np.array([0]), "i")
    sparse = onnx.helper.make_node(
        "Constant", [], ["s"], name="weights", sparse_value=onnx.helper.make_sparse_tensor(values, indices, [2])
    )
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2])
    for node, words in (
        (sparse, "Constant 'weights' holds a sparse tensor.* dense"),
        (onnx.NodeProto(op_type="Constant", output=["s"]), "Constant.*0 attributes"),
    ):
        graph = onnx.helper.make_graph([node, onnx.helper.make_node("Neg", ["s"], ["y"])], "g", [], [output])
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8)
        with pytest.raises(InvalidGraph, match=words):
            lift_constants(load(model))
