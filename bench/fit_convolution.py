"""How good the launch choice of convolutions is by measurements made before; needs no GPU.

    python bench/fit_convolution.py times.json [--target sm_90] [--over 1.05]

times.json: what `bench/convolution.py --output` wrote. Prints, for each network and batch size, the time of the model's
choices over that of the best candidates, and the layers where the two are further apart than `--over`. A choice that
was not measured is left out in favour of the next best that was, and marked with an asterisk.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from convolution import Problem, short
from gossamer.program import Target
from networks import NETWORKS, Layer


def chosen(layer: Layer, batch: int, dtype: str, measured: Iterable[str], target: Target) -> tuple[str, str]:
    """The model's choice, and its choice among what was measured."""
    choice, costs = Problem(layer, batch, dtype, target, within=0.0).configurations()
    ranked = sorted(costs, key=lambda tiles: (tiles != choice, costs[tiles]))
    return short(choice), next(name for name in map(short, ranked) if name in measured)


def report(network: str, batch: int, rows: dict[Layer, dict[str, Any]], target: Target, over: float) -> None:
    """Prints one network at one batch size."""
    sums, lines = [0.0, 0.0, 0.0], []
    for layer, count in Counter(NETWORKS[network]()).items():
        times: dict[str, float] = rows[layer]["us"]
        wanted, choice = chosen(layer, batch, rows[layer]["dtype"], times, target)
        best = min(times, key=times.__getitem__)
        for i, time in enumerate((times[choice], times[best], rows[layer]["cudnn_us"])):
            sums[i] += count * time
        if times[choice] > over * times[best] or wanted != choice:
            mark = "*" if wanted != choice else " "
            lines.append(
                f"  {count}× {layer!s:28} {times[choice]:6.1f} {choice:26}{mark} best {times[best]:6.1f} {best:26}"
                f" {times[choice] / times[best]:.2f}" + (f"  wanted {wanted}" if wanted != choice else "")
            )
    print(
        f"{network}, batch {batch}: choice {sums[0]:.0f}, best {sums[1]:.0f}, cuDNN {sums[2]:.0f} µs;"
        f" choice/best {sums[0] / sums[1]:.3f}"
    )
    print("\n".join(lines))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("times", type=Path)
    parser.add_argument("--target", default="sm_90", help="what was measured on")
    parser.add_argument("--over", type=float, default=1.05)
    arguments = parser.parse_args()
    target = Target.named(arguments.target)
    rows = json.loads(arguments.times.read_text())
    for network, layers in NETWORKS.items():
        wanted = {json.dumps(asdict(layer)) for layer in layers()}
        for batch in sorted({row["batch"] for row in rows}):
            here = {
                Layer(**row["layer"]): row
                for row in rows
                if row["batch"] == batch and json.dumps(row["layer"]) in wanted
            }
            if here:
                report(network, batch, here, target, arguments.over)


if __name__ == "__main__":
    main()
