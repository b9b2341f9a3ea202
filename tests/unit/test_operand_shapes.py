"""Shapes that contradict an operator's text are found before a kernel reads beyond them."""

from __future__ import annotations

import pytest

from gossamer import errors
from gossamer.model import passes
from gossamer.model.load import load
from our_operators import parse

WRONG = {
    "channels": ("y = Conv (i, f)", "has 3 channels"),
    "groups": ("y = Conv <group = 2> (c, f)", "in 2 group"),
    "kernel_shape": ("y = Conv <kernel_shape = [2, 2]> (c, f)", "kernel_shape"),
    "conv_bias": ("y = Conv (c, f, v3)", r"input 2 has the shape \[3\], not \[4\]"),
    "auto_pad": ('y = Conv <auto_pad = "SAME"> (c, f)', "auto_pad is 'SAME', and there are NOTSET, SAME_UPPER"),
    "perm": ("y = Transpose <perm = [1, 0]> (t)", r"its input has 3 axes, and its perm \[1, 0\]"),
    "split": ("y, z = Split <num_outputs = 3> (m)", r"it has 2 output\(s\), and its num_outputs is 3"),
    "window": ("y = Conv (s, f)", r"would have the shape \[1, 4, -1, -1\]"),
    "fused": ('y = com.microsoft.FusedConv <activation = "Relu"> (i, f)', "has 3 channels"),
    "transposed": ("y = ConvTranspose (i, f)", "has 3 channels"),
    "conv_integer": ("y = ConvInteger (u, q)", "has 3 channels"),
    "batch_norm": ("y = BatchNormalization (i, v3, v3, v4, v3)", r"input 3 has the shape \[4\], not \[3\]"),
    "instance_norm": ("y = InstanceNormalization (i, v4, v4)", r"input 1 has the shape \[4\], not \[3\]"),
    "group_norm": ("y = GroupNormalization <num_groups = 2> (i, v3, v3)", "no 2 groups"),
    "layer_norm": ("y = LayerNormalization (i, v4)", r"\[4\] does not broadcast to \[1, 3, 5, 5\]"),
    "layer_norm_axis": ("y = LayerNormalization <axis = 4> (i, v4)", "none of them is axis 4"),
    "skip_norm": ("y = com.microsoft.SkipLayerNormalization (t, t, v4)", r"input 2 has the shape \[4\], not \[6\]"),
    "bias": ("y = com.microsoft.FastGelu (t, v4)", r"input 1 has the shape \[4\], not \[6\]"),
    "lrn": ("y = LRN <size = 0> (i)", "size is 0"),
    "prelu": ("y = PRelu (i, v4)", "does not broadcast"),
    "gemm": ("y = Gemm <transB = 1> (m, m, v4)", r"C of the shape \[4\] does not broadcast to \[2, 2\]"),
    "lstm": ("y = LSTM <hidden_size = 2> (t, w, r)", r"input 2 has the shape \[1, 8, 3\], not \[1, 8, 2\]"),
    "gather_elements": ("y = GatherElements <axis = 1> (m, k)", r"indices of the shape \[3, 3\]"),
    "scatter_elements": ("y = ScatterElements (m, j, m)", r"input 2 has the shape \[2, 3\], not \[1, 3\]"),
    "scatter_nd": ("y = ScatterND (m, k, m)", r"indices of the shape \[3, 3\]"),
    "cache": ("y = TensorScatter (t, m56)", r"\[5, 6\] does not fit axis -2 of a cache of the shape \[4, 5, 6\]"),
    "cache_steps": ("y = TensorScatter <axis = -1> (m32, m)", r"\[2, 3\] does not fit axis -1"),
    "cache_axis": ("y = TensorScatter <axis = 0> (t, t)", "none of them behind the batch is axis 0"),
    "cache_indices": ("n = Constant <value_ints = [1]> () y = TensorScatter (t, t, n)", r"\[1\], not \[4\]"),
    "gated": ("y = SwiGLU (m, m32)", "SwiGLU"),
    "bits": ("y = BitCast <to = 7> (m)", "same bit-width"),
    "bits_of_a_byte": ("n = Cast <to = 22> (m) y = BitCast <to = 3> (n)", "same bit-width"),
    "unpool": ("y = MaxUnpool <kernel_shape = [2, 2]> (i, k)", "input 1"),
    "one_hot": ("n = Constant <value_int = 3> () y = OneHot (k, n, v3)", r"input 2 has the shape \[3\], not \[2\]"),
    "depth": ("y = DepthToSpace <blocksize = 2> (i)", "no blocks of 2"),
    "space": ("y = SpaceToDepth <blocksize = 2> (i)", "no blocks of 2"),
    "pad": ("p = Constant <value_ints = [-2, 0, -1, 0]> () y = Pad (m, p)", r"would have the shape \[-1, 3\]"),
    "axis_of_a_scalar": ("y = ArgMax <axis = 0> (a)", "has 0 axes"),
    "trilu": ("y = Trilu (v3)", "not 2 or more"),
    "matmul": ("y = MatMul (m, m)", r"shapes \[2, 3\], \[2, 3\]: .*Incompatible dimensions"),
    "gemm_inner": ("y = Gemm (m, m)", "Dimension mismatch"),
    "broadcasting": ("y = Add (m, m56)", "Incompatible dimensions"),
    "inside": ("t1 = MatMul (m, m) y = Relu (t1)", "MatMul.*Incompatible dimensions"),
    "concat": ("y = Concat <axis = 0> (m, v4)", r"shapes \[2, 3\], \[4\]"),
    "reshape": ("n = Constant <value_ints = [3, 3]> () y = Reshape (m, n)", r"not as many elements as \[3, 3\]"),
}
INPUTS = """float[1,3,5,5] i, float[1,2,5,5] c, float[1,2,1,1] s, float[4,2,3,3] f, uint8[1,3,5,5] u, uint8[4,2,3,3] q,
    float a, float[3] v3, float[4] v4, float[2,3] m, float[4,5,6] t, int64[3,3] k, int64[1,3] j,
    float[1,8,6] w, float[1,8,3] r, float[5,6] m56, float[3,2] m32, float[1,3] j2"""


