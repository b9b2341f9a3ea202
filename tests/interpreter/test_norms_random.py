"""Norms with random attributes, versions, shapes, types and values.

Each is compared with the operator's text in NumPy, in fp64, and with onnxruntime's CPU provider where it has a kernel
and follows the text; `docs/disagreements.md` says where it does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import HealthCheck, given, settings
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
    legal_dtypes,
    magnitude,
    shapes,
)

MICROSOFT = "com.microsoft"
EPSILONS = (None, 1e-3, 1e-12)


@dataclass(frozen=True)
class Standardised:
    """(x - mean) / √(variance + epsilon) over `axes`, its parts, and how far off each may be for rounding."""

    y: np.ndarray
    mean: np.ndarray
    inverse: np.ndarray
    variance: np.ndarray
    y_bound: np.ndarray
    mean_bound: np.ndarray
    inverse_bound: np.ndarray
    variance_bound: np.ndarray

    def scaled(self, gamma: np.ndarray | float, beta: np.ndarray | float, unit: float) -> tuple[np.ndarray, np.ndarray]:
        """y · gamma + beta, and its bound."""
        with np.errstate(all="ignore"):
            size = magnitude(self.y * gamma) + np.abs(beta)
            return self.y * gamma + beta, self.y_bound * np.abs(gamma) + 4 * unit * size


def standardised(
    x: np.ndarray, axes: tuple[int, ...], epsilon: float, unit: float, centred: bool = True
) -> Standardised:
    """x in fp64. unit: what one rounding of the kernel costs."""
    terms = prod(x.shape[axis] for axis in axes)
    unit *= 8 + 2 * terms**0.5
    with np.errstate(all="ignore"):
        total = np.sum(x, axes, keepdims=True)
        mean = total / terms if centred else np.zeros_like(total)
        shift = unit * np.sum(magnitude(x), axes, keepdims=True) / terms if centred else 0 * mean
        d = x - mean
        variance = np.sum(d * d, axes, keepdims=True) / terms
        inverse = 1 / np.sqrt(variance + epsilon)
        relative = unit + shift * np.sqrt(variance) * inverse * inverse + (shift * inverse) ** 2
        y_bound = shift * inverse + magnitude(d * inverse) * (unit + relative)
        variance_bound = unit * variance + 2 * shift * np.sqrt(variance) + shift**2
        bounds = (np.nan_to_num(b, posinf=np.inf) for b in (y_bound, shift, inverse * relative, variance_bound))
        return Standardised(d * inverse, mean, inverse, variance, *bounds)


def epsilon_of(draw: st.DrawFn, attributes: dict[str, Any], default: float = 1e-5) -> float:
    """Sets the attribute or leaves it out; what it is in fp32."""
    epsilon = draw(st.sampled_from(EPSILONS))
    if epsilon is not None:
        attributes["epsilon"] = epsilon
    return float(np.float32(default if epsilon is None else epsilon))


def values(draw: st.DrawFn, shape: Sequence[int], dtype: str, *, special: bool = True) -> np.ndarray:
    """Numbers of different sizes, and far from zero at times."""
    x = floats(draw, shape, dtype, exponent=4, special=special)
    offset = draw(st.sampled_from((0, 0, 0, 3, 100)))
    return (x.astype(np.float64) + offset).astype(x.dtype)


def parameter(draw: st.DrawFn, shape: Sequence[int], dtype: str) -> np.ndarray:
    return floats(draw, shape, dtype, special=False)


def exact(x: np.ndarray | None, default: float = 0.0) -> np.ndarray:
    return np.float64(default) if x is None else x.astype(np.float64)


def broadcastable(draw: st.DrawFn, shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """The normalised shape, mostly, or another that broadcasts to `shape`."""
    kind = draw(st.sampled_from(("inner", "inner", "any", "one")))
    if kind == "inner":
        return shape[axis:]
    if kind == "one":
        return draw(st.sampled_from(((), (1,))))
    first = draw(st.integers(0, len(shape)))
    return tuple(draw(st.sampled_from((extent, 1))) for extent in shape[first:])


@st.composite
def layer_norms(draw: st.DrawFn) -> Example:
    """SimplifiedLayerNormalization is onnxruntime's, and has its second output."""
    op = draw(st.sampled_from(("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")))
    opset = draw(st.integers(23 if op == "RMSNormalization" else 17, NEWEST_OPSET))
    centred = op == "LayerNormalization"
    dtype = draw(st.sampled_from(tuple(FLOAT_UNIT)))
    parameter_dtype = dtype if centred or draw(st.booleans()) else draw(st.sampled_from(tuple(FLOAT_UNIT)))
    shape = draw(shapes(least=1, most=6))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    x = values(draw, shape, dtype)
    gamma = parameter(draw, broadcastable(draw, shape, axis % len(shape)), parameter_dtype)
    beta = None
    if centred and draw(st.booleans()):
        beta = parameter(draw, broadcastable(draw, shape, axis % len(shape)), dtype)
    attributes: dict[str, Any] = {} if axis == -1 and draw(st.booleans()) else {"axis": axis}
    epsilon = epsilon_of(draw, attributes)
    unit = accumulation_unit(dtype)
    stash = draw(st.sampled_from((None, 1, 16)))
    if stash is not None:
        attributes["stash_type"] = stash
    norm = standardised(exact(x), tuple(range(axis % len(shape), len(shape))), epsilon, unit, centred)
    want, bound = norm.scaled(exact(gamma), exact(beta), unit)
    n_outputs = draw(st.integers(1, {"LayerNormalization": 3, "RMSNormalization": 1}.get(op, 2)))
    others = [(norm.mean, norm.mean_bound), (norm.inverse, norm.inverse_bound)][0 if centred else 1 :]
    results = [(want, bound), *others][:n_outputs]
    statistics = (16 if stash == 16 else 1, norm.mean.shape)
    types = [(tensor_type(gamma), shape), statistics, statistics][:n_outputs]
    inputs = [x, gamma] if beta is None else [x, gamma, beta]
    constants = draw(st.sampled_from(((), tuple(range(1, len(inputs))))))
    node = NodeCase("random", op, inputs, attributes, opset, constants, n_outputs, output_types=types)
    return example(draw, node, results, _onnxruntime_agrees(node, norm))


