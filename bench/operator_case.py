"""A case of the operators' benchmark: its model, its inputs, the fewest bytes and operations, and the right answer."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

from gossamer.program import dtype_of

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Arrays: TypeAlias = dict[str, Array]
Pick: TypeAlias = Callable[[int, int], int]
NumpyReference: TypeAlias = Callable[[Arrays], "Array | tuple[Array, ...]"]

BOTH = ("float16", "float32")
ALL_FLOATS = (*BOTH, "bfloat16")
FIRST = {"x": 0, "y": 0}
"""Axes of independent parts: the first of input and output."""
OPSETS = '"com.microsoft": 1, "gossamer.nhwc": 21'
ONNX_TYPES = {"float32": "float", "float64": "double"}
"""Where ONNX's textual names differ from NumPy's."""
LIMITS = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-5}
"""Relative error allowed, ‖got − want‖ / ‖want‖: a few roundings of the result."""
TF32_LIMIT = 1e-3
PERIOD = 999_983
"""Large tensors repeat this many random values: a prime, so that a wrong offset shows."""


@dataclass(frozen=True)
class Given:
    """An input. dtype: NumPy's name, or T for the case's. constant: an initializer.

    kind: `normal` (times scale), `positive` (its magnitude plus 0.1), `sign` (±1), `below` (integers from `low` up to
    `high`), or `values`.
    """

    shape: tuple[int, ...]
    dtype: str = "T"
    constant: bool = False
    kind: str = "normal"
    scale: float = 1.0
    low: int = 0
    high: int = 0
    values: Any = None

    def array(self, dtype: str, seed: int) -> Array:
        kind = dtype_of(dtype if self.dtype == "T" else self.dtype)
        if self.kind == "values":
            return np.ascontiguousarray(self.values, kind).reshape(self.shape)
        return repeated(self._pattern(kind, seed % 16), self.shape)

    def _pattern(self, kind: np.dtype[Any], seed: int) -> Array:
        return pattern(self.kind, kind.name, self.scale, self.low, self.high, seed)


@cache
def pattern(kind: str, dtype: str, scale: float, low: int, high: int, seed: int) -> Array:
    """One period of random values."""
    rng = np.random.default_rng(seed)
    if kind == "below":
        return rng.integers(low, high, PERIOD).astype(dtype_of(dtype))
    normal = scale * rng.standard_normal(PERIOD, np.float32)
    values = {"normal": normal, "positive": np.abs(normal) + 0.1, "sign": np.sign(normal)}[kind]
    return values.astype(dtype_of(dtype))


def repeated(values: Array, shape: tuple[int, ...]) -> Array:
    """The values over and over."""
    made = np.empty(shape, values.dtype)
    flat = made.reshape(-1)
    for start in range(0, flat.size, values.size):
        flat[start : start + values.size] = values[: flat.size - start]
    return made


@dataclass(frozen=True)
class Case:
    """One measurement.

    body: the graph's nodes in ONNX's textual form; results are y, or those of `outputs`, of which some need their
    shape where only our own shape rules know it. part: for inputs and outputs by name the axis along which parts are
    independent: the answer is then checked for `parts` of them. reference: the same in float32 for onnxruntime, or a
    function of the arrays; None: `body` itself. flops: multiply and add counted as two; 0 where memory is the bound.
    products: the type of what is multiplied, where that is not the case's. moved: how many elements of the case's type
    have to be read and written; 0: all inputs and outputs once.
    """

    name: str
    body: str
    inputs: Mapping[str, Given]
    outputs: Mapping[str, tuple[int, ...] | None] = field(default_factory=lambda: {"y": None})
    part: Mapping[str, int] = field(default_factory=dict)
    parts: int = 4
    dtypes: tuple[str, ...] = ("float16",)
    reference: str | NumpyReference | None = None
    flops: int = 0
    products: str = ""
    moved: int = 0
    opset: int = 21
    limit: float | None = None

    def arrays(self, dtype: str) -> Arrays:
        """Random, and always the same."""
        return {name: self.array_of(name, dtype) for name in self.inputs}

    def shells(self, dtype: str) -> Arrays:
        """The same without what is in arrays that are not constant: enough to build for."""
        arrays = {}
        for name, given in self.inputs.items():
            kind = dtype_of(dtype if given.dtype == "T" else given.dtype)
            arrays[name] = self.array_of(name, dtype) if given.constant else np.empty(given.shape, kind)
        return arrays

    def array_of(self, name: str, dtype: str) -> Array:
        return self.inputs[name].array(dtype, zlib.crc32(f"{self.name} {name}".encode()))

    def model(self, dtype: str, arrays: Arrays, body: str | None = None) -> onnx.ModelProto:
        """The model for arrays of these shapes, those of constant inputs inside."""
        kind = ONNX_TYPES.get(dtype, dtype)
        inputs = ", ".join(f"{_type(array)} {name}" for name, array in arrays.items())
        outputs = ", ".join(f"{kind}[{','.join(map(str, shape or ()))}] {n}" for n, shape in self.outputs.items())
        text = (
            f'<ir_version: 10, opset_import: ["": {self.opset}, {OPSETS}]> '
            f"case ({inputs}) => ({outputs}) {{ {(body or self.body).replace('TYPE', _element_type(dtype))} }}"
        )
        model = onnx.parser.parse_model(text)
        for output in model.graph.output:
            if body or self.outputs[output.name] is None:
                output.ClearField("type")
        for given in [given for given in model.graph.input if self.inputs[given.name].constant]:
            model.graph.input.remove(given)
            model.graph.initializer.append(numpy_helper.from_array(arrays[given.name], given.name))
        return model

    def wanted(self, arrays: Arrays) -> list[Array]:
        """The right answer in float32 or better, by output, of the parts that are checked."""
        chosen = {name: self._parts_of(name, array) for name, array in arrays.items()}
        exact = {n: a.astype(np.float32) if self.inputs[n].dtype == "T" else a for n, a in chosen.items()}
        if callable(self.reference):
            results = self.reference(exact)
            return list(results) if isinstance(results, tuple) else [results]
        return _onnxruntime(self.model("float32", exact, self.reference or self.body), exact)

    def _parts_of(self, name: str, array: Array) -> Array:
        axis = self.part.get(name)
        if axis is None:
            return array
        extent = array.shape[axis]
        return np.take(array, np.linspace(0, extent - 1, min(self.parts, extent)).astype(int), axis)

    def error(self, dtype: str, got: Mapping[str, Array], wanted: list[Array]) -> float:
        """The largest relative error of an output. Raises WrongAnswer."""
        worst = 0.0
        for (name, array), want in zip(got.items(), wanted, strict=True):
            if is_unwritten(array):
                raise WrongAnswer(f"{name} was not written everywhere")
            mine, theirs = self._parts_of(name, array).astype(np.float64), want.astype(np.float64)
            if mine.shape != theirs.shape:
                raise WrongAnswer(f"{name} has shape {mine.shape}, not {theirs.shape}")
            error = float(np.linalg.norm(mine - theirs) / max(float(np.linalg.norm(theirs)), 1e-30))
            limit = self._limit(array.dtype.name, dtype)
            if not error <= limit:
                raise WrongAnswer(f"{name} has a relative error of {error:.1e}, more than {limit:.1e}")
            worst = max(worst, error)
        return worst

    def _limit(self, got: str, dtype: str) -> float:
        if self.limit is not None:
            return self.limit
        if self.flops and dtype == "float32":
            return TF32_LIMIT
        return LIMITS.get(dtype, 0.0) if got in LIMITS else 0.0

    def products_in(self, dtype: str) -> str:
        """The type of what is multiplied."""
        return self.products or dtype

    def nbytes(self, dtype: str, arrays: Arrays, outputs: Mapping[str, Array]) -> int:
        """The fewest bytes that the operator moves."""
        if self.moved:
            return self.moved * dtype_of(dtype).itemsize
        return sum(array.nbytes for array in (*arrays.values(), *outputs.values()))


def rand(*shape: int, **how: Any) -> Given:
    return Given(shape, **how)


def weight(*shape: int, fan_in: int = 0, dtype: str = "T") -> Given:
    """A constant that keeps the size of what is multiplied by it."""
    return Given(shape, dtype, constant=True, scale=(fan_in or shape[-1]) ** -0.5)


def fixed(*values: float, dtype: str = "int64") -> Given:
    """A constant vector."""
    return Given((len(values),), dtype, constant=True, kind="values", values=values)


def index(*shape: int, high: int, dtype: str = "int64") -> Given:
    return Given(shape, dtype, kind="below", high=high)


def whole(*shape: int, dtype: str, constant: bool = False) -> Given:
    """8-bit integers of 7 bits, as many products of which onnxruntime's kernels add without saturating."""
    return Given(
        shape, dtype, constant, "below", low=0 if dtype == "uint8" else -50, high=100 if dtype == "uint8" else 50
    )


def scalar(value: float, dtype: str) -> Given:
    return Given((), dtype, constant=True, kind="values", values=value)


class WrongAnswer(Exception):
    """What came out is not what the reference says."""


def is_unwritten(array: Array) -> bool:
    """Whether a floating-point array has elements of nothing but one bits, of which memory is full before a run."""
    if array.dtype.name not in (*LIMITS, "float64"):
        return False
    words = array.reshape(-1).view(f"u{array.itemsize}")
    return bool((words == np.iinfo(words.dtype).max).any())


def _type(array: Array) -> str:
    return f"{ONNX_TYPES.get(array.dtype.name, array.dtype.name)}[{','.join(map(str, array.shape))}]"


def _element_type(dtype: str) -> str:
    """The number that attributes like Cast's `to` have for a type."""
    return str(onnx.TensorProto.DataType.Value({"float32": "FLOAT"}.get(dtype, dtype.upper())))


def _onnxruntime(model: onnx.ModelProto, feeds: Arrays) -> list[Array]:
    """Its CPU provider's answer, without its optimisations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.intra_op_num_threads = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = {given.name for given in session.get_inputs()}
    results: list[Array] = session.run(None, {name: array for name, array in feeds.items() if name in names})
    return results
