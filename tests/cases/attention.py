"""Cases of the operators that are attention.

Oracles: NumPy in fp64 by the operators' texts, and for com.microsoft's onnxruntime's CPU provider, where it has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from cases.node_case import NodeCase
from cases.references import floats
from harness import node_model, ort, tensor_type, tolerance

MICROSOFT = "com.microsoft"
Array = np.ndarray


def scores_of(q: Array, k: Array, scale: float, softcap: float = 0.0) -> Array:
    """[batch, heads, queries, keys] in fp64; heads of keys serve several of queries in turn."""
    k = np.repeat(k.astype(np.float64), q.shape[1] // k.shape[1], axis=1)
    scores = scale * q.astype(np.float64) @ np.swapaxes(k, 2, 3)
    return softcap * np.tanh(scores / softcap) if softcap else scores


def softmax(scores: Array) -> Array:
    """Zeros for rows of minus infinity alone."""
    most = scores.max(-1, keepdims=True, initial=-np.inf)
    powers = np.exp(scores - np.where(np.isneginf(most), 0, most))
    total = powers.sum(-1, keepdims=True)
    return powers / np.where(total == 0, 1, total)


def weighted(weights: Array, v: Array) -> Array:
    return weights @ np.repeat(v.astype(np.float64), weights.shape[1] // v.shape[1], axis=1)


def split_heads(x: Array, heads: int) -> Array:
    return x if x.ndim == 4 else x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def onnx_attention(inputs: Sequence[Array | None], attributes: dict[str, Any], n_outputs: int) -> list[Array]:
    """ONNX Attention-24 (and -23), step by step as the text has them.

    A float mask is added. What a boolean mask, causality or a length hides "takes no part": it is left out whatever its
    score, where adding minus infinity would make NaN of a hidden NaN.
    """
    q, k, v, mask, past_k, past_v, lengths = (*inputs, *[None] * 7)[:7]
    assert q is not None
    assert k is not None
    assert v is not None
    dtype, flat = q.dtype, q.ndim == 3
    q = split_heads(q, attributes.get("q_num_heads", 0))
    k, v = (split_heads(x, attributes.get("kv_num_heads", 0)) for x in (k, v))
    first = np.zeros(len(q), np.int64)
    if past_k is not None:
        k, v = np.concatenate([past_k, k], 2), np.concatenate([past_v, v], 2)
        first += past_k.shape[2]
    elif lengths is not None:
        first = lengths - q.shape[2]
    scale, softcap = attributes.get("scale", q.shape[3] ** -0.5), attributes.get("softcap", 0.0)
    stages = [scores_of(q, k, scale), scores_of(q, k, scale, softcap)]
    bias, hidden = np.zeros(stages[0].shape), np.zeros(stages[0].shape, bool)
    i, j = np.ogrid[: bias.shape[2], : bias.shape[3]]
    if mask is not None:
        added = np.where(mask, 0.0, -np.inf) if mask.dtype == bool else mask.astype(np.float64)
        missing = bias.shape[3] - added.shape[-1] if added.shape[-1] > 1 else 0
        bias = bias + np.pad(added, [(0, 0)] * (added.ndim - 1) + [(0, missing)], constant_values=-np.inf)
        hidden |= (bias != 0) & (mask.dtype == bool)
    if attributes.get("is_causal"):
        hidden |= j > i + first[:, None, None, None]
    if lengths is not None:
        hidden |= j >= lengths[:, None, None, None]
    biased = np.where(hidden, -np.inf, stages[1] + bias)
    stages += [biased, softmax(biased)]
    y = weighted(stages[3], v)
    y = y.transpose(0, 2, 1, 3).reshape(*y.shape[::2][:2], -1) if flat else y
    results = [y, k, v, stages[attributes.get("qk_matmul_output_mode", 0)]]
    return [result.astype(dtype) for result in results[:n_outputs]]


def attention(detail: str, *inputs: Array | None, opset: int = 23, n_outputs: int = 1, **attributes: Any) -> NodeCase:
    """A case of ONNX's Attention."""

    def want() -> list[Array]:
        return onnx_attention(inputs, attributes, n_outputs)

    case = NodeCase(f"Attention-{detail}", "Attention", inputs, attributes, opset, n_outputs=n_outputs, want=want)
    return within(case)


