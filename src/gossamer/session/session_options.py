"""SessionOptions and RunOptions.

Both are tables of onnxruntime's attributes. `_FIELDS` can be set; what each of them does here stands beside it.
Attributes in `_REFUSED` cannot be honoured: they read as onnxruntime's default, may be set to it, and refuse everything
else by name, with the reason. Methods that cannot be honoured raise an AttributeError with the reason, so that
`hasattr` tells the truth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar

from gossamer import errors, settings
from gossamer.errors import InvalidArgument, NotFound
from gossamer.options import CompileOptions, nearest


class GraphOptimizationLevel(IntEnum):
    """Only ORT_DISABLE_ALL makes a difference: nothing is fused. The other levels all mean everything."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """Makes no difference: calls of a Program run in its order."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


@dataclass(frozen=True, slots=True)
class _Field:
    """An attribute that can be set. doc: what it does. least: the smallest value of a number."""

    default: bool | int | str
    doc: str
    least: int = 0

    def checked(self, owner: str, given: Any) -> Any:
        """The value in the attribute's type; InvalidArgument if it is none."""
        kind: type = type(self.default)
        fits = isinstance(given, bool) == (kind is bool) and isinstance(given, str if kind is str else int)
        if not fits:
            raise InvalidArgument(f"{owner} is a {kind.__name__}, got {given!r}")
        if issubclass(kind, IntEnum):
            return self._member(owner, kind, given)
        if kind is int and given < self.least:
            raise InvalidArgument(f"{owner} is at least {self.least}, got {given!r}")
        return given

    @staticmethod
    def _member(owner: str, kind: type[IntEnum], given: int) -> IntEnum:
        try:
            return kind(given)
        except ValueError:
            raise InvalidArgument(f"{owner} is one of {', '.join(kind.__members__)}, got {given!r}") from None


@dataclass(frozen=True, slots=True)
class _Refused:
    """An attribute that can only keep onnxruntime's default. reason: why, and what to do instead."""

    default: object
    reason: str


