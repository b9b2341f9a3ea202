"""Compiling ahead of time: a model becomes one file that runs on GPUs which do not have to be here.

load ─▶ prepare ─▶ for each target and signature: specialise_and_build ─▶ compile_kernels ─▶ write_artifact
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Literal, TypeAlias

import numpy as np
import onnx_ir as ir

import gossamer
from gossamer import diagnostics, settings
from gossamer.build.compilation import compile_kernels
from gossamer.compiler import Choices, Compiled, prepare, specialise_and_build
from gossamer.cudnn import driver_stand_in, loader, prerequisites
from gossamer.diagnostics import stage
from gossamer.engines import describe, loaded
from gossamer.errors import EPFail, InvalidArgument
from gossamer.model.load import FILES
from gossamer.model.node import Constants
from gossamer.options import CompileOptions, CudaOptions
from gossamer.place import CPU, CUDA, PlacedNode
from gossamer.program import CudnnCall, Kernel, Program, Target, manifest
from gossamer.program.artifact import WEIGHTS, Variant, open_artifact, write_artifact
from gossamer.program.cubin import Cubin
from gossamer.program.manifest import Description, shapes_text
from gossamer.program.manifest import Shapes as Signature
from gossamer.program.placement import CUDNN, PlacedRecord, Placement
from gossamer.providers.cudnn import MEASURED, NEVER, Policy, operator_of
from gossamer.providers.cudnn.tuning import Table, device_name
from gossamer.session.feeds import Slot, Slots
from gossamer.session.providers import with_config
from gossamer.session.session_options import SessionOptions

CudnnUse: TypeAlias = Literal["auto", "yes", "no"]
Named: TypeAlias = "str | os.PathLike[str] | Target"
"""A target: itself, by its name, or the path of its JSON file."""

_RUNNING = "it is about running: give it to the session that runs the compiled model"
_NOT_TAKEN = {
    **dict.fromkeys(("device", "device_id", "enable_cuda_graph", "gpu_mem_limit"), _RUNNING),
    **dict.fromkeys(("user_compute_stream", "has_user_compute_stream"), _RUNNING),
    "target": "the argument `targets` names them",
    "enable_cudnn": "the argument `cudnn` says it: auto, yes or no",
    "cudnn_only": "a compiled model runs without cuDNN, too",
}
"""Options of the CUDA provider that are no use in compiling, and why."""


@dataclass(frozen=True, slots=True)
class ProgramReport:
    """One Program of the file.

    nodes: after fusion, by who runs them: the CUDA provider's kernels, cuDNN, the CPU provider. cpu_nodes: the last
    ones, by operator and reason. refused: what cuDNN was asked to do and does not, by reason. convolutions: on the GPU;
    tuned: how many of them the tuning table decided. arena_bytes: device memory for everything but weights. needs:
    `Program.needs`.
    """

    target: str
    shapes: Signature
    nodes: Mapping[str, int]
    cpu_nodes: tuple[str, ...]
    refused: tuple[str, ...]
    convolutions: int
    tuned: int
    kernels: int
    launches: int
    plans: int
    arena_bytes: int
    needs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What `compile_model` wrote.

    programs: one for each target and signature, and where that uses cuDNN a second one that does not. bytes by what
    they are: weights, machine code, the Programs with their plans. versions: of what made the file. tuning: the table
    that was given, if one was.
    """

    path: str
    programs: tuple[ProgramReport, ...]
    weights_bytes: int
    code_bytes: int
    program_bytes: int
    file_bytes: int
    versions: Mapping[str, str]
    tuning: str = ""

    @property
    def cpu_nodes(self) -> tuple[str, ...]:
        """Every node that the CPU runs in some Program, with the reason."""
        return tuple(dict.fromkeys(node for program in self.programs for node in program.cpu_nodes))

    @property
    def refused(self) -> tuple[str, ...]:
        """Why cuDNN does not do, in some Program, what it was asked to do."""
        return tuple(dict.fromkeys(nodes for program in self.programs for nodes in program.refused))

    @property
    def needs(self) -> tuple[str, ...]:
        """What running the file takes besides the base install and, but for the interpreter, a driver; without cuDNN it
        always runs."""
        native = {need for program in self.programs if manifest.CUDNN not in program.needs for need in program.needs}
        return tuple(sorted(native))


