"""`gossamer cudnn-shim`: cuDNN's functions for C and C++ programs that start without it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from gossamer.cudnn import shim


def cudnn_shim(folder: Path, *, build: bool, stand_in: bool, search: Sequence[str]) -> None:
    """Write the sources, build what was asked for, and say what was made and what to do with it."""
    for path in shim.write(folder, search):
        print(path)
    if not build:
        print("\ncompile and link them into your program, in place of -lcudnn:")
        print(f"  cc {shlex.join(shim.COMPILE_FLAGS)} -c {' '.join(shim.COMPILED)}")
        return
    made, compiler_text = shim.build(folder, stand_in=stand_in)
    print(f"{made}  ({made.stat().st_size // 1000} kB)\n{compiler_text}")
    if stand_in:
        print(f"put {folder} into LD_LIBRARY_PATH of a program that needs {made.name} to start")
    else:
        print(f"link {made} (with -pthread -ldl) in place of -lcudnn")
