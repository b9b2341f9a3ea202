"""Kernels become cubins: through the byte cache, and for what it lacks through worker processes on all cores."""

from __future__ import annotations

import ast
import base64
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cache as memoize
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gossamer import settings
from gossamer.build import cache
from gossamer.diagnostics import advance, logger, stage
from gossamer.errors import CompilationError
from gossamer.program import Kernel, Target
from gossamer.program.cubin import Cubin

_BOOT = """\
import contextlib, json, sys
with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
    sys.path[:] = json.loads(sys.stdin.readline())
    from gossamer.build.worker import main
    main()
"""
"""Ctrl-C, which a terminal sends to workers, too, ends one without a word; so does the end of the asking process."""
_CACHE_FORMAT = 1
_COMPILERS = ("TRITON_", "PTXAS_", "LLVM_", "MLIR_", "DISABLE_LLVM_OPT", "DISABLE_PTXAS_OPT")
_OURS = frozenset({"TRITON_INTERPRET", "TRITON_CACHE_DIR", "TRITON_DEFAULT_FP_FUSION", "TRITON_DISABLE_LINE_INFO"})
"""Variables that workers get from here, whatever they are outside."""


def compile_kernels(kernels: Iterable[Kernel], target: Target) -> dict[Kernel, Cubin]:
    """The machine code of every kernel for `target`. Progress, in kernels, goes to `diagnostics.advance`.

    Raises CompilationError, naming the kernel, the target and the compiler's words.
    """
    wanted = list(dict.fromkeys(kernels))
    ready = {kernel: cubin for kernel in wanted if (cubin := cache.load(key_of(kernel, target))) is not None}
    missing = [kernel for kernel in wanted if kernel not in ready]
    if not missing:
        return ready
    with stage(f"compile {len(missing)} of {len(wanted)} kernels for {target.name}"):
        # The threads of the pool see the settings of this one, overrides included.
        futures = [_pool().submit(copy_context().run, _compile_and_store, kernel, target) for kernel in missing]
        try:
            for kernel, future in zip(missing, futures, strict=True):
                ready[kernel] = future.result()
                advance(len(ready), len(wanted))
        finally:  # one failed, or Ctrl-C: the process would not end before all the others were compiled
            for future in futures:
                future.cancel()
    return ready


def key_of(kernel: Kernel, target: Target) -> str:
    """The cache key: everything the machine code depends on."""
    made_by = (_CACHE_FORMAT, _compiler_digest(), source_digest(kernel.name.rpartition(".")[0]), *_set_for_compilers())
    return hashlib.sha256(json.dumps([*made_by, target.arch, *_fields(kernel).values()]).encode()).hexdigest()


@memoize
def _compiler_digest() -> str:
    """Triton's version, and the options that the workers give it."""
    options = Path(__file__).with_name("worker.py").read_bytes()
    return hashlib.sha256(version("triton").encode() + options).hexdigest()


def _set_for_compilers() -> tuple[tuple[str, str], ...]:
    """Environment variables that may change what Triton, LLVM or ptxas make; mostly there is none."""
    return tuple(sorted(item for item in os.environ.items() if item[0].startswith(_COMPILERS) and item[0] not in _OURS))


@memoize
def source_digest(module: str) -> str:
    """SHA-256 over the source of a kernel family and of every family it imports."""
    digest = hashlib.sha256()
    for name in sorted(_families_imported(module, set())):
        digest.update(_source(name))
    return digest.hexdigest()


def _families_imported(module: str, seen: set[str]) -> set[str]:
    if module not in seen:
        seen.add(module)
        for imported in _imports(module):
            _families_imported(imported, seen)
    return seen


@memoize
def _imports(module: str) -> tuple[str, ...]:
    statements = (node for node in ast.walk(ast.parse(_source(module))) if isinstance(node, ast.ImportFrom))
    names = (statement.module or "" for statement in statements)
    return tuple(name.removeprefix("gossamer.kernels.") for name in names if name.startswith("gossamer.kernels."))


@memoize
def _source(module: str) -> bytes:
    spec = find_spec(f"gossamer.kernels.{module}")
    assert spec is not None, f"no kernel family {module}"
    assert spec.origin is not None
    return Path(spec.origin).read_bytes()


def _fields(kernel: Kernel) -> dict[str, Any]:
    return {name: getattr(kernel, name) for name in kernel.__slots__}


def _compile_and_store(kernel: Kernel, target: Target) -> Cubin:
    answer = _worker().ask(_fields(kernel) | {"arch": target.arch, "ptx": settings.DEBUG() >= 5})
    if "error" in answer:
        raise CompilationError(kernel.name, target.name, answer["error"])
    if answer["ptx"]:
        logger.debug("%s for %s:\n%s", kernel.name, target.name, answer["ptx"])
    cubin = Cubin.from_header(answer["header"], base64.b64decode(answer["code"]))
    cache.store(key_of(kernel, target), cubin)
    return cubin


class _Worker:
    """One compile process. It ends when its standard input does: with this process at the latest."""

    def __init__(self) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        environment["TRITON_DEFAULT_FP_FUSION"] = "1"  # the option is set explicitly; this only quiets a warning of 3.9
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _BOOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self._send([entry for entry in sys.path if entry])  # never the working directory

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        self._send(request)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            return {"error": f"the compiler's process ended with exit code {self._process.returncode}"}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _send(self, message: Any) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the process is gone; `ask` reads its end and reports the exit code

    @property
    def alive(self) -> bool:
        return self._process.poll() is None


_local = threading.local()


def _worker() -> _Worker:
    """This pool thread's worker; a new one where the last one died."""
    worker: _Worker | None = getattr(_local, "worker", None)
    if worker is None or not worker.alive:
        worker = _local.worker = _Worker()
    return worker


@memoize
def _pool() -> ThreadPoolExecutor:
    jobs = settings.COMPILE_JOBS() or len(os.sched_getaffinity(0))
    return ThreadPoolExecutor(jobs, thread_name_prefix="gossamer-compile")
