"""Where cuDNN is looked for: data in, candidates out, for either platform. (R1.2)"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gossamer.cudnn import search
from gossamer.cudnn.search import Candidate, Environment, Step


def site_packages(folder: Path, *files: str) -> Path:
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()
    return folder


def test_order(tmp_path: Path) -> None:
    """R1.2: resident, preloaded, wheels, versioned name, unversioned name."""
    wheels = "nvidia/cudnn/lib/libcudnn.so.9", "nvidia/cudnn_jit/lib/libcudnn.so.9"
    first = site_packages(tmp_path / "first", *wheels)
    second = site_packages(tmp_path / "second", wheels[0])
    environment = Environment(
        "linux", (first, tmp_path / "none", second), "/opt/cuda/lib", ("/opt/mine/libcudnn.so.9",)
    )
    assert list(search.candidates(environment)) == [
        Candidate("libcudnn.so.9", Step.RESIDENT),
        Candidate("/opt/mine/libcudnn.so.9", Step.PRELOADED),
        Candidate(str(first / wheels[0]), Step.PACKAGE),
        Candidate(str(first / wheels[1]), Step.PACKAGE),
        Candidate(str(second / wheels[0]), Step.PACKAGE),
        Candidate("libcudnn.so.9", Step.VERSIONED),
        Candidate("libcudnn.so", Step.UNVERSIONED),
    ]


def test_order_on_windows(tmp_path: Path) -> None:
    """R1.2: DLLs have no unversioned names, and the wheel has them in bin."""
    packages = site_packages(tmp_path, "nvidia/cudnn/bin/cudnn64_9.dll", "nvidia/cudnn/lib/libcudnn.so.9")
    assert list(search.candidates(Environment("win32", (packages,)))) == [
        Candidate("cudnn64_9.dll", Step.RESIDENT),
        Candidate(str(packages / "nvidia/cudnn/bin/cudnn64_9.dll"), Step.PACKAGE),
        Candidate("cudnn64_9.dll", Step.VERSIONED),
    ]


def test_other_platforms_have_no_cudnn() -> None:
    assert list(search.candidates(Environment("darwin", (Path("/opt"),), "", ("/opt/libcudnn.so.9",)))) == []


@pytest.mark.parametrize(
    ("file", "part"),
    [
        ("libcudnn_graph.so.9", "graph"),
        ("libcudnn_engines_precompiled.so.9.28.1", "engines_precompiled"),
        ("libcudnn.so.9", None),
        ("libcudnn_ops.so", None),
        ("libcudnn_ops_infer.so.8", None),
        ("libcudnn_ops.so.90", None),
    ],
)
def test_names_of_parts(file: str, part: str | None) -> None:
    match = search.NAMING["linux"].part.fullmatch(file)
    assert (match[1] if match else None) == part


@pytest.mark.parametrize(
    ("file", "part"),
    [
        ("cudnn_ops64_9.dll", "ops"),
        ("cudnn_engines_runtime_compiled64_9.dll", "engines_runtime_compiled"),
        ("cudnn64_9.dll", None),
        ("cudnn_ops64_8.dll", None),
    ],
)
def test_names_of_parts_on_windows(file: str, part: str | None) -> None:
    match = search.NAMING["win32"].part.fullmatch(file)
    assert (match[1] if match else None) == part


@pytest.mark.parametrize("safe", ["", "/usr/lib", "/usr/lib:/opt/cudnn/lib", "/usr/lib;/opt"])
def test_absolute_entries_are_no_danger(safe: str) -> None:
    assert search.steerable(Environment("linux", library_path=safe)) == ""


@pytest.mark.parametrize(
    ("path", "named"),
    [
        (":", "an empty entry"),
        ("/usr/lib:", "an empty entry"),
        (":/usr/lib", "an empty entry"),
        ("/a::/b", "an empty entry"),
        (".", "'.'"),
        ("/usr/lib;lib", "'lib'"),
        ("lib:/usr/lib:../x:", "'lib' and '../x' and an empty entry"),
    ],
)
def test_entries_that_mean_the_working_directory_are_named(path: str, named: str) -> None:
    """R1.2: the dynamic loader would look there for cuDNN's parts."""
    reason = search.steerable(Environment("linux", library_path=path))
    assert f"LD_LIBRARY_PATH={path} has {named}:" in reason
    assert search.steerable(Environment("win32", library_path=path)) == ""


def test_package_folders_are_where_pip_installs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """R1.2: neither the working directory, which `''` in sys.path stands for, nor what else sys.path has."""
    monkeypatch.chdir(tmp_path)
    before = search.package_folders()
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), *sys.path])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert search.package_folders() == before
    assert before
    assert all(folder.is_absolute() for folder in before)
    assert tmp_path not in before


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/environ")
def test_library_path_is_that_of_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """R1.2: the dynamic loader reads the variable once."""
    started_with = search.library_path()
    monkeypatch.setenv("LD_LIBRARY_PATH", "/set/later")
    assert search.library_path() == started_with != os.environ["LD_LIBRARY_PATH"]
