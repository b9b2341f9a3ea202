"""Weights for the weightless models of the onnx package, whose parameters are all 0.02: there, every wrong index gives
the right answer.

Each parameter gets random values that suit its part: filters and matrices keep the variance of what they multiply (He
et al. 2015, arXiv:1502.01852, eq. 10), statistics of a batch normalisation are near those of such data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def _filters(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return random.normal(0, math.sqrt(2 / math.prod(shape[1:])), shape)


def _small(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return random.normal(0, 0.1, shape)


def _near_one(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return random.uniform(0.5, 1.5, shape)


PARTS: dict[str, tuple[Draw | None, ...]] = {
    "Conv": (None, _filters, _small),
    "Gemm": (None, _filters, _small),
    "BatchNormalization": (None, _near_one, _small, _small, _near_one),  # scale, bias, mean, variance
}
"""Operator → for each input how its values are drawn; None where it is no parameter."""


def with_random_weights(path: Path, seed: int = 0) -> bytes:
    """The model at `path`, serialised, with every parameter of the operators in PARTS drawn anew, and what its last
    operator gets as a second output: that is a Softmax, which random weights drive to 0 and 1."""
    model = onnx.load(path)
    random = np.random.default_rng(seed)
    shapes = _shapes(model)
    drawn: dict[str, np.ndarray] = {}
    for node in model.graph.node:
        for name, draw in zip(node.input, PARTS.get(node.op_type, ()), strict=False):
            if draw is not None and name not in drawn:
                drawn[name] = draw(random, shapes[name]).astype(np.float32)
    nodes = [node for node in model.graph.node if node.output[0] not in drawn]
    kept = [tensor for tensor in model.graph.initializer if tensor.name not in drawn]
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend([*kept, *(numpy_helper.from_array(array, name) for name, array in drawn.items())])
    model.graph.output.add(name=model.graph.node[-1].input[0])
    return model.SerializeToString()


def _shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """The shapes of parameters: initialisers, or made by ConstantOfShape from one."""
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    shapes = {name: array.shape for name, array in values.items()}
    makers = (node for node in model.graph.node if node.op_type == "ConstantOfShape")
    return shapes | {node.output[0]: tuple(map(int, values[node.input[0]])) for node in makers}
