"""cuDNN's direct routines on a GPU: cases of the native kernels that cuDNN takes, and more, by their oracles. (R7)"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from cases.node_case import NodeCase
from cases.recurrent import Recurrent, reference
from cudnn_direct_cases import OPERATORS, RANDOM, TAKEN
from gossamer.build.compilation import compile_kernels
from gossamer.cli import doctor
from gossamer.cudnn import Handle, loader
from gossamer.cudnn.routines import PackingRoutine, open_routine
from gossamer.errors import CudnnUnavailable
from gossamer.program import CudnnCall, Unavailable
from gossamer.providers.cudnn import Policy
from gossamer.run import driver
from gossamer.run.cuda import CudaExecutor, target_of_device
from harness import assert_close, lower_model

ONLY = Policy(enabled=True, only=OPERATORS)
pytestmark = pytest.mark.usefixtures("cudnn")

LAYERS = ("RNN", "LSTM", "GRU")
REPLAYED = (
    *("MaxPool-float16", "AveragePool-float32-channels_last", "GlobalAveragePool-2d", "LRN-size_5"),
    *("BatchNormalization-float32", "BatchNormalization-training_y", "InstanceNormalization-2d"),
    *("RNN-plain-float32", "LSTM-both_known_lengths-float32", "LSTM-reverse-float32"),
    *("LSTM-weights_as_inputs-float32", "GRU-linear_batch_first_both-float32", "LSTM-wide-float16"),
)


def within_reach(node: NodeCase) -> NodeCase:
    """With what operands of products may lose: tensor cores take fp32 as TF32."""
    x, rtol = node.inputs[0], node.rtol
    tf32 = rtol is not None and x is not None and node.op_type in LAYERS and x.dtype == "float32"
    return replace(node, rtol=rtol + 2.0**-9) if tf32 and rtol is not None else node


@pytest.mark.parametrize("node", TAKEN, ids=str)
def test_taken(node: NodeCase) -> None:
    within_reach(node).check("cuda", ONLY)


@pytest.mark.parametrize("node", RANDOM, ids=str)
def test_random_pools(node: NodeCase) -> None:
    """Those that cuDNN takes; the others say why it does not."""
    program, _ = lower_model(node.model(), target_of_device(0), ONLY)
    if not any(isinstance(call, Unavailable) for call in program.calls):
        node.check("cuda", ONLY)
        return
    with pytest.raises(CudnnUnavailable, match="cuDNN does not take this node: "):
        node.check("cuda", ONLY)


@pytest.mark.parametrize("name", REPLAYED)
def test_replayed(name: str) -> None:
    """A CUDA graph captured in the second run reads new inputs, weights among them, and writes the right results."""
    (node,) = (within_reach(node) for node in TAKEN if node.name == name)
    program, constants = lower_model(node.model(), target_of_device(0), ONLY)
    want = node.expected()
    with CudaExecutor(constants, compile_kernels, graphs="auto") as executor:
        for wrong in (True, False, True, False):
            feeds = {key: np.zeros_like(array) if wrong else array for key, array in node.feeds().items()}
            results = executor.run(program, feeds)
            for output, expected in zip(program.outputs, want, strict=True):
                if not wrong:
                    assert_close(results[output], expected, rtol=node.rtol)


def test_signatures_share_packed_weights() -> None:
    """The weights of a layer are in cuDNN's arrangement once, however many lengths of sequences there were."""
    lengths = (9, 5, 9, 3)  # the longest first: cuDNN's workspace grows with the steps
    layers = [Recurrent("LSTM", steps=steps, batch=2, inputs=64, hidden=256) for steps in lengths]
    weights, attributes = layers[0].arrays()[1:], {"hidden_size": 256}
    _, constants = lower_model(layers[0].case("first").model(), target_of_device(0), ONLY)
    held = []
    with CudaExecutor(constants, compile_kernels, max_contexts=1) as executor:
        for layer in layers:
            inputs = [layer.arrays()[0], *weights]
            node = replace(layer.case(f"{layer.steps} steps"), inputs=inputs)
            program, _ = lower_model(node.model(), target_of_device(0), ONLY)
            results = executor.run(program, node.feeds())
            want = reference("LSTM", inputs, attributes)[0].astype(np.float32)
            assert_close(results["y0"], want, rtol=2.0**-8)
            held.append(executor.ledger.held)
    nbytes = sum(array.nbytes for array in weights if array is not None)
    assert held[0] >= 2 * nbytes  # as ONNX has them, and as cuDNN has them
    assert held[-1] - held[0] < nbytes


@pytest.fixture
def handle() -> Iterator[Handle]:
    with driver.device(0).active(), Handle() as made:
        yield made


@pytest.mark.parametrize(
    "name", ["RNN-both_ways-float32", "LSTM-no_bias-float32", "LSTM-wide-float16", "GRU-linear_both_float64-float64"]
)
def test_packed_weights_are_whole(name: str, handle: Handle) -> None:
    """Every weight has a place of its own, and nothing is left over but cuDNN's padding."""
    (node,) = (node for node in TAKEN if node.name == name)
    program, _ = lower_model(node.model(), target_of_device(0), ONLY)
    (call,) = (call for call in program.calls if isinstance(call, CudnnCall))
    routine = open_routine(call.routine, call.description, handle)
    try:
        assert isinstance(routine, PackingRoutine)
        pieces = sorted(routine.pieces, key=lambda piece: piece.target)
        ends = [piece.target + piece.nbytes for piece in pieces]
        assert all(end <= piece.target for end, piece in zip(ends, pieces[1:], strict=False))
        assert ends[-1] <= routine.packed_bytes
        item = np.dtype(json.loads(call.description)["dtype"]).itemsize
        weights = [array for array in node.inputs[1:4] if array is not None]
        assert sum(piece.nbytes for piece in pieces) == sum(array.size for array in weights) * item
        for role, array in zip("wrb", weights, strict=False):
            sources = sorted((p.source, p.nbytes) for p in pieces if p.role == role)
            assert [at for at, _ in sources] == np.cumsum([0, *(size for _, size in sources[:-1])]).tolist()
            assert sum(size for _, size in sources) == array.size * item
    finally:
        routine.close()


def test_doctors_self_test() -> None:
    """cuDNN fills memory, and the answer is right. (R1.8)"""
    (finding,) = doctor._cudnn_self_test()
    assert finding.detail == f"cuDNN {loader.load().version_text} works on GPU 0"
    assert finding.good