def compile_model(
    source: str | os.PathLike[str] | bytes | Any,
    path: str | os.PathLike[str],
    *,
    targets: Named | Sequence[Named],
    signatures: Sequence[Mapping[str, Sequence[int]]] = (),
    cudnn: CudnnUse = "auto",
    tuning: str | os.PathLike[str] | None = None,
    sess_options: SessionOptions | None = None,
    provider_options: Mapping[str, object] | None = None,
) -> Report:
    """Compiles a model into one file, which `InferenceSession(path)` runs with neither onnx nor Triton installed.

    Needs no GPU and no driver. source: a path, a serialised model, or an onnx.ModelProto; tensors kept outside its file
    become part of the result. targets: what to compile for, by the names that `gossamer target list` prints, or as JSON
    files of `gossamer target dump`. signatures: shapes by input name, for each way in which the model is to be run;
    inputs that one leaves out have their declared shape; by default there is the one that the model declares. cudnn:
    `no`; `auto`: where it is installed here and preferred, as sessions do; `yes`: for everything that it takes, and an
    error where it is not installed. In any case the file runs without. tuning: the `tuning.json` of sessions that
    measured on such a device (`cudnn_conv_algo_search`): decides between cuDNN's plans and the native kernels; what it
    does not know is left to heuristics. sess_options, provider_options (of the CUDA provider): as sessions take them,
    where they are about compiling.

    The same arguments and versions give the same bytes.

    Raises InvalidArgument for an unknown target or option, for an input whose shape is open, and for a table that holds
    nothing about the targets; UnsupportedModel naming every node that no provider takes; CompilationError; EPFail where
    cuDNN is wanted and is not here, PlanError where it lacks what it needs; and what loading a model raises.
    """
    how = Compilation.of(targets, cudnn, tuning, sess_options, provider_options)
    return how.compile(loaded(source), path, signatures)


@dataclass(frozen=True, slots=True)
class Compilation:
    """What is to be compiled for, and how: the arguments of `compile_model`, checked."""

    targets: tuple[Target, ...]
    choices: tuple[Choices, ...]
    """With cuDNN, where it is wanted, and without."""
    options: CompileOptions
    tuning: str = ""

    @classmethod
    def of(
        cls,
        targets: Named | Sequence[Named],
        cudnn: CudnnUse,
        tuning: str | os.PathLike[str] | None,
        sess_options: SessionOptions | None,
        provider_options: Mapping[str, object] | None,
    ) -> Compilation:
        diagnostics.listen()
        if sess_options is not None and not isinstance(sess_options, SessionOptions):
            raise InvalidArgument(f"sess_options is a gossamer.SessionOptions, got a {type(sess_options).__name__}")
        options = (sess_options or SessionOptions()).compile_options()
        cuda = _cuda_options(provider_options or {}, options)
        chosen = tuple(
            target.with_tf32(cuda.use_tf32).with_deterministic(options.deterministic) for target in _targets(targets)
        )
        policies = _policies(cudnn, cuda, _table(tuning, cudnn, chosen))
        choices = (Choices((CUDA, CPU), cuda.strict, options.optimize, cuda.prefer_nhwc, policy) for policy in policies)
        return cls(chosen, tuple(choices), options, os.fspath(tuning or ""))

    def compile(
        self, model: ir.Model, path: str | os.PathLike[str], signatures: Sequence[Mapping[str, Sequence[int]]]
    ) -> Report:
        """Writes the file. model: as it was loaded; it is changed."""
        with _writing(path):
            _check_path(path, model)
        description = describe(model)
        shapes = _signatures(description, signatures, self.options.dimensions)
        constants = prepare(model, self.options)
        every = list(self._programs(model, shapes, constants))
        codes = _codes(compiled.program for compiled in every)
        variants = [_variant(compiled, codes) for compiled in every]
        with stage(f"write {os.fspath(path)}"), _writing(path), TemporaryFile(dir=Path(path).parent) as spool:
            weights = _Spooled(constants, spool)
            about = replace(description, versions=_versions(variants), optimized=self.options.optimize)
            write_artifact(path, about, variants, weights)
        return replace(_report(path, every), tuning=self.tuning)

    def _programs(self, model: ir.Model, signatures: Sequence[Signature], constants: Constants) -> Iterator[Compiled]:
        """For each target and signature the Program that the first choice makes, and the next one's where that one
        needs cuDNN."""
        for target, shapes in product(self.targets, signatures):
            with stage(f"build for {target.name}, {shapes_text(shapes)}"):
                for choices in self.choices:
                    compiled = specialise_and_build(model, shapes, constants, target, choices)
                    yield compiled
                    if manifest.CUDNN not in compiled.program.needs:
                        break


