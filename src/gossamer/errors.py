"""The exception tree.

```
Exception
└── GossamerError                    FAIL             base of everything that Gossamer raises on purpose
    ├── Fail                         FAIL             a check inside Gossamer did not hold: please report it
    ├── InvalidArgument              INVALID_ARGUMENT a caller's value is wrong (also a ValueError)
    │   └── WrongType                INVALID_ARGUMENT a caller's value is of a type that is not taken (also a TypeError)
    ├── NoSuchFile                   NO_SUCHFILE      a file that was named is not there
    ├── NoModel                      NO_MODEL         the session has no model (it was closed, or never had one)
    ├── NotFound                     NOT_FOUND        a thing asked for by name is not there
    ├── InvalidProtobuf              INVALID_PROTOBUF the bytes are no ONNX model, or a truncated one
    │   └── ArtifactError            INVALID_PROTOBUF a compiled model is damaged, or not for this version or device
    ├── InvalidGraph                 INVALID_GRAPH    the model parses but breaks ONNX's rules
    ├── NotImplemented               NOT_IMPLEMENTED  an operator has no kernel here (also a NotImplementedError)
    │   ├── UnsupportedModel         NOT_IMPLEMENTED  every such node of a model, in one error
    │   └── CudnnUnavailable         NOT_IMPLEMENTED  an operator that must run through cuDNN, and there is none to use
    ├── RuntimeException             RUNTIME_EXCEPTION execution failed
    │   └── OutOfMemory              RUNTIME_EXCEPTION device memory (also a MemoryError)
    └── EPFail                       EP_FAIL          an execution provider could not do its work
        ├── DriverError              EP_FAIL          a call of the CUDA driver failed
        ├── CudnnError               EP_FAIL          a call of cuDNN failed
        ├── PlanError                EP_FAIL          cuDNN has no plan for a graph, or cannot restore or run one
        ├── CompilationError         EP_FAIL          a kernel did not compile
        └── DeviceNotFound           EP_FAIL          no driver, no GPU, or not that one
```

The names directly below the base, and the codes, are those of onnxruntime's Python exceptions, so an `except` clause
written for onnxruntime only changes its import. Each class carries its code in the attribute `code`.

Errors with fields keep them in `args`, in declaration order, so they survive pickling (kernels compile in worker
processes); their text is made from the fields when it is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar, NamedTuple

__all__ = [
    "ArtifactError",
    "CompilationError",
    "CudnnError",
    "CudnnUnavailable",
    "DeviceNotFound",
    "DriverError",
    "EPFail",
    "Fail",
    "GossamerError",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "NoModel",
    "NoSuchFile",
    "NotFound",
    "NotImplemented",
    "OutOfMemory",
    "PlanError",
    "RuntimeException",
    "UnsupportedModel",
    "UnsupportedNode",
    "WrongType",
]


class GossamerError(Exception):
    """Base of every error that Gossamer raises on purpose."""

    code: ClassVar[str] = "FAIL"


class Fail(GossamerError):
    """A check inside Gossamer did not hold; the text says which."""


class InvalidArgument(GossamerError, ValueError):
    """A value that the caller gave is wrong; the text names it, what is accepted, and what came."""

    code = "INVALID_ARGUMENT"


class WrongType(InvalidArgument, TypeError):
    """A value that the caller gave is of a type that is not taken; the text names it, what is accepted, what came."""


class NoSuchFile(GossamerError):
    """A file that was named is not there."""

    code = "NO_SUCHFILE"


class NoModel(GossamerError):
    """The session holds no model: it was closed."""

    code = "NO_MODEL"


class NotFound(GossamerError):
    """A thing asked for by name (a configuration entry, a cache entry) is not there."""

    code = "NOT_FOUND"


class InvalidProtobuf(GossamerError):
    """The bytes are no ONNX model, or a truncated one."""

    code = "INVALID_PROTOBUF"


class InvalidGraph(GossamerError):
    """The model parses, but its graph breaks ONNX's rules."""

    code = "INVALID_GRAPH"


class NotImplemented(GossamerError, NotImplementedError):
    """An operator, or one form of it, has no kernel on the provider that has to run it."""

    code = "NOT_IMPLEMENTED"


class RuntimeException(GossamerError):
    """Execution of a model failed."""

    code = "RUNTIME_EXCEPTION"


class EPFail(GossamerError):
    """An execution provider could not do its work."""

    code = "EP_FAIL"


class _WithFields(GossamerError):
    """An error whose `args` are its dataclass fields."""

    def __post_init__(self) -> None:
        self.args = tuple(getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]


class UnsupportedNode(NamedTuple):
    """One node that no listed provider takes, and every reason that was given."""

    node: str
    op: str
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.op} '{self.node}': {'; '.join(self.reasons) or 'no provider has this operator'}"


