"""RNN, LSTM and GRU of one layer by `cudnnRNNForward`.

cuDNN reads weights in an arrangement of its own, which `pieces` says.

Source: cudnn_adv.h, cudnnSetRNNDescriptor_v8, cudnnSetRNNDataDescriptor, cudnnGetRNNWeightParams, cudnnRNNForward.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from gossamer.cudnn.bindings import HostScalar
from gossamer.cudnn.enums import (
    cudnnDirectionMode,
    cudnnForwardMode,
    cudnnMathType,
    cudnnRNNAlgo,
    cudnnRNNBiasMode,
    cudnnRNNDataLayout,
    cudnnRNNInputMode,
    cudnnRNNMode,
)
from gossamer.cudnn.handles import Handle
from gossamer.cudnn.loader import Library
from gossamer.cudnn.routines import Piece
from gossamer.cudnn.routines.direct import DirectRoutine, ints
from gossamer.cudnn.tensors import DATA_TYPES, ITEM_BITS

__all__ = ["CELLS", "GATES", "Recurrent"]


CELLS = {
    "rnn_tanh": cudnnRNNMode.CUDNN_RNN_TANH,
    "rnn_relu": cudnnRNNMode.CUDNN_RNN_RELU,
    "lstm": cudnnRNNMode.CUDNN_LSTM,
    "gru": cudnnRNNMode.CUDNN_GRU,
}

GATES = {
    "rnn_tanh": ("h",),
    "rnn_relu": ("h",),
    "lstm": ("input", "forget", "cell", "output"),
    "gru": ("reset", "update", "new"),
}
"""Of each cell, in cuDNN's order (linLayerID)."""

BFLOAT16_SINCE = 91900
"""Has recurrent layers of bfloat16, as cudnnGetVersion counts; 9.8 has none."""

PADDED_IO = 1
"""CUDNN_RNN_PADDED_IO_ENABLED: sequences of a batch lie at equal distances, whatever their lengths."""

_NOWHERE = 1 << 32
"""An address for weights when cuDNN is only asked where in them each lies: it reads nothing there."""


@dataclass(frozen=True)
class Extents:
    """What a layer's tensors have."""

    steps: int
    batch: int
    inputs: int
    hidden: int
    directions: int
    batch_first: bool


