"""What the direct routines ask of cuDNN, argument by argument. A recorder answers: nothing is opened."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from gossamer.cudnn import calls
from gossamer.cudnn.routines import Piece, open_routine
from gossamer.cudnn.routines.direct import DirectRoutine
from gossamer.cudnn.symbols import FUNCTIONS
from gossamer.errors import NotFound

SPACE = 5000
IMAGES = {"dtype": "float16", "dims": [2, 3, 4, 5], "strides": [60, 20, 5, 1]}


@dataclass
class Recorder:
    """Every call as (function, argument name → value), checked against the prototype. weights: what lies where in
    packed weights, by (direction, index): the matrix's and the bias's offset."""

    made: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    weights: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)

    def call(self, function: str, *values: Any) -> None:
        prototype = FUNCTIONS[function].arguments
        arguments = dict(zip((name for _, name in prototype), values, strict=True))
        for spelling, name in prototype:
            calls.c_type(spelling).from_param(arguments[name])  # TypeError for what ctypes would not pass
        self.made.append((function, arguments))
        if function.startswith("cudnnCreate"):
            values[0]._obj.value = len(self.made)
        elif function == "cudnnGetRNNWeightSpaceSize":
            arguments["weightSpaceSize"]._obj.value = SPACE
        elif function == "cudnnGetRNNTempSpaceSizes":
            arguments["workSpaceSize"]._obj.value = 777
        elif function == "cudnnGetRNNWeightParams":
            matrix, bias = self.weights[arguments["pseudoLayer"], arguments["linLayerID"]]
            arguments["mAddr"]._obj.value = arguments["weightSpace"] + matrix
            arguments["bAddr"]._obj.value = arguments["weightSpace"] + bias

    def of(self, function: str) -> dict[str, Any]:
        (found,) = (arguments for name, arguments in self.made if name == function)
        return found

    def executed(self, routine: str, settings: Mapping[str, Any], **pointers: int) -> dict[str, Any]:
        """The arguments of the one call that executing makes."""
        opened = open_routine(routine, json.dumps(settings), Handle)  # type: ignore[arg-type]
        before = len(self.made)
        opened.execute(Handle, pointers, 64)  # type: ignore[arg-type]
        ((_, arguments),) = self.made[before:]
        opened.close()
        opened.close()
        kinds = [name.removeprefix("cudnn") for name, _ in self.made]
        for kind in ("Tensor", "Pooling", "LRN", "RNN", "RNNData"):
            assert kinds.count(f"Create{kind}Descriptor") == kinds.count(f"Destroy{kind}Descriptor")
        return arguments


class Handle:
    address = 99


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    made = Recorder()
    monkeypatch.setattr(DirectRoutine, "call", made.call)
    return made


def number_at(address: int, dtype: str) -> float:
    """What cuDNN reads there."""
    array = np.ctypeslib.as_array((np.ctypeslib.as_ctypes_type(np.dtype(dtype)) * 1).from_address(address))
    return float(array[0])


def test_pooling(recorder: Recorder) -> None:
    y = IMAGES | {"dims": [2, 3, 2, 3], "strides": [18, 6, 3, 1]}
    settings = {"x": IMAGES, "y": y, "mode": "average_with_padding"}
    settings |= {"window": [3, 2], "padding": [1, 0], "strides": [2, 1]}
    made = recorder.executed("pooling", settings, x=16, y=32)
    assert (made["handle"], made["x"], made["y"]) == (99, 16, 32)
    assert made["xDesc"] != made["yDesc"]
    described = recorder.of("cudnnSetPoolingNdDescriptor")
    assert described["mode"].name == "CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING"
    assert described["maxpoolingNanOpt"].name == "CUDNN_PROPAGATE_NAN"
    lists = [list(described[name]) for name in ("windowDimA", "paddingA", "strideA")]
    assert lists == [[3, 2], [1, 0], [2, 1]]


@pytest.mark.parametrize(("dtype", "scalar"), [("float16", "float32"), ("bfloat16", "float32"), ("float64", "float64")])
def test_scalars_are_of_the_type_that_cudnn_reads(recorder: Recorder, dtype: str, scalar: str) -> None:
    settings = {"x": IMAGES | {"dtype": dtype}, "size": 5, "alpha": 0.5, "beta": 0.75, "k": 1.5}
    opened = open_routine("lrn", json.dumps(settings), Handle)  # type: ignore[arg-type]
    opened.execute(Handle, {"x": 16, "y": 32}, 0)  # type: ignore[arg-type]
    made = recorder.of("cudnnLRNCrossChannelForward")
    assert number_at(made["alpha"], scalar) == 1.0
    assert number_at(made["beta"], scalar) == 0.0
    described = recorder.of("cudnnSetLRNDescriptor")
    assert [described[name] for name in ("lrnN", "lrnAlpha", "lrnBeta", "lrnK")] == [5, 0.5, 0.75, 1.5]


def test_batch_normalization(recorder: Recorder) -> None:
    settings = {"x": IMAGES, "epsilon": 0.25, "training": False}
    pointers = {"x": 16, "y": 32, "scale": 48, "bias": 64, "mean": 80, "variance": 96}
    made = recorder.executed("batch_normalization", settings, **pointers)
    names = ("x", "y", "bnScale", "bnBias", "estimatedMean", "estimatedVariance", "epsilon")
    assert [made[name] for name in names] == [16, 32, 48, 64, 80, 96, 0.25]
    assert made["mode"].name == "CUDNN_BATCHNORM_SPATIAL"


def test_batch_normalization_in_training_keeps_nothing(recorder: Recorder) -> None:
    settings = {"x": IMAGES, "epsilon": 0.25, "training": True}
    made = recorder.executed("batch_normalization", settings, x=16, y=32, scale=48, bias=64)
    assert [made[name] for name in ("x", "y", "bnScale", "bnBias", "epsilon")] == [16, 32, 48, 64, 0.25]
    kept = ("resultRunningMean", "resultRunningVariance", "resultSaveMean", "resultSaveInvVariance")
    assert [made[name] for name in kept] == [None] * 4


LSTM = {
    "cell": "lstm", "gates": ["input", "output", "forget", "cell"], "dtype": "float16", "steps": 4, "batch": 3,
    "inputs": 5, "hidden": 2, "directions": 2, "batch_first": False, "lengths": [4, 1, 2], "bias": True, "fma": False,
    "fixed": True,
}  # fmt: skip


def laid_out(recorder: Recorder, settings: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Lets cuDNN have matrices and biases in some order. Gives (index, direction) in that order."""
    count = 2 * len(settings["gates"])
    order = [(index, direction) for index in range(count) for direction in range(settings["directions"])]
    at = 0
    for index, direction in order:
        matrix = settings["hidden"] * (settings["inputs"] if index < count // 2 else settings["hidden"]) * 2
        recorder.weights[direction, index] = at, at + matrix
        at += matrix + settings["hidden"] * 2
    return order


def packed(settings: Mapping[str, Any], pieces: tuple[Piece, ...], weights: Mapping[str, np.ndarray]) -> np.ndarray:
    """Weights as pieces put them: 16-bit words."""
    space = np.zeros(SPACE, np.uint8)
    for piece in pieces:
        source = weights[piece.role].reshape(-1).view(np.uint8)[piece.source : piece.source + piece.nbytes]
        space[piece.target : piece.target + piece.nbytes] = source
    return space.view(np.float16)


@pytest.mark.parametrize(
    ("cell", "theirs", "own"),
    [
        ("lstm", ["input", "output", "forget", "cell"], [0, 2, 3, 1]),
        ("gru", ["update", "reset", "new"], [1, 0, 2]),
        ("rnn_relu", ["h"], [0]),
    ],
)
def test_weights_go_where_cudnn_wants_them(recorder: Recorder, cell: str, theirs: list[str], own: list[int]) -> None:
    """Each of cuDNN's gates gets the matrix and the bias of the caller's gate of that name."""
    settings = LSTM | {"cell": cell, "gates": theirs}
    order, gates = laid_out(recorder, settings), len(theirs)
    rng = np.random.default_rng(0)
    w, r, b = (
        rng.standard_normal((2, *shape)).astype(np.float16) for shape in ((gates, 2, 5), (gates, 2, 2), (2, gates, 2))
    )
    routine: Any = open_routine("recurrent", json.dumps(settings), Handle)  # type: ignore[arg-type]
    assert (routine.packed_bytes, routine.workspace_bytes) == (SPACE, 777)
    got = packed(settings, routine.pieces, {"w": w, "r": r, "b": b})
    want: list[np.ndarray] = []
    for index, direction in order:
        matrices, gate = (w, r)[index // gates], own[index % gates]
        want += [matrices[direction, gate].reshape(-1), b[direction, index // gates, gate]]
    whole = np.concatenate(want)
    np.testing.assert_array_equal(got[: whole.size], whole)
    assert not got[whole.size :].any()


def test_a_layer_without_biases(recorder: Recorder) -> None:
    settings = LSTM | {"bias": False}
    laid_out(recorder, settings)
    routine: Any = open_routine("recurrent", json.dumps(settings), Handle)  # type: ignore[arg-type]
    assert {piece.role for piece in routine.pieces} == {"w", "r"}
    assert recorder.of("cudnnSetRNNDescriptor_v8")["biasMode"].name == "CUDNN_RNN_NO_BIAS"


def test_recurrent(recorder: Recorder) -> None:
    laid_out(recorder, LSTM)
    made = recorder.executed("recurrent", LSTM, x=16, y=32, h0=48, c0=64, h=80, c=96, packed=112)
    names = ("x", "y", "hx", "cx", "hy", "cy", "weightSpace", "weightSpaceSize", "workSpace", "workSpaceSize")
    assert [made[name] for name in names] == [16, 32, 48, 64, 80, 96, 112, SPACE, 64, 777]
    layer = recorder.of("cudnnSetRNNDescriptor_v8")
    assert layer["dirMode"].name == "CUDNN_BIDIRECTIONAL"
    assert layer["biasMode"].name == "CUDNN_RNN_DOUBLE_BIAS"
    assert (layer["dataType"].name, layer["mathPrec"].name) == ("CUDNN_DATA_HALF", "CUDNN_DATA_FLOAT")
    assert [layer[name] for name in ("inputSize", "hiddenSize", "projSize", "numLayers")] == [5, 2, 2, 1]


def test_states_that_are_not_given(recorder: Recorder) -> None:
    settings = LSTM | {"cell": "rnn_tanh", "gates": ["h"], "directions": 1}
    laid_out(recorder, settings)
    made = recorder.executed("recurrent", settings, x=16, y=32, packed=112)
    assert [made[name] for name in ("hx", "cx", "hy", "cy")] == [None] * 4


def test_sequences(recorder: Recorder) -> None:
    """Without lengths, each has all steps; behind its end, a result is zero."""
    for settings in (LSTM, LSTM | {"lengths": None, "batch_first": True}):
        laid_out(recorder, settings)
        open_routine("recurrent", json.dumps(settings), Handle).close()  # type: ignore[arg-type]
    described = [arguments for name, arguments in recorder.made if name == "cudnnSetRNNDataDescriptor"]
    assert [list(one["seqLengthArray"]) for one in described] == [[4, 1, 2]] * 2 + [[4, 4, 4]] * 2
    assert [one["vectorSize"] for one in described] == [5, 4] * 2
    assert [one["layout"].name.rpartition("LAYOUT_")[2] for one in described[::2]] == [
        "SEQ_MAJOR_UNPACKED",
        "BATCH_MAJOR_UNPACKED",
    ]
    assert all(one["paddingFill"] for one in described)


@pytest.mark.parametrize(
    ("dtype", "fma", "math"),
    [
        ("float32", False, "CUDNN_DEFAULT_MATH"),
        ("float32", True, "CUDNN_FMA_MATH"),
        ("bfloat16", False, "CUDNN_TENSOR_OP_MATH"),
    ],
)
def test_precision(recorder: Recorder, dtype: str, fma: bool, math: str) -> None:
    settings = LSTM | {"dtype": dtype, "fma": fma}
    laid_out(recorder, settings)
    open_routine("recurrent", json.dumps(settings), Handle).close()  # type: ignore[arg-type]
    assert recorder.of("cudnnSetRNNDescriptor_v8")["mathType"].name == math


def test_an_unknown_routine() -> None:
    with pytest.raises(NotFound, match="cuDNN routine 'poling'; there are"):
        open_routine("poling", "{}", Handle)  # type: ignore[arg-type]
