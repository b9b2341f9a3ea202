"""Provider options: names, types, defaults, parsing, the inverse, equality and hashing.

Each provider's options are one frozen dataclass, whose fields are the table: type and default from the field, accepted
values and documentation from its metadata. `parse`, `as_provider_options` (the inverse), equality, hash and
documentation all follow from it.

Names and types are those of onnxruntime's CUDA provider. Where a default differs, the documentation of the option says
so. Option dictionaries written for onnxruntime are taken as they are: what they contain that has no meaning here stands
in `IGNORED`, with the reason, and is logged at DEBUG; what cannot be ignored without changing the program's behaviour
stands in `REFUSED`.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self, TypeVar

from gossamer import settings
from gossamer.errors import InvalidArgument
from gossamer.settings import Kind

__all__ = [
    "IGNORED",
    "NO_LIMIT",
    "REFUSED",
    "CompileOptions",
    "CpuOptions",
    "CudaOptions",
    "ProviderOptions",
    "as_markdown",
    "nearest",
    "parse_provider",
]

T = TypeVar("T")

logger = logging.getLogger("gossamer")

NO_LIMIT = 2**64 - 1
"""`gpu_mem_limit` where there is none; onnxruntime's default."""

IGNORED: dict[str, str] = {
    "arena_extend_strategy": "an arena has the size that the Program says and is never extended",
    "cudnn_conv1d_pad_to_nc1d": "one-dimensional convolutions have kernels of their own",
    "cudnn_conv_use_max_workspace": "workspace is part of the planned arena",
    "do_copy_in_default_stream": "copies run in the stream of their execution context",
    "enable_skip_layer_norm_strict_mode": "normalisations always accumulate in float32",
    "fuse_conv_bias": "convolution and bias are always one kernel",
    "gpu_external_alloc": "no external allocator is used",
    "gpu_external_empty_cache": "no external allocator is used",
    "gpu_external_free": "no external allocator is used",
    "tunable_op_enable": "launch configurations are chosen when a Program is built",
    "tunable_op_max_tuning_duration_ms": "launch configurations are chosen when a Program is built",
    "tunable_op_tuning_enable": "launch configurations are chosen when a Program is built",
    "use_ep_level_unified_stream": "one execution context always has one stream",
}
"""onnxruntime's options that mean nothing here, and why."""

_NO_ALLOCATOR = "device memory cannot come from an outside allocator; bind outputs to your own memory with io_binding()"

CUDNN_OPERATORS = (
    *("Conv", "ConvTranspose", "FusedConv", "NhwcConv"),
    *("MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool"),
    *("BatchNormalization", "InstanceNormalization", "LRN", "RNN", "LSTM", "GRU"),
    *("Attention", "MultiHeadAttention"),
)
"""ONNX's and onnxruntime's operators that cuDNN can run."""

REFUSED: dict[str, str] = {
    "cudnn_path": (
        "a path taken from options would be a hook for loading code into the process; "
        "call gossamer.preload_dlls(directory=...) to choose the cuDNN to load"
    ),
    "gpu_external_alloc": _NO_ALLOCATOR,
    "gpu_external_free": _NO_ALLOCATOR,
    "gpu_external_empty_cache": _NO_ALLOCATOR,
}
"""Options that are refused with a reason: always, or (where `IGNORED` has the name too) unless their value is 0."""


def option(default: T, kind: Kind[T], doc: str, from_setting: settings.Setting[T] | None = None) -> T:
    """One row of an options table; `from_setting`, when given, supplies the default each time one is needed."""
    metadata = {"kind": kind, "doc": doc}
    made: Any = (
        field(default_factory=from_setting, metadata=metadata)
        if from_setting
        else field(default=default, metadata=metadata)
    )
    return made  # type: ignore[no-any-return]


@dataclass(frozen=True)
class ProviderOptions:
    """Options of one execution provider. Subclasses are frozen dataclasses made of `option` fields."""

    provider: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for row in fields(self):
            value = row.metadata["kind"].read(f"{self.provider} option {row.name}", getattr(self, row.name))
            object.__setattr__(self, row.name, value)

    @classmethod
    def parse(cls, given: Mapping[str, object]) -> Self:
        """Options from names and values as onnxruntime takes them (texts, or Python values with the same text).

        Errors: InvalidArgument for an unknown name (with the nearest one), a refused name (with the reason) and a wrong
        value (with the accepted ones).
        """
        known = {row.name for row in fields(cls)}
        taken = {str(name): value for name, value in given.items()}
        for name in taken.keys() - known:
            cls._check_foreign_name(name, taken.pop(name), known)
        return cls(**cls._complete(taken))

    @classmethod
    def _complete(cls, taken: dict[str, Any]) -> dict[str, Any]:
        """Add what some options imply about others."""
        return taken

    @classmethod
    def _check_foreign_name(cls, name: str, value: object, known: set[str]) -> None:
        """Raise InvalidArgument unless the name is one that may be ignored."""
        raise InvalidArgument(f"{cls.provider} has no option {name!r}{nearest(name, known)}")

    def as_provider_options(self) -> dict[str, str]:
        """The inverse of `parse`: every option by name, as text."""
        return {row.name: row.metadata["kind"].show(getattr(self, row.name)) for row in fields(self)}


