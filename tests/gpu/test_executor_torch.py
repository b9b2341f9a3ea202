"""The CUDA executor beside PyTorch: its streams, its captures, its memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gossamer
from cases.two_products import expected, session


@pytest.fixture
def stream(torch: Any) -> Iterator[Any]:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        yield stream
    stream.synchronize()


def on_stream(stream: Any) -> gossamer.InferenceSession:
    return session(user_compute_stream=stream.cuda_stream)


def bind(s: gossamer.InferenceSession, x: Any, y: Any) -> gossamer.IOBinding:
    binding = s.io_binding()
    binding.bind_input("x", "cuda", 0, np.float32, tuple(x.shape), x.data_ptr())
    binding.bind_output("y", "cuda", 0, np.float32, tuple(y.shape), y.data_ptr())
    return binding


def test_the_callers_stream_orders_the_work(stream: Any, torch: Any) -> None:
    """Neither side waits on the host; only the stream keeps the order."""
    with on_stream(stream) as s:
        x, y = torch.empty(256, 64, device="cuda"), torch.empty(256, 64, device="cuda")
        binding = bind(s, x, y)
        options = gossamer.RunOptions()
        options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        total = torch.zeros(256, 64, device="cuda")
        want = np.zeros((256, 64))
        for turn in range(20):
            x.copy_(torch.full((256, 64), float(turn), device="cuda") / 20)
            s.run_with_iobinding(binding, options)
            total += y
            want += expected(np.full((256, 64), turn / 20))
        np.testing.assert_allclose(total.cpu().numpy(), want, rtol=1e-4)


def test_a_callers_capture_takes_the_launches_in(stream: Any, torch: Any) -> None:
    with on_stream(stream) as s:
        x, y = torch.randn(33, 64, device="cuda"), torch.zeros(33, 64, device="cuda")
        binding = bind(s, x, y)
        s.run_with_iobinding(binding)
        graph = torch.cuda.CUDAGraph()
        options = gossamer.RunOptions()
        options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        with torch.cuda.graph(graph, stream=stream):
            s.run_with_iobinding(binding, options)
        for _ in range(3):
            x.copy_(torch.randn_like(x))
            other = np.ones((5, 64), np.float32)
            s.run(None, {"x": other})  # another arena: the graph's must stay as it is
            y.zero_()
            graph.replay()
            np.testing.assert_allclose(y.cpu().numpy(), expected(x.cpu().numpy()), rtol=1e-4, atol=1e-6)
        del graph


def test_torch_tensors_are_fed_in_place(torch: Any) -> None:
    with session() as s:
        x = torch.randn(64, 64, device="cuda")
        np.testing.assert_allclose(s.run(None, {"x": x})[0], expected(x.cpu().numpy()), rtol=1e-5, atol=1e-7)
