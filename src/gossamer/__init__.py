"""Gossamer runs ONNX models on NVIDIA GPUs and needs the driver, nothing else from NVIDIA.

    import gossamer

    session = gossamer.InferenceSession("model.onnx", providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    logits, = session.run(None, {"input": image})

The names, argument orders and defaults are onnxruntime's. Importing this package does nothing: each name is imported
when it is first used, no library is opened, and no device is looked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gossamer.ahead_of_time import compile_model
    from gossamer.cudnn.preload import preload_dlls
    from gossamer.custom_ops import KernelContext, custom_op
    from gossamer.errors import (
        CompilationError,
        CudnnError,
        CudnnUnavailable,
        DeviceNotFound,
        DriverError,
        EPFail,
        Fail,
        GossamerError,
        InvalidArgument,
        InvalidGraph,
        InvalidProtobuf,
        NoModel,
        NoSuchFile,
        NotFound,
        OutOfMemory,
        RuntimeException,
        UnsupportedModel,
    )
    from gossamer.session import (
        ExecutionMode,
        GraphOptimizationLevel,
        InferenceSession,
        IOBinding,
        ModelMetadata,
        NodeArg,
        OrtValue,
        RunOptions,
        SessionOptions,
        get_all_providers,
        get_available_providers,
        get_device,
        set_default_logger_severity,
    )

    cudnn_version: str | None

__version__ = "0.1.0"

# `NotImplemented` stays in gossamer.errors: a star import must not replace Python's own.
_HOME = {
    "CompilationError": "errors",
    "CudnnError": "errors",
    "CudnnUnavailable": "errors",
    "DeviceNotFound": "errors",
    "DriverError": "errors",
    "EPFail": "errors",
    "Fail": "errors",
    "GossamerError": "errors",
    "InvalidArgument": "errors",
    "InvalidGraph": "errors",
    "InvalidProtobuf": "errors",
    "KernelContext": "custom_ops",
    "NoModel": "errors",
    "NoSuchFile": "errors",
    "NotFound": "errors",
    "OutOfMemory": "errors",
    "RuntimeException": "errors",
    "UnsupportedModel": "errors",
    "ExecutionMode": "session",
    "GraphOptimizationLevel": "session",
    "IOBinding": "session",
    "InferenceSession": "session",
    "ModelMetadata": "session",
    "NodeArg": "session",
    "OrtValue": "session",
    "RunOptions": "session",
    "SessionOptions": "session",
    "compile_model": "ahead_of_time",
    "custom_op": "custom_ops",
    "get_all_providers": "session",
    "get_available_providers": "session",
    "get_device": "session",
    "preload_dlls": "cudnn.preload",
    "set_default_logger_severity": "session",
}

__all__ = [
    "CompilationError",
    "CudnnError",
    "CudnnUnavailable",
    "DeviceNotFound",
    "DriverError",
    "EPFail",
    "ExecutionMode",
    "Fail",
    "GossamerError",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "KernelContext",
    "ModelMetadata",
    "NoModel",
    "NoSuchFile",
    "NodeArg",
    "NotFound",
    "OrtValue",
    "OutOfMemory",
    "RunOptions",
    "RuntimeException",
    "SessionOptions",
    "UnsupportedModel",
    "__version__",
    "compile_model",
    "custom_op",
    "get_all_providers",
    "get_available_providers",
    "get_device",
    "preload_dlls",
    "set_default_logger_severity",
]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use and keep it.

    `cudnn_version` is computed each time, since preload_dlls may change it, and is no part of `__all__`, so that a star
    import does not look for cuDNN: "9.28.1" of the cuDNN that is loaded or would be, None where there is none.
    """
    if name == "cudnn_version":
        return import_module("gossamer.cudnn.loader").installed_version()
    if name not in _HOME:
        raise AttributeError(f"module 'gossamer' has no attribute {name!r}")
    value = getattr(import_module(f"gossamer.{_HOME[name]}"), name)
    value.__module__ = "gossamer"  # where users, tracebacks and pickles are to find it
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