def nearest(name: str, known: Iterable[str]) -> str:
    """The part of a message that names what was probably meant by an unknown name, or else everything there is."""
    by_lower_case = {one.lower(): one for one in known}
    if not by_lower_case:
        return "; there are none"
    near = difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=0.5)
    return f"; did you mean {by_lower_case[near[0]]!r}?" if near else f"; there are {', '.join(by_lower_case.values())}"


@dataclass(frozen=True)
class CpuOptions(ProviderOptions):
    """Options of CPUExecutionProvider: none (its threads are SessionOptions' `intra_op_num_threads` and
    `inter_op_num_threads`). onnxruntime's ignores whatever it is given; here what stands in `IGNORED` is.
    """

    provider: ClassVar[str] = "CPUExecutionProvider"

    @classmethod
    def _check_foreign_name(cls, name: str, value: object, known: set[str]) -> None:
        if name in IGNORED:
            logger.debug("%s option %s=%s has no effect", cls.provider, name, value)
        else:
            super()._check_foreign_name(name, value, known)


def _switch_or_auto() -> Kind[str]:
    """`auto`, or a flag kept as text."""
    flag = settings.flag()
    return Kind(f"auto, {flag.accepted}", lambda text: text if text == "auto" else flag.show(flag.parse(text)), str)


def _memory_limit() -> Kind[int]:
    """Bytes, where 0 is another way to say that there is no limit."""
    limit = settings.whole(0, NO_LIMIT)
    return Kind(f"bytes, 0 or {NO_LIMIT} for no limit", lambda text: limit.parse(text) or NO_LIMIT, str)


