"""HostCalls: parts of a model that onnxruntime runs on the CPU."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gossamer.errors import Fail, RuntimeException
from gossamer.options import CompileOptions
from gossamer.program import Arena, HostCall, Program, dtype_of


def has_onnxruntime() -> bool:
    """Whether onnxruntime is installed; it is not imported."""
    return importlib.util.find_spec("onnxruntime") is not None


class HostModel:
    """A whole model on the CPU. source: a path, bytes, or an object with SerializeToString."""

    def __init__(self, source: Any, options: CompileOptions) -> None:
        given = source.SerializeToString() if hasattr(source, "SerializeToString") else source
        self._session = _open(given, options, "the model")

    def run(self, outputs: Sequence[str], feeds: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The outputs named. Raises RuntimeException with onnxruntime's words."""
        return _run(self._session, outputs, feeds, "the model")

    def close(self) -> None:
        self._session = None


@dataclass(slots=True)
class HostRunner:
    """Runs HostCalls, keeping one onnxruntime session per distinct model. Safe from many threads."""

    options: CompileOptions = field(default_factory=CompileOptions)
    _sessions: dict[bytes, Any] = field(default_factory=dict)
    """By the model itself: bytes compute their hash once, and this is asked for in every run."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, call: HostCall, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """The arrays of `call.writes`; of what is no tensor, lists and dicts as onnxruntime has them.

        Raises Fail where onnxruntime refuses the model, RuntimeException where running it fails.
        """
        session = self._session(call)
        return _run(session, call.writes, {name: arrays[name] for name in call.reads}, str(call.origin))

    def _session(self, call: HostCall) -> Any:
        with self._lock:
            if call.model not in self._sessions:
                self._sessions[call.model] = _open(call.model, self.options, str(call.origin))
            return self._sessions[call.model]


def checked(call: HostCall, program: Program, name: str, made: Any) -> Any:
    """A result as its buffer takes it: whatever it is on the host; on the device, an array for what it has room for.

    Raises RuntimeException where that is of another type or size than the Program says: what lies behind it would be
    written over, and what reads it would take it for something else.
    """
    if not isinstance(program.locations.get(name), Arena):
        return made
    buffer = program.buffers[name]
    is_array = isinstance(made, np.ndarray)
    if not is_array or made.dtype != dtype_of(buffer.dtype) or made.size != buffer.size:
        what = f"{made.dtype}{list(made.shape)}" if is_array else type(made).__name__
        raise RuntimeException(f"{call.origin} made '{name}' a {what} on the CPU, and {buffer} was expected")
    return made


def _open(model: bytes | str, options: CompileOptions, what: str) -> Any:
    """An onnxruntime session on its CPU provider. Raises Fail with onnxruntime's words."""
    try:
        import onnxruntime
    except ImportError as error:
        raise Fail(f"{what} runs on the CPU, which needs onnxruntime: pip install 'gossamer[cpu]'") from error
    theirs = onnxruntime.SessionOptions()
    theirs.intra_op_num_threads = options.intra_op_threads
    theirs.inter_op_num_threads = options.inter_op_threads
    theirs.log_severity_level = 3 if options.log_severity_level < 0 else options.log_severity_level
    if not options.optimize:
        theirs.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    for name, size in options.dimensions.items():
        theirs.add_free_dimension_override_by_name(name, size)
    for key, value in options.config.items():
        theirs.add_session_config_entry(key, value)
    try:
        return onnxruntime.InferenceSession(model, theirs, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no common base but Exception
        raise Fail(f"onnxruntime refuses {what}: {error}") from error


def _run(session: Any, outputs: Sequence[str], feeds: Mapping[str, Any], what: str) -> dict[str, Any]:
    try:
        results = session.run(list(outputs), dict(feeds))
    except Exception as error:  # as above
        raise RuntimeException(f"{what} failed on the CPU: {error}") from error
    return dict(zip(outputs, results, strict=True))
