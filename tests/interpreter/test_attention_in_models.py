"""Attention in whole models: shapes that the model computes, patterns found, nothing left to the CPU, right answers."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from gossamer.engines import DeviceEngine
from gossamer.options import CompileOptions, CudaOptions
from harness import ort

WIDTH, HEADS = 32, 4

BERT_LAYER = """
    s{i} = Shape (x{i})  b{i} = Gather (s{i}, zero)  bu{i} = Unsqueeze (b{i}, axis0)
    n{i} = Gather (s{i}, one)  nu{i} = Unsqueeze (n{i}, axis0)
    split{i} = Concat <axis = 0> (bu{i}, nu{i}, heads, size)  merge{i} = Concat <axis = 0> (bu{i}, nu{i}, width)
    qm{i} = MatMul (x{i}, wq)  qr{i} = Reshape (qm{i}, split{i})  q{i} = Transpose <perm = [0,2,1,3]> (qr{i})
    km{i} = MatMul (x{i}, wk)  kr{i} = Reshape (km{i}, split{i})  k{i} = Transpose <perm = [0,2,3,1]> (kr{i})
    vm{i} = MatMul (x{i}, wv)  vr{i} = Reshape (vm{i}, split{i})  v{i} = Transpose <perm = [0,2,1,3]> (vr{i})
    qk{i} = MatMul (q{i}, k{i})  qs{i} = Div (qk{i}, root)  qb{i} = Add (qs{i}, bias)
    p{i} = Softmax <axis = -1> (qb{i})  o{i} = MatMul (p{i}, v{i})  t{i} = Transpose <perm = [0,2,1,3]> (o{i})
    r{i} = Reshape (t{i}, merge{i})  m{i} = MatMul (r{i}, wo)  x{j} = Add (m{i}, x{i})
"""
BERT = """
    mu = Unsqueeze (mask, axes12)  mf = Cast <to = 1> (mu)  mi = Sub (unit, mf)  bias = Mul (mi, lowest)
"""
GPT2 = """
    s = Shape (x)  b = Gather (s, zero)  bu = Unsqueeze (b, axis0)  n = Gather (s, one)  nu = Unsqueeze (n, axis0)
    split = Concat <axis = 0> (bu, nu, heads, size)  merge = Concat <axis = 0> (bu, nu, width)
    a = MatMul (x, wa)  qf, kf, vf = Split <axis = 2> (a, thirds)
    qr = Reshape (qf, split)  q = Transpose <perm = [0,2,1,3]> (qr)
    kr = Reshape (kf, split)  kn = Transpose <perm = [0,2,1,3]> (kr)  key = Concat <axis = 2> (past_key, kn)
    vr = Reshape (vf, split)  vn = Transpose <perm = [0,2,1,3]> (vr)  value = Concat <axis = 2> (past_value, vn)
    kt = Transpose <perm = [0,1,3,2]> (key)  qk = MatMul (q, kt)  d = Div (qk, root)
    ks = Shape (key)  total = Gather (ks, two)  tu = Unsqueeze (total, axis0)  before = Sub (tu, nu)
    rows = Slice (tril, before, tu, axis2)  seen = Slice (rows, axis0, tu, axis3)
    w = Where (seen, d, hidden)  p = Softmax <axis = 3> (w)  o = MatMul (p, value)
    t = Transpose <perm = [0,2,1,3]> (o)  y = Reshape (t, merge)
"""
INTS = {
    "zero": 0, "one": 1, "two": 2, "axis0": [0], "axis2": [2], "axis3": [3], "axes12": [1, 2], "heads": [HEADS],
    "size": [WIDTH // HEADS], "width": [WIDTH], "thirds": [WIDTH] * 3,
}  # fmt: skip
FLOATS = {"root": (WIDTH / HEADS) ** 0.5, "unit": 1.0, "lowest": float(np.finfo(np.float32).min), "hidden": -10000.0}


def model_of(signature: str, body: str) -> onnx.ModelProto:
    """A model in ONNX's text syntax with the constants above, as far as it reads them, and random weights."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\ng {signature} {{ {body} }}')
    random = np.random.default_rng(1)
    arrays = {name: np.array(value, np.int64) for name, value in INTS.items()}
    arrays |= {name: np.array(value, np.float32) for name, value in FLOATS.items()}
    arrays |= {f"w{name}": random.normal(0, 0.2, (WIDTH, WIDTH)).astype(np.float32) for name in "qkvo"}
    arrays["wa"] = random.normal(0, 0.2, (WIDTH, 3 * WIDTH)).astype(np.float32)
    arrays["tril"] = np.tri(64, dtype=bool).reshape(1, 1, 64, 64)
    read = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in arrays.items() if name in read)
    return model


def bert() -> onnx.ModelProto:
    layers = "".join(BERT_LAYER.format(i=i, j=i + 1) for i in range(2))
    return model_of(f"(float[b,s,{WIDTH}] x0, int64[b,s] mask) => (float[b,s,{WIDTH}] x2)", BERT + layers)


def gpt2() -> onnx.ModelProto:
    past = f"float[b,{HEADS},p,{WIDTH // HEADS}]"
    return model_of(
        f"(float[b,s,{WIDTH}] x, {past} past_key, {past} past_value)"
        f" => (float[b,s,{WIDTH}] y, {past} key, {past} value)",
        GPT2,
    )


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def past_of(batch: int, steps: int) -> dict[str, np.ndarray]:
    return {f"past_{name}": random(batch, HEADS, steps, WIDTH // HEADS) for name in ("key", "value")}


@pytest.mark.parametrize(
    ("model", "feeds", "layers"),
    [
        (bert(), {"x0": random(2, 7, WIDTH), "mask": np.int64([[1] * 7, [1] * 4 + [0] * 3])}, 2),
        (gpt2(), {"x": random(2, 5, WIDTH), **past_of(2, 0)}, 1),
        (gpt2(), {"x": random(2, 1, WIDTH), **past_of(2, 6)}, 1),
        (gpt2(), {"x": random(1, 3, WIDTH), **past_of(1, 6)}, 1),
    ],
    ids=["bert", "gpt2 prompt", "gpt2 step", "gpt2 chunk"],
)
def test_model(model: onnx.ModelProto, feeds: dict[str, np.ndarray], layers: int) -> None:
    engine = DeviceEngine(model, CudaOptions(device="interpreter"), CompileOptions(), cpu_listed=False)
    names = [output.name for output in model.graph.output]
    got = engine.run(feeds, names)
    for name, want in zip(names, ort(model, feeds), strict=True):
        np.testing.assert_allclose(got[name], want, rtol=0, atol=1e-5)
    operators = [node.op_type for node in engine.placement()]
    assert operators.count("FusedAttention") == layers
    assert operators.count("Transpose") == (0 if "mask" in feeds else 2)  # the cache's keys and values
    assert not {"Softmax", "Where"} & set(operators)
    engine.close()


def test_a_causal_mask_of_the_model_is_no_input() -> None:
    engine = DeviceEngine(gpt2(), CudaOptions(device="null"), CompileOptions(), cpu_listed=False)
    feeds = {"x": random(1, 3, WIDTH), **past_of(1, 6)}
    engine.run(feeds, ["y"])
    (node,) = (placed.node for placed in engine.placement() if placed.op_type == "FusedAttention")
    assert len(node.inputs) == 3
    assert node.attributes["causal"].as_int() == 1
    assert node.attributes["first"].as_int() == 6
    engine.close()
