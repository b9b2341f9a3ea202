"""Which rows, statistics and parameters the normalisation operators of ONNX and com.microsoft mean."""

from __future__ import annotations

from math import prod

from gossamer.kernels.copies import Strided, copy_strided
from gossamer.kernels.movement import broadcast
from gossamer.kernels.normalization import normalize_calls
from gossamer.kernels.normalization_arguments import (
    DEFAULT_EPSILON,
    NO_SKIP,
    Channels,
    Norm,
    Parameters,
    Skip,
    Statistics,
)
from gossamer.kernels.reduction_geometry import Geometry, geometry_of, runs_of
from gossamer.kernels.registry import Lowered, lowers
from gossamer.kernels.transpose import permute
from gossamer.model.node import CHANNELS_LAST, FUSED, Node
from gossamer.program import Buffer, Call, Refusal, Target

MICROSOFT = "com.microsoft"


def _trailing_rows(node: Node) -> Geometry:
    """Rows over the axes from `axis` on."""
    axis = node.attribute("axis", -1) % node.x.rank
    return Geometry(prod(node.x.shape[:axis]), 1, 1, prod(node.x.shape[axis:]), 1)


def _parameters(
    node: Node, gamma: Buffer | None, beta: Buffer | None, target: Target
) -> tuple[Parameters, tuple[Call, ...]]:
    """Parameters that broadcast to X, and what has to run before they can be used.

    Those that have the normalised shape, or repeat along it, are read as they are; others are first expanded to it, or
    to X's shape where they differ between rows.
    """
    axis = node.attribute("axis", -1) % node.x.rank
    inner = node.x.shape[axis:]
    given = [buffer for buffer in (gamma, beta) if buffer is not None]
    lengths = {_period(buffer, inner) for buffer in given}
    if lengths <= {prod(inner)}:
        return Parameters(gamma, beta, "step"), ()
    if len(lengths) == 1 and None not in lengths:
        return Parameters(gamma, beta, "group", 1, given[0].size, 1), ()
    by_step = all(prod(buffer.shape[: -len(inner)]) == 1 for buffer in given)
    shape = inner if by_step else node.x.shape
    calls: list[Call] = []

    def expanded(buffer: Buffer | None) -> Buffer | None:
        if buffer is None or buffer.shape == shape:
            return buffer
        buffer = buffer.reshaped(*buffer.shape[-len(shape) :])
        whole = node.temporary(shape, buffer.dtype)
        calls.extend(copy_strided(shape, broadcast(buffer, shape), Strided(whole, whole.strides), target))
        return whole

    return Parameters(expanded(gamma), expanded(beta), "step" if by_step else "element"), tuple(calls)


def _period(buffer: Buffer, inner: tuple[int, ...]) -> int | None:
    """After how many steps of `inner` the buffer, broadcast to it, repeats; None where it does not do so as it is."""
    shape = buffer.shape
    while shape[:1] == (1,):
        shape = shape[1:]
    return buffer.size if len(shape) <= len(inner) and shape == inner[len(inner) - len(shape) :] else None


def _normalize_trailing(node: Node, norm: Norm, beta: Buffer | None, statistics: Statistics, target: Target) -> Lowered:
    parameters, before = _parameters(node, node.input(1), beta, target)
    geometry = _trailing_rows(node)
    calls = normalize_calls(node, node.x, node.y, geometry, norm, target, parameters=parameters, statistics=statistics)
    return (*before, *calls)


def _statistics(node: Node, mean: int | None, scale: int) -> Statistics:
    return Statistics(None if mean is None else node.output(mean), node.output(scale))


@lowers("LayerNormalization")
@lowers("LayerNormalization", domain=FUSED)
def lower_layer_norm(node: Node, target: Target) -> Lowered:
    """LayerNormalization-17 with its outputs Mean and InvStdDev; whatever `stash_type`, statistics are fp32 or fp64.

    Ours has an optional scale, any float type for each input and output, and no statistics.
    """
    norm = Norm("variance", node.attribute("epsilon", DEFAULT_EPSILON))
    return _normalize_trailing(node, norm, node.input(2), _statistics(node, 1, 2), target)


@lowers("RMSNormalization", since=23)
@lowers("RMSNormalization", domain=FUSED)
@lowers("SimplifiedLayerNormalization")
@lowers("SimplifiedLayerNormalization", domain=MICROSOFT)
def lower_rms_norm(node: Node, target: Target) -> Lowered:
    """RMSNormalization-23; onnxruntime's SimplifiedLayerNormalization with its output of 1 / rms.

    Ours has an optional scale, and any float type for each input and output.
    """
    norm = Norm("variance", node.attribute("epsilon", DEFAULT_EPSILON), centred=False)
    return _normalize_trailing(node, norm, None, _statistics(node, None, 1), target)


