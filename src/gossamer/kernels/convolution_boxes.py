"""Convolution whose operands the copy engine (TMA) fetches: for every tap a box of pixels × channels, no im2col.

What lies outside of the image arrives as zeros, a strided window is a box with gaps, and no thread computes an address:
that leaves registers for larger tiles and issue slots for matrix instructions. It takes an sm_90 at least, an input
with channels last, and rows of whole 16 bytes; `convolution_gemm` does the rest.
"""

from __future__ import annotations

import triton
import triton.language as tl

from gossamer.kernels.activations import activate
from gossamer.kernels.convolution_box_tiles import BoxTiles, programs_at_a_time
from gossamer.kernels.convolution_epilogue import Epilogue, add_partial_sums
from gossamer.kernels.convolution_geometry import Activations, Convolution
from gossamer.kernels.convolution_pixels import pixel_offset, write_tile
from gossamer.kernels.convolution_tiles import extents_of
from gossamer.kernels.extents import cdiv
from gossamer.kernels.gemm import multiply_tiles
from gossamer.kernels.launch import Boxes, launch
from gossamer.kernels.tf32 import multiplies_in_tf32
from gossamer.model.node import Node
from gossamer.program import Buffer, Call, Target


@triton.jit
def box_coordinates(image, depth, row, column, channel, RANK: tl.constexpr):
    """The place of a box of activations in the tensor that it belongs to."""
    if RANK == 3:
        return image, depth, row, column, channel
    elif RANK == 0:
        return image, channel
    else:
        return image, row, column, channel