def _check_path(path: str | os.PathLike[str], model: ir.Model) -> None:
    """Raises InvalidArgument where the file cannot be written, before anything is compiled for it."""
    file = Path(path)
    if file.is_dir() or not file.parent.is_dir() or not os.access(file.parent, os.W_OK):
        why = "it is a folder" if file.is_dir() else f"there is no folder '{file.parent}' that can be written"
        raise InvalidArgument(f"{file} cannot be written: {why}")
    if file.exists() and any(file.samefile(source) for source in model.meta[FILES]):
        raise InvalidArgument(f"{file} is the model itself, or holds its weights: name another file to write")


@contextmanager
def _writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """What the file system says, as InvalidArgument: a full disk, first of all."""
    try:
        yield
    except OSError as error:
        raise InvalidArgument(f"{os.fspath(path)} cannot be written: {error.strerror or error}") from error


def _cuda_options(given: Mapping[str, object], options: CompileOptions) -> CudaOptions:
    """The CUDA provider's options. Raises InvalidArgument for those that compiling cannot take."""
    for name in given:
        if name in _NOT_TAKEN:
            raise InvalidArgument(f"{CUDA} option {name!r} cannot be compiled in: {_NOT_TAKEN[name]}")
    (cuda,) = with_config((CudaOptions.parse(given),), options.config)
    assert isinstance(cuda, CudaOptions)
    if cuda.cudnn_conv_algo_search == "EXHAUSTIVE":
        raise InvalidArgument(
            f"{CUDA} option 'cudnn_conv_algo_search' is EXHAUSTIVE, which measures on the device: run the model there, "
            "and give tuning.json of its GOSSAMER_CACHE_DIR as tuning (--tune)"
        )
    return cuda


def _targets(given: Named | Sequence[Named]) -> list[Target]:
    """The targets, each once. Raises InvalidArgument where there is none, or one name for two."""
    listed = [given] if isinstance(given, str | os.PathLike | Target) else given
    found = [target if isinstance(target, Target) else Target.named(os.fspath(target)) for target in listed]
    if not found:
        raise InvalidArgument("targets: at least one is wanted, such as sm_90; `gossamer target list` prints them")
    targets = list(dict.fromkeys(found))
    for name, count in Counter(target.name for target in targets).items():
        if count > 1:
            raise InvalidArgument(f"targets: {count} that differ are called '{name}', as their files are: rename these")
    return targets


def _table(tuning: str | os.PathLike[str] | None, use: CudnnUse, targets: Sequence[Target]) -> Table | None:
    """What was measured on devices like the targets. Raises InvalidArgument where that is nothing, or no use."""
    if tuning is None:
        return None
    table = Table.read(Path(tuning))
    if use == "no" or not loader.load().available:
        why = "cudnn is 'no'" if use == "no" else loader.load().reason
        raise InvalidArgument(f"a tuning table decides between cuDNN and the native kernels, but {why}")
    names = {target.name: device_name(target) for target in targets}
    if table.devices.isdisjoint(names.values()):
        wanted = ", ".join(f"{target} ({device or 'no device'})" for target, device in names.items())
        held = ", ".join(sorted(table.devices)) or "nothing"
        raise InvalidArgument(f"tuning table {table.path} is about {held}; the targets are {wanted}")
    return table


