"""Matrix products on a GPU: every candidate of the launch choice beside the choice itself and PyTorch.

    python bench/matmul.py [--dtypes float16,float32] [--only bert,rec] [--results FILE]

Each candidate's answer is checked before it is timed. Operands rotate through more memory than L2 holds, launches are
replayed from a CUDA graph, and a time is the median over replays of the graph, divided by its launches. The last
columns say how far the choice is from the best candidate, and from PyTorch.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch

from gossamer.kernels import gemm
from gossamer.kernels.gemm_tiles import Strip, Tiles, candidates, choose_strip, choose_tiles
from gossamer.program import Buffer, Launch, Pointer, Target

Operands: TypeAlias = "list[tuple[torch.Tensor, torch.Tensor]]"

L2_BYTES = 60 << 20
REPLAYS = 20
COLUMNS = (
    *("case", "dtype", "m", "n", "k", "batch"),
    *("best", "best_us", "chosen", "chosen_us", "torch_us", "chosen/best", "chosen/torch"),
)


@dataclass(frozen=True)
class Case:
    """y[batch, m, n]; b_transposed: B is stored [n, k], as PyTorch exports linear layers."""

    name: str
    m: int
    n: int
    k: int
    batch: int = 1
    b_transposed: bool = False


CASES = (
    *(Case(f"bert_qkv_b{b}", 128 * b, 768, 768) for b in (1, 8, 32)),
    *(Case(f"bert_up_b{b}", 128 * b, 3072, 768) for b in (1, 8, 32)),
    *(Case(f"bert_down_b{b}", 128 * b, 768, 3072) for b in (1, 8, 32)),
    *(Case(f"bert_scores_b{b}", 128, 128, 64, 12 * b, True) for b in (1, 32)),
    *(Case(f"bert_values_b{b}", 128, 64, 128, 12 * b) for b in (1, 32)),
    Case("bert_up_b8_transposed", 1024, 3072, 768, 1, True),  # as constant fp32 matrices are packed for sm_90
    Case("vit_up_b8", 197 * 8, 3072, 768),
    Case("vit_scores_b8", 197, 197, 64, 12 * 8, True),
    Case("vit_values_b8", 197, 64, 197, 12 * 8),
    Case("rec_qkv", 40, 360, 120),
    Case("rec_head", 40, 6625, 120),
    Case("rec_head_b6", 240, 6625, 120),
    *(Case(f"resnet_fc_b{b}", b, 1000, 2048, 1, True) for b in (1, 8, 32)),
    Case("resnet_fc_untransposed", 1, 1000, 2048),
    Case("decode", 1, 4096, 4096),
    Case("square_1024", 1024, 1024, 1024),
    Case("square_4096", 4096, 4096, 4096),
    Case("square_8192", 8192, 8192, 8192),
)


class Stub:
    """A node as `gemm.multiply` sees it: no constants, workspaces by name."""

    def __init__(self) -> None:
        self.workspaces: list[Buffer] = []

    def is_constant(self, buffer: Buffer) -> bool:
        return False

    def temporary(self, shape: tuple[int, ...], dtype: str) -> Buffer:
        self.workspaces.append(Buffer(f"workspace{len(self.workspaces)}", dtype, shape))
        return self.workspaces[-1]


def main() -> None:
    """Benchmarks the cases that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtypes", default="float16,float32")
    parser.add_argument("--only", default="", help="prefixes of case names, by commas")
    parser.add_argument("--results", type=Path)
    arguments = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    wanted = tuple(arguments.only.split(","))
    cases = [case for case in CASES if case.name.startswith(wanted)]
    rows = [bench(case, dtype) for dtype in arguments.dtypes.split(",") for case in cases]
    for dtype in arguments.dtypes.split(","):
        ratios = [(row["chosen/best"], row["chosen/torch"]) for row in rows if row["dtype"] == dtype]
        best, peer = (math.exp(statistics.fmean(map(math.log, column))) for column in zip(*ratios, strict=True))
        print(f"{dtype}: chosen/best {best:.2f}, chosen/torch {peer:.2f} (geometric means of {len(ratios)})")
    if arguments.results:
        with arguments.results.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)


def bench(case: Case, dtype: str) -> dict[str, Any]:
    """The row of one case."""
    target = target_of_gpu()
    operands = rotating_operands(case, getattr(torch, dtype))
    want = product(*operands[0])
    chosen = choose(case, dtype, target)
    times = {}
    for plan in dict.fromkeys((chosen, *plans(case, dtype, target))):
        times[plan] = time_plan(case, dtype, target, plan, operands, want)
    torch_us = time_us([lambda a=a, b=b: product(a, b) for a, b in operands])
    best = min(times, key=times.__getitem__)
    plans_and_times = (short(best), times[best], short(chosen), times[chosen], torch_us)
    ratios = (times[chosen] / times[best], times[chosen] / torch_us)
    what = (case.name, dtype, case.m, case.n, case.k, case.batch)
    row = dict(zip(COLUMNS, (*what, *plans_and_times, *ratios), strict=True))
    print("  ".join(f"{value:.2f}" if isinstance(value, float) else str(value) for value in row.values()), flush=True)
    return row


