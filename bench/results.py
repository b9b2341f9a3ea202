"""The file that all benchmarks append to, and what its rows say of the machine and the code they were measured with."""

from __future__ import annotations

import csv
import os
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results.csv"
COLUMNS = (
    *("date", "commit", "device", "driver", "triton"),
    *("benchmark", "case", "batch", "dtype", "measure", "us", "error", "peer", "peer_us"),
    *("gb_per_s", "tflop_per_s"),
)
"""peer_us: the same work by `peer`, which is another program, or `ceilings`: the time that the fewest bytes or the
products alone would take at the rates measured in the same run."""


def append(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Adds rows. A file that was written before a column existed gets it, empty."""
    old: list[dict[str, str]] = []
    if path.exists():
        with path.open(newline="") as file:
            reader = csv.DictReader(file)
            current = tuple(reader.fieldnames or ()) == COLUMNS
            old = [] if current else list(reader)
    else:
        current = False
    with path.open("a" if current else "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        if not current:
            writer.writeheader()
        writer.writerows([*old, *rows])


@contextmanager
def attempt(name: str, failed: list[str]) -> Iterator[None]:
    """Whatever is wrong with one case, the others have their turn: its name goes to `failed`, the error is printed."""
    try:
        yield
    except Exception as error:
        print(f"{name}: no result, {type(error).__name__}: {error}", flush=True)
        traceback.print_exception(error)
        failed.append(name)


def origin(device: str, driver: str, triton: str) -> dict[str, str]:
    """The columns that all rows of one run share."""
    machine = {"device": device, "driver": driver, "triton": triton}
    return {"date": time.strftime("%Y-%m-%d"), "commit": commit(), **machine}


def driver_version() -> str:
    """As the driver gives it: 13000. It is imported for those alone who ask."""
    from gossamer.run import driver

    return str(driver.call("cuDriverGetVersion"))


def commit() -> str:
    """GOSSAMER_COMMIT where there is no git, as on a machine that was only given the files."""
    given = os.environ.get("GOSSAMER_COMMIT")
    if given:
        return given
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, cwd=HERE, check=True).stdout.strip()


def median_us(once: Callable[[], Any], repeats: int = 100, warm_up: int = 10) -> float:
    """Median microseconds of a call, which has to wait for what it starts, by the host's clock."""
    return median(seconds_of(once, repeats, warm_up)) * 1e6


def seconds_of(once: Callable[[], Any], repeats: int, warm_up: int = 10) -> list[float]:
    """Seconds of each of many calls, after some that do not count."""
    times = []
    for _ in range(warm_up + repeats):
        started = time.perf_counter()
        once()
        times.append(time.perf_counter() - started)
    return times[warm_up:]
