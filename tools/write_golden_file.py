"""Write the golden file of the present format, which every later version has to read: tests/golden_model.py says more.

`PYTHONPATH=src:tests python tools/write_golden_file.py` needs what compiling needs, and cuDNN. It writes over no file
that is there: one that was released stays as it is, and what changes the format gets a number, and a file, of its own.
`--reports` writes anew what is said about the files, for changes of words.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
from pathlib import Path

import onnx
from onnx import numpy_helper

import golden_model
import gossamer
from gossamer.cli.arguments import Request
from gossamer.cli.inspect_compiled import inspect_compiled
from gossamer.program.archive import FORMAT


def main() -> None:
    """Write the file, and beside it what is said about it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reports", action="store_true", help="write only what is said about the files that are there")
    if not parser.parse_args().reports:
        _write(golden_model.golden_file(FORMAT))
    for version in range(1, FORMAT + 1):
        path = golden_model.golden_file(version)
        path.with_suffix(".json").write_text(json.dumps(_report(path), indent=1) + "\n", encoding="utf-8")


def _write(path: Path) -> None:
    if path.exists():
        sys.exit(f"{path} is there; a golden file is written once")
    signatures = [golden_model.signature(batch) for batch in golden_model.BATCHES]
    gossamer.compile_model(_model(), path, targets=golden_model.TARGETS, signatures=signatures, cudnn="yes")
    print(f"{path}: {path.stat().st_size:,} bytes")


def _model() -> onnx.ModelProto:
    model = onnx.parser.parse_model(golden_model.MODEL)
    constants = (numpy_helper.from_array(value, name) for name, value in golden_model.weights().items())
    model.graph.initializer.extend(constants)
    return model


def _report(path: Path) -> object:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        inspect_compiled(Request(path, {}, {}, "", {}, 0), "", with_program=True, as_json=True)
    report = json.loads(printed.getvalue())
    del report["file"]
    return report


if __name__ == "__main__":
    main()