@dataclass(frozen=True)
class CudaOptions(ProviderOptions):
    """Options of CUDAExecutionProvider."""

    provider: ClassVar[str] = "CUDAExecutionProvider"

    device: str = option(
        "cuda",
        settings.DEVICE.kind,
        "Where Programs run: the GPU, Triton's interpreter (the same kernels on NumPy memory), or nowhere "
        "(compile only). Default from `GOSSAMER_DEVICE`. Not in onnxruntime.",
        from_setting=settings.DEVICE,
    )
    device_id: int = option(0, settings.whole(0, 2**31 - 1), "Index of the GPU among those visible to the process.")
    target: str = option(
        "",
        settings.TARGET.kind,
        "What the device null compiles for, an architecture or a GPU (empty: sm_90); a GPU says itself what it is. "
        "Default from `GOSSAMER_TARGET`. Not in onnxruntime.",
        from_setting=settings.TARGET,
    )
    strict: bool = option(
        False,
        settings.flag(),
        "Refuse a model with a node that this provider cannot take, even if CPUExecutionProvider is listed. "
        "Not in onnxruntime.",
    )
    enable_cudnn: bool = option(
        True,
        settings.ENABLE_CUDNN.kind,
        "Whether cuDNN may be used, if it is found. With 0 it is not even looked for. "
        "Default from `GOSSAMER_ENABLE_CUDNN`.",
        from_setting=settings.ENABLE_CUDNN,
    )
    cudnn_conv_algo_search: str = option(
        "HEURISTIC",
        settings.choice("EXHAUSTIVE", "HEURISTIC", "DEFAULT"),
        "How cuDNN's convolution plans are chosen: by cuDNN's heuristics; the first that works; or, EXHAUSTIVE, by "
        "measuring them and the native kernels on the device, once for each shape: the fastest is remembered in the "
        "cache folder. onnxruntime's default is EXHAUSTIVE, which makes first runs slow.",
    )
    cudnn_only: tuple[str, ...] = option(
        (),
        settings.names(*CUDNN_OPERATORS),
        "Operators that must run through cuDNN, whatever native kernels there are, for comparing; where cuDNN cannot "
        "be used, running such a node raises. Not in onnxruntime.",
    )
    sdpa_kernel: int = option(
        0,
        settings.whole(0, 2**31 - 1),
        "Kernels that attention may use, as onnxruntime's bits. Only 8, cuDNN's, means something here: with it cuDNN "
        "does the attention that it can; the native kernels do the rest.",
    )
    prefer_nhwc: bool = option(
        True,
        settings.flag(),
        "Keep activations channels-last between the first and the last convolution. onnxruntime's default is 0.",
    )
    use_tf32: bool = option(
        True,
        settings.flag(),
        "Multiply float32 matrices in TF32 (10 bits of mantissa) on the tensor cores.",
    )
    enable_cuda_graph: str = option(
        "auto",
        _switch_or_auto(),
        "Capture the Program of an input signature as a CUDA graph and replay it: 1 at its first run, auto when the "
        "signature repeats, 0 never. onnxruntime's default is 0.",
    )
    user_compute_stream: int = option(
        0,
        settings.whole(0, NO_LIMIT),
        "The caller's CUstream, as a number: all work is queued there. Naming it sets `has_user_compute_stream`.",
    )
    has_user_compute_stream: bool = option(
        False,
        settings.flag(),
        "Whether `user_compute_stream` counts; with 1 and stream 0, the legacy default stream is used.",
    )
    gpu_mem_limit: int = option(
        NO_LIMIT, _memory_limit(), "Most bytes of device memory that the session may hold, weights and arenas together."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.user_compute_stream and not self.has_user_compute_stream:
            object.__setattr__(self, "has_user_compute_stream", True)

    @property
    def stream(self) -> int | None:
        """The caller's stream, or None where each execution context has its own."""
        return self.user_compute_stream if self.has_user_compute_stream else None

    @property
    def memory_limit(self) -> int | None:
        """`gpu_mem_limit` in bytes, or None where there is none."""
        return None if self.gpu_mem_limit == NO_LIMIT else self.gpu_mem_limit

    @classmethod
    def _complete(cls, taken: dict[str, Any]) -> dict[str, Any]:
        # A stream of 0 that the caller named is the legacy default stream (PyTorch's usual current stream), not "no
        # stream".
        if "user_compute_stream" in taken:
            taken.setdefault("has_user_compute_stream", True)
        return taken

    @classmethod
    def _check_foreign_name(cls, name: str, value: object, known: set[str]) -> None:
        ignorable = name in IGNORED and (name not in REFUSED or str(value) == "0")
        if ignorable:
            logger.debug("%s option %s=%s has no effect: %s", cls.provider, name, value, IGNORED[name])
        elif name in REFUSED:
            raise InvalidArgument(f"{cls.provider} option {name!r} is refused: {REFUSED[name]}")
        else:
            raise InvalidArgument(
                f"{cls.provider} has no option {name!r}{nearest(name, sorted(known | IGNORED.keys()))}"
            )


PROVIDERS: dict[str, type[ProviderOptions]] = {cls.provider: cls for cls in (CudaOptions, CpuOptions)}
"""The providers there are, in the order in which they are preferred."""


def parse_provider(name: str, given: Mapping[str, object]) -> ProviderOptions:
    """Options of the named provider; InvalidArgument if there is no such provider, or its options are wrong."""
    if name not in PROVIDERS:
        raise InvalidArgument(f"no execution provider {name!r}{nearest(name, PROVIDERS)}")
    return PROVIDERS[name].parse(given)


@dataclass(frozen=True)
class CompileOptions:
    """What SessionOptions say about compiling and running, in the form that the compiler takes.

    optimize: False for GraphOptimizationLevel.ORT_DISABLE_ALL: nothing is fused, each node stays a call of its own.
    dimensions: values of symbolic dimensions, by name. deterministic: no kernel whose result depends on the order of
    atomic operations. intra_op_threads, inter_op_threads: the CPU provider's threads, 0 for its own choice.
    log_severity_level (onnxruntime's numbers, -1 for its default) and config (configuration entries) are for the CPU
    provider's sessions.
    """

    optimize: bool = True
    dimensions: Mapping[str, int] = field(default_factory=dict)
    deterministic: bool = False
    intra_op_threads: int = 0
    inter_op_threads: int = 0
    log_severity_level: int = -1
    config: Mapping[str, str] = field(default_factory=dict)


def as_markdown() -> str:
    """The table of the CUDA provider's options."""
    rows = ["| option | accepted | default | what it does |", "|---|---|---|---|"]
    for row in fields(CudaOptions):
        kind: Kind[Any] = row.metadata["kind"]
        default = kind.show(
            row.default_factory.default if isinstance(row.default_factory, settings.Setting) else row.default
        )
        rows.append(f"| `{row.name}` | {kind.accepted} | {default or '(empty)'} | {row.metadata['doc']} |")
    return "\n".join(rows) + "\n"