def _policies(use: CudnnUse, cuda: CudaOptions, table: Table | None) -> tuple[Policy, ...]:
    """With cuDNN, where it is wanted, and without."""
    if use not in ("auto", "yes", "no"):
        raise InvalidArgument(f"cudnn is 'auto', 'yes' or 'no', got {use!r}")
    if use == "no" or (use == "auto" and not cuda.enable_cudnn):  # GOSSAMER_ENABLE_CUDNN=0
        return (NEVER,)
    policy = Policy.of(cuda, table)
    if use == "yes":
        _require_cudnn()
        policy = replace(policy, enabled=True, everywhere=True)
    return replace(policy, search="EXHAUSTIVE") if table else policy, NEVER


def _require_cudnn() -> None:
    """Raises EPFail where there is no cuDNN, PlanError where it lacks what it needs to plan."""
    library = loader.load()
    if not library.available:
        error = EPFail("cudnn='yes' wants cuDNN where the model is compiled: pip install 'gossamer[cudnn]'")
        error.add_note("\n".join((library.reason, *map(str, library.tried))))
        raise error
    driver_stand_in.load()
    prerequisites.prepare()


def _signatures(
    description: Description, given: Sequence[Mapping[str, Sequence[int]]], dimensions: Mapping[str, int]
) -> list[Signature]:
    """Whole signatures, each once, checked against what the model declares."""
    if isinstance(given, Mapping) or not all(isinstance(shapes, Mapping) for shapes in given):
        raise InvalidArgument(f"signatures is a sequence of dictionaries, shapes by input name, got {given!r}")
    slots = Slots("input", description.inputs, dimensions)
    found = []
    for shapes in given or [{}]:
        for name in shapes:
            slots[name]  # raises for an unknown one
        found.append({slot.info.name: _shape(slot, shapes) for slot in map(slots.__getitem__, slots.names)})
    return [shapes for at, shapes in enumerate(found) if shapes not in found[:at]]


_EXTENT = settings.whole(0)


def _shape(slot: Slot, given: Mapping[str, Sequence[int]]) -> tuple[int, ...]:
    """Of one input: as given, else as declared; of what is no tensor, nothing."""
    name, declared = slot.info.name, slot.dimensions
    if slot.dtype is None:
        if name in given:
            raise InvalidArgument(f"input '{name}' is {slot.info.dtype}: only tensors are given a shape")
        return ()
    if name in given:
        shape = tuple(_EXTENT.read(f"signatures: a dimension of input '{name}'", extent) for extent in given[name])
        slot.check(slot.dtype, shape)
        return shape
    known = tuple(extent for extent in declared or () if extent is not None)
    if declared is None or len(known) < len(declared):
        raise InvalidArgument(_open_shape(name, declared, slot.info.shape))
    return known


def _open_shape(name: str, declared: Sequence[int | None] | None, shape: Sequence[int | str | None] | None) -> str:
    if declared is None or shape is None:
        return f"input '{name}' has no declared rank: give its shape in signatures (--input-shape {name}=...)"
    axis = declared.index(None)
    dimension = f"dimension {axis}{f' ({shape[axis]})' if isinstance(shape[axis], str) else ''}"
    wanted = "x".join("?" if extent is None else str(extent) for extent in shape)
    return f"{dimension} of input '{name}' is open: give its shape in signatures (--input-shape {name}={wanted})"


def _codes(programs: Iterable[Program]) -> dict[str, dict[Kernel, Cubin]]:
    """By target, machine code of all its kernels."""
    by_target: dict[Target, list[Kernel]] = {}
    for program in programs:
        by_target.setdefault(program.target, []).extend(program.kernels)
    return {
        target.name: {} if target.interpreted else dict(compile_kernels(kernels, target))
        for target, kernels in by_target.items()
    }


def _variant(compiled: Compiled, codes: Mapping[str, Mapping[Kernel, Cubin]]) -> Variant:
    program = compiled.program
    code = codes[program.target.name]
    cubins = {kernel: code[kernel] for kernel in program.kernels if kernel in code}
    return Variant(program, cubins, Placement(tuple(map(PlacedRecord.of, compiled.placement))))


