"""Whole models compiled ahead of time: ResNet-50 and a BERT encoder with random weights, PP-OCR's text recognition.
(R10)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import bert_encoder
import fetch
import gossamer
from feeds import random_feeds
from gossamer.ahead_of_time import Report
from gossamer.program.artifact import open_artifact
from random_weights import with_random_weights

CUDA = "CUDAExecutionProvider"
TARGETS = ("sm_80", "sm_90")
RELATIVE_ERROR = 2e-5
"""Of fp32 sums through some hundred layers, PP-OCR's softmax included; the others are below 1e-6."""


@dataclass(frozen=True)
class Subject:
    """A model, and what to feed it, which is the signature to compile, too."""

    name: str
    source: Callable[[Callable[[str], Path]], bytes]
    feeds: Callable[[], Mapping[str, np.ndarray]]

    def __str__(self) -> str:
        return self.name

    def compile(self, model_path: Callable[[str], Path], path: Path, **how: Any) -> Report:
        signature = {name: array.shape for name, array in self.feeds().items()}
        return gossamer.compile_model(self.source(model_path), path, signatures=[signature], cudnn="no", **how)


SUBJECTS = (
    Subject(
        "resnet50",
        lambda model_path: with_random_weights(model_path("light_resnet50")),
        lambda: random_feeds(fetch.catalogue()["light_resnet50"]),
    ),
    Subject(
        "ppocr_v4_rec",
        lambda model_path: model_path("ppocr_v4_rec").read_bytes(),
        lambda: random_feeds(fetch.catalogue()["ppocr_v4_rec"], shapes={"x": (1, 3, 48, 160)}),
    ),
    Subject("bert", lambda _: bert_encoder.bert_encoder().SerializeToString(), bert_encoder.feeds),
)


def session(path: Path, device: str) -> gossamer.InferenceSession:
    return gossamer.InferenceSession(path, providers=[(CUDA, {"device": device})])


@pytest.mark.compile
@pytest.mark.slow
@pytest.mark.parametrize("subject", SUBJECTS, ids=str)
def test_compiled_for_gpus_that_are_not_here(
    subject: Subject, model_path: Callable[[str], Path], tmp_path: Path
) -> None:
    """Every node on the GPU, every kernel as machine code; the null device runs the file."""
    path = tmp_path / "model.gossamer"
    report = subject.compile(model_path, path, targets=TARGETS)
    assert (report.needs, report.cpu_nodes) == ((), ())
    artifact = open_artifact(path)
    artifact.verify()
    for program in report.programs:
        cubins = artifact.variant(program.target, program.shapes).cubins
        assert len(cubins) == program.kernels > 5
        assert {f"sm_{cubin.arch}" for cubin in cubins.values()} == {program.target}
        assert all(cubin.code.startswith(b"\x7fELF") for cubin in cubins.values())
    assert [program.target for program in report.programs] == list(TARGETS)
    with session(path, "null") as null:
        outputs = null.run(None, dict(subject.feeds()))
        assert all(slot.name for slot in null.get_inputs())
    assert all(output.size and not output.any() for output in outputs)


@pytest.mark.interpreter
@pytest.mark.slow
@pytest.mark.parametrize("subject", SUBJECTS, ids=str)
def test_the_file_runs_and_matches(subject: Subject, model_path: Callable[[str], Path], tmp_path: Path) -> None:
    path, feeds = tmp_path / "model.gossamer", dict(subject.feeds())
    subject.compile(model_path, path, targets="interpreter")
    with session(path, "interpreter") as compiled:
        got = compiled.run(None, feeds)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    source = subject.source(model_path)
    reference = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    for one, want in zip(got, reference.run(None, feeds), strict=True):
        assert (one.shape, one.dtype) == (want.shape, want.dtype)
        assert np.abs(one - want).max() <= RELATIVE_ERROR * np.abs(want).max()
