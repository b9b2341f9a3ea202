"""A new signature of a known model is cheap: all but the compilation of kernels, which other signatures share."""

from __future__ import annotations

import time

import numpy as np
import pytest

import gossamer

MOST_SECONDS = 0.1
"""Of CPU time, so that other processes do not count; about half of it on the machine that this was written on."""

pytestmark = pytest.mark.models


@pytest.mark.parametrize(("name", "shape"), [
    ("ppocr_v4_rec", (1, 3, 48, 320)),
    ("ppocr_v4_det", (1, 3, 640, 640)),
])  # fmt: skip
def test_a_new_signature_takes_under_a_tenth_of_a_second(model_path, name, shape):
    # Where cuDNN is installed, its plans of new shapes come on top, a few milliseconds each.
    options = {"device": "null", "target": "sm_90", "enable_cudnn": 0}
    session = gossamer.InferenceSession(model_path(name), providers=[("CUDAExecutionProvider", options)])
    (slot,) = session.get_inputs()
    seconds = []
    for wider in range(7):
        feeds = {slot.name: np.zeros((*shape[:3], shape[3] + 32 * wider), np.float32)}
        start = time.process_time()
        session.run(None, feeds)
        seconds.append(time.process_time() - start)
    # The first signature imports the kernels, the second fills what is remembered between signatures.
    assert min(seconds[2:]) < MOST_SECONDS, f"seconds of CPU time by signature: {[round(s, 3) for s in seconds]}"
