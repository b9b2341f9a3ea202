"""onnxruntime's attention operators with random packings, masks, caches and attributes, against its CPU provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from examples import examples
from gossamer import backend
from gossamer import settings as environment
from harness import assert_close, node_model, ort

many = settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
RTOL = 2e-4


@dataclass(frozen=True)
class Example:
    """One node. lengths: of sequences; where they are given, what comes after them in outputs is not compared, along
    the axis that `time_axes` has for each output."""

    op_type: str
    inputs: Sequence[np.ndarray | None]
    attributes: Mapping[str, Any]
    n_outputs: int = 1
    constants: Sequence[int] = ()
    lengths: np.ndarray | None = None
    time_axes: Sequence[int] = field(default=(1, 2, 2))

    def check(self) -> None:
        model = node_model(
            self.op_type,
            self.inputs,
            self.attributes,
            domain="com.microsoft",
            n_outputs=self.n_outputs,
            constants=self.constants,
        )
        feeds = {f"x{i}": a for i, a in enumerate(self.inputs) if a is not None and i not in self.constants}
        with environment.override(DEVICE="interpreter"):
            got = backend.run_model(model, list(feeds.values()))
        for index, (one, other) in enumerate(zip(got, ort(model, feeds), strict=True)):
            assert one.shape == other.shape
            assert_close(self._compared(one, index), self._compared(other, index), rtol=RTOL)

    def _compared(self, output: np.ndarray, index: int) -> np.ndarray:
        if self.lengths is None:
            return output
        axis = self.time_axes[index]
        before = np.arange(output.shape[axis]) < self.lengths[:, None]
        shape = [output.shape[0] if i == 0 else output.shape[axis] if i == axis else 1 for i in range(output.ndim)]
        return np.where(before.reshape(shape), output, 0).astype(output.dtype)


@dataclass(frozen=True)
class Draw:
    """What examples are made of."""

    draw: st.DrawFn
    rng: np.random.Generator

    def floats(self, *shape: int) -> np.ndarray:
        return self.rng.standard_normal(shape).astype(np.float32)

    def maybe(self, value: Any) -> Any:
        return value if self.draw(st.booleans()) else None

    def one_or(self, n: int) -> int:
        return self.draw(st.sampled_from((1, n)))

    def integer(self, least: int, most: int) -> int:
        return self.draw(st.integers(least, most))

    def mask(self, batch: int, queries: int, keys: int, kinds: Sequence[str]) -> np.ndarray | None:
        """Zeros and ones, or lengths; every query sees a key."""
        kind = self.draw(st.sampled_from(("none", *kinds)))
        if kind == "none":
            return None
        if kind == "lengths":
            return self.rng.integers(1, keys + 1, batch).astype(np.int32)
        shape = {"keys": (batch, keys), "queries": (batch, queries, keys)}[kind]
        mask = self.rng.integers(0, 2, shape).astype(np.int32)
        mask[..., 0] = 1
        return mask

    def scores(self, batch: int, heads: int, queries: int, keys: int) -> np.ndarray | None:
        """What is added to scores: of all batches and heads or of each."""
        return self.maybe(self.floats(self.one_or(batch), self.one_or(heads), queries, keys))

    def attributes(self, **choices: Sequence[Any]) -> dict[str, Any]:
        """For each attribute one of its values, or none: then it is left out."""
        drawn = {name: self.draw(st.sampled_from((None, *values))) for name, values in choices.items()}
        return {name: value for name, value in drawn.items() if value is not None}


@st.composite
def draws(draw: st.DrawFn) -> Draw:
    return Draw(draw, np.random.default_rng(draw(st.integers(0, 2**32))))


@st.composite
def multi_head(draw: st.DrawFn) -> Example:
    d = draw(draws())
    batch, heads, size, v_size = d.integer(1, 3), d.integer(1, 3), draw(st.sampled_from((4, 8, 16))), d.integer(1, 12)
    queries, form = d.integer(1, 7), draw(st.sampled_from(("own", "cached", "other", "projected")))
    keys = queries if form in ("own", "cached") else d.integer(1, 9)
    v_size = size if form == "cached" else v_size
    past = d.integer(1, 5) if form == "cached" else 0
    q = d.floats(batch, queries, heads * size)
    k, v = d.floats(batch, keys, heads * size), d.floats(batch, keys, heads * v_size)
    bias = d.maybe(d.floats(heads * (2 * size + v_size)))
    caches = [d.floats(batch, heads, past, n) for n in (size, v_size)] if past else [None, None]
    if form == "projected":  # keys and values of another sequence, split into heads already
        k, v, bias = d.floats(batch, heads, keys, size), d.floats(batch, heads, keys, size), None
    attributes = d.attributes(
        scale=(0.3,), mask_filter_value=(-1000.0,), unidirectional=(1,) if keys == queries else ()
    )
    mask = d.mask(batch, queries, keys + past, ("lengths", "keys", "queries"))
    inputs = [q, k, v, bias, mask, d.scores(batch, heads, queries, keys + past), *caches]
    return Example("MultiHeadAttention", inputs, {"num_heads": heads} | attributes, 3 if past else 1)


@st.composite
def packed(draw: st.DrawFn) -> Example:
    d = draw(draws())
    batch, heads, size, rows, width = (
        d.integer(1, 3),
        d.integer(1, 3),
        draw(st.sampled_from((4, 8))),
        d.integer(1, 6),
        5,
    )
    past = d.integer(1, 4) if draw(st.booleans()) else 0
    v_size = size if past else draw(st.sampled_from((size, 12)))
    columns = heads * (2 * size + v_size)
    sizes = {} if v_size == size else {"qkv_hidden_sizes": [heads * size, heads * size, heads * v_size]}
    # onnxruntime takes scores to add only where there is no past.
    bias = None if past else d.scores(batch, heads, rows, rows)
    mask = d.mask(batch, rows, rows + past, ("lengths", "keys", "queries"))
    cache = d.floats(2, batch, heads, past, size) if past else None
    inputs = [d.floats(batch, rows, width), d.floats(width, columns), d.floats(columns), mask, cache, bias]
    attributes = d.attributes(scale=(0.4,), mask_filter_value=(-500.0,), unidirectional=(1,))
    return Example("Attention", inputs, {"num_heads": heads} | sizes | attributes, 2 if past else 1, (1, 2))


@st.composite
def grouped(draw: st.DrawFn) -> Example:
    d = draw(draws())
    batch, kv_heads, size = d.integer(1, 3), d.integer(1, 2), draw(st.sampled_from((16, 32)))
    heads, phase = kv_heads * d.integer(1, 3), draw(st.sampled_from(("prompt", "token", "chunk")))
    batch = 1 if phase == "chunk" else batch
    rows = 1 if phase == "token" else d.integer(2, 6)
    past = 0 if phase == "prompt" else d.integer(3, 7)
    lengths = np.full(batch, past + rows)  # of each sequence with its new rows; the longest fills the caches
    if phase != "chunk":
        lengths[1:] = d.rng.integers(1 if phase == "prompt" else 2, past + rows + 1, batch - 1)
    q, k, v = (d.floats(batch, rows, n * size) for n in (heads, kv_heads, kv_heads))
    caches = [d.floats(batch, kv_heads, past, size) for _ in range(2)]
    attributes = d.attributes(local_window_size=(1, 3, 6), softcap=(2.0,), scale=(0.3,), smooth_softmax=(1,))
    rotary: list[np.ndarray | None] = [None, None]
    if draw(st.booleans()):
        rotary = [d.floats(20, size // 2), d.floats(20, size // 2)]
        attributes |= {"do_rotary": 1, "rotary_interleaved": d.integer(0, 1)}
    sinks = None if "smooth_softmax" in attributes else d.maybe(d.floats(heads))
    operands = [np.concatenate([q, k, v], -1), None, None] if draw(st.booleans()) else [q, k, v]
    total = np.array(past + rows, np.int32)
    scores = d.scores(batch, heads, rows, past + rows)
    inputs = [*operands, *caches, lengths.astype(np.int32) - 1, total, *rotary, None, scores, sinks]
    attributes |= {"num_heads": heads, "kv_num_heads": kv_heads}
    compared = lengths if phase == "prompt" else np.maximum(lengths, rows)
    return Example("GroupQueryAttention", inputs, attributes, 3, (6,), compared)


@st.composite
def rotated(draw: st.DrawFn) -> Example:
    d = draw(draws())
    batch, rows, heads, size = d.integer(1, 3), d.integer(1, 6), d.integer(1, 4), draw(st.sampled_from((8, 16)))
    turned = draw(st.sampled_from((size, size // 2)))
    attributes = d.attributes(interleaved=(1,))
    if turned != size:
        attributes |= {"rotary_embedding_dim": turned, "num_heads": heads}
    split = draw(st.booleans())
    if not split:
        attributes["num_heads"] = heads
    x = d.floats(batch, heads, rows, size) if split else d.floats(batch, rows, heads * size)
    first = np.array([d.integer(0, 8)])
    positions = first if draw(st.booleans()) else d.rng.integers(0, 20, (batch, rows))
    tables = [d.floats(20, turned // 2), d.floats(20, turned // 2)]
    return Example("RotaryEmbedding", [x, positions.astype(np.int64), *tables], attributes)


@many
@given(multi_head())
def test_multi_head_attention(example: Example) -> None:
    example.check()


@many
@given(packed())
def test_attention(example: Example) -> None:
    example.check()


@many
@given(grouped())
def test_group_query_attention(example: Example) -> None:
    example.check()


@many
@given(rotated())
def test_rotary_embedding(example: Example) -> None:
    example.check()