def within(case: NodeCase) -> NodeCase:
    """Probabilities are rounded to the type before they meet the values: twice the tolerance of one rounding."""
    dtype = "float32" if case.inputs[0] is None or case.inputs[0].dtype == np.uint8 else case.inputs[0].dtype.name
    return replace(case, rtol=2 * tolerance(dtype, 64))


def in_tf32(case: NodeCase) -> NodeCase:
    """As a GPU has it: products of fp32 round their operands to ten bits of mantissa, twice in a row."""
    others = ("float16", "bfloat16", "float64")
    return case if any(x is not None and x.dtype.name in others for x in case.inputs) else replace(case, rtol=4e-3)


def qkv(
    name: str,
    batch: int,
    heads: int,
    kv_heads: int,
    queries: int,
    keys: int,
    size: int,
    v_size: int,
    dtype: str = "float32",
) -> tuple[Array, Array, Array]:
    return (
        floats(f"{name} q", (batch, heads, queries, size), dtype),
        floats(f"{name} k", (batch, kv_heads, keys, size), dtype),
        floats(f"{name} v", (batch, kv_heads, keys, v_size), dtype),
    )


def flags(name: str, shape: Sequence[int]) -> Array:
    return floats(name, shape) > -0.5


def _onnx() -> list[NodeCase]:
    small = qkv("small", 2, 3, 3, 5, 7, 8, 6)
    group = qkv("group", 2, 6, 2, 5, 7, 8, 8)
    past = floats("past k", (2, 3, 4, 8)), floats("past v", (2, 3, 4, 6))
    hidden_row = flags("hidden row", (5, 7))
    hidden_row[2] = False
    infinite = floats("infinite", (2, 1, 5, 7))
    infinite[0, 0, 3] = -np.inf
    infinite[1, 0, :, :5] = np.finfo(np.float32).min
    flat = [x.transpose(0, 2, 1, 3).reshape(2, x.shape[2], -1) for x in group]
    cases = [
        attention("plain", *small),
        attention("causal", *small, is_causal=1),
        attention("scale_and_softcap", *small, scale=0.7, softcap=1.5),
        attention("groups", *group),
        attention("rank_3", *flat, q_num_heads=6, kv_num_heads=2, is_causal=1),
        attention("past", *small, None, *past, is_causal=1, n_outputs=3),
        attention("past-no_present", *small, floats("long", (2, 1, 1, 11)), *past),
        attention("negative_scale", *small, scale=-1.0, is_causal=1),
        attention("rows_that_see_nothing", *small, hidden_row),
        attention("infinite_bias", *small, infinite),
        attention("bool_and_causal", *small, flags("both", (2, 3, 5, 7)), is_causal=1),
        attention("one_query", *qkv("one", 2, 6, 2, 1, 20, 8, 8), is_causal=1, opset=24),
        attention("no_keys", *qkv("none", 2, 2, 2, 3, 0, 8, 8)),
        attention("no_queries", *qkv("none", 2, 2, 2, 0, 3, 8, 8)),
        attention("wide_heads", *qkv("wide", 1, 2, 2, 4, 9, 80, 200), is_causal=1),
        attention("lengths", *small, None, None, None, np.array([3, 7]), opset=24),
        attention("lengths-causal", *small, None, None, None, np.array([3, 7]), opset=24, is_causal=1),
        attention("lengths-none", *small, None, None, None, np.array([0, 2]), opset=24, is_causal=1),
        attention("short_mask", *small, floats("short", (5, 4)), None, None, np.array([3, 4]), opset=24),
    ]
    cases += [
        attention(f"mask_{'x'.join(map(str, shape))}", *small, floats("mask", shape))
        for shape in ((5, 7), (1, 7), (3, 1, 7), (2, 1, 5, 7), (1, 3, 5, 1))
    ]
    cases += [
        attention(
            f"scores_{mode}", *qkv("scores", 2, 6, 3, 5, 7, 8, 6), flags("scores", (5, 11)), *past,
            n_outputs=4, qk_matmul_output_mode=mode, softcap=0.7, is_causal=1,
        )
        for mode in range(4)
    ]  # fmt: skip
    for dtype in ("float16", "bfloat16", "float64"):
        cases.append(attention(dtype, *qkv(dtype, 2, 4, 2, 5, 33, 16, 16, dtype), is_causal=1))
        cases.append(
            attention(f"{dtype}-bias", *qkv(dtype, 2, 4, 2, 5, 33, 16, 16, dtype), floats("bias", (5, 33), dtype))
        )
    return cases


