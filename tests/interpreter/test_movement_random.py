"""Operators that only move data, with random forms, shapes and bits of every type, against onnxruntime."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from cases.drawing import (
    FLOATS,
    INTEGERS,
    bits,
    check_bits,
    check_moved,
    numpy_dtype,
    opsets,
    seeds,
    shapes,
    type_of,
    types,
    with_types,
)
from cases.indexing import put_steps
from cases.node_case import NodeCase, ints
from examples import examples
from gossamer.program import Target
from gossamer.run.interpreter import InterpreterExecutor
from harness import assert_close, lower_model

many = settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def arrays(draw: st.DrawFn, op_type: str, opset: int, shape: tuple[int, ...]) -> np.ndarray:
    return bits(draw(seeds), shape, draw(st.sampled_from(types(op_type, opset))))


def _node(
    op_type: str, opset: int, inputs: Sequence[np.ndarray | None], attributes: Mapping[str, Any] = {}, **rest: Any
) -> NodeCase:
    """Every input but the first is a constant, unless `constants` says otherwise."""
    rest.setdefault("constants", tuple(range(1, len(inputs))))
    return NodeCase("random", op_type, inputs, attributes, opset, **rest)


def _signed(draw: st.DrawFn, axis: int, rank: int, opset: int, since: int) -> int:
    """The axis, counted from the end as well where the operator's version allows it."""
    return axis - rank if opset >= since and draw(st.booleans()) else axis


