"""Cases of Gather, GatherElements, GatherND, ScatterElements, ScatterND and TensorScatter."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from cases.node_case import MOVED_DTYPES, NodeCase, ints, random_array
from harness import tensor_type, tolerance

FLOATS = ("float16", "bfloat16", "float32", "float64")
REDUCED_DTYPES = [
    *FLOATS,
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
]


def _indices(detail: str, extent: int, *shape: int, dtype: str = "int64") -> np.ndarray:
    """Indices into an axis, negative ones among them."""
    return np.random.default_rng(zlib.crc32(detail.encode())).integers(-extent, extent, shape).astype(dtype)


def _gather(detail: str, x: np.ndarray, indices: np.ndarray, *constants: int, axis: int = 0) -> NodeCase:
    return NodeCase(f"Gather-{detail}", "Gather", [x, indices], {"axis": axis}, opset=13, constants=constants)


def _gathers() -> list[NodeCase]:
    x = random_array("gather", (5, 6, 7))
    return [
        *(_gather(f"axis_{a}", x, _indices("a", x.shape[a], 2, 9), axis=a) for a in (0, 1, 2, -1)),
        *(_gather(dtype, random_array("x", (9, 40), dtype), _indices(dtype, 9, 20)) for dtype in MOVED_DTYPES),
        _gather("int32", x, _indices("b", 5, 4, dtype="int32")),
        _gather("scalar", x, np.array(-2), axis=1),
        _gather("scalar_constant", x, np.array(-2), 1, axis=1),
        _gather("scalar_constant_view", random_array("x", (4, 8)), np.array(2), 1),
        _gather("constant", x, ints(0, 2), 1, axis=2),
        _gather("empty", x, np.zeros((0, 2), np.int64)),
        *(
            _gather(f"columns_of_{n}", random_array("x", (70, 50, n), "float16"), _indices("c", 50, 41), axis=1)
            for n in (1, 3, 31)
        ),
        *(
            _gather(f"long_rows_of_{n}", random_array("x", (3, 1030, n), "float16"), _indices("l", 1030, 1100), axis=1)
            for n in (1, 3)
        ),
        _gather("vector", random_array("x", (100,)), _indices("v", 100, 300)),
        NodeCase(
            "Gather-out_of_range",
            "Gather",
            [x, ints(0, 5, -6, 2**40, -1)],
            want=lambda: [np.stack([x[0], x[0] * 0, x[0] * 0, x[0] * 0, x[4]])],
        ),
    ]


def _element_shapes() -> list[tuple[str, tuple[int, ...], tuple[int, ...], int]]:
    """(name, shape of x, shape of the indices, axis)."""
    return [
        ("axis_0", (5, 6, 7), (3, 6, 7), 0),
        ("axis_1", (5, 6, 7), (5, 4, 7), 1),
        ("axis_2", (5, 6, 7), (5, 6, 2), -1),
        ("smaller", (5, 6, 7), (2, 3, 4), 1),
        ("vector", (200,), (50,), 0),
        ("no_indices", (5, 6), (0, 6), 0),
    ]


def _gather_elements() -> list[NodeCase]:
    def case(detail: str, x: np.ndarray, indices: np.ndarray, axis: int) -> NodeCase:
        return NodeCase(f"GatherElements-{detail}", "GatherElements", [x, indices], {"axis": axis}, opset=13)

    cases = [case(n, random_array("x", s), _indices(n, s[a], *i), a) for n, s, i, a in _element_shapes()]
    cases.append(case("more", random_array("x", (3, 4)), _indices("more", 4, 3, 90, dtype="int32"), 1))
    cases += [case(d, random_array("x", (3, 5), d), _indices(d, 5, 3, 2), 1) for d in MOVED_DTYPES]
    x = random_array("x", (3, 2))
    missing = np.array([[0, 3], [-3, -4]])
    cases.append(
        NodeCase(
            "GatherElements-out_of_range",
            "GatherElements",
            [x, missing],
            want=lambda: [np.array([[x[0, 0], 0], [x[0, 0], 0]], np.float32)],
        )
    )
    return cases


def _tuples(detail: str, extents: tuple[int, ...], *shape: int) -> np.ndarray:
    return np.stack([_indices(f"{detail}{i}", extent, *shape) for i, extent in enumerate(extents)], axis=-1)


def _gather_nds() -> list[NodeCase]:
    def case(detail: str, x: np.ndarray, indices: np.ndarray, batch_dims: int = 0) -> NodeCase:
        return NodeCase(f"GatherND-{detail}", "GatherND", [x, indices], {"batch_dims": batch_dims}, opset=13)

    x = random_array("nd", (2, 3, 4, 5))
    return [
        case("rows", x, _tuples("a", (2,), 7)),
        case("pairs", x, _tuples("b", (2, 3), 3, 5)),
        case("elements", x, _tuples("c", (2, 3, 4, 5), 40)),
        case("batch_1", x, _tuples("d", (3,), 2, 6), 1),
        case("batch_2", x, _tuples("e", (4, 5), 2, 3, 6), 2),
        case("one_tuple", x, _tuples("f", (2, 3))),
        *(case(d, random_array("x", (3, 4, 9), d), _tuples(d, (3, 4), 5)) for d in MOVED_DTYPES),
    ]


def _unique(detail: str, extents: tuple[int, ...], count: int) -> np.ndarray:
    """Distinct index tuples, some with negative members."""
    rng = np.random.default_rng(zlib.crc32(detail.encode()))
    flat = rng.permutation(int(np.prod(extents)))[:count]
    return np.stack(
        [
            np.where(rng.random(count) < 0.3, i - n, i)
            for i, n in zip(np.unravel_index(flat, extents), extents, strict=True)
        ],
        -1,
    )


def _scatter_elements() -> list[NodeCase]:
    def case(
        detail: str, x: np.ndarray, indices: np.ndarray, updates: np.ndarray, axis: int, opset: int = 18, **rest: Any
    ) -> NodeCase:
        op_type = "Scatter" if opset < 11 else "ScatterElements"
        return NodeCase(f"{op_type}-{detail}", op_type, [x, indices, updates], {"axis": axis, **rest}, opset=opset)

    cases = []
    for name, shape, index_shape, axis in _element_shapes():
        order = random_array("order", (*index_shape[:axis], shape[axis], *index_shape[axis:][1:])).argsort(axis)
        indices = np.take(order, np.arange(index_shape[axis]), axis) - shape[axis]
        x, updates = random_array("x", shape), random_array("u", index_shape)
        cases.append(case(name, x, indices, updates, axis))
        repeated = _indices(name, shape[axis], *index_shape)
        cases += [case(f"{name}_{r}", x, repeated, updates, axis, reduction=r) for r in ("add", "mul", "max", "min")]
    cases.append(case("old", random_array("x", (3, 5)), ints(1, 3)[None], random_array("u", (1, 2)), 1, 9))
    cases += [
        case(d, random_array("x", (3, 5), d), np.array([[1, -2], [0, 4], [-5, 1]]), random_array("u", (3, 2), d), 1)
        for d in MOVED_DTYPES
    ]
    cases += [_reduced(d, r) for d in REDUCED_DTYPES for r in ("add", "mul", "max", "min")]
    cases += [_extreme(d, r) for d in ("float16", "float32", "float64") for r in ("max", "min")]
    cases += [_crowded(r) for r in ("add", "mul", "max", "min")]
    cases += [_reduced_bool(r) for r in ("add", "mul", "max", "min")]
    cases.append(_out_of_range())
    return cases


def _reduced(dtype: str, reduction: str) -> NodeCase:
    """onnxruntime lacks some of these types; NumPy's unbuffered ufuncs do the same loop."""
    x, updates = (random_array(n, (3, 4), dtype) for n in ("x", "updates"))
    indices = np.array([[0, 1, 0, -4], [2, 2, 2, 2], [3, 2, 1, 0]], np.int32)
    want = x.astype(np.float32) if x.dtype in (np.float16, ml_dtypes.bfloat16) else x.copy()
    UFUNCS[reduction].at(want, (np.arange(3)[:, None], indices), updates.astype(want.dtype))
    want = want.astype(x.dtype)
    return NodeCase(
        f"ScatterElements-{reduction}_{dtype}",
        "ScatterElements",
        [x, indices, updates],
        {"axis": 1, "reduction": reduction},
        opset=18,
        want=lambda: [want],
    )


