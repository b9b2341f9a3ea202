"""A layer normalisation that a model spells out becomes one node."""

from __future__ import annotations

import onnx_ir as ir

from gossamer.model.norm_forms import fuse_norm, norm_around

VERSION = 17
"""The first of LayerNormalization; no later one differs."""


def layer_norm_pattern(model: ir.Model) -> bool:
    """Recognise LayerNormalization in means, squares and roots.

    ```
    %m = ReduceMean[axes=[-1]](%x)
    %d = Sub(%x, %m)
    %q = Pow(%d, 2)
    %v = ReduceMean[axes=[-1]](%q)
    %e = Add(%v, 1e-05)                →   %y = LayerNormalization[axis=-1, epsilon=1e-05](%x, %scale, %bias)
    %r = Sqrt(%e)
    %n = Div(%d, %r)
    %t = Mul(%n, %scale)
    %y = Add(%t, %bias)
    ```

    The square may be Mul(%d, %d); the root Pow(…, 0.5); the division a multiplication with Reciprocal, 1 / … or
    Pow(…, -0.5), and that may take the scale first; TensorFlow's x · f + (bias - mean · f) too. Scale and bias are
    optional. Casts between 16-bit floats and fp32 disappear, before, between and after.

    The operator is ONNX's where x, scale, bias and y have one type and scale and bias the shape of the normalised axes,
    else gossamer::LayerNormalization, whose types are free and whose scale is optional. The node carries version 17,
    whatever the model's opset.

    Kept: means over other axes than the last ones, or without keepdims; an epsilon that is no constant; anything of
    which others read or return an intermediate value (from the quotient on, the norm just ends there); float64 with an
    epsilon that fp32 rounds; subgraphs, which onnxruntime may run.
    """
    changed = False
    for node in tuple(model.graph):
        norm = norm_around(node, centred=True)
        if norm is not None:
            uniform = norm.scale is not None and norm.is_uniform(norm.x, norm.scale, norm.bias or norm.x)
            fuse_norm(model, norm, "LayerNormalization", VERSION, uniform=uniform)
            changed = True
    return changed
