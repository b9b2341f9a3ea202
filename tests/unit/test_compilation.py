"""Kernels through worker processes and the byte cache: what is compiled when, and what is said when it cannot be."""

from __future__ import annotations

import ast
import logging
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gossamer.kernels
import harness
from gossamer import diagnostics, settings
from gossamer.build import cache, compilation
from gossamer.build.compilation import compile_kernels, key_of
from gossamer.errors import CompilationError
from gossamer.program import Kernel, Target

pytestmark = pytest.mark.compile

HOPPER, AMPERE = Target.named("sm_90"), Target.named("sm_80")


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path) -> Iterator[None]:
    """A cache of the test's own, by override: the pool's threads must see it too."""
    with settings.override(CACHE_DIR=tmp_path):
        yield


@pytest.fixture(scope="module")
def kernels() -> tuple[Kernel, ...]:
    """Two small kernels."""
    x = np.zeros((40, 70), np.float32)
    (first,) = harness.kernels_of(harness.node_model("Transpose", [x]))
    (second,) = harness.kernels_of(harness.node_model("Transpose", [x.astype(np.float16)]))
    return first, second


@pytest.fixture
def no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise AssertionError("a kernel that is cached was compiled")

    monkeypatch.setattr(compilation, "_worker", refuse)


def broken(kernel: Kernel) -> Kernel:
    """The kernel with tiles that Triton refuses."""
    constants = tuple((name, 3 if value in (32, 64) else value) for name, value in kernel.constants)
    return replace(kernel, constants=constants)


def test_kernels_are_compiled_once_and_cached(kernels: tuple[Kernel, ...], request: pytest.FixtureRequest) -> None:
    compiled = compile_kernels((*kernels, kernels[0]), HOPPER)
    assert list(compiled) == list(kernels)
    for cubin in compiled.values():
        assert cubin.code[:4] == b"\x7fELF"
        assert (cubin.arch, cubin.num_warps) == (90, kernels[0].num_warps)
    assert len(list(cache.entries())) == len(kernels)
    request.getfixturevalue("no_workers")
    assert compile_kernels(kernels, HOPPER) == compiled


def test_a_damaged_entry_is_compiled_again(kernels: tuple[Kernel, ...]) -> None:
    (kernel, _) = kernels
    compiled = compile_kernels([kernel], HOPPER)
    (entry,) = cache.entries()
    entry.path.write_bytes(entry.path.read_bytes()[:-1])
    assert compile_kernels([kernel], HOPPER) == compiled
    assert compilation.cache.load(key_of(kernel, HOPPER)) == compiled[kernel]


def test_a_kernel_that_does_not_compile_says_what_the_compiler_said(kernels: tuple[Kernel, ...]) -> None:
    bad = broken(kernels[0])
    assert bad != kernels[0]
    with pytest.raises(CompilationError) as caught:
        compile_kernels([kernels[1], bad], HOPPER)
    error = caught.value
    assert (error.kernel, error.target) == (bad.name, "sm_90")
    assert "power of 2" in error.compiler_text
    assert f"kernel {bad.name} does not compile for sm_90:\n" in str(error)
    # The others were not in vain, and the workers live on.
    assert cache.load(key_of(kernels[1], HOPPER)) is not None
    assert len(compile_kernels(kernels, HOPPER)) == 2


def test_a_kernel_that_is_not_there_is_named() -> None:
    missing = Kernel("copies.no_such_kernel", (), ())
    with pytest.raises(CompilationError, match=r"copies\.no_such_kernel.*\n.*AttributeError"):
        compile_kernels([missing], HOPPER)


