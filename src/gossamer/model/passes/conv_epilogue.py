"""What follows a convolution element by element is computed by the convolution."""

from __future__ import annotations

import onnx_ir as ir

from gossamer.model.activation_forms import NONE, activation_after
from gossamer.model.edit import static_shape
from gossamer.model.fusion import activation_attributes, fuse, is_exact, is_float, residual_after
from gossamer.model.known_shapes import shapes_by_inputs

_CONVOLUTIONS = ("Conv", "ConvTranspose")
_RANKS = (3, 4, 5)


def conv_epilogue(model: ir.Model) -> bool:
    """Merge a residual addition and an activation into the Conv or ConvTranspose (ONNX -1, -11, -22) before them.

    ```
    %c = Conv[…](%x, %w, %b)
    %s = Add(%c, %z)                       →   %y = gossamer::FusedConv[…, activation="relu"](%x, %w, %b, %z)
    %y = Relu(%s)

    %c = Conv[…](%x, %w, %b)
    %t = Add(%c, 3)
    %u = Clip(%t, 0, 6)                    →   %y = gossamer::FusedConv[…, activation="hard_swish"](%x, %w, %b)
    %v = Mul(%c, %u)
    %y = Div(%v, 6)
    ```

    Both are optional and in this order. Every way `model.activation_forms` knows of writing an activation of
    `kernels.activations`, with scalar scale and shift after ReLU and hard swish. Where two convolutions meet in an
    addition, the later one does it. Activations need no static shapes, if only these will be known before the model
    runs: then this pass does its work once for all signatures.

    Kept: an addition of another shape or type (constants per channel are `affine_into_conv`'s); a convolution of which
    others read or return anything before the last merged node; activation parameters that fp32 rounds, in float64;
    types and ranks that no kernel takes, shapes that may depend on data, nodes of subgraphs (onnxruntime may run those,
    which knows no operator of ours).
    """
    convolutions = [node for node in model.graph if node.op_type in _CONVOLUTIONS and node.domain == ""]
    if any(static_shape(node.outputs[0]) is None for node in convolutions):
        known = shapes_by_inputs(model.graph)
        convolutions = [node for node in convolutions if node.outputs[0] in known]
    changed = False
    for node in reversed(convolutions):
        changed |= _merge(model, node)
    return changed


def _merge(model: ir.Model, conv: ir.Node) -> bool:
    replaced, value, residual = [conv], conv.outputs[0], None
    if not is_float(value) or value.shape is None or len(value.shape) not in _RANKS:
        return False
    addition = residual_after(value)
    if addition is not None:
        add, residual = addition
        replaced.append(add)
        value = add.outputs[0]
    match = activation_after(value)
    if match is not None and is_exact(match, value):
        replaced += match.nodes
        activation = match.activation
    elif residual is None:
        return False
    else:
        activation = NONE
    x, weight, bias = (*conv.inputs, None)[:3]
    attributes = (*conv.attributes.values(), *activation_attributes(activation))
    fuse(model, f"Fused{conv.op_type}", (x, weight, bias, residual), attributes, replaced)
    return True
