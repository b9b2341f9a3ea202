"""Whole models on a GPU: Gossamer beside PyTorch's CUDA graph, answers checked first.

    python bench/models.py [--models resnet50,mobilenet_v2] [--dtypes float16,float32] [--batches 1,32]
                           [--onnx FILE=name:1x3x48x192 …]

PyTorch makes and exports the model (random weights), gives the reference and is timed in this process. Gossamer runs in
a child process of its own (`bench/run_model.py`), which has neither PyTorch nor cuDNN in it and says so. Rows go to
bench/results.csv.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision

import results

HERE = Path(__file__).parent
LIMITS = {"float16": 2e-2, "float32": 5e-3}
"""Relative error allowed. TF32 and fp16 both keep 10 bits of mantissa; fp16 rounds between layers, too."""


def main() -> int:
    """The exit status: 1 where a case has no row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="resnet50,mobilenet_v2")
    parser.add_argument("--dtypes", default="float16,float32")
    parser.add_argument("--batches", default="1,32")
    parser.add_argument("--onnx", action="append", default=[], metavar="FILE=input:1x3x48x192")
    parser.add_argument("--results", type=Path, default=results.RESULTS)
    arguments = parser.parse_args()
    failed: list[str] = []
    for name, rows in cases(arguments):
        with results.attempt(name, failed):
            results.append(arguments.results, rows())
    return int(bool(failed))


def cases(arguments: argparse.Namespace) -> Iterator[tuple[str, Callable[[], list[dict[str, Any]]]]]:
    """The name of each, and what measures it."""
    for model in filter(None, arguments.models.split(",")):
        for dtype in arguments.dtypes.split(","):
            for batch in map(int, arguments.batches.split(",")):
                name = f"{model} batch {batch} {dtype}"
                yield name, partial(bench_torchvision, model, getattr(torch, dtype), batch)
    for given in arguments.onnx:
        yield given, partial(bench_file, given)


def bench_torchvision(name: str, dtype: torch.dtype, batch: int) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    model = random_statistics(getattr(torchvision.models, name)(weights=None)).eval().cuda()
    x = torch.randn(batch, 3, 224, 224, device="cuda").to(dtype)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    with torch.no_grad():
        reference = model(x.float()).float().cpu().numpy()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    model = model.to(dtype)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = Path(folder) / "model.onnx"
        torch.onnx.export(model, (x,), path, input_names=["x"], output_names=["y"], opset_version=17, dynamo=False)
        torch_us = time_graph(model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last))
        dtype_name = str(dtype).removeprefix("torch.")
        child = run_child(path, {"x": x.cpu().numpy()}, {"y": reference}, f"relative:{LIMITS[dtype_name]}")
        return report(name, batch, dtype_name, child, "torch graph", torch_us)


def random_statistics(model: torch.nn.Module) -> torch.nn.Module:
    """Batch norms that do something: untrained ones are the identity."""
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.running_mean, -0.1, 0.1)
            torch.nn.init.uniform_(module.running_var, 0.8, 1.2)
            torch.nn.init.uniform_(module.weight, 0.8, 1.2)
            torch.nn.init.uniform_(module.bias, -0.1, 0.1)
    return model


def time_graph(model: torch.nn.Module, *inputs: torch.Tensor) -> float:
    """Median microseconds of replaying the model as a CUDA graph, waiting for each."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            model(*inputs)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(*inputs)

    def once() -> None:
        graph.replay()
        torch.cuda.synchronize()

    return results.median_us(once)


def bench_file(given: str) -> list[dict[str, Any]]:
    """An ONNX file with one input and probabilities for output, in full float32 and in TF32, beside onnxruntime's CPU.

    The error is the largest of a probability. PP-OCR's detector, the most sensitive of these models, answers 63 times a
    nudge of its input, so roundings of 2⁻²⁴ may show as 4e-6 and more, those of TF32 (2⁻¹¹) as 3e-2.
    """
    import onnxruntime

    path, _, rest = given.partition("=")
    name, _, shape = rest.partition(":")
    x = np.random.default_rng(0).standard_normal([int(d) for d in shape.split("x")], np.float32)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    want = {
        output.name: value for output, value in zip(session.get_outputs(), session.run(None, {name: x}), strict=True)
    }
    rows = []
    for dtype, limit, options in (("float32", 1e-4, ["use_tf32=0"]), ("tf32", 5e-2, [])):
        child = run_child(Path(path), {name: x}, want, f"largest:{limit}", options)
        rows += report(Path(path).stem, x.shape[0], dtype, child, "", 0.0)
    return rows


def run_child(
    model: Path,
    feeds: Mapping[str, np.ndarray],
    want: Mapping[str, np.ndarray],
    limit: str,
    options: Sequence[str] = (),
) -> dict[str, Any]:
    """What bench/run_model.py says of the model in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        inputs, outputs = Path(folder) / "inputs.npz", Path(folder) / "outputs.npz"
        np.savez(inputs, **feeds)
        np.savez(outputs, **want)
        command = [sys.executable, str(HERE / "run_model.py"), str(model), str(inputs), str(outputs), limit, *options]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def report(case: str, batch: int, dtype: str, child: dict[str, Any], peer: str, peer_us: float) -> list[dict[str, Any]]:
    print(
        f"{case} batch {batch} {dtype}: run {child['run_us']:.0f} µs, device {child['device_us']:.0f} µs, "
        f"{peer or 'no peer'} {peer_us:.0f} µs, error {child['error']:.1e}, first answer {child['first_s']:.2f} s, "
        f"{child['launches']} launches, {child['placement']}, arena {child['arena']}, cudnn loaded: {child['cudnn']}",
        flush=True,
    )
    common = results.origin(torch.cuda.get_device_name(), child["driver"], child["triton"]) | {
        "benchmark": "models",
        "case": case,
        "batch": batch,
        "dtype": dtype,
        "error": f"{child['error']:.2e}",
        "peer": peer,
        "peer_us": f"{peer_us:.1f}" if peer else "",
    }
    return [common | {"measure": m, "us": f"{child[m + '_us']:.1f}"} for m in ("run", "device")]


if __name__ == "__main__":
    sys.exit(main())
