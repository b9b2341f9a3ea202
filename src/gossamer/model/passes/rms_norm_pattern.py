"""A normalisation by root mean square that a model spells out becomes one node."""

from __future__ import annotations

import onnx_ir as ir

from gossamer.model.norm_forms import fuse_norm, norm_around

VERSION = 23
"""The first of RMSNormalization."""


def rms_norm_pattern(model: ir.Model) -> bool:
    """Recognise RMSNormalization in a mean of squares and a root, as Llama and T5 have it.

    ```
    %f = Cast[to=FLOAT](%x)
    %q = Pow(%f, 2)
    %v = ReduceMean[axes=[-1]](%q)
    %e = Add(%v, 1e-06)
    %r = Sqrt(%e)                      →   %y = RMSNormalization[axis=-1, epsilon=1e-06](%x, %scale)
    %i = Reciprocal(%r)
    %n = Mul(%f, %i)
    %h = Cast[to=FLOAT16](%n)
    %y = Mul(%scale, %h)
    ```

    In the ways of writing it that `layer_norm_pattern` lists, of which this is the remainder: run that one first. The
    result is rounded once, at the end.

    The operator is ONNX's where scale and y have one type and the scale the shape of the normalised axes, else
    gossamer::RMSNormalization, whose types are free and whose scale is optional. The node carries version 23.

    Kept: what `layer_norm_pattern` keeps.
    """
    changed = False
    for node in tuple(model.graph):
        norm = norm_around(node, centred=False)
        if norm is not None:
            uniform = norm.scale is not None and norm.is_uniform(norm.scale)
            fuse_norm(model, norm, "RMSNormalization", VERSION, uniform=uniform)
            changed = True
    return changed