def target_of_gpu() -> Target:
    """The device as the launch choice sees it."""
    properties = torch.cuda.get_device_properties(0)
    arch = properties.major * 10 + properties.minor
    return Target(properties.name, arch, properties.multi_processor_count, properties.shared_memory_per_block_optin)


def rotating_operands(case: Case, dtype: torch.dtype) -> Operands:
    """As many pairs as L2 cannot hold, 40 at most."""
    nbytes = case.batch * (case.m + case.n) * case.k * dtype.itemsize
    copies = max(2, min(40, 2 * L2_BYTES // nbytes))
    torch.manual_seed(0)

    def pair() -> tuple[torch.Tensor, torch.Tensor]:
        b_shape = (case.batch, case.n, case.k) if case.b_transposed else (case.batch, case.k, case.n)
        a = torch.randn(case.batch, case.m, case.k, device="cuda").to(dtype)
        b = (torch.randn(b_shape, device="cuda") / math.sqrt(case.k)).to(dtype)
        return a, b.mT if case.b_transposed else b

    return [pair() for _ in range(copies)]


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """PyTorch's product; of a batch of one without the batch, which takes another path in cuBLAS."""
    return a @ b if a.shape[0] > 1 else (a[0] @ b[0])[None]


def choose(case: Case, dtype: str, target: Target) -> Tiles | Strip:
    """The plan that the compiler takes."""
    if case.m == 1:
        return choose_strip(case.n, case.k, case.batch, getattr(torch, dtype).itemsize, case.b_transposed, target)
    return choose_tiles(case.m, case.n, case.k, case.batch, dtype, target)


def plans(case: Case, dtype: str, target: Target) -> Iterator[Tiles | Strip]:
    """All that it could take."""
    if case.m > 1:
        yield from candidates(case.m, case.n, case.k, case.batch, dtype, target)
        return
    for block_n in (1, 2, 4, 8, 16, 32, 64):
        for block_k in (128, 256, 512, 1024, 2048):
            for splits in (1, 2, 4, 8):
                if 2048 <= block_n * block_k <= 16384:
                    yield Strip(block_n, block_k, 4, splits)


def launches_of(case: Case, dtype: str, target: Target, plan: Tiles | Strip) -> tuple[list[Launch], list[Buffer]]:
    """What the compiler would launch for the case, had it chosen this plan."""
    b_rows, b_columns = (1, case.k) if case.b_transposed else (case.n, 1)
    y = Buffer("y", dtype, (case.batch, case.m, case.n))
    a = gemm.Matrix(Buffer("a", dtype, (case.batch, case.m, case.k)), (case.m * case.k,), case.k, 1)
    b = gemm.Matrix(Buffer("b", dtype, (case.batch, case.k, case.n)), (case.n * case.k,), b_rows, b_columns)
    stub: Any = Stub()
    gemm.choose_tiles = gemm.choose_strip = lambda *_: plan
    calls = gemm.multiply(stub, target, gemm.Product(a, b, y, case.m, case.n, case.k, (case.batch,)))
    return [call for call in calls if isinstance(call, Launch)], stub.workspaces


def runner(launch: Launch, tensors: dict[str, torch.Tensor]) -> Callable[[], Any]:
    """The launch through Triton's own just-in-time compiler."""
    kernel = getattr(gemm, launch.kernel.function)
    arguments = dict(launch.kernel.constants)
    for (name, kind), value in zip(launch.kernel.signature, launch.arguments, strict=True):
        arguments[name] = None if kind == "none" else tensors[value.buffer] if isinstance(value, Pointer) else value
    options = {"num_warps": launch.kernel.num_warps, "num_stages": launch.kernel.num_stages}
    return lambda: kernel[launch.grid](**arguments, **options)


def time_plan(
    case: Case, dtype: str, target: Target, plan: Tiles | Strip, operands: Operands, want: torch.Tensor
) -> float:
    """Microseconds, once the answer is right."""
    launches, workspaces = launches_of(case, dtype, target, plan)
    y = torch.full_like(want, math.nan)
    scratch = {
        buffer.name: torch.empty(buffer.shape, device="cuda", dtype=getattr(torch, buffer.dtype))
        for buffer in workspaces
    }
    steps = [[runner(launch, {"a": a, "b": b, "y": y} | scratch) for launch in launches] for a, b in operands]
    for step in steps[0]:
        step()
    torch.testing.assert_close(y, want, rtol=1e-2, atol=1e-2)
    return time_us([lambda run=run: [step() for step in run] for run in steps])


def time_us(functions: list[Callable[[], Any]]) -> float:
    """Median microseconds of one of them, replayed in turn from a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        functions[0]()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for function in functions:
            function()
    times = []
    for _ in range(REPLAYS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / len(functions))
    return statistics.median(times)


def short(plan: Tiles | Strip) -> str:
    """A plan in few characters: tiles, warps, stages / splits."""
    if isinstance(plan, Strip):
        return f"{plan.block_n}x{plan.block_k}/{plan.splits}"
    return f"{plan.block_m}x{plan.block_n}x{plan.block_k}w{plan.num_warps}s{plan.num_stages}/{plan.splits}"


if __name__ == "__main__":
    main()
