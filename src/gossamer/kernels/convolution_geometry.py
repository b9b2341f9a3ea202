"""Convolutions as numbers: windows, extents and strides, always with three spatial dimensions.

Missing leading dimensions have extent 1, a filter of 1 and no padding; kernels are told how many dimensions are real.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd, prod

from gossamer.model.node import Node
from gossamer.program import Buffer

Triple = tuple[int, int, int]
"""Depth, rows, columns."""

LIMIT = 2**31


@dataclass(frozen=True, slots=True)
class Activations:
    """A tensor of activations as a kernel addresses it. Strides in elements.

    channels: of all groups. strides: of image, depth, row and column.
    """

    channels: int
    extents: Triple
    strides: tuple[int, int, int, int]
    channel_stride: int

    @staticmethod
    def of(shape: Sequence[int], channels_last: bool) -> Activations:
        """The activations of a dense tensor N, C, spatial… or N, spatial…, C, which are the same where there is one
        pixel: strides are the latter's then, multiples of what channels are multiples of."""
        channels, spatial = (shape[-1], shape[1:-1]) if channels_last else (shape[1], shape[2:])
        depth, rows, columns = extents = triple(spatial, 1)
        if channels_last or prod(extents) == 1:
            column, channel = channels, 1
        else:
            column, channel = 1, depth * rows * columns
        strides = (channels * prod(extents), rows * columns * column, columns * column, column)
        return Activations(channels, extents, strides, channel)

    @property
    def pixels(self) -> int:
        """Of one image."""
        return prod(self.extents)

    @property
    def channels_last(self) -> bool:
        return self.channel_stride == 1

    @property
    def wide(self) -> bool:
        """Whether offsets within one image need 64 bits. Halved: windows reach a little beyond the image."""
        return self.channels * self.pixels >= LIMIT // 2

    def alignment(self, channels: int) -> int:
        """The largest power of two, up to 16, that divides every stride and `channels`, those of one group.

        Kernels take the strides divided by it and multiply: that is how the compiler gets to know what is aligned.
        """
        return gcd(16, channels, *self.strides) if self.channels_last else 1

    def units(self, alignment: int) -> tuple[int, int, int, int]:
        """The strides divided by `alignment`."""
        image, depth, row, column = (stride // alignment for stride in self.strides)
        return image, depth, row, column


@dataclass(frozen=True, slots=True)
class Window:
    """What one output element sees: input coordinate = output coordinate · strides − pads + tap · dilations."""

    kernel: Triple
    strides: Triple
    pads: Triple
    dilations: Triple

    @property
    def taps(self) -> int:
        return prod(self.kernel)

    @property
    def pointwise(self) -> bool:
        """Whether the window is the element itself."""
        return self.kernel == (1, 1, 1) and self.strides == (1, 1, 1) and self.pads == (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Convolution:
    """y[n, k, o] = Σ over c, tap of x[n, group(k)·C + c, window(o, tap)] · w[k, c, tap].

    rank: how many of the three spatial dimensions kernels have to tell apart; 0 where x and y are plain matrices
    (pixels × channels), each row of which counts as an image.
    """

    batch: int
    groups: int
    rank: int
    x: Activations
    y: Activations
    window: Window

    @property
    def channels(self) -> int:
        """Input channels of one group."""
        return self.x.channels // self.groups

    @property
    def outputs(self) -> int:
        """Output channels of one group."""
        return self.y.channels // self.groups

    @property
    def pixels(self) -> int:
        """Output pixels of all images."""
        return self.batch * self.y.pixels

    @property
    def wide(self) -> bool:
        return self.x.wide or self.y.wide or self.pixels >= LIMIT // 2

    @property
    def flops(self) -> int:
        return 2 * self.pixels * self.y.channels * self.channels * self.window.taps

    @property
    def padded(self) -> bool:
        """Whether some window reaches beyond the input."""
        window = self.window
        axes = zip(
            window.kernel, window.strides, window.pads, window.dilations, self.x.extents, self.y.extents, strict=True
        )
        return any(
            pad > 0 or (out - 1) * step - pad + (taps - 1) * gap >= size for taps, step, pad, gap, size, out in axes
        )

    def simplified(self) -> Convolution:
        """The same convolution with as few dimensions as it needs."""
        if self.window.pointwise and self.x.extents == self.y.extents:
            return self._rows() if self.x.channels_last and self.y.channels_last else self._one_line()
        axes = zip(self.window.kernel, self.window.pads, self.x.extents, self.y.extents, strict=True)
        real = [i for i, (taps, pad, size, out) in enumerate(axes) if (taps, pad, size, out) != (1, 0, 1, 1)]
        return replace(self, rank=3 - min(real, default=2))

    def _rows(self) -> Convolution:
        count, here = self.pixels, (1, 1, 1)
        x = Activations(self.x.channels, here, (self.x.channels,) * 4, 1)
        y = Activations(self.y.channels, here, (self.y.channels,) * 4, 1)
        return replace(self, batch=count, rank=0, x=x, y=y)

    def _one_line(self) -> Convolution:
        return replace(self, rank=1, x=_flattened(self.x), y=_flattened(self.y))


def convolution_of(node: Node, filters: Buffer | None = None) -> Convolution:
    """The convolution that a Conv or FusedConv node asks for. filters: M, C / group, spatial…, by default as given.

    Attributes as in Conv-1 to Conv-22. `x_channels_first` (only in the channels-last domain): x is N, C, spatial… all
    the same, as a model's first convolution finds it.
    """
    weight = filters or node.inputs[1]
    assert weight is not None
    x = Activations.of(node.x.shape, node.channels_last and not node.attribute("x_channels_first", 0))
    y = Activations.of(node.y.shape, node.channels_last)
    spatial = weight.rank - 2
    kernel = triple(weight.shape[2:], 1)
    strides = triple(node.attribute("strides", (1,) * spatial), 1)
    dilations = triple(node.attribute("dilations", (1,) * spatial), 1)
    pads = _begin_pads(node, kernel, strides, dilations, x.extents, y.extents)
    window = Window(kernel, strides, pads, dilations)
    return Convolution(node.x.shape[0], node.attribute("group", 1), 3, x, y, window)


def _begin_pads(node: Node, kernel: Triple, strides: Triple, dilations: Triple, x: Triple, y: Triple) -> Triple:
    """How far windows reach out before each axis; how far behind follows from the output's extents."""
    mode = node.attribute("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        axes = zip(kernel, strides, dilations, x, y, strict=True)
        totals = [max(0, (out - 1) * step + (taps - 1) * gap + 1 - size) for taps, step, gap, size, out in axes]
        return triple([total // 2 if mode == "SAME_UPPER" else total - total // 2 for total in totals], 0)
    if mode == "VALID":
        return 0, 0, 0
    pads = node.attribute("pads", ())
    return triple(pads[: len(pads) // 2], 0)


def _flattened(activations: Activations) -> Activations:
    """The pixels of an image in one line."""
    image, _, _, column = activations.strides
    return replace(activations, extents=(1, 1, activations.pixels), strides=(image, column, column, column))


def triple(values: Sequence[int], filler: int) -> Triple:
    """Three values: `filler` for leading dimensions that do not exist."""
    missing = 3 - len(values)
    depth, rows, columns = (filler,) * missing + tuple(int(value) for value in values)
    return depth, rows, columns