def _onnxruntime_agrees(node: NodeCase, norm: Standardised) -> bool:
    """It takes no rows of nothing, and no scale of another type; for want of a kernel with statistics in bf16 it runs
    the function, which does not broadcast the scale. Its Mean of a row with an infinity is NaN. Its variance in fp64
    is mean(x²) - mean(x)², which cancels."""
    x, gamma, *_ = node.inputs
    assert x is not None
    assert gamma is not None
    if not x.size or x.dtype != gamma.dtype or node.attributes.get("stash_type") == 16:
        return False
    if node.n_outputs > 1 and np.isinf(exact(x)).any():
        return False
    with np.errstate(all="ignore"):
        return x.dtype != np.float64 or bool((np.sqrt(norm.variance) > np.abs(norm.mean)).all())


def example(
    draw: st.DrawFn, node: NodeCase, results: Sequence[tuple[np.ndarray, Any]], onnxruntime: bool = True
) -> Example:
    return Example(node, [w for w, _ in results], [b for _, b in results], onnxruntime, draw(DEVICES))


@st.composite
def skip_norms(draw: st.DrawFn) -> Example:
    """com.microsoft's operators with a skip connection."""
    centred = draw(st.booleans())
    op = "SkipLayerNormalization" if centred else "SkipSimplifiedLayerNormalization"
    dtype = draw(st.sampled_from(("float16", "bfloat16", "float32")))
    shape = draw(shapes(least=2, most=3))
    skip_shape = shape if len(shape) == 2 else draw(st.sampled_from((shape, (1, *shape[1:]), shape[1:])))
    x, skip = values(draw, shape, dtype), values(draw, skip_shape, dtype)
    gamma = parameter(draw, shape[-1:], dtype)
    beta, bias = (parameter(draw, shape[-1:], dtype) if draw(st.booleans()) else None for _ in range(2))
    attributes: dict[str, Any] = {}
    epsilon = epsilon_of(draw, attributes, 1e-12)
    total = exact(x) + exact(skip) + exact(bias)
    size = magnitude(x) + magnitude(skip) + magnitude(exact(bias))
    unit = accumulation_unit(dtype)
    norm = standardised(total, (-1,), epsilon, 3 * unit, centred)
    with np.errstate(all="ignore"):  # what the sums lose counts as an error of x
        lost = 3 * unit * size.max(-1, keepdims=True, initial=0.0) * norm.inverse
        norm = replace(norm, y_bound=norm.y_bound + 2 * lost * (1 + magnitude(norm.y)) ** 2 + lost**2)
    want = norm.scaled(exact(gamma), exact(beta) if centred else 0.0, unit)
    results = [want, (norm.mean, norm.mean_bound), (norm.inverse, norm.inverse_bound), (total, 4 * unit * size)]
    inputs = [x, skip, gamma, beta, bias] if centred else [x, skip, gamma, bias]
    while inputs[-1] is None:
        inputs.pop()
    statistics = (1, (*shape[:-1], 1))
    types = [(tensor_type(x), shape), statistics, statistics, (tensor_type(x), shape)]
    n_outputs = draw(st.sampled_from((1, 4) if centred else (1,)))
    node = NodeCase(
        "random", op, inputs, attributes, domain=MICROSOFT, n_outputs=n_outputs, output_types=types[:n_outputs]
    )
    return example(draw, node, results[:n_outputs], n_outputs == 1 and shape[-1] > 0)


