"""Native kernels beside cuDNN's, operator by operator, on a GPU that has both: relative errors, and the ratio of times.

    python bench/against_cudnn.py [--only REGEX] [--batches 1,32] [--budget SECONDS] [--results FILE]
    python bench/against_cudnn.py --smoke   the native side in Triton's interpreter: proves the cases, measures nothing

ResNet-50's distinct convolutions and MobileNetV2's depthwise ones (channels last, fp16, no epilogue), transposed ones,
pools, norms, LRN, recurrent layers and attention: the same node is placed once natively and once with `cudnn_only`.
Both answers are checked against onnxruntime's CPU provider in float32 before they are timed; both run from CUDA graphs
over the same memory, more of it than L2 holds. Rows go to bench/results.csv: `us` is ours, `peer_us` cuDNN's, `error`
the norm of the difference between the two by that of cuDNN's answer. What has no row has a line that says why.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import TypeAlias

import numpy as np

import results
from gossamer.compiler import Choices
from gossamer.cudnn import loader
from gossamer.options import CUDNN_OPERATORS
from gossamer.program import Unavailable
from gossamer.providers.cudnn import Policy
from networks import Layer, mobilenet_v2, resnet50
from operator_case import FIRST, Array, Arrays, Case, rand, weight
from operators import Coming, Job, compile_all, smoke
from replay import Bench

TO_CHANNELS_FIRST = "<perm=[0,3,1,2]>"
ALL = Policy(enabled=True, only=CUDNN_OPERATORS, attention=True)


def convolutions(batch: int) -> Iterator[Case]:
    depthwise = [layer for layer in mobilenet_v2() if layer.groups > 1]
    for layer in dict.fromkeys([*(plain(layer) for layer in resnet50()), *depthwise]):
        per_group = layer.channels // layer.groups
        how = f"<group={layer.groups}, pads={[layer.pad] * 4}, strides={[layer.stride] * 2}>"
        inputs = {
            "x": rand(batch, layer.size, layer.size, layer.channels),
            "w": weight(layer.outputs, layer.filter, layer.filter, per_group, fan_in=per_group * layer.filter**2),
        }
        yield Case(
            f"conv/{' '.join(str(layer).split())} batch {batch}", f"y = com.microsoft.NhwcConv {how} (x, w)", inputs,
            part=FIRST, flops=2 * batch * layer.outputs * layer.out**2 * per_group * layer.filter**2,
            reference=channels_first(f"Conv {how} (t, f)", f"f = Transpose {TO_CHANNELS_FIRST} (w)"),
        )  # fmt: skip


def plain(layer: Layer) -> Layer:
    return Layer(layer.channels, layer.size, layer.outputs, layer.filter, layer.stride, layer.groups)


def channels_first(convolution: str, before: str = "") -> str:
    """The body that computes y by an operator of ONNX from `t`, which is x with its channels first."""
    return f"t = Transpose {TO_CHANNELS_FIRST} (x) {before} c = {convolution} y = Transpose <perm=[0,2,3,1]> (c)"


def transposed(batch: int) -> Iterator[Case]:
    for channels, outputs, size, k, pad in ((128, 64, 64, 4, 1), (256, 128, 32, 4, 1), (64, 64, 128, 2, 0)):
        fan_in, how = channels * k * k // 4, f"<pads={[pad] * 4}, strides=[2,2]>"
        yield Case(
            f"transposed/{channels}→{outputs} {size}² {k}x{k}/2 batch {batch}",
            f"y = gossamer.nhwc.ConvTranspose {how} (x, w)",
            {"x": rand(batch, size, size, channels), "w": weight(channels, outputs, k, k, fan_in=fan_in)},
            outputs={"y": (batch, 2 * size, 2 * size, outputs)}, part=FIRST,
            flops=2 * batch * channels * outputs * size * size * k * k,
            reference=channels_first(f"ConvTranspose {how} (t, w)"),
        )  # fmt: skip


def fused(batch: int) -> Iterator[Case]:
    """ResNet-50's convolutions as they are in the network: with bias, residual and activation."""
    for layer in dict.fromkeys(resnet50()):
        fan_in, how = layer.channels * layer.filter**2, f"<pads={[layer.pad] * 4}, strides={[layer.stride] * 2}"
        inputs = {
            "x": rand(batch, layer.size, layer.size, layer.channels),
            "w": weight(layer.outputs, layer.channels, layer.filter, layer.filter, fan_in=fan_in),
            "b": weight(layer.outputs, fan_in=4),
        }  # fmt: skip
        rest, added = "b", "s = Relu (c)"
        if layer.residual:
            inputs["z"] = rand(batch, layer.out, layer.out, layer.outputs)
            rest, added = "b, z", f"r = Transpose {TO_CHANNELS_FIRST} (z) a = Add (c, r) s = Relu (a)"
        yield Case(
            f"fused/{' '.join(str(layer).split())} batch {batch}",
            f'y = com.microsoft.NhwcFusedConv {how}, activation="Relu"> (x, w, {rest})',
            inputs, part=FIRST | {"z": 0},
            flops=2 * batch * layer.outputs * layer.out**2 * fan_in,
            reference=f"t = Transpose {TO_CHANNELS_FIRST} (x) c = Conv {how}> (t, w, b) {added} "
            "y = Transpose <perm=[0,2,3,1]> (s)",
        )  # fmt: skip


