"""Read the text in a picture with PP-OCR, every model run by Gossamer.

`python demo/read_text.py [PICTURE] [--runtime gossamer|onnxruntime] [--json FILE]`

The models, and everything before and after them, are those of the package rapidocr-onnxruntime: a detector finds the
lines, a classifier tells which ones are upside down, a recogniser reads them. The package knows onnxruntime only; what
it uses of that, Gossamer has under the same names, so `run_models_with` is all it takes to move it.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import rapidocr_onnxruntime
from rapidocr_onnxruntime import RapidOCR
from rapidocr_onnxruntime.utils import infer_engine
from rich.console import Console
from rich.table import Table

from draw_picture import PICTURE

DIRECTION_MODEL = Path(rapidocr_onnxruntime.__file__).with_name("models") / "ch_ppocr_mobile_v2.0_cls_infer.onnx"
# All that the package imports from onnxruntime.
RUNTIME_NAMES = (
    "InferenceSession",
    "SessionOptions",
    "GraphOptimizationLevel",
    "get_available_providers",
    "get_device",
)
STAGES = ("detection", "direction", "recognition")


@dataclass(frozen=True)
class Stage:
    """One model's part. Seconds of the first picture (which compiles kernels, on a GPU) and of the same picture again.

    placement: provider → number of nodes that ran there.
    """

    name: str
    first_seconds: float
    seconds: float
    placement: dict[str, int]


@dataclass(frozen=True)
class Reading:
    """The lines of text from top to bottom, the corners of each (float32 [4, 2], pixels, clockwise) and the stages."""

    lines: tuple[str, ...]
    boxes: tuple[np.ndarray, ...]
    stages: tuple[Stage, ...]


def run_models_with(runtime: ModuleType) -> None:
    """Make rapidocr-onnxruntime create its sessions with `runtime`: onnxruntime, or any module with the same names."""
    for name in RUNTIME_NAMES:
        setattr(infer_engine, name, getattr(runtime, name))


def make_pipeline(runtime: ModuleType) -> RapidOCR:
    """The pipeline with its three models loaded: on the GPU where the runtime has one, else on the CPU."""
    run_models_with(runtime)
    gpu = runtime.get_device() == "GPU"
    return RapidOCR(det_use_cuda=gpu, cls_use_cuda=gpu, rec_use_cuda=gpu)


def sessions(pipeline: RapidOCR) -> tuple[Any, ...]:
    """The runtime's sessions in the order of STAGES."""
    return pipeline.text_det.infer.session, pipeline.text_cls.infer.session, pipeline.text_rec.session.session


def read(pipeline: RapidOCR, picture: Path) -> Reading:
    """Read a picture twice: the second time shows what a running service would see."""
    _, first_seconds = pipeline(picture)
    results, seconds = pipeline(picture)
    timings = zip(STAGES, first_seconds or (0.0,) * 3, seconds or (0.0,) * 3, sessions(pipeline), strict=True)
    return Reading(
        lines=tuple(text for _, text, _ in results or ()),
        boxes=tuple(np.array(box, np.float32) for box, _, _ in results or ()),
        stages=tuple(Stage(name, first, again, placement_of(session)) for name, first, again, session in timings),
    )


def placement_of(session: Any) -> dict[str, int]:
    """Provider → number of the model's nodes that run there; empty for a runtime that does not say."""
    return session.placement().counts() if hasattr(session, "placement") else {}


def direction_batch(pipeline: RapidOCR, picture: Path, boxes: tuple[np.ndarray, ...]) -> np.ndarray:
    """What the direction model gets for these lines: float32 [lines, 3, 48, 192] between -1 and 1."""
    crops = pipeline.get_crop_img_list(pipeline.load_img(picture), list(boxes))
    return np.stack([pipeline.text_cls.resize_norm_img(crop) for crop in crops])


def show(reading: Reading, console: Console) -> None:
    """Print the lines and a table of the stages."""
    for line in reading.lines:
        console.print(f"  {line}", highlight=False, markup=False)
    table = Table("stage", "first picture", "same again", "nodes ran on")
    for stage in reading.stages:
        placement = ", ".join(f"{provider} {nodes}" for provider, nodes in stage.placement.items())
        table.add_row(stage.name, f"{stage.first_seconds * 1e3:.0f} ms", f"{stage.seconds * 1e3:.1f} ms", placement)
    console.print(table)


def without_gpu(pipeline: RapidOCR, picture: Path, reading: Reading, console: Console) -> dict[str, Any]:
    """The GPU Program of the direction model on two lines: the first, and the last, in our picture upside down."""
    from gpu_program import show_program  # this needs Gossamer, reading with onnxruntime does not

    batch = direction_batch(pipeline, picture, (reading.boxes[0], reading.boxes[-1]))
    return asdict(show_program(DIRECTION_MODEL, batch, console))


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Read the text in a picture, every model run by Gossamer.")
    parser.add_argument("picture", type=Path, nargs="?", default=PICTURE, help="default: the receipt")
    parser.add_argument("--runtime", choices=("gossamer", "onnxruntime"), default="gossamer", help="what runs them")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what was found to this file")
    return parser.parse_args()


def main() -> None:
    """Read the picture, print what was read and how; without a GPU, also what a GPU would have run."""
    arguments, console = parse_arguments(), Console()
    runtime = import_module(arguments.runtime)
    on_gpu = runtime.get_device() == "GPU"
    if not on_gpu:
        console.print("No NVIDIA GPU here: the models run on the CPU provider (onnxruntime).")
    started = time.perf_counter()
    pipeline = make_pipeline(runtime)
    console.print(f"{arguments.picture.name}, models loaded in {time.perf_counter() - started:.2f} s:")
    reading = read(pipeline, arguments.picture)
    show(reading, console)
    report: dict[str, Any] = {"lines": reading.lines, "stages": [asdict(stage) for stage in reading.stages]}
    if not on_gpu and arguments.runtime == "gossamer" and reading.lines:
        report["gpu_program"] = without_gpu(pipeline, arguments.picture, reading, console)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