class _Attributes:
    """Attributes by table; see the module's text."""

    _FIELDS: ClassVar[Mapping[str, _Field]]
    _REFUSED: ClassVar[Mapping[str, _Refused]]
    _REFUSED_METHODS: ClassVar[Mapping[str, str]] = {}

    def __init__(self) -> None:
        object.__setattr__(self, "_values", {})

    def __getattr__(self, name: str) -> Any:
        # Reached only for names that are no real attributes. Copying and unpickling look before `_values` is there.
        owner = type(self).__name__
        if name in self._FIELDS:
            return self.__dict__["_values"].get(name, self._FIELDS[name].default)
        if name in self._REFUSED:
            return self._REFUSED[name].default
        if name in self._REFUSED_METHODS:
            raise AttributeError(f"{owner}.{name} is not supported: {self._REFUSED_METHODS[name]}")
        raise AttributeError(f"{owner} has no attribute {name!r}")

    def __setattr__(self, name: str, value: object) -> None:
        owner = type(self).__name__
        if name in self._FIELDS:
            self.__dict__["_values"][name] = self._FIELDS[name].checked(f"{owner}.{name}", value)
        elif name in self._REFUSED:
            if value != self._REFUSED[name].default:
                raise errors.NotImplemented(
                    f"{owner}.{name} = {value!r} is not supported: {self._REFUSED[name].reason}"
                )
        else:
            raise AttributeError(f"{owner} has no attribute {name!r}{nearest(name, [*self._FIELDS, *self._REFUSED])}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._FIELDS, *self._REFUSED})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._FIELDS)})"


_LOGGING = "Messages of the CPU provider's sessions below this level are dropped; -1: its default."
_NO_EFFECT = "No effect: memory is planned when a Program is built."
NO_PROFILE = "there is no profile file; GOSSAMER_DEBUG=2 logs each call with its time"


class SessionOptions(_Attributes):
    """How a session compiles and runs a model. A session reads its options once, when it is created."""

    graph_optimization_level: GraphOptimizationLevel
    execution_mode: ExecutionMode
    intra_op_num_threads: int
    inter_op_num_threads: int
    use_deterministic_compute: bool
    log_severity_level: int
    log_verbosity_level: int
    logid: str
    enable_mem_pattern: bool
    enable_mem_reuse: bool
    enable_cpu_mem_arena: bool

    _FIELDS: ClassVar[Mapping[str, _Field]] = {
        "graph_optimization_level": _Field(GraphOptimizationLevel.ORT_ENABLE_ALL, "ORT_DISABLE_ALL: nothing is fused."),
        "execution_mode": _Field(ExecutionMode.ORT_SEQUENTIAL, "No effect: calls of a Program run in its order."),
        "intra_op_num_threads": _Field(0, "Threads of the CPU provider for one operator; 0: its choice."),
        "inter_op_num_threads": _Field(0, "Threads of the CPU provider across operators; 0: its choice."),
        "use_deterministic_compute": _Field(False, "No kernel whose result depends on the order of atomic operations."),
        "log_severity_level": _Field(-1, _LOGGING, least=-1),
        "log_verbosity_level": _Field(0, "No effect: GOSSAMER_DEBUG has the levels."),
        "logid": _Field("", "Names the session in messages."),
        "enable_mem_pattern": _Field(True, _NO_EFFECT),
        "enable_mem_reuse": _Field(True, _NO_EFFECT),
        "enable_cpu_mem_arena": _Field(True, _NO_EFFECT),
    }
    _REFUSED: ClassVar[Mapping[str, _Refused]] = {
        "enable_profiling": _Refused(False, NO_PROFILE),
        "profile_file_prefix": _Refused("onnxruntime_profile_", NO_PROFILE),
        "optimized_model_filepath": _Refused(
            "", "an optimised model is a Program, not ONNX; `gossamer inspect --program` shows it"
        ),
        "use_per_session_threads": _Refused(True, "there is no global thread pool"),
    }
    _REFUSED_METHODS: ClassVar[Mapping[str, str]] = {
        "register_custom_ops_library": "it would load code built for onnxruntime into the process",
        "add_external_initializers": "put the values into the model, or into its external data",
        "add_external_initializers_from_files_in_memory": "put the values into the model, or into its external data",
        "add_initializer": "put the values into the model, or into its external data",
        "add_free_dimension_override_by_denotation": "name the dimension: add_free_dimension_override_by_name",
        "add_provider": "pass providers to InferenceSession",
        "add_provider_for_devices": "pass providers to InferenceSession",
        "set_provider_selection_policy": "pass providers to InferenceSession",
        "set_provider_selection_policy_delegate": "pass providers to InferenceSession",
    }

    def __init__(self) -> None:
        super().__init__()
        self.__dict__["_config"] = {}
        self.__dict__["_dimensions"] = {}

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Set a configuration entry. `session.disable_cpu_ep_fallback` acts as the CUDA provider's option `strict`; the
        others are handed to onnxruntime where the CPU provider runs a node."""
        self.__dict__["_config"][str(key)] = str(value)

    def get_session_config_entry(self, key: str) -> str:
        """The value of a configuration entry. Errors: NotFound."""
        try:
            value: str = self.__dict__["_config"][key]
        except KeyError:
            raise NotFound(f"SessionOptions has no configuration entry {key!r}") from None
        return value

    def add_free_dimension_override_by_name(self, name: str, value: int) -> None:
        """Give a symbolic dimension of the model's inputs a value. Errors: InvalidArgument unless it is positive."""
        self.__dict__["_dimensions"][name] = settings.whole(1).read(f"dimension {name!r}", value)

    def has_providers(self) -> bool:
        """False: providers are given to InferenceSession."""
        return False

    def compile_options(self) -> CompileOptions:
        """What the compiler needs to know of these options, as they stand now."""
        return CompileOptions(
            optimize=self.graph_optimization_level is not GraphOptimizationLevel.ORT_DISABLE_ALL,
            dimensions=dict(self.__dict__["_dimensions"]),
            deterministic=self.use_deterministic_compute,
            intra_op_threads=self.intra_op_num_threads,
            inter_op_threads=self.inter_op_num_threads,
            log_severity_level=self.log_severity_level,
            config=dict(self.__dict__["_config"]),
        )


SYNCHRONIZE = "disable_synchronize_execution_providers"
GRAPH_ID = "gpu_graph_id"

_RUN_ENTRIES = {
    SYNCHRONIZE: "1: return before the caller's stream has run the work",
    GRAPH_ID: "-1: keep this run out of CUDA graphs; other numbers have no effect, a signature has its own graph",
    "memory.enable_memory_arena_shrinkage": "no effect: an arena has its Program's size",
}


class RunOptions(_Attributes):
    """How one call of `run` behaves."""

    log_severity_level: int
    log_verbosity_level: int
    logid: str
    only_execute_path_to_fetches: bool

    _FIELDS: ClassVar[Mapping[str, _Field]] = {
        "log_severity_level": _Field(-1, "No effect: a run logs to the logger `gossamer`.", least=-1),
        "log_verbosity_level": _Field(0, "No effect: GOSSAMER_DEBUG has the levels."),
        "logid": _Field("", "No effect: a run logs to the logger `gossamer`."),
        "only_execute_path_to_fetches": _Field(False, "No effect: the outputs that are asked for are the same."),
    }
    _REFUSED: ClassVar[Mapping[str, _Refused]] = {"terminate": _Refused(False, "a run that was started ends by itself")}
    _REFUSED_METHODS: ClassVar[Mapping[str, str]] = {
        "add_active_adapter": "LoRA adapters are not supported; merge them into the model"
    }

    def __init__(self) -> None:
        super().__init__()
        self.__dict__["_config"] = {}

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Set a configuration entry of the run. Errors: InvalidArgument for an unknown one."""
        if key not in _RUN_ENTRIES:
            raise InvalidArgument(f"RunOptions has no configuration entry {key!r}; there are {', '.join(_RUN_ENTRIES)}")
        self.__dict__["_config"][key] = str(value)

    def get_run_config_entry(self, key: str) -> str:
        """The value of a configuration entry. Errors: NotFound."""
        try:
            value: str = self.__dict__["_config"][key]
        except KeyError:
            raise NotFound(f"RunOptions has no configuration entry {key!r}") from None
        return value

    @property
    def synchronize(self) -> bool:
        """Whether results are complete when `run` returns."""
        return self._entry(SYNCHRONIZE) != "1"

    @property
    def capture(self) -> bool:
        """Whether this run may be captured in, or replayed from, a CUDA graph."""
        return self._entry(GRAPH_ID) != "-1"

    def _entry(self, key: str) -> str:
        value: str = self.__dict__["_config"].get(key, "0")
        return value