def spatial_axes(x: np.ndarray) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


def by_channel(parameter: np.ndarray, x: np.ndarray) -> np.ndarray:
    return exact(parameter).reshape(-1, *(1,) * (x.ndim - 2))


def channels_last(draw: st.DrawFn, made: Example) -> Example:
    """The same over N, spatial…, C, perhaps."""
    node, x = made.node, made.node.inputs[0]
    assert x is not None
    if node.opset < 9 or draw(st.booleans()):  # spatial = 0 has no such form
        return made

    def moved(array: Any) -> Any:
        return np.moveaxis(array, 1, -1) if np.ndim(array) == x.ndim else array

    outputs = node.model().graph.output
    types = [(o.type.tensor_type.elem_type, moved(w).shape) for o, w in zip(outputs, made.want, strict=True)]
    node = replace(node, inputs=[moved(x).copy(), *node.inputs[1:]], domain="gossamer.nhwc", output_types=types)
    return replace(
        made, node=node, want=[moved(w) for w in made.want], bound=[moved(b) for b in made.bound], onnxruntime=False
    )


@dataclass(frozen=True)
class Batch:
    """The inputs of BatchNormalization. spatial: statistics are by channel, not (before version 9) by element."""

    x: np.ndarray
    gamma: np.ndarray
    beta: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    epsilon: float
    spatial: bool

    @property
    def unit(self) -> float:
        return accumulation_unit(self.x.dtype.name)

    def spread(self, parameter: np.ndarray) -> np.ndarray:
        return by_channel(parameter, self.x) if self.spatial else exact(parameter)

    def inferred(self) -> tuple[np.ndarray, np.ndarray]:
        """Y, and its bound."""
        mean, beta = self.spread(self.mean), self.spread(self.beta)
        with np.errstate(all="ignore"):
            factor = self.spread(self.gamma) / np.sqrt(self.spread(self.variance) + self.epsilon)
            size = (magnitude(self.x) + np.abs(mean)) * np.abs(factor) + np.abs(beta)
            return (exact(self.x) - mean) * factor + beta, 8 * self.unit * size

    def trained(self, momentum: float) -> list[tuple[np.ndarray, np.ndarray]]:
        """Y, both running averages, and the batch's own statistics, each with its bound."""
        axes = tuple(i for i in range(self.x.ndim) if i != 1) if self.spatial else (0,)
        norm = standardised(exact(self.x), axes, self.epsilon, self.unit)
        own = [(norm.mean, norm.mean_bound), (norm.variance, norm.variance_bound)]
        own = [(new.reshape(self.mean.shape), bound.reshape(self.mean.shape)) for new, bound in own]
        averages = []
        for old, (new, bound) in zip((exact(self.mean), exact(self.variance)), own, strict=True):
            rounding = 8 * self.unit * (np.abs(old) + magnitude(new))
            averages.append((old * momentum + new * (1 - momentum), bound + rounding))
        return [norm.scaled(self.spread(self.gamma), self.spread(self.beta), self.unit), *averages, *own]


