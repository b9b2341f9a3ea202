"""What the random tests of several families draw: shapes, opset versions, arrays, and onnxruntime's answer on words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import ml_dtypes
import numpy as np
import onnx
from hypothesis import strategies as st

from cases.node_case import NodeCase
from harness import ort, run_model, tensor_type

FLOATS = ("float16", "bfloat16", "float32", "float64")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = (*SIGNED, *UNSIGNED)
MOVED = (*FLOATS, *INTEGERS, "bool", "complex64")
"""Element types of operators that only move data."""

seeds = st.integers(0, 2**32 - 1)
"""Arrays come from a seed: hypothesis would spend its time on drawing, and shrinking, single elements."""


def numpy_dtype(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


@cache
def opsets(op_type: str, least: int = 7) -> tuple[int, ...]:
    """`least`, and every later opset version in which ONNX changed the operator."""
    history = onnx.defs.get_all_schemas_with_history()
    versions = {max(s.since_version, least) for s in history if (s.domain, s.name) == ("", op_type)}
    return tuple(sorted(versions))


@cache
def types(op_type: str, opset: int, index: int = 0) -> tuple[str, ...]:
    """The names of NumPy's types that ONNX allows for input `index` in an opset version."""
    schema = onnx.defs.get_schema(op_type, opset, "")
    allowed = schema.inputs[min(index, len(schema.inputs) - 1)].types
    return tuple(name for name in MOVED if f"tensor({_ONNX_NAMES.get(name, name)})" in allowed)


_ONNX_NAMES = {"float32": "float", "float64": "double"}


@st.composite
def shapes(
    draw: st.DrawFn, least: int = 0, most: int = 8, sides: Sequence[int] = (0, 1, 1, 2, 3, 4, 7), size: int = 4000
) -> tuple[int, ...]:
    """Of rank `least` to `most`, with at most `size` elements."""
    shape: list[int] = []
    for _ in range(draw(st.integers(least, most))):
        room = size // max(1, math.prod(extent for extent in shape if extent))
        shape.append(draw(st.sampled_from([side for side in sides if side <= max(room, 1)])))
    return tuple(shape)


def bits(seed: int, shape: Sequence[int], dtype: str) -> np.ndarray:
    """Any bits at all: NaN with payloads, subnormal numbers, −0, integers from end to end."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    kind = numpy_dtype(dtype)
    return np.frombuffer(rng.bytes(math.prod(shape) * kind.itemsize), kind).reshape(shape)


_WORDS = {1: np.dtype("uint8"), 2: np.dtype("uint16"), 4: np.dtype("float32"), 8: np.dtype("float64")}


def check_moved(node: NodeCase) -> None:
    """Runs a node that only moves elements of its first input's type, and compares every bit with onnxruntime, which
    moves floats that stand for them: for many types it has no kernel, but no operator looks at what it moves."""
    check_bits(node, node.want() if node.want else _moved_words(node))


def _moved_words(node: NodeCase) -> list[np.ndarray]:
    formal = onnx.defs.get_schema(node.op_type, node.opset, "").inputs
    first = node.inputs[0]
    assert first is not None
    moves = [formal[min(i, len(formal) - 1)].type_str == formal[0].type_str for i in range(len(node.inputs))]
    moved = replace(
        node,
        inputs=[
            _floats(x) if x is not None and is_moved else x for x, is_moved in zip(node.inputs, moves, strict=True)
        ],
    )
    word = _WORDS[first.dtype.itemsize]
    return [np.asarray(y.astype(word)).view(first.dtype) for y in ort(moved.model(), moved.feeds())]


def _floats(x: np.ndarray) -> np.ndarray:
    """The same bits as fp32 or fp64; short words as the fp32 numbers that they count to."""
    words = x.view(_WORDS[x.dtype.itemsize])
    return words if words.dtype.kind == "f" else np.asarray(words.astype(np.float32))


def check_bits(node: NodeCase, want: Sequence[np.ndarray]) -> None:
    """Runs the node in the interpreter and compares every bit."""
    got = run_model(with_types(node, want).model(), node.feeds())
    assert len(got) == len(want)
    for one, other in zip(got, want, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        assert one.tobytes() == other.tobytes(), f"{one}\nexpected\n{other}"


def with_types(node: NodeCase, want: Sequence[np.ndarray]) -> NodeCase:
    """The node with the types and shapes of its outputs written down: onnx infers some of them in new versions only."""
    return replace(node, output_types=[(tensor_type(y), y.shape) for y in want])


def type_of(dtype: str) -> int:
    return tensor_type(np.zeros(0, numpy_dtype(dtype)))


def numbers(seed: int, shape: Sequence[int], dtype: str) -> np.ndarray:
    """Numbers of every size that the type has, and those that formulas stumble over."""
    rng = np.random.default_rng(seed)
    kind = numpy_dtype(dtype)
    if dtype == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    if dtype in INTEGERS:
        limits = np.iinfo(kind)
        special = np.array([0, 1, 2, limits.max, limits.min, limits.max - 1, limits.min + 1], kind)
        anywhere = rng.integers(limits.min, limits.max, shape, kind, endpoint=True)
        small = rng.integers(max(limits.min, -9), 9, shape).astype(kind)
        return np.asarray(_mixed(rng, shape, anywhere, small, rng.choice(special, shape)), kind)
    limits = ml_dtypes.finfo(kind)
    decades = math.log10(float(limits.max)) - 1.5
    tiny = float(limits.tiny) / (
        1 if dtype == "bfloat16" else 2
    )  # subnormal, but for Triton's interpreter: it has no such bf16
    special = np.array([*_SPECIAL, float(limits.max), float(limits.min), float(limits.tiny), tiny])
    anywhere = rng.choice((-1, 1), shape) * 10 ** rng.uniform(-decades, decades, shape)
    with np.errstate(all="ignore"):
        usual, halves = rng.normal(0, 3, shape), rng.integers(-20, 20, shape) / 2
        return np.asarray(_mixed(rng, shape, usual, anywhere, halves, rng.choice(special, shape))).astype(kind)


_SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, math.inf, -math.inf, math.nan, 88.7, -88.7, -103.0, 1e-6, -3e-4, 710.0)


def _mixed(rng: np.random.Generator, shape: Sequence[int], *kinds: np.ndarray) -> np.ndarray:
    """Each element of one of the arrays."""
    return np.choose(rng.integers(0, len(kinds), shape), kinds) if math.prod(shape) else np.zeros(shape, kinds[0].dtype)