def test_a_worker_that_dies_is_reported_and_replaced(
    kernels: tuple[Kernel, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilation, "_local", threading.local())
    worker = compilation._worker()
    with monkeypatch.context() as patch:
        patch.setattr(compilation, "_worker", lambda: worker)
        worker._process.kill()
        worker._process.wait()
        with pytest.raises(CompilationError, match="process ended with exit code -9"):
            compile_kernels(kernels[:1], HOPPER)
    assert not worker.alive
    assert compilation._worker() is not worker
    assert compilation._compile_and_store(kernels[0], HOPPER).arch == 90


def test_after_a_failure_no_other_kernel_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor after Ctrl-C: a process ends when its pool has nothing to do."""
    kernels = [Kernel(f"copies.{name}", (), ()) for name in ("fails", "is_running", "waits")]
    begun, told = [], threading.Event()

    def compile_and_store(kernel: Kernel, target: Target) -> None:
        begun.append(kernel)
        if kernel is kernels[0]:
            raise KeyboardInterrupt
        told.wait(30)

    monkeypatch.setattr(compilation, "_compile_and_store", compile_and_store)
    with ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(compilation, "_pool", lambda: pool)
        with pytest.raises(KeyboardInterrupt):
            compile_kernels(kernels, HOPPER)
        told.set()
    assert kernels[2] not in begun


def test_ctrl_c_ends_a_worker_without_a_word(
    kernels: tuple[Kernel, ...], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A terminal sends it to this process and to its workers."""
    monkeypatch.setattr(compilation, "_local", threading.local())
    compilation._compile_and_store(kernels[0], HOPPER)
    process = compilation._worker()._process
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 0
    assert capfd.readouterr().err == ""


def test_a_worker_compiles_even_where_this_process_interprets(
    kernels: tuple[Kernel, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilation, "_local", threading.local())
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert compilation._compile_and_store(kernels[0], HOPPER).code[:4] == b"\x7fELF"


def test_the_key_names_all_that_the_code_depends_on(
    kernels: tuple[Kernel, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = kernels[0]
    name, _ = kernel.constants[0]
    variants = [
        kernel,
        kernels[1],  # another signature
        replace(kernel, constants=((name, 4096), *kernel.constants[1:])),
        replace(kernel, num_warps=8),
        replace(kernel, num_stages=5),
        replace(kernel, cooperative=True),
    ]
    keys = [key_of(variant, HOPPER) for variant in variants] + [key_of(kernel, AMPERE)]
    monkeypatch.setattr(compilation, "source_digest", lambda module: f"other source of {module}")
    keys.append(key_of(kernel, HOPPER))
    monkeypatch.setattr(compilation, "_compiler_digest", lambda: "another compiler")
    keys.append(key_of(kernel, HOPPER))
    monkeypatch.setenv("PTXAS_OPTIONS", "-O0")
    keys.append(key_of(kernel, HOPPER))
    assert len(set(keys)) == len(keys)
    # sm_count and the like decide about launches, not about code; workers compile, whatever this process does.
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert key_of(kernel, replace(HOPPER, sm_count=1)) == keys[-1]


def test_a_digest_covers_every_family_that_a_kernel_imports() -> None:
    for family in Path(gossamer.kernels.__file__).parent.glob("[!_]*.py"):
        tree = ast.parse(family.read_text(encoding="utf-8"))
        imported = {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        if family.stem != "registry":  # it imports the names of the families, and has no kernel
            assert "gossamer.kernels" not in imported, f"{family}: a kernel from there would not be part of the digest"
    covered = compilation._families_imported("matmul", set())
    assert {"matmul", "gemm", "activations", "elementwise_math"} <= covered


@dataclass
class Watching:
    """A `diagnostics.Watcher` that keeps what it was told."""

    told: list[Any] = field(default_factory=list)

    def begin(self, stage: str) -> None:
        self.told.append(stage)

    def advance(self, done: int, total: int) -> None:
        self.told.append((done, total))

    def end(self) -> None:
        self.told.append("end")


def test_progress_is_told(kernels: tuple[Kernel, ...]) -> None:
    watching = Watching()
    with diagnostics.watch(watching):
        compile_kernels(kernels, HOPPER)
        compile_kernels(kernels, HOPPER)  # cached: nothing to tell
    assert watching.told == ["compile 2 of 2 kernels for sm_90", (1, 2), (2, 2), "end"]


def test_debug_5_logs_the_ptx(kernels: tuple[Kernel, ...], caplog: pytest.LogCaptureFixture) -> None:
    with settings.override(DEBUG=5), caplog.at_level(logging.DEBUG, "gossamer"):
        compile_kernels(kernels[:1], AMPERE)
    assert ".target sm_80" in caplog.text
    assert kernels[0].name in caplog.text


def test_triton_keeps_no_cache_of_its_own(
    kernels: tuple[Kernel, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilation, "_local", threading.local())
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    compilation._compile_and_store(kernels[0], HOPPER)
    process = compilation._worker()._process
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(timeout=30) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"kernels"}
