"""Code for processes that make sessions and count what they open of cuDNN."""

from __future__ import annotations

import textwrap
from typing import Any

from fake_cudnn import Python

SESSIONS = """
    import json, sys
    opened = []
    sys.addaudithook(lambda event, given: opened.append(str(given[0])) if event == "ctypes.dlopen" else None)

    import numpy as np
    import gossamer
    from onnx import parser

    X = np.arange(-8, 8, dtype=np.float32).reshape(1, 4, 2, 2)

    def model(body):
        text = f'<ir_version: 10, opset_import: ["" : 21]> g (float[1,4,2,2] x) => (y) {{ {body} }}'
        return parser.parse_model(text)

    def session(body, **options):
        providers = [("CUDAExecutionProvider", {"target": "sm_90", **options})]
        return gossamer.InferenceSession(model(body).SerializeToString(), providers=providers)

    def opened_here():
        return [path for path in opened if "libcudnn" in path and path.startswith("/")]

    def mapped():
        lines = [line.split() for line in open("/proc/self/maps") if "libcudnn" in line]
        return sorted({line[-1] for line in lines if "x" in line[1]})  # not what is mapped as data
"""
"""X, model(body), session(body, **options); opened_here(): what was opened by path; mapped(): what the process has."""

TWO_SESSIONS = """
    def text_of(made):
        try:
            made.run(None, {"x": X})
        except gossamer.CudnnUnavailable as error:
            disabled = "cuDNN was disabled by the CUDA provider option 'enable_cudnn'." in str(error)
            return "disabled" if disabled else str(error)
        return "ran"

    seen = {}
    off = session("y = LRN <size = 3> (x)", device="null", cudnn_only=["LRN"], enable_cudnn=0)
    seen["created"] = [opened_here(), mapped()]
    first = text_of(off)
    seen["disabled ran"] = [opened_here(), mapped()]
    on = session("y = LRN <size = 3> (x)", device="null", cudnn_only=["LRN"], enable_cudnn=1)
    seen["enabled created"] = [opened_here(), mapped()]
    assert text_of(on) == "ran"
    seen["enabled ran"] = [opened_here(), mapped()]
    seen["texts"] = [first, text_of(off)]
    seen["options"] = [made.get_provider_options()["CUDAExecutionProvider"]["enable_cudnn"] for made in (off, on)]
    print(json.dumps(seen))
"""


def run(python: Python, code: str, **where: Any) -> Any:
    """What a process with all this prints last, as JSON."""
    return python.run(textwrap.dedent(SESSIONS) + textwrap.dedent(code), **where)
