"""Right answers in NumPy, from float32 or better, for operators that onnxruntime's CPU provider lacks or is slow at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Arrays: TypeAlias = dict[str, Array]
Reduce: TypeAlias = Callable[[Array, tuple[int, ...]], Array]

REDUCTIONS: dict[str, Reduce] = {
    "ReduceSum": lambda x, axes: x.sum(axes, keepdims=True),
    "ReduceMean": lambda x, axes: x.mean(axes, keepdims=True),
    "ReduceMax": lambda x, axes: x.max(axes, keepdims=True),
    "ReduceMin": lambda x, axes: x.min(axes, keepdims=True),
    "ReduceProd": lambda x, axes: x.prod(axes, keepdims=True),
    "ReduceL1": lambda x, axes: np.abs(x).sum(axes, keepdims=True),
    "ReduceL2": lambda x, axes: np.sqrt((x * x).sum(axes, keepdims=True)),
    "ReduceLogSum": lambda x, axes: np.log(x.sum(axes, keepdims=True)),
    "ReduceLogSumExp": lambda x, axes: np.log(np.exp(x).sum(axes, keepdims=True)),
    "ReduceSumSquare": lambda x, axes: (x * x).sum(axes, keepdims=True),
}


def unpooled(a: Arrays, shape: tuple[int, ...]) -> Array:
    y = np.zeros(shape, np.float32)
    y.reshape(-1)[a["i"].reshape(-1)] = a["x"].reshape(-1)
    return y


def rms_norm(a: Arrays) -> Array:
    x: Array = a["x"]
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * a["g"]


def skip_rms_norm(a: Arrays) -> tuple[Array, Array]:
    """The norm of the sum, and the sum."""
    total = a["x"] + a["s"]
    return rms_norm({"x": total, "g": a["g"]}), total


def group_norm(a: Arrays, groups: int) -> Array:
    """com.microsoft's GroupNorm of N, height, width, C, with SiLU."""
    x = a["x"].reshape(a["x"].shape[0], -1, groups, a["x"].shape[-1] // groups)
    centred = x - x.mean((1, 3), keepdims=True)
    normal = centred / np.sqrt((centred * centred).mean((1, 3), keepdims=True) + 1e-5)
    return silu(normal.reshape(a["x"].shape) * a["g"] + a["b"])


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def product(a: Arrays) -> Array:
    return a["x"] @ a["w"]


def expanded(a: Arrays) -> Array:
    """Expand of a part of the first axis."""
    return np.broadcast_to(a["x"], (a["x"].shape[0], *a["s"][1:]))


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def bias_softmax(a: Arrays) -> Array:
    return softmax(a["x"] + a["b"])


def attention(a: Arrays, *, heads: int = 0, causal: bool = False) -> Array:
    """softmax(q kᵀ / √d) v of [batch, heads, tokens, d], or of [batch, tokens, heads · d] where heads are given."""
    q, k, v = (_split(a[name], heads) for name in "qkv")
    shared = q.shape[1] // k.shape[1]
    y = np.empty(q.shape, np.float32)
    hidden = np.triu(np.full((q.shape[2], k.shape[2]), -np.inf, np.float32), 1) if causal else np.float32(0)
    for head in range(q.shape[1]):
        scores = q[:, head] @ k[:, head // shared].swapaxes(1, 2) * np.float32(q.shape[-1] ** -0.5)
        y[:, head] = softmax(scores + hidden) @ v[:, head // shared]
    return y if not heads else y.transpose(0, 2, 1, 3).reshape(a["q"].shape)


def _split(x: Array, heads: int) -> Array:
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3) if heads else x


def cached_attention(a: Arrays) -> tuple[Array, Array, Array]:
    """com.microsoft's GroupQueryAttention of one more token: the answer, and keys and values with those of before."""
    key, value = (np.concatenate([a["p" + n], _split(a[n], a["pk"].shape[1])], 2) for n in "kv")
    heads = a["q"].shape[-1] // key.shape[-1]
    y = attention({"q": _split(a["q"], heads), "k": key, "v": value})
    return y.transpose(0, 2, 1, 3).reshape(a["q"].shape), key, value


def rotary(a: Arrays) -> Array:
    """com.microsoft's RotaryEmbedding of [batch, heads, tokens, d], whose halves belong together."""
    left, right = np.split(a["x"], 2, -1)
    return np.concatenate([left * a["c"] - right * a["s"], right * a["c"] + left * a["s"]], -1)
