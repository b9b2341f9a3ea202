"""Compiled models on a GPU: compiled for it, run from their files, beside the models they were compiled from. (R10)"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gossamer
from blocked_imports import child
from cases.compiled_models import CASES, CompiledCase, convolution, product_and_norm
from gossamer.cudnn import loader
from gossamer.errors import ArtifactError
from gossamer.program import CudnnCall
from gossamer.run import driver
from gossamer.run.cuda import target_of_device
from gossamer.session import InferenceSession, SessionOptions
from harness import assert_close, ort
from our_operators import random_feeds

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


def session(source: Any, *, deterministic: bool = False, **options: object) -> InferenceSession:
    return InferenceSession(source, options_for(deterministic), providers=[(CUDA, {"device": "cuda"} | options), CPU])


def options_for(deterministic: bool) -> SessionOptions:
    options = SessionOptions()
    options.use_deterministic_compute = deterministic
    return options


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_same_as_the_model(case: CompiledCase, tmp_path: Path) -> None:
    """To the bit: both have the same kernels, in which nothing depends on the order of atomic operations."""
    path, model, feeds = tmp_path / "model.gossamer", case.model(), case.feeds()
    without_tf32 = {"use_tf32": 0}
    gossamer.compile_model(
        model,
        path,
        targets=target_of_device(0),
        cudnn="no",
        sess_options=options_for(deterministic=True),
        provider_options=without_tf32,
    )
    with session(model.SerializeToString(), deterministic=True, enable_cudnn=0, use_tf32=0) as uncompiled:
        wanted = uncompiled.run(None, feeds)
        placement = str(uncompiled.placement())
    with session(path, deterministic=True, use_tf32=0) as compiled:
        assert str(compiled.placement()) == placement
        for _ in range(3):  # launched, captured, replayed
            for got, want in zip(compiled.run(None, feeds), wanted, strict=True):
                np.testing.assert_array_equal(got, want)
    for got, want in zip(wanted, ort(model, feeds), strict=True):
        assert_close(got, want, case.reduction)


def test_several_signatures_share_weights(tmp_path: Path) -> None:
    path, model = tmp_path / "model.gossamer", product_and_norm()
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    signatures = [{"x": (rows, 8, 32)} for rows in (1, 5)]
    report = gossamer.compile_model(
        model, path, targets=target_of_device(0), signatures=signatures, cudnn="no", provider_options={"use_tf32": 0}
    )
    assert [program.shapes for program in report.programs] == signatures
    with session(path, use_tf32=0) as compiled:
        engine: Any = compiled._engine
        held = []
        for rows in (1, 5, 1):
            x = np.random.default_rng(rows).standard_normal((rows, 8, 32)).astype(np.float32)
            (got,) = compiled.run(None, {"x": x})
            assert_close(got, ort(model, {"x": x})[0], 64)
            held.append({key: memory.pointer for key, memory in engine._executor._weights.items()})
        assert held[0].items() <= held[1].items()
        assert held[1] == held[2]


def test_where_nothing_else_is_installed(tmp_path: Path) -> None:
    """A process that has the base install's packages only."""
    path, feeds = tmp_path / "model.gossamer", random_feeds(convolution())
    gossamer.compile_model(convolution(), path, targets=target_of_device(0), cudnn="no")
    np.save(tmp_path / "x.npy", feeds["x"])
    code = """
        import numpy
        import gossamer
        session = gossamer.InferenceSession(sys.argv[1], providers=["CUDAExecutionProvider"])
        (y,) = session.run(None, {"x": numpy.load(sys.argv[2])})
        numpy.save(sys.argv[3], y)
    """
    child(code, path, tmp_path / "x.npy", tmp_path / "y.npy")
    assert_close(np.load(tmp_path / "y.npy"), ort(convolution(), feeds)[0], 64, tf32=True)


def test_device_memory_is_bound_and_streams_are_the_callers(tmp_path: Path) -> None:
    path, feeds = tmp_path / "model.gossamer", random_feeds(convolution())
    gossamer.compile_model(convolution(), path, targets=target_of_device(0), cudnn="no")
    with session(path) as compiled:
        (want,) = compiled.run(None, feeds)
        binding = compiled.io_binding()
        binding.bind_ortvalue_input("x", gossamer.OrtValue.ortvalue_from_numpy(feeds["x"], "cuda", 0))
        binding.bind_output("y", "cuda", 0)
        compiled.run_with_iobinding(binding)
        (got,) = binding.get_outputs()
        np.testing.assert_array_equal(got.numpy(), want)


def test_machine_code_for_another_architecture(tmp_path: Path) -> None:
    here = target_of_device(0)
    other = "sm_80" if here.arch // 10 != 8 else "sm_90"
    path = tmp_path / "model.gossamer"
    gossamer.compile_model(convolution(), path, targets=other, cudnn="no")
    with pytest.raises(ArtifactError) as caught:
        session(path)
    assert caught.value.reason == "TARGET_MISMATCH"
    for part in (other, f"sm_{here.arch}", "gossamer compile MODEL -o", f"--target {other},"):
        assert part in caught.value.text


def test_compiled_for_device_1_loaded_on_device_0(tmp_path: Path) -> None:
    """Where both are alike it runs; where not, the file is for another GPU, and the error says so."""
    if driver.device_count() < 2:
        pytest.skip("there is one GPU")
    path, feeds = tmp_path / "model.gossamer", random_feeds(convolution())
    gossamer.compile_model(convolution(), path, targets=target_of_device(1), cudnn="no")
    if target_of_device(0).arch != target_of_device(1).arch:
        with pytest.raises(ArtifactError, match="TARGET_MISMATCH"):
            session(path)
        return
    wanted = ort(convolution(), feeds)
    for device_id in (0, 1):
        with session(path, device_id=device_id) as compiled:
            (got,) = compiled.run(None, feeds)
            assert_close(got, wanted[0], 64, tf32=True)


def test_the_ordinal_is_no_part_of_the_file(tmp_path: Path) -> None:
    paths = [tmp_path / "named.gossamer", tmp_path / "anonymous.gossamer"]
    for path, device in zip(paths, (0, None), strict=True):
        gossamer.compile_model(convolution(), path, targets=replace(target_of_device(0), device=device), cudnn="no")
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_plans_of_cudnn(planning_cudnn: loader.Library, tmp_path: Path) -> None:
    """Used where the session lets them be; without cuDNN, the file has native kernels for the same nodes."""
    path, feeds = tmp_path / "model.gossamer", random_feeds(convolution())
    report = gossamer.compile_model(convolution(), path, targets=target_of_device(0), cudnn="yes")
    assert sum(program.plans for program in report.programs) > 0
    assert report.needs == ()
    wanted = ort(convolution(), feeds)
    for enabled in (True, False):
        with session(path, enable_cudnn=enabled) as compiled:
            calls = compiled.program(feeds).calls
            assert any(isinstance(call, CudnnCall) for call in calls) is enabled
            for _ in range(3):
                assert_close(compiled.run(None, feeds)[0], wanted[0], 64, tf32=True)
