"""`gossamer doctor`: what is here, what is missing, and the one command to get it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from gossamer import __version__, settings
from gossamer.cli.output import console
from gossamer.cudnn import loader, self_test
from gossamer.cudnn.verdicts import Part, version_text
from gossamer.errors import EPFail, InvalidArgument

PACKAGES: dict[str, dict[str, str]] = {
    "": {
        "numpy": "numpy",
        "ml_dtypes": "ml_dtypes",
        "cuda-bindings": "cuda",
        "rich": "rich",
        "typer": "typer",
    },
    "compile": {"onnx": "onnx", "onnx-ir": "onnx_ir", "triton": "triton"},
    "cpu": {"onnxruntime": "onnxruntime"},
}
"""Extra (empty: the base) → distribution → the module that it brings. As in pyproject.toml."""

_EXTRAS = {"": "base", "compile": "from ONNX to GPU code", "cpu": "nodes that the GPU cannot take"}
_NVIDIA_PCI_VENDOR = "0x10de"


@dataclass(frozen=True)
class Finding:
    """One line of the report. command: what to run to get what is missing, or nothing."""

    subject: str
    detail: str
    good: bool = True
    command: str = ""
    required: bool = False


def doctor(as_json: bool) -> bool:
    """Print the report and say whether all that the base needs is here."""
    findings = list(examine())
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings]))
    else:
        _show(findings)
    return all(finding.good for finding in findings if finding.required)


def command_for(module: str) -> str | None:
    """The command that installs a module that Gossamer uses, None for other modules."""
    for extra, distributions in PACKAGES.items():
        if module.partition(".")[0] in distributions.values():
            return _install(extra)
    return None


def examine() -> Iterator[Finding]:
    """Everything that the report says, in order."""
    yield Finding("gossamer", f"{__version__}, Python {platform.python_version()}, {platform.platform()}")
    for extra, distributions in PACKAGES.items():
        for distribution in distributions:
            yield _package(distribution, extra)
    yield from _gpus()
    yield from cudnn()
    yield _kernel_cache()
    yield from _settings()


def _settings() -> Iterator[Finding]:
    """The environment variables that are set, those with a value that is not taken each by itself."""
    changed, wrong = [], []
    for setting in settings.SETTINGS.values():
        text = os.environ.get(setting.name)
        try:
            setting()
        except InvalidArgument as error:
            wrong.append(Finding("settings", str(error), False))
        else:
            changed += [f"{setting.name}={text}"] if text else []
    yield from wrong
    if changed or not wrong:
        yield Finding("settings", ", ".join(changed) or "defaults (docs/env_vars.md)")


def _install(extra: str) -> str:
    return f"pip install 'gossamer[{extra}]'" if extra else "pip install gossamer"


def _package(distribution: str, extra: str) -> Finding:
    try:
        version = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return Finding(distribution, f"missing ({_EXTRAS[extra]})", False, _install(extra), required=not extra)
    return Finding(distribution, version, required=not extra)


def _gpus() -> Iterator[Finding]:
    try:
        from gossamer.run import driver
    except ImportError as error:
        yield Finding("NVIDIA driver", f"cannot be asked: {error}", False, _install(""))
        return
    missing = driver.why_unavailable()
    if missing:
        command, why = _driver_remedy()
        yield Finding("NVIDIA driver", "; ".join((*missing, why)), False, command)
        return
    version: int = driver.call("cuDriverGetVersion", doing="asking for the driver's version")
    yield Finding("NVIDIA driver", f"CUDA {version // 1000}.{version % 1000 // 10}")
    for ordinal in range(driver.device_count()):
        device = driver.device(ordinal)
        free, total = device.memory()
        target = device.target()
        detail = f"{device.name}, {target.name}, {target.sm_count} multiprocessors, {free:,} of {total:,} bytes free"
        yield Finding(f"GPU {ordinal}", detail)


def cudnn() -> Iterator[Finding]:
    """Every cuDNN that is here, examined anew: which would be used, why not the others, and whether it works."""
    chosen = ""
    for candidate, verdict in loader.survey(anew=True):
        if not verdict.found:
            continue
        if verdict.problem:
            yield Finding("cuDNN", f"{candidate.step}: {verdict.problem}", False)
        elif os.path.realpath(verdict.path) != chosen:
            use = "good, but an earlier one is used" if chosen else "used"
            chosen = chosen or os.path.realpath(verdict.path)
            parts = ", ".join(_part(part) for part in verdict.parts)
            version = version_text(verdict.version)
            yield Finding("cuDNN", f"{version}, {verdict.path} ({candidate.step}): {use}; its parts: {parts}")
    if chosen:
        yield from _cudnn_self_test()
    else:
        yield Finding("cuDNN", "none that can be used, and none is needed: pip install 'gossamer[cudnn]' to have it")


def _part(part: Part) -> str:
    version = f" {version_text(part.version)}" if part.version else ""
    return f"{part.name}{version} ({part.error})" if part.error else f"{part.name}{version}"


def _cudnn_self_test() -> Iterator[Finding]:
    """One call of cuDNN on the first GPU, if there is one; the answer is looked at."""
    try:
        from gossamer.run import driver
    except ImportError:  # which `_gpus` reports
        return
    if driver.why_unavailable():
        return
    library = loader.load()
    subject = "cuDNN self-test"
    if not library.has("cudnnSetTensor"):
        yield Finding(subject, f"{library.path} has nothing but graphs to test")
        return
    import numpy as np

    answer = np.zeros(16, np.float32)
    try:
        with driver.allocate(answer.nbytes) as memory, driver.device(0).active():
            self_test.fill(memory.pointer, answer.size, 0.5)
            driver.copy_to_host(answer, memory.pointer)
    except EPFail as error:
        yield Finding(subject, str(error), False)
        return
    good = bool((answer == 0.5).all())
    yield Finding(subject, f"cuDNN {library.version_text} {'works' if good else f'gave {answer}'} on GPU 0", good)


def _driver_remedy() -> tuple[str, str]:
    """The command that gets a driver, and what speaks for it."""
    vendors = [path.read_text().strip() for path in Path("/sys/bus/pci/devices").glob("*/vendor")]
    if _NVIDIA_PCI_VENDOR not in vendors:
        return "", "and this machine has no NVIDIA GPU: models run on the CPU, or with --device interpreter"
    if any(Path(mark).exists() for mark in ("/.dockerenv", "/run/.containerenv")):
        return "docker run --gpus all ...", "in a container, the driver comes from the host"
    try:
        system = platform.freedesktop_os_release()
    except OSError:
        system = {}
    if "ubuntu" in (system.get("ID", ""), *system.get("ID_LIKE", "").split()):
        return "sudo ubuntu-drivers install", "this machine has an NVIDIA GPU"
    return "", "this machine has an NVIDIA GPU; its driver is at https://www.nvidia.com/drivers"


def _kernel_cache() -> Finding:
    from gossamer.build import cache

    folder, entries = cache.folder(), list(cache.entries())
    detail = f"{folder}: {len(entries)} kernels, {sum(entry.nbytes for entry in entries):,} bytes"
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    if nearest.is_dir() and os.access(nearest, os.W_OK):
        return Finding("kernel cache", detail)
    writable = "export GOSSAMER_CACHE_DIR=$HOME/gossamer-cache"
    return Finding(
        "kernel cache", f"{detail}; {nearest} cannot be written, so kernels compile in every process", False, writable
    )


def _show(findings: list[Finding]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    for finding in findings:
        table.add_row("ok" if finding.good else "--", finding.subject, finding.detail)
    out = console()
    out.print(table)
    commands = list(dict.fromkeys(finding.command for finding in findings if finding.command))
    if commands:
        out.print("\nTo get what is missing:", *commands, sep="\n  ")
