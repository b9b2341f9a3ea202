"""BatchNormalization, and scales and shifts by constants, after a convolution go into its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from gossamer.model.edit import Names, can_replace, constant_of, erase, new_constant, replace


def affine_into_conv(model: ir.Model) -> bool:
    """Fold what multiplies and shifts each channel by constants into the Conv, ConvTranspose or Gemm that it follows.

    ```
    %c = Conv(%x, %w, %b)
    %y = BatchNormalization[epsilon=1e-05](%c, %scale, %shift, %mean, %variance)      →      %y = Conv(%x, %w', %b')

    factor = scale / sqrt(variance + epsilon),   w' = w · factor per output channel,   b' = (b − mean) · factor + shift
    ```

    BatchNormalization (ONNX -7, -9, -14, -15) in inference; Mul, Div, Add and Sub with an initializer that is a scalar
    or one value a channel (PP-OCR's learnt scales); several in a row, from the first on. Groups, any rank, a missing
    bias, Gemm with transB, alpha and beta. Computed in float64 and rounded once to the weight's type. Weights used
    elsewhere too are copied. A Squeeze of spatial axes in between is looked through. The main graph only.

    Kept: training mode, spatial=0 (BatchNormalization-7); weights, bias or parameters that are no initializers; a
    convolution whose output is read by others or returned; division of a constant by the convolution; a Gemm bias or a
    constant that is no value a channel; results that the weight's type cannot hold.
    """
    names: Names | None = None
    changed = False
    for node in tuple(model.graph):
        affine = _AFFINE.get(node.op_type) if node.domain == "" else None
        folded = _fold(node, affine) if affine is not None else None
        if folded is None:
            continue
        names = names or Names(model)
        _apply(node, folded, names)
        changed = True
    return changed


@dataclass(frozen=True, slots=True)
class _Scaling:
    """x · factor + shift, both one float64 a channel; no factor is a factor of one."""

    factor: np.ndarray | None
    shift: np.ndarray


@dataclass(frozen=True, slots=True)
class _Folded:
    """The convolution and the value that was scaled, with the new bias, and the new weight if that changes."""

    producer: ir.Node
    source: ir.Value
    weight: np.ndarray | None
    bias: np.ndarray


_Affine = Callable[[ir.Node, int, int, int], _Scaling | None]
"""Of a node, the index of the scaled input, and the rank and channels of that: what the node does to it."""


def _fold(node: ir.Node, affine: _Affine) -> _Folded | None:
    for index, source in enumerate(node.inputs[:2]):
        producer, squeezed = _producer(source)
        weight = None if producer is None else constant_of(producer.inputs[1])
        if source is None or producer is None or weight is None or not can_replace(node.outputs[0], source):
            continue
        channels = _channels(producer, weight)
        scaling = affine(node, index, weight.ndim - squeezed, channels)
        bias = _bias(producer, channels)
        if scaling is not None and bias is not None:
            return _scaled(producer, source, weight, bias, scaling)
    return None


def _producer(value: ir.Value | None) -> tuple[ir.Node | None, int]:
    """The convolution that makes a value for one reader alone, and how many spatial axes a Squeeze took away since."""
    node = None if value is None or len(value.uses()) != 1 or value.is_graph_output() else value.producer()
    if node is None or node.domain != "":
        return None, 0
    if node.op_type == "Squeeze":
        axes = node.attributes["axes"].as_ints() if "axes" in node.attributes else constant_of(_second_input(node))
        producer, squeezed = _producer(node.inputs[0])
        spatial = axes is not None and all(axis >= 2 for axis in axes)
        return (producer, squeezed + len(axes)) if axes is not None and spatial else (None, 0)
    return (node, 0) if node.op_type in _SCALE else (None, 0)


def _second_input(node: ir.Node) -> ir.Value | None:
    return node.inputs[1] if len(node.inputs) > 1 else None


def _scaled(
    producer: ir.Node, source: ir.Value, weight: np.ndarray, bias: np.ndarray, scaling: _Scaling
) -> _Folded | None:
    factor, new_weight = scaling.factor, None
    if factor is not None:
        new_weight = _rounded(_SCALE[producer.op_type](producer, weight.astype(np.float64), factor), weight.dtype)
        bias = bias * factor
    new_bias = _rounded(bias + scaling.shift, weight.dtype)
    if new_bias is None or (factor is not None and new_weight is None):
        return None
    return _Folded(producer, source, new_weight, new_bias)


def _rounded(array: np.ndarray, dtype: np.dtype) -> np.ndarray | None:
    """The array in `dtype`, None where it leaves its range."""
    with np.errstate(over="ignore"):
        rounded = array.astype(dtype)
    return rounded if np.isfinite(rounded.astype(np.float64)).all() else None


# What a node does to its input


def _batch_norm(node: ir.Node, index: int, rank: int, channels: int) -> _Scaling | None:
    if index != 0 or not _is_inference(node):
        return None
    parameters = [constant_of(value) for value in node.inputs[1:5]]
    arrays = [array.astype(np.float64) for array in parameters if array is not None and array.shape == (channels,)]
    if len(arrays) < 4:
        return None
    scale, shift, mean, variance = arrays
    epsilon = node.attributes["epsilon"].as_float() if "epsilon" in node.attributes else 1e-5
    factor = scale / np.sqrt(variance + epsilon)
    return _Scaling(factor, shift - mean * factor)


def _is_inference(node: ir.Node) -> bool:
    training, spatial = node.attributes.get("training_mode"), node.attributes.get("spatial")
    trains = (training is not None and training.as_int() != 0) or any(value.name for value in node.outputs[1:])
    return not trains and (spatial is None or spatial.as_int() == 1)


def _mul(node: ir.Node, index: int, rank: int, channels: int) -> _Scaling | None:
    factor = _per_channel(node.inputs[1 - index], rank, channels)
    return None if factor is None else _Scaling(factor, np.zeros(channels))


def _div(node: ir.Node, index: int, rank: int, channels: int) -> _Scaling | None:
    divisor = _per_channel(node.inputs[1], rank, channels) if index == 0 else None
    return None if divisor is None or not divisor.all() else _Scaling(1 / divisor, np.zeros(channels))


def _add(node: ir.Node, index: int, rank: int, channels: int) -> _Scaling | None:
    shift = _per_channel(node.inputs[1 - index], rank, channels)
    return None if shift is None else _Scaling(None, shift)


def _sub(node: ir.Node, index: int, rank: int, channels: int) -> _Scaling | None:
    shift = _per_channel(node.inputs[1 - index], rank, channels)
    if shift is None:
        return None
    return _Scaling(None, -shift) if index == 0 else _Scaling(-np.ones(channels), shift)


_AFFINE: Mapping[str, _Affine] = {"BatchNormalization": _batch_norm, "Mul": _mul, "Div": _div, "Add": _add, "Sub": _sub}


def _per_channel(value: ir.Value | None, rank: int, channels: int) -> np.ndarray | None:
    """A constant as one float64 a channel, if it broadcasts so against N, C, spatial… of that rank."""
    array = constant_of(value)
    if array is None or array.ndim > rank:
        return None
    if array.size != 1 and array.shape not in ((channels, *(1,) * (rank - 2)), (1, channels, *(1,) * (rank - 2))):
        return None
    return np.broadcast_to(array.astype(np.float64).reshape(-1), (channels,))


# Weights


def _channels(producer: ir.Node, weight: np.ndarray) -> int:
    rows, columns = int(weight.shape[0]), int(weight.shape[1])
    if producer.op_type == "ConvTranspose":
        return columns * _int(producer, "group", 1)
    return rows if producer.op_type == "Conv" or _int(producer, "transB", 0) else columns


def _bias(producer: ir.Node, channels: int) -> np.ndarray | None:
    """The bias as one float64 a channel, zeros if there is none; None where it is not constant or varies along rows."""
    value = producer.inputs[2] if len(producer.inputs) > 2 else None
    if value is None:
        return np.zeros(channels)
    bias = constant_of(value)
    if bias is None or bias.size not in (1, channels) or (bias.ndim and bias.shape[-1] != bias.size):
        return None
    beta = producer.attributes["beta"].as_float() if "beta" in producer.attributes else 1.0
    return np.broadcast_to(bias.astype(np.float64).reshape(-1) * beta, (channels,))


def _scale_conv(_: ir.Node, weight: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """Weights are M, C/group, spatial…"""
    return np.asarray(weight * factor.reshape(-1, *(1,) * (weight.ndim - 1)))


def _scale_conv_transpose(node: ir.Node, weight: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """Weights are C, M/group, spatial…; the output channels of a group are those of its block of C."""
    groups = _int(node, "group", 1)
    blocks = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    scaled = blocks * factor.reshape(groups, 1, -1, *(1,) * (weight.ndim - 2))
    return np.asarray(scaled).reshape(weight.shape)


def _scale_gemm(node: ir.Node, weight: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """B is K, N, or N, K with transB."""
    return np.asarray(weight * (factor.reshape(-1, 1) if _int(node, "transB", 0) else factor))


_SCALE: Mapping[str, Callable[[ir.Node, np.ndarray, np.ndarray], np.ndarray]] = {
    "Conv": _scale_conv,
    "ConvTranspose": _scale_conv_transpose,
    "Gemm": _scale_gemm,
}


def _int(node: ir.Node, name: str, default: int) -> int:
    return node.attributes[name].as_int() if name in node.attributes else default


def _apply(node: ir.Node, folded: _Folded, names: Names) -> None:
    producer = folded.producer
    graph, output = producer.graph, producer.outputs[0]
    assert graph is not None
    assert output.name is not None
    if len(producer.inputs) < 3:
        producer.resize_inputs(3)
    for index, role, array in ((1, "weight", folded.weight), (2, "bias", folded.bias)):
        if array is not None:
            producer.replace_input_with(
                index, new_constant(graph, names.fresh(f"{output.name}_{role}"), ir.Tensor(array))
            )
    producer.attributes.pop("beta", None)
    replace(node.outputs[0], folded.source)
    erase(node)
