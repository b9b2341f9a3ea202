"""Filters as the implicit-GEMM kernel reads them: one row per output channel, taps outside, channels inside.

A row is reduced in blocks, so each tap's channels are padded with zeros to whole blocks, or, where channels are few,
only the row as a whole. Constant filters are packed once, when they are uploaded; others by a kernel each time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import triton
import triton.language as tl

from gossamer.kernels.extents import cdiv
from gossamer.kernels.launch import launch
from gossamer.kernels.tf32 import multiplies_in_tf32, round_to_tf32, rounded_to_tf32
from gossamer.model.node import Node
from gossamer.program import Buffer, Call, Target


@triton.jit
def pack_filters_kernel(
    w_ptr, taps_ptr, packed_ptr, size, row_length, padded_channels, n_taps, source_taps, n_rows, n_channels, n_outputs,
    TRANSPOSED: tl.constexpr, TF32: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """packed[phase, k, tap · padded_channels + c] = w[k, c, taps[phase, tap]], zero where there is no such c or tap.

    TRANSPOSED: w is [group, c, k within group, tap], as ConvTranspose has it. TF32: rounded to that.
    """
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    column, row = at % row_length, at // row_length
    phase, k = row // n_rows, row % n_rows
    tap, c = column // padded_channels, column % padded_channels
    mask = (at < size) & (tap < n_taps) & (c < n_channels)
    source = tl.load(taps_ptr + phase * n_taps + tap, mask=mask, other=-1)
    line = (k // n_outputs * n_channels + c) * n_outputs + k % n_outputs if TRANSPOSED else k * n_channels + c
    value = tl.load(w_ptr + line * source_taps + source, mask=mask & (source >= 0), other=0.0)
    if TF32:
        value = round_to_tf32(value, CUT=True)
    tl.store(packed_ptr + at, value, mask=at < size)


@dataclass(frozen=True, slots=True)
class Packing:
    """A layout of packed filters.

    channels, outputs: of one group. source_taps: how many taps the filter has. taps: for each phase, which of them each
    packed tap is; -1 for none. padded_channels: what a tap takes of a row. transposed: the source is ConvTranspose's
    [C, K / groups, taps].
    """

    groups: int
    channels: int
    outputs: int
    source_taps: int
    taps: tuple[tuple[int, ...], ...]
    padded_channels: int
    row_length: int
    transposed: bool = False

    @staticmethod
    def plain(taps: int) -> tuple[tuple[int, ...], ...]:
        """One phase with every tap in its place."""
        return (tuple(range(taps)),)

    @property
    def shape(self) -> tuple[int, int, int]:
        return len(self.taps), self.groups * self.outputs, self.row_length

    @property
    def tag(self) -> str:
        """Names the layout among all packings of one filter."""
        order = "transposed" + repr(self.taps) if self.transposed else "filters"
        return f"{order}{self.groups}x{self.padded_channels}x{self.row_length}"

    def pack(self, filters: np.ndarray) -> np.ndarray:
        """The packed form of an ONNX filter tensor."""
        if self.transposed:
            grouped = filters.reshape(self.groups, self.channels, self.outputs, self.source_taps)
            filters = np.swapaxes(grouped, 1, 2)
        by_row = filters.reshape(self.groups * self.outputs, self.channels, self.source_taps)
        packed = np.zeros(self.shape, filters.dtype)
        for phase, taps in enumerate(self.taps):
            for place, tap in enumerate(taps):
                if tap >= 0:
                    first = place * self.padded_channels
                    packed[phase, :, first : first + self.channels] = by_row[:, :, tap]
        return packed


def packed_filters(node: Node, filters: Buffer, packing: Packing, target: Target) -> tuple[Buffer, tuple[Call, ...]]:
    """The packed filters, and the calls that make them where they are not constant."""
    tf32 = multiplies_in_tf32(filters.dtype, target)
    if node.is_constant(filters):
        tag = packing.tag + " tf32" * tf32
        pack = (lambda array: rounded_to_tf32(packing.pack(array))) if tf32 else packing.pack
        return node.derived(filters, tag, packing.shape, filters.dtype, pack), ()
    packed = node.temporary(packing.shape, filters.dtype)
    table = np.array(packing.taps, np.int32)
    taps = node.constant_buffer(f"filter taps {packing.taps}", table.shape, "int32", lambda: table)
    block = 65536 if target.interpreted else 1024
    call = launch(
        pack_filters_kernel,
        (cdiv(packed.size, block),),
        writes=packed,
        w_ptr=filters,
        taps_ptr=taps,
        packed_ptr=packed,
        size=packed.size,
        row_length=packing.row_length,
        padded_channels=packing.padded_channels,
        n_taps=len(packing.taps[0]),
        source_taps=packing.source_taps,
        n_rows=packing.groups * packing.outputs,
        n_channels=packing.channels,
        n_outputs=packing.outputs,
        TRANSPOSED=packing.transposed,
        TF32=tf32,
        BLOCK=block,
    )
    return packed, (call,)
