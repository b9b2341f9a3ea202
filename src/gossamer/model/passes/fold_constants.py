"""What depends on constants alone is computed once."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from gossamer.model.checks import describe
from gossamer.model.edit import (
    Names,
    constant_of,
    dtype_name,
    erase,
    is_constant,
    new_constant,
    replace_or_copy,
    static_shape,
)
from gossamer.model.steps import NARROW

_logger = logging.getLogger("gossamer")

_FAILED = "gossamer.fold_constants.failed"
LARGEST_RESULT = 256 << 20
"""Bytes. A larger result is folded only where it is no larger than what it is made from."""

# fmt: off
_MOVEMENT = frozenset({
    "Cast", "Concat", "ConstantOfShape", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity",
    "Range", "Reshape", "Shape", "Size", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Where",
})
_ARITHMETIC = frozenset({
    "Abs", "Add", "And", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Ceil", "Clip", "Cos", "Div", "Equal",
    "Exp", "Floor", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Log", "Max", "Min", "Mod", "Mul", "Neg",
    "NonZero", "Not", "Or", "Pow", "Reciprocal", "Relu", "Round", "Sign", "Sin", "Sqrt", "Sub", "Sum", "Xor",
})
_REDUCTIONS = frozenset({"CumSum", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"})
# fmt: on
FOLDED = _MOVEMENT | _ARITHMETIC | _REDUCTIONS
"""Operators that are folded: onnx.reference agrees with onnxruntime on them (a test compares each). Reductions are not
folded on 16-bit floats, which NumPy would add up in 16 bits. DequantizeLinear is not among them on purpose: kernels
take quantised weights as they are."""


def fold_constants(model: ir.Model) -> bool:
    """Replace nodes that depend on constants alone by initializers.

    ```
    %half : float32[] = {0.5}
    %scale : float32[] = {4}
    %s = Mul(%half, %scale)      →      %s : float32[] = {2}
    %y = Mul(%x, %s)                    %y = Mul(%x, %s)
    ```

    Whole expressions at once, by onnx.reference; what counts as constant: initializers, the outputs of such nodes, and
    Shape (Shape-1 to -25) or Size of a value whose shape is static, constant or not. A folded output of the model
    leaves an Identity.

    The main graph only. A branch that is not taken may compute nonsense for the shapes at hand (Silero's for 8 kHz
    does), and folding that makes a model that does not load; a branch that is taken for certain is inlined, and folded
    then.

    Kept: operators outside `FOLDED`, strings, casts to types of up to 8 bits (`model.steps.NARROW`), of which
    onnx.reference rounds some otherwise than their texts, reductions of 16-bit floats, results over `LARGEST_RESULT`
    that are larger than what they are made from (Expand and Tile of weights; ConstantOfShape is folded at any size,
    since its result is stored as one element), and, with a warning, nodes that onnx.reference cannot evaluate.
    """
    nodes = _constant_nodes(model)
    if not nodes:
        return False
    results = _evaluate(model, nodes)
    folded = [node for node in nodes if node.outputs[0] in results]
    _substitute(model, folded, results)
    return bool(folded)


def _constant_nodes(model: ir.Model) -> list[ir.Node]:
    """The nodes to fold, each after those it depends on."""
    known: set[ir.Value] = set()
    nodes = []
    for node in model.graph:
        if node.domain == "" and node.op_type in FOLDED and _is_foldable(node, known):
            nodes.append(node)
            known.update(node.outputs)
    return nodes


def _is_foldable(node: ir.Node, known: set[ir.Value]) -> bool:
    if _FAILED in node.meta:
        return False
    if node.op_type in ("Shape", "Size") and static_shape(node.inputs[0]) is not None:
        return True
    for value in node.inputs:
        if value is not None and value not in known and not is_constant(value):
            return False
    # An initializer copied to an output of the model: the Identity has to stay.
    return node.op_type != "Identity" or not (node.outputs[0].is_graph_output() and node.inputs[0] not in known)


def _evaluate(model: ir.Model, nodes: Sequence[ir.Node]) -> dict[ir.Value, np.ndarray]:
    """The outputs of the nodes that could be evaluated."""
    results: dict[ir.Value, np.ndarray] = {}
    computed = []
    for node in nodes:
        extent = _extent(node)
        if extent is None:
            computed.append(node)
        else:
            results[node.outputs[0]] = extent
    with np.errstate(all="ignore"):  # infinities and NaNs are as valid here as when the model runs
        for node, kernel in zip(computed, _kernels(model, computed), strict=True):
            inputs = [None if value is None else _content(value, results) for value in node.inputs]
            if any(given is not None and array is None for given, array in zip(node.inputs, inputs, strict=True)):
                continue  # what it depends on was not folded
            if _is_worth_folding(node, [array for array in inputs if array is not None]):
                results.update(_run(node, kernel, inputs))
    return results


def _extent(node: ir.Node) -> np.ndarray | None:
    """The result of Shape or Size where the input's shape is static, else None."""
    if node.op_type not in ("Shape", "Size"):
        return None
    shape = static_shape(node.inputs[0])
    if shape is None:
        return None
    if node.op_type == "Size":
        return np.array(math.prod(shape), np.int64)
    bounds = {name: node.attributes[name].as_int() for name in ("start", "end") if name in node.attributes}
    return np.array(shape[bounds.get("start", 0) : bounds.get("end", len(shape))], np.int64)


