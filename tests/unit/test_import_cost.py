"""Importing the package opens no library, imports nothing heavy, and takes no time to speak of. (R1.1)"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from typing import Any

import pytest

HEAVY = ["cuda", "ctypes", "ml_dtypes", "numpy", "onnx", "onnx_ir", "onnxruntime", "torch", "triton"]


def child(code: str) -> Any:
    """What a fresh interpreter prints, as JSON."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return json.loads(done.stdout)


IMPORTED = """
    import json, sys
    before = set(sys.modules)
    {body}
    print(json.dumps(sorted({{name.partition(".")[0] for name in set(sys.modules) - before}})))
"""


def test_importing_imports_nothing_heavy() -> None:
    assert set(child(IMPORTED.format(body="import gossamer"))).isdisjoint(HEAVY)


@pytest.mark.parametrize("name", ["InferenceSession", "OrtValue", "SessionOptions"])
def test_the_session_api_needs_numpy_only(name: str) -> None:
    imported = child(IMPORTED.format(body=f"import gossamer; gossamer.{name}"))
    assert set(imported) & set(HEAVY) <= {"ctypes", "ml_dtypes", "numpy"}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/maps")
def test_importing_opens_no_library() -> None:
    opened = child("""
        import json

        def libraries():
            return {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}

        before = libraries()
        import gossamer
        from gossamer.options import CudaOptions
        CudaOptions(enable_cudnn=True)
        after = libraries()
        print(json.dumps(sorted(path for path in after - before if "/lib-dynload/" not in path)))
    """)
    assert opened == []


def test_importing_is_quick() -> None:
    seconds = child("""
        import json, time
        import numpy
        start = time.perf_counter()
        import gossamer
        first = time.perf_counter() - start
        gossamer.InferenceSession, gossamer.OrtValue, gossamer.GossamerError
        print(json.dumps([first, time.perf_counter() - start]))
    """)
    assert seconds[0] < 0.150
    assert seconds[1] < 0.500


def test_importing_leaves_logging_alone() -> None:
    assert child("""
        import json, logging
        import gossamer, gossamer.session
        logger = logging.getLogger("gossamer")
        print(json.dumps([logger.handlers, logging.getLogger().handlers, logger.level]))
    """) == [[], [], 0]
