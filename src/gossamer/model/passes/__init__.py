"""The passes over models, and the runner that holds each of them to its word.

A pass is a function from a model to whether it changed it; it edits the model in place, and running it again changes
nothing. Two sequences are made of them: `prepare` once for a model, whatever its inputs' shapes, and `specialise` for
each input signature.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import onnx_ir as ir

from gossamer import settings
from gossamer.errors import Fail
from gossamer.model.attention_shapes import MICROSOFT
from gossamer.model.checks import problem_in
from gossamer.model.edit import static_shape
from gossamer.model.operand_shapes import check_operands
from gossamer.model.operand_types import check_outputs, check_types
from gossamer.model.passes.affine_into_conv import affine_into_conv
from gossamer.model.passes.fold_constants import fold_constants
from gossamer.model.passes.inline_functions import inline_functions
from gossamer.model.passes.inline_if import inline_if
from gossamer.model.passes.lift_constants import lift_constants
from gossamer.model.passes.remove_no_ops import remove_no_ops
from gossamer.model.passes.remove_unused import remove_unused
from gossamer.model.passes.shapes import infer_shapes
from gossamer.model.passes.share_duplicates import share_duplicates
from gossamer.model.text import to_text

__all__ = [
    "Pass",
    "affine_into_conv",
    "fold_constants",
    "infer_shapes",
    "inline_functions",
    "inline_if",
    "lift_constants",
    "prepare",
    "remove_no_ops",
    "remove_unused",
    "run_passes",
    "share_duplicates",
    "specialise",
]

Pass = Callable[[ir.Model], bool]

_logger = logging.getLogger("gossamer")

_MOST_ROUNDS = 8
"""Each round makes at least one more level of nested shape computations static; real models need two."""


def run_passes(model: ir.Model, passes: Sequence[Pass]) -> bool:
    """Run passes in order and say whether any changed the model.

    After each one that did, the graph is checked; Fail names the pass that broke it. With GOSSAMER_DEBUG=4 the graph is
    logged.
    """
    changed = False
    for step in passes:
        if not step(model):
            continue
        changed = True
        name = _name(step)
        problem = problem_in(model)
        if problem is not None:
            raise Fail(f"pass {name} broke the model: {problem}; please report this, with the model if you can")
        if settings.DEBUG() >= 4:
            _logger.info("after %s:\n%s", name, to_text(model))
    return changed


def _name(step: Pass) -> str:
    inner = step.func if isinstance(step, partial) else step
    return getattr(inner, "__name__", repr(inner))


def prepare(model: ir.Model) -> None:
    """What is the same for all input shapes, on ONNX's own operators; in place."""
    declared = [value.dtype for value in model.graph.outputs]
    _forget_claims(model)
    # Types first: folding and the elimination of Casts read them.
    run_passes(model, (inline_functions, lift_constants, infer_shapes))
    check_outputs(model, declared)
    _fold(model)
    # After remove_no_ops, which brings a convolution and its scale together.
    run_passes(model, (remove_no_ops, remove_unused, share_duplicates, affine_into_conv, remove_unused))


def specialise(model: ir.Model, input_shapes: Mapping[str, tuple[int, ...]]) -> ir.Model:
    """A copy of a prepared model for inputs of these static shapes, without computations of shapes; weights are shared.

    input_shapes: for every input by name. Values whose shapes depend on data keep dimensions that are not static.
    Raises InvalidGraph where shapes contradict one another.
    """
    model = model.clone()
    run_passes(model, (partial(infer_shapes, input_shapes=input_shapes),))
    for _ in range(_MOST_ROUNDS):
        if not _fold(model) or _is_static(model):
            break
        run_passes(model, (infer_shapes,))
    check_types(model)
    check_operands(model)
    run_passes(model, (remove_no_ops, affine_into_conv, remove_unused))
    return model


def _forget_claims(model: ir.Model) -> None:
    """Drop the shapes that the file claims for outputs of operators whose shapes inference knows, as `load` does for
    intermediate values.

    A kernel that was built for one that inference does not confirm would read and write where nothing is.
    """
    for value in model.graph.outputs:
        node = value.producer()
        if node is not None and node.domain in {"", MICROSOFT}:
            value.shape = None


def _fold(model: ir.Model) -> bool:
    """Fold constants, and those of the branches that folded conditions open."""
    changed = run_passes(model, (fold_constants,))
    while run_passes(model, (inline_if,)):
        changed = True
        run_passes(model, (fold_constants,))
    return changed


def _is_static(model: ir.Model) -> bool:
    """Whether all that inference could still find is known."""
    return all(
        static_shape(value) is not None and value.dtype is not None
        for node in model.graph
        for value in node.outputs
        if value.name
    )
