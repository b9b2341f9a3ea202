"""What follows the sums of a convolution: bias, residual and activation, within its kernel or after split-K."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl

from gossamer.kernels.activations import KINDS
from gossamer.kernels.convolution_geometry import LIMIT, Activations
from gossamer.kernels.convolution_pixels import finish
from gossamer.kernels.extents import cdiv
from gossamer.kernels.launch import launch
from gossamer.model.node import Node
from gossamer.program import Buffer, Launch, Refusal, Target

CONTRIB_ACTIVATIONS = {
    "": ("none", (0.0, 0.0)),
    "Relu": ("relu", (0.0, 0.0)),
    "Tanh": ("tanh", (0.0, 0.0)),
    "Sigmoid": ("sigmoid", (0.0, 0.0)),
    "LeakyRelu": ("leaky_relu", (0.01, 0.0)),
    "Clip": ("clip", (float("-inf"), float("inf"))),
    "HardSigmoid": ("hard_sigmoid", (0.2, 0.5)),
    "HardSwish": ("hard_swish", (0.0, 0.0)),
    "Elu": ("elu", (1.0, 0.0)),
    "Softplus": ("softplus", (0.0, 0.0)),
    "Softsign": ("softsign", (0.0, 0.0)),
    "Swish": ("silu", (1.0, 0.0)),
    "SiLU": ("silu", (1.0, 0.0)),
    "Gelu": ("gelu", (0.0, 0.0)),
}
"""com.microsoft::FusedConv's activations, by ONNX names: kind, and the parameters that hold where none are given."""


@triton.jit
def split_k_epilogue_kernel(
    partial_ptr, bias_ptr, z_ptr, y_ptr, size, split_stride, n_channels, channel_stride, alpha, beta,
    KIND: tl.constexpr, SPLITS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """y[i] = KIND(Σₛ partial[s, i] + bias[i / channel_stride mod n_channels] + z[i]; alpha, beta)."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if WIDE:
        at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < size
    acc = tl.zeros((BLOCK,), tl.float64 if partial_ptr.dtype.element_ty == tl.float64 else tl.float32)
    for split in tl.static_range(SPLITS):
        acc += tl.load(partial_ptr + split * split_stride.to(tl.int64) + at, mask=mask, other=0.0).to(acc.dtype)
    acc = finish(acc, at // channel_stride % n_channels, mask, at, mask, bias_ptr, z_ptr, alpha, beta, KIND)
    tl.store(y_ptr + at, acc.to(y_ptr.dtype.element_ty), mask=mask)


@dataclass(frozen=True, slots=True)
class Epilogue:
    """y = activation(sums + bias + residual). bias: [channels]. residual: of y's shape. activation: a kind of
    `kernels.activations` with its two parameters."""

    bias: Buffer | None = None
    residual: Buffer | None = None
    activation: str = "none"
    parameters: tuple[float, float] = (0.0, 0.0)

    def arguments(self) -> dict[str, Any]:
        """The kernel parameters that every convolution kernel has for it."""
        alpha, beta = self.parameters
        return {"bias_ptr": self.bias, "z_ptr": self.residual, "alpha": alpha, "beta": beta, "KIND": self.activation}

    def inplace(self, y: Buffer, *operands: Buffer) -> tuple[tuple[Buffer, Buffer], ...]:
        """y may take residual's memory unless other programs still read that memory as an operand."""
        taken = {operand.name for operand in (*operands, self.bias) if operand is not None}
        return ((y, self.residual),) if self.residual is not None and self.residual.name not in taken else ()


def epilogue_of(node: Node) -> Epilogue | Refusal:
    """What a Conv, ConvTranspose, or a fused form of any domain asks for after the sums."""
    name, given = node.attribute("activation", ""), node.attribute("activation_params", ())
    if node.domain == "com.microsoft":
        kind, defaults = CONTRIB_ACTIVATIONS.get(name, (name, (0.0, 0.0)))
        known = name in CONTRIB_ACTIVATIONS
    else:
        kind, defaults = name or "none", (0.0, 0.0)
        known = kind in KINDS
    if not known:
        return Refusal(f"{node.op_type} has no activation '{name}'")
    alpha, beta = (*given, *defaults[len(given) :])[:2]
    return Epilogue(node.input(2), node.input(3), kind, (float(alpha), float(beta)))


def add_partial_sums(
    partial: Buffer, splits: int, epilogue: Epilogue, y: Buffer, layout: Activations, target: Target
) -> Launch:
    """partial[splits, at least as much as y] → y, with the epilogue. layout: y's."""
    block = 65536 if target.interpreted else 512 if y.size < 2048 * target.sm_count else 2048
    return launch(
        split_k_epilogue_kernel,
        (cdiv(y.size, block),),
        writes=y,
        inplace=epilogue.inplace(y, partial),
        partial_ptr=partial,
        y_ptr=y,
        size=y.size,
        split_stride=partial.size // splits,
        n_channels=layout.channels,
        channel_stride=layout.channel_stride,
        **epilogue.arguments(),
        SPLITS=splits,
        WIDE=y.size >= LIMIT - block,
        BLOCK=block,
    )
