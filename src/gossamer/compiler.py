"""The pipeline: from a loaded model to Programs. Read `specialise_and_build` first; it is the whole story.

load ─▶ prepare ─▶ for each signature of input shapes: specialise ─▶ fuse ─▶ place ─▶ build ─▶ Program ─▶ an executor
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import onnx_ir as ir

from gossamer.build.programs import build
from gossamer.cudnn import loader
from gossamer.cudnn.loader import Library
from gossamer.diagnostics import stage
from gossamer.execution import announce
from gossamer.model import passes
from gossamer.model.node import Constants, Scope
from gossamer.model.passes.attention_pattern import attention_pattern
from gossamer.model.passes.channels_last import channels_last
from gossamer.model.passes.conv_epilogue import conv_epilogue
from gossamer.model.passes.elementwise_chains import elementwise_chains
from gossamer.model.passes.flattened_gemm import flattened_gemm
from gossamer.model.passes.layer_norm_pattern import layer_norm_pattern
from gossamer.model.passes.matmul_epilogue import matmul_epilogue
from gossamer.model.passes.remove_unused import remove_unused
from gossamer.model.passes.rms_norm_pattern import rms_norm_pattern
from gossamer.model.passes.rotary_pattern import rotary_pattern
from gossamer.model.passes.skip_norm import skip_norm
from gossamer.options import CompileOptions
from gossamer.place import CUDA, Placement, place
from gossamer.program import Program, Target, Unavailable
from gossamer.providers import cudnn

Shapes: TypeAlias = tuple[tuple[int, ...], ...]

# Once for all signatures: what can do without the sizes of things.
EARLY_FUSIONS = (conv_epilogue, remove_unused)

# For each signature. The order matters:
FUSIONS = (
    conv_epilogue,  # residuals, too; before channels_last, which then moves whole convolutions
    channels_last,  # before elementwise_chains, so that chains do not end at transposes it would have moved
    layer_norm_pattern,  # after channels_last, which makes axis 1 the last one and knows the means, not the norm
    rms_norm_pattern,  # after layer_norm_pattern, of whose norms it would take a part
    rotary_pattern,
    flattened_gemm,  # before attention_pattern and matmul_epilogue, which then see one shape from norm to norm
    attention_pattern,  # before matmul_epilogue, which would take its products' scales and transposes
    matmul_epilogue,  # after channels_last: transposes that it absorbs could not meet their inverses any more
    skip_norm,  # after matmul_epilogue: a product adds its residual for less
    elementwise_chains,  # last: what is left after the epilogues have taken theirs
    remove_unused,
)


@dataclass(frozen=True, slots=True)
class Compiled:
    """What one signature of a model became."""

    program: Program
    placement: Placement
    waits: bool = False
    """Whether a node cannot run for want of cuDNN."""
    library: Library | None = None
    """The process's cuDNN, or its absence, as it was then; None where nobody had asked yet."""

    @property
    def is_outdated(self) -> bool:
        """Whether `preload_dlls` has since found the cuDNN that was wanting. (R1.7)"""
        return self.waits and self.library is not loader.loaded_without_loading()


@dataclass(frozen=True, slots=True)
class Choices:
    """What a session decides about all its signatures. providers: whose doors are asked, in order; strict: only the
    first counts. optimize: fuse operators. nhwc: keep activations channels-last. cudnn: whether and for what it is
    used.
    """

    providers: tuple[str, ...] = (CUDA,)
    strict: bool = False
    optimize: bool = True
    nhwc: bool = True
    cudnn: cudnn.Policy = cudnn.NEVER


def prepare(model: ir.Model, options: CompileOptions) -> Constants:
    """What is done once for all signatures and targets, in place. Gives the constants that their Programs share."""
    with stage("prepare"):
        _fix_dimensions(model, options.dimensions)
        passes.prepare(model)
        passes.run_passes(model, EARLY_FUSIONS if options.optimize else ())
    constants = Constants()
    for name, value in model.graph.initializers.items():
        assert value.const_value is not None
        constants.register(name, value.const_value)
    return constants


def _fix_dimensions(model: ir.Model, dimensions: Mapping[str, int]) -> None:
    """Replaces symbolic dimensions of inputs by the values that SessionOptions give them."""
    for value in model.graph.inputs:
        if dimensions and value.shape is not None:
            value.shape = ir.Shape([d if isinstance(d, int) else dimensions.get(d.value or "", d) for d in value.shape])


def specialise_and_build(
    model: ir.Model,
    shapes: Mapping[str, tuple[int, ...]],
    constants: Constants,
    target: Target,
    choices: Choices,
) -> Compiled:
    """A prepared model for inputs of these shapes, as a Program for `target`. `model` is not changed.

    Raises UnsupportedModel naming every node that no provider takes.
    """
    with stage("specialise"):
        special = passes.specialise(model, shapes)
    with stage("fuse"):
        wanted = [step for step in FUSIONS if choices.nhwc or step is not channels_last]
        passes.run_passes(special, wanted if choices.optimize else ())
    with stage("place"):
        scope = Scope(constants, dict(special.opset_imports))
        placement = place(special, choices.providers, target, scope, strict=choices.strict, policy=choices.cudnn)
    with stage("build"):
        program = build(special, placement, target, scope)
    announce(program, placement)
    waits = any(isinstance(call, Unavailable) for call in program.calls)
    return Compiled(program, placement, waits, loader.loaded_without_loading())
