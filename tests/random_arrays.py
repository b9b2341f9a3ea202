"""What random tests of one-node models share: shapes and values to draw, legal types, and how close is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import onnx
from hypothesis import strategies as st

from cases.node_case import NodeCase
from harness import ort, run_model, tensor_type

FLOAT_UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
"""Half a unit in the last place of one: what rounding to a type costs at most, relatively."""
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0)
NEWEST_OPSET = 26
"""What onnxruntime 1.32 knows; later ones are drafts to it."""
DEVICES = st.sampled_from(("interpreter", "interpreter", "interpreter", "sm_90"))
"""Large tiles; and, as these cost more, those of a GPU at times."""


def numpy_dtype(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def accumulation_unit(dtype: str) -> float:
    """What one rounding costs in the type that sums of `dtype` are kept in."""
    return FLOAT_UNIT["float64" if dtype == "float64" else "float32"]


def legal_dtypes(op_type: str, opset: int, constraint: str = "T") -> list[str]:
    """The numeric types of the operator's schema that NumPy and ml_dtypes have, in a fixed order."""
    schema = onnx.defs.get_schema(op_type, opset, "")
    allowed = next(c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == constraint)
    names = {text.removeprefix("tensor(").removesuffix(")") for text in allowed}
    names = {{"float": "float32", "double": "float64"}.get(name, name) for name in names}
    return sorted(name for name in names if name == "bool" or name.startswith(("int", "uint", *FLOAT_UNIT)))


def shapes(least: int = 0, most: int = 8) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes of up to a few thousand elements; extents of zero and one among them."""
    kinds = [((0, 1, 2, 3, 4, 5, 7, 9), least, min(most, 4)), ((1, 2, 3), max(least, 5), most)]
    kinds.append(((1, 2, 19, 70), max(least, 1), min(most, 2)))
    drawn = [st.lists(st.sampled_from(extents), min_size=a, max_size=b) for extents, a, b in kinds if a <= b]
    return st.one_of(drawn).map(tuple)


def ordinary(draw: st.DrawFn, shape: Sequence[int], dtype: str, low: float = -3.0, high: float = 3.0) -> np.ndarray:
    """Uniform values."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return np.asarray(rng.uniform(low, high, shape)).astype(numpy_dtype(dtype))


def integers(draw: st.DrawFn, shape: Sequence[int], dtype: str, most: int | None = None) -> np.ndarray:
    """Whole numbers from the whole range of the type, often its ends, or of magnitude up to `most`; or booleans."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if dtype == "bool":
        return np.asarray(rng.random(shape) < draw(st.sampled_from((0.1, 0.5, 0.9))))
    limits = np.iinfo(dtype)
    low, high = int(limits.min), int(limits.max)
    if most is not None:
        low, high = max(low, -most), min(high, most)
    x = rng.integers(low, high, shape, dtype, endpoint=True)
    at_ends = rng.random(shape) < draw(st.sampled_from((0.0, 0.0, 0.3, 1.0)))
    return np.where(at_ends, np.where(rng.random(shape) < 0.5, low, high).astype(dtype), x)


def floats(draw: st.DrawFn, shape: Sequence[int], dtype: str, *, exponent: int = 0, special: bool = True) -> np.ndarray:
    """Normal deviates times powers of two, up to ±exponent, that differ along the first axis or are all alike; ties;
    NaN, infinities and zeros here and there."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = np.asarray(rng.standard_normal(shape))
    if draw(st.booleans()):
        x = np.round(x, out=x)
    if exponent:
        kind = draw(st.sampled_from(("none", "all", "first axis", "each")))
        sizes = {"none": (), "all": (), "first axis": (*shape[:1], *(1 for _ in shape[1:])), "each": shape}[kind]
        limit = 0 if kind == "none" else exponent
        x = np.ldexp(x, rng.integers(-limit, limit, sizes, endpoint=True))
    x = np.asarray(x).astype(numpy_dtype(dtype))
    if special and x.size:
        for value in draw(st.lists(st.sampled_from(SPECIAL), max_size=3)):
            x.reshape(-1)[draw(st.integers(0, x.size - 1))] = value
    return x


def assert_within(got: np.ndarray, want: np.ndarray, bound: np.ndarray | float) -> None:
    """got is want ± bound (arrays in fp64), rounded to got's type; NaN and infinities are the same."""
    assert got.shape == want.shape, f"shape {got.shape}, expected {want.shape}"
    exact = got.astype(np.float64)
    given = ~np.isfinite(want)
    np.testing.assert_array_equal(exact[given], want[given])
    with np.errstate(all="ignore"):
        low, high = ((want + sign * bound).astype(got.dtype).astype(np.float64) for sign in (-1, 1))
    wrong = ~given & ~((low <= exact) & (exact <= high))
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise AssertionError(
            f"at {at}: {exact[at]!r}, expected {want[at]!r} ± {np.broadcast_to(bound, want.shape)[at]!r}"
        )


def onnxruntime_answers(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray] | None:
    """onnxruntime's results, or None where its CPU provider has no kernel for the node's types, or cannot be fed."""
    from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

    if any(array.dtype == ml_dtypes.bfloat16 for array in feeds.values()):
        return None  # its bindings take no bf16
    try:
        return ort(model, feeds)
    except NoKernel:
        return None


@dataclass(frozen=True)
class Example:
    """A node and its results.

    want: in fp64 or exact integers; None where the text leaves it open. bound: how far off that floats may be.
    onnxruntime: whether its CPU provider follows the text here, if it has a kernel.
    """

    node: NodeCase
    want: Sequence[np.ndarray | None]
    bound: Sequence[np.ndarray | float]
    onnxruntime: bool = True
    device: str = "interpreter"

    def check(self) -> None:
        model, feeds = self.node.model(), self.node.feeds()
        results = run_model(model, feeds, self.device)
        answers = onnxruntime_answers(model, feeds) if self.onnxruntime else None
        for index, (got, want, bound) in enumerate(zip(results, self.want, self.bound, strict=True)):
            assert tensor_type(got) == model.graph.output[index].type.tensor_type.elem_type
            if want is not None:
                _assert_same(got, want, bound)
                if answers is not None:
                    assert got.dtype == answers[index].dtype
                    _assert_same(got, answers[index], bound + _rounding(answers[index]))


def _assert_same(got: np.ndarray, want: np.ndarray, bound: np.ndarray | float) -> None:
    if got.dtype.name in FLOAT_UNIT:
        assert_within(got, want.astype(np.float64), bound)
    else:
        np.testing.assert_array_equal(got, want.astype(got.dtype))


def _rounding(answer: np.ndarray) -> np.ndarray | float:
    """What onnxruntime's result may be off: as much as ours, and then it was rounded to its type."""
    if answer.dtype.name not in FLOAT_UNIT:
        return 0.0
    return 2 * FLOAT_UNIT[answer.dtype.name] * magnitude(answer) + float(np.finfo(answer.dtype).smallest_subnormal)


def magnitude(x: np.ndarray) -> np.ndarray:
    """Absolute values in fp64, zero for NaN and infinities."""
    return np.abs(np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0))