def others() -> Iterator[Case]:
    b, c, size = 32, 64, 112
    x, first = rand(b, c, size, size), {"part": FIRST}
    three = "<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>"
    yield Case("pool/MaxPool 3x3 stride 2", f"y = MaxPool {three} (x)", {"x": x}, **first)
    yield Case("pool/AveragePool 2x2", "y = AveragePool <kernel_shape=[2,2], strides=[2,2]> (x)", {"x": x}, **first)
    yield Case("pool/GlobalAveragePool", "y = GlobalAveragePool (x)", {"x": rand(b, 2048, 7, 7)}, **first)
    yield Case("pool/GlobalMaxPool", "y = GlobalMaxPool (x)", {"x": rand(b, 2048, 7, 7)}, **first)
    statistics = {name: rand(c, constant=True, kind="positive", dtype="float32") for name in "sbmv"}
    yield Case("norm/BatchNormalization", "y = BatchNormalization (x, s, b, m, v)", {"x": x} | statistics, **first)
    scales = {name: rand(c, constant=True) for name in "sb"}
    yield Case("norm/InstanceNormalization", "y = InstanceNormalization (x, s, b)", {"x": x} | scales, **first)
    lrn = "y = LRN <size=5, alpha=0.0001, beta=0.75, bias=2.0> (x)"
    yield Case("norm/LRN", lrn, {"x": rand(b, 96, 55, 55)}, **first)
    for op, gates, attributes in (("LSTM", 4, ""), ("GRU", 3, ", linear_before_reset=1"), ("RNN", 1, "")):
        for batch in (1, 32):
            yield Case(
                f"recurrent/{op} 128 steps, 512 wide, batch {batch}",
                f"y = {op} <hidden_size=512{attributes}> (x, w, r)",
                {"x": rand(128, batch, 512), "w": weight(1, gates * 512, 512), "r": weight(1, gates * 512, 512)},
                part={"x": 1, "y": 2}, flops=4 * 128 * batch * gates * 512 * 512,
            )  # fmt: skip
    for name, batch, heads, queries, head, causal in (
        *(("BERT batch 1", 1, 12, 128, 64, 0), ("BERT batch 32", 32, 12, 128, 64, 0)),
        *(("prefill", 1, 16, 2048, 128, 0), ("causal prefill", 1, 16, 2048, 128, 1)),
    ):
        yield Case(
            f"attention/{name}", f"y = Attention <is_causal={causal}> (q, k, v)",
            {n: rand(batch, heads, queries, head) for n in "qkv"},
            part=dict.fromkeys("qkvy", 1), flops=4 * batch * heads * queries**2 * head // (1 + causal), opset=23,
        )  # fmt: skip


Pair: TypeAlias = tuple[Job, Job]
"""A case's native kernels, and cuDNN."""