UFUNCS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _vector(detail: str, x: np.ndarray, indices: np.ndarray, updates: np.ndarray, reduction: str) -> NodeCase:
    want = x.copy()
    with np.errstate(invalid="ignore"):
        UFUNCS[reduction].at(want, indices, updates)
    inputs, attributes = [x, indices, updates], {"reduction": reduction}
    name = f"ScatterElements-{detail}_{reduction}"
    return NodeCase(name, "ScatterElements", inputs, attributes, opset=18, want=lambda: [want])


def _extreme(dtype: str, reduction: str) -> NodeCase:
    """NaNs of either sign, in x and among the updates, infinities and zeros: atomics compare floats as integers."""
    negative_nan = -np.array(np.nan, dtype)
    x = np.array([np.nan, negative_nan, 1, -1, np.inf, -np.inf, 0, -2, 3], dtype)
    indices = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 8])
    updates = np.array([5, 5, negative_nan, np.nan, -np.inf, np.inf, -1, -3, 2, -4], dtype)
    return _vector(f"extreme_{dtype}", x, indices, updates, reduction)


def _crowded(reduction: str) -> NodeCase:
    """Hundreds of updates of few elements, each of which rounds as often as it is updated, in any order."""
    random = np.random.default_rng(0)
    indices = random.integers(-7, 7, 500)
    updates = random.uniform(0.98, 1.02, 500) if reduction == "mul" else random.standard_normal(500)
    case = _vector("crowded", np.ones(7, np.float32), indices, updates.astype(np.float32), reduction)
    return replace(case, rtol=tolerance("float32", 500 // 7)) if reduction in ("add", "mul") else case


def _reduced_bool(reduction: str) -> NodeCase:
    x, updates = np.array([True, False, True, False]), np.array([False, False, True, True, True])
    return _vector("bool", x, np.array([0, 1, 2, 3, 3]), updates, reduction)


def _out_of_range() -> NodeCase:
    x, updates = random_array("x", (4,)), random_array("u", (3,))
    want = np.array([x[0], x[1], updates[1], x[3]])
    return NodeCase(
        "ScatterElements-out_of_range", "ScatterElements", [x, ints(4, 2, -5), updates], want=lambda: [want]
    )


def _scatter_nds() -> list[NodeCase]:
    def case(detail: str, x: np.ndarray, indices: np.ndarray, **attributes: Any) -> NodeCase:
        updates = random_array("u", (*indices.shape[:-1], *x.shape[indices.shape[-1] :]), x.dtype.name)
        return NodeCase(f"ScatterND-{detail}", "ScatterND", [x, indices, updates], attributes, opset=18)

    x = random_array("nd", (4, 3, 5, 6))
    cases = [
        case("rows", x, _unique("a", (4,), 2)),
        case("pairs", x, _unique("b", (4, 3), 6).reshape(2, 3, 2)),
        case("elements", x, _unique("c", (4, 3, 5, 6), 50)),
        case("no_updates", x, np.zeros((0, 2), np.int64)),
        *(case(d, random_array("x", (3, 4, 9), d), _unique(d, (3, 4), 5)) for d in MOVED_DTYPES),
    ]
    for reduction in ("add", "mul", "max", "min"):
        cases.append(case(f"rows_{reduction}", x, _tuples("a", (4,), 9), reduction=reduction))
        cases.append(case(f"pairs_{reduction}", x, _tuples("b", (4, 3), 3, 5), reduction=reduction))
        cases.append(case(f"elements_{reduction}", x, _tuples("c", x.shape, 90), reduction=reduction))
    return cases


def put_steps(
    cache: np.ndarray, update: np.ndarray, first: np.ndarray | None, axis: int = -2, mode: str = "linear"
) -> np.ndarray:
    """TensorScatter by its text, where steps beyond the cache go nowhere."""
    present = cache.copy()
    slots, steps = (np.moveaxis(array, axis, 1) for array in (present, update))
    for batch, step in np.ndindex(steps.shape[:2]):
        slot = step + (0 if first is None else int(first[batch]))
        if mode == "circular":
            slot %= cache.shape[axis]
        if 0 <= slot < cache.shape[axis]:
            slots[batch, slot] = steps[batch, step]
    return present


def _tensor_scatters() -> list[NodeCase]:
    def case(
        detail: str, shape: tuple[int, ...], steps: int, first: list[int] | None, dtype: str = "float32", **rest: Any
    ) -> NodeCase:
        axis = rest.get("axis", -2)
        cache = random_array("cache", shape, dtype)
        update = random_array("update", (*shape[:axis], steps, *shape[axis:][1:]), dtype)
        indices = None if first is None else np.array(first, np.int64)
        inputs = [cache, update] if indices is None else [cache, update, indices]
        constants = rest.pop("constants", ())
        want = put_steps(cache, update, indices, **rest)
        types = [(tensor_type(cache), shape)]
        return NodeCase(
            f"TensorScatter-{detail}", "TensorScatter", inputs, rest, 24, constants, 1, "", types, lambda: [want]
        )

    far = [-1, 2**40 + 3, -(2**63), 2**63 - 1]
    return [
        case("one_step", (2, 3, 16, 8), 1, [4, 15]),
        case("prefill", (2, 3, 16, 8), 10, None),
        case("prefill_circular", (2, 3, 16, 8), 16, None, mode="circular"),
        case("all_slots", (2, 5, 7), 5, [0, 0], mode="linear"),
        case("all_slots_circular", (2, 5, 7), 5, [3, 4], mode="circular"),
        case("past_is_kept", (2, 3, 16, 8), 2, [4, 14], constants=(0,)),
        case("past_is_kept_circular", (2, 3, 16, 8), 3, [4, 14], mode="circular", constants=(0, 2)),
        case("rank_2", (3, 40), 3, [0, 20, 37], axis=-1),
        case("axis_1", (3, 9, 4, 5), 2, [7, 0, 4], axis=1),
        case("last_axis", (3, 4, 50), 7, [43, 0, 11], axis=-1),
        case("last_axis_circular", (3, 4, 50), 7, [49, 44, 11], axis=2, mode="circular"),
        case("one_slot", (2, 3, 1, 8), 1, [0, 0]),
        case("odd_rows", (2, 2, 33, 130), 5, [28, 1], "float16"),
        case("no_steps", (2, 3, 4, 8), 0, [1, 2]),
        case("no_batch", (0, 3, 4, 8), 1, []),
        case("beyond", (4, 5, 3), 3, [-2, 4, 5, -3]),
        case("far_beyond", (4, 5, 3), 3, far),
        case("far_circular", (4, 5, 3), 3, far, mode="circular"),
        *(case(dtype, (2, 3, 9, 4), 2, [7, 3], dtype) for dtype in MOVED_DTYPES),
    ]


ROUNDED_REDUCTIONS = [
    case
    for case in (*_scatter_elements(), *_scatter_nds())
    if case.attributes.get("reduction") in ("add", "mul") and case.inputs[0].dtype.name in FLOATS
]
"""Whose results depend on the order of the updates."""
CASES = [
    *(*_gathers(), *_gather_elements(), *_gather_nds()),
    *(*_scatter_elements(), *_scatter_nds(), *_tensor_scatters()),
]
