"""Launch choices on a GPU: every candidate beside the choice, answers checked first.

    python bench/tiles.py [--only REGEX] [--dtypes float16] [--output FILE.json]

Attention and matrix products. For each case what `attention_tiles` or `gemm_tiles` chooses and the best five are
printed; the file gets all of them, for whoever fits the choice.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from gossamer.errors import GossamerError
from gossamer.kernels import attention, attention_tiles, gemm, gemm_tiles
from gossamer.program import Target, dtype_of
from operator_case import Case, WrongAnswer, rand, weight
from operator_cases import attentions
from operators import Job, compile_all
from replay import Bench


@dataclass(frozen=True)
class Family:
    """A launch choice: `module.name` is what lowerings call; `others` gives, for its arguments, what else it could
    have answered."""

    module: Any
    name: str
    others: Callable[..., Iterator[Any]]


@dataclass
class Attempt:
    job: Job
    plan: Any
    us: float = 0.0


def attention_plans(extents: Any, dtype: str, target: Target) -> Iterator[Any]:
    choice = attention_tiles.choose_tiles(extents, dtype, target)
    assert choice is not None
    rows = extents.queries * (extents.heads // extents.kv_heads if choice.packed else 1)
    splits = {1} if choice.splits == 1 else {max(1, choice.splits // 2), choice.splits, min(2 * choice.splits, 64)}
    for m, n, warps, stages in product((16, 32, 64, 128), (32, 64, 128), (4, 8), (1, 2, 3, 4)):
        tiles = attention_tiles.Tiles(m, n, warps, stages, choice.packed)
        fits = tiles.shared_bytes(extents.block_d, extents.block_v, dtype_of(dtype).itemsize) <= target.shared_bytes
        if fits and m <= max(16, 2 * rows) and (m >= 64 or warps == 4):
            yield from (replace(tiles, splits=count) for count in sorted(splits))


def strips(*_: Any) -> Iterator[Any]:
    for block_n, elements, count, stages in product((8, 16, 32, 64), (4096, 8192, 16384), (1, 2, 4), (1, 3)):
        if stages == 1 or elements < 16384:
            yield gemm_tiles.Strip(block_n, elements // block_n, 4, count, stages)


def products(*arguments: Any) -> Iterator[Any]:
    return (tiles for _, tiles in gemm_tiles.priced(*arguments))


FAMILIES = (
    Family(attention, "choose_tiles", attention_plans),
    Family(gemm, "choose_tiles", products),
    Family(gemm, "choose_strip", strips),
)


def cases() -> Iterator[Case]:
    yield from (case for case in attentions(lambda full, _: full) if "rotary" not in case.name)
    for name, m, n, k in (
        *((f"bert_qkv_b{b}", 128 * b, 768, 768) for b in (1, 8, 32)),
        *((f"bert_up_b{b}", 128 * b, 3072, 768) for b in (1, 8, 32)),
        *((f"bert_down_b{b}", 128 * b, 768, 3072) for b in (1, 8, 32)),
        *((f"vit_up_b{b}", 197 * b, 3072, 768) for b in (1, 8)),
        ("rec_head", 40, 6625, 120), ("resnet_fc_b8", 8, 1000, 2048), ("resnet_fc_b32", 32, 1000, 2048),
        ("llama_b8", 8, 11008, 4096), ("prefill_2048", 2048, 4096, 4096), ("square_1024", 1024, 1024, 1024),
    ):  # fmt: skip
        given = {"x": rand(m, k), "w": weight(k, n, fan_in=k)}
        yield Case(f"matmul/{name}", "y = MatMul(x, w)", given, flops=2 * m * n * k, part={"x": 0, "y": 0}, parts=8)
    for name, n, k in (("up", 11008, 4096), ("square", 4096, 4096), ("small", 768, 768)):
        given = {"x": rand(1, k), "w": weight(k, n, fan_in=k)}
        yield Case(f"matvec/{name}", "y = MatMul(x, w)", given, flops=2 * n * k)
        given = {"x": rand(1, k), "w": weight(n, k, fan_in=k)}
        yield Case(f"matvec/{name}_transposed", "y = Gemm <transB=1> (x, w)", given, flops=2 * n * k)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--dtypes", default="float16")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    rig = Bench.on(0)
    target = rig.device.target()
    found: dict[str, list[Attempt]] = {}
    for case in cases():
        for dtype in sorted(set(case.dtypes) & set(arguments.dtypes.split(","))):
            if re.search(arguments.only, case.name):
                found[f"{case.name} {dtype}"] = attempts(case, dtype, target)
    rig.load(compile_all([attempt.job for group in found.values() for attempt in group], target))
    with ThreadPoolExecutor() as pool:
        prepared = {name: pool.submit(group[0].job.prepared) for name, group in found.items()}
        ratios = [measure(rig, name, group, *prepared[name].result()) for name, group in found.items()]
    print(f"chosen/best {math.exp(sum(map(math.log, ratios)) / len(ratios)):.3f} (geometric mean of {len(ratios)})")
    if arguments.output:
        rows = [{"case": name, "us": a.us, **asdict(a.plan)} for name, group in found.items() for a in group]
        arguments.output.write_text(json.dumps(rows, indent=1))
    rig.close()


def attempts(case: Case, dtype: str, target: Target) -> list[Attempt]:
    """The choice first, then whatever else there is, each as a Program of its own."""
    family, arguments, chosen = asked(case, dtype, target)
    kept = getattr(family.module, family.name)
    made = []
    for plan in dict.fromkeys((chosen, *family.others(*arguments))):
        setattr(family.module, family.name, lambda *_, plan=plan: plan)
        job = Job(case, dtype)
        job.build(target)
        made.append(Attempt(job, plan))
    setattr(family.module, family.name, kept)
    return made


def asked(case: Case, dtype: str, target: Target) -> tuple[Family, tuple[Any, ...], Any]:
    """The launch choice that lowering the case asks, with which arguments, and its answer."""
    seen: list[tuple[Family, tuple[Any, ...], Any]] = []
    kept = [getattr(family.module, family.name) for family in FAMILIES]
    for family, choose in zip(FAMILIES, kept, strict=True):

        def spy(*arguments: Any, family: Family = family, choose: Any = choose) -> Any:
            seen.append((family, arguments, choose(*arguments)))
            return seen[-1][-1]

        setattr(family.module, family.name, spy)
    Job(case, dtype).build(target)
    for family, choose in zip(FAMILIES, kept, strict=True):
        setattr(family.module, family.name, choose)
    return seen[0]


def measure(rig: Bench, name: str, group: list[Attempt], arrays: Any, wanted: Any) -> float:
    """Prints what was found, and gives how far the choice is from the best."""
    for attempt in group:
        job = attempt.job
        if job.problem or job.program is None:
            continue
        try:
            with rig.placed(job.program, job.constants, {n: arrays[n] for n in job.program.inputs}) as placed:
                job.case.error(job.dtype, placed.outputs(), wanted)
                attempt.us = placed.microseconds()
        except (GossamerError, WrongAnswer) as error:
            print(f"{name} {short(attempt.plan)}: {error}")
    timed = sorted((attempt for attempt in group if attempt.us), key=lambda attempt: attempt.us)
    best = ", ".join(f"{short(a.plan)} {a.us:.2f}" for a in timed[:5])
    print(f"{name}: chosen {short(group[0].plan)} {group[0].us:.2f} µs of {len(timed)}; best {best}", flush=True)
    return group[0].us / timed[0].us if timed and group[0].us else 1.0


def short(plan: Any) -> str:
    """Tiles, then warps, stages and splits."""
    values = asdict(plan)
    tiles = "×".join(str(value) for key, value in values.items() if key.startswith("block"))
    return (
        tiles
        + "".join(f"{key[4:5]}{values[key]}" for key in ("num_warps", "num_stages") if key in values)
        + (f"/{values['splits']}" if values["splits"] > 1 else "")
    )


if __name__ == "__main__":
    main()