def contrib(
    op_type: str, detail: str, inputs: Sequence[Array | None], n_outputs: int = 1, **attributes: Any
) -> NodeCase:
    """A case of a com.microsoft operator against onnxruntime, which says its results' types and shapes, too."""
    inputs = list(inputs)
    while inputs[-1] is None:
        inputs.pop()
    model = node_model(op_type, inputs, attributes, domain=MICROSOFT, n_outputs=n_outputs)
    results = ort(model, {f"x{i}": array for i, array in enumerate(inputs) if array is not None})
    types = [(tensor_type(result), result.shape) for result in results]
    name = f"{op_type}-{detail}"
    case = NodeCase(name, op_type, inputs, attributes, domain=MICROSOFT, n_outputs=n_outputs, output_types=types)
    return within(replace(case, want=lambda: results))


def in_type(case: NodeCase, dtype: str) -> NodeCase:
    """The same in another type, with results that are rounded once."""
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    inputs = [x.astype(kind) if x is not None and x.dtype == np.float32 else x for x in case.inputs]
    single = [x.astype(np.float32) if x is not None and x.dtype == kind else x for x in inputs]
    exact = contrib(case.op_type, "", single, case.n_outputs, **case.attributes)
    assert exact.want is not None
    results = [y.astype(kind) for y in exact.want()]
    types = [(tensor_type(y), y.shape) for y in results]
    case = replace(case, name=f"{case.name}-{dtype}", inputs=inputs, output_types=types, want=lambda: results)
    return within(case)


def rows(name: str, *shape: int) -> Array:
    return floats(name, shape)


def multi_head(detail: str, inputs: Sequence[Array | None], n_outputs: int = 1, **attributes: Any) -> NodeCase:
    return contrib("MultiHeadAttention", detail, inputs, n_outputs, num_heads=3, **attributes)


def repacked(case: NodeCase, detail: str, *inputs: Array | None) -> NodeCase:
    """The same attention to inputs in a packing that onnxruntime's CPU provider lacks."""
    return replace(case, name=f"{case.op_type}-{detail}", inputs=list(inputs))


def _multi_head() -> list[NodeCase]:
    q, k, v, v_wide = rows("q", 2, 5, 24), rows("k", 2, 7, 24), rows("v", 2, 7, 24), rows("v", 2, 7, 36)
    bias, past = rows("bias", 72), (rows("pk", 2, 3, 4, 8), rows("pv", 2, 3, 4, 8))
    own = [rows(name, 2, 5, 24) for name in ("q", "ko", "vo")]
    heads_k, heads_v = k.reshape(2, 7, 3, 8), v.reshape(2, 7, 3, 8)
    cases = [
        multi_head("plain", [q, k, v]),
        multi_head("wide_values", [q, k, v_wide]),
        multi_head("bias", [q, k, v, bias]),
        multi_head("heads_of_keys", [q, heads_k.transpose(0, 2, 1, 3), heads_v.transpose(0, 2, 1, 3)]),
        multi_head("counts", [q, k, v, bias, np.int32([3, 7])]),
        multi_head("padding", [q, k, v, bias, flags("padding", (2, 7)).astype(np.int32)], mask_filter_value=-5.0),
        multi_head("padding_and_bias", [q, k, v, None, flags("3", (2, 5, 7)).astype(np.int32), rows("ab", 1, 3, 5, 7)]),
        multi_head("past", [*own, bias, None, rows("ab", 2, 1, 5, 9), *past], 3, unidirectional=1),
        multi_head("present", [*own, bias], 3, scale=0.2),
    ]
    plain, self_attention = cases[0], multi_head("self", own)
    packed = np.stack([x.reshape(2, 5, 3, 8) for x in own], axis=3)
    cases.append(repacked(plain, "packed_keys_and_values", q, np.stack([heads_k, heads_v], axis=3)))
    cases.append(repacked(self_attention, "packed", packed))
    return [*cases, in_type(cases[5], "float16"), in_type(cases[7], "bfloat16")]