@st.composite
def batch_norms(draw: st.DrawFn) -> Example:
    op, opset = "BatchNormalization", draw(st.integers(7, NEWEST_OPSET))
    dtype = draw(st.sampled_from(legal_dtypes(op, opset)))
    mixed = opset >= 15 and draw(st.booleans())
    scale_dtype, mean_dtype = (draw(st.sampled_from(tuple(FLOAT_UNIT))) if mixed else dtype for _ in range(2))
    if opset == 14:
        mean_dtype = draw(st.sampled_from(legal_dtypes(op, opset, "U")))
    x = values(draw, draw(shapes(least=2, most=6)), dtype)
    spatial = opset >= 9 or draw(st.booleans())
    attributes: dict[str, Any] = {} if spatial else {"spatial": 0}
    sizes = x.shape[1:2] if spatial else x.shape[1:]
    gamma, beta = (parameter(draw, sizes, scale_dtype) for _ in range(2))
    mean, variance = parameter(draw, sizes, mean_dtype), np.asarray(np.abs(parameter(draw, sizes, mean_dtype)))
    batch = Batch(x, gamma, beta, mean, variance, epsilon_of(draw, attributes), spatial)
    momentum = 0.9
    if draw(st.booleans()):
        attributes["momentum"] = momentum = draw(st.sampled_from((0.0, 0.75, 1.0)))
    training = draw(st.booleans())
    if training and opset >= 14:
        attributes["training_mode"] = 1
    n_outputs = (3 if opset >= 14 else 5) if training else 1
    results = batch.trained(float(np.float32(momentum)))[:n_outputs] if training else [batch.inferred()]
    types = [(tensor_type(x), x.shape), *((tensor_type(mean), sizes),) * (n_outputs - 1)]
    inputs = [x, gamma, beta, mean, variance]
    node = NodeCase("random", op, inputs, attributes, opset, n_outputs=n_outputs, output_types=types)
    # Before version 14 onnxruntime's saved_var is 1 / deviation, and it trains only with spatial = 1.
    return channels_last(draw, example(draw, node, results, opset >= 14 or not training))


@st.composite
def instance_norms(draw: st.DrawFn) -> Example:
    opset = draw(st.integers(7, NEWEST_OPSET))
    dtype = draw(st.sampled_from(legal_dtypes("InstanceNormalization", opset)))
    x = values(draw, draw(shapes(least=3, most=6)), dtype)
    gamma, beta = (parameter(draw, x.shape[1:2], dtype) for _ in range(2))
    attributes: dict[str, Any] = {}
    unit = accumulation_unit(dtype)
    norm = standardised(exact(x), spatial_axes(x), epsilon_of(draw, attributes), unit)
    results = [norm.scaled(by_channel(gamma, x), by_channel(beta, x), unit)]
    node = NodeCase("random", "InstanceNormalization", [x, gamma, beta], attributes, opset)
    return channels_last(draw, example(draw, node, results, x.size > 0))  # fp16 without pixels ends onnxruntime


def groups_and_shape(draw: st.DrawFn, most: int) -> tuple[int, tuple[int, ...]]:
    groups, width = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    first, *rest = draw(shapes(least=2, most=most - 1))
    return groups, (first, groups * width, *rest)


def grouped_norm(
    x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, groups: int, epsilon: float, unit: float
) -> tuple[np.ndarray, np.ndarray]:
    """As of version 21 (gamma and beta for each channel) or 18 (for each group)."""
    n, channels = x.shape[:2]
    width = channels // groups
    rows = x.reshape(n, groups, width, prod(x.shape[2:]))
    norm = standardised(rows, (2, 3), epsilon, unit)
    shape = (groups, width, 1) if gamma.size == channels else (groups, 1, 1)
    y, bound = norm.scaled(exact(gamma).reshape(shape), exact(beta).reshape(shape), unit)
    return y.reshape(x.shape), bound.reshape(x.shape)


@st.composite
def group_norms(draw: st.DrawFn) -> Example:
    opset = draw(st.integers(18, NEWEST_OPSET))
    dtype = draw(st.sampled_from(tuple(FLOAT_UNIT)))
    groups, shape = groups_and_shape(draw, 6)
    x = values(draw, shape, dtype)
    gamma, beta = (parameter(draw, shape[1:2] if opset >= 21 else (groups,), dtype) for _ in range(2))
    attributes: dict[str, Any] = {"num_groups": groups}
    if opset >= 21 and draw(st.booleans()):
        attributes["stash_type"] = draw(st.sampled_from((1, 10, 11, 16)))
    results = [grouped_norm(exact(x), gamma, beta, groups, epsilon_of(draw, attributes), accumulation_unit(dtype))]
    types = [(tensor_type(x), shape)]
    node = NodeCase("random", "GroupNormalization", [x, gamma, beta], attributes, opset, output_types=types)
    # onnxruntime's is a function whose variance is mean(x²) - mean(x)², which cancels, in fp16 for fp16.
    agrees = dtype == "float32" and "stash_type" not in attributes and x.size > 0
    if agrees:
        rows = exact(x).reshape(shape[0], groups, -1)
        agrees = bool((rows.std(-1) > np.abs(rows.mean(-1))).all())
    return channels_last(draw, example(draw, node, results, agrees))


