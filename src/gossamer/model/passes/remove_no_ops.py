"""Nodes that copy their input unchanged go away."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from gossamer.model.edit import constant_of, erase, replace, static_shape


def remove_no_ops(model: ir.Model) -> bool:
    """Let the readers of a node that changes nothing read its input.

    ```
    %a = Identity(%x)
    %b = Transpose[perm=[0,1,2]](%a)      →      %y = Relu(%x)
    %y = Relu(%b)
    ```

    Identity; Dropout in inference, its mask unread; Cast to the type it has; Transpose that keeps the order; Reshape,
    Flatten, Squeeze, Unsqueeze, Expand, Tile where input and output have the same static shape; Slice to the same shape
    with steps of 1; Pad by nothing; Concat, Sum, Mean, Max, Min of one input.
    The main graph only, for `fold_constants`' reason.

    Kept: a node between an input (or an initializer, or another output) and an output of its graph, which has to be a
    copy.
    """
    changed = False
    for node in tuple(model.graph):
        rule = _RULES.get(node.op_type) if node.domain == "" else None
        if rule is None or not node.inputs or not rule(node):
            continue
        source = node.inputs[0]
        assert source is not None
        if any(value.uses() or value.is_graph_output() for value in node.outputs[1:]):
            continue
        if replace(node.outputs[0], source):
            erase(node)
            changed = True
    return changed


def _always(node: ir.Node) -> bool:
    return node.inputs[0] is not None


def _one_input(node: ir.Node) -> bool:
    return len(node.inputs) == 1 and node.inputs[0] is not None


def _same_shape(node: ir.Node) -> bool:
    shape = static_shape(node.inputs[0])
    return shape is not None and shape == static_shape(node.outputs[0])


def _inference_dropout(node: ir.Node) -> bool:
    """Before opset 12 a model file says nothing of training; from then on an input does."""
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return True
    training = constant_of(node.inputs[2])
    return training is not None and not training.any()


def _same_type(node: ir.Node) -> bool:
    source = node.inputs[0]
    return source is not None and source.dtype is not None and source.dtype == node.attributes["to"].as_int()


def _same_order(node: ir.Node) -> bool:
    if "perm" in node.attributes:
        order = list(node.attributes["perm"].as_ints())
        return order == list(range(len(order)))
    source = node.inputs[0]
    return source is not None and source.shape is not None and len(source.shape) < 2


def _slice_of_all(node: ir.Node) -> bool:
    if not _same_shape(node):
        return False
    if len(node.inputs) < 5 or node.inputs[4] is None:
        return True
    steps = constant_of(node.inputs[4])
    return steps is not None and bool((steps == 1).all())


def _pad_by_nothing(node: ir.Node) -> bool:
    if "pads" in node.attributes:  # until opset 10
        return not any(node.attributes["pads"].as_ints())
    pads = constant_of(node.inputs[1]) if len(node.inputs) > 1 else None
    return pads is not None and not pads.any()


_RULES: Mapping[str, Callable[[ir.Node], bool]] = {
    "Identity": _always,
    "Dropout": _inference_dropout,
    "Cast": _same_type,
    "Transpose": _same_order,
    "Reshape": _same_shape,
    "Flatten": _same_shape,
    "Squeeze": _same_shape,
    "Unsqueeze": _same_shape,
    "Expand": _same_shape,
    "Tile": _same_shape,
    "Slice": _slice_of_all,
    "Pad": _pad_by_nothing,
    "Concat": _one_input,
    "Sum": _one_input,
    "Mean": _one_input,
    "Max": _one_input,
    "Min": _one_input,
}
