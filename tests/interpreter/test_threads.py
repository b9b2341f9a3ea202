"""One session, many threads: everyone gets the single-thread answer."""

from __future__ import annotations

import threading

import numpy as np
from onnx import TensorProto, helper

import gossamer


def _model() -> bytes:
    """y = relu(x) for any number of rows."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 5]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", [x], [y])
    model: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    return model


def _answers_differ(session: gossamer.InferenceSession) -> int:
    """How many of 16 threads' 200 runs each, over four signatures, differ from a run with nobody else."""
    feeds = [np.random.default_rng(n).standard_normal((n, 5)).astype(np.float32) for n in (1, 2, 7, 8)]
    alone = [session.run(None, {"x": x})[0] for x in feeds]
    differing = []

    def work(index: int) -> None:
        for turn in range(200):
            which = (index + turn) % len(feeds)
            if not np.array_equal(session.run(None, {"x": feeds[which]})[0], alone[which]):
                differing.append(which)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(differing)


def test_interpreter() -> None:
    options = {"device": "interpreter"}
    with gossamer.InferenceSession(_model(), providers=[("CUDAExecutionProvider", options)]) as session:
        assert _answers_differ(session) == 0


def test_cpu_provider() -> None:
    with gossamer.InferenceSession(_model(), providers=["CPUExecutionProvider"]) as session:
        assert _answers_differ(session) == 0