@dataclass(eq=False, repr=False)
class UnsupportedModel(_WithFields, NotImplemented):
    """Every node of a model that no listed provider takes.

    `nodes` holds all of them, in graph order; `model` names the file (or says that it came as bytes); `remedy` is what
    to do.
    """

    nodes: tuple[UnsupportedNode, ...]
    model: str = "the model"
    remedy: str = ""

    def __str__(self) -> str:
        ops = sorted({node.op for node in self.nodes})
        head = f"{self.model}: {len(self.nodes)} node(s) cannot run here, operators: {', '.join(ops)}"
        lines = [head, *(f"  {node}" for node in self.nodes)]
        return "\n".join([*lines, self.remedy] if self.remedy else lines)


@dataclass(eq=False, repr=False)
class ArtifactError(_WithFields, InvalidProtobuf):
    """A compiled model cannot be used.

    `reason` is one word for programs: NOT_A_COMPILED_MODEL, NEWER_FORMAT (it was written by a later Gossamer),
    TRUNCATED, DAMAGED (bytes changed since it was written), MALFORMED (its parts contradict each other),
    TARGET_MISMATCH (nothing in it is for the device). `text` names the file and says the rest.
    """

    reason: str
    text: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.text}"


@dataclass(eq=False, repr=False)
class CudnnUnavailable(_WithFields, NotImplemented):
    """An operator must run through cuDNN, and cuDNN cannot be used.

    `op` and `node` name the operator and the node, `reason` continues "requires cuDNN, but …" and ends with a full
    stop, `tried` is every library that was looked at, with why it was not used.
    """

    op: str
    node: str
    reason: str
    tried: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"Operator '{self.op}' on the CUDA EP requires cuDNN, but {self.reason}"
        return f"{text} (node '{self.node}')" if self.node else text


@dataclass(eq=False, repr=False)
class OutOfMemory(_WithFields, RuntimeException, MemoryError):
    """Device memory did not suffice; the session stays usable. All sizes are bytes.

    `asked` is what was wanted, `held` what this process holds on the device, `free` what the device (or, when `limit`
    is given, the provider option `gpu_mem_limit`) has left, `doing` what the memory was for.
    """

    asked: int
    held: int
    free: int
    limit: int | None = None
    doing: str = ""

    def __str__(self) -> str:
        purpose = f" while {self.doing}" if self.doing else ""
        within = f" under gpu_mem_limit={self.limit}" if self.limit is not None else ""
        return (
            f"out of device memory{purpose}: asked for {self.asked} bytes, "
            f"{self.held} bytes held, {self.free} bytes free{within}"
        )


@dataclass(eq=False, repr=False)
class _CallFailed(_WithFields):
    """A foreign function returned a status that is no success."""

    call: str
    status: int
    text: str
    doing: str = ""

    def __str__(self) -> str:
        purpose = f" while {self.doing}" if self.doing else ""
        return f"{self.call} returned {self.status} ({self.text}){purpose}"


class DriverError(_CallFailed, EPFail):
    """The CUDA driver refused a call.

    `call` is the function (`cuMemAlloc`), `status` its CUresult, `text` the driver's name and words for that, `doing`
    what was being done. (`status`, because `code` is the error's class-wide code.)
    """


class CudnnError(_CallFailed, EPFail):
    """cuDNN refused a call.

    `call` is the function (`cudnnBackendFinalize`), `status` its cudnnStatus_t, `text` cuDNN's name and words for that,
    `doing` what was being done.
    """


@dataclass(eq=False, repr=False)
class PlanError(_WithFields, EPFail):
    """cuDNN has no plan for a graph, or a plan cannot be restored or run here.

    `reason` is one word for programs, after cuDNN's and its frontend's names: ATTRIBUTE_NOT_SET (neither handle nor
    device properties), NOT_SUPPORTED (no engine, or cuDNN is too old), ARCH_MISMATCH and DRIVER_MISMATCH (another
    device, or one with an older driver), VERSION_MISMATCH, CORRUPT (no plan at all, or a damaged one), NOT_PRECOMPILED,
    PREREQUISITE_MISSING (a library that cuDNN opens). `text` says the rest.
    """

    reason: str
    text: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.text}"


@dataclass(eq=False, repr=False)
class CompilationError(_WithFields, EPFail):
    """A kernel did not compile for a target; `compiler_text` is what the compiler said, unshortened."""

    kernel: str
    target: str
    compiler_text: str

    def __str__(self) -> str:
        return f"kernel {self.kernel} does not compile for {self.target}:\n{self.compiler_text}"


@dataclass(eq=False, repr=False)
class DeviceNotFound(_WithFields, EPFail):
    """The device a provider needs is not there.

    `wanted` is the device (`CUDA device 0`), `looked_for` each thing that was tried with its outcome, `remedy` what to
    do about it.
    """

    wanted: str
    looked_for: tuple[str, ...]
    remedy: str = ""

    def __str__(self) -> str:
        lines = [f"{self.wanted} is not available; looked for:", *(f"  {step}" for step in self.looked_for)]
        return "\n".join([*lines, self.remedy] if self.remedy else lines)
