"""Files that earlier versions compiled, run on a GPU: with kernels of theirs, and with cuDNN where there is one."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import cudnn_legs
import golden_model
from conftest import missing
from gossamer import InferenceSession
from gossamer.errors import ArtifactError
from gossamer.program.archive import FORMAT
from gossamer.program.artifact import open_artifact
from gossamer.run.cuda import target_of_device


@pytest.mark.parametrize("version", range(1, FORMAT + 1))
@pytest.mark.parametrize("batch", golden_model.BATCHES)
@pytest.mark.parametrize("cudnn", [0, 1])
def test_golden_file(version: int, batch: int, cudnn: int) -> None:
    if cudnn and cudnn_legs.LEG == "disabled":
        pytest.skip(f"cuDNN, {cudnn_legs.WITHOUT['disabled']}")
    path = golden_model.golden_file(version)
    try:
        open_artifact(path).target_for(target_of_device(0, True))
    except ArtifactError as error:
        missing(f"a GPU that the golden file is for: {error}")
    providers = [("CUDAExecutionProvider", {"enable_cudnn": cudnn}), "CPUExecutionProvider"]
    feeds = golden_model.feeds(batch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # plans are for the device that stands for its kind, and its cuDNN
        with InferenceSession(path, providers=providers) as session:
            y, d = session.run(["y", "d"], feeds)
    want = golden_model.results(feeds)
    np.testing.assert_allclose(y.astype(np.float32), want["y"], rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(d, want["d"], rtol=1e-5, atol=1e-6)
