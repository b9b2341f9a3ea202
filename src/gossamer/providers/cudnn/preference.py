"""Where cuDNN is preferred to the native kernels, when it is there."""

from __future__ import annotations

from math import prod

from gossamer.model.node import Node
from gossamer.options import CUDNN_OPERATORS
from gossamer.program import Target

ATTENTION = frozenset({"Attention", "MultiHeadAttention"})
"""cuDNN does these only where the option `sdpa_kernel` says so."""

CONVOLUTIONS = frozenset({"Conv", "FusedConv", "NhwcConv"})

DEPTHWISE = "depthwise Conv"
FEW_CHANNELS = "Conv of at most 4 channels"
FEW_POSITIONS = "Conv of at most 256 positions"
FEW_TRANSPOSED = "ConvTranspose of at most 16384 positions"
APART = "ConvTranspose whose windows do not overlap"

NATIVE: dict[int, frozenset[str]] = {
    90: frozenset(
        {
            *("MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool"),  # 0.33 to 0.68 of cuDNN's time
            *("BatchNormalization", "InstanceNormalization", "LRN"),  # 0.36 to 0.68
            *("RNN", "LSTM", "GRU"),  # 0.44 to 0.52
            DEPTHWISE,  # 0.20 to 0.90, one of twenty 1.13
            FEW_CHANNELS,  # 0.40 to 0.67
            FEW_POSITIONS,  # 0.71 to 0.91
            FEW_TRANSPOSED,  # 0.71
            APART,  # 0.22 and 0.93
        }
    )
}
"""Architecture → kinds of nodes of which the native kernels were measured to be faster than cuDNN's, in all cases of
bench/against_cudnn.py but for what is said: an H200 with cuDNN 9.19, rows in bench/results.csv. The other convolutions
take from 0.7 to 1.6 of cuDNN's time."""


def prefers_cudnn(op: str, node: Node, target: Target, *, attention: bool) -> bool:
    """Whether cuDNN, where it is there, does this node on `target`: unless native kernels were measured faster."""
    if op in ATTENTION:
        return attention
    return op in CUDNN_OPERATORS and not target.interpreted and kind_of(op, node) not in NATIVE.get(target.arch, ())


def kind_of(op: str, node: Node) -> str:
    """The operator, or what of a convolution decides which one is faster.

    It was measured in halves: of other types only what memory bounds, the depthwise ones, is a kind of its own.
    """
    if op not in CONVOLUTIONS and op != "ConvTranspose":
        return op
    shape, halves = node.y.shape, node.x.itemsize == 2
    positions = shape[0] * prod(shape[1:-1] if node.channels_last else shape[2:])
    filters, last = node.inputs[1], node.channels_last and not node.attribute("x_channels_first", 0)
    assert filters is not None
    if op == "ConvTranspose":
        taps = filters.shape[2:]
        strides = node.attribute("strides", (1,) * len(taps))
        if halves and all(tap <= stride for tap, stride in zip(taps, strides, strict=True)):
            return APART
        return FEW_TRANSPOSED if halves and positions <= 1 << 14 else op
    channels, groups = node.x.shape[-1 if last else 1], node.attribute("group", 1)
    if groups > 1:
        return DEPTHWISE if groups == channels else op
    if filters.size == filters.shape[0] * channels:  # one tap: a product of matrices
        return op
    if halves and channels <= 4:
        return FEW_CHANNELS
    return FEW_POSITIONS if halves and positions <= 256 else op