class Recurrent(DirectRoutine):
    """Roles x [steps, batch, inputs], y [steps, batch, directions, hidden]; h0, c0, h, c [directions, batch, hidden],
    each of which may be absent; w [directions, gates, hidden, inputs], r [directions, gates, hidden, hidden], b
    [directions, of inputs and of states, gates, hidden]; and `packed`, which these are packed to.

    settings: cell, of `CELLS`; gates: w's, r's and b's, by the names of `GATES`; dtype; steps, batch, inputs, hidden,
    directions; batch_first: whether x and y have the batch before the steps; lengths of the sequences, or null; bias:
    whether there is b; fma: whether products are made without tensor cores; fixed: whether weights are constants.
    """

    doing = "running a recurrent layer"
    functions = ("cudnnSetRNNDescriptor_v8", "cudnnGetRNNWeightParams", "cudnnRNNForward")

    @classmethod
    def objection(cls, library: Library, dtype: str) -> str:
        if dtype == "bfloat16" and library.version < BFLOAT16_SINCE:
            return f"cuDNN {library.version_text} has no recurrent layers of bfloat16"
        return super().objection(library, dtype)

    @classmethod
    def dtype_of(cls, settings: Mapping[str, Any]) -> str:
        return str(settings["dtype"])

    def open(self, settings: Mapping[str, Any], handle: Handle | None) -> None:
        self.describe(settings)
        assert handle is not None, "cuDNN says what its weights look like only to those who have a handle"
        size = ctypes.c_size_t()
        self.call("cudnnGetRNNWeightSpaceSize", handle.address, self._layer, ctypes.byref(size))
        self.packed_bytes = size.value
        self.pieces = tuple(self._pieces(handle, settings))
        needed, kept = ctypes.c_size_t(), ctypes.c_size_t()
        mode = cudnnForwardMode.CUDNN_FWD_MODE_INFERENCE
        sizes = ctypes.byref(needed), ctypes.byref(kept)
        self.call("cudnnGetRNNTempSpaceSizes", handle.address, self._layer, mode, self._x, *sizes)
        self.workspace_bytes = needed.value

    def describe(self, settings: Mapping[str, Any]) -> None:
        """Make the descriptors of the layer and of its tensors."""
        extents = {name: settings[name] for name in ("steps", "batch", "inputs", "hidden", "directions")}
        self._extents, self._dtype = Extents(**extents, batch_first=settings["batch_first"]), settings["dtype"]
        self.fixed = bool(settings["fixed"])
        self._layer = self._layer_descriptor(CELLS[settings["cell"]], bias=settings["bias"], fma=settings["fma"])
        self._shapes = self.create("Tensor"), self.create("Tensor")
        self._zero = HostScalar(0, self._dtype)
        lengths = settings["lengths"] or [self._extents.steps] * self._extents.batch
        self._x = self._sequences(self._extents.inputs, lengths)
        self._y = self._sequences(self._extents.directions * self._extents.hidden, lengths)
        state = self._extents.directions, self._extents.batch, self._extents.hidden
        strides = prod(state[1:]), state[2], 1
        self._state = self.tensor({"dtype": self._dtype, "dims": state, "strides": strides})

    def _layer_descriptor(self, mode: cudnnRNNMode, *, bias: bool, fma: bool) -> int:
        layer, two = self.create("RNN"), self._extents.directions == 2
        double = self._dtype == "float64"
        self.call(
            "cudnnSetRNNDescriptor_v8",
            layer,
            cudnnRNNAlgo.CUDNN_RNN_ALGO_STANDARD,
            mode,
            cudnnRNNBiasMode.CUDNN_RNN_DOUBLE_BIAS if bias else cudnnRNNBiasMode.CUDNN_RNN_NO_BIAS,
            cudnnDirectionMode.CUDNN_BIDIRECTIONAL if two else cudnnDirectionMode.CUDNN_UNIDIRECTIONAL,
            cudnnRNNInputMode.CUDNN_LINEAR_INPUT,
            DATA_TYPES[self._dtype],
            DATA_TYPES["float64" if double else "float32"],
            cudnnMathType.CUDNN_FMA_MATH if fma else _MATH.get(self._dtype, cudnnMathType.CUDNN_DEFAULT_MATH),
            self._extents.inputs,
            self._extents.hidden,
            self._extents.hidden,  # of states after projection: there is none
            1,
            None,
            PADDED_IO,
        )
        return layer

    def _sequences(self, width: int, lengths: Sequence[int]) -> int:
        """The descriptor of a batch of sequences; behind its end each sequence of a result is zero."""
        first = self._extents.batch_first
        layout = cudnnRNNDataLayout.CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED
        if first:
            layout = cudnnRNNDataLayout.CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED
        described, batch = self.create("RNNData"), self._extents.batch
        extents = self._extents.steps, batch, width, ints(lengths, batch)
        self.call("cudnnSetRNNDataDescriptor", described, DATA_TYPES[self._dtype], layout, *extents, self._zero.address)
        return described

    def _pieces(self, handle: Handle, settings: Mapping[str, Any]) -> Iterator[Piece]:
        """Where in cuDNN's arrangement each gate's weights go: of inputs first, then of states."""
        item, extents, theirs = ITEM_BITS[self._dtype] // 8, self._extents, settings["gates"]
        gates, count = [theirs.index(gate) for gate in GATES[settings["cell"]]], len(theirs)
        for direction in range(extents.directions):
            for index in range(2 * count):
                role, width = ("w", extents.inputs) if index < count else ("r", extents.hidden)
                gate = gates[index % count]
                matrix, bias = self._where(handle, direction, index)
                nbytes = extents.hidden * width * item
                yield Piece(role, (direction * count + gate) * nbytes, matrix, nbytes)
                if settings["bias"]:
                    nbytes, row = extents.hidden * item, (2 * direction + index // count) * count + gate
                    yield Piece("b", row * nbytes, bias, nbytes)

    def _where(self, handle: Handle, direction: int, index: int) -> tuple[int, int]:
        """Byte offsets of a gate's matrix and bias."""
        matrix, bias = ctypes.c_void_p(), ctypes.c_void_p()
        weights = direction, self.packed_bytes, _NOWHERE, index
        shapes = self._shapes  # which cuDNN writes and nobody reads
        found = shapes[0], ctypes.byref(matrix), shapes[1], ctypes.byref(bias)
        self.call("cudnnGetRNNWeightParams", handle.address, self._layer, *weights, *found)
        return (matrix.value or _NOWHERE) - _NOWHERE, (bias.value or _NOWHERE) - _NOWHERE

    def execute(self, handle: Handle, pointers: Mapping[str, int], workspace: int) -> None:
        at = pointers.get
        self.call(
            "cudnnRNNForward",
            *(handle.address, self._layer, cudnnForwardMode.CUDNN_FWD_MODE_INFERENCE, None),
            *(self._x, at("x"), self._y, at("y")),
            *(self._state, at("h0"), at("h")),
            *(self._state, at("c0"), at("c")),
            *(self.packed_bytes, at("packed"), self.workspace_bytes, workspace, 0, None),
        )


_MATH = {
    "float16": cudnnMathType.CUDNN_TENSOR_OP_MATH,
    "bfloat16": cudnnMathType.CUDNN_TENSOR_OP_MATH,
}