def _content(value: ir.Value, results: dict[ir.Value, np.ndarray]) -> np.ndarray | None:
    array = results.get(value)
    return array if array is not None else constant_of(value)


def _kernels(model: ir.Model, nodes: Iterable[ir.Node]) -> Sequence[onnx.reference.op_run.OpRun]:
    """onnx.reference's implementation of each node. One evaluator for all: making one costs more than a node."""
    proto = onnx.ModelProto(ir_version=onnx.IR_VERSION)
    proto.opset_import.add(domain="", version=model.graph.opset_imports[""])
    proto.graph.name = "constants"
    proto.graph.node.extend(ir.serde.serialize_node(node) for node in nodes)
    return ReferenceEvaluator(proto).rt_nodes_


def _is_worth_folding(node: ir.Node, inputs: Sequence[np.ndarray]) -> bool:
    if any(array.dtype.kind in "OSU" for array in inputs):
        return False
    if node.op_type in _REDUCTIONS and inputs[0].dtype.itemsize == 2 and inputs[0].dtype.kind not in "iu":
        return False
    if node.op_type == "Cast" and not _is_cast_alike(ir.DataType(node.attributes["to"].as_int())):
        return False
    if node.op_type == "ConstantOfShape":
        return True
    return _most_bytes(node, inputs) <= max(LARGEST_RESULT, sum(array.nbytes for array in inputs))


def _is_cast_alike(to: ir.DataType) -> bool:
    """Whether onnx.reference's Cast makes of numbers what kernels make of them."""
    return to != ir.DataType.STRING and dtype_name(to) not in NARROW


def _most_bytes(node: ir.Node, inputs: Sequence[np.ndarray]) -> int:
    """An upper bound of the result's size, in Python's integers, which do not overflow."""
    elements: int
    match node.op_type:
        case "Expand":
            elements = _broadcast_size([inputs[0].shape, tuple(int(dim) for dim in inputs[1])])
        case "Tile":
            elements = inputs[0].size * math.prod(int(count) for count in inputs[1].reshape(-1))
        case "Range":
            start, limit, delta = (float(array.reshape(-1)[0]) for array in inputs)
            elements = max(0, math.ceil((limit - start) / delta)) if delta else 0
        case "Gather" if inputs[0].ndim:
            axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
            elements = inputs[1].size * inputs[0].size // max(1, inputs[0].shape[axis])
        case "GatherND":
            elements = inputs[1].size * inputs[0].size
        case operator if operator in _ARITHMETIC or operator == "Where":
            elements = _broadcast_size([array.shape for array in inputs])
        case _:
            elements = sum(array.size for array in inputs)
    return (
        elements * 8
        if node.op_type in ("Cast", "NonZero")
        else elements * max((array.itemsize for array in inputs), default=8)
    )


def _broadcast_size(shapes: Iterable[tuple[int, ...]]) -> int:
    """The elements of the broadcast shape; where the shapes do not fit, onnx.reference says so."""
    shapes = list(shapes)
    rank = max((len(shape) for shape in shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return math.prod(max(dims) for dims in zip(*padded, strict=True))


def _run(
    node: ir.Node, kernel: onnx.reference.op_run.OpRun, inputs: Sequence[np.ndarray | None]
) -> dict[ir.Value, np.ndarray]:
    """The node's outputs; nothing, and a word at INFO, where onnx.reference fails or makes another type of them."""
    try:
        outputs = kernel.run(*inputs)  # type: ignore[no-untyped-call]
    except Exception as error:  # its kernels raise whatever NumPy does
        return _fail(node, f"onnx.reference cannot evaluate it ({type(error).__name__}: {error})")
    results = {value: np.asarray(array, order="C") for value, array in zip(node.outputs, outputs, strict=False)}
    for value, array in results.items():
        element = ir.DataType.from_numpy(array.dtype)
        if value.dtype is not None and value.dtype != element:
            return _fail(node, f"onnx.reference makes {element.name} of it, not {value.dtype.name}")
    first = results[node.outputs[0]]
    if node.op_type == "ConstantOfShape" and first.size > 1:
        results[node.outputs[0]] = np.broadcast_to(first.reshape(-1)[0], first.shape)
    return results


def _fail(node: ir.Node, reason: str) -> dict[ir.Value, np.ndarray]:
    """Leave the node alone, and remember that, so that it is said once."""
    node.meta[_FAILED] = True
    _logger.info("%s is not folded: %s", describe(node), reason)
    return {}


def _substitute(model: ir.Model, folded: Sequence[ir.Node], results: Mapping[ir.Value, np.ndarray]) -> None:
    """Put initializers in place of what other nodes read of the folded ones, and erase these."""
    erased = set(folded)
    names: Names | None = None
    for node in folded:
        assert node.graph is not None
        for value in node.outputs:
            if value.is_graph_output():
                names = names or Names(model)
                constant = new_constant(node.graph, names.fresh(f"{value.name}_value"), ir.Tensor(results[value]))
                replace_or_copy(value, constant, node)
            elif any(use.node not in erased for use in value.uses()):
                name, value.name = value.name, None
                assert name is not None
                value.replace_all_uses_with(new_constant(node.graph, name, ir.Tensor(results[value])))
    for node in reversed(folded):
        erase(node)
