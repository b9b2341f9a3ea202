"""The legs of the suite: what CUDNN_LEG says of cuDNN, and whether a test process holds to it. (R3.3, R9.1, R9.3)

    absent       the loader finds none; PyTorch, which brings one, is not imported
    disabled     one is installed; sessions that do not say otherwise have enable_cudnn=0, and nothing looks for it
    installed    one is there, and sessions use it

Who says nothing runs what fits the machine. `python tests/without_cudnn.py` makes the first leg of an environment that
has cuDNN, and `tools/prove_on_gpu.py` runs all three.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from gossamer.cudnn import loader

LEGS = ("absent", "disabled", "installed")
LEG = os.environ.get("CUDNN_LEG", "")

WITHOUT = {"absent": "which this leg has not (CUDNN_LEG=absent)", "disabled": "which this leg disables"}
"""Leg → what follows the name of something that it does without."""


def begin() -> None:
    """What the leg asks for, for this process and those that it starts. ValueError for a leg that does not exist."""
    if LEG and LEG not in LEGS:
        raise ValueError(f"CUDNN_LEG={LEG}: there are {', '.join(LEGS)}")
    if LEG == "disabled":
        os.environ["GOSSAMER_ENABLE_CUDNN"] = "0"


def contradiction() -> str:
    """What this process has of cuDNN although its leg has none; empty where nothing speaks against it.

    PyTorch loads the cuDNN that it was built with. Where it was imported, all that is held is that Gossamer asked for
    none.
    """
    if LEG not in WITHOUT:
        return ""
    asked = loader.loaded_without_loading()
    if asked is not None and (LEG == "disabled" or asked.available):
        return f"the loader was asked for cuDNN: {asked.state} {asked.path}"
    mapped = [] if "torch" in sys.modules else sorted(set(_mapped()))
    return f"loaded in this process: {', '.join(mapped)}" if mapped else ""


def _mapped() -> list[str]:
    """Files of cuDNN in this process's memory; Linux alone tells."""
    maps = Path("/proc/self/maps")
    return [line.split()[-1] for line in maps.read_text().splitlines() if "libcudnn" in line] if maps.exists() else []
