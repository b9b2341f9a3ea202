"""From starting a process to the first answer, interpreter included: compiled models, in an environment of the base
install alone, beside the same models as ONNX files and beside onnxruntime-gpu's.

    python bench/start_up.py FOLDER [--peer-site FOLDER]

The folder is bench/start_up_files.py's: NAME.gossamer and NAME.onnx, whichever were brought here, and NAME.npz with
inputs and the outputs to expect, by the model's names. Each time is the median of `--runs` fresh processes, after one
that is not counted: it reads the files into the page cache, and compiles the ONNX file's kernels. Answers are checked.
The environment is made of copies of what is installed here, since a machine with a GPU may have no network.
--peer-site: where onnxruntime-gpu is; it finds CUDA's libraries among the packages here.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import results

ROOT = Path(__file__).parents[1]
ABSENT = ("onnx", "onnx_ir", "triton", "onnxruntime", "torch")
"""What the base install does not bring."""
LIMIT = 2e-2
"""Relative error allowed: fp16 keeps 10 bits of mantissa and rounds between layers."""

_RUN = """
import sys, time
from {package} import InferenceSession
import numpy as np
model, folder, answer = sys.argv[1:]
session = InferenceSession(model{providers})
feeds = {{one.name: np.load(f"{{folder}}/{{one.name}}.npy") for one in session.get_inputs()}}
outputs = session.run(None, feeds)
ended = time.time()
assert session.get_providers()[0] == "CUDAExecutionProvider", session.get_providers()
np.savez(answer, **{{one.name: value for one, value in zip(session.get_outputs(), outputs)}})
print(ended)
"""
OURS = _RUN.format(package="gossamer", providers="")
THEIRS = _RUN.format(package="onnxruntime", providers=', providers=["CUDAExecutionProvider"]')

_PROBE = f"""
import importlib.util, json
print(json.dumps([name for name in {ABSENT!r} if importlib.util.find_spec(name)]))
"""


def main() -> int:
    """The exit status: 1 where a model has no rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--peer-site", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--results", type=Path, default=results.RESULTS)
    arguments = parser.parse_args()
    data = sorted(arguments.folder.resolve().glob("*.npz"))
    assert data, f"{arguments.folder} holds no NAME.npz"
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        python = base_environment(Path(folder))
        for one in data:
            with results.attempt(one.stem, failed):
                results.append(arguments.results, list(rows(one, python, arguments.runs, arguments.peer_site)))
    return int(bool(failed))


def rows(data: Path, base: str, runs: int, peer_site: Path | None) -> Iterator[dict[str, Any]]:
    """Of one model: the compiled file by the Python `base`, and the ONNX file by this one."""
    compiled, onnx, peer = data.with_suffix(".gossamer"), data.with_suffix(".onnx"), None
    if peer_site and onnx.exists():
        peer = measure([sys.executable, "-c", THEIRS], onnx, data, runs, peer_environment(peer_site))
        _say(f"{onnx.name} by onnxruntime-gpu", *peer)
    for command, model, environment, how in (
        ([base, "-c", OURS], compiled, bare(), "compiled"),
        ([sys.executable, "-c", OURS], onnx, with_checkout(), "from ONNX"),
    ):
        if model.exists():
            found = measure(command, model, data, runs, environment)
            _say(model.name, *found)
            yield _row(f"{model.stem}, {how}", found, peer)


def bare() -> dict[str, str]:
    """This process's environment, without what would show its packages or settings to others (PYTHONPATH)."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GOSSAMER"))}


def with_checkout() -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    return os.environ | {"PYTHONPATH": path}


def measure(
    command: Sequence[str], model: Path, data: Path, runs: int, environment: Mapping[str, str]
) -> tuple[float, float]:
    """Median seconds to the first answer, and the answers' largest error relative to the largest value expected."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.npz"
        with np.load(data) as expected:
            for name in expected.files:
                np.save(Path(folder) / f"{name}.npy", expected[name])
            seconds = [_once([*command, model, folder, answer], environment) for _ in range(runs + 1)]
            with np.load(answer) as got:
                errors = [_error(got[name], expected[name]) for name in got.files]
    assert all(error <= LIMIT for error in errors), f"{model.name}: relative errors {errors}"  # not NaN, either
    return median(seconds[1:]), max(errors)


