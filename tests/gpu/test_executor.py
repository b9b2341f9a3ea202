"""The CUDA executor: graphs, threads, limits, and whose memory is whose."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import gossamer
from cases.two_products import RNG, WEIGHT, expected, session
from gossamer import errors
from gossamer.build.compilation import compile_kernels
from gossamer.program import Buffer, Program, Weight
from gossamer.run import driver
from gossamer.run.cuda import CudaExecutor, target_of_device


@pytest.fixture
def feeds() -> list[np.ndarray]:
    return [RNG.standard_normal((n, 64)).astype(np.float32) for n in (1, 7, 64, 33)]


@pytest.mark.parametrize("graphs", ["auto", "0", "1"])
def test_replays_give_the_first_answer(graphs: str, feeds: list[np.ndarray]) -> None:
    with session(enable_cuda_graph=graphs) as s:
        for _ in range(4):
            for x in feeds:
                np.testing.assert_allclose(s.run(None, {"x": x})[0], expected(x), rtol=1e-5, atol=1e-7)


def test_many_threads_get_the_single_thread_answers(feeds: list[np.ndarray]) -> None:
    with session() as s:
        want = [s.run(None, {"x": x})[0] for x in feeds]
        wrong: list[int] = []

        def work(index: int) -> None:
            for turn in range(200):
                which = (index + turn) % len(feeds)
                if not np.array_equal(s.run(None, {"x": feeds[which]})[0], want[which]):
                    wrong.append(which)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


def test_memory_limit_names_what_was_asked_and_leaves_the_session_usable(feeds: list[np.ndarray]) -> None:
    with session(gpu_mem_limit=1 << 20) as s:
        with pytest.raises(errors.OutOfMemory) as caught:
            s.run(None, {"x": np.ones((100_000, 64), np.float32)})
        assert caught.value.asked > 1 << 20
        assert caught.value.limit == 1 << 20
        assert 0 < caught.value.held < 1 << 20
        np.testing.assert_allclose(s.run(None, {"x": feeds[1]})[0], expected(feeds[1]), rtol=1e-5, atol=1e-7)


def test_the_device_runs_out_of_memory() -> None:
    with pytest.raises(errors.OutOfMemory) as caught:
        driver.allocate(1 << 50, 0, doing="asking for a petabyte")
    assert caught.value.asked == 1 << 50
    assert caught.value.free > 0
    assert "asking for a petabyte" in str(caught.value)


RELEASED_BY = {
    "cuMemAlloc": "cuMemFree",
    "cuMemHostAlloc": "cuMemFreeHost",
    "cuModuleLoadData": "cuModuleUnload",
    "cuStreamCreate": "cuStreamDestroy",
    "cuEventCreate": "cuEventDestroy",
    "cuStreamEndCapture": "cuGraphDestroy",
    "cuGraphInstantiate": "cuGraphExecDestroy",
}


def test_a_session_gives_back_what_it_takes(feeds: list[np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted where the driver is called: the device's free memory is other processes' business too."""
    call, ledger_type = driver.call, driver.Ledger
    ledgers: list[driver.Ledger] = []
    taken: set[str] = set()
    held: set[tuple[str, int]] = set()

    def counted(function: str, *arguments: Any, doing: str = "") -> Any:
        result = call(function, *arguments, doing=doing)
        if function in RELEASED_BY:
            taken.add(function)
            held.add((RELEASED_BY[function], int(result)))
        elif function in RELEASED_BY.values():
            held.discard((function, int(arguments[0])))
        return result

    def ledger(limit: int | None = None) -> driver.Ledger:
        ledgers.append(ledger_type(limit))
        return ledgers[-1]

    monkeypatch.setattr(driver, "call", counted)
    monkeypatch.setattr(driver, "Ledger", ledger)
    with session(enable_cuda_graph="1") as s:
        for x in [*feeds, np.ones((4096, 64), np.float32)]:  # the arena grows, and graphs with it
            s.run(None, {"x": x})
            s.run(None, {"x": x})
        assert ledgers[0].held > WEIGHT.nbytes
    assert taken == RELEASED_BY.keys()
    assert not held
    assert [ledger.held for ledger in ledgers] == [0]


def test_device_bound_input_and_output(feeds: list[np.ndarray]) -> None:
    with session() as s:
        for x in feeds:
            binding = s.io_binding()
            binding.bind_ortvalue_input("x", gossamer.OrtValue.ortvalue_from_numpy(x, "cuda", 0))
            binding.bind_output("y", "cuda")
            for _ in range(3):
                s.run_with_iobinding(binding)
            (y,) = binding.get_outputs()
            assert y.device_name() == "cuda"
            np.testing.assert_allclose(y.numpy(), expected(x), rtol=1e-5, atol=1e-7)


def test_the_current_device_of_the_caller_stays() -> None:
    before = driver.call("cuCtxGetCurrent")
    with session() as s:
        s.run(None, {"x": np.ones((2, 64), np.float32)})
    assert int(driver.call("cuCtxGetCurrent")) == int(before)


def test_constants_are_there_when_they_are_first_read() -> None:
    """Nothing is launched: an output that is a constant is read as soon as it was uploaded."""
    values = np.random.default_rng(0).standard_normal((100, 4096)).astype(np.float32)
    buffers = {"y": Buffer("y", "float32", (4096,))}
    for row in values:
        program = Program("constant", target_of_device(0), (), ("y",), buffers, {"y": Weight("y")}, (), 0, 0)
        with CudaExecutor({"y": row}, compile_kernels) as executor:
            np.testing.assert_array_equal(executor.run(program, {})["y"], row)
