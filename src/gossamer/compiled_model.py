"""A compiled model as an engine: its target is chosen once, its Programs are read signature by signature, and run.

What was decided when the model was compiled stays decided. Options of a session that ask for something else are errors;
those that only hint at what may be faster have no effect.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from gossamer import custom_ops, diagnostics
from gossamer.diagnostics import stage
from gossamer.errors import GossamerError, InvalidArgument, UnsupportedModel, UnsupportedNode
from gossamer.execution import ProgramEngine, announce, executor_for, open_device, target_of
from gossamer.options import CompileOptions, CpuOptions, CudaOptions
from gossamer.program import Kernel, Program, PythonCall, Target
from gossamer.program.artifact import Artifact, Variant, open_artifact
from gossamer.program.cubin import Cubin
from gossamer.program.manifest import Shapes, Slot, shapes_text
from gossamer.program.placement import PlacedRecord, Placement
from gossamer.run.host import HostRunner, has_onnxruntime
from gossamer.run.meanwhile import meanwhile
from gossamer.run.variants import Variants

CPU = CpuOptions.provider


@dataclass(frozen=True, slots=True)
class Loaded:
    """The Program of one signature, as this session runs it."""

    program: Program
    placement: Placement[PlacedRecord]
    is_outdated: bool = False


class CompiledEngine(ProgramEngine[Loaded]):
    """A compiled model on the CUDA provider's device. Weights stay where the file is mapped."""

    def __init__(self, path: str, cuda: CudaOptions, options: CompileOptions, *, cpu_listed: bool) -> None:
        """cpu_listed: whether the session has the CPU provider, for nodes that were left to it.

        Raises NoSuchFile, ArtifactError (damage; nothing for this GPU), InvalidArgument (options that contradict the
        file; a target or dimensions that it lacks) and UnsupportedModel, naming nodes that cannot run here.
        """
        diagnostics.listen()
        with ExitStack() as beside:
            with stage("open"):
                artifact = self._artifact = open_artifact(path)
                beside.enter_context(meanwhile(lambda: artifact.weights, GossamerError))
                target = _target(artifact, cuda)
                if cuda.device == "cuda":
                    beside.enter_context(meanwhile(partial(open_device, cuda.device_id), GossamerError))
            _check_options(artifact, target, cuda, options)
            self._lets_cudnn, self._why_no_cpu = cuda.enable_cudnn, _why_no_cpu(cuda, cpu_listed)
            self._signatures = _signatures(artifact, target, options.dimensions)
            uses_cudnn = cuda.enable_cudnn and cuda.device == "cuda"
            for shapes in self._signatures:
                needs = artifact.needs(target.name, shapes, cudnn=uses_cudnn)
                self._check_needs(needs, partial(artifact.variant, target.name, shapes, cudnn=uses_cudnn))
            self._code: dict[Kernel, Cubin] = {}
            super().__init__(
                artifact.description, executor_for(cuda, artifact.weights, self._look_up, HostRunner(options))
            )
            self._variants = Variants(artifact, target, self._executor.active, cudnn=uses_cudnn)
            if len(self._signatures) == 1:
                self.compiled(self._signatures[0])  # now, while the GPU's context is made

    def make(self, shapes: Shapes) -> Loaded:
        with stage("read"):
            variant = self._variants.of(shapes)
        self._check_needs(variant.program.needs, lambda: variant)
        self._code.update(variant.cubins)
        program = _governed(variant.program, self._lets_cudnn)
        announce(program, variant.placement)
        return Loaded(program, variant.placement)

    def only_shapes(self) -> Shapes:
        if len(self._signatures) > 1:
            held = "; ".join(map(shapes_text, self._signatures))
            raise InvalidArgument(f"{self._artifact.path}: run the model once, or give shapes; it holds {held}")
        return self._signatures[0]

    def _look_up(self, kernels: Iterable[Kernel], _: Target) -> Mapping[Kernel, Cubin]:
        return {kernel: self._code[kernel] for kernel in kernels}

    def _check_needs(self, needs: Iterable[str], read: Callable[[], Variant]) -> None:
        """Raises UnsupportedModel where something is missing of what a variant needs. read: gives it."""
        for need in needs:
            if need == "onnxruntime" and self._why_no_cpu:
                on_cpu = (node for node in read().placement if node.provider == CPU)
                raise self._unsupported(on_cpu, f"{CPU}: {self._why_no_cpu}")
            domain, _, name = need.removeprefix("python:").rpartition(".")
            if need.startswith("python:") and custom_ops.find(domain, name) is None:
                nodes = (node for node in read().placement if (node.domain, node.op_type) == (domain, name))
                why = "its function is not registered in this process"
                remedy = f"Import what registers @gossamer.custom_op('{domain}', '{name}') before making the session."
                raise self._unsupported(nodes, why, remedy)

    def _unsupported(self, nodes: Iterable[PlacedRecord], why: str, remedy: str = "") -> UnsupportedModel:
        unsupported = (
            UnsupportedNode(
                node.name,
                f"{node.domain + '.' if node.domain else ''}{node.op_type}",
                (*(f"{who}: {reason}" for who, reason in node.refusals), why),
            )
            for node in nodes
        )
        return UnsupportedModel(tuple(unsupported), self._artifact.path, remedy)