def specialised(body: str, opset: int = 28) -> None:
    model = load(parse(f"g ({INPUTS}) => (y) {{ {body} }}", opset))
    passes.prepare(model)
    passes.specialise(model, {value.name or "": tuple(value.shape or ()) for value in model.graph.inputs})


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(name: str) -> None:
    body, words = WRONG[name]
    with pytest.raises(errors.InvalidGraph, match=words):
        specialised(body)


@pytest.mark.parametrize(("body", "opset"), [
    ("y = BatchNormalization <spatial = 0> (t, m56, m56, m56, m56)", 7),
    ("y = GroupNormalization <num_groups = 3> (i, v3, v3)", 18),
    ("y = PRelu (i, a)", 16),
    ("y = LayerNormalization <axis = 1> (t, m56)", 17),
    ("y = Gemm (m, m32, a)", 13),
    ("y = ScatterElements <axis = -2> (m, j, j2)", 18),
    ("y = Concat <axis = -1> (m, m)", 13),
])  # fmt: skip
def test_what_is_right_passes(body: str, opset: int) -> None:
    specialised(body, opset)


CLAIMING = "g (float[2,5] x, float[4,4] w) => (float[2,4] y) { y = OP (x, w) }"


def test_what_the_file_claims_of_outputs_does_not_hide_it() -> None:
    model = load(parse(CLAIMING.replace("OP", "MatMul")))
    passes.prepare(model)
    with pytest.raises(errors.InvalidGraph, match="Incompatible dimensions"):
        passes.specialise(model, {"x": (2, 5), "w": (4, 4)})


def test_claims_about_onnxruntimes_operators_do_not_count_either() -> None:
    """Nothing is known of the output then, and no kernel is built for it."""
    model = load(parse(CLAIMING.replace("OP", "com.microsoft.FusedMatMul")))
    passes.prepare(model)
    (y,) = passes.specialise(model, {"x": (2, 5), "w": (4, 4)}).graph.outputs
    assert y.shape is None
