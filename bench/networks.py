"""The convolutions of networks that are measured one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Layer:
    """A square convolution of a network: channels, input size, outputs, filter, stride, groups; residual: with Z."""

    channels: int
    size: int
    outputs: int
    filter: int
    stride: int = 1
    groups: int = 1
    residual: bool = False

    @property
    def pad(self) -> int:
        return self.filter // 2

    @property
    def first(self) -> bool:
        """Whether it is a network's first, which finds channels first."""
        return self.channels == 3

    @property
    def out(self) -> int:
        return (self.size + 2 * self.pad - self.filter) // self.stride + 1

    def __str__(self) -> str:
        kind = f"dw{self.filter}x{self.filter}" if self.groups > 1 else f"{self.filter}x{self.filter}"
        return (
            f"{self.channels:4}→{self.outputs:<4} {self.size:3}² {kind}/{self.stride}{' +z' if self.residual else ''}"
        )


def resnet50() -> Iterator[Layer]:
    """Its 53 convolutions."""
    yield Layer(3, 224, 64, 7, 2)
    channels, size = 64, 56
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            step = stride if block == 0 else 1
            yield Layer(channels, size, width, 1)
            yield Layer(width, size, width, 3, step)
            if block == 0:
                yield Layer(channels, size, 4 * width, 1, step)
            size //= step
            yield Layer(width, size, 4 * width, 1, residual=True)
            channels = 4 * width


def mobilenet_v2() -> Iterator[Layer]:
    """Its 52 convolutions."""
    yield Layer(3, 224, 32, 3, 2)
    channels, size = 32, 112
    settings = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    for expansion, outputs, blocks, stride in settings:
        for block in range(blocks):
            step, hidden = stride if block == 0 else 1, channels * expansion
            if expansion != 1:
                yield Layer(channels, size, hidden, 1)
            yield Layer(hidden, size, hidden, 3, step, hidden)
            size //= step
            yield Layer(hidden, size, outputs, 1, residual=channels == outputs and step == 1)
            channels = outputs
    yield Layer(320, 7, 1280, 1)


NETWORKS: dict[str, Callable[[], Iterator[Layer]]] = {"resnet50": resnet50, "mobilenet_v2": mobilenet_v2}
