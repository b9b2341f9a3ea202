"""What the base install lacks, and a process that lacks it although it is installed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

ABSENT = ["onnx", "onnx_ir", "onnxruntime", "torch", "triton"]

WITHOUT_THEM = f"""
import sys
from importlib.machinery import PathFinder

class WithoutThem:
    find_distributions = staticmethod(PathFinder.find_distributions)  # importlib.metadata asks, for versions

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in {ABSENT} else PathFinder.find_spec(name, path, target)

sys.meta_path[:] = [WithoutThem() if finder is PathFinder else finder for finder in sys.meta_path]
for name in {ABSENT}:
    try:
        __import__(name)
    except ModuleNotFoundError:
        continue
    sys.exit(f"{{name}} can be imported")
"""
"""They are as if they were not installed."""


def child(code: str, *arguments: str | Path, without_them: bool = True) -> str:
    """What a fresh process prints that runs this code; it must not fail, nor say anything on standard error."""
    text = (WITHOUT_THEM if without_them else "") + textwrap.dedent(code)
    command = [sys.executable, "-c", text, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout
