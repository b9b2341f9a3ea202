from __future__ import annotations

import onnx.parser

from gossamer.model.load import load
from gossamer.model.text import to_text


def test_all_that_a_model_can_hold(text):
    proto = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>
        main (float16[N,?,3] x, bool c, float u, seq(float[2]) s) => (float[a] y)
        <double[2] k = {0.5, 1e-9}, int64[9] many = {1,2,3,4,5,6,7,8,9}, bool t = {1}>
        {
          f = Cast <to = 1> (x)
          p, q = Split <axis = 1, num_outputs = 2> (f)
          r = Resize <mode = "linear", extrapolation_value = 0.125> (p, , u)
          g = com.microsoft.Gelu (r)
          w = Constant <value = int8[2] {1, -2}> ()
          y = If (c) <
            then_branch = one () => (float[a] z) { z = Neg (g) },
            else_branch = two () => (float[a] z) { z = Abs (q) }
          >
        }""")
    proto.graph.input[2].type.tensor_type.ClearField("shape")
    assert to_text(load(proto)) == text("""
        graph main(%x : float16[N,?,3], %c : bool[], %u : float32[…], %s : Sequence(Tensor(FLOAT))) {
          %k : float64[2] = {0.5,1e-09}
          %many : int64[9]
          %t : bool[] = {True}
          %f = Cast[to=1](%x)
          %p, %q = Split[axis=1, num_outputs=2](%f)
          %r = Resize[mode="linear", extrapolation_value=0.125](%p, _, %u)
          %g = com.microsoft::Gelu(%r)
          %w = Constant[value={1,-2}]()
          %y = If(%c) : float32[a]
            then_branch() {
              %z = Neg(%g) : float32[…]
              return %z
            }
            else_branch() {
              %z_1 = Abs(%q) : float32[…]
              return %z_1
            }
          return %y
        }
    """)
