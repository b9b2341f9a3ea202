"""Permutations of axes: Transpose, DepthToSpace and SpaceToDepth are copies with other strides."""

from __future__ import annotations

from collections.abc import Sequence

from gossamer.kernels.copies import Strided, copy_strided, movable
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import CHANNELS_LAST, Node
from gossamer.program import Buffer, Call, Target


def permute(x: Buffer, y: Buffer, axes: Sequence[int], target: Target) -> tuple[Call, ...]:
    """y = x with its axes in the order `axes`; a view where only axes of extent one move. y's shape does not matter."""
    shape = tuple(x.shape[axis] for axis in axes)
    strides = tuple(x.strides[axis] for axis in axes)
    return copy_strided(shape, Strided(x, strides), Strided(y, y.reshaped(*shape).strides), target)


@lowers("Transpose")
def lower_transpose(node: Node, target: Target) -> Lowered:
    """y[i_0 … i_n] = x[i_perm⁻¹] (ONNX Transpose 1)."""
    if refusal := movable(node.x):
        return refusal
    rank = node.x.rank
    perm = node.attribute("perm", tuple(reversed(range(rank))))
    return permute(node.x, node.y, [axis % rank for axis in perm], target)


@lowers("DepthToSpace")
@lowers("DepthToSpace", domain=CHANNELS_LAST)
def lower_depth_to_space(node: Node, target: Target) -> Lowered:
    """Blocks of channels become b × b pixels (ONNX DepthToSpace 1; mode DCR or CRD since 11)."""
    if refusal := movable(node.x):
        return refusal
    block: int = node.attribute("blocksize")
    depth_first = node.attribute("mode", "DCR") == "DCR"
    if node.channels_last:
        n, height, width, channels = node.x.shape
        depth = channels // block**2
        x = node.x.reshaped(n, height, width, *((block, block, depth) if depth_first else (depth, block, block)))
        return permute(x, node.y, (0, 1, 3, 2, 4, 5) if depth_first else (0, 1, 4, 2, 5, 3), target)
    n, channels, height, width = node.x.shape
    depth = channels // block**2
    x = node.x.reshaped(n, *((block, block, depth) if depth_first else (depth, block, block)), height, width)
    return permute(x, node.y, (0, 3, 4, 1, 5, 2) if depth_first else (0, 1, 4, 2, 5, 3), target)


@lowers("SpaceToDepth")
@lowers("SpaceToDepth", domain=CHANNELS_LAST)
def lower_space_to_depth(node: Node, target: Target) -> Lowered:
    """b × b pixels become channels (ONNX SpaceToDepth 1): the pixel's place in front of its channel, or behind it in
    mode CRD (28)."""
    if refusal := movable(node.x):
        return refusal
    block: int = node.attribute("blocksize")
    depth_first = node.attribute("mode", "DCR") == "DCR"
    if node.channels_last:
        n, height, width, channels = node.x.shape
        x = node.x.reshaped(n, height // block, block, width // block, block, channels)
        return permute(x, node.y, (0, 1, 3, 2, 4, 5) if depth_first else (0, 1, 3, 5, 2, 4), target)
    n, channels, height, width = node.x.shape
    x = node.x.reshaped(n, channels, height // block, block, width // block, block)
    return permute(x, node.y, (0, 3, 5, 1, 2, 4) if depth_first else (0, 1, 3, 5, 2, 4), target)