def _error(got: np.ndarray, expected: np.ndarray) -> float:
    assert got.shape == expected.shape, (got.shape, expected.shape)
    apart = np.abs(got.astype(np.float64) - expected)
    return float(apart.max() / np.abs(expected).max())


def _once(command: Sequence[Any], environment: Mapping[str, str]) -> float:
    started = time.time()
    done = subprocess.run(list(map(str, command)), env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.splitlines()[-1]) - started


def base_environment(folder: Path) -> str:
    """The Python of a new environment that holds this checkout and what it depends on, and none of `ABSENT`. Packages
    and byte code are where pip would have put them."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    for found in _with_requirements(wanted):
        for file in found.files or ():
            source = Path(str(found.locate_file(file)))
            if ".." not in file.parts and source.is_file():
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, site / file)
    shutil.copytree(ROOT / "src" / "gossamer", site / "gossamer")
    python = str(folder / "bin" / "python")
    # Like pip, whatever PYTHONDONTWRITEBYTECODE says, and without minding files that are templates.
    subprocess.run([python, "-m", "compileall", "-qq", "-j", "0", site], env=bare(), check=False)
    done = subprocess.run([python, "-c", _PROBE], env=bare(), stdout=subprocess.PIPE, text=True, check=True)
    assert json.loads(done.stdout) == [], f"in the base environment: {done.stdout}"
    return python


def _with_requirements(names: Sequence[str]) -> Iterator[Distribution]:
    """Distributions that are installed here, with all that they require without extras."""
    waiting, seen = list(names), set()
    while waiting:
        requirement = waiting.pop()
        name = re.split(r"[^\w.-]", requirement.strip(), maxsplit=1)[0].lower().replace("_", "-")
        if name in seen or "extra ==" in requirement or "extra==" in requirement or _elsewhere(requirement):
            continue
        seen.add(name)
        found = distribution(name)
        yield found
        waiting += found.requires or ()


def _elsewhere(requirement: str) -> bool:
    """Whether a marker speaks of another system; which Python it is for does not matter, a package more is no harm."""
    marker = requirement.partition(";")[2]
    return any(system in marker.lower() for system in ("win32", "windows", "darwin"))


def peer_environment(site: Path) -> dict[str, str]:
    """onnxruntime-gpu importable, and CUDA's libraries found as they are in a container: by the loader's path."""
    places = [Path(entry) / "nvidia" for entry in sys.path if (Path(entry) / "nvidia").is_dir()]
    folders = sorted(str(path) for place in places for path in place.glob("*/lib"))
    return os.environ | {"PYTHONPATH": str(site), "LD_LIBRARY_PATH": ":".join(folders)}


def _row(case: str, found: tuple[float, float], peer: tuple[float, float] | None) -> dict[str, Any]:
    theirs = {"peer": "onnxruntime-gpu", "peer_us": f"{peer[0] * 1e6:.0f}"} if peer else {}
    made = {"benchmark": "start_up", "case": case, "batch": 1, "dtype": "float16", "measure": "first answer"}
    return _origin() | made | {"us": f"{found[0] * 1e6:.0f}", "error": f"{found[1]:.2e}"} | theirs


def _origin() -> dict[str, str]:
    """Read in a child, whose driver is not this process's."""
    code = (
        "from importlib.metadata import version; from gossamer.run import driver; "
        "print(driver.device(0).name, driver.call('cuDriverGetVersion'), version('triton'), sep='|')"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=with_checkout(), stdout=subprocess.PIPE, text=True, check=True)
    return results.origin(*done.stdout.strip().split("|"))


def _say(what: str, seconds: float, error: float) -> None:
    print(f"{what:40} {seconds * 1e3:7.0f} ms to the first answer, error {error:.1e}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
