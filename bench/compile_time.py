"""How long compiling ahead of time takes on this machine, and how large the files are.

    PYTHONPATH=src python bench/compile_time.py [--models resnet50,ppocr,bert] [--targets sm_80,sm_90] [--cudnn auto]

Each file is written twice by `gossamer compile` in processes of their own, first with an empty cache of kernels, then
with the one that is left. Prints seconds by the clock and of CPU time (children included), which other work on the
machine does not lengthen, and checks that both files are the same. Weights are random, those of PP-OCR's text
recognition are its own. Fails beyond `MOST` seconds by the clock.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "tests" / "models"), str(HERE.parent / "tests")]
MOST = {"cold": 60.0, "warm": 5.0}


@dataclass(frozen=True)
class Subject:
    """A model. write: puts it into a file. shapes: options that close its dimensions."""

    write: Callable[[Path], object]
    shapes: tuple[str, ...] = ()


def resnet50(path: Path) -> None:
    import fetch
    from random_weights import with_random_weights

    path.write_bytes(with_random_weights(fetch.fetch("light_resnet50")))


def ppocr(path: Path) -> None:
    import fetch

    path.write_bytes(fetch.fetch("ppocr_v4_rec").read_bytes())


def bert(path: Path) -> None:
    from bert_encoder import bert_encoder

    path.write_bytes(bert_encoder().SerializeToString())


SUBJECTS = {
    "resnet50": Subject(resnet50),
    "ppocr": Subject(ppocr, ("--input-shape", "1x3x48x320")),
    "bert": Subject(bert, ("--input-shape", "input_ids=1x128", "--input-shape", "attention_mask=1x128")),
}


@dataclass(frozen=True)
class Spent:
    """What one process took, with its children."""

    clock: float
    cpu: float


def compiled(model: Path, output: Path, options: tuple[str, ...], cache: Path) -> Spent:
    """One run of the command."""
    command = [sys.executable, "-m", "gossamer", "compile", str(model), "-o", str(output), *options]
    environment = os.environ | {"GOSSAMER_CACHE_DIR": str(cache)}
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    clock, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(done.stderr)
    return Spent(clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def measure(name: str, target: str, cudnn: str, folder: Path) -> bool:
    """One model for one target; whether it was quick enough."""
    subject, model = SUBJECTS[name], folder / f"{name}.onnx"
    if not model.exists():
        subject.write(model)
    options, cache = ("--target", target, "--cudnn", cudnn, *subject.shapes), folder / f"cache-{name}-{target}"
    files = {run: folder / f"{name}-{target}-{run}.gossamer" for run in MOST}
    spent = {run: compiled(model, file, options, cache) for run, file in files.items()}
    sums = {hashlib.sha256(file.read_bytes()).hexdigest() for file in files.values()}
    if len(sums) > 1:
        raise SystemExit(f"{name} for {target}: the cold and the warm cache give different files")
    times = ", ".join(f"{run} {of.clock:.1f} s (CPU {of.cpu:.1f} s)" for run, of in spent.items())
    print(f"{name} for {target}: {times}; {files['warm'].stat().st_size:,} bytes", flush=True)
    for file in files.values():
        file.unlink()
    return all(of.clock <= MOST[run] for run, of in spent.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(SUBJECTS))
    parser.add_argument("--targets", default="sm_80,sm_90")
    parser.add_argument("--cudnn", default="auto", choices=("auto", "yes", "no"))
    arguments = parser.parse_args()
    print(f"on {len(os.sched_getaffinity(0))} cores")
    with tempfile.TemporaryDirectory() as folder:
        quick = [
            measure(name, target, arguments.cudnn, Path(folder))
            for name in arguments.models.split(",")
            for target in arguments.targets.split(",")
        ]
    if not all(quick):
        raise SystemExit(f"slower than {MOST['cold']:.0f} s cold or {MOST['warm']:.0f} s warm")


if __name__ == "__main__":
    main()
