"""MaxPool, AveragePool, and the global ones by cuDNN's pools."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gossamer.cudnn.loader import Library
from gossamer.cudnn.routines.pooling import Pooling
from gossamer.kernels.pooling import Pool, pool_of
from gossamer.model.node import CHANNELS_LAST, Node
from gossamer.program import Refusal, Target
from gossamer.providers.cudnn import Lowered, lowers
from gossamer.providers.cudnn.direct import Images, direct_call, refusal_of


@dataclass(frozen=True, slots=True)
class Windows:
    """By spatial dimension: taps, padding before the image, and how far from one window to the next."""

    taps: tuple[int, ...]
    padding: tuple[int, ...]
    strides: tuple[int, ...]


@lowers("MaxPool", "AveragePool")
@lowers("MaxPool", "AveragePool", domain=CHANNELS_LAST)
def lower_pool(node: Node, target: Target, library: Library) -> Lowered:
    """MaxPool and AveragePool, opset 1 to 22, with windows of one to three dimensions that cuDNN has, too."""
    if node.output(1) is not None:
        return Refusal("cuDNN's pools give no indices")
    x, y = (Images.of(buffer, channels_last=node.channels_last) for buffer in (node.x, node.y))
    if refusal := refusal_of(library, Pooling, node.x.dtype, x, y):
        return refusal
    pool, counts = pool_of(node), bool(node.attribute("count_include_pad", 0))
    average = node.op_type == "AveragePool"
    if refusal := _refusal_of_windows(pool, counts_padding=average and counts):
        return refusal
    mode = ("average_with_padding" if counts else "average") if average else "max"
    window, spatial = pool.window, len(x.extents)
    windows = Windows(window.kernel[-spatial:], window.pads[-spatial:], window.strides[-spatial:])
    return _calls(node, x, y, mode, windows)


def _refusal_of_windows(pool: Pool, *, counts_padding: bool) -> Refusal | None:
    """cuDNN has as much padding behind as before, as many windows as then fit, and counts whatever they reach.

    Other padding behind, and windows that `ceil_mode` adds, come to the same where just as many fit.
    """
    window = pool.window
    sizes, counts = pool.x.extents, pool.y.extents
    for size, end, count, taps, pad, step, gap in zip(
        sizes, pool.ends, counts, window.kernel, window.pads, window.strides, window.dilations, strict=True
    ):
        if gap > 1 and taps > 1:
            return Refusal("cuDNN's pools have no dilations")
        if pad >= taps:
            return Refusal("cuDNN's padding is narrower than its windows")
        if count != 1 + (size + 2 * pad - taps) // step:
            return Refusal("its padding or ceil_mode asks for windows at the border that cuDNN does not have")
        if counts_padding and (count - 1) * step - pad + taps > end:
            return Refusal("its last windows reach beyond the padding, where cuDNN counts what ONNX does not")
    return None


@lowers("GlobalMaxPool", "GlobalAveragePool")
@lowers("GlobalMaxPool", "GlobalAveragePool", domain=CHANNELS_LAST)
def lower_global_pool(node: Node, target: Target, library: Library) -> Lowered:
    """GlobalMaxPool and GlobalAveragePool, opset 1 to 22: one window, the image, with any number of dimensions."""
    x, y = (Images.of(buffer, channels_last=node.channels_last) for buffer in (node.x, node.y))
    if len(x.dims) > 5:
        x, y = (replace(image, dims=(*image.dims[:2], image.pixels, 1), strides=(*image.strides[:2], step, step))
                for image, step in ((x, x.strides[-1]), (y, y.strides[-1])))  # fmt: skip
    windows = Windows(x.extents, (0,) * len(x.extents), (1,) * len(x.extents))
    mode = "max" if node.op_type == "GlobalMaxPool" else "average"
    return refusal_of(library, Pooling, node.x.dtype, x, y) or _calls(node, x, y, mode, windows)


def _calls(node: Node, x: Images, y: Images, mode: str, windows: Windows) -> Lowered:
    if not node.y.size:
        return ()
    if not node.x.size:
        return Refusal("cuDNN has no windows of nothing")
    settings = {
        "x": x,
        "y": y,
        "mode": mode,
        "window": windows.taps,
        "padding": windows.padding,
        "strides": windows.strides,
    }
    return (direct_call("pooling", settings, {"x": node.x}, {"y": node.y}),)
