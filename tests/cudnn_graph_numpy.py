"""cuDNN graphs computed by NumPy, in fp64: what a lowering's graph means, on machines where nothing can run it.

Shapes, strides, paddings, groups, and the order of operations are the graph's; what an engine rounds in between is not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from math import erfc
from typing import Any

import numpy as np

from cases.convolution import convolution, transposed_convolution
from gossamer.program import CudnnCall, Program, dtype_of
from gossamer.run.interpreter import InterpreterExecutor, Memory

Array = np.ndarray


class NumpyCudnn(InterpreterExecutor):
    """The interpreter, with NumPy for cuDNN. graphs: descriptions of the graphs that ran."""

    def __init__(self, constants: Mapping[str, Array]) -> None:
        super().__init__(constants)
        self.graphs: list[dict[str, Any]] = []

    def step(self, memory: Memory, call: Any) -> None:
        if not isinstance(call, CudnnCall):
            super().step(memory, call)
            return
        graph = json.loads(call.description)["graph"]
        self.graphs.append(graph)
        compute(graph, {role: memory.bytes_of(at.buffer)[at.offset :] for role, at in call.arguments})


def compute(graph: Mapping[str, Any], memory: Mapping[str, Array]) -> None:
    """Run a graph in its dict form. memory: tensor name → bytes from its address on."""
    described = {tensor["uid"]: tensor for tensor in graph["tensors"]}
    values: dict[int, Array] = {
        uid: np.full(tensor["dims"], tensor["value"]) if tensor["value"] is not None else _view(tensor, memory)
        for uid, tensor in described.items()
        if not tensor["virtual"]
    }
    for operation in graph["operations"]:
        y = described[operation["y" if "y" in operation else "c"]]
        result = OPERATIONS[operation["operation"]](operation, values, y)
        assert list(result.shape) == list(y["dims"]), f"{operation}: {result.shape}, declared {y['dims']}"
        if y["virtual"]:
            values[y["uid"]] = result
        else:
            values[y["uid"]][...] = result.astype(values[y["uid"]].dtype)


def _view(tensor: Mapping[str, Any], memory: Mapping[str, Array]) -> Array:
    """A tensor's elements where it lies; it may not reach beyond its buffer."""
    dtype, dims, strides = dtype_of(tensor["dtype"]), tensor["dims"], tensor["strides"]
    span = 1 + sum((dim - 1) * stride for dim, stride in zip(dims, strides, strict=True))
    flat = memory[tensor["name"]][: span * dtype.itemsize].view(dtype)
    assert flat.size == span, f"{tensor['name']} reaches beyond its memory"
    return np.lib.stride_tricks.as_strided(flat, dims, [stride * dtype.itemsize for stride in strides])


def _convolution(operation: Mapping[str, Any], values: Mapping[int, Array], y: Mapping[str, Any]) -> Array:
    x, w = (values[operation[name]].astype(np.float64) for name in "xw")
    before, after = operation["padding_before"], operation["padding_after"]
    attributes: dict[str, Any] = {"strides": operation["stride"], "dilations": operation["dilation"]}
    if not operation["transposed"]:
        return convolution(x, w, {**attributes, "pads": [*before, *after], "group": x.shape[1] // w.shape[1]})
    sizes = zip(x.shape[2:], w.shape[2:], operation["stride"], operation["dilation"], strict=True)
    full = [(size - 1) * s + (k - 1) * d + 1 for size, k, s, d in sizes]
    extra = [out - (f - a - b) for out, f, a, b in zip(y["dims"][2:], full, before, after, strict=True)]
    assert all(0 <= more < s for more, s in zip(extra, operation["stride"], strict=True))
    attributes |= {"pads": [*before, *after], "output_padding": extra, "group": y["dims"][1] // w.shape[1]}
    return transposed_convolution(x, w, attributes)


def _pointwise(operation: Mapping[str, Any], values: Mapping[int, Array], y: Mapping[str, Any]) -> Array:
    operands = [values[operation[name]] for name in "xbt" if operation.get(name) is not None]
    floats = [x if x.dtype == bool else x.astype(np.float64) for x in operands]
    with np.errstate(all="ignore"):
        return np.broadcast_to(POINTWISE[operation["mode"]](*floats, operation), y["dims"])


def _relu(x: Array, operation: Mapping[str, Any]) -> Array:
    lowest, highest = operation.get("lower_clip") or 0.0, operation.get("upper_clip")
    below = lowest + (operation.get("slope") or 0.0) * (x - lowest)
    return np.minimum(np.where(x > lowest, x, below), np.inf if highest is None else highest)


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _index(x: Array, operation: Mapping[str, Any]) -> Array:
    return np.broadcast_to(np.indices(x.shape, sparse=True)[operation["axis"]], x.shape).astype(np.int32)


POINTWISE: dict[str, Callable[..., Array]] = {
    "add": lambda x, b, _: x + b,
    "sub": lambda x, b, _: x - b,
    "mul": lambda x, b, _: x * b,
    "div": lambda x, b, _: x / b,
    "exp": lambda x, _: np.exp(x),
    "log": lambda x, _: np.log(x),
    "relu": _relu,
    "elu": lambda x, o: np.where(x > 0, x, o["alpha"] * np.expm1(x)),
    "sigmoid": lambda x, _: _sigmoid(x),
    "tanh": lambda x, _: np.tanh(x),
    "swish": lambda x, o: x * _sigmoid(x * o["beta"]),
    "softplus": lambda x, o: np.logaddexp(0, x * o["beta"]) / o["beta"],
    "gelu": lambda x, _: x * 0.5 * np.vectorize(erfc, otypes=[float])(-x / np.sqrt(2)),
    "gelu_tanh": lambda x, _: x * _sigmoid(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)),
    "index": _index,
    "cmp_ge": lambda x, b, _: x >= b,
    "select": lambda x, b, t, _: np.where(t, x, b),
}


def _matmul(operation: Mapping[str, Any], values: Mapping[int, Array], y: Mapping[str, Any]) -> Array:
    a, b = (values[operation[name]].astype(np.float64) for name in "ab")
    return a @ np.repeat(b, a.shape[1] // b.shape[1], axis=1)


def _reduction(operation: Mapping[str, Any], values: Mapping[int, Array], y: Mapping[str, Any]) -> Array:
    x = values[operation["x"]]
    axes = tuple(axis for axis, (have, want) in enumerate(zip(x.shape, y["dims"], strict=True)) if have != want)
    return {"max": np.max, "add": np.sum}[operation["mode"]](x, axis=axes, keepdims=True)


OPERATIONS: dict[str, Callable[..., Array]] = {
    "Convolution": _convolution,
    "Pointwise": _pointwise,
    "Matmul": _matmul,
    "Reduction": _reduction,
}


def run(program: Program, constants: Mapping[str, Array], feeds: Mapping[str, Array]) -> tuple[list[Array], list[Any]]:
    """The outputs, and the graphs that made them."""
    executor = NumpyCudnn(constants)
    results = executor.run(program, feeds)
    return [results[name] for name in program.outputs], executor.graphs
