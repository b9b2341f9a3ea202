"""The session API: onnxruntime's names, argument orders and defaults over the compiler and the executors."""

from __future__ import annotations

from gossamer.program.model_metadata import ModelMetadata
from gossamer.session.engine import Engine
from gossamer.session.inference_session import InferenceSession
from gossamer.session.io_binding import IOBinding
from gossamer.session.node_arg import NodeArg
from gossamer.session.ort_value import OrtValue
from gossamer.session.providers import get_all_providers, get_available_providers, get_device
from gossamer.session.session_options import ExecutionMode, GraphOptimizationLevel, RunOptions, SessionOptions
from gossamer.session.severity import set_default_logger_severity

__all__ = [
    "Engine",
    "ExecutionMode",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "get_all_providers",
    "get_available_providers",
    "get_device",
    "set_default_logger_severity",
]