@st.composite
def views(draw: st.DrawFn) -> NodeCase:
    op_type = draw(st.sampled_from(("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "BitCast")))
    opset = draw(st.sampled_from(opsets(op_type)))
    shape = draw(shapes())
    x = draw(arrays(op_type, opset, shape))
    make = {"Identity": _identity, "Reshape": _reshape, "Flatten": _flatten, "BitCast": _bit_cast}
    return make.get(op_type, _squeeze)(draw, op_type, opset, x)


def _bit_cast(draw: st.DrawFn, op_type: str, opset: int, x: np.ndarray) -> NodeCase:
    """To any type of the width; bytes become booleans where they are 0 or 1."""
    to = draw(st.sampled_from([t for t in types(op_type, opset) if numpy_dtype(t).itemsize == x.itemsize]))
    x = np.asarray(x.view(np.uint8) % 2).view(x.dtype) if to == "bool" else x
    return _node(op_type, opset, [x], {"to": type_of(to)}, want=_give(x.view(numpy_dtype(to))))


def _identity(draw: st.DrawFn, op_type: str, opset: int, x: np.ndarray) -> NodeCase:
    return _node(op_type, opset, [x])


def _reshape(draw: st.DrawFn, op_type: str, opset: int, x: np.ndarray) -> NodeCase:
    allow_zero = opset >= 14 and draw(st.booleans())
    rest, target = x.size, []
    for _ in range(draw(st.integers(0, 7))):
        divisors = [n for n in range(1, min(rest, 50) + 1) if rest % n == 0] or [0, 1, 2, 5]
        target.append(draw(st.sampled_from(divisors)))
        rest = rest // target[-1] if target[-1] else 0
    if math.prod(target) != x.size:
        target.append(rest)
    for i, extent in enumerate(target):
        if not allow_zero and i < x.ndim and x.shape[i] == extent and draw(st.booleans()):
            target[i] = 0
    if not allow_zero:
        target = [1 if n == 0 and (i >= x.ndim or x.shape[i] != 0) and x.size == 0 else n for i, n in enumerate(target)]
        if x.size == 0 and 0 not in [x.shape[i] if n == 0 else n for i, n in enumerate(target)]:
            target = [0] * x.ndim
    known = [n for n in target if n]
    if x.size and known and draw(st.booleans()):
        target[draw(st.sampled_from([i for i, n in enumerate(target) if n]))] = -1
    attributes = {"allowzero": int(allow_zero)} if opset >= 14 else {}
    return _node(op_type, opset, [x, ints(*target)], attributes)


def _flatten(draw: st.DrawFn, op_type: str, opset: int, x: np.ndarray) -> NodeCase:
    axis = draw(st.integers(-x.ndim if opset >= 11 else 0, x.ndim))
    return _node(op_type, opset, [x], {"axis": axis} if axis != 1 or draw(st.booleans()) else {})


def _squeeze(draw: st.DrawFn, op_type: str, opset: int, x: np.ndarray) -> NodeCase:
    if op_type == "Squeeze":
        ones = [i for i, extent in enumerate(x.shape) if extent == 1]
        rank, chosen = x.ndim, draw(st.lists(st.sampled_from(ones), unique=True)) if ones else []
        if not chosen:
            return _node(op_type, opset, [x])
    else:
        rank = min(x.ndim + draw(st.integers(1, 3)), 8)
        if rank == x.ndim:
            x, rank = x.reshape(-1), 3
        chosen = draw(st.permutations(range(rank)))[: rank - x.ndim]
    axes = [_signed(draw, axis, rank, opset, 11) for axis in chosen]
    return _node(op_type, opset, [x], {"axes": axes}) if opset < 13 else _node(op_type, opset, [x, ints(*axes)])


@many
@given(views())
def test_views(node: NodeCase) -> None:
    check_moved(node)


@st.composite
def copies(draw: st.DrawFn) -> NodeCase:
    op_type, make = draw(st.sampled_from(tuple(_COPIES.items())))
    return make(draw, op_type, draw(st.sampled_from(opsets(op_type))))


def _transpose(draw: st.DrawFn, op_type: str, opset: int) -> NodeCase:
    x = draw(arrays(op_type, opset, draw(shapes())))
    attributes = {"perm": draw(st.permutations(range(x.ndim)))} if x.ndim and draw(st.booleans()) else {}
    return _node(op_type, opset, [x], attributes)


def _expand(draw: st.DrawFn, op_type: str, opset: int) -> NodeCase:
    """Either shape may be of the lower rank, and either may be broadcast."""
    full = draw(shapes())
    x_shape, y_shape = ([1 if draw(st.booleans()) else n for n in full] for _ in range(2))
    cut = draw(st.integers(0, len(full)))
    x_shape, y_shape = (x_shape[cut:], y_shape) if draw(st.booleans()) else (x_shape, y_shape[cut:])
    return _node(op_type, opset, [draw(arrays(op_type, opset, tuple(x_shape))), ints(*y_shape)])


def _tile(draw: st.DrawFn, op_type: str, opset: int) -> NodeCase:
    x = draw(arrays(op_type, opset, draw(shapes(1, size=300))))
    room, repeats = 4000 // max(x.size, 1), []
    for _ in range(x.ndim):
        repeats.append(draw(st.integers(0, min(room, 3))))
        room //= max(repeats[-1], 1)
    return _node(op_type, opset, [x, ints(*repeats)])


def _concat(draw: st.DrawFn, op_type: str, opset: int) -> NodeCase:
    shape = draw(shapes(1, size=500))
    axis = draw(st.integers(0, len(shape) - 1))
    dtype, seed, inputs = draw(st.sampled_from(types(op_type, opset))), draw(seeds), []
    for i in range(draw(st.integers(1, 20))):
        part = list(shape)
        part[axis] = draw(st.sampled_from((0, 1, 2, 5, 17)))
        inputs.append(bits(seed + i, part, dtype))
    constants = tuple(i for i in range(len(inputs)) if draw(st.integers(0, 4)) == 0)
    return _node(op_type, opset, inputs, {"axis": _signed(draw, axis, len(shape), opset, 11)}, constants=constants)


def _split(draw: st.DrawFn, op_type: str, opset: int) -> NodeCase:
    shape = list(draw(shapes(1, size=500)))
    axis, parts = draw(st.integers(0, len(shape) - 1)), draw(st.integers(1, 12))
    attributes: dict[str, Any] = {"axis": _signed(draw, axis, len(shape), opset, 11)}
    if draw(st.booleans()):
        sizes = [draw(st.sampled_from((0, 1, 2, 3, 16))) for _ in range(parts)]
        shape[axis] = sum(sizes)
        x = draw(arrays(op_type, opset, tuple(shape)))
        if opset < 13:
            return _node(op_type, opset, [x], attributes | {"split": sizes}, n_outputs=parts)
        return _node(op_type, opset, [x, ints(*sizes)], attributes, n_outputs=parts)
    shape[axis] = parts * draw(st.integers(0, 3))
    if opset >= 18:
        attributes["num_outputs"] = parts
        if shape[axis]:  # the last part may be smaller
            shape[axis] -= draw(st.integers(0, shape[axis] // parts - 1))
    return _node(op_type, opset, [draw(arrays(op_type, opset, tuple(shape)))], attributes, n_outputs=parts)


def _slice(draw: st.DrawFn, op_type: str, opset: int) -> NodeCase:
    """Bounds far outside of the axis too, as exporters write them for "to the end"."""
    x = draw(arrays(op_type, opset, draw(shapes(1, sides=(0, 1, 2, 5, 9)))))
    axes = draw(st.permutations(range(x.ndim)))[: draw(st.integers(1, x.ndim))]
    kind = draw(st.sampled_from((np.int32, np.int64)))
    most = int(np.iinfo(kind).max)
    bound = st.one_of(st.integers(-10, 10), st.sampled_from((most, -most - 1, -most)))
    starts, ends = ([draw(bound) for _ in axes] for _ in range(2))
    if opset < 10:
        named: dict[str, Any] = {"starts": starts, "ends": ends}
        if axes != list(range(len(axes))) or draw(st.booleans()):
            named["axes"] = axes
        return _node(op_type, opset, [x], named)
    steps = [draw(st.sampled_from((1, -1, 2, -2, 3, 7, -9, most, -most))) for _ in axes]
    signed = [_signed(draw, axis, x.ndim, opset, 11) for axis in axes]
    inputs: list[np.ndarray | None] = [x, np.array(starts, kind), np.array(ends, kind), np.array(signed, kind)]
    if axes == list(range(len(axes))) and draw(st.booleans()):
        inputs[3] = None
    if draw(st.integers(0, 3)):
        inputs.append(np.array(steps, kind))
    while inputs[-1] is None:
        inputs.pop()
    return _node(op_type, opset, inputs)


def _blocks(draw: st.DrawFn, op_type: str, opset: int) -> NodeCase:
    block = draw(st.integers(1, 3))
    n, channels, height, width = (draw(st.integers(0 if i == 0 else 1, 4)) for i in range(4))
    attributes: dict[str, Any] = {"blocksize": block}
    if op_type == "SpaceToDepth":
        x = draw(arrays(op_type, opset, (n, channels, height * block, width * block)))
        if opset >= 28:
            attributes["mode"] = draw(st.sampled_from(("DCR", "CRD")))
        return _node(op_type, opset, [x], attributes, want=_space_to_depth(x, block, attributes.get("mode", "DCR")))
    if opset >= 11:
        attributes["mode"] = draw(st.sampled_from(("DCR", "CRD")))
    x = draw(arrays(op_type, opset, (n, channels * block**2, height, width)))
    return _node(op_type, opset, [x], attributes, want=_depth_to_space(x, block, attributes.get("mode", "DCR")))


def _space_to_depth(x: np.ndarray, block: int, mode: str) -> Any:
    """By the operator's text: onnxruntime knows no CRD here, and too few types."""
    n, channels, height, width = x.shape
    cells = x.reshape(n, channels, height // block, block, width // block, block)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return lambda: [cells.transpose(order).reshape(n, channels * block**2, height // block, width // block)]


def _depth_to_space(x: np.ndarray, block: int, mode: str) -> Any:
    n, channels, height, width = x.shape
    depth = channels // block**2
    if mode == "DCR":
        cells = x.reshape(n, block, block, depth, height, width).transpose(0, 3, 4, 1, 5, 2)
    else:
        cells = x.reshape(n, depth, block, block, height, width).transpose(0, 1, 4, 2, 5, 3)
    return lambda: [cells.reshape(n, depth, height * block, width * block)]


_COPIES: dict[str, Any] = {
    "Transpose": _transpose,
    "Expand": _expand,
    "Tile": _tile,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "DepthToSpace": _blocks,
    "SpaceToDepth": _blocks,
}


@many
@given(copies())
def test_copies(node: NodeCase) -> None:
    check_moved(node)


@st.composite
def pads(draw: st.DrawFn) -> NodeCase:
    op_type, opset = "Pad", draw(st.sampled_from(opsets("Pad")))
    x = draw(arrays(op_type, opset, draw(shapes(1, 6, sides=(0, 1, 2, 3, 5), size=200))))
    modes = ("constant", "reflect", "edge", "wrap") if opset >= 19 else ("constant", "reflect", "edge")
    mode = draw(st.sampled_from(modes))
    axes = list(range(x.ndim))
    if opset >= 18 and draw(st.booleans()):
        axes = draw(st.permutations(axes))[: draw(st.integers(1, x.ndim))]
    widths: list[tuple[int, int]] = [(0, 0)] * x.ndim
    for axis in axes:
        widths[axis] = draw(_widths(x.shape[axis], mode))
    flat = [widths[axis][end] for end in (0, 1) for axis in axes]
    value = bits(draw(seeds), (), x.dtype.name)
    attributes: dict[str, Any] = {} if mode == "constant" and draw(st.booleans()) else {"mode": mode}
    if opset < 11:
        number = draw(st.sampled_from((0.0, 1.0, -2.5))) if x.dtype.kind not in "b" else 1.0
        value = np.array(number).astype(x.dtype) if draw(st.booleans()) else None
        attributes |= {"pads": flat} | ({} if value is None else {"value": number})
        return _node("Pad", opset, [x], attributes, want=lambda: [_padded(x, widths, mode, value)])
    inputs: list[np.ndarray | None] = [x, ints(*flat), value if draw(st.booleans()) else None]
    given, constants = inputs[2], [1]
    if draw(st.booleans()):
        constants.append(2)
    if opset >= 18 and (axes != list(range(x.ndim)) or draw(st.booleans())):
        kind = draw(st.sampled_from((np.int32, np.int64)))
        inputs.append(np.array([_signed(draw, axis, x.ndim, opset, 0) for axis in axes], kind))
        constants.append(3)
    while inputs[-1] is None:
        inputs.pop()
    want = lambda: [_padded(x, widths, mode, given)]  # noqa: E731
    return _node("Pad", opset, inputs, attributes, constants=tuple(c for c in constants if c < len(inputs)), want=want)


@st.composite
def _widths(draw: st.DrawFn, extent: int, mode: str) -> tuple[int, int]:
    """Before and after. What is left of an axis by negative ones cannot be empty where it has to be continued."""
    before, after = (draw(st.sampled_from((0, 0, 1, 2, 5, 11, -1, -2, -4))) for _ in range(2))
    if extent + min(before, 0) + min(after, 0) <= (-1 if mode == "constant" else 0):
        before, after = max(before, 0), max(after, 0)
    if extent == 0 and mode != "constant":
        return 0, 0
    return (before, after) if extent + before + after >= 0 else (0, 0)


def _padded(x: np.ndarray, widths: Sequence[tuple[int, int]], mode: str, value: np.ndarray | None) -> np.ndarray:
    """By the operator's text, which refers to numpy.pad; negative pads remove. onnxruntime refuses some of these, or
    continues with what was removed."""
    inner = tuple(slice(max(-b, 0), n - max(-a, 0)) for (b, a), n in zip(widths, x.shape, strict=True))
    outer = [(max(b, 0), max(a, 0)) for b, a in widths]
    if mode == "constant":
        return np.pad(x[inner], outer, constant_values=x.dtype.type(0) if value is None else value)
    return np.pad(x[inner], outer, mode=mode)


@many
@given(pads())
def test_pads(node: NodeCase) -> None:
    check_moved(node)


@st.composite
def gathers(draw: st.DrawFn) -> NodeCase:
    op_type = draw(st.sampled_from(("Gather", "GatherElements", "GatherND")))
    opset = draw(st.sampled_from(opsets(op_type)))
    x = draw(arrays(op_type, opset, draw(shapes(1, 6, size=500))))
    kind = draw(st.sampled_from((np.int32, np.int64))) if op_type != "GatherND" else np.int64
    least = -1 if opset >= 11 else 0
    rng = np.random.default_rng(draw(seeds))
    constants = (1,) if draw(st.booleans()) else ()
    if op_type == "GatherND":
        return _gather_nd(draw, opset, x, rng, constants)
    axis = draw(st.integers(0, x.ndim - 1))
    attributes = {"axis": _signed(draw, axis, x.ndim, opset, 1)} if axis or draw(st.booleans()) else {}
    extent = x.shape[axis]
    if op_type == "Gather":
        shape = draw(shapes(0, 3, size=60))
    else:
        shape = tuple(draw(st.integers(0, n)) for n in x.shape)
        shape = (*shape[:axis], draw(st.integers(0, 9)), *shape[axis + 1 :])
    if extent == 0:
        shape = (*shape[:axis], 0, *shape[axis + 1 :]) if op_type == "GatherElements" else (0, *shape[1:])
    indices = rng.integers(least * extent, max(extent, 1), shape).astype(kind)
    return _node(op_type, opset, [x, indices], attributes, constants=constants)


def _gather_nd(
    draw: st.DrawFn, opset: int, x: np.ndarray, rng: np.random.Generator, constants: tuple[int, ...]
) -> NodeCase:
    batch = draw(st.integers(0, x.ndim - 1)) if opset >= 12 else 0
    length = draw(st.integers(1, x.ndim - batch))
    extents = x.shape[batch : batch + length]
    middle = draw(shapes(0, 2, size=30))
    if 0 in extents:
        middle = (0, *middle[1:])
    shape = (*x.shape[:batch], *middle)
    indices = np.stack([rng.integers(-n, max(n, 1), shape) for n in extents], axis=-1)
    attributes = {"batch_dims": batch} if opset >= 12 else {}
    return _node("GatherND", opset, [x, indices], attributes, constants=constants)


@many
@given(gathers())
def test_gathers(node: NodeCase) -> None:
    check_moved(node)


@st.composite
def scatters(draw: st.DrawFn) -> NodeCase:
    """Without a reduction: every element gets at most one update."""
    op_type = draw(st.sampled_from(("Scatter", "ScatterElements", "ScatterND")))
    opset = 9 if op_type == "Scatter" else draw(st.sampled_from(opsets(op_type)))
    x = draw(arrays(op_type, opset, draw(shapes(1, 5, size=500))))
    rng = np.random.default_rng(draw(seeds))
    if op_type == "ScatterND":
        length = draw(st.integers(1, x.ndim))
        places = math.prod(x.shape[:length])
        chosen = rng.permutation(places)[: draw(st.integers(0, places))]
        indices = np.stack(np.unravel_index(chosen, x.shape[:length]), -1) if places else np.zeros((0, length), int)
        extents, shape = np.array(x.shape[:length]), (len(indices), *x.shape[length:])
        if draw(st.booleans()):
            indices, shape = indices[None], (1, *shape)
        kind, attributes = np.int64, {}
    else:
        axis = draw(st.integers(0, x.ndim - 1))
        attributes = {"axis": _signed(draw, axis, x.ndim, opset, 1)} if axis or draw(st.booleans()) else {}
        shape = tuple(draw(st.integers(0, n)) for n in x.shape)
        order = rng.random((*shape[:axis], x.shape[axis], *shape[axis + 1 :])).argsort(axis)
        indices = np.take(order, np.arange(shape[axis]), axis)
        extents, kind = x.shape[axis], draw(st.sampled_from((np.int32, np.int64)))
    if opset >= 11:
        indices = indices - np.where(rng.random(indices.shape) < 0.4, extents, 0)
    if opset >= 16 and draw(st.booleans()):
        attributes["reduction"] = "none"
    updates = bits(draw(seeds), shape, x.dtype.name)
    constants = draw(st.sampled_from(((), (1,), (2,), (1, 2), (0,))))
    return _node(op_type, opset, [x, indices.astype(kind), updates], attributes, constants=constants)


@many
@given(scatters())
def test_scatters(node: NodeCase) -> None:
    check_moved(node)


@st.composite
def cache_updates(draw: st.DrawFn) -> NodeCase:
    """Steps that the cache has no slots for, too, in which case they go nowhere."""
    opset = draw(st.sampled_from(opsets("TensorScatter")))
    shape = draw(shapes(2, 6, sides=(0, 1, 2, 3, 5, 9), size=500))
    axis = draw(st.integers(1, len(shape) - 1))
    cache = draw(arrays("TensorScatter", opset, shape))
    update = bits(draw(seeds), (*shape[:axis], draw(st.integers(0, shape[axis])), *shape[axis + 1 :]), cache.dtype.name)
    first = np.random.default_rng(draw(seeds)).integers(-3, 2 * shape[axis] + 1, shape[0])
    mode = draw(st.sampled_from(("linear", "circular")))
    attributes: dict[str, Any] = {"mode": mode} if mode == "circular" or draw(st.booleans()) else {}
    if axis != len(shape) - 2 or draw(st.booleans()):
        attributes["axis"] = axis - len(shape) if draw(st.booleans()) else axis
    given = draw(st.sampled_from((None, first)))
    want = put_steps(cache, update, given, axis, mode)
    inputs = [cache, update] if given is None else [cache, update, given]
    constants = draw(st.sampled_from(((), (0,), (1,), (0, 1))))
    return _node("TensorScatter", opset, inputs, attributes, constants=constants, want=_give(want))


@many
@given(cache_updates())
def test_cache_updates(node: NodeCase) -> None:
    check_bits(node, node.want() if node.want else [])


HALVES = ("float16", "bfloat16")
TOLERANCES = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-5, "float64": 1e-13}
"""Of sums and products of dozens of numbers near one, relative to the largest; bf16 is truncated by the interpreter."""

_UFUNCS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@st.composite
def reductions(draw: st.DrawFn) -> tuple[NodeCase, bool]:
    """Updates that meet, and whether their order is to be kept."""
    op_type = draw(st.sampled_from(("ScatterElements", "ScatterND")))
    opset = draw(st.sampled_from((16, 18)))
    reduction = draw(st.sampled_from(("add", "mul") if opset < 18 else tuple(_UFUNCS)))
    dtype = draw(st.sampled_from((*FLOATS, *INTEGERS, "bool")))
    x_shape = draw(shapes(1, 4, sides=(0, 1, 2, 3, 7), size=200))
    rng = np.random.default_rng(draw(seeds))
    axis = draw(st.integers(0, len(x_shape) - 1))
    if op_type == "ScatterND":
        length = axis + 1
        n = draw(st.integers(0, 30)) if math.prod(x_shape[:length]) else 0
        indices = np.stack([rng.integers(-extent, max(extent, 1), n) for extent in x_shape[:length]], -1)
        places: tuple[np.ndarray, ...] = tuple(indices.T)
        shape = (n, *x_shape[length:])
    else:
        shape = tuple(draw(st.integers(0, n)) for n in x_shape)
        shape = (*shape[:axis], draw(st.integers(0, 30)) if x_shape[axis] else 0, *shape[axis + 1 :])
        indices = rng.integers(-x_shape[axis], max(x_shape[axis], 1), shape)
        places = tuple(indices if d == axis else grid for d, grid in enumerate(np.indices(shape)))
    special = draw(st.booleans())
    x, updates = (_operand(rng, of, dtype, special) for of in (x_shape, shape))
    attributes: dict[str, Any] = {"reduction": reduction}
    if op_type == "ScatterElements":
        attributes["axis"] = axis
    want = x.astype(np.float32) if dtype in HALVES else x.copy()
    with np.errstate(all="ignore"):
        _UFUNCS[reduction].at(want, places, updates.astype(want.dtype))
        want = want.astype(x.dtype)
    node = _node(op_type, opset, [x, indices, updates], attributes, constants=(), want=lambda: [want], rtol=1e-5)
    return node, draw(st.booleans())


def _operand(rng: np.random.Generator, shape: Sequence[int], dtype: str, special: bool) -> np.ndarray:
    if dtype not in FLOATS:
        return bits(int(rng.integers(2**32)), shape, dtype)
    x = np.exp2(rng.uniform(-0.5, 0.5, shape)) * rng.choice((-1, 1), shape)  # products of dozens stay in range
    if special:
        x = np.where(rng.random(shape) < 0.2, rng.choice((np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0), shape), x)
    return np.asarray(x).astype(numpy_dtype(dtype))


@many
@given(reductions())
def test_scatter_reductions(drawn: tuple[NodeCase, bool]) -> None:
    node, ordered = drawn
    (want,) = node.want() if node.want else []
    target = replace(Target.named("interpreter"), deterministic=ordered)
    program, constants = lower_model(with_types(node, [want]).model(), target)
    got = InterpreterExecutor(constants).run(program, node.feeds())["y0"]
    if want.dtype.name in FLOATS:
        assert_close(got, want, rtol=TOLERANCES[want.dtype.name])
    else:
        np.testing.assert_array_equal(got, want)


@st.composite
def generators(draw: st.DrawFn) -> NodeCase:
    op_type, make = draw(st.sampled_from(tuple(_GENERATORS.items())))
    return make(draw, op_type, draw(st.sampled_from(opsets(op_type))))


def _constant_of_shape(draw: st.DrawFn, op_type: str, opset: int) -> NodeCase:
    shape = draw(shapes())
    if draw(st.integers(0, 5)) == 0:
        return _node("ConstantOfShape", opset, [ints(*shape)], constants=(0,), want=_give(np.zeros(shape, np.float32)))
    dtypes = ("float16", "float32", "float64", *INTEGERS, "bool", *(("bfloat16",) if opset >= 20 else ()))
    value = bits(draw(seeds), (1,), draw(st.sampled_from(dtypes)))
    attributes = {"value": numpy_helper.from_array(value)}
    return _node(
        "ConstantOfShape", opset, [ints(*shape)], attributes, constants=(0,), want=_give(np.full(shape, value))
    )


def _range(draw: st.DrawFn, op_type: str, opset: int) -> NodeCase:
    """Floats are multiples of 1/8, which every type holds: how many there are is a rounded quotient."""
    dtype = draw(st.sampled_from(types(op_type, opset)))
    if "float" in dtype:
        start, delta = (draw(st.integers(-40, 40)) / 8 for _ in range(2))
    else:
        start, delta = (draw(st.sampled_from((0, 1, -1, 100, -3, 2**14, -(2**13)))) for _ in range(2))
        start += draw(st.sampled_from((0, 2**62, -(2**62)))) if dtype == "int64" else 0
    delta = delta or 1
    n = draw(st.integers(0, 20))
    if dtype == "int16":
        n = min(n, max(0, 32767 - abs(start)) // abs(delta))
    limit = start + (n - 0.5 * (draw(st.booleans()) and "float" in dtype)) * delta
    if "float" not in dtype:
        limit = start + n * delta
    kind = numpy_dtype(dtype)
    numbers = [np.array(number).astype(kind) for number in (start, limit, delta)]
    want = np.array([start + i * delta for i in range(n)]).astype(kind)
    constants = draw(st.sampled_from(((), (0, 1, 2))))
    attributes = {"stash_type": 1} if opset >= 27 and draw(st.booleans()) else {}
    return _node("Range", opset, numbers, attributes, constants=constants, want=_give(want))


def _eye_like(draw: st.DrawFn, op_type: str, opset: int) -> NodeCase:
    n, m = draw(st.integers(0, 6)), draw(st.integers(0, 6))
    dtype = draw(st.sampled_from(types(op_type, opset)))
    out, attributes = dtype, {"k": draw(st.integers(-8, 8))}
    if draw(st.booleans()):
        out = draw(st.sampled_from(("float16", "float32", "float64", *INTEGERS, "bool")))
        attributes["dtype"] = type_of(out)
    x = bits(draw(seeds), (n, m), dtype)
    return _node("EyeLike", opset, [x], attributes, want=_give(np.eye(n, m, attributes["k"]).astype(out)))


def _one_hot(draw: st.DrawFn, op_type: str, opset: int) -> NodeCase:
    """Before opset 11 an entry outside of 0 … depth - 1 is off; from then on one outside of -depth … depth - 1.
    onnxruntime counts from the end in both."""
    dtypes = ("float16", "float32", "float64", *INTEGERS)
    indices_type = draw(st.sampled_from(dtypes))
    shape, depth = draw(shapes(0, 4, size=300)), draw(st.integers(1, 9))
    indices = np.random.default_rng(draw(seeds)).integers(-2 * depth, 2 * depth, shape)
    indices = np.abs(indices) if indices_type.startswith("u") else indices
    given = indices.astype(indices_type)
    if "int" in indices_type and draw(st.integers(0, 3)) == 0:
        given = bits(draw(seeds), shape, indices_type)
        indices = given.astype(object)
    if "float" in indices_type and draw(st.booleans()):
        given = (given + np.sign(given) * 0.75).astype(indices_type)  # cast to int64: towards zero
    values = bits(draw(seeds), (2,), draw(st.sampled_from(types(op_type, opset, 2))))
    axis = draw(st.integers(0, len(shape)))
    classes = np.arange(depth).reshape([-1 if d == axis else 1 for d in range(len(shape) + 1)])
    places = np.where((indices < 0) & (opset >= 11), indices + depth, indices)
    want = np.where(np.expand_dims(places, axis) == classes, values[1], values[0])
    depth_type = draw(st.sampled_from(dtypes))
    depth_shape = draw(st.sampled_from(((), (1,))))
    inputs = [given, np.full(depth_shape, depth, depth_type), values]
    attributes = {"axis": _signed(draw, axis, len(shape) + 1, opset, 11)}
    return _node("OneHot", opset, inputs, attributes, constants=draw(st.sampled_from(((1,), (1, 2)))), want=_give(want))


def _trilu(draw: st.DrawFn, op_type: str, opset: int) -> NodeCase:
    x = draw(arrays(op_type, opset, draw(shapes(2, 5))))
    k = draw(st.sampled_from((None, 0, 1, -1, 3, -3, 100, 2**40, -(2**40))))
    upper = draw(st.sampled_from((None, 0, 1)))
    cut = np.tril if upper == 0 else np.triu
    inputs = [x] if k is None else [x, np.array(k).reshape(draw(st.sampled_from(((), (1,)))))]
    near = max(-99, min(99, k or 0))
    constants = draw(st.sampled_from(((), (1,)))) if k is not None else ()
    attributes = {} if upper is None else {"upper": upper}
    return _node("Trilu", opset, inputs, attributes, constants=constants, want=_give(cut(x, near)))


def _shape(draw: st.DrawFn, op_type: str, opset: int) -> NodeCase:
    x, attributes = draw(arrays(op_type, opset, draw(shapes()))), {}
    if opset >= 15:
        bounds = {"start": draw(st.integers(-10, 10)), "end": draw(st.integers(-10, 10))}
        attributes = {name: value for name, value in bounds.items() if draw(st.booleans())}
    return _node("Shape", opset, [x], attributes, want=_give(_part(x, **attributes)))


def _part(x: np.ndarray, start: int = 0, end: int | None = None) -> np.ndarray:
    """What a slice means, except that bounds before the first axis mean the first, not nothing."""
    return np.array(x.shape[start:end], np.int64)


def _size(draw: st.DrawFn, op_type: str, opset: int) -> NodeCase:
    x = draw(arrays(op_type, opset, draw(shapes())))
    return _node("Size", opset, [x], want=_give(np.array(x.size)))


def _give(want: np.ndarray) -> Any:
    return lambda: [want]


_GENERATORS: dict[str, Any] = {
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "EyeLike": _eye_like,
    "OneHot": _one_hot,
    "Trilu": _trilu,
    "Shape": _shape,
    "Size": _size,
}


@many
@given(generators())
def test_generators(node: NodeCase) -> None:
    check_bits(node, node.want() if node.want else [])