@st.composite
def contrib_group_norms(draw: st.DrawFn) -> Example:
    """com.microsoft's GroupNorm and SkipGroupNorm, which onnxruntime has on GPUs only."""
    dtype = draw(st.sampled_from(("float16", "bfloat16", "float32")))
    groups, width = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    n, height, breadth = (draw(st.integers(0, 5)) for _ in range(3))
    channels = groups * width
    x = values(draw, (n, channels, height, breadth), dtype)
    parameters = [parameter(draw, (channels,), draw(st.sampled_from(("float16", "float32")))) for _ in range(2)]
    last, silu, skips = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())
    attributes: dict[str, Any] = {"groups": groups, "activation": int(silu)}
    if not last or draw(st.booleans()):
        attributes["channels_last"] = int(last)
    unit, epsilon = accumulation_unit(dtype), epsilon_of(draw, attributes)
    inputs: list[np.ndarray | None] = [x, *parameters]
    total, size = exact(x), magnitude(x)
    if skips:
        whole = draw(st.booleans())
        skip = values(draw, x.shape if whole else (n, channels, 1, 1), dtype)
        bias = parameter(draw, (channels,), dtype) if draw(st.booleans()) else None
        total = total + exact(skip) + (0.0 if bias is None else by_channel(bias, x))
        size = size + magnitude(skip) + (0.0 if bias is None else np.abs(by_channel(bias, x)))
        flat = not whole and draw(st.booleans())
        inputs += [skip.reshape(n, channels) if flat else skip, *([] if bias is None else [bias])]
    y, bound = grouped_norm(total, *parameters, groups, epsilon, 3 * unit)
    largest = size.max((1, 2, 3), keepdims=True, initial=0.0)
    with np.errstate(all="ignore"):
        lost = 3 * unit * largest / epsilon**0.5 if skips else 0.0
        bound = bound + lost
        if silu:
            y, bound = y / (1 + np.exp(-y)), 1.1 * bound + 8 * unit * magnitude(y)
    y = np.where(np.isnan(y), np.nan, y)
    results = [(y, bound), (total, 4 * unit * size)][: 2 if skips else 1]
    if skips and draw(st.booleans()):
        results.pop()

    def laid_out(array: np.ndarray) -> np.ndarray:
        return np.moveaxis(array, 1, -1).copy() if last and array.ndim == 4 else array

    types = [(tensor_type(x), laid_out(x).shape)] * len(results)
    inputs = [a if a is None else laid_out(a) for a in inputs]
    op = "SkipGroupNorm" if skips else "GroupNorm"
    node = NodeCase("random", op, inputs, attributes, domain=MICROSOFT, n_outputs=len(results), output_types=types)
    return example(draw, node, [(laid_out(w), laid_out(b)) for w, b in results], False)


@st.composite
def lp_norms(draw: st.DrawFn) -> Example:
    opset = draw(st.integers(7, NEWEST_OPSET))
    dtype = draw(st.sampled_from(legal_dtypes("LpNormalization", opset)))
    shape = draw(shapes(least=1))
    x = floats(draw, shape, dtype, exponent=4 if dtype == "float16" else 40)
    if draw(st.booleans()):
        x[: draw(st.integers(0, 2))] = 0
    attributes: dict[str, Any] = {}
    axis, p = -1, 2
    if draw(st.booleans()):
        attributes["axis"] = axis = draw(st.integers(-len(shape), len(shape) - 1))
    if draw(st.booleans()):
        attributes["p"] = p = draw(st.integers(1, 2))
    if p == 1 and draw(st.booleans()):
        x = (exact(x) * float(ml_dtypes.finfo(x.dtype).smallest_subnormal)).astype(x.dtype)
    wide = exact(x)
    with np.errstate(all="ignore"):
        norm = np.abs(wide).sum(axis, keepdims=True) if p == 1 else np.sqrt((wide * wide).sum(axis, keepdims=True))
        want = np.where(norm == 0, 0.0, wide / norm)
    bound = accumulation_unit(dtype) * (8 + 2 * shape[axis] ** 0.5) * magnitude(want)
    node = NodeCase("random", "LpNormalization", [x], attributes, opset)
    return example(draw, node, [(want, bound)])


