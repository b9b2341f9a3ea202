"""Native kernels beside cuDNN's, operator by operator, on a GPU that has both: relative error, and the ratio of times.

    python bench/against_cudnn.py [--only REGEX] [--batches 1,32] [--results FILE]

ResNet-50's distinct convolutions and MobileNetV2's depthwise ones (channels last, fp16, no epilogue), pools, norms,
LRN, recurrent layers and attention: the same node is placed once natively and once with `cudnn_only`, both run from
CUDA graphs over more memory than L2 holds, and their answers are compared. Rows go to bench/results.csv: `us` is ours,
`peer_us` cuDNN's, `error` the norm of the difference by that of cuDNN's answer.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import results
from convolution import Layer, mobilenet_v2, resnet50
from gossamer.compiler import Choices
from gossamer.cudnn import loader
from gossamer.errors import GossamerError
from gossamer.options import CUDNN_OPERATORS
from gossamer.program import Unavailable
from gossamer.providers.cudnn import Policy
from operator_case import Case, rand, weight
from operators import Job, compile_all
from replay import Bench

ALL = Policy(enabled=True, only=CUDNN_OPERATORS, attention=True)


def convolutions(batch: int) -> Iterator[Case]:
    depthwise = [layer for layer in mobilenet_v2() if layer.groups > 1]
    for layer in dict.fromkeys([*(plain(layer) for layer in resnet50()), *depthwise]):
        per_group = layer.channels // layer.groups
        attributes = f"pads=[{','.join([str(layer.pad)] * 4)}], strides=[{layer.stride},{layer.stride}]"
        inputs = {
            "x": rand(batch, layer.size, layer.size, layer.channels),
            "w": weight(layer.outputs, layer.filter, layer.filter, per_group, fan_in=per_group * layer.filter**2),
        }
        body = f"y = com.microsoft.NhwcConv <group={layer.groups}, {attributes}> (x, w)"
        flops = 2 * batch * layer.outputs * layer.out**2 * per_group * layer.filter**2
        yield Case(f"conv/{' '.join(str(layer).split())} batch {batch}", body, inputs, flops=flops)


def plain(layer: Layer) -> Layer:
    return Layer(layer.channels, layer.size, layer.outputs, layer.filter, layer.stride, layer.groups)


def others() -> Iterator[Case]:
    b, c, size = 32, 64, 112
    x = rand(b, c, size, size)
    body = "y = ConvTranspose <strides=[2,2], pads=[1,1,1,1]> (x, w)"
    given = {"x": rand(8, 128, 64, 64), "w": weight(128, 64, 4, 4, fan_in=512)}
    yield Case("transposed/4x4 stride 2", body, given, flops=2 * 8 * 128 * 64 * 64**2 * 16)
    yield Case(
        "pool/MaxPool 3x3 stride 2", "y = MaxPool <kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]> (x)", {"x": x}
    )
    yield Case("pool/AveragePool 2x2", "y = AveragePool <kernel_shape=[2,2], strides=[2,2]> (x)", {"x": x})
    yield Case("pool/GlobalAveragePool", "y = GlobalAveragePool (x)", {"x": rand(b, 2048, 7, 7)})
    yield Case("pool/GlobalMaxPool", "y = GlobalMaxPool (x)", {"x": rand(b, 2048, 7, 7)})
    statistics = {name: rand(c, constant=True, kind="positive", dtype="float32") for name in "sbmv"}
    yield Case("norm/BatchNormalization", "y = BatchNormalization (x, s, b, m, v)", {"x": x} | statistics)
    scales = {name: rand(c, constant=True) for name in "sb"}
    yield Case("norm/InstanceNormalization", "y = InstanceNormalization (x, s, b)", {"x": x} | scales)
    yield Case("norm/LRN", "y = LRN <size=5, alpha=0.0001, beta=0.75, bias=2.0> (x)", {"x": rand(b, 96, 55, 55)})
    for op, gates, attributes in (("LSTM", 4, ""), ("GRU", 3, ", linear_before_reset=1"), ("RNN", 1, "")):
        for batch in (1, 32):
            yield Case(
                f"recurrent/{op} 128 steps, 512 wide, batch {batch}",
                f"y = {op} <hidden_size=512{attributes}> (x, w, r)",
                {"x": rand(128, batch, 512), "w": weight(1, gates * 512, 512), "r": weight(1, gates * 512, 512)},
                flops=4 * 128 * batch * gates * 512 * 512,
            )  # fmt: skip
    for name, batch, heads, queries, head in (("BERT", 32, 12, 128, 64), ("prefill", 1, 16, 2048, 128)):
        given = {n: rand(batch, heads, queries, head) for n in "qkv"}
        yield Case(
            f"attention/{name}", "y = Attention (q, k, v)", given, flops=4 * batch * heads * queries**2 * head, opset=23
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--batches", default="1,32")
    parser.add_argument("--results", type=Path, default=results.RESULTS)
    arguments = parser.parse_args()
    rig, library = Bench.on(0), loader.load()
    print(f"cuDNN {library.version_text or 'absent'} {library.reason}", flush=True)
    cases = [case for batch in arguments.batches.split(",") for case in convolutions(int(batch))]
    chosen = [case for case in (*cases, *others()) if re.search(arguments.only, case.name)]
    target = rig.device.target()
    pairs = [(Job(case, "float16"), Job(case, "float16")) for case in chosen]
    for native, cudnn in pairs:
        native.build(target, Choices(nhwc=False))
        cudnn.build(target, Choices(nhwc=False, cudnn=ALL))
    rig.load(compile_all([job for pair in pairs for job in pair], target))
    shared = results.origin(rig.device.name, "", version("triton")) | {"benchmark": "against_cudnn"}
    rows, ratios = [], dict[str, list[float]]()
    for pair in pairs:
        row = compare(rig, *pair)
        if row:
            rows.append(shared | row | {"peer": f"cuDNN {library.version_text}"})
            group = re.sub(r"/.*?( batch \d+)?$", r"\1", row["case"])
            ratios.setdefault(group, []).append(float(row["us"]) / float(row["peer_us"]))
    for group, values in ratios.items():
        mean = math.exp(sum(map(math.log, values)) / len(values))
        print(f"{group}: ours/cuDNN {mean:.2f} (geometric mean of {len(values)})")
    results.append(arguments.results, rows)
    rig.close()


def compare(rig: Bench, native: Job, cudnn: Job) -> dict[str, str]:
    """The row; empty, and a line that says why, where one of the two does not run."""
    missing = next((c for c in (cudnn.program.calls if cudnn.program else ()) if isinstance(c, Unavailable)), None)
    problem = native.problem or cudnn.problem or (missing.reason if missing else "")
    if problem:
        print(f"{native.case.name}: {problem}", flush=True)
        return {}
    arrays = native.case.arrays("float16")
    try:
        ours, us = measured(rig, native, arrays)
        theirs, peer_us = measured(rig, cudnn, arrays)
    except GossamerError as error:
        print(f"{native.case.name}: {error}", flush=True)
        return {}
    error = max(distance(ours[name], theirs[name]) for name in ours)
    print(
        f"{native.case.name:60} {us:9.2f} µs, cuDNN {peer_us:9.2f} µs, ratio {us / peer_us:5.2f}, error {error:.1e}",
        flush=True,
    )
    return {
        "case": native.case.name, "dtype": "float16", "measure": "device",
        "us": f"{us:.2f}", "peer_us": f"{peer_us:.2f}", "error": f"{error:.1e}",
    }  # fmt: skip


def measured(rig: Bench, job: Job, arrays: dict[str, Any]) -> tuple[dict[str, np.ndarray], float]:
    assert job.program is not None
    with rig.placed(job.program, job.constants, {name: arrays[name] for name in job.program.inputs}) as placed:
        return placed.outputs(), placed.microseconds()


def distance(one: np.ndarray, other: np.ndarray) -> float:
    a, b = one.astype(np.float64), other.astype(np.float64)
    return float(np.linalg.norm(a - b) / max(float(np.linalg.norm(b)), 1e-30))


if __name__ == "__main__":
    main()
