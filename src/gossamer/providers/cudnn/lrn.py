"""LRN by cuDNN."""

from __future__ import annotations

from gossamer.cudnn.loader import Library
from gossamer.cudnn.routines.lrn import LEAST_BETA, LEAST_K, SIZES, LocalResponseNormalization
from gossamer.model.node import CHANNELS_LAST, Node
from gossamer.program import Refusal, Target
from gossamer.providers.cudnn import Lowered, lowers
from gossamer.providers.cudnn.direct import Images, direct_call, refusal_of


@lowers("LRN")
@lowers("LRN", domain=CHANNELS_LAST)
def lower_lrn(node: Node, target: Target, library: Library) -> Lowered:
    """LRN-1 to 13; windows of even sizes lie as ONNX has them."""
    size, beta, k = node.attribute("size"), node.attribute("beta", 0.75), node.attribute("bias", 1.0)
    if size not in SIZES:
        return Refusal(f"cuDNN's LRN has sizes up to {SIZES[-1]}, not {size}")
    if beta < LEAST_BETA or k < LEAST_K:
        return Refusal(f"cuDNN's LRN has betas from {LEAST_BETA} and biases from {LEAST_K} on")
    if node.x.dtype == "bfloat16":
        return Refusal("cuDNN's LRN has no bfloat16")
    x = Images.of(node.x, channels_last=node.channels_last)
    settings = {"x": x, "size": size, "alpha": node.attribute("alpha", DEFAULT_ALPHA), "beta": beta, "k": k}
    refusal = refusal_of(library, LocalResponseNormalization, node.x.dtype, x)
    return refusal or ((direct_call("lrn", settings, {"x": node.x}, {"y": node.y}),) if node.x.size else ())


DEFAULT_ALPHA = 9.999999747378752e-05
"""1e-4 as ONNX has it: in fp32."""