@lowers("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MICROSOFT)
@lowers("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=FUSED)
def lower_skip_layer_norm(node: Node, target: Target) -> Lowered:
    """com.microsoft SkipLayerNormalization (x, skip, gamma, beta, bias) and its RMS form (x, skip, gamma, bias).

    Outputs: the norm of x + skip + bias, its mean, 1 / deviation, and the sum. Ours have any rank, any float type for
    each input and output, and gamma is optional.
    """
    simplified = node.op_type == "SkipSimplifiedLayerNormalization"
    skip, gamma = node.input(1), node.input(2)
    beta, bias = (None, node.input(3)) if simplified else (node.input(3), node.input(4))
    steps = node.x.shape[-1]
    assert skip is not None
    block = node.x.shape[-2:]
    if simplified and node.output(1) is not None:
        return Refusal("the norm without a mean has no output of means")
    if skip.shape[-2:] != block or skip.size not in (node.x.size, prod(block)):
        return Refusal(f"its skip input has shape {skip.shape}, the first {node.x.shape}")
    geometry = Geometry(prod(node.x.shape[:-1]), 1, 1, steps, 1)
    return normalize_calls(
        node,
        node.x,
        node.y,
        geometry,
        Norm("variance", node.attribute("epsilon", 1e-12), centred=not simplified),
        target,
        parameters=Parameters(gamma, beta, "step"),
        statistics=_statistics(node, None if simplified else 1, 2),
        skip=Skip(skip, bias, node.output(3), "same" if skip.size == node.x.size else "rows"),
    )


@lowers("InstanceNormalization")
@lowers("InstanceNormalization", domain=CHANNELS_LAST)
def lower_instance_norm(node: Node, target: Target) -> Lowered:
    """InstanceNormalization-1 to 22."""
    images, channels, pixels = _extents(node, node.channels_last)
    if node.channels_last:
        geometry = Geometry(images, 1, 1, pixels, channels)
        parameters = Parameters(node.inputs[1], node.inputs[2], "inner")
    else:
        geometry = Geometry(images * channels, 1, 1, pixels, 1)
        parameters = Parameters(node.inputs[1], node.inputs[2], "row", channels)
    norm = Norm("variance", node.attribute("epsilon", DEFAULT_EPSILON))
    return normalize_calls(node, node.x, node.y, geometry, norm, target, parameters=parameters)


def _extents(node: Node, channels_last: bool) -> tuple[int, int, int]:
    """Images, channels, pixels of an image."""
    shape = node.x.shape
    spatial = shape[1:-1] if channels_last else shape[2:]
    return shape[0], shape[-1] if channels_last else shape[1], prod(spatial)


def normalize_groups(
    node: Node, groups: int, norm: Norm, target: Target, *, channels_last: bool, skip: Skip = NO_SKIP
) -> tuple[Call, ...]:
    """The norm of each of the groups of channels of an image, with gamma and beta (inputs 1 and 2) for each channel, or
    for each group."""
    images, channels, pixels = _extents(node, channels_last)
    gamma, beta = node.inputs[1], node.inputs[2]
    assert gamma is not None
    width = channels // groups
    per_group = width if gamma.size == channels else 1
    repeat = width // per_group
    if channels_last:
        by_channel = Geometry(images, 1, 1, pixels, channels), Parameters(gamma, beta, "inner", repeat=repeat)
        rows = Geometry(images, pixels, groups, width, 1)
        parameters = Parameters(gamma, beta, "group", groups, per_group, 1)
    else:
        by_channel = Geometry(images * channels, 1, 1, pixels, 1), Parameters(gamma, beta, "row", channels, 1, repeat)
        rows = Geometry(images * groups, 1, 1, width * pixels, 1)
        parameters = Parameters(gamma, beta, "group", groups, per_group, pixels)
    if width == 1:
        return normalize_calls(node, node.x, node.y, by_channel[0], norm, target, parameters=by_channel[1], skip=skip)
    # Where channels come first, each gathers the moments of its whole group: not for a few pixels.
    channels_of = Channels(*by_channel, width) if channels_last or pixels >= 2 * width else None
    return normalize_calls(
        node, node.x, node.y, rows, norm, target, parameters=parameters, skip=skip, channels=channels_of
    )


@lowers("GroupNormalization", since=18)
@lowers("GroupNormalization", domain=CHANNELS_LAST)
def lower_group_norm(node: Node, target: Target) -> Lowered:
    """GroupNormalization: version 18 has scale and bias per group, version 21 per channel."""
    norm = Norm("variance", node.attribute("epsilon", DEFAULT_EPSILON))
    return normalize_groups(node, node.attribute("num_groups"), norm, target, channels_last=node.channels_last)


@lowers("LpNormalization")
def lower_lp_norm(node: Node, target: Target) -> Lowered:
    """LpNormalization-1 to 22: x / (norm along `axis`); zero where that is zero."""
    geometry = geometry_of(runs_of(node.x.shape, (node.attribute("axis", -1) % node.x.rank,)))
    assert geometry is not None
    norm = Norm("l1" if node.attribute("p", 2) == 1 else "l2", centred=False)
    return normalize_calls(node, node.x, node.y, geometry, norm, target)


@lowers("MeanVarianceNormalization")
def lower_mean_variance_norm(node: Node, target: Target) -> Lowered:
    """MeanVarianceNormalization-9 to 13: (x - mean) / (deviation + 1e-9) over `axes`."""
    rank = node.x.rank
    axes = {axis % rank for axis in node.attribute("axes", (0, 2, 3))} or set(range(rank))
    norm = Norm("mean_variance", 1e-9)
    geometry = geometry_of(runs_of(node.x.shape, axes))
    if geometry is not None:
        return normalize_calls(node, node.x, node.y, geometry, norm, target)
    order = [*sorted(set(range(rank)) - axes), *sorted(axes)]  # more than two runs: rows are made of them first
    shape = tuple(node.x.shape[axis] for axis in order)
    rows = Geometry(prod(shape[: -len(axes)]), 1, 1, prod(shape[-len(axes) :]), 1)
    x, y = node.temporary(shape, node.x.dtype), node.temporary(shape, node.x.dtype)
    return (
        *permute(node.x, x, order, target),
        *normalize_calls(node, x, y, rows, norm, target),
        *permute(y, node.y, [order.index(axis) for axis in range(rank)], target),
    )