def _versions(variants: Iterable[Variant]) -> dict[str, str]:
    """Of everything that had a part in the file."""
    found: dict[str, set[str]] = {"gossamer": {gossamer.__version__}}
    for variant in variants:
        for cubin in variant.cubins.values():
            found.setdefault("triton", set()).add(cubin.triton)
            found.setdefault("ptxas", set()).add(cubin.ptxas)
        if variant.uses_cudnn:
            found["cudnn"] = {loader.load().version_text}
    return {name: ", ".join(sorted(versions)) for name, versions in found.items()}


class _Spooled(Mapping[str, np.ndarray]):
    """Constants, of which those that are computed are so only once, though writing a file asks for each three times:
    they wait in the file `spool`, mapped, since there may be more of them than memory."""

    def __init__(self, constants: Constants, spool: IO[bytes]) -> None:
        self._constants, self._spool = constants, spool
        self._kept: dict[str, np.ndarray] = {}

    def __getitem__(self, key: str) -> np.ndarray:
        if key not in self._constants.derived:
            return self._constants[key]
        if key not in self._kept:
            self._kept[key] = self._moved(self._constants[key])
        return self._kept[key]

    def _moved(self, array: np.ndarray) -> np.ndarray:
        if not array.size:
            return array
        offset = self._spool.seek(0, os.SEEK_END)
        self._spool.write(array.reshape(-1).view(np.uint8).data)
        self._spool.flush()
        return np.memmap(self._spool, array.dtype, "r", offset, array.shape)

    def __contains__(self, key: object) -> bool:
        return key in self._constants

    def __iter__(self) -> Iterator[str]:
        return iter(self._constants)

    def __len__(self) -> int:
        return len(self._constants)


def _report(path: str | os.PathLike[str], every: Sequence[Compiled]) -> Report:
    artifact = open_artifact(path)
    sizes: Counter[str] = Counter()
    for member, nbytes in artifact.members.items():
        sizes[member.partition("/")[0]] += nbytes
    weights, code = sizes.pop(WEIGHTS), sizes.pop("cubins", 0)
    programs = tuple(map(_program_report, every))
    file_bytes = Path(path).stat().st_size
    return Report(os.fspath(path), programs, weights, code, sizes.total(), file_bytes, artifact.description.versions)


def _program_report(compiled: Compiled) -> ProgramReport:
    program, placement = compiled.program, compiled.placement
    where = Counter(CUDNN if node.through_cudnn else node.provider for node in placement)
    return ProgramReport(
        program.target.name,
        {name: program.buffers[name].shape for name in program.inputs},
        dict(where),
        tuple(_on_cpu(placement)),
        tuple(_refused(placement)),
        convolutions=sum(
            node.provider == CUDA and operator_of(node.domain, node.op_type) in MEASURED for node in placement
        ),
        tuned=sum(bool(node.choice) for node in placement),
        kernels=len(program.kernels),
        launches=sum(1 for _ in program.launches),
        plans=len({call.plan for call in program.calls if isinstance(call, CudnnCall) and call.plan}),
        arena_bytes=program.arena_bytes,
        needs=program.needs,
    )


def _on_cpu(placement: Iterable[PlacedNode]) -> Iterator[str]:
    """The CPU provider's nodes by operator and reason: `NonZero: the shape … (find, find_2)`."""
    names: dict[str, list[str]] = {}
    for node in placement:
        if node.provider == CPU:
            names.setdefault(f"{node.op_type}: {'; '.join(why for _, why in node.refusals)}", []).append(node.name)
    return (f"{why} ({', '.join(nodes)})" for why, nodes in names.items())


def _refused(placement: Iterable[PlacedNode]) -> Iterator[str]:
    """The nodes that cuDNN was asked to take and does not, by reason: `53 nodes: cuDNN … needs libcublasLt.so.13 …`."""
    reasons = Counter(why for node in placement for who, why in node.refusals if who == CUDNN)
    return (f"{count} node{'s' * (count != 1)}: {why}" for why, count in reasons.items())
