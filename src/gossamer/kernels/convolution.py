"""Conv and its fused forms: which kernel computes a convolution.

`gossamer::FusedConv(X, W, B?, Z?)` is activation(conv(X, W) + B + Z): Conv's attributes, Z of the output's shape,
`activation` a kind of `kernels.activations` and `activation_params` its parameters. In the domain `gossamer.nhwc`
activations are N, spatial…, C, except X where `x_channels_first` is 1.
"""

from __future__ import annotations

import numpy as np

from gossamer.kernels.convolution_box_tiles import BoxTiles, choose_tiles
from gossamer.kernels.convolution_boxes import convolve_boxes
from gossamer.kernels.convolution_epilogue import Epilogue, epilogue_of
from gossamer.kernels.convolution_gemm import convolve, padded_channels
from gossamer.kernels.convolution_geometry import Convolution, convolution_of
from gossamer.kernels.convolution_inputs import Operands, arranged
from gossamer.kernels.convolution_tiles import extents_of
from gossamer.kernels.convolution_weights import Packing, packed_filters
from gossamer.kernels.depthwise import convolve_depthwise
from gossamer.kernels.gemm_tiles import Tiles
from gossamer.kernels.registry import Lowered, lowers
from gossamer.kernels.transpose import permute
from gossamer.model.node import CHANNELS_LAST, FUSED, Node
from gossamer.program import Buffer, Call, Refusal, Target

FLOATS = ("float16", "bfloat16", "float32", "float64")


@lowers("Conv")
@lowers("Conv", domain=CHANNELS_LAST)
def lower_conv(node: Node, target: Target) -> Lowered:
    """ONNX Conv (-1, -11, -22) over one to three spatial dimensions."""
    return _lower(node, target)


@lowers("FusedConv", domain=FUSED)
@lowers("FusedConv", domain=CHANNELS_LAST)
@lowers("FusedConv", domain="com.microsoft")
def lower_fused_conv(node: Node, target: Target) -> Lowered:
    """FusedConv of this package and of onnxruntime (com.microsoft-1)."""
    return _lower(node, target)


@lowers("NhwcFusedConv", domain="com.microsoft")
def lower_nhwc_fused_conv(node: Node, target: Target) -> Lowered:
    """com.microsoft::NhwcFusedConv (-1): X, Z and Y are N, spatial…, C, filters as ONNX has them."""
    return _lower(node, target)


@lowers("NhwcConv", domain="com.microsoft")
def lower_nhwc_conv(node: Node, target: Target) -> Lowered:
    """com.microsoft::NhwcConv (-1), with filters M, spatial…, C / group.

    So they are in onnxruntime's CUDA kernel and in the models that its tools make (`fusion_nhwc_conv`); the schema's
    text is a copy of Conv's.
    """
    filters = node.inputs[1]
    assert filters is not None
    channels = node.x.shape[-1] // node.attribute("group", 1)
    if filters.shape[-1] != channels:
        return Refusal(f"filters {filters.shape} are not M, spatial…, {channels}")
    shape = (filters.shape[0], channels, *filters.shape[1:-1])
    if node.is_constant(filters):
        first = node.derived(filters, "channels_first", shape, filters.dtype, lambda array: np.moveaxis(array, -1, 1))
        return _lower(node, target, first)
    first = node.temporary(shape, filters.dtype)
    calls = _lower(node, target, first)
    order = (0, filters.rank - 1, *range(1, filters.rank - 1))
    return calls if isinstance(calls, Refusal) else (*permute(filters, first, order, target), *calls)


def _lower(node: Node, target: Target, filters: Buffer | None = None) -> Lowered:
    """filters: where they are not the node's second input as it is."""
    refusal = refused(node)
    if refusal is not None:
        return refusal
    epilogue, filters = epilogue_of(node), filters or node.inputs[1]
    if isinstance(epilogue, Refusal):
        return epilogue
    assert filters is not None
    convolution = convolution_of(node, filters)
    if is_depthwise(convolution):
        return convolve_depthwise(node, target, convolution.simplified(), epilogue, filters)
    return _convolve(node, target, convolution.simplified(), epilogue, filters)


def refused(node: Node) -> Refusal | None:
    """Why there is no kernel for a Conv or ConvTranspose of these types and this rank."""
    if node.x.dtype not in FLOATS:
        return Refusal(f"{node.op_type} of {node.x.dtype} has no kernel")
    if not 3 <= node.x.rank <= 5:
        return Refusal(f"{node.op_type} over {node.x.rank - 2} spatial dimensions has no kernel")
    return None


def is_depthwise(convolution: Convolution) -> bool:
    """Whether every group has one input channel, so that there is nothing to reduce but taps."""
    return convolution.channels == 1 and convolution.groups > 1


def _convolve(
    node: Node,
    target: Target,
    convolution: Convolution,
    epilogue: Epilogue,
    filters: Buffer,
    tiles: Tiles | BoxTiles | None = None,
) -> tuple[Call, ...]:
    """tiles: by default the best, on the input as it is or on a copy of it, whichever is faster."""
    operands = Operands(convolution, node.x, filters) if tiles else arranged(node, target, convolution, filters)
    convolution, extents = operands.convolution, extents_of(operands.convolution)
    tiles = tiles or choose_tiles(convolution, node.x.dtype, target)
    per_tap, row = padded_channels(extents, tiles.block_k)
    taps = Packing.plain(extents.taps)
    packing = Packing(extents.groups, extents.channels, extents.outputs, extents.taps, taps, per_tap, row)
    packed, packing_calls = packed_filters(node, operands.filters, packing, target)
    calls = operands.calls + packing_calls
    if isinstance(tiles, BoxTiles):
        return calls + convolve_boxes(node, target, convolution, epilogue, tiles, operands.x, packed)
    return calls + convolve(node, target, convolution, epilogue, tiles, operands.x, packed, node.y)
