"""An environment that holds what `pip install gossamer` installs and nothing else, for tests that run there."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from gossamer import settings

CHECKOUT = Path(__file__).parents[1]
INSTALL_SECONDS = 600


class BaseUnavailable(RuntimeError):
    """The packages cannot be had: no network, or none for this Python."""


@cache
def base_python() -> Path:
    """The environment's Python. This checkout is installed in place, without extras.

    Made once, and anew when pyproject.toml, the checkout's place or Python is another. Raises BaseUnavailable.
    """
    folder = settings.CACHE_DIR() / f"base-install-{sys.version_info.major}.{sys.version_info.minor}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    made_of = hashlib.sha256((CHECKOUT / "pyproject.toml").read_bytes())
    made_of.update(f"{CHECKOUT} {sys.version}".encode())
    with open(folder.with_suffix(".lock"), "w") as lock:
        _wait_for(lock.fileno())  # test processes that run at once make one
        stamp, python = folder / "made_of", folder / "bin" / "python"
        if not stamp.exists() or stamp.read_text() != made_of.hexdigest():
            _make(folder, python)
            stamp.write_text(made_of.hexdigest())
    return python


def _wait_for(lock: int) -> None:
    import fcntl  # not on Windows, which these tests leave out

    fcntl.flock(lock, fcntl.LOCK_EX)


def _make(folder: Path, python: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True, timeout=INSTALL_SECONDS)
    command = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--editable", CHECKOUT]
    done = _captured(command)
    if done.returncode:
        raise BaseUnavailable(done.stderr.strip() or "pip failed without a word")


def environment() -> dict[str, str]:
    """This process's, without what would show its packages or settings to others."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GOSSAMER"))}
    return {name: value for name, value in kept.items() if name not in ("VIRTUAL_ENV", "__PYVENV_LAUNCHER__")}


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """What the environment's Python prints, started with these arguments."""
    return _captured([base_python(), *arguments])


def _captured(command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    """Run in a folder where there is nothing to import."""
    return subprocess.run(
        command, check=False, capture_output=True, text=True, env=environment(), cwd="/", timeout=INSTALL_SECONDS
    )
