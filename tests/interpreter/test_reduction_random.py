"""Reductions, softmax and scans with random attributes, versions, shapes, types and values.

Each is compared with the operator's text in NumPy, in fp64 or exact integers, and with onnxruntime's CPU provider where
it has a kernel and follows the text; `docs/disagreements.md` says where it does not.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from cases.node_case import NodeCase
from examples import examples
from harness import tensor_type
from random_arrays import (
    DEVICES,
    FLOAT_UNIT,
    NEWEST_OPSET,
    Example,
    accumulation_unit,
    floats,
    integers,
    legal_dtypes,
    magnitude,
    ordinary,
    shapes,
)

REDUCTIONS = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
AXES_ARE_INPUT_SINCE = {"Sum": 13}
"""18 for the others."""


@st.composite
def reductions(draw: st.DrawFn) -> Example:
    kind, opset = draw(st.sampled_from(REDUCTIONS)), draw(st.integers(7, NEWEST_OPSET))
    op = f"Reduce{kind}"
    dtype = draw(st.sampled_from(legal_dtypes(op, opset)))
    shape = draw(shapes())
    x = _terms(draw, kind, shape, dtype)
    attributes: dict[str, Any] = {"keepdims": draw(st.integers(0, 1))} if draw(st.booleans()) else {}
    axes = draw(st.none() | st.lists(st.integers(-len(shape), len(shape) - 1), unique=True)) if shape else None
    inputs: list[np.ndarray | None] = [x]
    if opset >= AXES_ARE_INPUT_SINCE.get(kind, 18):
        if axes is not None:
            inputs.append(np.array(axes, np.int64))
        if draw(st.booleans()):
            attributes["noop_with_empty_axes"] = draw(st.integers(0, 1))
    elif axes:
        attributes["axes"] = axes
    nothing = attributes.get("noop_with_empty_axes", 0)
    reduced = tuple(sorted({a % len(shape) for a in axes})) if axes else () if nothing else tuple(range(len(shape)))
    node = NodeCase("random", op, inputs, attributes, opset, constants=(1,) if len(inputs) > 1 else ())
    want, size = _reduced(kind, x, reduced, bool(attributes.get("keepdims", 1)))
    terms = prod(shape[a] for a in reduced)
    is_defined = terms or not (kind == "Mean" or ("Log" in kind and dtype not in FLOAT_UNIT))
    bound = accumulation_unit(dtype) * (8 + 2 * terms**0.5) * size if dtype in FLOAT_UNIT else 0.0
    wanted = want if is_defined else None
    return Example(node, [wanted], [bound], _onnxruntime_agrees(kind, x, size), device=draw(DEVICES))


def _onnxruntime_agrees(kind: str, x: np.ndarray, size: np.ndarray) -> bool:
    """Not where a number is NaN: its ReduceMax and ReduceMin ("similar to numpy") lose it where it is not the first of
    a row, and keep it elsewhere, depending on the axes. Not where integers overflow: it goes through fp64, saturates
    or wraps, depending on rank and operator; the text is silent, and ours wrap as NumPy's. Not for logarithms of
    integers: each exponential, or none, is an integer to it."""
    if kind in ("Max", "Min"):
        return x.dtype.name not in FLOAT_UNIT or not np.isnan(x.astype(np.float64)).any()
    if x.dtype.name in FLOAT_UNIT:
        return True
    return "Log" not in kind and bool((size < min(2.0**53, np.iinfo(x.dtype).max)).all())


def _terms(draw: st.DrawFn, kind: str, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Numbers whose reduction is well defined, and in range."""
    n = max(1, prod(shape))
    if dtype in FLOAT_UNIT:
        narrow = dtype == "float16"
        if kind == "Prod":
            return ordinary(draw, shape, dtype, 0.9, 1.1)
        if kind == "LogSum":
            return np.asarray(np.abs(floats(draw, shape, dtype, exponent=6)))
        if kind == "LogSumExp":
            return floats(draw, shape, dtype, exponent=5)
        return floats(draw, shape, dtype, exponent=6 if narrow else 40)
    if kind in ("Max", "Min", "Sum", "Prod", "L1", "SumSquare"):
        return integers(draw, shape, dtype)
    most = {"Mean": (2**63 - 1) // n, "L2": 2**15, "LogSum": 2**31 // n, "LogSumExp": 30}[kind]
    x = integers(draw, shape, dtype, most)
    return np.asarray(np.abs(x) + np.array(1, dtype)) if kind == "LogSum" else x


def _reduced(kind: str, x: np.ndarray, axes: tuple[int, ...], keep: bool) -> tuple[np.ndarray, np.ndarray]:
    """The operator's text, and the size of what is added: sums cancel."""
    real = x.dtype.name in FLOAT_UNIT
    with np.errstate(all="ignore"):
        if kind in ("Max", "Min"):
            return _extreme(kind, x, axes, keep), np.zeros(())
        if real:
            x = x.astype(np.float64)
        elif kind not in ("LogSum", "LogSumExp", "L2"):
            x = x.astype(np.uint64 if x.dtype == np.uint64 else np.int64)
        else:
            x = x.astype(np.float64)
        options: dict[str, Any] = {"axis": axes, "keepdims": keep}
        size = magnitude(x)
        if kind == "Prod":
            y = x.prod(dtype=x.dtype, **options)
            return y, size.prod(**options)
        if kind == "LogSumExp":
            most = np.where(np.isfinite(m := x.max(axis=axes, keepdims=True, initial=-np.inf)), m, 0.0)
            total = np.log(np.exp(x - most).sum(**options)) + (most if keep else most.squeeze(axes))
            return total, 1 + magnitude(total)
        squares = kind in ("L2", "SumSquare")
        terms = x * x if squares else np.abs(x) if kind == "L1" else x
        y, size = terms.sum(dtype=x.dtype, **options), (size * size if squares else size).sum(**options)
        if kind == "Mean":
            n = prod(x.shape[a] for a in axes)
            y = y / n if real else np.sign(y) * (np.abs(y) // n) if n else np.zeros_like(y)
            return y.astype(x.dtype), size / max(1, n)
        if kind == "L2":
            return np.sqrt(y), np.sqrt(size)
        if kind == "LogSum":
            y = np.log(y)
            return y, 1 + magnitude(y)
        return y, size


def _extreme(kind: str, x: np.ndarray, axes: tuple[int, ...], keep: bool) -> np.ndarray:
    if x.dtype == bool:
        identity: Any = kind == "Min"
    elif x.dtype.name in FLOAT_UNIT:
        x = x.astype(np.float64)
        identity = -np.inf if kind == "Max" else np.inf
    else:
        identity = np.iinfo(x.dtype).min if kind == "Max" else np.iinfo(x.dtype).max
    function = np.maximum if kind == "Max" else np.minimum
    return function.reduce(x, axes, keepdims=keep, initial=identity)


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(reductions())
def test_reduction(example: Example) -> None:
    example.check()


@st.composite
def arg_reductions(draw: st.DrawFn) -> Example:
    op, opset = draw(st.sampled_from(("ArgMax", "ArgMin"))), draw(st.integers(7, NEWEST_OPSET))
    dtype = draw(st.sampled_from(legal_dtypes(op, opset)))
    shape = draw(shapes(least=1))
    x = (
        floats(draw, shape, dtype)
        if dtype in FLOAT_UNIT
        else integers(draw, shape, dtype, draw(st.none() | st.just(2)))
    )
    attributes: dict[str, Any] = {"keepdims": draw(st.integers(0, 1))} if draw(st.booleans()) else {}
    axis = 0
    if draw(st.booleans()):
        attributes["axis"] = axis = draw(st.integers(-len(shape), len(shape) - 1))
    assume(shape[axis] or not prod(n for i, n in enumerate(shape) if i != axis % len(shape)))
    last = 0
    if opset >= 12 and draw(st.booleans()):
        attributes["select_last_index"] = last = draw(st.integers(0, 1))
    index = _extreme_index(op, x, axis, bool(last))
    want = np.expand_dims(index, axis) if attributes.get("keepdims", 1) else index
    # onnxruntime takes no axis without elements, not even where there is nothing to answer.
    return Example(
        NodeCase("random", op, [x], attributes, opset), [want], [0.0], bool(shape[axis]), device=draw(DEVICES)
    )


def _extreme_index(op: str, x: np.ndarray, axis: int, last: bool) -> np.ndarray:
    """The text, and for NaN what onnxruntime does: it stays where it comes first, and is passed over elsewhere."""
    rows = np.moveaxis(x.astype(np.float64) if x.dtype.name in FLOAT_UNIT else x, axis, 0)
    if not rows.size:
        return np.zeros(rows.shape[1:], np.int64)
    real = rows.dtype.kind == "f"
    nan = np.isnan(rows) if real else np.zeros(rows.shape, bool)
    extreme = (np.fmax if op == "ArgMax" else np.fmin).reduce(rows, 0)
    found = (rows == extreme) & ~nan
    index = len(rows) - 1 - found[::-1].argmax(0) if last else found.argmax(0)
    return np.where(nan[0], 0, index)


@st.composite
def softmaxes(draw: st.DrawFn) -> Example:
    op, opset = draw(st.sampled_from(("Softmax", "LogSoftmax", "Hardmax"))), draw(st.integers(7, NEWEST_OPSET))
    dtype = draw(st.sampled_from(legal_dtypes(op, opset)))
    # The range of `axis` is given from version 11 on; a row of nothing, before, is one of the text's 2-D matrices.
    shape = draw(shapes(least=0 if opset < 11 else 1))
    x = floats(draw, shape, dtype, exponent=draw(st.sampled_from((0, 6))))
    attributes: dict[str, Any] = {}
    axis = 1 if opset < 13 else -1
    if draw(st.booleans()) or axis >= len(shape):
        attributes["axis"] = axis = draw(st.integers(-len(shape) if opset >= 11 else 0, len(shape) - (opset >= 11)))
    flat = x.reshape(prod(shape[:axis]), prod(shape[axis:])) if opset < 13 else np.moveaxis(x, axis, -1)
    y = _softmax(op, flat.astype(np.float64))
    want = y.reshape(shape) if opset < 13 else np.moveaxis(y, -1, axis)
    size = 0.0 if op == "Hardmax" else 1.0 if op == "Softmax" else 1 + 2 * magnitude(x).max(initial=0)
    bound = 16 * accumulation_unit(dtype) * size
    # onnxruntime takes no `axis` that is the rank, which makes rows of one element; its Hardmax of a row with NaN is
    # zeros, and its fp64 LogSoftmax passes NaN over.
    agrees = axis < len(shape) and not (op != "Softmax" and np.isnan(want if op == "LogSoftmax" else flat).any())
    return Example(NodeCase("random", op, [x], attributes, opset), [want], [bound], agrees, device=draw(DEVICES))


def _softmax(op: str, x: np.ndarray) -> np.ndarray:
    """Along the last axis."""
    if not x.size:
        return x
    if op == "Hardmax":
        index = _extreme_index("ArgMax", x, -1, False)
        return (np.arange(x.shape[-1]) == index[..., None]).astype(np.float64)
    with np.errstate(all="ignore"):
        x = x - x.max(-1, keepdims=True)
        total = np.exp(x).sum(-1, keepdims=True)
        return x - np.log(total) if op == "LogSoftmax" else np.exp(x) / total


@st.composite
def scans(draw: st.DrawFn) -> Example:
    op = draw(st.sampled_from(("CumSum", "CumProd")))
    opset = draw(st.integers(11 if op == "CumSum" else 26, NEWEST_OPSET))
    dtype = draw(st.sampled_from(legal_dtypes(op, opset)))
    shape = draw(shapes(least=1))
    if dtype not in FLOAT_UNIT:
        x = integers(draw, shape, dtype)
    elif op == "CumSum":
        x = floats(draw, shape, dtype, exponent=5)
    else:
        x = ordinary(draw, shape, dtype, 0.9, 1.1)
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    given_axis = np.array(axis, draw(st.sampled_from(("int32", "int64"))))
    attributes = {name: draw(st.integers(0, 1)) for name in ("exclusive", "reverse") if draw(st.booleans())}
    constants = (1,) if draw(st.booleans()) else ()
    want, size = _scan(op, x, axis, **attributes)
    node = NodeCase("random", op, [x, given_axis], attributes, opset, constants)
    bound = accumulation_unit(dtype) * (8 + shape[axis]) * size
    return Example(node, [want], [bound], device=draw(DEVICES))


def _scan(op: str, x: np.ndarray, axis: int, exclusive: int = 0, reverse: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The text, and the sum of magnitudes."""
    real = x.dtype.name in FLOAT_UNIT
    x = np.moveaxis(x.astype(np.float64) if real else x, axis, 0)
    x = x[::-1] if reverse else x
    if exclusive:
        x = np.concatenate([np.full_like(x[:1], 1 if op == "CumProd" else 0), x[:-1]])
    with np.errstate(all="ignore"):
        scan = np.cumprod if op == "CumProd" else np.cumsum
        y, size = scan(x, 0, dtype=x.dtype), scan(magnitude(x) if real else 0 * x, 0)
    y, size = (a[::-1] if reverse else a for a in (y, size))
    return np.moveaxis(y, 0, axis), np.moveaxis(size, 0, axis).astype(np.float64)


@st.composite
def bias_softmaxes(draw: st.DrawFn) -> Example:
    """No kernel of onnxruntime's CPU provider: the text is that of its GPU kernel."""
    dtype = draw(st.sampled_from(("float16", "float32", "float64")))
    shape = draw(shapes(least=1, most=5))
    axis = draw(st.integers(0, len(shape) - 1))
    inner = draw(st.integers(0, 1))
    cut = draw(st.integers(0, axis))
    if inner:
        bias_shape = (*shape[:cut], *(1 for _ in shape[cut:axis]), *shape[axis:])
    else:
        bias_shape = (*(1 for _ in shape[:cut]), *shape[cut:])
    x, bias = floats(draw, shape, dtype), floats(draw, bias_shape, dtype)
    attributes = {"axis": axis - len(shape) * draw(st.integers(0, 1)), "is_inner_broadcast": inner}
    with np.errstate(all="ignore"):
        rows = (x.astype(np.float64) + bias.astype(np.float64)).reshape(prod(shape[:axis]), prod(shape[axis:]))
        want = _softmax("Softmax", rows).reshape(shape)
    types = [(tensor_type(x), shape)]
    node = NodeCase("random", "BiasSoftmax", [x, bias], attributes, domain="com.microsoft", output_types=types)
    return Example(node, [want], [64 * accumulation_unit(dtype)], False, device=draw(DEVICES))


RANDOM = settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])


@RANDOM
@given(arg_reductions())
def test_arg_reduction(example: Example) -> None:
    example.check()


@RANDOM
@given(softmaxes())
def test_softmax(example: Example) -> None:
    example.check()


@RANDOM
@given(scans())
def test_scan(example: Example) -> None:
    example.check()


@RANDOM
@given(bias_softmaxes())
def test_bias_softmax(example: Example) -> None:
    example.check()
