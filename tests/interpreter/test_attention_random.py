"""ONNX Attention with random attributes, shapes and values, against its text in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cases.attention import attention
from cases.references import floats
from examples import examples

SPECIAL = (np.nan, np.inf, -np.inf, 1e4, -1e30)  # larger ones overflow in products of fp32


def mask_of(draw: st.DrawFn, shape: tuple[int, int, int, int], dtype: str) -> np.ndarray | None:
    kind = draw(st.sampled_from(("none", "bool", "float")))
    if kind == "none":
        return None
    broadcast = tuple(extent if draw(st.booleans()) else 1 for extent in shape)[draw(st.integers(0, 2)) :]
    mask = floats(f"mask {draw(st.integers(0, 9))}", broadcast, low=-3, high=3)
    if kind == "bool":
        return mask > draw(st.sampled_from((-1.0, 1.0, 2.9)))
    if draw(st.booleans()):
        mask = np.where(mask > 0, mask, -np.inf)
    return mask.astype(dtype)


@st.composite
def arguments(draw: st.DrawFn) -> tuple[list[np.ndarray | None], dict[str, Any], int]:
    """Inputs, attributes and number of outputs."""
    batch, kv_heads, group = (draw(st.integers(1, most)) for most in (2, 2, 3))
    queries, keys, past = draw(st.integers(0, 9)), draw(st.integers(1, 40)), draw(st.sampled_from((None, 0, 5)))
    size, v_size = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    dtype = draw(st.sampled_from(("float32", "float16", "float64")))
    q = floats("q", (batch, kv_heads * group, queries, size), dtype)
    k, v = (floats(name, (batch, kv_heads, keys, n), dtype) for name, n in (("k", size), ("v", v_size)))
    if draw(st.booleans()) and q.size:
        q.reshape(-1)[0] = draw(st.sampled_from(SPECIAL if dtype != "float16" else SPECIAL[:3]))
    caches = [None, None]
    if past is not None:
        caches = [floats(name, (batch, kv_heads, past, n), dtype) for name, n in (("pk", size), ("pv", v_size))]
    mask = mask_of(draw, (batch, kv_heads * group, queries, keys + (past or 0)), dtype)
    attributes: dict[str, Any] = {"is_causal": draw(st.integers(0, 1))}
    if draw(st.booleans()):
        attributes["scale"] = draw(st.sampled_from((0.25, -0.5, 2.0)))
    if draw(st.booleans()):
        attributes["softcap"] = 1.5
    outputs = 1 if past is None else draw(st.sampled_from((1, 3)))
    return [q, k, v, mask, *caches], attributes, outputs


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(arguments())
def test_attention_agrees_with_its_text(given_arguments: tuple[list[np.ndarray | None], dict[str, Any], int]) -> None:
    inputs, attributes, n_outputs = given_arguments
    with np.errstate(all="ignore"):
        attention("random", *inputs, n_outputs=n_outputs, **attributes).check("interpreter")