def main() -> int:
    """The exit status: 1 where a case has no row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a regular expression that names of cases contain")
    parser.add_argument("--batches", default="1,32", help="of convolutions")
    parser.add_argument("--budget", type=float, default=240.0, help="seconds after which no further case is begun")
    parser.add_argument("--results", type=Path, default=results.RESULTS)
    parser.add_argument("--smoke", action="store_true")
    arguments = parser.parse_args()
    pairs = [(Job(case, "float16"), Job(case, "float16")) for case in chosen(arguments.only, arguments.batches)]
    if arguments.smoke:
        natives = [native for native, _ in pairs]
        smoke(natives)
        print(*(f"{job}: {job.problem}" for job in natives if job.problem), sep="\n")
        return int(any(job.problem for job in natives))
    return bench(pairs, time.perf_counter() + arguments.budget, arguments.results)


def bench(pairs: Sequence[Pair], until: float, path: Path) -> int:
    rig, library = Bench.on(0), loader.load()
    print(f"cuDNN {library.version_text or 'absent'} {library.reason}", flush=True)
    load_all(rig, pairs)
    shared = results.origin(rig.device.name, results.driver_version(), version("triton"))
    shared |= {"benchmark": "against_cudnn", "peer": f"cuDNN {library.version_text}"}
    rows = []
    for row in measured(rig, pairs, until):
        results.append(path, [shared | row])  # one by one: what is measured stays, whatever follows
        rows.append(row)
    report(rows)
    rig.close()
    return int(len(rows) < len(pairs))


def chosen(only: str, batches: str) -> Iterator[Case]:
    per_batch = [make(int(batch)) for make in (convolutions, fused, transposed) for batch in batches.split(",")]
    return (case for case in chain(*per_batch, others()) if re.search(only, case.name))


def load_all(rig: Bench, pairs: Sequence[Pair]) -> None:
    """Both Programs of every case, and their kernels on the GPU."""
    started, target = time.perf_counter(), rig.device.target()
    for native, cudnn in pairs:
        native.build(target, Choices(nhwc=False))
        cudnn.build(target, Choices(nhwc=False, cudnn=ALL))
    print(f"{2 * len(pairs)} Programs built in {time.perf_counter() - started:.1f} s", flush=True)
    rig.load(compile_all([job for pair in pairs for job in pair], target))


def measured(rig: Bench, pairs: Sequence[Pair], until: float) -> Iterator[dict[str, str]]:
    """A row for each pair of right answers; for others a line that says why there is none."""
    for native, cudnn in pairs:
        native.problem = problem_of(native, cudnn)
    workers = os.cpu_count() or 1
    with ThreadPoolExecutor(workers) as pool:
        coming = Coming(pool, [native for native, _ in pairs], ahead=workers)
        for native, cudnn in pairs:
            if not native.problem and time.perf_counter() > until:
                native.problem = "not begun: the time was over"
            if native.problem:
                coming.drop(native)
            elif (prepared := coming.result(native)) is not None:
                try:
                    yield compare(rig, native, cudnn, *prepared)
                except Exception as error:  # whatever is wrong with one case, the others have their turn
                    native.problem = f"{type(error).__name__}: {error}"
            if native.problem:
                print(f"{native.case.name}: {native.problem}", flush=True)


def problem_of(native: Job, cudnn: Job) -> str:
    """Why one of the two does not run, or nothing."""
    if native.problem or cudnn.problem:
        return native.problem or f"cuDNN: {cudnn.problem}"
    assert cudnn.program is not None
    reasons = [call.reason for call in cudnn.program.calls if isinstance(call, Unavailable)]
    return reasons[0] if reasons else ""


def compare(rig: Bench, native: Job, cudnn: Job, arrays: Arrays, wanted: list[Array]) -> dict[str, str]:
    """The row. WrongAnswer where one of the two is wrong."""
    ours, error, us = run(rig, native, arrays, wanted)
    theirs, peer_error, peer_us = run(rig, cudnn, arrays, wanted)
    apart = max(distance(ours[name], theirs[name]) for name in ours)
    print(
        f"{native.case.name:60} {us:9.2f} µs, cuDNN {peer_us:9.2f} µs, ratio {us / peer_us:5.2f}, "
        f"errors {error:.1e} and {peer_error:.1e}, apart {apart:.1e}",
        flush=True,
    )
    return {
        "case": native.case.name, "dtype": native.dtype, "measure": "device",
        "us": f"{us:.2f}", "peer_us": f"{peer_us:.2f}", "error": f"{apart:.1e}",
    }  # fmt: skip


def run(rig: Bench, job: Job, arrays: Arrays, wanted: list[Array]) -> tuple[Arrays, float, float]:
    """The answer, its relative error, and the microseconds that it takes."""
    assert job.program is not None
    with rig.placed(job.program, job.constants, {name: arrays[name] for name in job.program.inputs}) as placed:
        outputs = placed.outputs()
        return outputs, job.case.error(job.dtype, outputs, wanted), placed.microseconds()


def distance(one: Array, other: Array) -> float:
    a, b = one.astype(np.float64), other.astype(np.float64)
    return float(np.linalg.norm(a - b) / max(float(np.linalg.norm(b)), 1e-30))


def report(rows: Sequence[Mapping[str, str]]) -> None:
    """The ratios by kind of case."""
    ratios: dict[str, list[float]] = {}
    for row in rows:
        ratios.setdefault(kind_of(row["case"]), []).append(float(row["us"]) / float(row["peer_us"]))
    for kind, values in ratios.items():
        mean = math.exp(sum(map(math.log, values)) / len(values))
        print(
            f"{kind:30} ours/cuDNN {mean:.2f} (geometric mean of {len(values)}; {min(values):.2f} to {max(values):.2f})"
        )


def kind_of(case: str) -> str:
    """`conv 3x3/1 batch 32` of `conv/64→64 56² 3x3/1 batch 32`; of cases without a filter what they are."""
    kind, rest = case.split("/", 1)
    filters, batch = re.search(r"(dw)?\d+x\d+/\d", rest), re.search(r"batch \d+", rest)
    return " ".join([kind, *(found.group() for found in (filters, batch) if found)])


if __name__ == "__main__":
    sys.exit(main())