@triton.jit
def write_box(
    acc, y_boxes, bias_ptr, z_boxes, image, depth, row, column, output, n_outputs, split_images, alpha, beta,
    RANK: tl.constexpr, KIND: tl.constexpr, SPLIT: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A tile of y with channels last, after the epilogue if it is no part of a sum."""
    if SPLIT:
        image += tl.program_id(1) * split_images
    at = box_coordinates(image, depth, row, column, output, RANK)
    if not SPLIT:
        if bias_ptr is not None:
            channel = output + tl.arange(0, BLOCK_N)
            acc += tl.load(bias_ptr + channel, mask=channel < n_outputs, other=0.0).to(tl.float32)[None, :]
        if z_boxes is not None:
            acc += z_boxes.load(at).reshape(acc.shape).to(tl.float32)
        acc = activate(acc, KIND, alpha, beta)
    y_boxes.store(at, acc.to(y_boxes.dtype).reshape(y_boxes.block_shape))


@triton.jit
def write_pixels(
    acc, y_ptr, bias_ptr, z_ptr, image, depth, row, column, output, n_outputs, n_images, split_stride, y_extents,
    y_strides, y_channel_stride, alpha, beta, RANK: tl.constexpr, KIND: tl.constexpr, SPLIT: tl.constexpr,
    BOX: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A tile of y with channels first: threads write what the copy engine cannot turn."""
    pixel = tl.arange(0, BOX[0] * BOX[1] * BOX[2])
    p, q = row + pixel // BOX[2] % BOX[1], column + pixel % BOX[2]
    if RANK == 3:
        n, o = image + pixel * 0, depth + pixel // (BOX[1] * BOX[2])
    else:
        n, o = image + pixel // (BOX[1] * BOX[2]), pixel * 0
    kept = (n < n_images) & (o < y_extents[0]) & (p < y_extents[1]) & (q < y_extents[2])
    at = pixel_offset(n, o, p, q, y_strides, 1)
    if SPLIT:
        at += tl.program_id(1).to(tl.int64) * split_stride
    channel = output + tl.arange(0, BLOCK_N)
    write_tile(acc, y_ptr, at, kept, channel, channel < n_outputs, y_channel_stride, bias_ptr, z_ptr, alpha, beta, KIND,
               not SPLIT, True)  # fmt: skip


@triton.jit
def convolve_tile(
    tile, x_boxes, w_boxes, bias_ptr, z, y, n_outputs, columns, n_images, box_slices, box_rows, box_columns, steps,
    chunks, split_images, split_stride, y_extents, y_strides, y_channel_stride, strides, pads, dilations, alpha, beta,
    KERNEL: tl.constexpr, RANK: tl.constexpr, Y_PIXELS_INNER: tl.constexpr, KIND: tl.constexpr, MULTIPLY: tl.constexpr,
    UPCAST: tl.constexpr, SPLIT: tl.constexpr, BOX: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Tile number `tile` of y, as `convolution_boxes_kernel` says."""
    PIXELS: tl.constexpr = BOX[0] * BOX[1] * BOX[2]
    output, box = tile % columns * BLOCK_N, tile // columns
    o, p, q = 0, box // box_columns % box_rows * BOX[1], box % box_columns * BOX[2]
    image = box // box_columns // box_rows
    if RANK == 3:
        o = image % box_slices * BOX[0]
        image = image // box_slices
    else:
        image *= BOX[0]
    d, h, w = o * strides[0] - pads[0], p * strides[1] - pads[1], q * strides[2] - pads[2]
    first, last = 0, steps
    if SPLIT:
        share = tl.cdiv(steps, tl.num_programs(1))
        first = tl.program_id(1) * share
        last = tl.minimum(first + share, steps)
    acc = tl.zeros((PIXELS, BLOCK_N), tl.float32)
    for step in range(first, last):
        tap = step // chunks
        depth = d + tap // (KERNEL[1] * KERNEL[2]) * dilations[0]
        row, column = h + tap // KERNEL[2] % KERNEL[1] * dilations[1], w + tap % KERNEL[2] * dilations[2]
        x = x_boxes.load(box_coordinates(image, depth, row, column, step % chunks * BLOCK_K, RANK))
        filters = w_boxes.load([output, step * BLOCK_K])
        acc = multiply_tiles(x.reshape(PIXELS, BLOCK_K), filters.T, acc, MULTIPLY, UPCAST)
    if Y_PIXELS_INNER:
        write_pixels(acc, y, bias_ptr, z, image, o, p, q, output, n_outputs, n_images, split_stride, y_extents,
                     y_strides, y_channel_stride, alpha, beta, RANK, KIND, SPLIT, BOX, BLOCK_N)  # fmt: skip
    else:
        write_box(acc, y, bias_ptr, z, image, o, p, q, output, n_outputs, split_images, alpha, beta, RANK, KIND, SPLIT,
                  BLOCK_N)  # fmt: skip


@triton.jit
def convolution_boxes_kernel(
    x_boxes, w_boxes, bias_ptr, z, y, n_tiles, n_outputs, columns, n_images, box_slices, box_rows, box_columns, steps,
    chunks, split_images, split_stride, y_extents, y_strides, y_channel_stride, strides, pads, dilations, alpha, beta,
    KERNEL: tl.constexpr, RANK: tl.constexpr, Y_PIXELS_INNER: tl.constexpr, KIND: tl.constexpr, MULTIPLY: tl.constexpr,
    UPCAST: tl.constexpr, SPLIT: tl.constexpr, PERSISTENT: tl.constexpr, BOX: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):  # fmt: skip
    """y[n,o,p,q,k] = KIND(Σ over t, r, s, c of x[n, window, c] · w[k, (t,r,s,c)] + bias[k] + z[n,o,p,q,k])

    window = (o, p, q) · strides − pads + (t, r, s) · dilations. Filters are packed (`convolution_weights`). BOX: a tile
    of y; images, rows and columns, or, at RANK 3, depths, rows and columns of one image. z and y are boxes; pointers
    where channels come first, which is Y_PIXELS_INNER. PERSISTENT: a program does every tile whose number is its own
    modulo the count of programs, and fetches the next one's operands while it writes one. With SPLIT, image
    s · split_images + n of y is the plain sum over the s-th part of K.
    """
    if PERSISTENT:
        for tile in tl.range(tl.program_id(0), n_tiles, tl.num_programs(0), flatten=True):
            convolve_tile(tile, x_boxes, w_boxes, bias_ptr, z, y, n_outputs, columns, n_images, box_slices, box_rows,
                          box_columns, steps, chunks, split_images, split_stride, y_extents, y_strides,
                          y_channel_stride, strides, pads, dilations, alpha, beta, KERNEL, RANK, Y_PIXELS_INNER, KIND,
                          MULTIPLY, UPCAST, SPLIT, BOX, BLOCK_N, BLOCK_K)  # fmt: skip
    else:
        convolve_tile(tl.program_id(0), x_boxes, w_boxes, bias_ptr, z, y, n_outputs, columns, n_images, box_slices,
                      box_rows, box_columns, steps, chunks, split_images, split_stride, y_extents, y_strides,
                      y_channel_stride, strides, pads, dilations, alpha, beta, KERNEL, RANK, Y_PIXELS_INNER, KIND,
                      MULTIPLY, UPCAST, SPLIT, BOX, BLOCK_N, BLOCK_K)  # fmt: skip


def convolve_boxes(
    node: Node,
    target: Target,
    convolution: Convolution,
    epilogue: Epilogue,
    tiles: BoxTiles,
    x: Buffer,
    filters: Buffer,
) -> tuple[Call, ...]:
    """The launches of a convolution of x with packed `filters` into the node's output, if `takes_boxes` holds."""
    y, extents, window = node.y, extents_of(convolution), convolution.window
    slices, box_rows, box_columns = tiles.boxes(convolution)
    # Of partial sums boxes write what lies outside of the last images, too.
    images = convolution.batch if convolution.rank == 3 or not convolution.y.channels_last else slices * tiles.box[0]
    size = images * (y.size // convolution.batch)
    sums = node.temporary((tiles.splits, size), "float32") if tiles.splits > 1 else y
    here = epilogue if tiles.splits == 1 else Epilogue()
    n_tiles = tiles.count(convolution)
    count = min(n_tiles, programs_at_a_time(tiles, x.dtype, target)) if tiles.persistent else n_tiles
    arguments = here.arguments()
    residual = arguments.pop("z_ptr")
    out = (images * tiles.splits if tiles.splits > 1 else convolution.batch, tiles.box, tiles.block_n)
    last = convolution.y.channels_last
    first = launch(
        convolution_boxes_kernel,
        (count, tiles.splits),
        writes=sums,
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
        inplace=here.inplace(y, x, filters),
        flops=convolution.flops,
        x_boxes=_boxes(x, convolution, convolution.x, convolution.batch, tiles.box, tiles.block_k, window.strides),
        w_boxes=Boxes(filters, (extents.outputs, filters.shape[-1]), (filters.shape[-1], 1), tiles.filter_box),
        z=_boxes(residual, convolution, convolution.y, *out) if residual and last else residual,
        y=_boxes(sums, convolution, convolution.y, *out) if last else sums,
        n_tiles=n_tiles,
        n_outputs=extents.outputs,
        columns=cdiv(extents.outputs, tiles.block_n),
        n_images=convolution.batch,
        box_slices=cdiv(convolution.y.extents[0], tiles.box[0]),
        box_rows=box_rows,
        box_columns=box_columns,
        steps=extents.steps(tiles.block_k),
        chunks=cdiv(extents.channels, tiles.block_k),
        split_images=images,
        split_stride=size,
        y_extents=convolution.y.extents,
        y_strides=convolution.y.strides,
        y_channel_stride=convolution.y.channel_stride,
        strides=window.strides,
        pads=window.pads,
        dilations=window.dilations,
        KERNEL=window.kernel,
        RANK=convolution.rank,
        Y_PIXELS_INNER=not last,
        MULTIPLY="tf32" if multiplies_in_tf32(x.dtype, target) else "ieee",
        UPCAST=target.interpreted and x.dtype != "float32",
        SPLIT=tiles.splits > 1,
        PERSISTENT=tiles.persistent,
        BOX=tiles.box,
        BLOCK_N=tiles.block_n,
        BLOCK_K=tiles.block_k,
        **arguments,
    )
    if tiles.splits == 1:
        return (first,)
    return first, add_partial_sums(sums, tiles.splits, epilogue, y, convolution.y, target)


def _boxes(
    buffer: Buffer,
    convolution: Convolution,
    layout: Activations,
    images: int,
    box: tuple[int, int, int],
    channels: int,
    gaps: tuple[int, int, int] = (1, 1, 1),
) -> Boxes:
    """Activations in boxes of pixels × channels. gaps: from one slice, row or column of a box to the next."""
    image, depth, row, column = layout.strides
    depths, rows, columns = layout.extents
    if convolution.rank == 0:
        return Boxes(buffer, (images, layout.channels), (image, 1), (box[0], channels))
    if convolution.rank == 3:
        extents, strides = (images, depths, rows, columns, layout.channels), (image, depth, row, column, 1)
        return Boxes(buffer, extents, strides, (1, *box, channels), (1, *gaps, 1))
    return Boxes(
        buffer, (images, rows, columns, layout.channels), (image, row, column, 1), (*box, channels), (1, *gaps[1:], 1)
    )