@st.composite
def mean_variance_norms(draw: st.DrawFn) -> Example:
    """Without rows that are all alike: deviations of rounding errors from their mean are as large as one."""
    opset = draw(st.integers(9, NEWEST_OPSET))
    dtype = draw(st.sampled_from(legal_dtypes("MeanVarianceNormalization", opset)))
    shape = draw(shapes(least=1))
    x = values(draw, shape, dtype)
    attributes: dict[str, Any] = {}
    axes = [0, 2, 3]
    if len(shape) < 4 or draw(st.booleans()):
        some = st.lists(st.integers(-len(shape), len(shape) - 1), min_size=1, unique_by=lambda a: a % len(shape))
        axes = draw(some)
        attributes["axes"] = axes
    reduced = tuple(axis % len(shape) for axis in axes)
    norm = standardised(exact(x), reduced, 0.0, accumulation_unit(dtype))
    with np.errstate(all="ignore"):
        deviation = np.sqrt(norm.variance)
        want = (exact(x) - norm.mean) / (deviation + 1e-9)
        bound = np.where(norm.mean_bound * 1e3 > deviation, 2.0 * prod(shape), norm.y_bound)
    bound = np.nan_to_num(np.broadcast_to(bound, shape), nan=np.inf)
    types = [(tensor_type(x), shape)]
    node = NodeCase("random", "MeanVarianceNormalization", [x], attributes, opset, output_types=types)
    # onnxruntime's variance is mean(x²) - mean(x)², which cancels; other types fail in its function.
    agrees = dtype == "float32" and bool((deviation > np.abs(norm.mean)).all())
    return example(draw, node, [(want, bound)], agrees)


@st.composite
def local_response_norms(draw: st.DrawFn) -> Example:
    opset = draw(st.integers(7, NEWEST_OPSET))
    dtype = draw(st.sampled_from(legal_dtypes("LRN", opset)))
    x = floats(draw, draw(shapes(least=2, most=6)), dtype, exponent=draw(st.sampled_from((0, 6))))
    size = draw(st.integers(1, 12))
    given = {
        name: draw(st.sampled_from(choices))
        for name, choices in (
            ("alpha", (0.0, 0.5, 3.0)),
            ("beta", (-1.0, 0.0, 0.5, 2.0, 3.3)),
            ("bias", (0.0, 1.0, 1.5, 1e10)),
        )
        if draw(st.booleans())
    }
    alpha, beta, bias = (
        float(np.float32(given.get(name, default)))
        for name, default in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))
    )
    wide = exact(x)
    with np.errstate(all="ignore"):
        squares = wide * wide
        sums = np.zeros_like(wide)
        for c in range(x.shape[1]):
            sums[:, c] = squares[:, max(0, c - (size - 1) // 2) : c + size // 2 + 1].sum(1)
        want = wide / (bias + alpha / size * sums) ** beta
    unit = accumulation_unit(dtype) * (8 + size)
    node = NodeCase("random", "LRN", [x], {"size": size, **given}, opset)
    bound = unit * (1 + abs(beta)) * magnitude(want)
    # onnxruntime takes nothing else; and its sums, which slide, carry infinities along and cancel.
    agrees = size % 2 == 1 and x.ndim == 4 and min(alpha, beta) > 0
    agrees = agrees and bool((alpha / size * squares <= bias).all())
    return channels_last(draw, example(draw, node, [(want, bound)], agrees))


RANDOM = settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])


@RANDOM
@given(layer_norms())
def test_layer_norm(example: Example) -> None:
    example.check()


@RANDOM
@given(skip_norms())
def test_skip_norm(example: Example) -> None:
    example.check()


@RANDOM
@given(batch_norms())
def test_batch_norm(example: Example) -> None:
    example.check()


@RANDOM
@given(instance_norms())
def test_instance_norm(example: Example) -> None:
    example.check()


@RANDOM
@given(group_norms())
def test_group_norm(example: Example) -> None:
    example.check()


@RANDOM
@given(contrib_group_norms())
def test_contrib_group_norm(example: Example) -> None:
    example.check()


@RANDOM
@given(lp_norms())
def test_lp_norm(example: Example) -> None:
    example.check()


@RANDOM
@given(mean_variance_norms())
def test_mean_variance_norm(example: Example) -> None:
    example.check()


@RANDOM
@given(local_response_norms())
def test_local_response_norm(example: Example) -> None:
    example.check()
