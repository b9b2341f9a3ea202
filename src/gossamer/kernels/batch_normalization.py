"""BatchNormalization in either layout, with given statistics or those of the batch."""

from __future__ import annotations

from math import prod

import triton
import triton.language as tl

from gossamer.kernels.elementwise_math import reciprocal, square_root
from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.kernels.launch import launch
from gossamer.kernels.normalization import normalize_calls
from gossamer.kernels.normalization_arguments import DEFAULT_EPSILON, Norm, Parameters, Statistics
from gossamer.kernels.reduction_geometry import Geometry, as_type, float_accumulator
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import CHANNELS_LAST, Node
from gossamer.program import Launch, Refusal, Target

DEFAULT_MOMENTUM = 0.8999999761581421
"""0.9 as ONNX has it: in fp32."""


@triton.jit
def batch_normalization_kernel(
    x_ptr, scale_ptr, bias_ptr, mean_ptr, variance_ptr, y_ptr, n_rows, n_columns, n_channels,
    EPSILON: tl.constexpr, CHANNELS_LAST: tl.constexpr, TYPE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr,
):  # fmt: skip
    """y = (x - mean) · scale / √(variance + epsilon) + bias, by channel: the column's, or the row modulo n_channels."""
    column_blocks = tl.cdiv(n_columns, BLOCK_COLUMNS)
    row = ((tl.program_id(0) // column_blocks).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    column = ((tl.program_id(0) % column_blocks).to(tl.int64) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS))[None, :]
    mask = (row < n_rows) & (column < n_columns)
    if CHANNELS_LAST:
        channel, exists = column, column < n_columns
    else:
        channel, exists = row % n_channels, row < n_rows
    scale = as_type(tl.load(scale_ptr + channel, exists, other=0.0), TYPE)
    bias = as_type(tl.load(bias_ptr + channel, exists, other=0.0), TYPE)
    mean = as_type(tl.load(mean_ptr + channel, exists, other=0.0), TYPE)
    variance = as_type(tl.load(variance_ptr + channel, exists, other=1.0), TYPE)
    scale *= reciprocal(square_root(variance + EPSILON))
    offsets = row * n_columns + column
    x = as_type(tl.load(x_ptr + offsets, mask, other=0.0), TYPE)
    y = (x - mean) * scale + bias
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask)


@triton.jit
def running_average_kernel(old_ptr, new_ptr, y_ptr, n_channels, MOMENTUM: tl.constexpr, BLOCK: tl.constexpr):
    """y = old · momentum + new · (1 - momentum), or new where there is no old."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(new_ptr + i, i < n_channels, other=0.0)
    if old_ptr is not None:
        old = tl.load(old_ptr + i, i < n_channels, other=0.0).to(y.dtype)
        y = old * MOMENTUM + y * (1.0 - MOMENTUM)
    tl.store(y_ptr + i, y.to(y_ptr.dtype.element_ty), i < n_channels)


@lowers("BatchNormalization")
@lowers("BatchNormalization", domain=CHANNELS_LAST)
def lower_batch_norm(node: Node, target: Target) -> Lowered:
    """BatchNormalization-7 to 15: inference and training, which before version 14 is chosen by asking for statistics.

    Parameters may be of other float types than x.
    """
    if node.channels_last and not node.attribute("spatial", 1):
        return Refusal("spatial = 0 has parameters in ONNX's layout")
    asked = any(node.output(i) is not None for i in range(1, 5))
    if node.attribute("training_mode", 0) or (asked and node.version < 14):
        return _training(node, target)
    if asked:
        return Refusal("without training_mode there are no outputs of statistics")
    return (_inference(node, target),) if node.x.size else ()


def _extents(node: Node) -> tuple[int, int, int]:
    """Images, channels, pixels of an image; with spatial = 0 (before version 9) each pixel counts as a channel."""
    shape = node.x.shape if node.x.rank > 1 else (*node.x.shape, 1)
    if node.channels_last:
        return shape[0], shape[-1], prod(shape[1:-1])
    if not node.attribute("spatial", 1):
        return shape[0], prod(shape[1:]), 1
    return shape[0], shape[1], prod(shape[2:])


def _inference(node: Node, target: Target) -> Launch:
    images, channels, pixels = _extents(node)
    columnwise = node.channels_last or pixels == 1
    rows, columns = (images * pixels, channels) if columnwise else (images * channels, pixels)
    block_columns = min(power_of_two(columns), 2**14 if target.interpreted else 512)
    block_rows = min(power_of_two(rows), (2**16 if target.interpreted else 2048) // block_columns)
    if not target.interpreted:
        block_rows = min(block_rows, power_of_two(rows * columns // (2 * target.sm_count * block_columns)))
    return launch(
        batch_normalization_kernel,
        (cdiv(rows, block_rows) * cdiv(columns, block_columns),),
        writes=node.y,
        num_warps=max(1, min(4, block_rows * block_columns // 256)),
        inplace=((node.y, node.x),),
        x_ptr=node.x,
        scale_ptr=node.inputs[1],
        bias_ptr=node.inputs[2],
        mean_ptr=node.inputs[3],
        variance_ptr=node.inputs[4],
        y_ptr=node.y,
        n_rows=rows,
        n_columns=columns,
        n_channels=channels,
        EPSILON=node.attribute("epsilon", DEFAULT_EPSILON),
        CHANNELS_LAST=columnwise,
        TYPE=float_accumulator(node.x.dtype),
        BLOCK_ROWS=block_rows,
        BLOCK_COLUMNS=block_columns,
    )


def _training(node: Node, target: Target) -> Lowered:
    """The batch's own statistics, their running averages as outputs 1 and 2, and themselves as 3 and 4."""
    images, channels, pixels = _extents(node)
    if node.channels_last:
        geometry, by = Geometry(1, 1, 1, images * pixels, channels), "inner"
    else:
        geometry, by = Geometry(1, images, channels, pixels, 1), "row"
    parameters = Parameters(node.inputs[1], node.inputs[2], by, channels)
    accumulator = float_accumulator(node.x.dtype)
    mean, variance = (node.temporary((channels,), accumulator) for _ in range(2))
    norm = Norm("variance", node.attribute("epsilon", DEFAULT_EPSILON))
    statistics = Statistics(mean=mean, variance=variance)
    calls = normalize_calls(node, node.x, node.y, geometry, norm, target, parameters=parameters, statistics=statistics)
    averages = tuple(
        launch(
            running_average_kernel,
            (cdiv(channels, 1024),),
            writes=out,
            old_ptr=node.inputs[i + 2] if i < 3 else None,
            new_ptr=new,
            y_ptr=out,
            n_channels=channels,
            MOMENTUM=node.attribute("momentum", DEFAULT_MOMENTUM),
            BLOCK=1024,
        )
        for i, new in enumerate((mean, variance, mean, variance), 1)
        if (out := node.output(i)) is not None
    )
    return (*calls, *averages)
