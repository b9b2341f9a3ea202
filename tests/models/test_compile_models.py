"""A whole model compiled for every architecture on a machine without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import fetch
import gossamer
from feeds import random_feeds
from gossamer.build.compilation import compile_kernels
from gossamer.program import Program
from harness import ARCHITECTURES

pytestmark = [pytest.mark.compile, pytest.mark.slow]

MODEL = "ppocr_v2_cls"


def program_for(path: Path, architecture: int) -> Program:
    providers = [("CUDAExecutionProvider", {"device": "null", "target": f"sm_{architecture}"})]
    with gossamer.InferenceSession(path, providers=providers) as session:
        return session.program(random_feeds(fetch.catalogue()[MODEL]))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_direction_model_compiles(
    architecture: int, model_path: Callable[[str], Path], record_property: Callable[[str, object], None]
) -> None:
    """Every kernel of the Program becomes machine code for that architecture. Count and bytes go to the report."""
    program = program_for(model_path(MODEL), architecture)
    cubins = compile_kernels(program.kernels, program.target)
    assert cubins.keys() == set(program.kernels)
    assert {cubin.arch for cubin in cubins.values()} == {architecture}
    assert all(cubin.code.startswith(b"\x7fELF") for cubin in cubins.values())
    assert all(cubin.shared_bytes <= program.target.shared_bytes for cubin in cubins.values())
    # Signatures alike share kernels: there are fewer kernels than launches, and about 10 kB of code for each.
    launches, code = sum(1 for _ in program.launches), sum(len(cubin.code) for cubin in cubins.values())
    record_property("kernels", len(cubins))
    record_property("bytes", code)
    print(f"sm_{architecture}: {launches} launches, {len(cubins)} kernels, {code} bytes")
    assert len(cubins) < launches
    assert 1_000 * len(cubins) < code < 100_000 * len(cubins)
