"""com.microsoft's GroupNorm and SkipGroupNorm, as diffusion models have them."""

from __future__ import annotations

from gossamer.kernels.normalization_arguments import DEFAULT_EPSILON, NO_SKIP, Norm, Skip
from gossamer.kernels.normalization_operators import MICROSOFT, normalize_groups
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import Node
from gossamer.program import Buffer, Refusal, Target

ACTIVATIONS = ("none", "silu")


@lowers("GroupNorm", domain=MICROSOFT)
def lower_contrib_group_norm(node: Node, target: Target) -> Lowered:
    """com.microsoft::GroupNorm (-1): X, gamma, beta, then SiLU where `activation` is 1."""
    return _lower(node, target, NO_SKIP)


@lowers("SkipGroupNorm", domain=MICROSOFT)
def lower_skip_group_norm(node: Node, target: Target) -> Lowered:
    """com.microsoft::SkipGroupNorm (-1): GroupNorm of X + skip + bias, and that sum.

    skip: of X's shape, or [N, C], or that with ones where X has its pixels.
    """
    skip = node.inputs[3]
    assert skip is not None
    if skip.shape == node.x.shape:
        by = "same"
    elif _long_axes(skip.shape) == _long_axes((node.x.shape[0], _channels(node))):
        by = "image"
    else:
        return Refusal(f"its skip input has shape {skip.shape}, X {node.x.shape}")
    return _lower(node, target, Skip(skip, node.input(4), node.output(1), by))


def _lower(node: Node, target: Target, skip: Skip) -> Lowered:
    groups, channels = node.attribute("groups"), _channels(node)
    gamma: Buffer | None = node.inputs[1]
    assert gamma is not None
    if channels % groups or gamma.size != channels:
        return Refusal(f"{channels} channels in {groups} groups, with {gamma.size} gammas")
    epsilon = node.attribute("epsilon", DEFAULT_EPSILON)
    norm = Norm("variance", epsilon, activation=ACTIVATIONS[node.attribute("activation", 0)])
    return normalize_groups(node, groups, norm, target, channels_last=_is_channels_last(node), skip=skip)


def _is_channels_last(node: Node) -> bool:
    return bool(node.attribute("channels_last", 1))


def _channels(node: Node) -> int:
    return node.x.shape[-1 if _is_channels_last(node) else 1]


def _long_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(extent for extent in shape if extent != 1)