def _target(artifact: Artifact, cuda: CudaOptions) -> Target:
    """The target to run: of a GPU, the one for it; elsewhere the one that is asked for, or the first."""
    if cuda.device == "cuda":
        present = target_of(cuda)
        return replace(artifact.target_for(present), device=present.device)
    if cuda.device == "interpreter":
        _check_interpreter(artifact)
    if not cuda.target:
        return artifact.targets[0]
    held = {target.name: target for target in artifact.targets}
    name = cuda.target if cuda.target in held else Target.named(cuda.target).name
    artifact.signatures(name)  # raises where there is no such target
    return held[name]


def _check_interpreter(artifact: Artifact) -> None:
    """Raises InvalidArgument unless Triton is here, and kernels are those that were compiled."""
    from gossamer import __version__

    if importlib.util.find_spec("triton") is None:
        raise InvalidArgument("device 'interpreter' runs the sources of kernels: pip install 'gossamer[compile]'")
    made_by = artifact.description.versions.get("gossamer", "an unknown version")
    if made_by != __version__:
        raise InvalidArgument(
            f"{artifact.path}: device 'interpreter' runs the sources of kernels, and those of Gossamer {__version__} "
            f"may be others than those of {made_by}, which compiled the file"
        )


def _check_options(artifact: Artifact, target: Target, cuda: CudaOptions, options: CompileOptions) -> None:
    """Raises InvalidArgument for an option that the file contradicts."""
    again = f"gossamer compile MODEL -o {artifact.path}"
    if target.use_tf32 and not cuda.use_tf32:
        raise _decided(artifact, "use_tf32=0", f"{again} --option use_tf32=0")
    if cuda.cudnn_only:
        raise InvalidArgument(
            f"{artifact.path}: cudnn_only={','.join(cuda.cudnn_only)} is for comparing, and a compiled model runs "
            "without cuDNN, too; leave it out, or give the ONNX file"
        )
    if options.deterministic and not target.deterministic:
        raise _decided(artifact, "use_deterministic_compute=True", "gossamer.compile_model(…, sess_options=…)")
    if artifact.description.optimized and not options.optimize:
        raise _decided(artifact, "ORT_DISABLE_ALL", "gossamer.compile_model(…, sess_options=…)")


def _decided(artifact: Artifact, option: str, how: str) -> InvalidArgument:
    text = f"{option} is decided when a model is compiled, before sessions are; leave it out, or compile again: {how}"
    return InvalidArgument(f"{artifact.path}: {text}")


def _signatures(artifact: Artifact, target: Target, dimensions: Mapping[str, int]) -> Sequence[Shapes]:
    """Those that the file holds and that have the values which SessionOptions give to free dimensions."""
    held = artifact.signatures(target.name)
    slots = artifact.description.inputs
    fitting = [shapes for shapes in held if all(_fits(slot, shapes[slot.name], dimensions) for slot in slots)]
    if not fitting:
        wanted = ", ".join(f"{name}={value}" for name, value in dimensions.items())
        texts = "; ".join(map(shapes_text, held)) or "nothing"
        raise InvalidArgument(f"{artifact.path}: nothing in it has {wanted}; it holds {texts}")
    return fitting


def _fits(slot: Slot, shape: Sequence[int], dimensions: Mapping[str, int]) -> bool:
    declared = zip(slot.shape or (), shape, strict=False)
    return all(dimensions.get(str(name), extent) == extent for name, extent in declared)


def _why_no_cpu(cuda: CudaOptions, cpu_listed: bool) -> str:
    """Why nodes cannot run on the CPU provider; nothing where they can."""
    if cuda.strict:
        return "option 'strict' keeps nodes off it"
    if not cpu_listed:
        return "it is not among the providers of the session"
    return "" if has_onnxruntime() else "onnxruntime is not installed (pip install 'gossamer[cpu]')"


def _governed(program: Program, cudnn: bool) -> Program:
    """Custom operators may use cuDNN as this session allows, not as it was where the model was compiled."""
    calls = tuple(replace(call, cudnn=cudnn) if isinstance(call, PythonCall) else call for call in program.calls)
    return replace(program, calls=calls)