def grouped(
    detail: str, queries: int, past: int | None, lengths: Sequence[int], *, total: int = 8, packed: bool = False,
    n_outputs: int = 3, more: dict[int, Array] | None = None, **attributes: Any,
) -> NodeCase:  # fmt: skip
    """A case of GroupQueryAttention: six heads over two.

    lengths: keys of each batch entry afterwards; total: the most. more: further inputs by index.
    """
    batch, size = len(lengths), 16
    query, key, value = (rows(name, batch, queries, n * size) for name, n in (("q", 6), ("k", 2), ("v", 2)))
    inputs: list[Array | None] = [query, key, value, None, None, np.int32(lengths) - 1, np.array(total, np.int32)]
    if packed:
        inputs[:3] = np.concatenate([query, key, value], axis=2), None, None
    if past is not None:
        inputs[3:5] = rows("past k", batch, 2, past, size), rows("past v", batch, 2, past, size)
    inputs += [None] * 10
    if attributes.get("do_rotary"):
        angles = rows("angles", 32, size // 2)
        inputs[7:9] = np.cos(angles), np.sin(angles)
    for index, array in (more or {}).items():
        inputs[index] = array
    case = contrib("GroupQueryAttention", detail, inputs, n_outputs, num_heads=6, kv_num_heads=2, **attributes)
    return replace(case, want=lambda: _settled(case, lengths))


def _settled(case: NodeCase, lengths: Sequence[int]) -> list[Array]:
    """Rows of the cache behind an entry's keys are unspecified: here they are the past's, or zero where it has none."""
    assert case.want is not None
    results = [result.copy() for result in case.want()]
    for present, past in zip(results[1:3], case.inputs[3:5], strict=True):
        for entry, length in enumerate(lengths):
            present[entry, :, length:] = 0
            if past is not None:
                present[entry, :, length : past.shape[2]] = past[entry, :, length:]
    return results


def _grouped() -> list[NodeCase]:
    step = {"total": 8, "past": 12, "lengths": [8, 6]}
    return [
        grouped("prompt", 5, None, [5, 5], total=5),
        grouped("padded_prompt", 5, None, [5, 3], total=5, do_rotary=1),
        grouped("packed", 5, None, [5, 5], total=5, do_rotary=1, packed=True, rotary_interleaved=1),
        grouped("past", 1, 7, [8, 8], do_rotary=1),
        grouped("shared", 1, **step, do_rotary=1),  # type: ignore[arg-type]
        grouped("chunk", 3, 12, [8], do_rotary=1, local_window_size=2, softcap=1.5, smooth_softmax=1),
        grouped(
            "bias_and_sinks",
            1,
            **step,
            local_window_size=3,
            scale=0.2,
            more={10: rows("b", 1, 6, 1, 8), 11: rows("s", 6)},
        ),  # type: ignore[arg-type]
        grouped("positions", 2, 12, [8], do_rotary=1, more={9: np.array([[3, 9]])}),
        grouped("scores", 2, 12, [8], n_outputs=4, qk_output=1, local_window_size=4),
        grouped("probabilities", 2, 12, [8], n_outputs=4, qk_output=2),
        grouped("both_ways", 5, None, [5, 5], total=5, causal=0),
    ]


def packed_weights(
    detail: str,
    mask: Array | None = None,
    past: Array | None = None,
    bias: Array | None = None,
    v_size: int = 8,
    **attributes: Any,
) -> NodeCase:
    """A case of com.microsoft::Attention: two heads of eight columns."""
    width = 2 * (8 + 8 + v_size)
    sizes = {"qkv_hidden_sizes": [16, 16, 2 * v_size]} if v_size != 8 else {}
    inputs = [rows("x", 2, 5, 12), rows("w", 12, width) * 0.3, rows("wb", width), mask, past, bias]
    outputs = 1 if past is None else 2
    return contrib("Attention", f"contrib-{detail}", inputs, outputs, num_heads=2, **sizes, **attributes)


def _packed_weights() -> list[NodeCase]:
    past = rows("past", 2, 2, 2, 4, 8)
    padding = flags("padding", (2, 5, 9)).astype(np.int32)
    cases = [
        packed_weights("plain"),
        packed_weights("wide_values", v_size=6, scale=0.3),
        packed_weights("counts", np.int32([3, 5])),
        packed_weights("bounds", np.int32([3, 5, 1, 2])),
        packed_weights("bounds-causal", np.int32([3, 5, 2, 4]), unidirectional=1),
        packed_weights("padding", padding[:, 0, :5].copy(), unidirectional=1),
        packed_weights("past", padding, past, unidirectional=1, mask_filter_value=-4.0),
        packed_weights("bias", None, None, rows("ab", 2, 2, 5, 5)),
    ]
    return [*cases, in_type(cases[2], "float16")]


def _quantized() -> list[NodeCase]:
    rng = np.random.default_rng(7)
    x = rng.integers(0, 255, (2, 5, 12)).astype(np.uint8)
    w = rng.integers(-60, 60, (12, 48)).astype(np.int8)  # more, and onnxruntime's sums of pairs saturate on AVX2
    bias, scales = rows("qb", 48), (np.array(0.02, np.float32), np.array(0.01, np.float32))
    zeros = np.array(128, np.uint8), np.array(3, np.int8)
    past = rows("past", 2, 2, 2, 4, 8)
    per_column = np.abs(rows("columns", 48)) * 0.01
    return [
        contrib("QAttention", "plain", [x, w, bias, *scales, None, zeros[0]], num_heads=2),
        contrib("QAttention", "columns", [x, w, bias, scales[0], per_column, np.int32([3, 5]), zeros[0]], num_heads=2),
        contrib("QAttention", "past", [x, w, bias, *scales, None, *zeros, past], 2, num_heads=2, unidirectional=1),
    ]


def fused(
    detail: str,
    dims: tuple[int, int, int, int, int, int, int],
    dtype: str = "float32",
    bias: Array | None = None,
    **attributes: Any,
) -> NodeCase:
    """A case of gossamer::FusedAttention over [batch, rows, heads, columns], and to that."""
    batch, heads, kv_heads, queries, keys, size, v_size = dims
    q, k, v = qkv(detail, batch, heads, kv_heads, queries, keys, size, v_size, dtype)
    inputs = [np.ascontiguousarray(x.transpose(0, 2, 1, 3)) for x in (q, k, v)]
    extents = {
        "Q": (queries, heads, size),
        "K": (keys, kv_heads, size),
        "V": (keys, kv_heads, v_size),
        "Y": (queries, heads, v_size),
    }
    layouts = {f"layout{name}": [0, n * h * d, d, h * d, 1] for name, (n, h, d) in extents.items()}

    def want() -> list[Array]:
        scores = scores_of(q, k, attributes.get("scale", 1.0)) + (0 if bias is None else bias.astype(np.float64))
        if attributes.get("causal"):
            scores = np.where(np.tri(queries, keys, attributes.get("first", 0)) > 0, scores, -np.inf)
        empty = np.isneginf(scores).all(-1, keepdims=True) & (not attributes.get("zero_empty"))
        return [weighted(np.where(empty, np.nan, softmax(scores)), v).transpose(0, 2, 1, 3).astype(q.dtype)]

    types = [(tensor_type(q), (batch, queries, heads, v_size))]
    more = [] if bias is None else [bias]
    if bias is not None:
        layouts["layoutBias"] = [
            0,
            *(0 if n == 1 else s // bias.itemsize for n, s in zip(bias.shape, bias.strides, strict=True)),
        ]
    case = NodeCase(
        f"FusedAttention-{detail}", "FusedAttention", [*inputs, *more], {"shape": dims, **layouts, **attributes},
        domain="gossamer", output_types=types, want=want,
    )  # fmt: skip
    return within(case)


def _split() -> list[NodeCase]:
    hidden = np.zeros((2, 1, 1, 1500), np.float32)
    hidden[0, ..., :800] = -np.inf
    hidden[1] = -np.inf
    some, lengths = qkv("keys", 2, 4, 2, 5, 1100, 16, 16), (None, None, None, np.array([3, 1100]))
    cache = {"past": 1200, "total": 1100, "lengths": [1100, 70]}
    return [
        fused("split", (2, 4, 2, 1, 1500, 64, 64), "float16", scale=0.125),
        fused("split-bfloat16", (1, 8, 2, 1, 1100, 128, 128), "bfloat16", scale=0.09),
        fused("split-float32", (1, 3, 3, 1, 1500, 40, 24), scale=0.2),
        fused("split-float64", (1, 2, 2, 2, 700, 16, 16), "float64", scale=0.25),
        fused("split-causal", (1, 2, 2, 40, 1100, 64, 64), scale=0.125, causal=1, first=300),
        fused("split-hidden", (2, 2, 2, 3, 1500, 16, 16), bias=hidden),
        fused("split-hidden_zero_empty", (2, 2, 2, 3, 1500, 16, 16), bias=hidden, zero_empty=1),
        attention("split-lengths", *some, *lengths, opset=24),
        attention("split-lengths_causal", *some, *lengths, opset=24, is_causal=1),
        grouped("split", 1, **cache),  # type: ignore[arg-type]
        grouped("split_window", 1, **cache, local_window_size=90, smooth_softmax=1),  # type: ignore[arg-type]
    ]


CASES = [
    *_onnx(),
    *_multi_head(),
    *_grouped(),
    *_packed_weights(),
    *_quantized(),
    fused("bert", (2, 3, 3, 40, 40, 16, 16), scale=0.25, bias=floats("padding", (2, 1, 1, 40), low=-9)),
    fused("past", (2, 4, 2, 3, 20, 16, 24), "float16", scale=0.25, causal=1, first=17),
]
SPLIT = _split()
"""Keys enough to be split among programs, on a GPU and on what has a GPU's tiles."""
LARGE = [
    fused("bert_1", (1, 12, 12, 128, 128, 64, 64), "float16", scale=0.125, bias=floats("1", (1, 1, 1, 128), "float16")),
    fused("bert_8", (8, 12, 12, 128, 128, 64, 64), "float16", scale=0.125, bias=floats("8", (8, 1, 1, 128), "float16")),
    fused("vit", (8, 12, 12, 197, 197, 64, 64), "float16", scale=0.125),
    fused("causal", (2, 16, 16, 1000, 1000, 128, 128), "float16", scale=0.09, causal=1),
    fused("causal-bfloat16", (1, 16, 4, 777, 1777, 128, 128), "bfloat16", scale=0.09, causal=1, first=1000),
    fused("odd_heads", (2, 8, 8, 300, 300, 80, 96), "float16", scale=0.1, causal=1),
    fused("heads_of_256", (1, 8, 4, 300, 300, 256, 256), "float16", scale=0.06, causal=1),
    fused("t5", (2, 12, 12, 300, 300, 64, 64), "float16", bias=floats("t5", (1, 12, 300, 300), "float16")),
    fused("decode", (2, 32, 8, 1, 5000, 128, 128), "float16", scale=0.09),
    fused("decode-float32", (1, 12, 12, 1, 3000, 64, 64), scale=0.125),
    fused("float32", (2, 12, 12, 256, 256, 64, 64), scale=0.125, causal=1),
    fused("float64", (1, 4, 4, 100, 100, 64, 64), "float64", scale=0.125, causal=1),
]
