"""What bench/start_up.py measures: ResNet-50 and MobileNetV2 as PyTorch exports them, compiled, with answers to expect.

    python bench/start_up_files.py FOLDER [--target h200]

NAME.onnx, NAME.gossamer and NAME.npz of each, in fp16, with random weights: made on any machine, with or without a GPU.
The answers are PyTorch's, of the same weights in fp32, by the CPU. The files take no cuDNN.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
import torchvision

import gossamer
from models import random_statistics

MODELS = ("resnet50", "mobilenet_v2")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="h200")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name in MODELS:
        export(name, arguments.folder)
        path = arguments.folder / name
        report = gossamer.compile_model(
            path.with_suffix(".onnx"), path.with_suffix(".gossamer"), targets=arguments.target, cudnn="no"
        )
        print(f"{name}: {report.file_bytes:,} bytes for {arguments.target}", flush=True)


def export(name: str, folder: Path) -> None:
    torch.manual_seed(0)
    model = random_statistics(getattr(torchvision.models, name)(weights=None)).eval().half()
    x = torch.randn(1, 3, 224, 224).half()
    with torch.no_grad():
        torch.onnx.export(
            model, (x,), folder / f"{name}.onnx", input_names=["x"], output_names=["y"], opset_version=17, dynamo=False
        )
        y = model.float()(x.float())
    np.savez(folder / f"{name}.npz", x=x.numpy(), y=y.numpy())


if __name__ == "__main__":
    main()
