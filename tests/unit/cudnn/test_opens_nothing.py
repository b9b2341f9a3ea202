"""With a cuDNN installed, nothing opens it before it is needed, and nothing at all with enable_cudnn=0. (R1.1, R3.3)

Counted three ways: Python's audit hook for `dlopen` through ctypes, /proc/self/maps, and the log that the fake library
itself writes when it is opened, in whatever process.
"""

from __future__ import annotations

import pytest

import fake_cudnn
from conftest import no_triton
from fake_cudnn import Python

COUNTED = """
    import json, sys
    opened = []
    sys.addaudithook(lambda event, given: opened.append(str(given[0])) if event == "ctypes.dlopen" else None)
    {body}
    mapped = [line for line in open("/proc/self/maps") if "libcudnn" in line]
    print(json.dumps([[path for path in opened if "libcudnn" in path], mapped]))
"""

SESSION = """
    import numpy as np
    import gossamer
    import onnx.parser
    model = onnx.parser.parse_model('''
        <ir_version: 10, opset_import: ["" : 21]>
        conv (float[1, 2, 6, 6] x, float[3, 2, 3, 3] w) => (float[1, 3, 4, 4] y) { y = Conv (x, w) }
    ''').SerializeToString()
    options = {"device": DEVICE, "enable_cudnn": "0", "target": "sm_90"}
    session = gossamer.InferenceSession(model, providers=[("CUDAExecutionProvider", options)])
    feeds = {"x": np.ones((1, 2, 6, 6), np.float32), "w": np.ones((3, 2, 3, 3), np.float32)}
"""


def count(python: Python, body: str, **environment: str) -> list[list[str]]:
    lines = body.strip("\n").splitlines()
    counted: list[list[str]] = python.run(COUNTED.format(body="\n".join(lines).lstrip()), **environment)
    return counted


@pytest.mark.parametrize(
    "body",
    [
        "import gossamer",
        "import gossamer; gossamer.InferenceSession, gossamer.preload_dlls, gossamer.CudnnError",
        "import gossamer.cudnn.loader, gossamer.cudnn.calls; gossamer.cudnn.calls.cudnnCreate",
        "from gossamer.options import CudaOptions; CudaOptions(), CudaOptions(enable_cudnn=False)",
        "from gossamer.cudnn import loader; loader.effective(False)",
        "from gossamer import *",
    ],
)
def test_importing_and_options(python: Python, fakes: fake_cudnn.Library, body: str) -> None:
    """R1.1."""
    fakes.installed(python)
    assert count(python, body) == [[], []]
    assert python.openings() == {}


def test_the_counting_counts(python: Python, fakes: fake_cudnn.Library) -> None:
    fakes.installed(python)
    opened, mapped = count(python, "from gossamer.cudnn import loader; loader.load()")
    assert opened
    assert mapped
    assert python.openings()


def test_session_with_cudnn_disabled(python: Python, fakes: fake_cudnn.Library) -> None:
    """R3.3: a convolution is placed, built and run."""
    if lack := no_triton():
        pytest.skip(lack)
    fakes.installed(python)
    body = SESSION.replace("DEVICE", "'interpreter'") + "    assert session.run(None, feeds)[0].max() == 18\n"
    assert count(python, body, TRITON_INTERPRET="1") == [[], []]
    assert python.openings() == {}


def test_asking_for_providers(python: Python, fakes: fake_cudnn.Library) -> None:
    """R1.1."""
    fakes.installed(python)
    assert count(python, "import gossamer; gossamer.get_available_providers(), gossamer.get_device()") == [[], []]
    assert python.openings() == {}
