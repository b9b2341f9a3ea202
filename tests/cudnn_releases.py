"""Real releases of cuDNN, installed where pip would, and processes to use them in: one cuDNN per process."""

from __future__ import annotations

import subprocess
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fake_cudnn import Python

RELEASES = {"9.28": "cudnn-9.28", "9.19": "cudnn-9.19"}
"""Newest and oldest supported release → the wheel."""

BEGIN = """
import json, sys
sys.path.append(FOLDER)
from gossamer.cudnn import DeviceProperties, Graph, KernelCache, PlanError, driver_stand_in
from cudnn_graphs import CASES, build
LOAD_STAND_IN

def graph(device="h200", case=None, dtype="float16", **given):
    made = Graph(properties=DeviceProperties.named(device), **given)
    return build(made, case, dtype) if case else made

def refusal(action):
    try:
        return f"none, but {action()!r}"
    except Exception as error:
        return [getattr(error, "reason", type(error).__name__), str(error)]
"""


@dataclass(frozen=True)
class Release:
    """One cuDNN, where pip would have put it. Code finds DeviceProperties, Graph, graph, refusal and so on."""

    name: str
    python: Python

    def run(self, code: str, *, stand_in: bool = True) -> Any:
        """What the code prints last, as JSON. stand_in: whether one for the driver is loaded where there is none."""
        return self.python.run(self._program(code, stand_in))

    def process(self, code: str, *, stand_in: bool = True) -> subprocess.CompletedProcess[str]:
        """The same, however it ends."""
        return self.python.process(self._program(code, stand_in))

    def _program(self, code: str, stand_in: bool) -> str:
        begin = BEGIN.replace("FOLDER", repr(str(Path(__file__).parent)))
        return begin.replace("LOAD_STAND_IN", "driver_stand_in.load()" * stand_in) + textwrap.dedent(code)


def link(wheel: Path, python: Python, pattern: str) -> None:
    """Put files of a wheel into a Python's packages, by links."""
    for file in wheel.glob(pattern):
        place = python.packages / file.relative_to(wheel)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(file)
