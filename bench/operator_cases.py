"""The cases of the operators' benchmark: sizes of ResNet, BERT, Llama and their like, and large ones.

Each family is a function of `n`, which picks the first size to measure, or the second, tiny one to try the benchmark.
`movement_cases` has those that only move or map elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from movement_cases import MOVEMENTS
from operator_case import ALL_FLOATS, BOTH, FIRST, Case, Given, Pick, fixed, rand, scalar, weight, whole
from operator_references import (
    REDUCTIONS,
    attention,
    bias_softmax,
    cached_attention,
    group_norm,
    product,
    rms_norm,
    rotary,
    skip_rms_norm,
    unpooled,
)


def ceiling_cases(*, tiny: bool) -> Iterator[Case]:
    """What the ceilings are measured with, and the time of the smallest launch."""
    n = _pick(tiny)
    size, square = n(1 << 27, 100), n(8192, 32)
    yield Case("ceiling/negate", "y = Neg(x)", {"x": rand(size)}, part=FIRST, dtypes=("float32",))
    yield Case("ceiling/launch", "y = Neg(x)", {"x": rand(256)}, dtypes=("float32",))
    yield Case(
        "ceiling/product", "y = MatMul(x, w)", {"x": rand(square, square), "w": weight(square, square)}, part=FIRST,
        dtypes=("float16", "bfloat16", "float32"), flops=2 * square**3, reference=product,
    )  # fmt: skip
    yield Case(
        "ceiling/product_int8", "y = MatMulInteger(x, w)",
        {"x": whole(square, square, dtype="int8"), "w": whole(square, square, dtype="int8", constant=True)},
        part=FIRST, dtypes=("int8",), flops=2 * square**3,
    )  # fmt: skip


def all_cases(*, tiny: bool) -> Iterator[Case]:
    for family in FAMILIES:
        yield from family(_pick(tiny))


def _pick(tiny: bool) -> Pick:
    return lambda full, small: small if tiny else full


def convolutions(n: Pick) -> Iterator[Case]:
    """A few: bench/convolution.py has all of two networks'."""
    b = n(32, 1)
    rows = (
        ("conv/1x1_256", b, n(56, 6), n(64, 8), n(256, 16), 1, 1, 1),
        ("conv/1x1_2048_7x7", b, n(7, 3), n(2048, 16), n(512, 16), 1, 1, 1),
        ("conv/3x3_128_28x28", b, n(28, 6), n(128, 16), n(128, 16), 3, 1, 1),
        ("conv/3x3_512_batch1", 1, n(7, 4), n(512, 16), n(512, 16), 3, 1, 1),
        ("conv/7x7_stem", b, n(224, 14), 3, n(64, 16), 7, 2, 1),
        ("conv/depthwise_144_56x56", b, n(56, 6), n(144, 16), n(144, 16), 3, 1, n(144, 16)),
    )
    for name, batch, size, channels, outputs, k, stride, groups in rows:
        out = (size + 2 * (k // 2) - k) // stride + 1
        pads = [k // 2] * 4
        settings = f"<kernel_shape={[k, k]}, pads={pads}, strides={[stride, stride]}, group={groups}"
        fan_in = channels // groups * k * k
        yield Case(
            name, f'y = com.microsoft.NhwcFusedConv {settings}, activation="Relu"> (x, w, b)',
            {"x": rand(batch, size, size, channels), "w": weight(outputs, channels // groups, k, k, fan_in=fan_in),
             "b": weight(outputs, fan_in=4)},
            part=FIRST, dtypes=BOTH if k == 3 else ("float16",), flops=2 * batch * out * out * outputs * fan_in,
            reference=f"t = Transpose <perm=[0,3,1,2]> (x) c = Conv {settings}> (t, w, b) r = Relu(c) "
            "y = Transpose <perm=[0,2,3,1]> (r)",
        )  # fmt: skip
    b, size, channels, outputs = n(8, 1), n(32, 4), n(256, 8), n(128, 8)
    yield Case(
        "conv/transposed_4x4", "y = ConvTranspose <kernel_shape=[4,4], pads=[1,1,1,1], strides=[2,2]> (x, w)",
        {"x": rand(b, channels, size, size), "w": weight(channels, outputs, 4, 4, fan_in=4 * channels)},
        part=FIRST, flops=2 * b * channels * size * size * outputs * 16,
    )  # fmt: skip
    size, channels, outputs = n(3000, 20), n(80, 4), n(512, 8)
    yield Case(
        "conv/1d_whisper", "y = Conv <kernel_shape=[3], pads=[1,1]> (x, w, b)",
        {"x": rand(8, channels, size), "w": weight(outputs, channels, 3, fan_in=3 * channels), "b": rand(outputs)},
        part=FIRST, flops=2 * 8 * size * channels * outputs * 3,
    )  # fmt: skip
    depth, size, channels = n(16, 3), n(56, 5), n(64, 4)
    yield Case(
        "conv/3d_3x3x3", "y = Conv <kernel_shape=[3,3,3], pads=[1,1,1,1,1,1]> (x, w)",
        {"x": rand(1, channels, depth, size, size), "w": weight(channels, channels, 3, 3, 3, fan_in=27 * channels)},
        flops=2 * depth * size * size * channels * channels * 27,
    )  # fmt: skip


def pools(n: Pick) -> Iterator[Case]:
    b, c, size = n(32, 2), n(64, 4), n(112, 8)
    x = rand(b, c, size, size)
    three = "<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>"
    yield Case("pool/max_3x3", f"y = MaxPool {three} (x)", {"x": x}, part=FIRST, dtypes=BOTH)
    yield Case(
        "pool/max_3x3_channels_last", f"y = gossamer.nhwc.MaxPool {three} (x)", {"x": rand(b, size, size, c)},
        {"y": (b, size // 2, size // 2, c)}, FIRST, reference=f"t = Transpose <perm=[0,3,1,2]> (x) "
        f"p = MaxPool {three} (t) y = Transpose <perm=[0,2,3,1]> (p)",
    )  # fmt: skip
    body = "y, i = MaxPool <kernel_shape=[2,2], strides=[2,2]> (x)"
    yield Case("pool/max_2x2_indices", body, {"x": rand(b, c, size, size)}, {"y": None, "i": None})
    body = "y = AveragePool <kernel_shape=[2,2], strides=[2,2]> (x)"
    yield Case("pool/average_2x2_large", body, {"x": rand(n(16, 2), c, n(224, 8), n(224, 8))}, part=FIRST)
    body = "y = AveragePool <kernel_shape=[3,3], pads=[1,1,1,1]> (x)"
    yield Case("pool/average_3x3_inception", body, {"x": rand(b, n(192, 3), n(35, 5), n(35, 5))}, part=FIRST)
    body = "y = LpPool <kernel_shape=[2,2], strides=[2,2], p=2> (x)"
    yield Case("pool/lp_2x2", body, {"x": x}, part=FIRST)
    last = rand(b, n(2048, 8), n(7, 3), n(7, 3))
    for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
        yield Case(
            f"pool/{op}_resnet", f"y = {op}(x)", {"x": last}, part=FIRST, dtypes=BOTH if "Av" in op else ("float16",)
        )
    yield Case("pool/GlobalAveragePool_large", "y = GlobalAveragePool(x)", {"x": x}, part=FIRST)
    half = size // 2
    corners = np.arange(b * c * size * size).reshape(b, c, size, size)[:, :, ::2, ::2]
    at = Given((b, c, half, half), "int64", kind="values", values=corners)
    body = "y = MaxUnpool <kernel_shape=[2,2], strides=[2,2]> (x, i)"
    inputs = {"x": rand(b, c, half, half), "i": at}
    yield Case("pool/max_unpool_2x2", body, inputs, reference=lambda a: unpooled(a, (b, c, size, size)))


def norms(n: Pick) -> Iterator[Case]:
    tokens, wide, model, large = n(128, 3), n(768, 32), n(4096, 64), n(16384, 4)
    layer = "y = LayerNormalization <epsilon=1.0e-5> (x, g, b)"
    for name, shape, dtypes in (
        ("bert_batch1", (1, tokens, wide), ("float16",)),
        ("bert_batch32", (n(32, 2), tokens, wide), ALL_FLOATS),
        ("large", (large, model), BOTH),
    ):
        given = {"x": rand(*shape), "g": rand(shape[-1], constant=True), "b": rand(shape[-1], constant=True)}
        axis = len(shape) - 2
        yield Case(f"norm/layer_{name}", layer, given, part={"x": axis, "y": axis}, dtypes=dtypes)
    given = {"x": rand(n(2048, 4), model), "g": rand(model, constant=True)}
    body = "y = RMSNormalization <epsilon=1.0e-5> (x, g)"
    yield Case("norm/rms_llama", body, given, part=FIRST, dtypes=("float16", "bfloat16"), opset=23, reference=rms_norm)
    given["s"] = rand(n(2048, 4), model)
    yield Case(
        "norm/skip_rms_llama", "y, , , z = com.microsoft.SkipSimplifiedLayerNormalization <epsilon=1.0e-5> (x, s, g)",
        given, {"y": None, "z": None}, {"x": 0, "s": 0, "y": 0, "z": 0}, reference=skip_rms_norm,
    )  # fmt: skip
    given = {name: rand(n(32, 2), tokens, wide) for name in "xs"} | {k: rand(wide, constant=True) for k in "gb"}
    body = "y = com.microsoft.SkipLayerNormalization <epsilon=1.0e-5> (x, s, g, b)"
    yield Case("norm/skip_layer_bert", body, given, part={"x": 0, "s": 0, "y": 0})
    c, size = n(256, 4), n(56, 5)
    given = {"x": rand(n(32, 2), c, size, size)} | {name: rand(c, constant=True) for name in "gbm"}
    given["v"] = rand(c, constant=True, kind="positive")
    yield Case("norm/batch_resnet", "y = BatchNormalization(x, g, b, m, v)", given, part=FIRST, dtypes=BOTH)
    c, size = n(64, 4), n(256, 8)
    given = {"x": rand(n(8, 2), c, size, size), "g": rand(c, constant=True), "b": rand(c, constant=True)}
    yield Case("norm/instance_large", "y = InstanceNormalization(x, g, b)", given, part=FIRST)
    c, size = n(320, 8), n(64, 4)
    groups = n(32, 4)
    given = {"x": rand(2, c, size, size), "g": rand(c, constant=True), "b": rand(c, constant=True)}
    body = f"y = GroupNormalization <num_groups={groups}> (x, g, b)"
    yield Case("norm/group_diffusion", body, given, part=FIRST)
    given = {"x": rand(2, size, size, c)} | {k: rand(c, constant=True, dtype="float32") for k in "gb"}
    body = f"y = com.microsoft.GroupNorm <groups={groups}, activation=1, channels_last=1, epsilon=1.0e-5> (x, g, b)"
    yield Case("norm/group_silu_channels_last", body, given, part=FIRST, reference=lambda a: group_norm(a, groups))
    yield Case("norm/lp", "y = LpNormalization <p=2> (x)", {"x": rand(n(8192, 4), n(1024, 20))}, part=FIRST)
    body = "y = MeanVarianceNormalization(x)"
    yield Case("norm/mean_variance", body, {"x": rand(n(8, 2), n(64, 3), n(128, 5), n(128, 5))}, part={"x": 1, "y": 1})
    body = "y = LRN <size=5> (x)"
    yield Case("norm/lrn_alexnet", body, {"x": rand(n(64, 2), n(96, 6), n(55, 4), n(55, 4))}, part=FIRST)


def reductions(n: Pick) -> Iterator[Case]:
    rows, columns = n(8192, 12), n(4096, 20)
    for op, reduce in REDUCTIONS.items():
        kind = "sign" if op == "ReduceProd" else "positive"
        for where, axes, part in (("inner", (1,), 0), ("outer", (0,), 1), ("all", (0, 1), None)):
            dtype = "float32" if where == "all" else "float16"  # some sums of all are too large for halves
            yield Case(
                f"reduce/{op}_{where}", f"y = {op}(x, a)", {"x": rand(rows, columns, kind=kind), "a": fixed(*axes)},
                part={} if part is None else {"x": part, "y": part}, parts=16, dtypes=(dtype,),
                reference=lambda a, reduce=reduce, axes=axes: reduce(a["x"].astype(np.float64), axes),
            )  # fmt: skip
    for name, shape, axes in (
        ("ReduceMean_bert", (1, n(128, 4), n(768, 20)), (2,)),
        ("ReduceMean_spatial", (n(32, 2), n(256, 5), n(56, 5), n(56, 5)), (2, 3)),
        ("ReduceMean_channels", (n(32, 2), n(256, 5), n(56, 5), n(56, 5)), (1,)),
        ("ReduceMax_tokens", (n(32, 2), n(128, 5), n(768, 20)), (1,)),
    ):
        op = name.partition("_")[0]
        yield Case(
            f"reduce/{name}", f"y = {op}(x, a)", {"x": rand(*shape, kind="positive"), "a": fixed(*axes)}, part=FIRST,
            reference=lambda a, op=op, axes=axes: REDUCTIONS[op](a["x"].astype(np.float64), axes),
        )  # fmt: skip


def probabilities(n: Pick) -> Iterator[Case]:
    heads, tokens = 12, n(128, 8)
    segments = rand(n(8, 2), 21, n(512, 6), n(512, 6))
    for name, op, given, axis, dtypes in (
        ("softmax_bert", "Softmax", rand(n(32, 2), heads, tokens, tokens), -1, ALL_FLOATS),
        ("softmax_prefill", "Softmax", rand(1, n(32, 2), n(2048, 20), n(2048, 20)), -1, ("float16",)),
        ("softmax_decode", "Softmax", rand(1, 32, 1, n(2048, 20)), -1, ("float16",)),
        ("softmax_vocabulary", "Softmax", rand(n(512, 2), n(50257, 77)), -1, BOTH),
        # Few numbers are large: a million equal probabilities would all be subnormal halves.
        ("softmax_one_row", "Softmax", rand(1, n(1 << 20, 100), scale=4.0), -1, ("float16",)),
        ("softmax_segments", "Softmax", segments, 1, ("float16",)),
        ("log_softmax_vocabulary", "LogSoftmax", rand(n(1024, 2), n(32000, 64)), -1, ("float16",)),
        ("hardmax", "Hardmax", rand(n(8192, 3), n(4096, 20)), -1, ("float16",)),
    ):
        axes = 2 if (given.shape[0] == 1 and len(given.shape) == 4) or axis == 1 else 0
        part = {"x": axes, "y": axes}
        yield Case(f"softmax/{name}", f"y = {op} <axis={axis}> (x)", {"x": given}, part=part, dtypes=dtypes)
    yield Case(
        "softmax/bias_softmax", "y = com.microsoft.BiasSoftmax <axis=3, is_inner_broadcast=1> (x, b)",
        {"x": rand(n(32, 2), heads, tokens, tokens), "b": rand(n(32, 2), 1, 1, tokens)},
        part={"x": 0, "b": 0, "y": 0}, reference=bias_softmax,
    )  # fmt: skip
    matrix = rand(n(8192, 9), n(8192, 20))
    for name, op, given, axis, part in (
        ("vocabulary", "ArgMax", rand(n(512, 2), n(50257, 77)), 1, 0),
        ("segments", "ArgMax", segments, 1, 0),
        ("outer", "ArgMin", matrix, 0, 1),
        ("inner", "ArgMin", matrix, 1, 0),
    ):
        yield Case(f"arg/{op}_{name}", f"y = {op} <axis={axis}> (x)", {"x": given}, part={"x": part, "y": part})
    for name, given, axis, part, dtype in (
        ("inner", rand(n(8192, 5), n(4096, 20)), 1, 0, "float16"),
        ("outer", rand(n(8192, 20), n(4096, 5)), 0, 1, "float16"),
        ("one_row", rand(1, n(1 << 24, 100)), 1, 0, "float32"),
    ):
        yield Case(
            f"cumulative/CumSum_{name}", "y = CumSum(x, a)", {"x": given, "a": scalar(axis, "int64")},
            part={"x": part, "y": part}, dtypes=(dtype,),
            reference=lambda a, axis=axis: np.cumsum(a["x"].astype(np.float64), axis),
        )  # fmt: skip


def products(n: Pick) -> Iterator[Case]:
    for name, m, k, columns, dtypes in (
        ("bert_up_batch1", n(128, 5), n(768, 32), n(3072, 48), ("float16",)),
        ("bert_up_batch32", n(4096, 5), n(768, 32), n(3072, 48), ALL_FLOATS),
        ("bert_down_batch8", n(1024, 5), n(3072, 48), n(768, 32), ("float16",)),
        ("llama_prefill", n(2048, 5), n(4096, 32), n(11008, 48), ("float16",)),
        ("llama_decode", 1, n(4096, 32), n(11008, 48), ("float16", "bfloat16")),
        ("llama_decode_batch8", 8, n(4096, 32), n(11008, 48), ("float16",)),
        ("tall_reduction", n(64, 5), n(65536, 200), n(64, 16), ("float16",)),
    ):
        given = {"x": rand(m, k), "w": weight(k, columns, fan_in=k)}
        yield Case(
            f"matmul/{name}", "y = MatMul(x, w)", given, part=FIRST, dtypes=dtypes, flops=2 * m * k * columns,
            reference=product,
        )  # fmt: skip
    heads, s, d = n(384, 3), n(128, 8), 64
    given = {"x": rand(heads, s, d), "w": rand(heads, d, s, scale=d**-0.5)}
    part = {"x": 0, "w": 0, "y": 0}
    yield Case("matmul/bert_scores", "y = MatMul(x, w)", given, part=part, flops=2 * heads * s * s * d)
    given = {"x": rand(heads, s, s, scale=s**-0.5), "w": rand(heads, s, d)}
    yield Case("matmul/bert_values", "y = MatMul(x, w)", given, part=part, flops=2 * heads * s * s * d)
    k, columns = n(2048, 32), n(1000, 10)
    given = {"x": rand(32, k), "w": weight(columns, k), "b": rand(columns, constant=True)}
    yield Case("matmul/gemm_resnet", "y = Gemm <transB=1> (x, w, b)", given, part=FIRST, flops=64 * k * columns)
    m, k, columns = n(4096, 5), n(768, 32), n(3072, 48)
    given = {"x": rand(m, k), "w": weight(k, columns, fan_in=k), "b": rand(columns, constant=True)}
    body = "m = MatMul(x, w) a = Add(m, b) y = Gelu(a)"
    yield Case("matmul/bias_gelu", body, given, part=FIRST, flops=2 * m * k * columns)
    b, s = n(32, 2), n(128, 8)
    given = {name: rand(b, 12, s, d, scale=d**-0.25) for name in "xw"}
    body = 'y = Einsum <equation="bhqd,bhkd->bhqk"> (x, w)'
    yield Case("matmul/einsum_scores", body, given, part=part, flops=2 * b * 12 * s * s * d)


def attentions(n: Pick) -> Iterator[Case]:
    every = {"q": 0, "k": 0, "v": 0, "y": 0}
    for name, b, s, heads, d in (
        ("bert_batch32", n(32, 2), n(128, 6), 12, n(64, 16)),
        ("vit_batch8", n(8, 2), n(197, 7), 12, n(64, 16)),
    ):
        yield Case(
            f"attention/{name}", f"y = com.microsoft.MultiHeadAttention <num_heads={heads}> (q, k, v)",
            {name: rand(b, s, heads * d) for name in "qkv"}, part=every, flops=4 * b * heads * s * s * d,
            reference=lambda a, heads=heads: attention(a, heads=heads),
        )  # fmt: skip
    s, d = n(2048, 9), n(128, 16)
    by_head = dict.fromkeys("qkvy", 1)  # eight of 32 are one for each of eight heads of keys
    for name, heads, groups, causal in (
        ("prefill", 32, 32, 1), ("prefill_grouped", 32, 8, 1), ("full", 16, 16, 0),
    ):  # fmt: skip
        given = {"q": rand(1, heads, s, d)} | {name: rand(1, groups, s, d) for name in "kv"}
        yield Case(
            f"attention/{name}", f"y = Attention <is_causal={causal}> (q, k, v)", given,
            dtypes=("float16", "bfloat16") if groups == 8 else ("float16",),
            flops=4 * heads * s * s * d // (1 + causal),
            opset=23, reference=lambda a, causal=causal: attention(a, causal=bool(causal)), part=by_head, parts=8,
        )  # fmt: skip
    for name, b, past in (
        ("decode", 1, n(4096, 30)),
        ("decode_batch8", 8, n(4096, 30)),
        ("decode_long", 1, n(32768, 40)),
    ):
        given = {"q": rand(b, 32, 1, d)} | {name: rand(b, 8, past, d) for name in "kv"}
        yield Case(
            f"attention/{name}", "y = Attention(q, k, v)", given, part=by_head, parts=8, opset=23,
            flops=4 * b * 32 * past * d, reference=attention,
        )  # fmt: skip
    b, past = n(8, 2), n(4096, 30)
    given = {"q": rand(b, 1, 32 * d)} | {name: rand(b, 1, 8 * d) for name in "kv"}
    given |= {name: rand(b, 8, past, d) for name in ("pk", "pv")}
    given["l"] = Given((b,), "int32", kind="values", values=[past] * b)
    given["t"] = scalar(past + 1, "int32")
    yield Case(
        "attention/decode_appending", "y, k2, v2 = com.microsoft.GroupQueryAttention <num_heads=32, kv_num_heads=8> "
        "(q, k, v, pk, pv, l, t)", given, {"y": None, "k2": None, "v2": None},
        dict.fromkeys(("q", "k", "v", "pk", "pv", "l", "y", "k2", "v2"), 0), reference=cached_attention,
    )  # fmt: skip
    s, d = n(2048, 6), n(128, 16)
    given = {"x": rand(1, 32, s, d), "p": scalar(0, "int64")} | {k: rand(s, d // 2, constant=True) for k in "cs"}
    given["p"] = fixed(0)
    body = "y = com.microsoft.RotaryEmbedding(x, p, c, s)"
    yield Case("attention/rotary_llama", body, given, part={"x": 1, "y": 1}, reference=rotary)


def recurrents(n: Pick) -> Iterator[Case]:
    for op, name, steps, b, inputs, hidden, direction, dtypes in (
        ("LSTM", "batch1", n(100, 3), 1, n(512, 8), n(512, 16), "forward", BOTH),
        ("LSTM", "batch32", n(128, 3), n(32, 2), n(1024, 8), n(1024, 16), "forward", ("float16",)),
        ("LSTM", "ocr_both_ways", n(40, 3), n(6, 2), n(96, 8), n(48, 16), "bidirectional", BOTH),
        ("GRU", "batch1", n(100, 3), 1, n(512, 8), n(512, 16), "forward", ("float16",)),
        ("GRU", "batch32", n(128, 3), n(32, 2), n(512, 8), n(512, 16), "bidirectional", ("float16",)),
        ("RNN", "batch32", n(128, 3), n(32, 2), n(512, 8), n(512, 16), "forward", ("float16",)),
    ):
        gates, ways = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], 2 if direction == "bidirectional" else 1
        given = {
            "x": rand(steps, b, inputs),
            "w": weight(ways, gates * hidden, inputs),
            "r": weight(ways, gates * hidden, hidden),
            "b": weight(ways, 2 * gates * hidden, fan_in=16),
        }
        yield Case(
            f"recurrent/{op}_{name}", f'y = {op} <hidden_size={hidden}, direction="{direction}"> (x, w, r, b)', given,
            dtypes=dtypes, flops=2 * ways * steps * b * (inputs + hidden) * gates * hidden, limit=5e-3,
            part={"x": 1, "y": 2},
        )  # fmt: skip


def quantised(n: Pick) -> Iterator[Case]:
    m, k, c = n(4096, 5), n(768, 16), n(3072, 24)
    given = {"x": whole(m, k, dtype="uint8"), "w": whole(k, c, dtype="int8", constant=True)}
    work: dict[str, Any] = {"flops": 2 * m * k * c, "products": "int8"}
    yield Case("quantised/MatMulInteger_bert", "y = MatMulInteger(x, w)", given, part=FIRST, dtypes=("int8",), **work)
    scales = {k: scalar(v, "float32") for k, v in (("xs", 0.02), ("ws", 0.01), ("ys", 0.05))}
    zeros = {"xz": scalar(50, "uint8"), "wz": scalar(0, "int8"), "yz": scalar(100, "uint8")}
    body = "y = QLinearMatMul(x, xs, xz, w, ws, wz, ys, yz)"
    yield Case(
        "quantised/QLinearMatMul_bert", body, given | scales | zeros, part=FIRST, dtypes=("int8",), limit=5e-3, **work
    )
    floats = {"x": rand(m, k, dtype="float32"), "w": given["w"], "ws": scales["ws"]}
    body = "y = com.microsoft.DynamicQuantizeMatMul(x, w, ws)"
    yield Case("quantised/DynamicQuantizeMatMul_bert", body, floats, dtypes=("int8",), limit=5e-3, **work)
    large = (n(8192, 5), n(8192, 16))
    given = {"x": rand(*large), "s": scalar(0.03, "T"), "z": scalar(3, "int8")}
    yield Case("quantised/QuantizeLinear", "y = QuantizeLinear(x, s, z)", given, part=FIRST, dtypes=BOTH, limit=5e-3)
    given = {"x": whole(*large, dtype="int8"), "s": scalar(0.03, "T"), "z": scalar(3, "int8")}
    yield Case("quantised/DequantizeLinear", "y = DequantizeLinear(x, s, z)", given, part=FIRST, dtypes=BOTH)
    given = {"x": whole(large[0], large[1] // 2, dtype="int8"), "s": rand(large[0], constant=True, kind="positive")}
    body = "y = DequantizeLinear <axis=0> (x, s)"
    yield Case("quantised/DequantizeLinear_rows", body, given, part={"x": 0, "s": 0, "y": 0})
    given = {"x": rand(m, k, dtype="float32")}
    outputs = {"y": None, "s": None, "z": None}
    body = "y, s, z = DynamicQuantizeLinear(x)"
    yield Case("quantised/DynamicQuantizeLinear_bert", body, given, outputs, dtypes=("float32",), limit=5e-3)
    b, size, ch = n(32, 2), n(56, 5), n(64, 8)
    given = {"x": whole(b, ch, size, size, dtype="uint8"), "w": whole(ch, ch, 3, 3, dtype="int8", constant=True)}
    work = {"flops": 2 * b * size * size * ch * ch * 9, "products": "int8"}
    settings = "<kernel_shape=[3,3], pads=[1,1,1,1]>"
    yield Case(
        "quantised/ConvInteger_3x3", f"y = ConvInteger {settings} (x, w)", given, part=FIRST, dtypes=("int8",), **work
    )
    body = f"y = QLinearConv {settings} (x, xs, xz, w, ws, wz, ys, yz)"
    yield Case(
        "quantised/QLinearConv_3x3", body, given | scales | zeros, part=FIRST, dtypes=("int8",), limit=5e-3, **work
    )


FAMILIES = (
    convolutions,
    pools,
    norms,
    reductions,
    probabilities,
    products,
    attentions,
    recurrents,
    quantised,
    *MOVEMENTS,
)
