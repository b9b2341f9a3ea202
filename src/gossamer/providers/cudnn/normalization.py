"""BatchNormalization and InstanceNormalization by cuDNN's batch normalisation."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from gossamer.cudnn.loader import Library
from gossamer.cudnn.routines.batch_normalization import BatchNormalization, parameter_type
from gossamer.kernels.copies import Strided, copy_strided
from gossamer.model.node import CHANNELS_LAST, Node
from gossamer.program import Buffer, Call, Refusal, Target, dtype_of
from gossamer.providers.cudnn import Lowered, lowers
from gossamer.providers.cudnn.direct import Images, direct_call, refusal_of

MOST_IMAGES = 65535
"""Of one batch: cuDNN's kernels have a row of blocks for each image."""
DEFAULT_EPSILON = 9.999999747378752e-06
"""1e-5 as ONNX has it: in fp32."""


@lowers("BatchNormalization")
@lowers("BatchNormalization", domain=CHANNELS_LAST)
def lower_batch_norm(node: Node, target: Target, library: Library) -> Lowered:
    """BatchNormalization-7 to 15: inference, and training of which only y is asked for."""
    asked = any(node.output(index) is not None for index in range(1, 5))
    training = bool(node.attribute("training_mode", 0)) or (asked and node.version < 14)
    if asked:
        return Refusal("cuDNN averages unbiased variances, and gives reciprocal deviations instead of variances")
    if node.x.rank < 2:
        return Refusal("cuDNN has no batches without channels")
    x = Images.of(node.x, channels_last=node.channels_last)
    if not node.attribute("spatial", 1):
        if node.channels_last:
            return Refusal("spatial = 0 has parameters in ONNX's layout")
        channels = prod(node.x.shape[1:])  # each pixel counts as one
        x = replace(x, dims=(x.dims[0], channels, 1, 1), strides=(channels, 1, 1, 1))
    if x.dims[0] > MOST_IMAGES:
        return Refusal(f"cuDNN normalises batches of up to {MOST_IMAGES} images")
    return refusal_of(library, BatchNormalization, node.x.dtype, x) or _calls(node, x, target, training=training)


@lowers("InstanceNormalization")
@lowers("InstanceNormalization", domain=CHANNELS_LAST)
def lower_instance_norm(node: Node, target: Target, library: Library) -> Lowered:
    """InstanceNormalization-1 to 22: the statistics of one image whose channels are those of all images."""
    x = Images.of(node.x, channels_last=node.channels_last)
    images, channels = x.dims[:2]
    if images > 1 and node.channels_last:
        return Refusal("channels of several images that come last are no channels of one image")
    x = replace(x, dims=(1, images * channels, *x.extents))
    refusal = refusal_of(library, BatchNormalization, node.x.dtype, x)
    return refusal or _calls(node, x, target, training=True, repeats=images)


def _calls(node: Node, x: Images, target: Target, *, training: bool, repeats: int = 1) -> Lowered:
    if not node.x.size:
        return ()
    given, calls = {"x": node.x}, list[Call]()
    for index, role in enumerate(("scale", "bias") if training else ("scale", "bias", "mean", "variance"), 1):
        parameter, copies = _parameter(node, index, repeats, target)
        if parameter.dtype != parameter_type(node.x.dtype):
            return Refusal(f"cuDNN wants {role} in {parameter_type(node.x.dtype)}, and it is no constant")
        given[role] = parameter
        calls += copies
    settings = {"x": x, "epsilon": node.attribute("epsilon", DEFAULT_EPSILON), "training": training}
    return (*calls, direct_call("batch_normalization", settings, given, {"y": node.y}))


def _parameter(node: Node, index: int, repeats: int, target: Target) -> tuple[Buffer, tuple[Call, ...]]:
    """Input `index`, `repeats` times, in the type that cuDNN wants if it is a constant; and what makes it so."""
    parameter, dtype = node.inputs[index], parameter_type(node.x.dtype)
    assert parameter is not None
    if node.is_constant(parameter) and (repeats > 1 or parameter.dtype != dtype):

        def repeated(array: np.ndarray) -> np.ndarray:
            return np.tile(array.reshape(-1).astype(dtype_of(dtype)), repeats)

        shape = (parameter.size * repeats,)
        return node.derived(parameter, f"cudnn_{dtype}_{repeats}", shape, dtype, repeated), ()
    if repeats == 1:
        return parameter, ()
    made = node.temporary((repeats, parameter.size), parameter.dtype)
    return made, copy_strided(made.shape, Strided(parameter, (0, 1)), Strided(made, made.strides), target)
